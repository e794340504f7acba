"""Rows by position from a Lance dataset, for `cargo bench-peers gather --lance PYTHON`, where PYTHON has `pylance`.

Writes the dataset from a Parquet file unless it exists. Then each line of the input asks for rows:

    opened|kept FILE ROW,ROW,...

The answer is the time in nanoseconds, within this process; the rows are written to FILE as an Arrow stream.
"""

import shutil
import sys
import time
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq


def prepare(parquet: Path, dataset: Path) -> None:
    if dataset.exists():
        return
    growing = dataset.with_suffix(".tmp")
    shutil.rmtree(growing, ignore_errors=True)
    file = pq.ParquetFile(parquet)
    rows = pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
    lance.write_dataset(rows, growing)
    growing.rename(dataset)


def main() -> None:
    parquet, place = Path(sys.argv[1]), Path(sys.argv[2])
    prepare(parquet, place)
    kept = lance.dataset(place)
    print("ready", flush=True)
    for line in sys.stdin:
        how, answer, rows = line.split()
        rows = [int(row) for row in rows.split(",")]
        start = time.perf_counter_ns()
        dataset = kept if how == "kept" else lance.dataset(place)
        table = dataset.take(rows)
        elapsed = time.perf_counter_ns() - start
        with pa.OSFile(answer, "wb") as out, pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
        print(elapsed, flush=True)


main()
