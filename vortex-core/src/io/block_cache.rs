//! A cache of file bytes, kept in whole blocks for later scans and evicted in least recently used order.
//!
//! ```text
//! file      |--block--|--block--|--block--|-bl|
//! wanted         [---a---]    [b]
//! read      |=============================|        whole blocks, kept as they come in
//! ```
//!
//! Blocks belong to one version of a file and are never served for another: that which was listed, and which the store
//! told of when it returned them, since not every store notices that an object was replaced. Two scans that miss a
//! block at the same time both read it; later scans do not.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::Buffer;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;

use super::object_store::{FirstAnswer, WeakAnswer};
use super::receiving::is_little;
use super::{ReadAt, StorageProfile, read_exact};
use crate::Result;

/// Blocks are a multiple of this, so that alignments in the file are preserved in memory.
const MIN_BLOCK: u64 = 4 << 10;
/// Upper limit of the block size: each read in flight holds one block that is not counted yet.
const MAX_BLOCK: u64 = 8 << 20;
/// A cache too small for this many blocks keeps nothing.
const MIN_BLOCKS: u64 = 8;
/// Answers that are kept in any case, in addition to twice as many as are held.
const MANY_ANSWERS: usize = 64;
/// Approximate overhead of an entry in addition to its bytes.
const ENTRY_BYTES: u64 = 256;

/// Blocks of files, bounded in bytes. If a block is evicted while a scan still holds its bytes, they stay
/// allocated until the scan releases them; the scan's own budget accounts for them. Of a block, it gets copies of small
/// parts, which do not keep the rest.
#[derive(Debug, Default)]
pub struct BlockCache {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    limit: u64,
    bytes: u64,
    /// Number of the latest use.
    uses: u64,
    blocks: HashMap<Key, Block>,
    /// Blocks by their last use.
    by_use: BTreeMap<u64, Key>,
    /// What stores told of the versions of objects when they were first read.
    answers: HashMap<Arc<str>, WeakAnswer>,
    /// With more of them, those are dropped that nobody holds.
    most_answers: usize,
}

/// A version of a file, and the position at which the block starts.
type Key = (Arc<str>, u64);

#[derive(Debug)]
struct Block {
    bytes: Bytes,
    last_use: u64,
    answer: Option<FirstAnswer>,
}

impl BlockCache {
    /// A cache of at most `bytes`.
    pub fn new(bytes: u64) -> Arc<Self> {
        let cache = Self::default();
        cache.set_limit(bytes);
        Arc::new(cache)
    }

    /// Changes the limit to `bytes`.
    pub fn set_limit(&self, bytes: u64) {
        let mut kept = self.kept.lock();
        kept.limit = bytes;
        kept.make_room(0);
    }

    /// Bytes in use.
    pub fn bytes_in_use(&self) -> u64 {
        self.kept.lock().bytes
    }

    /// Whether the cache is large enough for reads to be widened to blocks of this length.
    fn takes(&self, block_len: u64) -> bool {
        block_len <= self.kept.lock().limit / MIN_BLOCKS
    }

    /// The answer that readers of this version of an object share: that of one before, as long as there are blocks or
    /// readers of it, unless it contradicts `own`.
    pub(super) fn shared_answer(&self, version: &str, own: FirstAnswer) -> FirstAnswer {
        let Kept { answers, most_answers, .. } = &mut *self.kept.lock();
        let known = answers.get(version).and_then(WeakAnswer::upgrade);
        if let Some(known) = known.filter(|known| known.agrees_with(&own)) {
            return known;
        }
        if answers.len() > *most_answers {
            answers.retain(|_, answer| answer.is_held());
            *most_answers = 2 * answers.len() + MANY_ANSWERS;
        }
        answers.insert(version.into(), own.downgrade());
        own
    }

    fn get(&self, key: &Key, answer: Option<&FirstAnswer>) -> Option<Bytes> {
        let mut kept = self.kept.lock();
        let Kept { uses, blocks, by_use, .. } = &mut *kept;
        let block = blocks.get_mut(key)?;
        // Those of another answer are replaced once they are read again.
        if !block.answer.as_ref().zip(answer).is_none_or(|(of_block, own)| of_block.is(own)) {
            return None;
        }
        *uses += 1;
        if let Some(key) = by_use.remove(&block.last_use) {
            by_use.insert(*uses, key);
        }
        block.last_use = *uses;
        Some(block.bytes.clone())
    }

    fn put(&self, key: Key, bytes: Bytes, answer: Option<FirstAnswer>) {
        let mut kept = self.kept.lock();
        let needed = bytes.len() as u64 + ENTRY_BYTES;
        if needed > kept.limit {
            return;
        }
        kept.remove(&key);
        kept.make_room(needed);
        kept.bytes += needed;
        kept.uses += 1;
        let last_use = kept.uses;
        kept.by_use.insert(last_use, key.clone());
        kept.blocks.insert(key, Block { bytes, last_use, answer });
    }
}

impl Kept {
    /// Drops the least recently used blocks until `bytes` more fit.
    fn make_room(&mut self, bytes: u64) {
        while self.bytes + bytes > self.limit
            && let Some((_, key)) = self.by_use.pop_first()
        {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(block) = self.blocks.remove(key) {
            self.by_use.remove(&block.last_use);
            self.bytes -= block.bytes.len() as u64 + ENTRY_BYTES;
        }
    }
}

/// A file that looks for its bytes in a [`BlockCache`] first.
#[derive(Debug)]
pub struct CachedFile {
    source: Arc<dyn ReadAt>,
    blocks: FileBlocks,
}

/// The blocks of one file.
#[derive(Debug, Clone)]
struct FileBlocks {
    cache: Arc<BlockCache>,
    version: Arc<str>,
    file_len: u64,
    block_len: u64,
    /// What the store tells of the version when it returns bytes, if it is asked.
    answer: Option<FirstAnswer>,
}

impl CachedFile {
    /// Keeps bytes read from `source` in `cache`, in blocks of approximately `block_len` bytes, but at
    /// most 8 MiB and an eighth of the cache. A cache of less than 32 KiB keeps nothing.
    ///
    /// `version` identifies the file and its version: files with the same `version` and the same length
    /// must have the same bytes.
    pub fn new(
        source: Arc<dyn ReadAt>,
        version: &str,
        file_len: u64,
        cache: Arc<BlockCache>,
        block_len: u64,
    ) -> Self {
        let most = (cache.kept.lock().limit / MIN_BLOCKS).clamp(MIN_BLOCK, MAX_BLOCK);
        let most = most / MIN_BLOCK * MIN_BLOCK;
        let block_len = block_len.clamp(MIN_BLOCK, most).next_multiple_of(MIN_BLOCK);
        let version = format!("{version} {file_len} {block_len}").into();
        Self { source, blocks: FileBlocks { cache, version, file_len, block_len, answer: None } }
    }

    /// Takes and keeps only blocks that the source has read, or other sources that share the first answer with it.
    pub(super) fn with_answer(mut self, answer: FirstAnswer) -> Self {
        self.blocks.answer = Some(answer);
        self
    }
}

impl FileBlocks {
    /// The block that contains a position.
    fn at(&self, position: u64) -> Range<u64> {
        let start = position / self.block_len * self.block_len;
        start..start.saturating_add(self.block_len).min(self.file_len)
    }

    /// Expands a range to whole blocks.
    fn around(&self, range: &Range<u64>) -> Range<u64> {
        let last = range.end.saturating_sub(1).max(range.start);
        self.at(range.start).start..self.at(last).end.max(range.end)
    }

    fn get(&self, range: &Range<u64>) -> Option<Bytes> {
        if range.end > self.file_len {
            return None;
        }
        let block = |start| self.cache.get(&(Arc::clone(&self.version), start), self.answer.as_ref());
        let (first, len) = (self.at(range.start), range.end.checked_sub(range.start)?);
        if range.end <= first.end {
            // Blocks are in memory, so offsets within them fit `usize`.
            let from = (range.start - first.start) as usize;
            let (block, to) = (block(first.start)?, from + len as usize);
            let copy = is_little(len as usize, block.len());
            return Some(if copy { Bytes::copy_from_slice(&block[from..to]) } else { block.slice(from..to) });
        }
        let around = self.around(range);
        let starts = (around.start..around.end).step_by(usize::try_from(self.block_len).ok()?);
        let blocks = starts.map(block).collect::<Option<Vec<_>>>()?;
        let mut bytes = Vec::with_capacity(usize::try_from(len).ok()?);
        let mut at = around.start;
        for block in &blocks {
            let end = at + block.len() as u64;
            let (from, to) = (range.start.max(at), range.end.min(end));
            bytes.extend_from_slice(&block[(from - at) as usize..(to - at) as usize]);
            at = end;
        }
        Some(bytes.into())
    }
}

/// Collects incoming bytes of a range into blocks.
struct Filling {
    blocks: FileBlocks,
    at: u64,
    end: u64,
    /// The block being received, from its start.
    block: Vec<u8>,
}

impl Filling {
    fn new(blocks: &FileBlocks, range: &Range<u64>) -> Self {
        let end = range.end.min(blocks.file_len);
        Self { blocks: blocks.clone(), at: range.start, end, block: Vec::new() }
    }

    /// Takes the next piece. Blocks whose start was not received are not kept, and neither are bytes that
    /// a store sends beyond the range.
    fn take(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() && self.at < self.end {
            let block = self.blocks.at(self.at);
            let left = block.end.min(self.end) - self.at;
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            let (head, rest) = piece.split_at(len);
            if self.at - block.start == self.block.len() as u64 {
                // Reserve the whole block at once, so that no more memory is allocated than is counted.
                self.block.reserve_exact((block.end - self.at) as usize);
                self.block.extend_from_slice(head);
            }
            (self.at, piece) = (self.at + len as u64, rest);
            if self.at == block.end {
                let bytes = Bytes::from(std::mem::take(&mut self.block));
                if bytes.len() as u64 == block.end - block.start {
                    let FileBlocks { cache, version, answer, .. } = &self.blocks;
                    cache.put((Arc::clone(version), block.start), bytes, answer.clone());
                }
            }
        }
    }
}

#[async_trait]
impl ReadAt for CachedFile {
    fn name(&self) -> &str {
        self.source.name()
    }

    async fn len(&self) -> Result<u64> {
        Ok(self.blocks.file_len)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if let Some(bytes) = self.cached(&range) {
            return Ok(bytes);
        }
        let around = self.widened(range.clone());
        let bytes = read_exact(self.source.as_ref(), around.clone()).await?;
        Filling::new(&self.blocks, &around).take(&bytes);
        let from = (range.start - around.start) as usize;
        Ok(bytes.slice(from..from + (range.end - range.start) as usize))
    }

    async fn stream(&self, range: Range<u64>) -> Result<BoxStream<'static, Result<Bytes>>> {
        let pieces = self.source.stream(range.clone()).await?;
        let mut filling = Filling::new(&self.blocks, &range);
        Ok(pieces.inspect_ok(move |piece| filling.take(piece)).boxed())
    }

    fn at_hand(&self, range: &Range<u64>) -> Option<Bytes> {
        self.source.at_hand(range)
    }

    fn contents(&self) -> Option<Bytes> {
        self.source.contents()
    }

    fn cached(&self, range: &Range<u64>) -> Option<Bytes> {
        self.blocks.get(range).or_else(|| self.source.cached(range))
    }

    fn widened(&self, range: Range<u64>) -> Range<u64> {
        if self.blocks.cache.takes(self.blocks.block_len) { self.blocks.around(&range) } else { range }
    }

    fn store(&self) -> &str {
        self.source.store()
    }

    /// Single rows are small and scattered, so reading whole blocks for them does not pay.
    async fn read_many(&self, ranges: &[Range<u64>]) -> Result<Vec<Buffer>> {
        self.source.read_many(ranges).await
    }

    fn profile(&self) -> StorageProfile {
        self.source.profile()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemoryFile;

    const LEN: u64 = 10 * MIN_BLOCK + 100;

    fn contents() -> Vec<u8> {
        (0..LEN).map(|at| (at % 251) as u8).collect()
    }

    fn file(cache: &Arc<BlockCache>, version: &str) -> CachedFile {
        let source = Arc::new(MemoryFile::new(contents()));
        CachedFile::new(source, version, LEN, Arc::clone(cache), MIN_BLOCK)
    }

    /// A cache with room for some blocks.
    fn room_for(blocks: u64) -> Arc<BlockCache> {
        BlockCache::new(blocks * (MIN_BLOCK + ENTRY_BYTES))
    }

    async fn stream(file: &CachedFile, range: Range<u64>) {
        let pieces: Vec<_> = file.stream(range).await.unwrap().try_collect().await.unwrap();
        assert!(!pieces.is_empty());
    }

    #[tokio::test]
    async fn what_was_read_is_kept_in_whole_blocks() {
        let cache = room_for(10);
        let file = file(&cache, "a");
        let around = file.widened(MIN_BLOCK + 1..2 * MIN_BLOCK + 1);
        assert_eq!(around, MIN_BLOCK..3 * MIN_BLOCK);
        stream(&file, around).await;
        for range in [5000..5001, MIN_BLOCK..3 * MIN_BLOCK, 8000..9000, 5000..5000] {
            let expected = &contents()[range.start as usize..range.end as usize];
            assert_eq!(file.cached(&range).unwrap(), expected, "{range:?}");
        }
        assert!(file.cached(&(0..10)).is_none() && file.cached(&(5000..LEN)).is_none());
    }

    #[tokio::test]
    async fn small_parts_of_a_block_do_not_keep_it() {
        let file = file(&room_for(10), "a");
        stream(&file, 0..MIN_BLOCK).await;
        let address = |range| file.cached(&range).unwrap().as_ptr() as usize;
        let block = address(0..MIN_BLOCK);
        let within = block..block + MIN_BLOCK as usize;
        assert!(within.contains(&address(1000..2000)));
        assert!(!within.contains(&address(1000..1010)));
    }

    #[tokio::test]
    async fn the_last_block_ends_with_the_file() {
        let file = file(&room_for(10), "a");
        assert_eq!(file.widened(LEN - 1..LEN), 10 * MIN_BLOCK..LEN);
        assert_eq!(file.read(LEN - 10..LEN).await.unwrap(), contents()[LEN as usize - 10..]);
        assert!(file.cached(&(LEN - 100..LEN)).is_some());
        // A description of another file may refer to what is beyond the end.
        for range in [LEN - 100..LEN + 1, LEN + 1..LEN + 2, LEN + MIN_BLOCK..LEN + 3 * MIN_BLOCK] {
            assert!(file.cached(&range).is_none(), "{range:?}");
        }
    }

    #[tokio::test]
    async fn another_version_sees_nothing_of_this_one() {
        let cache = room_for(20);
        stream(&file(&cache, "a"), 0..LEN).await;
        assert!(file(&cache, "a").cached(&(0..10)).is_some());
        assert!(file(&cache, "b").cached(&(0..10)).is_none());
    }

    #[tokio::test]
    async fn the_block_used_longest_ago_makes_room() {
        let cache = room_for(8);
        let file = file(&cache, "a");
        stream(&file, 0..8 * MIN_BLOCK).await;
        assert!(file.cached(&(0..1)).is_some());
        stream(&file, 8 * MIN_BLOCK..9 * MIN_BLOCK).await;
        assert!(file.cached(&(0..1)).is_some());
        assert!(file.cached(&(MIN_BLOCK..MIN_BLOCK + 1)).is_none());
        assert!(cache.bytes_in_use() <= 8 * (MIN_BLOCK + ENTRY_BYTES));
        cache.set_limit(0);
        assert_eq!(cache.bytes_in_use(), 0);
        stream(&file, 0..LEN).await;
        assert_eq!(cache.bytes_in_use(), 0);
    }

    #[test]
    fn a_block_without_its_start_is_not_kept() {
        let cache = room_for(10);
        let file = file(&cache, "a");
        let bytes = contents();
        for step in [1, 100, 4096, 5000] {
            let mut filling = Filling::new(&file.blocks, &(100..LEN));
            bytes[100..].chunks(step).for_each(|piece| filling.take(piece));
            // Bytes beyond the end of the file belong to no block.
            filling.take(&[0; 5000]);
            assert!(file.cached(&(100..200)).is_none(), "{step}");
            let rest = MIN_BLOCK..LEN;
            assert_eq!(file.cached(&rest).unwrap(), bytes[MIN_BLOCK as usize..], "{step}");
        }
    }

    #[test]
    fn what_comes_beyond_the_range_is_not_kept() {
        let cache = room_for(10);
        let file = file(&cache, "a");
        let mut filling = Filling::new(&file.blocks, &(0..MIN_BLOCK));
        filling.take(&vec![1; 2 * MIN_BLOCK as usize]);
        filling.take(&vec![1; 2 * MIN_BLOCK as usize]);
        assert!(file.cached(&(0..MIN_BLOCK)).is_some());
        assert!(file.cached(&(MIN_BLOCK..MIN_BLOCK + 1)).is_none());
    }

    #[tokio::test]
    async fn blocks_are_small_enough_for_the_cache_or_nothing_is_kept() {
        let block_len = |limit: u64, wanted: u64| {
            let source = Arc::new(MemoryFile::new(contents()));
            let file = CachedFile::new(source, "a", 1 << 40, BlockCache::new(limit), wanted);
            let around = file.widened(0..1);
            around.end - around.start
        };
        assert_eq!(block_len(64 << 20, 1 << 20), 1 << 20);
        assert_eq!(block_len(1 << 20, 1 << 20), 128 << 10);
        assert_eq!(block_len(100_000, 1 << 20), 3 * MIN_BLOCK);
        assert_eq!(block_len(u64::MAX, u64::MAX), MAX_BLOCK);
        for tiny in [0, 1000, 8 * MIN_BLOCK - 1] {
            assert_eq!(block_len(tiny, 1 << 20), 1, "{tiny}");
        }
        let cache = room_for(8);
        let file = file(&cache, "a");
        cache.set_limit(MIN_BLOCK);
        assert_eq!(file.widened(5..10), 5..10, "less is said later");
        assert_eq!(file.read(5..10).await.unwrap(), contents()[5..10]);
        assert_eq!(cache.bytes_in_use(), 0);
    }
}
