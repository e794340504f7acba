"""Writes golden contents with the installed release, and compares how it and `vortex convert` read the files."""

import os
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import vortex
import vortex.io

from same import differing

RELEASE = version("vortex-data")


def writers():
    """The modes of the release: how each writes a table to a path."""
    options = getattr(vortex.io, "VortexWriteOptions", None)
    if not hasattr(options, "write"):
        return {"default": lambda table, path: vortex.io.write(vortex.array(table), path)}
    return {"default": options.default().write, "compact": options.compact().write}


@contextmanager
def silenced():
    """Without what panics of the release print, with the backtraces of each."""
    errors = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(errors, 2)
        os.close(nowhere)
        os.close(errors)


def read_back(program, path, written):
    """The problems of a file into which the release wrote a table.

    Some releases lose values when they write, and some misread what they wrote: a column may equal either.
    """
    ours = path.with_suffix(".arrow")
    result = subprocess.run([*program, "convert", path, ours], capture_output=True, text=True)
    if result.returncode != 0:
        return [result.stderr.strip()]
    found = pa.ipc.open_file(ours).read_all()
    wrong = differing(found, written)
    if not wrong:
        return []
    expected = vortex.open(str(path)).to_arrow().read_all()
    return [f"column {name!r} differs" for name in differing(found, expected) if name in wrong]


def main():
    golden, out, *program = sys.argv[1:]
    # The same case of several releases has much the same contents: the last one is enough.
    cases = {path.stem: path for path in sorted(Path(golden).glob("*/*.arrow"))}
    written = wrong = refused = 0
    for case, path in cases.items():
        table = pa.ipc.open_file(path).read_all()
        for mode, write in writers().items():
            to = Path(out) / f"{case}.{mode}.vortex"
            try:
                with silenced():
                    write(table, str(to))
            except BaseException:  # panics of the reference derive from BaseException
                refused += 1
                continue
            written += 1
            problems = read_back(program, to, table)
            wrong += bool(problems)
            for problem in problems:
                print(f"written by {RELEASE}: {to.name}: {problem}")
    print(f"release {RELEASE} wrote {written} files and refused {refused}; {wrong} files read wrong", flush=True)
    sys.exit(wrong > 0 or not written)


main()
