"""LangGraph with its SQLite checkpointer: a step is one node of a graph that loops. DURABILITY is async (its default), sync or exit."""

import os
import sqlite3
import threading
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from harness import PAYLOAD, asked, next_step_asked, say_median, say_rate, say_waiting

store, workload, numbers = asked()
saver = SqliteSaver(sqlite3.connect(store, check_same_thread=False))
saver.setup()


class State(TypedDict):
    done: int
    steps: int
    result: str


def step(state):
    return {"done": state["done"] + 1, "result": PAYLOAD}


def next_step(state):
    next_step_asked()


def route(state):
    if state["done"] < state["steps"]:
        return "step"
    return "next_step" if workload in ("load", "go-on") else END


def wait(state):
    interrupt("go")


chain = StateGraph(State)
chain.add_node("step", step)
chain.add_node("next_step", next_step)
chain.add_edge(START, "step")
chain.add_conditional_edges("step", route, ["step", "next_step", END])
chain.add_edge("next_step", END)
chain = chain.compile(checkpointer=saver)

waiting = StateGraph(State)
waiting.add_node("wait", wait)
waiting.add_edge(START, "wait")
waiting.add_edge("wait", END)
waiting = waiting.compile(checkpointer=saver)


def run(thread, steps, graph=chain, anew=True):
    config = {"configurable": {"thread_id": thread}, "recursion_limit": 10**6}
    graph.invoke({"done": 0, "steps": steps} if anew else None, config, durability=os.environ["DURABILITY"])


def run_together(runs, steps):
    threads = [threading.Thread(target=run, args=(f"w2-{n}", steps)) for n in range(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


match workload, numbers:
    case "w1", [steps]:
        say_rate("W1", steps, lambda: run("w1", steps))
    case "w2", [runs, steps]:
        say_rate("W2", runs * steps, lambda: run_together(runs, steps))
    case "load", [steps]:
        run("w3", steps)
    case "go-on", []:
        run("w3", 0, anew=False)
    case "w4", [runs]:
        say_median("W4", runs, lambda n: run(f"w4-{n}", 1))
    case "w5", [runs]:
        say_waiting(runs, lambda: [run(f"w5-{n}", 1, graph=waiting) for n in range(runs)])
    case _:
        raise SystemExit(f"unknown workload {workload}")
os._exit(0)
