//! What is wrong with a file is found: by checksums, and by comparing its data with what it states of them.

use std::sync::Arc;

use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use test_store::TestStore;
use vortex_core::file::{OpenOptions, SegmentCompression, SegmentId};
use vortex_core::io::{MemoryFile, MemorySink, ObjectFile};
use vortex_core::write::{FileWriter, WriteOptions};
use vortex_core::{Release, VortexFile};

use crate::given::{collect, opened, read_as, table, verified, written, written_by};

#[tokio::test]
async fn segments_can_be_compressed_and_checked() {
    let batch = table(20_000);
    for scheme in [SegmentCompression::Lz4, SegmentCompression::Zlib, SegmentCompression::Zstd] {
        let options = WriteOptions::new().with_segment_compression(scheme).with_checksums(true);
        let options = options.with_user_metadata("app", "x").unwrap();
        let file = opened(written([&batch], options).await).await;
        assert!(file.footer().segments().iter().all(|segment| segment.compression == Some(scheme)));
        assert_eq!(read_as(&file, batch.schema()).await, batch);
        let encodings = file.array_encodings(SegmentId(0)).await.unwrap();
        assert_eq!(encodings[0].0, 0);
    }
}

#[tokio::test]
async fn no_release_is_named_as_a_reader_of_compressed_segments() {
    let batch = table(10);
    let release = Release::new(0, 56);
    let options = WriteOptions::new().with_min_reader(release);
    let compressed = options.clone().with_segment_compression(SegmentCompression::Zstd);
    for (options, expected) in [(options, Some(release)), (compressed, None)] {
        let mut writer = FileWriter::try_new(MemorySink::new(), batch.schema(), options).unwrap();
        assert_eq!(writer.min_reader(), expected);
        writer.write(&batch).await.unwrap();
        assert_eq!(writer.finish().await.unwrap().min_reader(), expected);
    }
}

/// The bytes of a file with some bits of one byte flipped.
fn flipped(bytes: &[u8], at: u64, bits: u8) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    damaged[at as usize] ^= bits;
    damaged
}

/// Some bytes of the description, from its start to the postscript, which has no checksum.
fn places_of_description(bytes: &[u8], start: u64) -> impl Iterator<Item = u64> {
    let postscript_len = u16::from_le_bytes(*bytes[bytes.len() - 6..].first_chunk().unwrap());
    (start..bytes.len() as u64 - 8 - u64::from(postscript_len)).step_by(7)
}

#[tokio::test]
async fn every_flipped_bit_is_noticed() {
    let options = WriteOptions::new().with_checksums(true).with_user_metadata("app", "user bytes").unwrap();
    let bytes = written([&table(9000)], options).await;
    let sound = verified(bytes.clone()).await;
    assert_eq!(sound.problems, []);
    assert!(sound.checked_segments > 5 && sound.checked_zones > 5, "{sound:?}");
    let strict = OpenOptions::new().with_verify_checksums(true);
    let file = strict.open(Arc::new(MemoryFile::new(bytes.clone()))).await.unwrap();
    let segments = file.footer().segments().to_vec();
    for segment in &segments {
        for at in [segment.offset, segment.range().end - 1] {
            let damaged = flipped(&bytes, at, 4);
            let found = verified(damaged.clone()).await;
            assert!(found.problems.iter().any(|p| p.place.starts_with("segment ")), "{:?}", found.problems);
            let file = strict.open(Arc::new(MemoryFile::new(damaged))).await.unwrap();
            let is_zone_map = at >= segments[segments.len() - 6].offset;
            assert!(collect(file.scan()).await.is_err() || is_zone_map, "byte {at}");
        }
    }
    // The description, and user metadata.
    let start = segments.last().unwrap().range().end.next_multiple_of(8);
    for at in places_of_description(&bytes, start) {
        let found = verified(flipped(&bytes, at, 1)).await;
        assert!(!found.problems.is_empty(), "byte {at} of {}", bytes.len());
    }
}

#[tokio::test]
async fn a_footer_that_needs_no_reading_verifies_checksums_if_asked_to() {
    let batch = table(9000);
    let options = WriteOptions::new().with_checksums(true);
    let (bytes, summary) =
        written_by(batch.schema(), options, async |writer| writer.write(&batch).await).await;
    let strict = OpenOptions::new().with_verify_checksums(true);

    let footer = summary.footer(&strict).unwrap();
    assert!(footer.verifies_checksums());
    assert!(!summary.footer(&OpenOptions::new()).unwrap().verifies_checksums());
    assert!(strict.parse(bytes.clone().into()).unwrap().verifies_checksums());
    let damaged = flipped(&bytes, footer.segments()[0].offset, 4);
    for (bytes, is_sound) in [(bytes.clone(), true), (damaged.into(), false)] {
        let file = VortexFile::from_footer(Arc::new(MemoryFile::new(bytes)), Arc::clone(&footer));
        assert_eq!(collect(file.scan()).await.is_ok(), is_sound);
    }
    // The description lies between metadata and postscript.
    let start = footer.user_metadata().iter().map(|entry| entry.range.end).max().unwrap();
    for at in places_of_description(&bytes, start) {
        assert!(strict.parse(flipped(&bytes, at, 1).into()).is_err(), "byte {at} of {}", bytes.len());
    }
}

#[tokio::test]
async fn long_metadata_is_read_and_checked_when_it_is_asked_for() {
    let long = "of a long value ".repeat(1000);
    let options = WriteOptions::new().with_checksums(true);
    let options =
        options.with_user_metadata("long", long.clone()).unwrap().with_user_metadata("short", "s").unwrap();
    let bytes = written([&table(10)], options).await;
    let strict = OpenOptions::new().with_verify_checksums(true).with_tail_size(64 << 10);
    let file = strict.open_bytes(bytes.clone()).unwrap();
    assert_eq!(file.user_metadata("long").await.unwrap().unwrap(), long);
    assert_eq!(file.user_metadata("short").await.unwrap().unwrap(), "s");
    assert_eq!(file.user_metadata("other").await.unwrap(), None);

    let entries = file.footer().user_metadata().iter();
    for entry in entries.filter(|entry| matches!(&*entry.key, "long" | "short")) {
        let damaged = flipped(&bytes, entry.range.start, 1);
        let file = strict.open_bytes(damaged.clone()).unwrap();
        let error = file.user_metadata(&entry.key).await.unwrap_err().to_string();
        assert!(error.contains(&*entry.key) && error.contains("checksum"), "{error}");
        let file = OpenOptions::new().open_bytes(damaged).unwrap();
        assert!(file.user_metadata(&entry.key).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn checksums_are_read_with_the_description() {
    let options = WriteOptions::new().with_checksums(true);
    let bytes = written([&table(300_000)], options).await;
    let store = TestStore::new();
    let path = Path::from("file");
    store.put(&path, bytes.into()).await.unwrap();
    let source = ObjectFile::new(Arc::clone(&store) as _, store.head(&path).await.unwrap());
    let strict = OpenOptions::new().with_verify_checksums(true);
    let file = strict.open(Arc::new(source)).await.unwrap();
    assert!(file.footer().verifies_checksums());
    assert_eq!(store.reads.take(), 1);
}

#[tokio::test]
async fn wrong_statistics_are_found() {
    let bytes = written([&table(20_000)], WriteOptions::new()).await;
    // The maximum of `id` as a scalar: changes 19,999 in zigzag to 11,807.
    let at = bytes.windows(4).rposition(|window| window == [0x18, 0xbe, 0xb8, 0x02]).unwrap();
    let mut damaged = bytes.to_vec();
    damaged[at + 3] = 1;
    let found = verified(damaged).await;
    let [problem, _] = found.problems.as_slice() else { panic!("{:?}", found.problems) };
    assert_eq!(problem.to_string(), "statistics of column `id`: 19999 lies above the stated maximum 11807");
}
