// More than a snapshot or a page holds, and what needs a look: from stores that were made for it.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Server, close, onPage, snapshots } from './harness.js';

after(close);

async function withServer(test) {
  const server = await new Server(['--workers', '0']).start();
  try {
    await test(server);
  } finally {
    await server.end();
  }
}

/** The first snapshot that fits: one is made per second. */
async function snapshotOf(server, fits) {
  for (;;) {
    const snapshot = (await server.call('GET', 'snapshot')).json();
    if (fits(snapshot)) return snapshot;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

test('a queue that no snapshot holds is found, and has its page', () => withServer(async (server) => {
  const jobs = Array.from({ length: 230 }, (_, n) => ({ queue: `busy${100 + n}` }));
  assert.equal((await server.call('POST', 'jobs/batch', { jobs })).status, 202);
  const { queues } = await snapshotOf(server, ({ more }) => more);
  const held = new Set(queues.map((one) => one.name));
  const quiet = jobs.map((one) => one.queue).find((name) => !held.has(name));
  await server.call('PUT', `queues/${quiet}`, { concurrency: 3 });
  await onPage(`${server.url}#/queues`, {}, async (page) => {
    await page.locator('tbody tr').nth(229).waitFor();
    await page.getByLabel('Filter by name').fill(quiet);
    await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 1);
    await page.getByRole('link', { name: quiet, exact: true }).click();
    await page.getByText('of 3', { exact: true }).waitFor();
    await page.locator('main').getByRole('button', { name: 'Pause' }).click();
    await page.getByText('Takes jobs and starts none').waitFor({ timeout: 20_000 });
  });
}));

test('error groups beyond the first page are shown on request', () => withServer(async (server) => {
  const jobs = Array.from({ length: 120 }, (_, n) => ({ queue: 'dead', kind: `kind${n}`, max_retries: 0 }));
  await server.call('POST', 'jobs/batch', { jobs });
  const claimed = (await server.call('POST', 'jobs/poll', { worker: 'tester', queues: ['dead'], max: 120 })).json().jobs;
  await server.call('POST', 'jobs/reports', { reports: claimed.map((job) => ({ token: job.lease.token, verdict: 'fail', error: 'refused' })) });
  await onPage(`${server.url}#/errors`, {}, async (page) => {
    const rows = page.locator('.errs tbody tr');
    await rows.nth(49).waitFor();
    assert.equal(await rows.count(), 50);
    await page.getByRole('button', { name: 'Show more' }).click();
    await rows.nth(99).waitFor();
    await page.getByRole('button', { name: 'Show more' }).click();
    await rows.nth(119).waitFor();
    assert.ok(await page.getByRole('button', { name: 'Show more' }).isHidden());
    await page.evaluate(() => { location.hash = '#/errors?kind=kind7'; });
    await page.waitForFunction(() => document.querySelectorAll('.errs tbody tr').length === 1);
    await page.getByRole('button', { name: 'Remove the filter: kind kind7' }).click();
    await rows.nth(49).waitFor();
  });
}));

test('a bulk action that is in progress is shown again after a reload', () => withServer(async (server) => {
  await server.call('POST', 'jobs/batch', { jobs: Array.from({ length: 100 }, () => ({ queue: 'mail' })) });
  const order = { action: 'cancel', filter: { state: 'queued', queue: 'mail' }, expect: 100, pace: { per_s: 5 } };
  const { bulk } = (await server.call('POST', 'bulk', order)).json();
  await onPage(server.url, {}, async (page) => {
    const toast = page.locator('.toasts').getByText('Cancel of 100 jobs is in progress');
    await toast.waitFor();
    await page.reload();
    await toast.waitFor();
    await page.evaluate(() => { location.hash = '#/jobs'; });
    await page.locator('.op').getByText('Cancel of 100 jobs').waitFor();
    assert.ok(await toast.isHidden(), 'the strip shows it');
    await server.call('POST', `bulk/${bulk.id}/stop`);
    await page.locator('.toasts').getByText('jobs cancelled').waitFor();
  });
}));

/** The Overview of a server that sends this for a snapshot. */
async function looks(server, change) {
  const snapshot = await snapshotOf(server, ({ queues }) => queues.length === 4);
  change(snapshot);
  let found = [];
  await onPage(`${server.url}#/settings`, {}, async (page) => {
    await page.route('**/events?feed=snapshot', (route) => {
      snapshot.at = new Date(Date.parse(snapshot.at) + 11_000).toISOString();
      for (const queue of snapshot.queues) if (queue.oldest_ready_age_ms) queue.oldest_ready_age_ms += queue.name === 'rising' ? 11_000 : -1000;
      return route.fulfill({ contentType: 'text/event-stream', body: `event: snapshot\ndata: ${JSON.stringify(snapshot)}\n\n` });
    });
    await page.reload();
    await page.evaluate(() => { location.hash = '#/'; });
    await snapshots(page, 3);
    found = await page.locator('.attention strong').allInnerTexts();
  });
  return found;
}

test('what needs a look is listed worst first', () => withServer(async (server) => {
  for (const queue of ['rising', 'falling', 'starved', 'held']) await server.enqueue({ queue });
  assert.deepEqual(await looks(server, (snapshot) => {
    for (const queue of snapshot.queues) {
      queue.starved = queue.name === 'starved';
      queue.paused = queue.name === 'held';
      queue.oldest_ready_age_ms = 90_000;
    }
    snapshot.workers.stale = 1;
    snapshot.store.free_bytes = 5e9;
    snapshot.store.total_bytes = 100e9;
  }), ['Little space on the disk', 'A worker sends no heartbeats', 'held is paused', 'No worker takes starved', 'rising is behind']);
  assert.deepEqual(await looks(server, (snapshot) => {
    for (const queue of snapshot.queues) Object.assign(queue, { starved: false, oldest_ready_age_ms: null });
    snapshot.store.free_bytes = 5e9;
    snapshot.store.total_bytes = 40e9;
    snapshot.retrying = 3;
  }), ['All quiet']);
}));
