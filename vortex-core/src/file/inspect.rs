//! Inspecting a file instead of reading its rows: encodings, damage.
//!
//! Scans need nothing of this. [`VortexFile::array_encodings`] reads the tree at the end of a segment,
//! but not the values before it:
//!
//! ```text
//! segment   [pad][buffer] ... [pad][array tree][u32 length of the tree]
//!                                  '----- read this far -------------'
//! ```
//!
//! [`examine`] analyses files that cannot be opened, and continues where opening stops.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::description::{DescriptionParts, EOF_LEN, LONGEST_END};
use super::{MAGIC, OpenOptions, SegmentId};
use crate::error::ResultExt as _;
use crate::io::{MemoryFile, ReadAt, read_exact};
use crate::limits::Limits;
use crate::wire::{
    ArrayTree, FooterTables, PostscriptSegment, RawLayout, RawNode, dtype_from_bytes, file_statistics_len,
};
use crate::{Result, VortexFile};

/// Array trees are mostly shorter than this, so a single read suffices.
const TREE_READ: u64 = 4 << 10;

impl VortexFile {
    /// The encodings of the array in a segment: ids of the nodes from the root down, each with its depth.
    /// Reads the tree of the array, but not its values.
    ///
    /// # Errors
    /// If there is no such segment, or it does not end in an array tree.
    pub async fn array_encodings(&self, segment: SegmentId) -> Result<Vec<(usize, Arc<str>)>> {
        let range = self.footer().segment(segment)?.range();
        let place = || format!("segment {}", segment.0);
        let nodes = match self.footer().segment(segment)?.compression {
            None => self.array_nodes(self.source().as_ref(), range).await.at(place)?,
            Some(_) => {
                let bytes = read_exact(self.source().as_ref(), range).await?;
                let bytes = self.footer().table.unpack(segment, bytes.into()).at(place)?.to_vec();
                let range = 0..bytes.len() as u64;
                let unpacked = MemoryFile::new(bytes);
                self.array_nodes(&unpacked, range).await.at(place)?
            }
        };
        let ids = self.footer().array_ids();
        let name = |at: u16| ids.get(usize::from(at)).map_or_else(|| format!("#{at}").into(), Arc::clone);
        Ok(nodes.into_iter().map(|(depth, at)| (depth, name(at))).collect())
    }

    async fn array_nodes(&self, source: &dyn ReadAt, segment: Range<u64>) -> Result<Vec<(usize, u16)>> {
        let start = segment.end.saturating_sub(TREE_READ).max(segment.start);
        let tail = read_exact(source, start..segment.end).await?;
        // A segment has less than 2^32 bytes, and is in memory if it was compressed.
        let place = ArrayTree::place(&tail, (segment.end - segment.start) as usize)?;
        let range = segment.start + place.start as u64..segment.start + place.end as u64;
        let tree = match range.start.checked_sub(start) {
            // The end is within the bytes read, which are in memory.
            Some(skipped) => tail.slice(skipped as usize..skipped as usize + place.len()),
            None => read_exact(source, range).await?,
        };
        RawNode::encodings(&tree, &self.footer().table.limits)
    }
}

/// One part of the description of a file, whether it is readable or not.
#[derive(Debug)]
#[non_exhaustive]
pub struct Part {
    /// The name of the part: `postscript`, `layout`, ...
    pub name: &'static str,
    /// Its position according to the file, if known.
    pub range: Option<Range<u64>>,
    /// A short summary of its content, or the reason why it cannot be read.
    pub found: Result<String>,
}

/// The results of examining a file, as far as that is possible.
#[derive(Debug)]
#[non_exhaustive]
pub struct Examination {
    /// Size of the file in bytes.
    pub file_size: u64,
    /// Whether it starts with the magic of Vortex files, which readers do not require.
    pub starts_with_magic: bool,
    /// The parts, in the order in which opening the file needs them.
    pub parts: Vec<Part>,
}

/// Analyses the description of a file, damaged or not, within the [limits](OpenOptions::with_limits) of these options.
///
/// # Errors
/// If storage fails; damage is part of the result.
pub async fn examine(source: &dyn ReadAt, options: &OpenOptions) -> Result<Examination> {
    let limits = &options.limits;
    let file_size = source.len().await?;
    let head = read_exact(source, 0..file_size.min(4)).await?;
    let start = file_size.saturating_sub(LONGEST_END);
    let bytes = read_exact(source, start..file_size).await?;
    let mut parts = Vec::new();
    let end = file_size.saturating_sub(EOF_LEN);
    match DescriptionParts::parse(&bytes, file_size, limits) {
        Err(error) => parts.push(Part { name: "postscript", range: None, found: Err(error) }),
        Ok(description) => {
            // The bytes were parsed, so they contain the record, and the postscript fits before it.
            let len = bytes.len().checked_sub(6).and_then(|at| bytes[at..].first_chunk().copied());
            let len = u64::from(u16::from_le_bytes(len.unwrap_or_default()));
            let found = Ok(format!("refers to {} parts", description.named_parts().count()));
            parts.push(Part { name: "postscript", range: Some(end.saturating_sub(len)..end), found });
            for (name, segment) in description.named_parts() {
                parts.push(part(source, &description, name, segment, limits).await);
            }
        }
    }
    Ok(Examination { file_size, starts_with_magic: head.as_ref() == MAGIC, parts })
}

async fn part(
    source: &dyn ReadAt,
    description: &DescriptionParts,
    name: &'static str,
    segment: &PostscriptSegment,
    limits: &Limits,
) -> Part {
    let range = match description.range(segment) {
        Ok(range) => range,
        Err(error) => return Part { name, range: None, found: Err(error) },
    };
    let found = match read_exact(source, range.clone()).await {
        Ok(bytes) => describe(name, &bytes, limits),
        Err(error) => Err(error),
    };
    Part { name, range: Some(range), found }
}

fn describe(name: &str, bytes: &[u8], limits: &Limits) -> Result<String> {
    Ok(match name {
        "dtype" => {
            let dtype = dtype_from_bytes(bytes, limits)?;
            dtype.as_struct().map_or_else(|| dtype.to_string(), |fields| counted(fields.len(), "column"))
        }
        "layout" => {
            let layout = RawLayout::parse(bytes, limits)?;
            counted(layout.row_count, "row")
        }
        "statistics" => counted(file_statistics_len(bytes, limits)?, "column"),
        _ => {
            let tables = FooterTables::parse(bytes, limits)?;
            let segments = counted(tables.segments.len(), "segment");
            let encodings = counted(tables.array_ids.len(), "array encoding");
            format!("{segments}, {encodings}, {}", counted(tables.layout_ids.len(), "layout"))
        }
    })
}

fn counted<N: fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if let Some(range) = &self.range {
            write!(f, " at {}..{}", range.start, range.end)?;
        }
        match &self.found {
            Ok(what) => write!(f, ": {what}"),
            Err(error) => write!(f, ": {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::given::opened;

    const FILE: &[u8] = include_bytes!("../../tests/files/0.91.0/tpch_orders.vortex");

    fn examined(bytes: &[u8]) -> Examination {
        let source = MemoryFile::new(bytes.to_vec());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(examine(&source, &OpenOptions::new())).unwrap()
    }

    #[test]
    fn files_of_other_formats_are_named() {
        let error = |end: &[u8]| VortexFile::open_bytes([&[0; 100], end].concat()).unwrap_err().to_string();
        assert!(error(b"PAR1").ends_with("not a Vortex file, but a Parquet file"));
        assert!(error(b"ARROW1").ends_with("not a Vortex file, but an Arrow IPC file"));
        assert!(error(b"VRTX").contains("a release before 0.36"));
        assert!(error(b"ZZZZ").contains("it ends in \"ZZZZ\", not in \"VTXF\""));
    }

    #[test]
    fn a_sound_file_shows_all_its_parts() {
        let examination = examined(FILE);
        let names: Vec<_> = examination.parts.iter().map(|part| part.name).collect();
        assert_eq!(names, ["postscript", "dtype", "layout", "statistics", "footer"]);
        assert!(examination.parts.iter().all(|part| part.found.is_ok()), "{examination:?}");
        assert!(examination.starts_with_magic);
        assert!(examination.parts[2].to_string().ends_with(": 1500 rows"));
    }

    #[test]
    fn one_broken_part_leaves_the_others_readable() {
        let layout = examined(FILE).parts[2].range.clone().unwrap();
        let mut bytes = FILE.to_vec();
        bytes[layout.start as usize..layout.end as usize].fill(0xff);
        let examination = examined(&bytes);
        let broken: Vec<_> = examination.parts.iter().filter(|part| part.found.is_err()).collect();
        assert_eq!(broken.len(), 1, "{examination:?}");
        assert_eq!(broken[0].name, "layout");
    }

    #[test]
    fn every_cut_of_a_file_can_be_examined() {
        for len in (0..FILE.len()).step_by(997).chain(FILE.len() - 600..FILE.len()) {
            let examination = examined(&FILE[..len]);
            assert_eq!(examination.file_size, len as u64);
            assert!(examination.parts[0].found.is_err());
        }
    }

    #[tokio::test]
    async fn encodings_are_read_without_the_values() {
        let file = opened(FILE).await;
        for id in 0..file.footer().segments().len() {
            let encodings = file.array_encodings(SegmentId(id as u32)).await.unwrap();
            assert_eq!(encodings[0].0, 0);
            assert!(encodings.iter().all(|(_, id)| !id.starts_with('#')), "{encodings:?}");
        }
        assert!(file.array_encodings(SegmentId(u32::MAX)).await.is_err());
    }

    /// A source that leaves out the last byte of every read.
    #[derive(Debug)]
    struct Short(MemoryFile);

    #[async_trait::async_trait]
    impl ReadAt for Short {
        fn name(&self) -> &str {
            "short"
        }

        async fn len(&self) -> Result<u64> {
            self.0.len().await
        }

        async fn read(&self, range: Range<u64>) -> Result<bytes::Bytes> {
            self.0.read(range.start..range.end - 1).await
        }

        fn profile(&self) -> crate::io::StorageProfile {
            self.0.profile()
        }
    }

    #[tokio::test]
    async fn reads_that_are_too_short_are_errors() {
        let sound = opened(FILE).await;
        let source = Arc::new(Short(MemoryFile::new(FILE)));
        assert!(examine(source.as_ref(), &OpenOptions::new()).await.is_err());
        let file = VortexFile::from_footer(source, Arc::clone(sound.footer()));
        for id in 0..file.footer().segments().len() {
            let error = file.array_encodings(SegmentId(id as u32)).await.unwrap_err();
            assert!(matches!(error.root(), Error::Read { .. }), "{error}");
        }
    }
}
