"""Tidegate's own answers, by its command line, as Arrow tables."""

import json
import subprocess

import pyarrow.parquet


class Refused(Exception):
    """What Tidegate printed when it refused."""


class Tidegate:
    """The binary on one directory."""

    def __init__(self, binary, local):
        self.binary, self.local = str(binary), str(local)

    def run(self, *arguments):
        command = [self.binary, "--local", self.local, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True)
        if done.returncode != 0:
            raise Refused(done.stderr.decode(errors="replace").strip())
        return done.stdout

    def table(self, *arguments):
        """An answer as Arrow, by way of Parquet, which keeps all types."""
        answer = self.run(*arguments, "-o", "parquet")
        return pyarrow.parquet.read_table(pyarrow.BufferReader(answer))

    def lines(self, *arguments):
        return [json.loads(line) for line in self.run(*arguments, "-o", "jsonl").splitlines()]

    def tables(self):
        return [table["name"] for table in self.lines("table", "list")]

    def describe(self, table):
        return json.loads(self.run("table", "describe", table, "-o", "json"))

    def location(self, table):
        return self.describe(table)["location"].removeprefix("file://")

    def versions(self, table):
        return range(self.describe(table)["version"] + 1)

    def keeps_feed(self, table):
        """Whether every reader sees the whole feed: the mode is `true`."""
        return self.describe(table)["spec"]["spec"]["change_data_feed"] is True
