"""What the Python harnesses share: what is asked of them, and the lines of JSON in which they say what they measured."""

import json
import os
import statistics
import sys
import time

PAYLOAD = "x" * 100  # what each step returns
SETTLE = 5  # seconds that the waiting runs are left alone before memory is read


def asked():
    """`STORE w1 STEPS`, `w2 RUNS STEPS`, `load STEPS`, `go-on`, `w4 RUNS` or `w5 RUNS`."""
    store, workload, *numbers = sys.argv[1:]
    return store, workload, [int(number) for number in numbers]


def say(workload, value, unit, note):
    print(json.dumps({"workload": workload, "value": round(value, 3), "unit": unit, "note": note}), flush=True)


def say_rate(workload, steps, work):
    began = time.perf_counter()
    work()
    say(workload, steps / (time.perf_counter() - began), "steps/s", f"{steps} steps")


def say_median(workload, runs, work):
    times = []
    for run in range(runs):
        began = time.perf_counter()
        work(run)
        times.append((time.perf_counter() - began) * 1e3)
    say(workload, statistics.median(times), "ms", f"{runs} runs")


def say_waiting(runs, work):
    """`work` starts the runs, and returns when all wait."""
    before, began = resident_mib(), time.perf_counter()
    work()
    say("W5", time.perf_counter() - began, "s", f"{runs} runs")
    time.sleep(SETTLE)
    say("W5", resident_mib() - before, "MiB", f"{runs} runs")


def next_step_asked():
    """The body of the step after the others in W3: `load` waits there to be killed, `go-on` says how long ago it was started."""
    if "START_NS" in os.environ:
        ms = (time.time_ns() - int(os.environ["START_NS"])) / 1e6
        say("W3", ms, "ms", os.environ.get("W3_STEPS", "") + " steps")
        os._exit(0)
    print("loaded", flush=True)
    while True:
        time.sleep(3600)


def resident_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
