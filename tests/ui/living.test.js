// Pages that stay open: servers that die, tabs that are hidden, tokens that end, addresses that are
// gone through, and lists under load.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Server, close, onPage, proxy, snapshots } from './harness.js';

const GONE = /ERR_|Failed to (load|fetch)|network/i;
const PAGES = [['#/', 'Overview'], ['#/queues', 'Queues'], ['#/queues/a.b:c-d', 'a.b:c-d'], ['#/jobs', 'Jobs'], ['#/jobs?state=failed&queue=a.b:c-d', 'Jobs'], ['#/jobs/1', '1'], ['#/errors', 'Errors'], ['#/bulk/1', 'bulk 1'], ['#/workers', 'Workers'], ['#/settings', 'Settings']];

/** A text that only a page with all its data has. */
const COMPLETE = { '#/': 'done, kept', '#/queues': 'a.b:c-d', '#/queues/a.b:c-d': 'Running at once', '#/jobs': '50 jobs shown', '#/jobs?state=failed&queue=a.b:c-d': '1 job shown', '#/jobs/1': 'Visibility timeout', '#/errors': 'refused', '#/bulk/1': 'Asked by', '#/workers': 'Nothing runs now', '#/settings': 'visibility_timeout' };

const server = new Server(['--workers', '0']);
before(async () => {
  await server.start();
  await server.dead({ queue: 'a.b:c-d', kind: 'email', payload: { n: 1 } }, { error: 'refused' });
  for (let n = 0; n < 60; n += 1) await server.enqueue({ queue: 'mail', payload: { n } });
  await server.enqueue({ queue: 'slow' });
  await server.call('POST', 'bulk', { action: 'cancel', filter: { state: 'queued', queue: 'mail', key: 'none' }, expect: 0 });
});
after(async () => {
  await close();
  await server.end();
});

const until = (page, mode, timeout) => page.waitForFunction((wanted) => document.documentElement.dataset.live === wanted, mode, { timeout });

test('every page says that the server is gone, writes nothing, and goes on when it is back', async () => {
  for (const [route] of PAGES) {
    await onPage(server.url + route, { expected: GONE }, async (page) => {
      await until(page, 'live', 30_000);
      await page.waitForFunction(() => !document.querySelector('[aria-busy=true]'));
      await page.getByText(COMPLETE[route]).first().waitFor();
      const before = await page.evaluate(() => document.querySelector('main').childElementCount);
      const jobs = route === '#/jobs';
      if (jobs) {
        await page.locator('tbody input').nth(3).click();
        await page.locator('tbody input').nth(4).click();
        await page.locator('.bulk').getByRole('button', { name: 'Cancel' }).click();
        await page.getByRole('dialog').waitFor();
        await page.evaluate(() => scrollTo(0, 300));
      }
      const killed = performance.now();
      await server.kill();
      await until(page, 'stale', 8000);
      // 6 s are promised; a machine that does other things meanwhile is given two more.
      assert.ok(performance.now() - killed < 8000, `stale after ${performance.now() - killed} ms`);
      await page.waitForFunction(() => [...document.querySelectorAll('[data-write]')].every((one) => one.disabled));
      if (jobs) assert.ok(await page.getByRole('dialog').getByRole('button', { name: 'Cancel 2 jobs' }).isDisabled(), 'no answer can be given');
      await server.start(server.port);
      await until(page, 'live', 20_000);
      await page.waitForFunction(() => ![...document.querySelectorAll('[data-write]')].some((one) => one.disabled));
      await page.getByText(COMPLETE[route]).first().waitFor();
      await page.waitForFunction((parts) => document.querySelector('main').childElementCount >= parts, before);
      if (jobs) {
        await page.getByRole('dialog').getByText('Cancel 2 jobs?').waitFor();
        assert.equal(await page.locator('tr.on').count(), 2, 'the selection is kept');
        assert.equal(await page.evaluate(() => scrollY), 300, 'the place is kept');
      }
    });
  }
});

test('a page whose first answers were lost is complete once the server is back', async () => {
  for (const [route] of PAGES) {
    await onPage(`${server.url}#/nowhere`, { expected: GONE }, async (page) => {
      await until(page, 'live', 30_000);
      // Its data does not come; what the page had before is not asked for again.
      let lost = 0;
      const drop = (request) => { lost += 1; return request.abort(); };
      const data = (url) => !url.pathname.includes('/ui/') && !url.pathname.endsWith('/events') && !['/', '/snapshot'].includes(url.pathname);
      await page.route(data, drop);
      await page.evaluate((hash) => { location.hash = hash; }, route);
      await page.waitForFunction(() => document.querySelector('main').childElementCount > 0);
      while (lost === 0) await page.waitForTimeout(20);
      await server.kill();
      await until(page, 'stale', 15_000);
      await page.unroute(data, drop);
      await server.start(server.port);
      await until(page, 'live', 30_000);
      await page.waitForFunction(() => !document.querySelector('[aria-busy=true], .unread'), null, { timeout: 20_000 });
      await page.getByText(COMPLETE[route]).first().waitFor();
    });
  }
});

test('a hidden tab closes its stream and asks for nothing; it goes on when it is shown', async () => {
  await onPage(`${server.url}#/queues`, {}, async (page) => {
    const asked = [];
    page.on('request', (request) => asked.push(request.url()));
    await until(page, 'live', 30_000);
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => true });
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await until(page, 'paused', 15_000);
    const rev = await page.evaluate(() => document.documentElement.dataset.rev);
    asked.length = 0;
    await server.enqueue({ queue: 'hidden' });
    await page.waitForTimeout(30_000);
    assert.deepEqual(asked, []);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.rev), rev);
    await page.evaluate(() => {
      delete document.hidden;
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await until(page, 'live', 30_000);
    await page.getByRole('link', { name: 'hidden', exact: true }).waitFor();
  });
});

test('each tab has one stream, on whatever pages it was', async () => {
  await onPage(server.url, {}, async (page) => {
    await until(page, 'live', 30_000);
    const streams = [];
    page.context().on('request', (request) => request.url().includes('events?feed=snapshot') && streams.push(request));
    await page.reload();
    await until(page, 'live', 30_000);
    const other = await page.context().newPage();
    await other.goto(`${server.url}#/jobs`);
    await until(other, 'live', 30_000);
    for (const [route] of PAGES) {
      await other.evaluate((hash) => { location.hash = hash; }, route);
      await snapshots(other, 1);
    }
    assert.equal(streams.length, 2);
    await other.close();
  });
});

test('a token that ends asks for another over the same page, and the page goes on', async () => {
  const closed = new Server(['--workers', '0', '--token-file']);
  closed.args.push(closed.file('tokens', 'ops admin first-token-0123456789\n'));
  await closed.start();
  try {
    const admin = (token) => ({ authorization: `Bearer ${token}` });
    await closed.call('POST', 'jobs', { queue: 'mail' }, admin('first-token-0123456789'));
    await onPage(`${closed.url}#/queues/mail`, { expected: /401|Unauthorized|ERR_|Failed/ }, async (page) => {
      const login = async (token) => {
        await page.locator('#token').fill(token);
        await page.getByRole('button', { name: 'Continue' }).click();
        await page.getByRole('dialog').waitFor({ state: 'detached' });
      };
      await login('first-token-0123456789');
      await page.getByText('Takes and starts jobs').waitFor();
      await closed.kill();
      closed.file('tokens', 'ops admin other-token-0123456789\n');
      await closed.start(closed.port);
      await page.locator('#token').waitFor({ timeout: 20_000 });
      await login('other-token-0123456789');
      assert.match(page.url(), /#\/queues\/mail$/);
      await until(page, 'live', 30_000);
      await page.getByText('Takes and starts jobs').waitFor();
      const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href]));
      assert.doesNotMatch(kept, /token-0123456789/);
    });
  } finally {
    await closed.end();
  }
});

test('every address is opened, reloaded, left and come back to, also below a prefix', async () => {
  const through = await proxy(server, '/ops/windlass/');
  try {
    for (const base of [server.url, through.url]) {
      await onPage(base, {}, async (page) => {
        for (const [route, title] of PAGES) {
          await page.evaluate((hash) => { location.hash = hash; }, route);
          await page.waitForFunction((wanted) => document.querySelector('h1').textContent === wanted, title);
        }
        for (const [route, title] of PAGES.slice(0, -1).reverse()) {
          await page.goBack();
          await page.waitForFunction((wanted) => document.querySelector('h1').textContent === wanted, title);
          assert.equal(new URL(page.url()).hash, route);
        }
        await page.goForward();
        await page.waitForFunction(() => document.querySelector('h1').textContent === 'Queues');
        for (const [route, title] of PAGES) {
          await page.goto(base + route);
          await page.waitForURL(base + route);
          await page.reload();
          await page.waitForFunction((wanted) => document.querySelector('h1').textContent === wanted && document.documentElement.dataset.rev, title);
        }
      });
    }
  } finally {
    through.close();
  }
});

/** Seconds of load. WINDLASS_UI_LOAD_S=60 makes it a longer test. */
const LOADED = Number(process.env.WINDLASS_UI_LOAD_S ?? 20);

test('under load no row moves, nothing is deselected, and the focus stays', { timeout: (LOADED * 20 + 60) * 1000 }, async () => {
  const busy = await new Server(['--workers', '2']).start();
  try {
    for (let n = 0; n < 60; n += 1) await busy.enqueue({ queue: 'mail', kind: 'email', payload: { n } });
    await onPage(`${busy.url}#/jobs`, {}, async (page) => {
      await page.locator('tbody tr').nth(49).waitFor();
      const ids = () => page.locator('tbody a.mono').allInnerTexts();
      const before = await ids();
      for (const n of [2, 3, 7]) await page.locator('tbody input').nth(n).click();
      await page.locator('tbody a.mono').nth(5).focus();
      await page.evaluate(() => scrollTo(0, 200));
      // What is newer is counted from a snapshot that was made after the list was read.
      await snapshots(page, 3);
      // A second has 2,000 jobs; a machine that cannot keep up takes longer for the same number.
      const batch = { jobs: Array.from({ length: 500 }, (_, n) => ({ queue: `load${n % 5}`, kind: 'email', payload: { n } })) };
      const rounds = LOADED * 4;
      const began = performance.now();
      for (let round = 0; round < rounds; round += 1) {
        const added = busy.call('POST', 'jobs/batch', batch);
        const claimed = (await busy.call('POST', 'jobs/poll', { worker: 'load', max: 500 })).json().jobs;
        await busy.call('POST', 'jobs/reports', { reports: claimed.map((job) => ({ token: job.lease.token, verdict: 'complete' })) });
        assert.equal((await added).status, 202);
        if (round % 20 === 19) assert.deepEqual(await ids(), before);
        const ahead = (round + 1) * 250 - (performance.now() - began);
        if (ahead > 0) await new Promise((resolve) => setTimeout(resolve, ahead));
      }
      await snapshots(page, 3);
      assert.deepEqual(await ids(), before);
      assert.deepEqual(await page.locator('tr.on a.mono').allInnerTexts(), [2, 3, 7].map((n) => before[n]));
      assert.equal(await page.evaluate(() => document.activeElement?.textContent), before[5]);
      assert.equal(await page.evaluate(() => scrollY), 200);
      await page.getByRole('button', { name: 'Show 50 or more newer' }).waitFor();
    });
  } finally {
    await busy.end();
  }
});
