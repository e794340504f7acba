//! Where the description of a file is, and the bytes that it is parsed from.
//!
//! Writers put all parts of the description at the end of the file. A file may claim that they are anywhere, so
//! that only the parts themselves are read, never everything behind the first of them.

use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::Buffer;

use super::footer::{ARROW_SCHEMA_KEY, MAX_BLOOM_INDEX_BYTES, MAX_KEPT_VALUE_LEN, MAX_SCHEMA_BYTES};
use super::{MAGIC, VERSION};
use crate::bloom::BLOOM_FILTERS_KEY;
use crate::io::{READ_ALIGNMENT, ReadAt, Scheduler};
use crate::limits::Limits;
use crate::row_ranges::merged;
use crate::segments::checksums::{CHECKSUMS_KEY, MAX_CHECKSUMS_OF_OTHERS};
use crate::wire::{MAX_USER_METADATA, Postscript, PostscriptSegment};
use crate::{Error, Result};

/// The last bytes of files written by releases before 0.36.
const LEGACY_MAGIC: &[u8; 4] = b"VRTX";
/// Bytes of the end-of-file record: version, postscript length, magic.
pub(super) const EOF_LEN: u64 = 8;
/// Bytes at the end of a file that always contain the postscript, whose length is a `u16`, and the record after it.
pub(super) const LONGEST_END: u64 = (u16::MAX as u64 + EOF_LEN).next_multiple_of(READ_ALIGNMENT);
/// Parts that lie at most this far apart are read together.
const MAX_GAP: u64 = 1 << 20;
/// Maximum number of bytes of all parts that lie before the end of the file. Not even one flatbuffer may be
/// longer.
const MAX_PARTS: u64 = 2 << 30;

/// Where the parts of the description of a file are, according to its postscript.
pub(super) struct DescriptionParts {
    pub(super) postscript: Postscript,
    pub(super) file_size: u64,
}

impl DescriptionParts {
    /// Parses the end-of-file record and the postscript from the last bytes of a file.
    pub(super) fn parse(end: &[u8], file_size: u64, limits: &Limits) -> Result<Self> {
        let Some((before, eof)) = end.split_last_chunk::<8>() else {
            return Err(Error::corrupt(format!("{file_size} bytes are too few for a Vortex file")));
        };
        let [v0, v1, l0, l1, magic @ ..] = eof;
        if magic == LEGACY_MAGIC {
            return Err(Error::corrupt(
                "written by a release before 0.36, whose format was not stable; read it with that release and \
                 write it again",
            ));
        }
        if magic != MAGIC {
            return Err(Error::corrupt(match magic {
                b"PAR1" => "not a Vortex file, but a Parquet file".to_owned(),
                b"ROW1" => "not a Vortex file, but an Arrow IPC file".to_owned(),
                _ => format!(
                    "not a Vortex file, or cut short: it ends in {:?}, not in \"VTXF\"",
                    String::from_utf8_lossy(magic)
                ),
            }));
        }
        let version = u16::from_le_bytes([*v0, *v1]);
        if version != VERSION {
            return Err(Error::unsupported("format version", version));
        }
        let len = usize::from(u16::from_le_bytes([*l0, *l1]));
        let start = before
            .len()
            .checked_sub(len)
            .ok_or_else(|| Error::corrupt(format!("postscript of {len} bytes in a file of {file_size}")))?;
        Ok(Self { postscript: Postscript::parse(&before[start..], limits)?, file_size })
    }

    /// The positions of the parts needed for parsing the footer, those of short values of user metadata, and if wanted
    /// of the checksums.
    pub(super) fn needed(&self, checksums: bool) -> Result<Vec<Range<u64>>> {
        let mut needed = self.named_parts().map(|(_, part)| self.range(part)).collect::<Result<Vec<_>>>()?;
        // Files are readable without the Arrow schema, and without Bloom filters.
        let schema = self.entry(ARROW_SCHEMA_KEY).filter(|part| part.length <= MAX_SCHEMA_BYTES);
        // The footer describes a segment in more bytes than its checksum has: a longer entry cannot be valid.
        let most = MAX_CHECKSUMS_OF_OTHERS.saturating_add(self.postscript.footer.length);
        let checksums = self.entry(CHECKSUMS_KEY).filter(|part| checksums && part.length <= most);
        let entries = self.postscript.metadata.iter().take(MAX_USER_METADATA).map(|(_, part)| part);
        let kept = entries.filter(|part| part.length <= MAX_KEPT_VALUE_LEN);
        let filters = self.entry(BLOOM_FILTERS_KEY).filter(|part| part.length <= MAX_BLOOM_INDEX_BYTES);
        let parts = kept.chain(schema).chain(checksums).chain(filters);
        needed.extend(parts.filter_map(|part| self.range(part).ok()));
        Ok(needed)
    }

    /// An entry of user metadata.
    pub(super) fn entry(&self, key: &str) -> Option<&PostscriptSegment> {
        self.postscript.metadata.iter().find(|(name, _)| name == key).map(|(_, part)| part)
    }

    /// The parts that the postscript refers to, with their names, in the order in which their checksum covers them.
    pub(super) fn named_parts(&self) -> impl Iterator<Item = (&'static str, &PostscriptSegment)> {
        let Postscript { dtype, layout, statistics, footer, .. } = &self.postscript;
        let dtype = dtype.iter().map(|segment| ("dtype", segment));
        let statistics = statistics.iter().map(|segment| ("statistics", segment));
        dtype.chain([("layout", layout)]).chain(statistics).chain([("footer", footer)])
    }

    pub(super) fn range(&self, segment: &PostscriptSegment) -> Result<Range<u64>> {
        let end = segment.offset.checked_add(segment.length.into());
        match end.filter(|end| *end <= self.file_size) {
            Some(end) => Ok(segment.offset..end),
            None => Err(Error::corrupt(format!(
                "the description lies at {} + {}, beyond the {} bytes of the file",
                segment.offset, segment.length, self.file_size
            ))),
        }
    }
}

/// The end of a file, and those parts of the description that lie before it.
#[derive(Debug)]
pub(super) struct DescriptionBytes {
    /// The position of the end in the file.
    pub(super) start: u64,
    pub(super) end: Buffer,
    /// Other bytes of the file, with their positions.
    before: Vec<(u64, Buffer)>,
}

impl DescriptionBytes {
    /// The last bytes of a file of `file_size` bytes.
    pub(super) fn new(end: Buffer, file_size: u64) -> Self {
        Self { start: file_size - end.len() as u64, end, before: Vec::new() }
    }

    /// Reads the parts that do not lie within the end, in a single read if they are close to each other.
    ///
    /// # Errors
    /// If storage fails, or the parts are too large.
    pub(super) async fn read(
        &mut self,
        source: &Arc<dyn ReadAt>,
        parts: Vec<Range<u64>>,
        scheduler: &Scheduler,
    ) -> Result<()> {
        let reads = joined(parts.into_iter().filter(|part| part.start < self.start).collect())?;
        let reads = reads.into_iter().map(|range| async move {
            let start = range.start;
            Ok::<_, Error>((start, scheduler.read_description(source, range).await?))
        });
        self.before = futures::future::try_join_all(reads).await?;
        Ok(())
    }

    /// The bytes of a range of the file, if they were read.
    pub(super) fn get(&self, range: &Range<u64>) -> Option<&[u8]> {
        let before = self.before.iter().map(|(start, bytes)| (*start, bytes.as_slice()));
        let mut pieces = before.chain([(self.start, self.end.as_slice())]);
        pieces.find_map(|(start, bytes)| {
            let at = |position: u64| usize::try_from(position.checked_sub(start)?).ok();
            bytes.get(at(range.start)?..at(range.end)?)
        })
    }
}

/// The reads that cover all parts. They preserve alignments in the file.
fn joined(mut parts: Vec<Range<u64>>) -> Result<Vec<Range<u64>>> {
    parts.retain(|part| !part.is_empty());
    let bytes = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.end - part.start));
    if bytes > MAX_PARTS {
        return Err(Error::limit(format!("a description of {bytes} bytes, at most {MAX_PARTS} allowed")));
    }
    let reads = merged(parts, MAX_GAP).into_iter();
    Ok(reads.map(|read| read.start / READ_ALIGNMENT * READ_ALIGNMENT..read.end).collect())
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, DurationSecondArray, Int64Array, RecordBatch};
    use async_trait::async_trait;
    use bytes::Bytes;
    use parking_lot::Mutex;

    use super::*;
    use crate::VortexFile;
    use crate::file::{MAGIC, OpenOptions, VERSION};
    use crate::given::written;
    use crate::io::StorageProfile;
    use crate::limits::Limits;
    use crate::segments::checksums::CHECKSUMS_KEY;
    use crate::wire::{Postscript, PostscriptSegment};
    use crate::write::WriteOptions;

    const VAST: u64 = 50 << 30;

    /// A file that begins with some bytes and ends with others; all between them are zero.
    #[derive(Debug)]
    struct Sparse {
        first: Vec<u8>,
        last: Vec<u8>,
        len: u64,
        reads: Mutex<Vec<Range<u64>>>,
    }

    #[async_trait]
    impl ReadAt for Sparse {
        fn name(&self) -> &str {
            "sparse"
        }

        async fn len(&self) -> Result<u64> {
            Ok(self.len)
        }

        async fn read(&self, range: Range<u64>) -> Result<Bytes> {
            self.reads.lock().push(range.clone());
            if range.end - range.start > 16 << 20 {
                return Err(Error::read("sparse", range, "too much"));
            }
            let last = self.len - self.last.len() as u64;
            let byte = |at: u64| match (self.first.get(at as usize), at.checked_sub(last)) {
                (Some(byte), _) => *byte,
                (None, Some(at)) => self.last[at as usize],
                (None, None) => 0,
            };
            Ok(range.map(byte).collect::<Vec<_>>().into())
        }

        fn profile(&self) -> StorageProfile {
            StorageProfile::LOCAL
        }
    }

    fn table() -> RecordBatch {
        let rows = 0..1000;
        RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from_iter_values(rows.clone())) as ArrayRef),
            // Known only from the Arrow schema.
            ("d", Arc::new(DurationSecondArray::from_iter_values(rows)) as ArrayRef),
        ])
        .unwrap()
    }

    /// A file of `len` bytes: zeros were inserted before its postscript, which was changed.
    async fn stretched(len: u64, change: impl FnOnce(&mut Postscript, &mut Vec<u8>)) -> Sparse {
        let options = WriteOptions::new().with_user_metadata("station", "Oslo").unwrap();
        let mut first = written([table()], options).await.to_vec();
        let eof = first.len() - 8;
        let old = usize::from(u16::from_le_bytes([first[eof + 2], first[eof + 3]]));
        let mut postscript = Postscript::parse(&first[eof - old..eof], &Limits::new()).unwrap();
        change(&mut postscript, &mut first);
        let mut last = postscript.to_bytes();
        let postscript_len = last.len() as u16;
        last.extend(VERSION.to_le_bytes());
        last.extend(postscript_len.to_le_bytes());
        last.extend(MAGIC);
        Sparse { first, last, len, reads: Mutex::default() }
    }

    async fn opened(source: Sparse) -> (Arc<Sparse>, Result<VortexFile>) {
        let source = Arc::new(source);
        let file = VortexFile::open(Arc::clone(&source) as _).await;
        (source, file)
    }

    #[tokio::test]
    async fn a_part_at_the_start_of_a_vast_file_does_not_make_it_all_be_read() {
        // The dtype comes first, the other parts far behind it.
        let moved = |part: &mut PostscriptSegment| part.offset += 8 << 20;
        let source = stretched(VAST, |postscript, first| {
            let parts = [&mut postscript.layout, &mut postscript.footer];
            parts.into_iter().chain(&mut postscript.statistics).for_each(moved);
            let copy = first.clone();
            first.resize(8 << 20, 0);
            first.extend(copy);
        });
        let (source, file) = opened(source.await).await;
        assert_eq!(file.unwrap().schema().unwrap(), table().schema());
        let reads = source.reads.lock();
        assert_eq!(reads.len(), 3, "{reads:?}");
        let before: u64 = reads[1..].iter().map(|range| range.end - range.start).sum();
        assert!(before < 16 << 10, "{reads:?}");
    }

    #[tokio::test]
    async fn parts_next_to_each_other_take_one_read() {
        let (source, file) = opened(stretched(VAST, |_, _| {}).await).await;
        let file = file.unwrap();
        assert_eq!(file.schema().unwrap(), table().schema());
        let station = file.footer().user_metadata().iter().find(|entry| &*entry.key == "station").unwrap();
        assert_eq!(station.value.as_deref(), Some(&b"Oslo"[..]));
        assert_eq!(source.reads.lock().len(), 2);
    }

    #[tokio::test]
    async fn parts_larger_than_any_flatbuffer_are_not_read() {
        let source = stretched(VAST, |postscript, _| {
            (postscript.layout.length, postscript.footer.length) = (u32::MAX, u32::MAX);
        });
        let (source, file) = opened(source.await).await;
        assert!(matches!(file.unwrap_err().root(), Error::LimitExceeded(_)));
        assert_eq!(source.reads.lock().len(), 1);
    }

    #[tokio::test]
    async fn checksums_longer_than_those_of_all_parts_are_not_read() {
        let source = stretched(VAST, |postscript, _| {
            let claimed = PostscriptSegment { offset: 0, length: 1 << 30, ..postscript.layout };
            postscript.metadata.push((CHECKSUMS_KEY.into(), claimed));
        });
        let source = Arc::new(source.await);
        let strict = OpenOptions::new().with_verify_checksums(true);
        let error = strict.open(Arc::clone(&source) as _).await.unwrap_err();
        assert!(error.to_string().contains("checksums"), "{error}");
        assert_eq!(source.reads.lock().len(), 2);
        let found = crate::verify(Arc::clone(&source) as _, &OpenOptions::new()).await.unwrap();
        assert!(found.problems.iter().any(|problem| problem.place == "checksums"), "{found:?}");
    }

    #[test]
    fn parts_are_joined_over_small_gaps_only() {
        let far = 1 << 30;
        let reads = joined(vec![far + 100..far + 200, 7..9, far..far + 50, 300..300, 9..2000]).unwrap();
        assert_eq!(reads, [0..2000, far..far + 200]);
        assert!(joined(vec![0..MAX_PARTS, 5..6]).is_err());
    }
}
