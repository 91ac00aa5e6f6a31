// graphile-worker and pg-boss on PostgreSQL: the work of ../plan/measure.mjs, on the database in
// PEERS_POSTGRES.

import { makeWorkerUtils, run as runWorkers } from "graphile-worker";
import { PgBoss } from "pg-boss";
import pg from "pg";

import { AT_ONCE, data, run, task } from "../plan/measure.mjs";

const connectionString = process.env.PEERS_POSTGRES;
const CONNECTIONS = 32;
const pool = new pg.Pool({ connectionString, max: CONNECTIONS });

const one = async (sql) => Object.values((await pool.query(sql)).rows[0])[0];

async function durability() {
  const level = await one("SHOW synchronous_commit");
  return `synchronous_commit=${level}: ${level === "on" ? "" : "not "}synced per commit`;
}

// As its page on performance has it: a local queue, completions in batches; with less delay.
async function graphileWorker() {
  const utils = await makeWorkerUtils({ pgPool: pool });
  await utils.migrate();
  const quiet = { error: console.error, warning() {}, info() {}, debug() {} };
  const { Logger } = await import("graphile-worker");
  const logger = new Logger(() => (level, text) => quiet[level]?.(text));
  const preset = {
    worker: {
      concurrentJobs: AT_ONCE,
      pollInterval: 10,
      localQueue: { size: AT_ONCE + 36 },
      completeJobBatchDelay: 5,
    },
  };
  return {
    durability,
    enqueue: () => utils.addJob("bench", { data }),
    enqueueBulk: (count) =>
      utils.addJobs(
        Array.from({ length: count }, () => ({ identifier: "bench", payload: { data } })),
      ),
    work: (note) =>
      runWorkers({
        preset,
        pgPool: new pg.Pool({ connectionString, max: CONNECTIONS }),
        taskList: { bench: async () => note() },
        crontab: "",
        noHandleSignals: true,
        logger,
      }),
    left: async () => Number(await one("SELECT count(*) FROM graphile_worker._private_jobs")),
  };
}

// Batches of 64, fetched again at once while they are full, woken by NOTIFY in between.
async function pgBoss() {
  const boss = new PgBoss({ connectionString, max: CONNECTIONS, useListenNotify: true });
  boss.on("error", console.error);
  await boss.start();
  await boss.createQueue("bench", { notify: true });
  return {
    durability,
    enqueue: () => boss.send("bench", { data }),
    enqueueBulk: (count) =>
      boss.insert("bench", Array.from({ length: count }, () => ({ data: { data } }))),
    work: (note) =>
      boss.work(
        "bench",
        { batchSize: AT_ONCE, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true },
        async (batch) => batch.forEach(() => note()),
      ),
    left: async () =>
      Number(await one("SELECT count(*) FROM pgboss.job WHERE state < 'completed'")),
  };
}

const peers = { "graphile-worker": graphileWorker, "pg-boss": pgBoss };
await run(await peers[task.peer]());
