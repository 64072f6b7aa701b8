"""The other readers: deltalake, DuckDB and Polars, each as an Arrow table of a version."""

import importlib.resources

import deltalake
import duckdb
import polars
import pyarrow as pa


def open_duckdb():
    """A connection with the delta extension, from its package and not from the network."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    package = importlib.resources.files("duckdb_extension_delta")
    extension = next(package.joinpath("extensions").rglob("delta.duckdb_extension"))
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def deltalake_rows(path, version):
    table = deltalake.DeltaTable(str(path), version=version)
    query = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t")
    return pa.table(query.read_all())


def deltalake_feed(path, first, last):
    table = deltalake.DeltaTable(str(path))
    return pa.table(table.load_cdf(starting_version=first, ending_version=last).read_all())


def duckdb_rows(connection, path, version):
    query = f"SELECT * FROM delta_scan('{path}', version => {version})"
    return connection.execute(query).fetch_arrow_table()


def polars_rows(path):
    return polars.read_delta(str(path)).to_arrow()
