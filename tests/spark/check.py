"""Opens tables that Tidegate wrote with Delta for Spark, the reference reader.

    check.py TIDEGATE DIRECTORY

For every table: all versions, the feed and the history. Then, on a clustered table, Spark's own upkeep:
OPTIMIZE leaves our files alone, VACUUM keeps what Tidegate needs, Tidegate goes on and all readers agree.
Then Spark writes to a table itself, between batches: MERGE, INSERT, DELETE, OPTIMIZE FULL, REORG. Tidegate
takes each of them in, and late events are judged by the sequences that rows had before. A table whose old
files a VACUUM took before that, and one whose columns Spark changed, are refused with the reason.
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
UPKEEP, SHARED, VACUUMED, ALTERED = "accounts", "accounts_shared", "accounts_vacuumed", "accounts_altered"
PARTITIONED = "accounts_partitioned"


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

    def newest(self, table):
        """The newest version, by Spark."""
        return self.spark.sql(f"DESCRIBE HISTORY delta.`{self.path(table)}` LIMIT 1").collect()[0]["version"]

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

    def sql(self, statement, table):
        """Runs a statement with the table's name in it."""
        return self.spark.sql(statement.format(f"delta.`{self.path(table)}`")).collect()

    def owners(self, table):
        rows = self.tidegate.lines("read", table)
        return {row["id"]: row.get("owner") for row in rows}

    def apply(self, table, events):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(json.dumps(event) + "\n" for event in events))
            file.flush()
            return json.loads(self.tidegate.run("apply", table, file.name, "-o", "json"))

    def check_shared(self, table):
        """Spark writes between batches; afterwards each batch sees what was there before it."""
        upsert = lambda id, seq, owner: {"id": id, "op": "U", "seq": seq, "owner": owner, "balance": "1.00"}
        delete = lambda id, seq: {"id": id, "op": "D", "seq": seq}
        expected = self.owners(table)

        def step(name, statement, changes, events, outcome, may_be_idle=False):
            """A statement of Spark that makes `changes`, then a batch that makes of them `outcome`."""
            before = self.newest(table)
            self.sql(statement, table)
            if self.newest(table) == before and not may_be_idle:
                self.problems.append(f"{table}: {name} did nothing, so nothing was tested")
            self.apply(table, events)
            for own in (changes, outcome):
                expected.update(own)
            rows = {id: owner for id, owner in expected.items() if owner is not None}
            found = self.owners(table)
            self.compared += 1
            if found != rows:
                wrong = {id for id in set(found) | set(rows) if found.get(id) != rows.get(id)}
                shown = {id: (found.get(id), rows.get(id)) for id in sorted(wrong)[:5]}
                self.problems.append(f"{table}, {name}: found and expected differ at {shown}")

        source = "(SELECT explode(array(20, 21, 22, 23, 9000, 9001)) AS id)"
        step(
            "MERGE",
            f"MERGE INTO {{}} t USING {source} s ON t.id = s.id WHEN MATCHED AND s.id = 23 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET owner = 'merged' "
            "WHEN NOT MATCHED THEN INSERT (id, owner, balance) VALUES (s.id, 'merged', 0)",
            {20: "merged", 21: "merged", 22: "merged", 23: None, 9000: "merged", 9001: "merged"},
            # Late, at the row's own sequence, later; late for a row that Spark deleted; any for one of Spark's.
            [upsert(20, 0, "late"), upsert(21, 1, "z"), upsert(22, 2000, "new"), upsert(23, 0, "late"),
             upsert(9000, -5, "event")],
            {22: "new", 9000: "event"},
        )
        step(
            "INSERT",
            "INSERT INTO {} (id, owner, balance) VALUES (9100, 'inserted', 1), (9101, 'inserted', 2)",
            {9100: "inserted", 9101: "inserted"},
            [upsert(9100, 1, "event"), delete(9001, 1)],
            {9100: "event", 9001: None},
        )
        gone = {id: None for id in range(30, 40)}
        step(
            "DELETE",
            "DELETE FROM {} WHERE id BETWEEN 30 AND 39",
            gone,
            [upsert(30, 0, "late"), upsert(31, 2000, "back")],
            {31: "back"},
        )
        step(
            "UPDATE",
            "UPDATE {} SET owner = 'updated' WHERE id BETWEEN 40 AND 45",
            {id: "updated" for id in range(40, 46)},
            [upsert(40, 0, "late"), upsert(41, 2000, "new")],
            {41: "new"},
        )
        step(
            "OPTIMIZE FULL",
            "OPTIMIZE {} FULL",
            {},
            [upsert(50, 0, "late"), upsert(51, 2000, "new"), delete(52, 2000), upsert(31, 1999, "late")],
            {51: "new", 52: None},
        )
        step(
            "REORG",
            "REORG TABLE {} APPLY (PURGE)",
            {},
            [upsert(60, 0, "late"), upsert(61, 2000, "new"), delete(62, 2000), upsert(52, 1999, "late")],
            {61: "new", 62: None},
            # Spark leaves the one file of a clustered table alone; `check_reorg` has files that it rewrites.
            may_be_idle=True,
        )
        self.check_all_readers(table)
        self.sql("VACUUM {} RETAIN 0 HOURS", table)
        self.apply(table, [upsert(70, 2000, "new"), upsert(32, 0, "late")])
        expected[70] = "new"
        if self.owners(table) != {id: owner for id, owner in expected.items() if owner is not None}:
            self.problems.append(f"{table}: wrong rows after VACUUM")

    def check_reorg(self, table):
        """REORG rewrites files with dead rows; the batch that follows finds every row."""
        before = self.files(table)
        self.sql("REORG TABLE {} APPLY (PURGE)", table)
        if self.files(table) == before:
            self.problems.append(f"{table}: REORG did nothing, so nothing was tested")
        self.apply_another_batch(table, 1)
        self.check_all_readers(table)

    def check_all_readers(self, table):
        """Every version by every reader."""
        self.check_versions(table)
        self.check_feed(table)
        duckdb = other_readers.readers.open_duckdb()
        found = []
        self.compared += other_readers.check_versions(self.tidegate, table, duckdb, found)
        other_readers.check_feed(self.tidegate, table, found)
        self.problems.extend(found)

    def check_refused(self, table, reason):
        """A batch is refused with a code and words of the reason, and again because of the quarantine."""
        event = {"id": 1, "op": "U", "seq": 3000, "owner": "x", "balance": "1.00"}
        for code in ("FOREIGN_REWRITE", "QUARANTINED"):
            self.compared += 1
            try:
                self.apply(table, [event])
                self.problems.append(f"{table}: a batch was applied, {code} was expected")
            except Refused as refused:
                if f"error[{code}]" not in str(refused) or reason not in str(refused):
                    self.problems.append(f"{table}: refused with {refused}")

    def check_refusals(self):
        self.sql("OPTIMIZE {} FULL", VACUUMED)
        self.sql("VACUUM {} RETAIN 0 HOURS", VACUUMED)
        self.check_refused(VACUUMED, "cannot be read")
        self.sql("ALTER TABLE {} ADD COLUMNS (extra STRING)", ALTERED)
        self.check_refused(ALTERED, "changed the metadata")


def main(binary, directory):
    tidegate = Tidegate(pathlib.Path(binary), pathlib.Path(directory))
    reference = Reference(start_spark(), tidegate)
    for table in tidegate.tables():
        reference.check_versions(table)
        reference.check_feed(table)
        reference.check_history(table)
        print(f"{table}: {len(tidegate.versions(table))} versions", flush=True)
    reference.check_upkeep(UPKEEP)
    reference.check_shared(SHARED)
    reference.check_reorg(PARTITIONED)
    reference.check_refusals()
    for problem in reference.problems:
        print(problem, file=sys.stderr)
    failed = len(reference.problems)
    print(f"{reference.compared - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
