// Every page, in every size and colour: it is there, it fits, and it is accessible.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AXE, Server, close, onPage, proxy, snapshots } from './harness.js';

const server = new Server(['--workers', '0', '--label', 'tests']);
const bare = new Server(['--workers', '0']);
const routes = ['#/', '#/queues', '#/queues/a.b:c-d', '#/jobs', '#/jobs?state=failed', '#/jobs?state=processing&queue=a.b:c-d', '#/jobs/1', '#/workers', '#/settings', '#/nowhere'];

before(async () => {
  await server.start();
  await bare.start();
  await server.dead({ queue: 'a.b:c-d', kind: 'email', payload: { to: 'ada@example.org' } }, { error: 'connection refused', stderr: 'line one\nerror: refused', exit_code: 3 });
  for (let n = 0; n < 60; n += 1) await server.enqueue({ queue: 'mail', kind: 'email', payload: { n } });
  await server.enqueue({ queue: 'later', delay_ms: 3_600_000 });
  await server.call('POST', 'jobs/poll', { worker: 'remote-1', queues: ['mail'], max: 2 });
  await server.call('POST', 'queues/imports/pause');
  await server.enqueue({ queue: 'imports' });
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

for (const [width, dark] of [[320, false], [320, true], [760, false], [760, true], [1440, false], [1440, true]]) {
  test(`every page is accessible and fits at ${width} px, ${dark ? 'dark' : 'light'}`, async () => {
    for (const [home, list] of [[server.url, routes], [bare.url, ['#/', '#/jobs', '#/workers', '#/queues']]]) {
      await onPage(home, { width, dark, expected: /404|Not Found/ }, async (page) => {
        // The policy forbids to add scripts to the page; the checker comes in from outside.
        const session = await page.context().newCDPSession(page);
        for (const route of list) {
          await page.evaluate((hash) => { location.hash = hash; }, route);
          await settled(page);
          await session.send('Runtime.evaluate', { expression: `${AXE};1` });
          const found = await violations(page);
          assert.deepEqual(found, [], `${route} at ${width}`);
          const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(over <= 0, `${route} is ${over} px too wide at ${width}`);
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
      await page.getByText('Ready, and nothing to haul yet').waitFor();
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

test('a parameter that is not understood is a chip that can be removed', async () => {
  await onPage(`${server.url}#/jobs?colour=red&state=lost`, {}, async (page) => {
    await page.locator('.chip.bad').nth(1).waitFor();
    await page.getByRole('button', { name: 'Remove the filter: colour red' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.chip.bad').length === 1);
  });
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
