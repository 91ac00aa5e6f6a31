// The budgets of the dashboard, as figures: `node measure.js [MINUTES]` starts a demo and prints them.
// Not a test: what a machine takes for it is for a person to judge.

import { Server, close, open, snapshots } from './harness.js';

const minutes = Number(process.argv[2] ?? 1);
const server = await new Server(['--demo']).start();
const figures = {};
const routes = ['#/queues', '#/jobs', '#/jobs?state=done', '#/queues/mail', '#/workers', '#/settings', '#/'];

async function page(slow) {
  const context = await (await open()).newContext({ viewport: { width: 1440, height: 900 } });
  const made = await context.newPage();
  const session = await context.newCDPSession(made);
  await session.send('Network.enable');
  await session.send('Performance.enable');
  if (slow) await session.send('Emulation.setCPUThrottlingRate', { rate: slow });
  return { made, session };
}
const metric = async (session, name) => (await session.send('Performance.getMetrics')).metrics.find((one) => one.name === name).value;
const middle = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

// The processor's time is that of the page's process, so it does not depend on what else runs.
// A first visit and one that has the files, with four times less speed.
const paints = [];
for (let round = 0; round < 5; round += 1) {
  const { made, session } = await page(4);
  const seen = [];
  session.on('Network.loadingFinished', (event) => seen.push(event.encodedDataLength));
  await made.goto(server.url);
  await made.waitForFunction(() => document.documentElement.dataset.rev);
  await made.waitForTimeout(500);
  const paint = () => made.evaluate(() => Math.round(performance.getEntriesByName('first-contentful-paint')[0].startTime));
  paints.push(await paint());
  if (round === 0) figures.cold = { requests: await made.evaluate(() => performance.getEntriesByType('resource').length + 1), bytes: seen.reduce((a, b) => a + b, 0) };
  if (round === 4) {
    await made.reload();
    await made.waitForFunction(() => document.documentElement.dataset.rev);
    await made.waitForTimeout(500);
    figures.warm = { requests: await made.evaluate(() => performance.getEntriesByType('resource').filter((one) => one.transferSize > 0).length + 1), paint_ms: await paint() };
  }
  await made.context().close();
}
figures.first_paint_ms_at_4x = { middle: middle(paints), all: paints };

const { made, session } = await page(0);
await made.goto(server.url);
await made.waitForFunction(() => document.documentElement.dataset.rev);
await made.evaluate(() => {
  globalThis.long = [];
  new PerformanceObserver((list) => globalThis.long.push(...list.getEntries().map((one) => Math.round(one.duration)))).observe({ type: 'longtask' });
});
const changes = [];
const before = await metric(session, 'ProcessTime');
for (let round = 0; round < 5; round += 1) {
  for (const route of routes) {
    changes.push(await made.evaluate((hash) => new Promise((resolve) => {
      const from = performance.now();
      location.hash = hash;
      const look = () => (document.querySelector('main').childElementCount > 0 && !document.querySelector('main [aria-busy]') ? resolve(performance.now() - from) : requestAnimationFrame(look));
      addEventListener('hashchange', () => requestAnimationFrame(look), { once: true });
    }), route));
    await snapshots(made, 1);
  }
}
figures.cpu_ms_per_route_with_one_update = Math.round(((await metric(session, 'ProcessTime')) - before) * 1000 / changes.length);
changes.sort((a, b) => a - b);
figures.route_change_ms = { middle: Math.round(middle(changes)), p95: Math.round(changes[Math.floor(changes.length * 0.95)]), worst: Math.round(changes.at(-1)) };
figures.long_tasks_ms = await made.evaluate(() => globalThis.long);

await made.evaluate(() => { location.hash = '#/'; });
await snapshots(made, 3);
const heap = async () => {
  await session.send('HeapProfiler.collectGarbage');
  return Math.round((await metric(session, 'JSHeapUsedSize')) / 1e4) / 100;
};
figures.heap_mb = [await heap()];
const [busy, at] = [await metric(session, 'ProcessTime'), await metric(session, 'Timestamp')];
for (let minute = 0; minute < minutes; minute += 1) {
  await made.waitForTimeout(60_000);
  figures.heap_mb.push(await heap());
}
const passed = (await metric(session, 'Timestamp')) - at;
figures.idle_cpu_percent = Math.round(((await metric(session, 'ProcessTime')) - busy) / passed * 10_000) / 100;
figures.minutes = minutes;
console.log(JSON.stringify(figures, null, 1));
await close();
await server.end();
