"""DBOS for Python on PostgreSQL."""

import asyncio
import os
import threading

from dbos import DBOS, SetWorkflowID

from harness import PAYLOAD, asked, next_step_asked, say_median, say_rate, say_waiting

DAY = 24 * 60 * 60
url, workload, numbers = asked()
DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "application_version": "1"})
waiting = []


@DBOS.step()
def step():
    return PAYLOAD


@DBOS.step()
def next_step():
    next_step_asked()


@DBOS.workflow()
def chain(steps, then_next=False):
    for _ in range(steps):
        step()
    if then_next:
        next_step()


@DBOS.workflow()
async def wait(n):
    waiting.append(n)
    await DBOS.recv_async("go", timeout_seconds=DAY)


DBOS.launch()


def run_together(runs, steps):
    for run in [DBOS.start_workflow(chain, steps) for _ in range(runs)]:
        run.get_result()


async def wait_all(runs):
    at_once = asyncio.Semaphore(64)

    async def start(n):
        async with at_once:
            await DBOS.start_workflow_async(wait, n)

    await asyncio.gather(*(start(n) for n in range(runs)))
    while len(waiting) < runs:
        await asyncio.sleep(0.02)


match workload, numbers:
    case "w1", [steps]:
        say_rate("W1", steps, lambda: DBOS.start_workflow(chain, steps).get_result())
    case "w2", [runs, steps]:
        say_rate("W2", runs * steps, lambda: run_together(runs, steps))
    case "load", [steps]:
        with SetWorkflowID("w3"):
            run = DBOS.start_workflow(chain, steps, True)
        run.get_result()
    case "go-on", []:
        threading.Event().wait()
    case "w4", [runs]:
        say_median("W4", runs, lambda _: DBOS.start_workflow(chain, 1).get_result())
    case "w5", [runs]:
        loop = asyncio.new_event_loop()
        say_waiting(runs, lambda: loop.run_until_complete(wait_all(runs)))
    case _:
        raise SystemExit(f"unknown workload {workload}")
os._exit(0)
