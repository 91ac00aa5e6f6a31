// Searching jobs: what is typed, what its chips say, and searches that stop at their bounds.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Server, close, onPage } from './harness.js';

const server = new Server(['--workers', '0']);
before(async () => {
  await server.start();
  await server.dead({ queue: 'mail', kind: 'email', payload: { user: { id: 42 } } }, { error: 'connection to 10.0.0.1 refused' });
  await server.dead({ queue: 'sms', kind: 'text', payload: { user: { id: 43 } } }, { error: 'no such user' });
  for (let n = 0; n < 5; n += 1) await server.enqueue({ queue: 'mail', kind: 'email', priority: n, payload: { n } });
});
after(async () => {
  await close();
  await server.end();
});

const rows = (page) => page.locator('tbody a.mono').allInnerTexts();

test('words of a search become chips, find their jobs, and can be taken off and gone on with', async () => {
  await onPage(server.url, {}, async (page) => {
    const type = async (text) => {
      await page.locator('.search input').fill(text);
      await page.keyboard.press('Enter');
    };
    await page.locator('#live', { hasText: 'Live' }).waitFor();
    for (const [text, found] of [['error:"10.0.0.1 refused"', ['1']], ['payload/user/id:43', ['2']], ['queue:mail queue:sms state:failed', ['2', '1']], ['priority:>3', ['7']], ['attempts:>=1', ['2', '1']], ['age:<1h state:failed', ['2', '1']], ['age:>1h', []], ['payload:"{\\"n\\":2}"', []]]) {
      await type(text);
      await page.waitForFunction((wanted) => document.querySelector('main .panel:not(:has([aria-busy]))') && [...document.querySelectorAll('tbody a.mono')].map((a) => a.textContent).join() === wanted, found.join());
    }
    await type('error:refused colour:red hello');
    await page.locator('.chip.bad').nth(1).waitFor();
    assert.deepEqual(await rows(page), ['1']);
    await page.getByRole('button', { name: 'Remove the filter: text hello' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.chip.bad').length === 1);
    await page.getByRole('button', { name: 'Filter', exact: true }).click();
    assert.equal(await page.locator('.search input').inputValue(), 'error:refused colour:red ');
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Clear' }).click();
    await page.locator('tbody tr').nth(6).waitFor();
    await page.locator('.search input').focus();
    assert.ok((await page.locator('#words option').evaluateAll((all) => all.map((one) => one.value))).includes('queue:sms'));
  });
});

test('a search that stops at a bound says how far it got, and goes on', async () => {
  const big = await new Server(['--workers', '0']).start();
  try {
    await big.enqueue({ queue: 'big', payload: 'needle' });
    const hay = { jobs: Array.from({ length: 10_000 }, () => ({ queue: 'big', payload: 'hay' })) };
    for (let n = 0; n < 3; n += 1) assert.equal((await big.call('POST', 'jobs/batch', hay)).status, 202);
    await onPage(`${big.url}#/jobs?payload=needle`, {}, async (page) => {
      const more = page.getByRole('button', { name: 'Search 20,000 more' });
      await page.getByText('0 jobs found; searched back to').waitFor();
      while (await more.isVisible()) {
        await Promise.all([page.waitForResponse(/cursor=/), more.click()]);
        await page.waitForFunction(() => !document.querySelector('[aria-busy=true]'));
      }
      assert.deepEqual(await rows(page), ['1']);
      await page.getByText('1 job found', { exact: true }).waitFor();
    });
  } finally {
    await big.end();
  }
});
