//! Reads and writes [Vortex](https://vortex.dev) files: an independent implementation of the format,
//! over Arrow.
//!
//! ```
//! use std::sync::Arc;
//!
//! use arrow::array::{Int64Array, RecordBatch, StringArray};
//! use futures::TryStreamExt as _;
//! use vortex_core::VortexFile;
//! use vortex_core::expr::column;
//! use vortex_core::io::LocalSink;
//! use vortex_core::write::{FileWriter, WriteOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("cities.vortex");
//! let batch = RecordBatch::try_from_iter([
//!     ("city", Arc::new(StringArray::from(vec!["Oslo", "Lima", "Pune"])) as _),
//!     ("people", Arc::new(Int64Array::from(vec![717_000, 10_092_000, 4_307_000])) as _),
//! ])?;
//! let mut writer = FileWriter::try_new(LocalSink::create(&path)?, batch.schema(), WriteOptions::new())?;
//! writer.write(&batch).await?;
//! writer.finish().await?;
//!
//! let file = VortexFile::open_path(&path).await?;
//! let large = file.scan().with_projection(["city"]).with_filter(column("people").gt(1_000_000));
//! let batches: Vec<RecordBatch> = large.into_stream()?.try_collect().await?;
//! assert_eq!(batches[0].num_rows(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! | to | start at |
//! |---|---|
//! | read | [`VortexFile`] and its [`scan`](VortexFile::scan), a [`ScanBuilder`](scan::ScanBuilder) |
//! | filter | [`expr::column`], [`Expr`](expr::Expr) |
//! | aggregate | [`ScanBuilder::aggregate`](scan::ScanBuilder::aggregate), [`aggregate_only`](scan::ScanBuilder::aggregate_only) |
//! | read rows by position | [`with_row_indices`](scan::ScanBuilder::with_row_indices), [`with_row_access`](scan::ScanBuilder::with_row_access) |
//! | write | [`FileWriter`](write::FileWriter), [`write_stream`](write::write_stream), [`write_reader`](write::write_reader) |
//! | use other storage | [`ReadAt`](io::ReadAt), [`Sink`](io::Sink), [`ObjectFile`](io::ObjectFile) |
//! | limit what a file may cost | [`Limits`], [`OpenOptions`](file::OpenOptions) |
//! | inspect a file | [`Footer`](file::Footer), [`examine`](file::examine), [`zone_map`](VortexFile::zone_map), [`verify`](verify()) |
//! | add an encoding | [`Encoding`](encodings::Encoding), [`Registry`] |
//! | exchange arrays between processes | [`ipc`] |
//!
//! Scans and writers run on the tokio runtime that polls them. Without a runtime, use
//! [`VortexFile::open_blocking`], [`ScanBuilder::into_reader`](scan::ScanBuilder::into_reader) and
//! [`write_reader`](write::write_reader).
//!
//! Types of the crates `arrow`, `bytes`, `futures`, `half` and `object_store` are part of the interface. These crates
//! are re-exported, so that users can name the versions that match. Sources and sinks are implemented with
//! `async-trait`.
//!
//! The bytes of a file are not trusted: whatever they are, opening and scanning return `Ok` or `Err`, within
//! the [`Limits`].
//!
//! Targets must be little-endian, as the values in files are, and have 64-bit addresses.

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("vortex-core reads values in place, so it needs a little-endian target with 64-bit addresses");

pub mod array;
mod bloom;
mod budget;
mod compress;
pub mod dtype;
pub mod encodings;
mod error;
mod excerpt;
pub mod expr;
pub mod file;
#[cfg(test)]
mod given;
pub mod io;
pub mod ipc;
mod kernels;
pub mod layout;
mod limits;
mod mask;
mod metrics;
mod once;
mod pruning;
mod registry;
mod release;
mod row_ranges;
pub mod scalar;
pub mod scan;
mod segments;
pub mod stats;
mod variant;
mod verify;
mod wire;
pub mod write;

pub use compress::Level;
pub use error::{Error, Result};
pub use excerpt::Excerpt;
pub use file::open::VortexFile;
pub use limits::Limits;
pub use mask::Mask;
pub use registry::Registry;
pub use release::Release;
pub use verify::{Problem, Verification, verify};
pub use {arrow, bytes, futures, half, object_store};
