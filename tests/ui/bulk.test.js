// Actions on many jobs: chosen rows, all that match, counts that change, canaries that fail.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Server, close, onPage, snapshots } from './harness.js';

after(close);

async function withDead(count, test) {
  const server = await new Server(['--workers', '0']).start();
  try {
    await dead(server, count);
    await test(server);
  } finally {
    await server.end();
  }
}

/** This number of dead letters at once. */
async function dead(server, count, queue = 'mail') {
  const jobs = Array.from({ length: count }, (_, n) => ({ queue, kind: 'email', max_retries: 0, payload: { n } }));
  assert.equal((await server.call('POST', 'jobs/batch', { jobs })).status, 202);
  await fail(server, queue, count);
}

async function fail(server, queue, count) {
  const { jobs } = (await server.call('POST', 'jobs/poll', { worker: 'tester', queues: [queue], max: count, wait_ms: 5000 })).json();
  await server.call('POST', 'jobs/reports', { reports: jobs.map((job) => ({ token: job.lease.token, verdict: 'fail', error: `connection to 10.0.0.${job.id} refused` })) });
  return jobs.length;
}

const counts = async (server) => (await server.call('GET', 'queues/mail')).json().counts;

test('chosen rows are retried in one step, after a question that counts them by queue', () => withDead(5, async (server) => {
  await dead(server, 1, 'sms');
  await onPage(`${server.url}#/jobs?state=failed`, {}, async (page) => {
    await page.locator('tbody tr').nth(5).waitFor();
    for (const n of [0, 1, 3]) await page.locator('tbody input').nth(n).click();
    const sent = [];
    page.on('request', (request) => request.method() === 'POST' && sent.push(request.postDataJSON()));
    await page.locator('.bulk').getByRole('button', { name: 'Retry' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Retry 3 jobs?').waitFor();
    assert.equal(await dialog.locator('.facts').innerText().then((text) => text.replace(/\s+/g, ' ')), 'mail 2 sms 1');
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'Do not retry');
    await dialog.getByRole('button', { name: 'Retry 3 jobs' }).dblclick();
    await page.getByText('3 jobs retried').waitFor();
    assert.deepEqual(sent.map((one) => one.dry_run ?? one.expect), [true, 3]);
    await page.getByText('Queued since.').nth(2).waitFor();
  });
  assert.deepEqual([(await counts(server)).queued, (await counts(server)).failed], [2, 3]);
}));

test('all that match are deleted only once their number is typed', () => withDead(284, async (server) => {
  await onPage(`${server.url}#/jobs?state=failed&queue=mail`, {}, async (page) => {
    await page.locator('thead input').click();
    await page.getByRole('button', { name: 'Select all 284' }).click();
    await page.locator('.bulk').getByText('All that match').waitFor();
    await page.locator('.bulk').getByRole('button', { name: 'Delete' }).click();
    const go = page.getByRole('dialog').getByRole('button', { name: 'Delete 284 jobs' });
    await page.getByLabel('Type 284').fill('28');
    assert.ok(await go.isDisabled());
    await snapshots(page, 2);
    assert.ok(await go.isDisabled(), 'an update does not allow it');
    await page.getByLabel('Type 284').fill('284');
    await go.click();
    await page.getByText('284 jobs deleted').waitFor();
  });
  assert.equal((await counts(server)).failed, 0);
}));

test('a count that changed since it was shown asks again with the new one', () => withDead(120, async (server) => {
  await onPage(`${server.url}#/jobs?state=failed`, { expected: /409|Conflict/ }, async (page) => {
    await page.locator('thead input').click();
    await page.getByRole('button', { name: 'Select all 120' }).click();
    await page.locator('.bulk').getByRole('button', { name: 'Retry' }).click();
    await page.getByLabel('Type 120').fill('120');
    await dead(server, 60);
    await page.getByRole('button', { name: 'Retry 120 jobs' }).click();
    await page.getByLabel('Type 180').fill('180');
    await page.getByRole('dialog').locator('.note').waitFor();
    await page.getByRole('button', { name: 'Retry 180 jobs' }).click();
    await page.getByText('180 jobs retried').waitFor();
  });
  assert.equal((await counts(server)).queued, 180);
}));

test('a canary that fails holds the rest, which is said, gone on with, and stopped', () => withDead(50, async (server) => {
  const order = { action: 'retry', filter: { state: 'failed', queue: 'mail' }, expect: 50, canary: { count: 5, max_failed: 1 }, pace: { per_s: 2 } };
  const { bulk } = (await server.call('POST', 'bulk', order)).json();
  await onPage(`${server.url}#/jobs`, {}, async (page) => {
    await page.locator('.op').getByText('follow at 2/s').waitFor();
    await page.locator('.op').getByText('canary of 5').waitFor();
    for (let left = 5; left > 0;) left -= await fail(server, 'mail', left);
    await page.locator('.op').getByText('held: ').waitFor();
    await page.evaluate(() => { location.hash = '#/'; });
    await page.getByText('A bulk action is held').waitFor();
    await page.getByRole('link', { name: 'Decide' }).click();
    assert.match(page.url(), new RegExp(`#/bulk/${bulk.id}$`));
    await page.getByText('Look at what failed').waitFor();
    await page.getByRole('button', { name: 'Release the rest now' }).click();
    await page.locator('main').getByText('Running', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.locator('main').getByText('Stopped', { exact: true }).waitFor();
  });
  const last = (await server.call('GET', `bulk/${bulk.id}`)).json().bulk;
  assert.equal(last.state, 'stopped');
  assert.ok(last.done >= 5 && last.done < 50, `${last.done}`);
}));

test('all that a search finds are acted on, with what it counted said', () => withDead(130, async (server) => {
  await dead(server, 60, 'sms');
  await onPage(`${server.url}#/jobs?state=failed&queue=mail,sms&error=refused&attempts=%3E%3D1`, {}, async (page) => {
    await page.locator('tbody tr').nth(49).waitFor();
    await page.locator('thead input').click();
    const sent = [];
    page.on('request', (request) => request.method() === 'POST' && sent.push(request.postDataJSON()));
    await page.getByRole('button', { name: 'Select all that match' }).click();
    await page.locator('.bulk').getByRole('button', { name: 'Retry' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText(/Retry (up to )?190 jobs\?/).waitFor();
    await page.getByLabel('Type 190').fill('190');
    await dialog.getByRole('button', { name: /190 jobs/ }).click();
    await page.getByText('190 jobs retried').waitFor();
    assert.deepEqual(sent.at(-1).filter, { state: 'failed', queue: 'mail,sms', error_contains: 'refused', attempts_min: 1 });
  });
  assert.equal((await counts(server)).failed, 0);
}));
