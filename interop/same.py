"""Whether two tables have the same rows, regardless of the containers in which readers return values."""

import struct

import pyarrow as pa


def plain(value):
    """A value without the names and containers in which readers may differ."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return tuple(plain(part) for part in value.values())
    if isinstance(value, (list, tuple)):
        return tuple(plain(part) for part in value)
    return value


def same(found, expected):
    if found.type != expected.type:
        try:
            found = found.cast(expected.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    if found.equals(expected):
        return True
    return [plain(value) for value in found.to_pylist()] == [plain(value) for value in expected.to_pylist()]


def differing(found, expected):
    """The names of columns whose values differ: all if the tables have not as many rows."""
    return [
        name
        for name in expected.column_names
        if name not in found.column_names
        or found.num_rows != expected.num_rows
        or not same(found.column(name), expected.column(name))
    ]


def differences(found, expected):
    if found.num_rows != expected.num_rows:
        return [f"{found.num_rows} rows, expected {expected.num_rows}"]
    if found.column_names != expected.column_names:
        return [f"columns {found.column_names}, expected {expected.column_names}"]
    return [
        f"column {name!r} differs: {found.column(name).type}, expected {expected.column(name).type}"
        for name in differing(found, expected)
    ]
