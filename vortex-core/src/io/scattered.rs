//! Many small reads of local storage, which lie too far apart to be joined. They are not queued: those who ask
//! for them wait for all of them.

use std::ops::Range;

use arrow::buffer::Buffer;
use futures::{StreamExt as _, TryStreamExt as _};

use super::{ReadAt, check_len, kept_bytes};
use crate::metrics::ScanMetrics;
use crate::{Error, Result};

/// Reads ranges one by one, with as many reads in flight as the profile of the source allows.
pub(super) async fn read_each<S: ReadAt + ?Sized>(source: &S, ranges: &[Range<u64>]) -> Result<Vec<Buffer>> {
    let reads = ranges.iter().cloned().map(|range| source.read(range));
    let reads = futures::stream::iter(reads).buffered(source.profile().slots());
    reads.map_ok(Buffer::from).try_collect().await
}

/// Reads many small ranges. Those kept from earlier reads are not read again. Memory for all of them has to be
/// charged before.
///
/// # Errors
/// If storage fails.
pub(crate) async fn read_scattered(
    source: &dyn ReadAt,
    ranges: &[Range<u64>],
    metrics: &ScanMetrics,
) -> Result<Vec<Buffer>> {
    let mut pieces: Vec<_> = ranges.iter().map(|range| kept_bytes(source, range).map(Buffer::from)).collect();
    let is_missing = |at: &usize| pieces[*at].is_none();
    let missing: Vec<usize> = (0..ranges.len()).filter(is_missing).collect();
    let wanted: Vec<Range<u64>> = missing.iter().map(|&at| ranges[at].clone()).collect();
    metrics.requests.add(ranges.len() as u64);
    metrics.cache_hits.add((ranges.len() - missing.len()) as u64);
    metrics.reads.add(missing.len() as u64);
    metrics.bytes_read.add(wanted.iter().map(|range| range.end - range.start).sum());
    if !wanted.is_empty() {
        let read = source.read_many(&wanted).await?;
        if read.len() != wanted.len() {
            let message = format!("got {} pieces instead of {}", read.len(), wanted.len());
            return Err(Error::read(source.name(), wanted[0].clone(), message));
        }
        for (at, bytes) in missing.into_iter().zip(read) {
            pieces[at] = Some(bytes);
        }
    }
    let pieces: Vec<Buffer> = pieces.into_iter().flatten().collect();
    for (bytes, range) in pieces.iter().zip(ranges) {
        check_len(source, range, bytes.len())?;
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use object_store::path::Path;
    use object_store::{ObjectStoreExt as _, PutPayload};
    use test_store::TestStore;

    use super::*;
    use crate::io::{BlockCache, CachedFile, MemoryFile, ObjectFile};

    fn contents() -> Vec<u8> {
        (0..100_000u32).map(|at| (at % 251) as u8).collect()
    }

    #[tokio::test]
    async fn small_reads_that_are_kept_already_are_not_made() {
        let contents = contents();
        let memory = Arc::new(MemoryFile::new(contents.clone()));
        let file = CachedFile::new(memory, "a", 100_000, BlockCache::new(1 << 20), 4096);
        file.read(5..6).await.unwrap();
        let metrics = ScanMetrics::default();
        let ranges = [4000..4010, 50_000..50_010, 0..20];
        let pieces = read_scattered(&file, &ranges, &metrics).await.unwrap();
        for (piece, range) in pieces.iter().zip(ranges) {
            assert_eq!(piece.as_slice(), &contents[range.start as usize..range.end as usize]);
        }
        let counted = [&metrics.requests, &metrics.cache_hits, &metrics.reads, &metrics.bytes_read];
        assert_eq!(counted.map(|count| count.get()), [3, 2, 1, 10]);
    }

    #[tokio::test]
    async fn a_remote_store_gets_only_so_many_small_reads_at_once() {
        let store = TestStore::new();
        let path = Path::from("file");
        store.put(&path, PutPayload::from(contents())).await.unwrap();
        store.set_latency(Duration::from_millis(1));
        let meta = store.inner.head(&path).await.unwrap();
        let file = ObjectFile::new(Arc::clone(&store) as _, meta);
        let ranges: Vec<Range<u64>> = (0..300).map(|at| at * 300..at * 300 + 10).collect();
        let pieces = file.read_many(&ranges).await.unwrap();
        for (piece, range) in pieces.iter().zip(&ranges) {
            assert_eq!(piece.as_slice(), &contents()[range.start as usize..range.end as usize]);
        }
        assert_eq!(store.reads.get(), 300);
        let most = store.most_in_flight.get();
        assert!(most > 1 && most <= file.profile().concurrency as u64, "{most}");
    }
}
