// Every page, in every size and colour: it is there, it fits, and it is accessible.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AXE, Server, close, onPage, proxy, snapshots } from './harness.js';

const server = new Server(['--workers', '0', '--label', 'tests']);
const bare = new Server(['--workers', '0']);
const routes = ['#/', '#/queues', '#/queues/a.b:c-d', '#/jobs', '#/jobs?state=failed', '#/jobs?state=processing&queue=a.b:c-d', '#/jobs/1', '#/errors', `#/errors/${'0'.repeat(32)}`, '#/bulk/1', '#/bulk/9', '#/workers', '#/settings', '#/nowhere'];

before(async () => {
  await server.start();
  await bare.start();
  await server.dead({ queue: 'a.b:c-d', kind: 'email', payload: { to: 'ada@example.org' } }, { error: 'connection refused', stderr: 'line one\nerror: refused', exit_code: 3 });
  for (let n = 0; n < 60; n += 1) await server.enqueue({ queue: 'mail', kind: 'email', payload: { n } });
  await server.enqueue({ queue: 'later', delay_ms: 3_600_000 });
  await server.call('POST', 'jobs/poll', { worker: 'remote-1', queues: ['mail'], max: 2 });
  await server.call('POST', 'queues/imports/pause');
  await server.enqueue({ queue: 'imports' });
  const [group] = (await server.call('GET', 'errors')).json().groups;
  routes.push(`#/errors/${group.id}`, `#/jobs?state=failed&group=${group.id}`);
  await server.call('POST', 'bulk', { action: 'cancel', filter: { state: 'queued', queue: 'mail' }, expect: 60, pace: { per_s: 1 } });
});
after(async () => {
  await close();
  await server.end();
  await bare.end();
});

async function settled(page) {
  await page.waitForFunction(() => document.documentElement.dataset.rev !== undefined);
  await page.waitForFunction(() => !document.querySelector('[aria-busy=true]'));
}

async function violations(page) {
  return page.evaluate(async () => {
    const found = await globalThis.axe.run(document, { resultTypes: ['violations'] });
    return found.violations.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`);
  });
}

const LOOKS = [320, 760, 1440].flatMap((width) => [false, true].map((dark) => ({ width, dark, is: `at ${width} px, ${dark ? 'dark' : 'light'}` })));
// A page that is shown at twice the size has half the points.
LOOKS.push({ width: 720, height: 450, zoom: 2, is: 'at 200 % zoom' }, { width: 1440, forced: true, is: 'in forced colours' });
for (const { is, ...look } of LOOKS) {
  const { width } = look;
  test(`every page is accessible and fits ${is}`, async () => {
    for (const [home, list] of [[server.url, routes], [bare.url, ['#/', '#/jobs', '#/jobs?error=none', '#/errors', '#/workers', '#/queues']]]) {
      await onPage(home, { ...look, expected: /404|Not Found/ }, async (page) => {
        // The policy forbids to add scripts to the page; the checker comes in from outside.
        const session = await page.context().newCDPSession(page);
        for (const route of list) {
          await page.evaluate((hash) => { location.hash = hash; }, route);
          await settled(page);
          await session.send('Runtime.evaluate', { expression: `${AXE};1` });
          const found = await violations(page);
          assert.deepEqual(found, [], `${route} at ${width}`);
          const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          const wide = () => [...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > innerWidth)
            .slice(0, 3).map((one) => one.outerHTML.slice(0, 120));
          assert.ok(over <= 0, `${route} is ${over} px too wide at ${width}: ${over > 0 ? await page.evaluate(wide) : ''}`);
          assert.equal(await page.locator('h1').count(), 1, route);
        }
      });
    }
  });
}

test('the first page teaches, and turns into the overview by itself', async () => {
  const fresh = await new Server(['--workers', '0']).start();
  try {
    await onPage(fresh.url, {}, async (page) => {
      await page.getByText('No jobs yet').waitFor();
      const line = await page.locator('pre').first().innerText();
      assert.ok(line.includes(`${fresh.url}jobs`), line);
      await fresh.enqueue({ queue: 'first' });
      await page.getByRole('link', { name: 'first', exact: true }).waitFor();
    });
  } finally {
    await fresh.end();
  }
});

test('an address is a place: deep links, back, forward and reload keep filters and rows', async () => {
  await onPage(`${server.url}#/jobs?state=failed&queue=a.b:c-d`, {}, async (page) => {
    await page.locator('tbody tr').first().waitFor();
    assert.equal(await page.locator('tbody tr').count(), 1);
    await page.locator('tbody a.mono').first().click();
    await page.getByText('Given up after 1 of 1 attempts').waitFor();
    assert.match(page.url(), /#\/jobs\/1$/);
    await page.goBack();
    await page.locator('.chip', { hasText: 'a.b:c-d' }).waitFor();
    await page.goForward();
    await page.getByText('Given up after 1 of 1 attempts').waitFor();
    await page.reload();
    await page.getByText('Given up after 1 of 1 attempts').waitFor();
    assert.equal(await page.title(), '1 · Windlass');
  });
});

test('a parameter that is not understood is a chip that can be removed, on every page', async () => {
  await onPage(server.url, {}, async (page) => {
    for (const [place, bad] of [['jobs', 'state=lost'], ['jobs', 'row=x'], ['', 'range=2h'], ['queues', 'range=1h'], ['queues/mail', 'range=2h'], ['errors', 'by=size'], ['errors', 'queue=%20'], ['workers', 'queue=mail'], ['settings', 'q=a'], ['jobs/1', 'state=failed'], ['bulk/1', 'x=1'], ['queues', 'constructor=1'], ['jobs', 'constructor=1'], ['errors', 'toString=1']]) {
      await page.evaluate((hash) => { location.hash = hash; }, `#/${place}?colour=red&${bad}`);
      await page.locator('.chip.bad').nth(1).waitFor();
      await page.getByRole('button', { name: 'Remove the filter: colour red' }).click();
      await page.waitForFunction(() => document.querySelectorAll('.chip.bad').length === 1);
      await page.locator('.chip.bad button').click();
      await page.waitForFunction(() => document.querySelectorAll('.chip.bad').length === 0);
      assert.equal(new URL(page.url()).hash, `#/${place}`);
    }
  });
});

test('going back finds the row, its focus and the place on the page again', async () => {
  await onPage(`${server.url}#/jobs`, { height: 500 }, async (page) => {
    await page.locator('tbody tr').nth(49).waitFor();
    for (let n = 0; n < 30; n += 1) await page.keyboard.press('j');
    const row = await page.locator('tr.cursor').getAttribute('data-key');
    const y = await page.evaluate(() => scrollY);
    assert.ok(y > 100, `${y}`);
    assert.match(page.url(), new RegExp(`row=${row}$`));
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Payload' }).waitFor();
    await page.goBack();
    const there = ([key, top]) => document.activeElement?.closest('[data-key]')?.dataset.key === key && document.querySelector('tr.cursor')?.dataset.key === key && scrollY === top;
    await page.waitForFunction(there, [row, y]);
    await page.reload();
    await page.waitForFunction((key) => document.querySelector('tr.cursor')?.dataset.key === key, row);
    await page.evaluate(() => { location.hash = '#/queues'; });
    await page.getByRole('link', { name: 'mail', exact: true }).click();
    await page.getByText('Takes and starts jobs').waitFor();
    await page.goBack();
    await page.waitForFunction(() => document.activeElement?.textContent === 'mail');
  });
});

/** What each page may ask for, beside the stream and the files: DASHBOARD.md, section 3. */
const ASKS = {
  '#/': /^(history|errors)\?/,
  '#/queues': /^(history\?|queues$)/,
  '#/queues/mail': /^(queues\/mail$|settings$|history\?.*queue=mail|jobs\?state=done&queue=mail&limit=1&)/,
  '#/jobs': /^(jobs\?.*fields=row|bulk\/\d+$)/,
  '#/jobs/1': /^(jobs\/1(\?fields=head|\/(attempts|explain|payload|result))|errors\/[0-9a-f]+)$/,
  '#/errors': /^(errors\?|bulk\/\d+$)/,
  '#/bulk/1': /^bulk\/1$/,
  '#/workers': /^(workers\?limit=1000|jobs\?state=processing&fields=row&limit=1000)$/,
  '#/settings': /^settings$/,
};

test('a page asks for nothing that it does not show', async () => {
  await onPage(server.url, {}, async (page) => {
    await settled(page);
    const asked = [];
    page.on('request', (request) => request.url().includes('/ui/') || asked.push([request.method(), request.url().slice(server.url.length)]));
    for (const [route, allowed] of Object.entries(ASKS)) {
      await page.evaluate(() => { location.hash = '#/nowhere'; });
      await snapshots(page, 1);
      asked.length = 0;
      await page.evaluate((hash) => { location.hash = hash; }, route);
      await settled(page);
      await snapshots(page, 3);
      const wrong = asked.filter(([method, path]) => method !== 'GET' || !(allowed.test(path) || /^bulk\/\d+$/.test(path)));
      assert.deepEqual(wrong, [], route);
      assert.ok(asked.length < 12, `${route} asked ${asked.length} times in three seconds`);
    }
  });
});

test('older and newer pages, also after a deep link', async () => {
  await onPage(`${server.url}#/jobs`, {}, async (page) => {
    const ids = () => page.locator('tbody a.mono').allInnerTexts();
    await page.locator('tbody tr').nth(49).waitFor();
    const first = await ids();
    await page.getByRole('button', { name: 'Older' }).click();
    await page.waitForFunction((id) => document.querySelector('tbody a.mono') && document.querySelector('tbody a.mono').textContent !== id, first[0]);
    assert.match(page.url(), /after=/);
    const deep = page.url();
    await page.getByRole('button', { name: 'Newer' }).click();
    await page.waitForFunction((id) => document.querySelector('tbody a.mono')?.textContent === id, first[0]);
    await page.goto(`${server.url}#/nowhere`);
    await page.goto(deep);
    // Chromium learns of an address within the page a moment later: a reload would go to the one before.
    await page.waitForURL(deep);
    await page.reload();
    await page.locator('tbody tr').first().waitFor();
    await page.getByRole('button', { name: 'Newer' }).click();
    await page.waitForFunction((id) => document.querySelector('tbody a.mono')?.textContent === id, first[0]);
    assert.match(page.url(), /#\/jobs$/);
  });
});

test('links and boxes keep the focus while their tables and figures change', async () => {
  await onPage(server.url, {}, async (page) => {
    const focused = () => page.evaluate(() => document.activeElement?.textContent || document.activeElement?.getAttribute('aria-label'));
    await server.enqueue({ queue: 'long', visibility_timeout_ms: 600_000 });
    await server.call('POST', 'jobs/poll', { worker: 'remote-2', queues: ['long'], max: 1 });
    for (const [route, link] of [['#/queues/a.b:c-d', '.tiles a'], ['#/workers', 'tbody a'], ['#/', '.line a']]) {
      await page.evaluate((hash) => { location.hash = hash; }, route);
      await page.locator(link).first().focus();
      const before = await focused();
      assert.ok(before, route);
      await server.enqueue({ queue: 'a.b:c-d' });
      await snapshots(page, 4);
      assert.equal(await focused(), before, route);
    }
    await page.evaluate(() => { location.hash = '#/jobs?state=queued&queue=imports'; });
    await page.locator('tbody input').first().focus();
    await server.call('POST', `jobs/${await page.locator('tbody a.mono').first().innerText()}/cancel`);
    await page.locator('tr', { hasText: 'Cancelled' }).waitFor();
    assert.match(await focused(), /^Select job/);
    await server.enqueue({ queue: 'imports' });
  });
});

test('rows of every table are walked through by key, and a queue is paused in its row', async () => {
  await onPage(`${server.url}#/queues`, {}, async (page) => {
    await page.getByRole('link', { name: 'mail', exact: true }).waitFor();
    for (let n = 0; n < 20; n += 1) {
      await page.keyboard.press('j');
      if (await page.evaluate(() => document.activeElement?.textContent === 'mail')) break;
    }
    await page.keyboard.press('p');
    await page.locator('tr[data-key=mail]').getByText('paused', { exact: true }).waitFor();
    await page.keyboard.press('p');
    await page.getByText('mail is resumed').waitFor();
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => location.hash === '#/queues/mail');
  });
});

test('the reason that holds a queue back is updated when it changes', async () => {
  await server.enqueue({ queue: 'full', visibility_timeout_ms: 600_000 });
  await server.call('PUT', 'queues/full', { concurrency: 1 });
  await server.call('POST', 'jobs/poll', { worker: 'remote-3', queues: ['full'], max: 1 });
  // A worker asks and gets nothing: the limit holds the others back.
  const asks = server.call('POST', 'jobs/poll', { worker: 'remote-3', queues: ['full'], max: 1, wait_ms: 30_000 });
  await onPage(`${server.url}#/queues/full`, {}, async (page) => {
    await page.getByText('No jobs are waiting.').waitFor();
    for (let n = 0; n < 3; n += 1) await server.enqueue({ queue: 'full' });
    await page.locator('main').getByText('1 of 1 run, 3 jobs wait').waitFor();
  });
  await server.call('PUT', 'queues/full', { concurrency: 9 });
  await asks;
});

test('it works below a prefix, and without a stream it polls', async () => {
  const through = await proxy(server, '/ops/windlass/');
  const held = await proxy(server, '/ops/windlass/', true);
  try {
    await onPage(`${through.url}#/queues`, {}, async (page) => {
      await page.getByRole('link', { name: 'mail', exact: true }).waitFor();
      await page.locator('#live', { hasText: 'Live' }).waitFor();
    });
    await onPage(held.url, { expected: /Failed to load resource|ERR_/ }, async (page) => {
      await page.locator('#live', { hasText: 'Polling' }).waitFor({ timeout: 30_000 });
      await page.getByRole('link', { name: 'mail', exact: true }).waitFor();
    });
  } finally {
    through.close();
    held.close();
  }
});

test('a stream that is let through again takes over from polling', async () => {
  const held = await proxy(server, '/', true);
  try {
    await onPage(held.url, { expected: /Failed to load resource|ERR_/ }, async (page) => {
      await page.locator('#live', { hasText: 'Polling' }).waitFor({ timeout: 30_000 });
      held.holds(false);
      await page.locator('#live', { hasText: 'Live' }).waitFor({ timeout: 60_000 });
    });
  } finally {
    held.close();
  }
});

test('the keyboard alone finds, selects and opens', async () => {
  await onPage(server.url, {}, async (page) => {
    await settled(page);
    await page.keyboard.press('g');
    await page.keyboard.press('j');
    await page.locator('tbody tr').nth(5).waitFor();
    for (const key of ['j', 'j', 'x', 'j', 'j', 'X']) await page.keyboard.press(key);
    await page.getByText('3 selected').waitFor();
    await snapshots(page, 2);
    assert.equal(await page.locator('tr.on').count(), 3, 'a selection survives updates');
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => !document.querySelector('tr.on'));
    await page.keyboard.press('/');
    await page.keyboard.type('1');
    await page.keyboard.press('Enter');
    await page.getByText('Given up after').waitFor();
    await page.keyboard.press('?');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => !document.querySelector('dialog'));
  });
});
