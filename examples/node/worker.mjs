// A complete Windlass worker without dependencies: several jobs at once, heartbeats, an orderly stop.
// Node 18 or newer:
//
//     WINDLASS_SERVER=http://127.0.0.1:8080 node worker.mjs
//
// Add a function to `handlers` for each kind. It may run twice for one job: make its effect idempotent.
import os from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const server = process.env.WINDLASS_SERVER ?? "http://127.0.0.1:8080";
const token = process.env.WINDLASS_TOKEN;
const name = `node-${os.hostname()}-${process.pid}`;
const slots = 4;
const stopMs = 20_000; // after SIGTERM; then what still runs is given back

class Permanent extends Error {} // do not retry: the job becomes a dead letter now

const handlers = {
  async email(payload, lease) {
    if (!payload?.to) throw new Permanent("the payload has no `to`");
    console.log(`job ${lease.job.id} attempt ${lease.job.attempts}: mail to ${payload.to}`);
    return { sent: true };
  },
  // A long job: a number of seconds, with progress. `lease.signal` is aborted when the lease is lost.
  async count(payload, lease) {
    for (let second = 0; second < payload.seconds; second += 1) {
      lease.progress = { done: second, of: payload.seconds };
      await sleep(1000, undefined, { signal: lease.signal });
    }
  },
};

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(server + path, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!answer.ok) throw new Refused(answer.status, await answer.text());
  return answer.json();
}

class Lease {
  constructor(job) {
    this.job = job;
    this.lost = new AbortController();
    this.signal = this.lost.signal;
    this.timer = setInterval(() => this.heartbeat(), job.visibility_timeout_ms / 3);
  }

  path(verdict) {
    return `/jobs/${this.job.id}/${verdict}`;
  }

  async heartbeat() {
    const body = { token: this.job.lease.token };
    if (this.progress !== undefined) body.progress = this.progress;
    try {
      await post(this.path("heartbeat"), body);
    } catch (error) {
      // Anything else is the server restarting: the next heartbeat tries again.
      if (error.status === 404 || error.status === 409) this.lost.abort();
    }
  }

  // A report that got no answer is sent again: the same verdict is accepted twice.
  async report(verdict, body) {
    clearInterval(this.timer);
    for (const wait of [200, 1000, 3000, 5000, 10_000]) {
      if (this.signal.aborted) return;
      try {
        await post(this.path(verdict), { token: this.job.lease.token, ...body });
        return;
      } catch (error) {
        if (error.status && error.status !== 503) {
          console.error(`job ${this.job.id}: ${verdict}: ${error.message}`);
          return;
        }
      }
      await sleep(wait);
    }
  }
}

async function run(lease) {
  try {
    const result = await handlers[lease.job.kind](lease.job.payload, lease);
    await lease.report("complete", { result: result ?? null });
  } catch (error) {
    const retryable = !(error instanceof Permanent);
    await lease.report("fail", { error: String(error?.stack ?? error), retryable });
  }
}

const running = new Map();
const stop = new AbortController();
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => stop.abort());

while (!stop.signal.aborted) {
  if (running.size >= slots) {
    await Promise.race(running.values());
    continue;
  }
  const poll = { worker: name, queues: ["*"], kinds: Object.keys(handlers), max: slots - running.size, wait_ms: 10_000 };
  let jobs = [];
  try {
    // Dropping a poll is safe: jobs that were claimed for it are given back.
    ({ jobs } = await post("/jobs/poll", poll, stop.signal));
  } catch (error) {
    if (stop.signal.aborted) break;
    console.error(`poll: ${error.message}; trying again`);
    await sleep(1000);
  }
  for (const job of jobs) {
    const lease = new Lease(job);
    running.set(lease, run(lease).finally(() => running.delete(lease)));
  }
}
await Promise.race([Promise.allSettled(running.values()), sleep(stopMs)]);
// The next worker gets these now; the attempt is not charged.
await Promise.allSettled([...running.keys()].map((lease) => lease.report("release", {})));
process.exit(0);
