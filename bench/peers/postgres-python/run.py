"""procrastinate on PostgreSQL: the work of ../plan/src/measure.rs and lives.rs, in the same
lines. Called as: python run.py PEER SETTING PHASE FOLDER JOBS SECONDS, on the database in
PEERS_POSTGRES."""

import asyncio
import json
import os
import sys
import time

import procrastinate

PEER, SETTING, PHASE, _, JOBS, SECONDS = sys.argv[1:]
JOBS, LIMIT = int(JOBS), int(SECONDS)
AT_ONCE, BULK, DATA = 64, 1000, "x" * 98

connector = procrastinate.PsycopgConnector(
    conninfo=os.environ["PEERS_POSTGRES"], min_size=4, max_size=32
)
app = procrastinate.App(connector=connector)
note = None


@app.task(name="bench")
async def bench(data):
    note()


def rate(count, since):
    return round(count / (time.monotonic() - since))


async def one(sql):
    row = await connector.execute_query_one_async(sql)
    return next(iter(row.values()))


async def left():
    return await one("SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'")


def work(ran):
    """It claims one job after the other; the poll is for what NOTIFY has missed."""
    global note
    note = ran
    worker = app.run_worker_async(
        concurrency=AT_ONCE,
        fetch_job_polling_interval=0.05,
        install_signal_handlers=False,
        listen_notify=True,
    )
    return asyncio.create_task(worker)


async def produce(producers):
    taken = acknowledged = 0
    began = time.monotonic()

    async def producer():
        nonlocal taken, acknowledged
        while time.monotonic() - began < LIMIT and taken < JOBS:
            taken += 1
            await bench.defer_async(data=DATA)
            acknowledged += 1

    await asyncio.gather(*(producer() for _ in range(producers)))
    return acknowledged, rate(acknowledged, began)


async def bulk():
    done = 0
    began = time.monotonic()
    while done < JOBS and time.monotonic() - began < LIMIT:
        count = min(BULK, JOBS - done)
        await bench.batch_defer_async(*({"data": DATA} for _ in range(count)))
        done += count
    return done, rate(done, began)


async def drain(enqueued):
    seen = 0

    def ran():
        nonlocal seen
        seen += 1

    began = time.monotonic()
    worker = work(ran)
    while time.monotonic() - began < LIMIT * 3:
        if seen >= enqueued and await left() == 0:
            break
        await asyncio.sleep(0.001)
    return seen, rate(seen, began), worker


async def load():
    one_by_one, one_per_s = await produce(1)
    many, many_per_s = await produce(AT_ONCE)
    more, bulk_per_s = await bulk()
    enqueued = one_by_one + many + more
    drained, drain_per_s, _ = await drain(enqueued)
    return dict(
        one_per_s=one_per_s,
        many_per_s=many_per_s,
        bulk_per_s=bulk_per_s,
        drain_per_s=drain_per_s,
        enqueued=enqueued,
        drained=drained,
    )


async def pickup():
    figures = []
    started = asyncio.Queue()
    worker = work(lambda: started.put_nowait(time.monotonic()))
    began = time.monotonic()
    for at in range(210):
        if time.monotonic() - began > LIMIT * 3 and figures:
            break
        await asyncio.sleep((20 + at * 37 % 50) / 1000)
        enqueued = time.monotonic()
        await bench.defer_async(data=DATA)
        micros = round((await started.get() - enqueued) * 1e6)
        if at >= 10:
            figures.append(micros)
    worker.cancel()
    figures.sort()

    def part(hundredths):
        return figures[min(len(figures) - 1, len(figures) * hundredths // 100)]

    return dict(pickup_p50_us=part(50), pickup_p99_us=part(99), pickups=len(figures))


async def lives():
    seen = said = 0

    def ran():
        nonlocal seen
        seen += 1

    worker = work(ran)
    words = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(words), sys.stdin
    )
    print("ready", flush=True)

    async def tell():
        nonlocal said
        while True:
            await asyncio.sleep(0.01)
            if seen > said:
                said = seen
                print(f"ran {seen}", flush=True)

    async def enqueue():
        produced, _ = await produce(AT_ONCE)
        print(f"produced {produced}", flush=True)

    telling = asyncio.create_task(tell())
    enqueuing = None
    while word := (await words.readline()).decode().strip():
        if word == "go":
            enqueuing = asyncio.create_task(enqueue())
        elif word == "left":
            while await left() > 0:
                await asyncio.sleep(0.001)
            print("done", flush=True)
    for task in (telling, enqueuing, worker):
        task.cancel()
    return dict(ran=seen)


async def main():
    async with app.open_async():
        if await one("SELECT to_regclass('procrastinate_jobs') IS NULL"):
            await app.schema_manager.apply_schema_async()
        figures = await {"load": load, "pickup": pickup, "lives": lives}[PHASE]()
        level = await one("SHOW synchronous_commit")
        synced = "synced per commit" if level == "on" else "not synced per commit"
        durability = f"synchronous_commit={level}: {synced}"
        line = dict(peer=PEER, setting=SETTING, durability=durability, **figures)
        print(json.dumps(line), flush=True)
        os._exit(0)


asyncio.run(main())
