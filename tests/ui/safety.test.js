// What must never happen: text that acts, writes by those who may not, rows that move, lost edits.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Server, close, onPage, snapshots } from './harness.js';

after(close);

const HOSTILE = ["</script><script>document.title='pwned'</script>", '<img src=x onerror="document.title=\'pwned\'">', "</td></table><svg onload=document.title='pwned'>", "<a href=javascript:alert(1) autofocus onfocus=alert(1)>x</a>", '\u202ereversed \u0000 nul', '{"a":'];

async function withServer(args, test) {
  const server = await new Server(args).start();
  try {
    await test(server);
  } finally {
    await server.end();
  }
}

test('what clients send shows as text, whole, and acts nowhere', () => withServer(['--workers', '0'], async (server) => {
  const ids = [];
  for (const text of HOSTILE) {
    const safe = text.replaceAll('\u0000', '\u0001');
    ids.push(await server.dead({ payload: { text: safe } }, { error: safe, stdout: safe, stderr: safe }));
  }
  const raw = '{"n": 9007199254740993001, "deep": ' + '['.repeat(100) + ']'.repeat(100) + '}';
  const big = await server.enqueue(`{"queue":"big","payload":${raw}}`);
  const huge = await server.enqueue({ queue: 'big', payload: 'x'.repeat(900_000) });
  await onPage(`${server.url}#/jobs?state=failed`, {}, async (page) => {
    await page.locator('tbody tr').nth(HOSTILE.length - 1).waitFor();
    for (const id of ids) {
      await page.evaluate((to) => { location.hash = `#/jobs/${to}`; }, id);
      await page.getByText('Given up after').waitFor();
      await page.getByRole('heading', { name: 'Payload' }).waitFor();
    }
    const shown = await page.locator('main').innerText();
    assert.ok(shown.includes('{"a":'), shown);
    await page.evaluate((to) => { location.hash = `#/jobs/${to}`; }, ids[4]);
    await page.getByText('U+202E').first().waitFor();
    await page.evaluate((to) => { location.hash = `#/jobs/${to}`; }, big);
    await page.getByText('9007199254740993001').waitFor();
    await page.evaluate((to) => { location.hash = `#/jobs/${to}`; }, huge);
    await page.getByText('Download').waitFor();
    assert.match(await page.title(), /Windlass$/);
    assert.equal(await page.locator('main img, main script, main a[href^=javascript]').count(), 0);
  });
  await onPage(server.url, { expected: /TrustedHTML|violates/ }, async (page) => {
    const refused = await page.evaluate(() => { try { document.body.innerHTML = '<b>x</b>'; return false; } catch { return true; } });
    assert.ok(refused, 'Trusted Types refuse markup');
  });
  // A document that is no page shows as text too.
  await onPage(`${server.url}jobs/${ids[0]}/attempts`, { expected: /favicon|404|401/ }, async (page) => {
    assert.equal(await page.locator('body script').count(), 0);
    assert.ok((await page.locator('body').innerText()).includes("<script>document.title='pwned'"));
  });
  assert.equal((await server.call('GET', `jobs/${big}/payload`)).text, raw);
}));

test('the badge is honest about a server that is gone, and everything is as before when it is back', () => withServer(['--workers', '0'], async (server) => {
  for (let n = 0; n < 5; n += 1) await server.dead({ payload: n }, { error: 'x' });
  await onPage(`${server.url}#/jobs?state=failed`, { expected: /ERR_|Failed to (load|fetch)|network/i }, async (page) => {
    await page.locator('tbody input').nth(1).click();
    await page.locator('#live', { hasText: 'Live' }).waitFor();
    await server.kill();
    await page.locator('#live', { hasText: 'Stale' }).waitFor({ timeout: 8000 });
    await page.waitForFunction(() => [...document.querySelectorAll('[data-write]')].every((one) => one.disabled), null, { timeout: 3000 });
    await server.start(server.port);
    await page.locator('#live', { hasText: 'Live' }).waitFor({ timeout: 20_000 });
    await page.getByText('1 selected').waitFor();
    assert.equal(await page.locator('tr.on').count(), 1);
    await page.waitForFunction(() => ![...document.querySelectorAll('[data-write]')].some((one) => one.disabled));
  });
}));

test('a token that reads sees no way to write, and one that is missing is asked for over the same page', async () => {
  const server = new Server(['--workers', '0', '--token-file']);
  server.args.push(server.file('tokens', 'look read read-token-0123456789\nops admin admin-token-0123456789\nrun work work-token-0123456789\n'));
  await server.start();
  try {
    await server.call('POST', 'jobs', { queue: 'mail' }, { authorization: 'Bearer admin-token-0123456789' });
    const expected = /401|Unauthorized|403/;
    await onPage(`${server.url}#/queues/mail`, { expected }, async (page) => {
      const token = page.locator('#token');
      await token.fill('work-token-0123456789');
      await page.getByRole('button', { name: 'Continue' }).click();
      await page.getByText('looking needs the scope read').waitFor();
      await token.fill('read-token-0123456789');
      await page.getByRole('button', { name: 'Continue' }).click();
      await page.getByText('Takes and starts jobs').waitFor();
      await page.getByText('Read only').first().waitFor();
      assert.match(page.url(), /#\/queues\/mail$/);
      for (const route of ['#/', '#/queues', '#/queues/mail', '#/jobs', '#/jobs/1', '#/workers', '#/settings']) {
        await page.evaluate((hash) => { location.hash = hash; }, route);
        await snapshots(page, 1);
        assert.equal(await page.locator('[data-write], main input[type=checkbox][aria-label^=Select]').count(), 0, route);
      }
      const status = await page.evaluate(async () => (await fetch('queues/mail/pause', { method: 'POST', headers: { authorization: 'Bearer read-token-0123456789' } })).status);
      assert.equal(status, 403);
      await page.evaluate(() => { location.hash = '#/settings'; });
      await page.getByRole('button', { name: 'Forget token' }).click();
      await page.locator('#token').waitFor();
    });
  } finally {
    await server.end();
  }
});

test('two people who edit one queue: the second is shown both values', () => withServer(['--workers', '0'], async (server) => {
  await server.call('PUT', 'queues/mail', { concurrency: 4 });
  await onPage(`${server.url}#/queues/mail`, { expected: /412|Precondition/ }, async (page) => {
    await page.getByLabel('Running at once').fill('32');
    await page.getByText('4 → 32').waitFor();
    await server.call('PUT', 'queues/mail', { concurrency: 7 });
    await page.getByRole('button', { name: 'Save 1 change' }).click();
    await page.getByText('Running at once: now 7, yours 32').waitFor();
    assert.equal((await server.call('GET', 'queues/mail')).json().settings.concurrency, 7);
    await page.getByRole('button', { name: 'Keep mine' }).click();
    await page.getByRole('button', { name: 'Save 1 change' }).click();
    await page.getByText('are saved').waitFor();
    assert.equal((await server.call('GET', 'queues/mail')).json().settings.concurrency, 32);
    await page.locator('.toasts').getByRole('button', { name: 'Undo' }).click();
    await page.getByText('are as before').waitFor();
    assert.equal((await server.call('GET', 'queues/mail')).json().settings.concurrency, 7);
  });
}));

test('a pause can be undone, a double click is one request, a deletion can be stopped', () => withServer(['--workers', '0'], async (server) => {
  const id = await server.dead({ payload: 1 }, { error: 'x' });
  await server.enqueue({ queue: 'mail' });
  await onPage(`${server.url}#/queues`, {}, async (page) => {
    const posts = [];
    page.on('request', (request) => request.method() !== 'GET' && posts.push(request.url()));
    await page.getByRole('button', { name: 'Pause mail' }).dblclick();
    await page.getByText('mail is paused').waitFor();
    assert.equal(posts.length, 1);
    await page.getByRole('button', { name: 'Undo' }).click();
    await page.getByText('mail is resumed').waitFor();
    await page.evaluate((to) => { location.hash = `#/jobs/${to}`; }, id);
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').waitFor();
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), 'Keep them', 'the safe button has the focus');
    await page.getByRole('button', { name: 'Delete 1 job' }).click();
    await page.locator('.toasts').getByRole('button', { name: 'Keep them' }).click();
    assert.equal((await server.call('GET', `jobs/${id}`)).status, 200);
    await page.getByRole('button', { name: 'Retry' }).click();
    await page.getByText('is queued again').waitFor();
    await page.getByText('No worker takes it').waitFor();
  });
}));

test('rows keep their place while jobs come and go', () => withServer(['--workers', '0'], async (server) => {
  for (let n = 0; n < 20; n += 1) await server.enqueue({ queue: 'mail', payload: n });
  await onPage(`${server.url}#/jobs`, {}, async (page) => {
    await page.locator('tbody tr').nth(19).waitFor();
    const ids = () => page.locator('tbody a.mono').allInnerTexts();
    const before = await ids();
    await page.locator('tbody a.mono').nth(4).focus();
    for (let n = 0; n < 10; n += 1) await server.enqueue({ queue: 'mail', payload: n });
    await server.call('POST', 'jobs/5/cancel');
    await page.getByRole('button', { name: 'Show 10 newer' }).waitFor();
    await page.locator('tr', { hasText: 'Cancelled' }).waitFor();
    assert.deepEqual(await ids(), before);
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), before[4], 'the focus stays');
    await page.keyboard.press('n');
    await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 30);
  });
}));
