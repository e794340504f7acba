"""Reads every file of a folder with the installed release, and compares with the `.arrow` file beside."""

import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import vortex
import vortex.expr as ve

from same import differences

RELEASE = version("vortex-data")
OLD = int(RELEASE.split(".")[1]) < 50


def unreadable(data_type):
    """Types that the Arrow bridge of old releases fails on, regardless of the writer of the file."""
    if pa.types.is_nested(data_type):
        return any(unreadable(data_type.field(at).type) for at in range(data_type.num_fields))
    zoned = pa.types.is_timestamp(data_type) and data_type.tz is not None
    return zoned or pa.types.is_decimal256(data_type)


def read(file, columns, **scan):
    return file.to_arrow(columns, **scan).read_all()


LITERALS = {
    pa.int8(): vortex.int_(8),
    pa.int16(): vortex.int_(16),
    pa.int32(): vortex.int_(32),
    pa.int64(): vortex.int_(64),
    pa.uint8(): vortex.uint(8),
    pa.uint16(): vortex.uint(16),
    pa.uint32(): vortex.uint(32),
    pa.uint64(): vortex.uint(64),
    pa.float32(): vortex.float_(32),
    pa.float64(): vortex.float_(64),
    pa.bool_(): vortex.bool_(),
    pa.string(): vortex.utf8(),
    pa.large_string(): vortex.utf8(),
    pa.binary(): vortex.binary(),
}

OPERATORS = {
    "==": lambda left, right: left == right,
    "<": lambda left, right: left < right,
    ">=": lambda left, right: left >= right,
}


def filters(table):
    """Comparisons of each column with some of its values."""
    for name in table.column_names:
        column = table.column(name)
        dtype = LITERALS.get(column.type)
        if dtype is None or not name or table.num_rows == 0:
            continue
        # Readers differ in where they put NaN.
        floats = pa.types.is_floating(column.type)
        if floats and pc.any(pc.is_nan(column)).as_py():
            continue
        rows = (0, table.num_rows // 3, table.num_rows - 1)
        values = [column[at].as_py() for at in rows]
        if not pa.types.is_boolean(column.type):
            order = pc.sort_indices(column)
            valid = len(column) - column.null_count
            values += [column[order[at]].as_py() for at in (0, valid // 2, max(valid, 1) - 1)]
        for value in dict.fromkeys(values):
            # Zeros of both signs are equal to some; bindings take no integers of 64 bits.
            odd = value is None or (floats and value == 0) or (isinstance(value, int) and value >= 1 << 63)
            if not odd:
                for operator in OPERATORS:
                    yield name, operator, value, dtype


def matching(table, name, operator, value):
    column = table.column(name)
    compare = {"==": pc.equal, "<": pc.less, ">=": pc.greater_equal}[operator]
    return table.filter(compare(column, pa.scalar(value, column.type)))


def check(path):
    expected = pa.ipc.open_file(path.with_suffix(".arrow")).read_all()
    if OLD:
        expected = expected.select([field.name for field in expected.schema if not unreadable(field.type)])
    columns = expected.column_names
    file = vortex.open(str(path))
    problems = differences(read(file, columns), expected)
    if not OLD:
        # Batches of rows from two chunks.
        batches = differences(read(file, columns, batch_size=777), expected)
        problems += [f"in batches: {problem}" for problem in batches]
    checked = 0
    for name, operator, value, dtype in filters(expected):
        expr = OPERATORS[operator](ve.column(name), ve.literal(dtype, value))
        wanted = matching(expected, name, operator, value)
        found = differences(read(file, columns, expr=expr), wanted)
        problems += [f"{name} {operator} {value!r}: {problem}" for problem in found]
        checked += 1
    return checked, problems


def main():
    folder = Path(sys.argv[1])
    files = sorted(folder.glob(sys.argv[2] if len(sys.argv) > 2 else "*.vortex"))
    checked = failed = 0
    for path in files:
        try:
            count, problems = check(path)
        except BaseException as error:  # panics of the reference derive from BaseException
            count, problems = 0, [f"{type(error).__name__}: {error}".splitlines()[0]]
        checked += count
        failed += bool(problems)
        for problem in problems:
            print(f"{RELEASE} {folder.name}/{path.name}: {problem}")
    what = f"{len(files)} files and {checked} filters for {folder.name}"
    print(f"release {RELEASE} reads {what}, {failed} files wrong", flush=True)
    sys.exit(failed > 0 or not files)


main()
