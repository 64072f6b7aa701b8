"""Rows of any reader as typed bags: equal exactly when schema and values are."""

import collections
import datetime
import decimal
import math

import pyarrow as pa


def type_name(kind):
    """The name of a type, whatever flavour of Arrow a reader uses for it."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return "binary"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return "struct<" + ",".join(f"{f.name}:{type_name(f.type)}" for f in kind) + ">"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_dictionary(kind):
        return type_name(kind.value_type)
    return str(kind)


def plain(value):
    """A hashable form of a value that keeps what its type distinguishes."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.datetime):
        zone = value.astimezone(datetime.timezone.utc).replace(tzinfo=None) if value.tzinfo else value
        return zone.isoformat(timespec="microseconds")
    if isinstance(value, dict):
        return tuple(sorted((name, plain(one)) for name, one in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(plain(one) for one in value)
    return value


class Bag:
    """A schema by column name, and rows with their number of occurrences."""

    def __init__(self, table, without=()):
        names = [name for name in table.column_names if name not in without]
        self.types = {name: type_name(table.schema.field(name).type) for name in names}
        columns = [[plain(value) for value in table.column(name).to_pylist()] for name in sorted(names)]
        self.rows = collections.Counter(zip(*columns)) if columns else collections.Counter()

    def difference(self, other):
        """What differs, in a few lines; None when nothing does."""
        if self.types != other.types:
            mine = {name: kind for name, kind in self.types.items() if other.types.get(name) != kind}
            theirs = {name: kind for name, kind in other.types.items() if self.types.get(name) != kind}
            return f"types {mine} against {theirs}"
        missing, extra = self.rows - other.rows, other.rows - self.rows
        if not missing and not extra:
            return None
        shown = [f"  missing {row}" for row in list(missing)[:3]] + [f"  extra {row}" for row in list(extra)[:3]]
        return f"{missing.total()} rows missing, {extra.total()} extra\n" + "\n".join(shown)
