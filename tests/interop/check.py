"""Reads every version of every table of a directory with the other readers and compares.

    check.py TIDEGATE DIRECTORY

Each version has equal rows for Tidegate, deltalake and DuckDB, the latest one for Polars too; hidden
columns show nowhere; the feed of tables with `change_data_feed: true` is equal for deltalake. Prints a
line a table and fails when any comparison does, or when there was nothing to compare.
"""

import pathlib
import sys

import pyarrow as pa

import readers
from rows import Bag
from tidegate import Tidegate

HIDDEN = "__tidegate_"


def feed_bag(table):
    """A feed without commit times, which readers give in units of their own."""
    version = table.schema.get_field_index("_commit_version")
    table = table.set_column(version, "_commit_version", table.column(version).cast(pa.int64()))
    return Bag(table, without=("_commit_timestamp",))


def check_versions(tidegate, name, duckdb, problems):
    """Compares the rows of all versions and returns how many there are."""
    path = tidegate.location(name)
    versions = tidegate.versions(name)
    for version in versions:
        own = Bag(tidegate.table("read", name, "--version", version))
        answers = {
            "deltalake": lambda: readers.deltalake_rows(path, version),
            "DuckDB": lambda: readers.duckdb_rows(duckdb, path, version),
        }
        if version == versions[-1]:
            answers["Polars"] = lambda: readers.polars_rows(path)
        for reader, answer in answers.items():
            compare(f"{name} version {version}, {reader}", own, answer, Bag, problems)
    return len(versions)


def check_feed(tidegate, name, problems):
    """Compares the feed where other readers see all of it; says whether it did."""
    if not tidegate.keeps_feed(name):
        return False
    last = tidegate.versions(name)[-1]
    own = feed_bag(tidegate.table("changes", name, "--from", 0))
    path = tidegate.location(name)
    compare(f"{name} feed, deltalake", own, lambda: readers.deltalake_feed(path, 0, last), feed_bag, problems)
    return True


def compare(what, own, answer, bag, problems):
    try:
        found = bag(answer())
    except Exception as error:  # a reader that cannot read is a finding like any other
        problems.append(f"{what}: {type(error).__name__}: {str(error)[:400]}")
        return
    shown = [column for column in found.types if column.lower().startswith(HIDDEN)]
    if shown:
        problems.append(f"{what}: hidden columns show: {shown}")
    difference = own.difference(found)
    if difference:
        problems.append(f"{what}: {difference}")


def check_all(tidegate):
    """All problems of all tables."""
    problems, compared = [], 0
    duckdb = readers.open_duckdb()
    for name in tidegate.tables():
        before = len(problems)
        versions = check_versions(tidegate, name, duckdb, problems)
        feed = "with feed" if check_feed(tidegate, name, problems) else "without feed"
        compared += versions
        print(f"{name}: {versions} versions {feed}, {len(problems) - before} problems")
    if compared == 0:
        problems.append("there is no table to compare")
    return problems


def main(binary, directory):
    problems = check_all(Tidegate(pathlib.Path(binary), pathlib.Path(directory)))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
