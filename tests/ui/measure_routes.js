// How long the server takes for what the dashboard asks, with many jobs and under load:
// `node measure_routes.js [JOBS] [STORE] [--busy]` prints the median and the 95th percentile of each
// route in milliseconds, and ends with 1 if one is over its limit. WINDLASS_BIN names the binary: the
// limits are those of a release build on a machine that does nothing else. With `--busy` they are
// those that a machine shared with other work keeps, and that a route which reads all jobs exceeds.

import { Server } from './harness.js';

const args = process.argv.slice(2);
const busy = args.includes('--busy');
const [jobs, store] = args.filter((arg) => !arg.startsWith('--'));
const ROUTE_MS = busy ? 100 : 20;
const SCAN_MS = busy ? 600 : 250;
const SNAPSHOT_BYTES = 80_000;
/** Requests per route: a search may take 200 ms. */
const ROUNDS = { route: 60, scan: 20 };

const total = Number(jobs ?? 1_000_000);
const server = await new Server(['--workers', '0'], store).start();
const queues = ['mail', 'sms', 'billing', 'reports', 'imports'];

async function post(path, body) {
  let reply = await server.call('POST', path, body);
  // The number of requests that may wait for the disk is reached.
  while (reply.status === 503) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    reply = await server.call('POST', path, body);
  }
  if (reply.status >= 300) throw new Error(`${path}: ${reply.text}`);
  return reply.text ? reply.json() : null;
}

async function claim(max, verdict) {
  const { jobs } = await post('jobs/poll', { worker: 'load', queues, max });
  await post('jobs/reports', { reports: jobs.map((job) => ({ token: job.lease.token, ...verdict(job) })) });
  return jobs.length;
}

/** Two of these fit into the requests that may wait at once. */
const BATCH = 4000;

/** Jobs as the body of a request. */
function batch(from) {
  const jobs = [];
  for (let n = from; n < Math.min(total, from + BATCH); n += 1) jobs.push(`{"queue":"${queues[n % 5]}","kind":"kind${n % 8}","max_retries":0,"payload":{"user":{"id":${n}},"to":"ada@example.org"}}`);
  return `{"jobs":[${jobs.join()}]}`;
}

/** Two batches are always under way, so that the server need not wait for the next. */
async function fill() {
  let next = 0;
  const lane = async () => {
    while (next < total) {
      next += BATCH;
      await post('jobs/batch', batch(next - BATCH));
    }
  };
  await Promise.all([lane(), lane()]);
  for (let n = 0; n < 20; n += 1) await claim(1000, (job) => (job.id % 4 ? { verdict: 'complete' } : { verdict: 'fail', error: `connection to 10.0.0.${job.id % 250} refused` }));
}

/** What the pages ask for, with the limit of each and the number of requests. */
async function routes() {
  const first = async (path) => (await server.call('GET', path)).json();
  const failed = (await first('jobs?state=failed&fields=row&limit=1')).jobs[0];
  const second = await first('jobs?fields=row&limit=50');
  const group = failed.error_group;
  const seeks = ['', 'me', 'snapshot', 'history?range=10m&split=queue', 'history?range=1h&split=queue', 'history?range=7d&queue=mail', 'jobs?fields=row&limit=50', `jobs?fields=row&limit=50&cursor=${second.next}`, 'jobs?fields=row&limit=50&state=failed', 'jobs?fields=row&limit=50&state=done&queue=mail&kind=kind1', `jobs?fields=row&id=${second.jobs.map((job) => job.id).join(',')}`, `jobs/${failed.id}?fields=head`, `jobs/${failed.id}/explain`, `jobs/${failed.id}/attempts`, `jobs/${failed.id}/payload`, 'queues', 'queues/mail', 'workers', 'jobs?state=processing&fields=row&limit=1000', 'settings', 'workers?limit=50', 'errors?limit=50&by=jobs', `errors/${group}`, `jobs?fields=row&limit=50&state=failed&group=${group}`, 'bulk'];
  const scans = ['jobs?fields=row&limit=50&error_contains=10.0.0.7&state=failed', 'jobs?fields=row&limit=50&payload_contains=absent', 'jobs?fields=row&limit=50&payload_at=/user/id&payload_is=none'];
  return [...seeks.map((route) => [route, ROUTE_MS, ROUNDS.route]), ...scans.map((route) => [route, SCAN_MS, ROUNDS.scan])];
}

async function measure(route, rounds) {
  const times = [];
  let size = 0;
  for (let n = 0; n < rounds; n += 1) {
    const from = performance.now();
    const reply = await server.call('GET', route);
    times.push(performance.now() - from);
    if (reply.status !== 200) throw new Error(`${route}: ${reply.text}`);
    size = Math.max(size, reply.text.length);
  }
  times.sort((a, b) => a - b);
  return { median: times[rounds / 2], p95: times[Math.ceil(rounds * 0.95) - 1], size };
}

const over = [];
let loading = Promise.resolve();
let stop = false;
try {
  const from = performance.now();
  await fill();
  console.log(`${total} jobs in ${Math.round((performance.now() - from) / 1000)} s; median, p95 and limit in ms:`);
  loading = (async () => {
    while (!stop) {
      await post('jobs/batch', { jobs: queues.map((queue) => ({ queue, kind: 'kind1', max_retries: 0, payload: 1 })) });
      await claim(5, () => ({ verdict: 'complete' }));
    }
  })();
  for (const [route, limit, rounds] of await routes()) {
    let { median, p95, size } = await measure(route, rounds);
    // What else the machine did meanwhile is not the route's: it is measured up to three times.
    for (let again = 0; again < 2 && p95 > limit; again += 1) ({ median, p95, size } = await measure(route, rounds));
    const name = route.length > 80 ? `/${route.slice(0, 80)}…` : `/${route}`;
    console.log(`${median.toFixed(1).padStart(8)} ${p95.toFixed(1).padStart(8)} ${String(limit).padStart(5)}  ${name}`);
    if (p95 > limit) over.push(`${name} takes ${p95.toFixed(1)} ms, more than ${limit} ms`);
    if (route === 'snapshot' && size > SNAPSHOT_BYTES) over.push(`a snapshot has ${size} bytes, more than ${SNAPSHOT_BYTES}`);
  }
} finally {
  stop = true;
  await loading.catch((error) => over.push(String(error)));
  await server.end();
}
for (const one of over) console.error(one);
process.exitCode = over.length > 0 ? 1 : 0;
