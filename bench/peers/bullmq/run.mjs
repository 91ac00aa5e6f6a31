// BullMQ on Redis: the work of ../plan/measure.mjs, with REDIS_PORT set.

import { Queue, Worker } from "bullmq";

import { AT_ONCE, data, run, task } from "../plan/measure.mjs";

const port = Number(process.env.REDIS_PORT);
const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };

const queue = new Queue("bench", { connection });
await queue.waitUntilReady();

await run({
  durability: () =>
    task.setting === "full"
      ? "append-only file, appendfsync=always: synced before the answer"
      : "snapshots now and then: the last minutes are lost",
  enqueue: () => queue.add("bench", data),
  enqueueBulk: (count) =>
    queue.addBulk(Array.from({ length: count }, () => ({ name: "bench", data }))),
  work: (note) =>
    new Worker("bench", async () => note(), { connection, concurrency: AT_ONCE }).waitUntilReady(),
  left: async () => {
    const left = await queue.getJobCounts("wait", "active", "prioritized");
    return left.wait + left.active + left.prioritized;
  },
});
