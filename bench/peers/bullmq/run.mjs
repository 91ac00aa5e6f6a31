// BullMQ on Redis: the work of ../plan/src/measure.rs, phase by phase, told in the same line.
// Called as: node run.mjs bullmq SETTING PHASE FOLDER JOBS SECONDS, with REDIS_PORT set.

import { Queue, Worker } from "bullmq";

const [peer, setting, phase, , jobsText, secondsText] = process.argv.slice(2);
const jobs = Number(jobsText);
const limit = Number(secondsText) * 1000;
const port = Number(process.env.REDIS_PORT);
const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
const AT_ONCE = 64;
const BULK = 1000;
const data = "x".repeat(98);

const now = () => performance.now();
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const rate = (count, since) => Math.round((count * 1000) / (now() - since));

const queue = new Queue("bench", { connection });
await queue.waitUntilReady();

// Producers take the next job while there is one and time is left.
async function produce(producers) {
  let taken = 0;
  let acknowledged = 0;
  const began = now();
  const one = async () => {
    while (now() - began < limit && taken < jobs) {
      taken += 1;
      await queue.add("bench", data);
      acknowledged += 1;
    }
  };
  await Promise.all(Array.from({ length: producers }, one));
  return [acknowledged, rate(acknowledged, began)];
}

async function bulk() {
  let done = 0;
  const began = now();
  while (done < jobs && now() - began < limit) {
    const count = Math.min(BULK, jobs - done);
    await queue.addBulk(Array.from({ length: count }, () => ({ name: "bench", data })));
    done += count;
  }
  return [done, rate(done, began)];
}

const work = (note) =>
  new Worker("bench", async () => note(now()), { connection, concurrency: AT_ONCE });

async function drain(enqueued) {
  let seen = 0;
  const began = now();
  const worker = work(() => {
    seen += 1;
  });
  while (now() - began < limit * 3) {
    if (seen >= enqueued) {
      const left = await queue.getJobCounts("wait", "active", "prioritized");
      if (left.wait + left.active + left.prioritized === 0) break;
    }
    await pause(1);
  }
  const perSecond = rate(seen, began);
  await worker.close(true);
  return [seen, perSecond];
}

async function load() {
  const [one, one_per_s] = await produce(1);
  const [many, many_per_s] = await produce(AT_ONCE);
  const [more, bulk_per_s] = await bulk();
  const enqueued = one + many + more;
  const [drained, drain_per_s] = await drain(enqueued);
  return { one_per_s, many_per_s, bulk_per_s, drain_per_s, enqueued, drained };
}

async function pickup() {
  const figures = [];
  let told = () => {};
  const worker = work((at) => told(at));
  await worker.waitUntilReady();
  const began = now();
  for (let at = 0; at < 210; at += 1) {
    if (now() - began > limit * 3 && figures.length > 0) break;
    await pause(20 + ((at * 37) % 50));
    const started = new Promise((resolve) => {
      told = resolve;
    });
    const enqueued = now();
    await queue.add("bench", data);
    const micros = Math.round(((await started) - enqueued) * 1000);
    if (at >= 10) figures.push(micros);
  }
  await worker.close(true);
  figures.sort((one, other) => one - other);
  const part = (hundredths) =>
    figures[Math.min(figures.length - 1, Math.floor((figures.length * hundredths) / 100))];
  return { pickup_p50_us: part(50), pickup_p99_us: part(99), pickups: figures.length };
}

const durability =
  setting === "full"
    ? "append-only file, appendfsync=always: synced before the answer"
    : "snapshots now and then: the last minutes are lost";
const figures = phase === "load" ? await load() : await pickup();
console.log(JSON.stringify({ peer, setting, durability, ...figures }));
process.exit(0);
