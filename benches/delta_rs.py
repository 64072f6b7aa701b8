"""delta_rs.py TABLE BASE CHANGES…: loads a table with delta-rs and merges batches into it, a line of JSON each.

A batch is reduced to the newest event of each key first, as delta-rs' merge demands.
"""

import json
import resource
import sys
import time
from pathlib import Path

import polars
import pyarrow.parquet
from deltalake import DeltaTable, write_deltalake

KEY = "order_id"


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_mib():
    """The greatest resident size since the last reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel tells no peak memory")


def bytes_below(table):
    return sum(path.stat().st_size for path in Path(table).rglob("*") if path.is_file())


def metered(work, table):
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    before, started, used = bytes_below(table), time.monotonic(), cpu_seconds()
    changed = work()
    cost = {
        "wall_s": time.monotonic() - started,
        "cpu_s": cpu_seconds() - used,
        "peak_mib": peak_mib(),
        "written_mib": (bytes_below(table) - before) / 2**20,
        "changed": changed,
    }
    print(json.dumps(cost), flush=True)


def load(table, base):
    for path in sorted(Path(base).glob("*.parquet")):
        write_deltalake(table, pyarrow.parquet.read_table(path), mode="append")


def merge(table, changes):
    newest = polars.read_parquet(changes).sort("_seq").unique(subset=[KEY], keep="last")
    source = newest.to_arrow(compat_level=polars.CompatLevel.oldest())
    columns = {name: f"s.{name}" for name in source.column_names if name != "op"}
    done = (
        DeltaTable(table)
        .merge(source, predicate=f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t")
        .when_matched_delete("s.op = 'D' AND s._seq > t._seq")
        .when_matched_update(columns, predicate="s.op <> 'D' AND s._seq > t._seq")
        # A sequence of 0 and below is older than every row that was there or is deleted.
        .when_not_matched_insert(columns, predicate="s.op <> 'D' AND s._seq > 0")
        .execute()
    )
    return [done[f"num_target_rows_{what}"] for what in ("inserted", "updated", "deleted")]


def main():
    table, base, *batches = sys.argv[1:]
    metered(lambda: load(table, base), table)
    for changes in batches:
        metered(lambda: merge(table, changes), table)


if __name__ == "__main__":
    main()
