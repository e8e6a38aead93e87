"""Makes one table of what was measured: table.py RESULTS.jsonl PEERS.json"""

import json
import statistics
import sys
from collections import defaultdict

SYNCED = {"W1": "raw append", "W2": "raw grouped"}
HEAD = ["engine", "W1 steps/s", "x raw", "syncs", "W2 steps/s", "x raw", "syncs", "W3", "W4", "raw syncs", "W5", "memory"]


def load(path):
    engines, values, syncs, failures = {}, defaultdict(list), {}, []
    with open(path) as lines:
        for line in map(json.loads, lines):
            engine, workload = line["engine"], line["workload"]
            engines.setdefault(engine, line)
            if "failed" in line:
                failures.append((engine, workload, line["failed"]))
            elif "syncs_per_step" in line:
                syncs[engine, workload] = line["syncs_per_step"]
            else:
                values[engine, workload, line["unit"]].append(line)
    return engines, values, syncs, failures


def summarise(engines, values, syncs):
    """One row for each engine, workload and unit: medians, beside what the disk did at the same time."""

    def median(*key):
        return statistics.median(line["value"] for line in values[key]) if key in values else None

    for (engine, workload, unit), lines in values.items():
        value, kind = median(engine, workload, unit), workload[:2]
        row = {key: engines[engine][key] for key in ("engine", "version")}
        row |= {"workload": workload, "value": value, "unit": unit, "rounds": len(lines)}
        row |= {"least": min(line["value"] for line in lines), "most": max(line["value"] for line in lines)}
        if kind in SYNCED:
            row["of_raw"] = value / median(engine, SYNCED[kind], "records/s")
        elif kind == "W4":
            row["raw_syncs"] = value / 1e3 * median(engine, "raw append", "records/s")
        row["syncs_per_step"] = syncs.get((engine, workload))
        yield row | {"durability": engines[engine]["durability"], "note": lines[0]["note"]}


def table(engines, rows):
    by = {(row["engine"], row["workload"][:2], row["unit"]): row for row in rows}
    figure = lambda number, form: "-" if number is None else format(number, form)
    for engine in engines:
        get = lambda workload, unit, key, form: figure(by.get((engine, workload, unit), {}).get(key), form)
        cells = [f"{engine} {engines[engine]['version']}"]
        for workload in SYNCED:
            cells += [get(workload, "steps/s", key, form) for key, form in (("value", ",.0f"), ("of_raw", ".2f"), ("syncs_per_step", ".2f"))]
        w3 = by.get((engine, "W3", "ms"))
        cells.append(f"{w3['note'].split()[0]}: {w3['value']:,.0f} ms" if w3 else "-")
        cells += [get("W4", "ms", "value", ".2f") + " ms", get("W4", "ms", "raw_syncs", ".1f")]
        w5 = by.get((engine, "W5", "s"))
        cells += [f"{w5['note'].split()[0]}: {w5['value']:,.1f} s" if w5 else "-", get("W5", "MiB", "value", ",.0f") + " MiB"]
        yield [cell if not cell.startswith("- ") else "-" for cell in cells]


def main(results, summary):
    engines, values, syncs, failures = load(results)
    rows = list(summarise(engines, values, syncs))
    with open(summary, "w") as out:
        json.dump({"rows": rows, "failures": failures}, out, indent=1)
    lines = [HEAD, *table(engines, rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(cell.ljust(width) if n == 0 else cell.rjust(width) for n, (cell, width) in enumerate(zip(line, widths))))
    print("\nx raw: W1 of one record and fdatasync at a time, W2 of 64 records a sync, both measured beside the engine; under 2x is no difference")
    for workload, unit in (("raw append", "records/s"), ("raw grouped", "records/s")):
        figures = [line["value"] for key, lines in values.items() if key[1:] == (workload, unit) for line in lines]
        if figures:
            print(f"{workload}: {statistics.median(figures):,.0f} {unit} ({min(figures):,.0f} to {max(figures):,.0f})")
    for engine, line in engines.items():
        print(f"{engine}: {line['durability']}")
    for failure in failures:
        print("{}, {} failed: {}".format(*failure))


main(*sys.argv[1:])
