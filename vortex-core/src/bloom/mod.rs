//! Bloom filters: which zones may hold a value.
//!
//! A zone map rules out few zones of a column whose values are in no order, such as random keys. A Bloom filter
//! per zone rules out nearly all zones that lack a value. They are written for columns that are [named for
//! it](crate::write::WriteOptions::with_bloom_filter).
//!
//! The format has no place for them that readers of all releases accept, so they lie between the segments, where
//! nothing else refers to, and an entry of user metadata tells where. Readers that do not know the entry ignore
//! it.
//!
//! ```text
//! filter    block 0 │ block 1 │ ...            of one zone: 2^exponent blocks of 32 bytes
//! group     stripe 0 │ stripe 1 │ ...          of up to 1,024 zones, whose filters have as many blocks
//! stripe i  block i of zone 0 │ block i of zone 1 │ ... │ u32 checksum
//! entry     protobuf: rows per zone; for each column, names of the path, and where its groups lie │ u32 checksum
//! ```
//!
//! A value is looked up in one block of every filter, the position of which depends on its hash alone. So a single
//! stripe per group answers for all zones: 8 KiB for two million rows, where the filters take 4 MiB. Checksums
//! are the lower half of the 64-bit XXH3 of the bytes before them: unlike values, a damaged filter would be noticed by
//! nobody, and nobody reads enough to check a whole group.
//!
//! These are split block Bloom filters as [Parquet defines them][parquet], but with XXH3 in place of XXH64, other
//! bits of the hash selecting the block, and integers of all widths extended to 64 bits; see `filter.rs` and
//! `hash.rs`.
//!
//! [parquet]: https://parquet.apache.org/docs/file-format/bloomfilter/

mod filter;
mod hash;
mod index;

pub(crate) use filter::{Filter, stripes};
pub(crate) use hash::{can_hash, hash_of, hashes_of};
pub(crate) use index::{
    BLOOM_FILTERS_KEY, BloomFilters, ColumnFilters, GROUP_ZONES, StoredGroup, index_to_bytes,
};
