"""Opens tables that Tidegate wrote with Delta for Spark, the reference reader.

    check.py TIDEGATE DIRECTORY

For every table: all versions, the feed and the history. Then, on a clustered table, Spark's own upkeep:
OPTIMIZE leaves our files alone, VACUUM keeps what Tidegate needs, Tidegate goes on and all readers agree.
A table whose files Spark has rewritten is refused.
"""

import json
import pathlib
import sys
import tempfile

from pyspark.sql import SparkSession

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import check as other_readers
from rows import Bag
from tidegate import Refused, Tidegate

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
# Tables that make-tables leaves for Spark to change.
UPKEEP, REWRITTEN = "accounts", "accounts_rewritten"


def start_spark():
    settings = {
        "spark.jars.packages": DELTA,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.driver.memory": "2g",
        # All in this machine, also where its name leads elsewhere.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("tidegate")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Reference:
    """Spark on the tables of one directory."""

    def __init__(self, spark, tidegate):
        self.spark, self.tidegate = spark, tidegate
        self.problems = []
        self.compared = 0

    def path(self, table):
        return self.tidegate.location(table)

    def read(self, table, **options):
        reader = self.spark.read.format("delta").options(**options)
        return reader.load(self.path(table)).toArrow()

    def compare(self, what, own, answer, bag=Bag):
        self.compared += 1
        other_readers.compare(what, own, answer, bag, self.problems)

    def check_versions(self, table):
        for version in self.tidegate.versions(table):
            own = Bag(self.tidegate.table("read", table, "--version", version))
            self.compare(f"{table} version {version}", own, lambda: self.read(table, versionAsOf=version))

    def check_feed(self, table):
        if not self.tidegate.keeps_feed(table):
            return
        own = other_readers.feed_bag(self.tidegate.table("changes", table, "--from", 0))
        answer = lambda: self.read(table, readChangeFeed="true", startingVersion=0)
        self.compare(f"{table} feed", own, answer, other_readers.feed_bag)

    def check_history(self, table):
        query = f"DESCRIBE HISTORY delta.`{self.path(table)}`"
        seen = {row["version"]: row for row in self.spark.sql(query).collect()}
        if set(seen) != set(self.tidegate.versions(table)):
            self.problems.append(f"{table}: the history has versions {sorted(seen)}")
        for version, row in seen.items():
            if not row["operation"] or row["timestamp"] is None or row["engineInfo"] is None:
                self.problems.append(f"{table}: the history of version {version} is {row}")

    def files(self, table):
        return sorted(self.spark.read.format("delta").load(self.path(table)).inputFiles())

    def check_upkeep(self, table):
        """OPTIMIZE, VACUUM, another batch, a VACUUM of everything old, and another batch."""
        before = self.files(table)
        self.spark.sql(f"OPTIMIZE delta.`{self.path(table)}`").collect()
        if self.files(table) != before:
            self.problems.append(f"{table}: OPTIMIZE rewrote files of a clustered table")
        self.spark.sql(f"VACUUM delta.`{self.path(table)}`").collect()
        self.apply_another_batch(table, 1)
        self.check_versions(table)
        self.check_feed(table)
        self.spark.sql(f"VACUUM delta.`{self.path(table)}` RETAIN 0 HOURS").collect()
        self.apply_another_batch(table, 2)
        latest = self.tidegate.versions(table)[-1]
        own = Bag(self.tidegate.table("read", table))
        self.compare(f"{table} after VACUUM", own, lambda: self.read(table, versionAsOf=latest))
        duckdb = other_readers.readers.open_duckdb()
        path = self.path(table)
        self.compare(f"{table}, DuckDB", own, lambda: other_readers.readers.duckdb_rows(duckdb, path, latest))
        self.compare(f"{table}, deltalake", own, lambda: other_readers.readers.deltalake_rows(path, latest))

    def apply_another_batch(self, table, number):
        """An update of an old row, a delete of one and an insert; the rows must say so."""
        events = [
            {"id": number, "op": "U", "seq": 1000 + number, "owner": f"updated {number}", "balance": "1.25"},
            {"id": 10 + number, "op": "D", "seq": 1000 + number},
            {"id": 5000 + number, "op": "U", "seq": 1000 + number, "owner": "new", "balance": "2.50"},
        ]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(json.dumps(event) + "\n" for event in events))
            file.flush()
            result = json.loads(self.tidegate.run("apply", table, file.name, "-o", "json"))
        counts = {name: result[name] for name in ("inserted", "updated", "deleted")}
        if counts != {"inserted": 1, "updated": 1, "deleted": 1}:
            self.problems.append(f"{table}: batch {number} after the upkeep counts {counts}")

    def check_rewrite(self, table):
        """Files that Spark has rewritten lack what Tidegate needs: the table is refused."""
        before = self.files(table)
        self.spark.sql(f"OPTIMIZE delta.`{self.path(table)}` FULL").collect()
        if self.files(table) == before:
            self.problems.append(f"{table}: OPTIMIZE FULL rewrote nothing, so nothing was tested")
        try:
            self.apply_another_batch(table, 1)
            self.problems.append(f"{table}: a batch was applied to rewritten files")
        except Refused as refused:
            if "error[FOREIGN_REWRITE]" not in str(refused):
                self.problems.append(f"{table}: refused with {refused}")


def main(binary, directory):
    tidegate = Tidegate(pathlib.Path(binary), pathlib.Path(directory))
    reference = Reference(start_spark(), tidegate)
    for table in tidegate.tables():
        reference.check_versions(table)
        reference.check_feed(table)
        reference.check_history(table)
        print(f"{table}: {len(tidegate.versions(table))} versions", flush=True)
    reference.check_upkeep(UPKEEP)
    reference.check_rewrite(REWRITTEN)
    for problem in reference.problems:
        print(problem, file=sys.stderr)
    failed = len(reference.problems)
    print(f"{reference.compared - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
