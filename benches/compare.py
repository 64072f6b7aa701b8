"""Applies the same batches with Tidegate and with delta-rs, compares the tables, and prints what each cost.

CPU is user and system time of the process and its children. Tidegate is a process a batch, start included;
delta-rs is one process that has loaded its library and applied one batch before the first that counts.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "interop"))

from readers import open_duckdb  # noqa: E402

COLUMNS = [
    "order_id", "custkey", "status", "totalprice", "orderdate", "updated_at", "priority", "clerk",
    "discount", "region", "comment", "_seq",
]  # fmt: skip
TYPES = [
    "long", "long", "string", "decimal(15,2)", "date", "timestamp", "string", "string",
    "double", "string", "string", "long",
]  # fmt: skip


def arguments():
    parser = argparse.ArgumentParser(prog="benches/run", description=__doc__)
    parser.add_argument("--binaries", required=True, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table before the first batch")
    parser.add_argument("--events", type=int, default=1_000_000, help="events of a batch")
    parser.add_argument("--batches", type=int, default=4, help="batches; the first is not counted")
    parser.add_argument("--distribution", default="uniform", choices=["uniform", "zipf", "recent"])
    parser.add_argument("--feed", default="inferred", choices=["inferred", "true"], help="the table's change feed")
    parser.add_argument("--engines", default="tidegate,tidegate-debezium,delta-rs")
    parser.add_argument("--data", type=Path, default=Path("target/bench-data"), help="made once and kept")
    parser.add_argument("--base", type=Path, help="Parquet files of another base, in place of the made one")
    parser.add_argument("--changes", type=Path, nargs="+", help="Parquet files of other batches; `.debezium.jsonl` beside them")
    parser.add_argument("--work", type=Path, default=Path("target/bench-work"), help="emptied first")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    return parser.parse_args()


def measured(command, **more):
    """Runs a command; its output, wall and CPU seconds, and peak memory in MiB."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}")
    return output, {
        "wall_s": time.monotonic() - started,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mib": usage.ru_maxrss / 1024,
    }


def load(options):
    """The base and the batches, made where they are not there yet."""
    make = options.binaries / "make-load"
    base = options.base or options.data / f"base-{options.rows}"
    if not base.exists():
        unfinished = base.with_suffix(".unfinished")
        subprocess.run([make, "base", "--rows", str(options.rows), "--out", unfinished], check=True)
        unfinished.rename(base)
    if options.changes:
        return base, [(path, path.with_suffix(".debezium.jsonl")) for path in options.changes]
    batches = []
    for batch in range(1, options.batches + 1):
        stem = f"{options.distribution}-{options.rows}-{options.events}-{batch}"
        made = []
        for form, end in (("parquet", "parquet"), ("debezium", "debezium.jsonl")):
            path = options.data / f"{stem}.{end}"
            if not path.exists():
                unfinished = path.with_suffix(".unfinished")
                command = [make, "changes", "--rows", options.rows, "--events", options.events]
                command += ["--batch", batch, "--distribution", options.distribution]
                subprocess.run([*map(str, command), "--format", form, "--out", unfinished], check=True)
                unfinished.rename(path)
            made.append(path)
        batches.append(tuple(made))
    return base, batches


def spec(options, debezium):
    """The table's spec as Tidegate takes it."""
    schema = [{"name": name, "type": kind} for name, kind in zip(COLUMNS, TYPES)]
    described = {
        "name": "orders",
        "keys": ["order_id"],
        "sequence_by": "_seq",
        "except_column_list": ["op"],
        "apply_as_deletes": "op = 'D'",
        "change_data_feed": options.feed,
    }
    if debezium:
        # The format tells deletes itself; the condition is the table's and stays.
        encoded = {"updated_at": {"encoding": "epoch_us"}}
        schema = [column | encoded.get(column["name"], {}) for column in schema]
        described["schema"] = [column for column in schema if column["name"] != "_seq"]
        described["source"] = {"format": "debezium", "metadata_columns": {"lsn": "_seq", "op": "op"}}
    else:
        described["schema"] = [*schema, {"name": "op", "type": "string"}]
    return json.dumps(described)


def tidegate(options, base, batches, debezium):
    """Tidegate, a process a batch."""
    home = options.work / ("tidegate-debezium" if debezium else "tidegate")
    home.mkdir(parents=True)
    binary = options.binaries / "tidegate"
    run = [binary, "--local", home / "data", "--quiet", "--output", "json"]
    spec_file = home / "orders.json"
    spec_file.write_text(spec(options, False))
    measured([*run, "table", "create", "-f", spec_file])
    _, loading = measured([*run, "apply", "orders", base])
    if debezium:
        spec_file.write_text(spec(options, True))
        measured([*run, "table", "alter", "orders", "-f", spec_file])
    applied = []
    for parquet, jsonl in batches:
        output, cost = measured([*run, "apply", "orders", jsonl if debezium else parquet])
        result = json.loads(output)
        cost["changed"] = [result[name] for name in ("inserted", "updated", "deleted")]
        cost["written_mib"] = result["bytes_written"] / 2**20
        applied.append(cost)
    _, first_row = measured([*run, "read", "orders", "--limit", "1"])
    return home / "data" / "lake" / "orders", loading, applied, first_row


def delta_rs(options, base, batches):
    """delta-rs, all batches in one process."""
    table = options.work / "delta-rs"
    command = [sys.executable, HERE / "delta_rs.py", table, base, *[parquet for parquet, _ in batches]]
    output, _ = measured(command)
    lines = [json.loads(line) for line in output.splitlines()]
    return table, lines[0], lines[1:], None


def fingerprint(table):
    """Number and content of a table's rows, as DuckDB reads it."""
    with open_duckdb() as connection:
        columns = ", ".join(f'"{name}"' for name in COLUMNS)
        query = f"select count(*), bit_xor(hash({columns})), sum(_seq), sum(totalprice) from delta_scan('{table}')"
        rows, content, sequences, prices = connection.execute(query).fetchone()
    return {"rows": rows, "content": content, "sum_seq": int(sequences), "sum_price": str(prices)}


def report(options, found):
    """A table of medians over the batches after the first."""
    columns = ["cpu_s", "wall_s", "peak_mib", "written_mib"]
    print(f"\n{options.rows:,} rows, batches of {options.events:,} events, {options.distribution}, feed {options.feed}\n")
    print("| | CPU s a batch | wall s | peak MiB | written MiB | CPU, times Tidegate's | load CPU s | load peak MiB |")
    print("|---|---|---|---|---|---|---|---|")
    own = None
    for name, engine in found.items():
        counted = engine["batches"][1:] or engine["batches"]
        medians = [statistics.median(cost[column] for cost in counted) for column in columns]
        engine["median"] = dict(zip(columns, medians))
        own = own or medians[0]
        cells = [f"{medians[0]:.2f}", f"{medians[1]:.2f}", f"{medians[2]:.0f}", f"{medians[3]:.0f}"]
        print(f"| {name} | {' | '.join(cells)} | {medians[0] / own:.2f} | {engine['load']['cpu_s']:.1f} | {engine['load']['peak_mib']:.0f} |")
    for name, engine in found.items():
        if engine["first_row"]:
            print(f"\n{name}: `read --limit 1` takes {engine['first_row']['cpu_s']:.3f} s of CPU")


def main():
    options = arguments()
    options.data.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    base, batches = load(options)
    engines = {
        "tidegate": lambda: tidegate(options, base, batches, False),
        "tidegate-debezium": lambda: tidegate(options, base, batches, True),
        "delta-rs": lambda: delta_rs(options, base, batches),
    }
    found = {}
    for name in options.engines.split(","):
        table, loading, applied, first_row = engines[name]()
        rows = fingerprint(table)
        print(name, json.dumps(rows), flush=True)
        found[name] = {"load": loading, "batches": applied, "first_row": first_row, "rows": rows}
        shutil.rmtree(options.work / name)
    report(options, found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    contents = {json.dumps(engine["rows"]) for engine in found.values()}
    if len(contents) != 1:
        sys.exit("the engines' tables differ")
    print(f"\nall tables hold the same {next(iter(found.values()))['rows']['rows']:,} rows")


if __name__ == "__main__":
    main()
