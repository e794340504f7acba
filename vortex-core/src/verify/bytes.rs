//! Checks of the stored bytes: every segment and metadata entry against its checksum.

use futures::StreamExt as _;

use super::Verification;
use crate::file::{Segment, SegmentId};
use crate::io::read_exact;
use crate::segments::checksums::{Checksums, compare};
use crate::{Result, VortexFile};

/// Maximum number of reads in flight.
const READS_AHEAD: usize = 4;

/// Segments that take more than so many times the bytes of the file would take as much longer to read. No writer lets
/// them overlap.
const MAX_OVERLAP: u64 = 8;

/// Verifies every segment and metadata entry against its checksum.
pub(super) async fn check_bytes(
    file: &VortexFile,
    checksums: &Checksums,
    found: &mut Verification,
) -> Result<()> {
    let source = file.source().as_ref();
    let ranges = file.footer().segments().iter().map(Segment::range);
    let total = ranges.clone().map(|range| range.end - range.start).fold(0, u64::saturating_add);
    if total / MAX_OVERLAP > file.footer().file_size() {
        found.report("segments", format!("they overlap: {total} bytes in a smaller file, not verified"));
        return Ok(());
    }
    let reads = ranges
        .enumerate()
        .map(|(at, range)| async move { read_exact(source, range).await.map(|bytes| (at, bytes)) });
    let mut reads = std::pin::pin!(futures::stream::iter(reads).buffered(READS_AHEAD));
    while let Some((at, bytes)) = reads.next().await.transpose()? {
        found.checked_segments += 1;
        // The table of segments has less than 2^32 rows.
        if let Err(error) = checksums.check(SegmentId(at as u32), &bytes) {
            found.report(format!("segment {at}"), error);
        }
    }
    for (entry, expected) in file.footer().entries_with_checksums().into_iter().zip(&checksums.entries) {
        let bytes = read_exact(source, entry.range.clone()).await?;
        if let Err(error) = compare("entry", *expected, &bytes) {
            found.report(format!("metadata `{}`", entry.key), error);
        }
    }
    Ok(())
}
