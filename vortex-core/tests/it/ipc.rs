//! IPC streams: written by a real release, written by this crate, and damaged.

use arrow::array::{Array as _, AsArray as _, RecordBatch, RecordBatchReader as _};
use arrow::compute::concat_batches;
use arrow::datatypes::{Float64Type, Int32Type, Int64Type};
use vortex_core::ipc::{IpcReader, IpcWriter};

use crate::given::{collect_blocking, files_of, golden, open_blocking};

/// A stream of two equal batches, each of 300 rows.
fn golden_stream() -> Vec<u8> {
    std::fs::read(golden("ipc/0.91.0.stream")).unwrap()
}

fn read(stream: &[u8]) -> Result<Vec<RecordBatch>, String> {
    let reader = IpcReader::try_new(stream).map_err(|error| error.to_string())?;
    let batches: Vec<_> = reader.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    for column in batches.iter().flat_map(RecordBatch::columns) {
        column.to_data().validate_full().expect("valid Arrow");
    }
    Ok(batches)
}

fn write(batches: &[RecordBatch]) -> Result<Vec<u8>, vortex_core::Error> {
    let mut writer = IpcWriter::try_new(Vec::new(), &batches[0].schema())?;
    batches.iter().try_for_each(|batch| writer.write(batch))?;
    Ok(writer.into_inner())
}

#[test]
fn streams_of_a_release_are_read() {
    let batches = read(&golden_stream()).unwrap();
    assert_eq!(batches.len(), 2);
    assert_eq!(batches[0], batches[1]);
    let batch = &batches[0];
    assert_eq!(batch.num_rows(), 300);
    assert!(batch["id"].as_primitive::<Int32Type>().values().iter().copied().eq(0..300));
    let floats = batch["f"].as_primitive::<Float64Type>();
    let (names, lists) = (batch["name"].as_string_view(), batch["l"].as_list::<i32>());
    for row in 0..300 {
        assert_eq!(floats.value(row), row as f64 / 4.0);
        let name = (row % 7 != 0).then(|| format!("name {} of some length", row % 13));
        assert_eq!(names.is_valid(row).then(|| names.value(row).to_owned()), name);
        let list =
            lists.is_valid(row).then(|| lists.value(row).as_primitive::<Int64Type>().values().to_vec());
        assert_eq!(list, (row % 5 != 0).then(|| vec![row as i64, row as i64 + 1]));
    }
}

#[test]
fn what_is_written_is_read_back() {
    let (mut same, mut unsupported) = (0, Vec::new());
    for path in files_of(&golden("0.91.0")) {
        let file = open_blocking(&path).unwrap();
        let Ok(whole) = collect_blocking(file.scan()) else { continue };
        // Slices, so that offsets do not start at zero.
        let (half, rows) = (whole.num_rows() / 2, whole.num_rows());
        let parts = [whole.slice(0, half), whole.slice(half, rows - half)];
        match write(&parts) {
            Ok(stream) => {
                let found = concat_batches(&whole.schema(), &read(&stream).unwrap()).unwrap();
                assert_eq!(found, whole, "{}", path.display());
                same += 1;
            }
            Err(error) => unsupported.push(format!("{}: {error}", path.display())),
        }
    }
    println!("{same} come back; not written: {unsupported:?}");
    assert!(same > 30, "{unsupported:?}");
}

#[test]
fn an_empty_stream_has_a_schema_and_no_batches() {
    let whole = read(&golden_stream()).unwrap();
    let writer = IpcWriter::try_new(Vec::new(), &whole[0].schema()).unwrap();
    let stream = writer.into_inner();
    let reader = IpcReader::try_new(stream.as_slice()).unwrap();
    assert_eq!(reader.schema(), whole[0].schema());
    assert_eq!(reader.count(), 0);
    assert!(IpcReader::try_new(&[][..]).is_err());
}

#[test]
fn a_stream_cut_anywhere_but_between_messages_is_an_error() {
    let stream = golden_stream();
    let second = stream.len() - (stream.len() - 308) / 2;
    for len in 0..stream.len() {
        let outcome = read(&stream[..len]);
        match len {
            308 => assert_eq!(outcome.unwrap().len(), 0),
            _ if len == second => assert_eq!(outcome.unwrap().len(), 1),
            _ => assert!(outcome.is_err(), "cut at {len}"),
        }
    }
}

#[test]
fn damaged_streams_end_in_values_or_errors() {
    let stream = golden_stream();
    let stream = &stream[..stream.len() - (stream.len() - 308) / 2];
    for at in 0..stream.len() {
        for damage in [1, 0x80, 0xff] {
            let mut damaged = stream.to_vec();
            damaged[at] ^= damage;
            let _whatever_it_holds = read(&damaged);
        }
    }
}

#[test]
fn lengths_that_are_claims_take_no_memory() {
    let mut stream = golden_stream();
    stream[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(read(&stream).unwrap_err().contains("before its body"));
    let writer = IpcWriter::try_new(Vec::new(), &read(&golden_stream()).unwrap()[0].schema()).unwrap();
    let mut stream = writer.into_inner();
    let body_len = stream.len() as u64;
    let header_len = u64::from(u32::from_le_bytes(stream[..4].try_into().unwrap()));
    let body = body_len - header_len - 4;
    let at = stream.windows(8).position(|bytes| bytes == body.to_le_bytes()).unwrap();
    stream[at..at + 8].copy_from_slice(&(1u64 << 30).to_le_bytes());
    assert!(read(&stream).unwrap_err().contains("ends within"));
    stream[at..at + 8].copy_from_slice(&(1u64 << 60).to_le_bytes());
    assert!(read(&stream).unwrap_err().contains("message body"));
}

#[test]
fn a_batch_of_another_schema_is_refused() {
    let batches = read(&golden_stream()).unwrap();
    let mut writer = IpcWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    assert!(writer.write(&batches[0].project(&[0]).unwrap()).is_err());
}
