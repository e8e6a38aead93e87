"""absurd on PostgreSQL, with the SDK's own worker and its poll interval."""

import os
import threading
import time

from absurd_sdk import Absurd

from harness import PAYLOAD, asked, next_step_asked, say_median, say_rate, say_waiting

url, workload, numbers = asked()
# A task that a dead worker held is claimed again when its claim is over; so short only where that is measured.
CLAIM_SECONDS = 2 if workload in ("load", "go-on") else 120
WORKERS = 16 if workload in ("w2", "w5") else 1
waiting = []


def connect():
    absurd = Absurd(url)

    @absurd.register_task(name="chain")
    def chain(params, ctx):
        for _ in range(params["steps"]):
            ctx.step("step", lambda: PAYLOAD)
        if params["next"]:
            ctx.step("next", next_step_asked)

    @absurd.register_task(name="wait")
    def wait(params, ctx):
        waiting.append(params["n"])
        ctx.await_event(f"go:{params['n']}")

    return absurd


app = connect()
app.create_queue()
for _ in range(WORKERS):
    threading.Thread(target=lambda: connect().start_worker(claim_timeout=CLAIM_SECONDS), daemon=True).start()


def start(steps, then_next=False):
    return app.spawn("chain", {"steps": steps, "next": then_next})["task_id"]


def complete(tasks):
    for task in tasks:
        while (result := app.fetch_task_result(task)) is None or result.state != "completed":
            if result is not None and result.state in ("failed", "cancelled"):
                raise SystemExit(f"a task has {result.state}")
            time.sleep(0.002)


def wait_all(runs):
    for n in range(runs):
        app.spawn("wait", {"n": n})
    while len(waiting) < runs:
        time.sleep(0.02)


match workload, numbers:
    case "w1", [steps]:
        say_rate("W1", steps, lambda: complete([start(steps)]))
    case "w2", [runs, steps]:
        say_rate("W2", runs * steps, lambda: complete([start(steps) for _ in range(runs)]))
    case "load", [steps]:
        complete([start(steps, then_next=True)])
    case "go-on", []:
        threading.Event().wait()
    case "w4", [runs]:
        say_median("W4", runs, lambda _: complete([start(1)]))
    case "w5", [runs]:
        say_waiting(runs, lambda: wait_all(runs))
    case _:
        raise SystemExit(f"unknown workload {workload}")
os._exit(0)
