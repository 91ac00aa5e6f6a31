// The work of src/measure.rs and src/lives.rs for peers in JavaScript, in the same lines.
// Called as: node run.mjs PEER SETTING PHASE FOLDER JOBS SECONDS.

import { createInterface } from "node:readline";

const [peer, setting, phase, , jobsText, secondsText] = process.argv.slice(2);
const jobs = Number(jobsText);
const limit = Number(secondsText) * 1000;
const BULK = 1000;

// How many jobs are enqueued and run at once.
export const AT_ONCE = 64;
// The payload of each.
export const data = "x".repeat(98);
// What the script was asked for.
export const task = { peer, setting };

const now = () => performance.now();
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const rate = (count, since) => Math.round((count * 1000) / (now() - since));

// Producers take the next job while there is one and time is left.
async function produce(queue, producers) {
  let taken = 0;
  let acknowledged = 0;
  const began = now();
  const one = async () => {
    while (now() - began < limit && taken < jobs) {
      taken += 1;
      await queue.enqueue();
      acknowledged += 1;
    }
  };
  await Promise.all(Array.from({ length: producers }, one));
  return [acknowledged, rate(acknowledged, began)];
}

async function bulk(queue) {
  let done = 0;
  const began = now();
  while (done < jobs && now() - began < limit) {
    const count = Math.min(BULK, jobs - done);
    await queue.enqueueBulk(count);
    done += count;
  }
  return [done, rate(done, began)];
}

async function drain(queue, enqueued) {
  let seen = 0;
  const began = now();
  await queue.work(() => {
    seen += 1;
  });
  while (now() - began < limit * 3) {
    if (seen >= enqueued && (await queue.left()) === 0) break;
    await pause(1);
  }
  return [seen, rate(seen, began)];
}

async function load(queue) {
  const [one, one_per_s] = await produce(queue, 1);
  const [many, many_per_s] = await produce(queue, AT_ONCE);
  const [more, bulk_per_s] = await bulk(queue);
  const enqueued = one + many + more;
  const [drained, drain_per_s] = await drain(queue, enqueued);
  return { one_per_s, many_per_s, bulk_per_s, drain_per_s, enqueued, drained };
}

async function pickup(queue) {
  const figures = [];
  let ran = () => {};
  await queue.work(() => ran(now()));
  const began = now();
  for (let at = 0; at < 210; at += 1) {
    if (now() - began > limit * 3 && figures.length > 0) break;
    await pause(20 + ((at * 37) % 50));
    const started = new Promise((resolve) => {
      ran = resolve;
    });
    const enqueued = now();
    await queue.enqueue();
    const micros = Math.round(((await started) - enqueued) * 1000);
    if (at >= 10) figures.push(micros);
  }
  figures.sort((one, other) => one - other);
  const part = (hundredths) =>
    figures[Math.min(figures.length - 1, Math.floor((figures.length * hundredths) / 100))];
  return { pickup_p50_us: part(50), pickup_p99_us: part(99), pickups: figures.length };
}

async function lives(queue) {
  let seen = 0;
  let said = 0;
  await queue.work(() => {
    seen += 1;
  });
  const telling = setInterval(() => {
    if (seen > said) {
      said = seen;
      console.log(`ran ${seen}`);
    }
  }, 10);
  console.log("ready");
  for await (const word of createInterface({ input: process.stdin })) {
    if (word === "go") {
      produce(queue, AT_ONCE).then(([produced]) => console.log(`produced ${produced}`));
    } else if (word === "left") {
      while ((await queue.left()) > 0) await pause(1);
      console.log("done");
    }
  }
  clearInterval(telling);
  return { ran: seen };
}

// Does the phase with { durability, enqueue(), enqueueBulk(count), work(note), left() }.
export async function run(queue) {
  const phases = { load, pickup, lives };
  const figures = await phases[phase](queue);
  const durability = await queue.durability();
  console.log(JSON.stringify({ peer, setting, durability, ...figures }));
  process.exit(0);
}
