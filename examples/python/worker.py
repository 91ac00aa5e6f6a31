#!/usr/bin/env python3
"""A complete Windlass worker without dependencies: several jobs at once, heartbeats, an orderly stop.

    WINDLASS_SERVER=http://127.0.0.1:8080 python3 worker.py

Add a function to HANDLERS for each kind. It may run twice for one job: make its effect idempotent.
"""
import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request

SERVER = os.environ.get("WINDLASS_SERVER", "http://127.0.0.1:8080")
TOKEN = os.environ.get("WINDLASS_TOKEN")
NAME = f"python-{os.uname().nodename}-{os.getpid()}"
SLOTS = 4
STOP_SECONDS = 20  # after SIGTERM; then what still runs is given back

stopping = threading.Event()


class LeaseLost(Exception):
    """Another worker may run the job: stop, and report nothing."""


class Permanent(Exception):
    """Do not retry: the job becomes a dead letter now."""


def post(path, body, timeout=40):
    headers = {"Content-Type": "application/json"}
    if TOKEN:
        headers["Authorization"] = f"Bearer {TOKEN}"
    request = urllib.request.Request(SERVER + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


class Lease:
    def __init__(self, job):
        self.job, self.token = job, job["lease"]["token"]
        self.interval = job["visibility_timeout_ms"] / 3000
        self.lost, self.over = threading.Event(), threading.Event()
        self.progress = None

    def check(self):
        """Call this now and then in long handlers."""
        if self.lost.is_set():
            raise LeaseLost

    def keep(self):
        """Sends heartbeats until the job is over."""
        while not self.over.wait(self.interval):
            try:
                body = {"token": self.token}
                if self.progress is not None:
                    body["progress"] = self.progress
                post(f"/jobs/{self.job['id']}/heartbeat", body, timeout=self.interval)
            except urllib.error.HTTPError as error:
                if error.code in (404, 409):
                    return self.lost.set()
            except OSError:
                pass  # the server is restarting: try again until the lease ends

    def report(self, verdict, body):
        """A report that got no answer is sent again: the same verdict is accepted twice."""
        for wait in (0.2, 1, 3, 5, 10):
            if self.lost.is_set():
                return
            try:
                post(f"/jobs/{self.job['id']}/{verdict}", {"token": self.token, **body})
                return
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    print(f"job {self.job['id']}: {verdict}: {error.read().decode()}", flush=True)
                    return
            except OSError:
                pass
            time.sleep(wait)


def run(lease):
    job = lease.job
    threading.Thread(target=lease.keep, daemon=True).start()
    try:
        result = HANDLERS[job["kind"]](job["payload"], lease)
        lease.report("complete", {"result": result})
    except LeaseLost:
        pass
    except Permanent as error:
        lease.report("fail", {"error": str(error), "retryable": False})
    except Exception as error:
        lease.report("fail", {"error": repr(error)})
    finally:
        lease.over.set()


def email(payload, lease):
    if "to" not in payload:
        raise Permanent("the payload has no `to`")
    print(f"job {lease.job['id']} attempt {lease.job['attempts']}: mail to {payload['to']}", flush=True)
    return {"sent": True}


def count(payload, lease):
    """A long job: a number of seconds, with progress."""
    for second in range(payload["seconds"]):
        lease.check()
        lease.progress = {"done": second, "of": payload["seconds"]}
        time.sleep(1)


HANDLERS = {"email": email, "count": count}


def main():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    running = {}
    while not stopping.is_set():
        running = {thread: lease for thread, lease in running.items() if thread.is_alive()}
        free = SLOTS - len(running)
        if free == 0:
            stopping.wait(0.05)
            continue
        try:
            # A short wait, so that SIGTERM is seen soon.
            poll = {"worker": NAME, "queues": ["*"], "kinds": list(HANDLERS), "max": free, "wait_ms": 2000}
            jobs = post("/jobs/poll", poll)["jobs"]
        except OSError as error:
            print(f"poll: {error}; trying again", flush=True)
            stopping.wait(1)
            continue
        for job in jobs:
            lease = Lease(job)
            thread = threading.Thread(target=run, args=(lease,), daemon=True)
            running[thread] = lease
            thread.start()
    deadline = time.monotonic() + STOP_SECONDS
    for thread, lease in running.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            lease.report("release", {})  # the next worker gets it now; the attempt is not charged


if __name__ == "__main__":
    main()
