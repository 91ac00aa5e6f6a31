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
    ids.push(await server.dead({ payload: { text } }, { error: text, stdout: text, stderr: text }));
  }
  // Names have an alphabet; what a job and its worker report is free.
  for (const text of HOSTILE) {
    for (const [path, body] of [['jobs', { queue: text }], ['jobs', { queue: 'q', kind: text }], ['jobs/poll', { worker: text }]]) {
      assert.equal((await server.call('POST', path, body)).status, 422, `${path} ${text}`);
    }
  }
  const worker = 'tester-2';
  const running = await server.enqueue({ queue: 'runs' });
  const ended = await server.enqueue({ queue: 'ends' });
  const [mine] = (await server.call('POST', 'jobs/poll', { worker, queues: ['runs'] })).json().jobs;
  await server.call('POST', `jobs/${running}/heartbeat`, `{"token":"${mine.lease.token}","progress":{"at":9007199254740993001,"of":${JSON.stringify(HOSTILE[2])}}}`);
  const [other] = (await server.call('POST', 'jobs/poll', { worker, queues: ['ends'] })).json().jobs;
  await server.call('POST', `jobs/${ended}/complete`, { token: other.lease.token, result: HOSTILE });
  const raw = '{"n": 9007199254740993001, "deep": ' + '['.repeat(127) + ']'.repeat(127) + '}';
  const big = await server.enqueue(`{"queue":"big","payload":${raw}}`);
  const huge = await server.enqueue({ queue: 'big', payload: 'x'.repeat(1024 * 1024 - 200) });
  await onPage(`${server.url}#/jobs?state=failed`, {}, async (page) => {
    await page.locator('tbody tr').nth(HOSTILE.length - 1).waitFor();
    for (const [at, id] of ids.entries()) {
      await page.evaluate((to) => { location.hash = `#/jobs/${to}`; }, id);
      await page.getByText('Given up after').waitFor();
      await page.getByRole('heading', { name: 'Payload' }).waitFor();
      const sent = JSON.stringify({ text: HOSTILE[at] });
      assert.equal((await server.call('GET', `jobs/${id}/payload`)).text, sent, 'stored byte for byte');
      const seen = (await page.locator('pre.stored').evaluate((pre) => pre.textContent)).replaceAll('U+202E', '\u202e');
      assert.equal(seen.replace(/\s/g, ''), sent.replace(/\s/g, ''), 'shown whole');
      const [output] = await page.locator('.attempt pre').allTextContents();
      // The server stores the substitute character for a NUL in an output.
      assert.equal(output.replaceAll('U+202E', '\u202e').replaceAll('U+001A', '\u0000'), HOSTILE[at], 'its output too');
    }
    const shown = await page.locator('main').innerText();
    assert.ok(shown.includes('{"a":'), shown);
    await page.evaluate((to) => { location.hash = `#/jobs/${to}`; }, ids[4]);
    await page.getByText('U+202E').first().waitFor();
    await page.evaluate((to) => { location.hash = `#/jobs/${to}`; }, big);
    await page.getByText('9007199254740993001').waitFor();
    await page.evaluate((to) => { location.hash = `#/jobs/${to}`; }, huge);
    await page.getByText('Download').waitFor();
    for (const hash of [`#/jobs/${running}`, '#/workers']) {
      await page.evaluate((to) => { location.hash = to; }, hash);
      await page.getByText('{"at":9007199254740993001,').waitFor();
      await page.getByText(worker).first().waitFor();
    }
    await page.evaluate((to) => { location.hash = `#/jobs/${to}`; }, ended);
    await page.getByRole('heading', { name: 'Result' }).waitFor();
    assert.ok((await page.locator('main').innerText()).includes("<script>document.title='pwned'"));
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
      await page.getByText('reading requires the scope').waitFor();
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

test('an edit that was not shown is never written over: neither by Undo nor by Keep mine', () => withServer(['--workers', '0'], async (server) => {
  const concurrency = async () => (await server.call('GET', 'queues/mail')).json().settings.concurrency;
  await server.call('PUT', 'queues/mail', { concurrency: 4 });
  await onPage(`${server.url}#/queues/mail`, { expected: /412|Precondition/ }, async (page) => {
    const field = page.getByLabel('Running at once');
    const save = page.getByRole('button', { name: 'Save 1 change' });
    await field.fill('32');
    await save.click();
    await page.getByText('are saved').waitFor();
    await server.call('PUT', 'queues/mail', { concurrency: 9 });
    await page.locator('.toasts').getByRole('button', { name: 'Undo' }).click();
    await page.locator('.toasts').getByText('were changed since they were read').waitFor();
    assert.equal(await concurrency(), 9);
    await page.reload();
    await field.fill('16');
    await server.call('PUT', 'queues/mail', { concurrency: 7 });
    await save.click();
    await page.getByText('Running at once: now 7, yours 16').waitFor();
    await server.call('PUT', 'queues/mail', { concurrency: 8 });
    await page.getByRole('button', { name: 'Keep mine' }).click();
    await save.click();
    await page.getByText('Running at once: now 8, yours 16').waitFor();
    assert.equal(await concurrency(), 8);
  });
}));

const ADMIN = { authorization: 'Bearer admin-token-0123456789' };

/** A server that only knows the token `admin-token-0123456789`. */
async function withToken(test) {
  const server = new Server(['--workers', '0', '--token-file']);
  server.args.push(server.file('tokens', 'ops admin admin-token-0123456789\n'));
  await server.start();
  try {
    await test(server);
  } finally {
    await server.end();
  }
}

async function login(page, token = 'admin-token-0123456789') {
  await page.locator('#token').fill(token);
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
}

test('a server setting that another user changed is not undone over', () => withServer(['--workers', '0'], async (server) => {
  const stored = async () => (await server.call('GET', 'settings/max_retries')).json().stored;
  await onPage(`${server.url}#/settings`, { expected: /412|Precondition/ }, async (page) => {
    const set = async (value) => {
      await page.getByRole('button', { name: 'Change max_retries' }).click();
      await page.getByLabel('Value').fill(value);
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText(`max_retries is ${value}`).waitFor();
    };
    await set('5');
    await page.locator('.toasts').getByRole('button', { name: 'Undo' }).click();
    await page.getByText('max_retries is the default again').waitFor();
    assert.equal(await stored(), null);
    await page.reload();
    await set('6');
    await server.call('PUT', 'settings/max_retries', { value: '7' });
    await page.locator('.toasts').getByRole('button', { name: 'Undo' }).click();
    await page.locator('.toasts').getByText('is now 7 in the store').waitFor();
    assert.equal(await stored(), '7');
  });
}));

test('documents of the API are downloaded with the token of the tab', () => withToken(async (server) => {
  await server.call('POST', 'jobs', { queue: 'mail', payload: 'x'.repeat(300_000) }, ADMIN);
  await onPage(`${server.url}#/jobs/1`, { expected: /401|Unauthorized/ }, async (page) => {
    await login(page);
    for (const [hash, name, begins] of [['#/jobs/1', 'Download', '"xxx'], ['#/settings', 'openapi.json', '{'], ['#/settings', 'metrics', '#']]) {
      await page.evaluate((to) => { location.hash = to; }, hash);
      const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name }).click()]);
      const chunks = await (await file.createReadStream()).toArray();
      assert.ok(Buffer.concat(chunks).toString().startsWith(begins), name);
    }
  });
}));

test('nothing is asked for behind the login', () => withToken(async (server) => {
  await onPage(`${server.url}#/workers`, { expected: /401|Unauthorized/ }, async (page) => {
    await page.locator('#token').waitFor();
    const asked = [];
    page.on('request', (request) => asked.push(request.url()));
    await page.waitForTimeout(7000);
    assert.deepEqual(asked, []);
    await login(page);
    await page.locator('#live', { hasText: 'Live' }).waitFor();
  });
}));

test('a refused write says why on the screen', () => withToken(async (server) => {
  await server.call('POST', 'jobs', { queue: 'mail' }, ADMIN);
  await onPage(`${server.url}#/queues/mail`, { expected: /40[13]|Unauthorized|Forbidden|ERR_|Failed/ }, async (page) => {
    await login(page);
    await page.getByText('Takes and starts jobs').waitFor();
    await server.kill();
    server.file('tokens', 'ops read admin-token-0123456789\n');
    await server.start(server.port);
    await snapshots(page, 2);
    const [refused] = await Promise.all([page.waitForResponse(/pause$/), page.locator('main').getByRole('button', { name: 'Pause' }).click()]);
    assert.equal(refused.status(), 403);
    await page.locator('.toasts').getByText((await refused.json()).detail).waitFor();
    assert.equal((await server.call('GET', 'queues/mail', undefined, ADMIN)).json().paused, false);
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
    // Other toasts do not take the only way to stop it away.
    for (let n = 0; n < 4; n += 1) {
      await page.getByRole('button', { name: 'Copy as CLI' }).click();
      await page.waitForFunction((wanted) => document.querySelectorAll('.toasts > *').length >= wanted, Math.min(3, n + 2));
    }
    await page.locator('.toasts').getByRole('button', { name: 'Keep them' }).click();
    // Past the time that it had waited for.
    await page.waitForTimeout(9000);
    assert.equal((await server.call('GET', `jobs/${id}`)).status, 200);
    assert.deepEqual(posts.filter((url) => url.endsWith(`jobs/${id}`)), []);
    await page.locator('.jobhead').getByRole('button', { name: 'Retry' }).click();
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
    // One that is deleted makes the list no longer than before.
    for (const gone of [1, 2, 3]) { await server.call('POST', `jobs/${gone}/cancel`); await server.call('DELETE', `jobs/${gone}`); }
    await page.getByRole('button', { name: 'Show 10 newer' }).waitFor();
    await page.locator('tr', { hasText: 'Cancelled' }).waitFor();
    assert.deepEqual(await ids(), before);
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), before[4], 'the focus stays');
    await page.keyboard.press('n');
    await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 27);
  });
}));

test('a deletion that is not stopped is done, once, after its time', () => withServer(['--workers', '0'], async (server) => {
  const id = await server.dead({ payload: 1 }, { error: 'x' });
  await onPage(`${server.url}#/jobs/${id}`, { expected: /404/ }, async (page) => {
    const deletes = [];
    page.on('request', (request) => request.method() === 'DELETE' && deletes.push(request.url()));
    await page.locator('.jobhead').getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('button', { name: 'Delete 1 job' }).dblclick();
    // The same again while it waits is not another one.
    await page.keyboard.press('Delete');
    await page.locator('.toasts').getByText('is deleted').waitFor({ timeout: 20_000 });
    assert.equal(deletes.length, 1);
  });
  assert.equal((await server.call('GET', `jobs/${id}`)).status, 404);
}));

test('nothing is written while the server is gone, whatever was asked before', () => withServer(['--workers', '0'], async (server) => {
  const id = await server.dead({ payload: 1 }, { error: 'x' });
  await onPage(`${server.url}#/jobs/${id}`, { expected: /ERR_|Failed to (load|fetch)|network/i }, async (page) => {
    const writes = [];
    page.on('request', (request) => request.method() !== 'GET' && writes.push(request.url()));
    await page.locator('.jobhead').getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('button', { name: 'Delete 1 job' }).click();
    await server.kill();
    await page.locator('.toasts').getByText('nothing was sent').waitFor({ timeout: 20_000 });
    assert.deepEqual(writes, []);
    await server.start(server.port);
    assert.equal((await server.call('GET', `jobs/${id}`)).status, 200);
  });
}));

test('two clicks enqueue one copy, and two keys open one question', () => withServer(['--workers', '0'], async (server) => {
  const id = await server.dead({ payload: { n: 1 } }, { error: 'x' });
  await onPage(`${server.url}#/jobs/${id}`, {}, async (page) => {
    await page.getByRole('button', { name: 'Enqueue a copy' }).dblclick();
    await page.locator('.toasts').getByText('is enqueued').waitFor();
    assert.equal((await server.call('GET', 'jobs?queue=dead&state=queued')).json().jobs.length, 1);
    await page.evaluate(() => { location.hash = '#/jobs?state=failed'; });
    await page.locator('tbody input').first().click();
    await page.evaluate(() => { for (const repeat of [false, true, true]) document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'Delete', bubbles: true, repeat })); });
    await page.getByRole('dialog').waitFor();
    assert.equal(await page.locator('dialog').count(), 1);
  });
}));

test('a document of many values is shown whole without an element for each', () => withServer(['--workers', '0'], async (server) => {
  const dense = JSON.stringify(Array.from({ length: 60_000 }, (_, n) => n % 10));
  const id = await server.enqueue(`{"queue":"big","payload":${dense}}`);
  await onPage(`${server.url}#/jobs/${id}`, {}, async (page) => {
    await page.getByRole('heading', { name: 'Payload' }).waitFor();
    const [text, elements] = await page.locator('pre.stored').evaluate((pre) => [pre.textContent, pre.querySelectorAll('*').length]);
    assert.equal(text.replace(/\s/g, ''), dense);
    assert.ok(elements < 10_000, `${elements} elements`);
  });
}));

test('a token that is forgotten leaves nothing of what it read', () => withToken(async (server) => {
  await server.call('POST', 'jobs', { queue: 'secret-queue' }, ADMIN);
  await onPage(`${server.url}#/queues`, { expected: /401|Unauthorized/ }, async (page) => {
    await login(page);
    await page.getByRole('link', { name: 'secret-queue' }).waitFor();
    await page.evaluate(() => { location.hash = '#/settings'; });
    await page.getByRole('button', { name: 'Forget token' }).click();
    await page.locator('#token').waitFor();
    await page.evaluate(() => { location.hash = '#/queues'; });
    await page.waitForFunction(() => document.querySelector('h1').textContent === 'Queues');
    assert.equal(await page.getByText('secret-queue').count(), 0);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.rev), undefined);
  });
}));
