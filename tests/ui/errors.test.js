// Dead letters by what they have in common, and how they are run again.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Server, close, onPage, snapshots } from './harness.js';

const server = new Server(['--workers', '0']);

/** This number of dead letters with errors that differ in numbers only. */
async function dead(queue, kind, count, error) {
  const jobs = Array.from({ length: count }, (_, n) => ({ queue, kind, max_retries: 0, payload: { host: 'db-1', n, big: 9007199254740993001 } }));
  const text = JSON.stringify({ jobs }).replaceAll('9007199254740993000', '9007199254740993001');
  assert.equal((await server.call('POST', 'jobs/batch', text)).status, 202);
  const claimed = (await server.call('POST', 'jobs/poll', { worker: 'tester', queues: [queue], max: count })).json().jobs;
  await server.call('POST', 'jobs/reports', { reports: claimed.map((job, n) => ({ token: job.lease.token, verdict: 'fail', error: error(n) })) });
}

before(async () => {
  await server.start();
  await dead('mail', 'email', 120, (n) => `connection to 10.0.0.${n} refused after ${n} s`);
  await dead('sms', 'text', 12, (n) => `</td><img src=x onerror=alert(1)> \u202e no such user ${n}`);
  await dead('sms', 'text', 3, () => 'out of credit');
});
after(async () => {
  await close();
  await server.end();
});

const groups = async () => (await server.call('GET', 'errors')).json().groups;

test('alike errors are one row, with what differs as slots; the order can be changed', async () => {
  await onPage(`${server.url}#/errors`, {}, async (page) => {
    await page.locator('.errs tbody tr').nth(2).waitFor();
    assert.equal(await page.locator('.errs tbody tr').count(), 3);
    assert.deepEqual(await page.locator('.errs tbody .num.strong').allInnerTexts(), ['120', '12', '3']);
    assert.ok(await page.locator('.errs .ph').count() > 0);
    assert.equal(await page.locator('main img').count(), 0);
    await page.getByText('135 dead letters in 3 groups').waitFor();
    await page.getByText('new first').click();
    await page.waitForFunction(() => location.hash === '#/errors?by=new');
    await page.locator('[data-nav=errors] .n', { hasText: '3' }).waitFor();
    await page.evaluate(() => { location.hash = '#/'; });
    await page.getByText('Errors, by what they have in common').waitFor();
    await page.getByText('New error in mail').waitFor();
    assert.equal(await page.locator('.errs tbody tr').count(), 3);
  });
});

test('what a group shares is shown as it is stored, and leads to its jobs', async () => {
  const [first] = await groups();
  await onPage(`${server.url}#/errors/${first.id}`, {}, async (page) => {
    await page.getByText('What the 120 share').waitFor();
    await page.getByText('host = db-1').waitFor();
    await page.getByText('big = 9007199254740993001').waitFor();
    await page.getByRole('link', { name: 'all 120' }).click();
    await page.locator('tbody tr').nth(49).waitFor();
    await page.locator('.chip', { hasText: 'group' }).waitFor();
    await page.getByRole('link', { name: String(first.newest[0]), exact: true }).click();
    await page.getByRole('link', { name: 'see the group' }).click();
    await page.waitForFunction((id) => location.hash === `#/errors/${id}`, first.id);
  });
});

test('a replay by keyboard alone: canary, pace, the typed number, and its strip', async () => {
  const [first] = await groups();
  await onPage(`${server.url}#/errors`, {}, async (page) => {
    await page.locator('.errs tbody tr').nth(2).waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    const start = page.getByRole('button', { name: 'Start with 4' });
    await page.getByText('120 jobs match, all in mail').waitFor();
    const at = async (name) => {
      for (let n = 0; n < 80; n += 1) {
        if (await page.evaluate((wanted) => document.activeElement?.getAttribute('aria-label') === wanted || document.activeElement?.textContent === wanted, name)) return;
        await page.keyboard.press('Tab');
      }
      assert.fail(`${name} is not reached by Tab`);
    };
    for (const [name, value] of [['Canary jobs', '4'], ['Failures allowed', '0'], ['Jobs per second', '50']]) {
      await at(name);
      await page.keyboard.press('Control+a');
      await page.keyboard.type(value);
    }
    await at('Number of jobs');
    await page.keyboard.type('12');
    await snapshots(page, 2);
    assert.ok(await start.isDisabled());
    await page.keyboard.type('0');
    await at('Start with 4');
    await page.keyboard.press('Enter');
    await page.locator('.op').getByText('canary of 4').waitFor();
    const claimed = (await server.call('POST', 'jobs/poll', { worker: 'tester', queues: ['mail'], max: 4, wait_ms: 5000 })).json().jobs;
    assert.equal(claimed.length, 4);
    await server.call('POST', 'jobs/reports', { reports: claimed.map((job) => ({ token: job.lease.token, verdict: 'complete' })) });
    await page.getByText('120 jobs retried').waitFor({ timeout: 20_000 });
    await page.getByText('No dead letter has this error now').or(page.locator('.errs tbody tr').nth(1)).first().waitFor();
  });
  assert.equal((await groups()).some((group) => group.id === first.id), false);
});

test('who may only read sees groups, their jobs and bulk actions, and no way to act on them', async () => {
  const closed = new Server(['--workers', '0', '--token-file']);
  closed.args.push(closed.file('tokens', 'look read read-token-0123456789\nops admin admin-token-0123456789\n'));
  await closed.start();
  try {
    const call = async (method, path, body) => (await closed.call(method, path, body, { authorization: 'Bearer admin-token-0123456789' })).json();
    await call('POST', 'jobs', { queue: 'mail', max_retries: 0 });
    const { jobs: [job] } = await call('POST', 'jobs/poll', { worker: 'tester', queues: ['mail'] });
    await call('POST', `jobs/${job.id}/fail`, { token: job.lease.token, error: 'refused' });
    const { groups: [group] } = await call('GET', 'errors');
    const { bulk } = await call('POST', 'bulk', { action: 'retry', filter: { state: 'failed', queue: 'mail' }, expect: 1, canary: { count: 1, max_failed: 0 } });
    await onPage(`${closed.url}#/errors`, { expected: /401|Unauthorized/ }, async (page) => {
      await page.locator('#token').fill('read-token-0123456789');
      await page.getByRole('button', { name: 'Continue' }).click();
      for (const [route, shown] of [['#/errors', 'dead letters'], [`#/errors/${group.id}`, 'dead letter'], [`#/bulk/${bulk.id}`, 'Asked by'], ['#/queues/mail', 'Running at once'], [`#/jobs/${job.id}`, 'Visibility timeout']]) {
        await page.evaluate((hash) => { location.hash = hash; }, route);
        await page.locator('main').getByText(shown).first().waitFor();
        await snapshots(page, 1);
        assert.equal(await page.locator('main :is([data-write], input:not([type=radio]), select, textarea)').count(), 0, route);
      }
    });
  } finally {
    await closed.end();
  }
});
