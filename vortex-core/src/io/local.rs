//! Files on a local disk, accessed through positional reads on one descriptor or through a memory map.
//!
//! Reads are the default. Copying single rows out of a map takes half the time of reading them from the page cache, but
//! a file that another process truncates then ends this one by a signal instead of an error, and bytes that were
//! checked may change: only the application can promise that neither happens. Nor does the kernel gather rows out of a
//! map (`writev` into a pipe, which fails instead of the signal): for 14,000 pieces, that takes 1.2 ms instead of 7 if
//! the page cache holds the file in large folios, but 16 instead of 13 if it holds single pages, to which it falls
//! back. `io_uring` saves a tenth.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::buffer::Buffer;
use async_trait::async_trait;
use bytes::Bytes;

use super::blocking::OwnedTask;
use super::descriptor::Descriptor;
use super::recycled::Recycled;
use super::{MemoryFile, READ_ALIGNMENT, ReadAt, StorageProfile, runtime};
use crate::{Error, Result};

/// Small reads per blocking task: enough to pay for waking a thread, and few enough for a disk to get
/// many reads at once.
const READS_PER_TASK: usize = 256;

/// Maximum number of small reads made on the calling thread, as long as none has to wait for the disk.
const READS_AT_HAND: usize = 1024;

/// A file on a local disk, opened once for all reads.
#[derive(Debug, Clone)]
pub struct LocalFile {
    name: Arc<str>,
    len: u64,
    access: Access,
}

#[derive(Debug, Clone)]
enum Access {
    Descriptor(Descriptor),
    Map(MemoryFile),
}

impl LocalFile {
    /// Opens a file for positional reads.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let name = path.as_ref().display().to_string();
        let failed = |error| Error::read(&name, 0..0, error);
        // Opening a pipe would block until another process writes to it.
        let metadata = std::fs::metadata(path.as_ref()).map_err(failed)?;
        if !metadata.is_file() {
            let what = if metadata.is_dir() { "is a directory" } else { "is not a regular file" };
            return Err(Error::read(&name, 0..0, what));
        }
        let file = File::open(path.as_ref()).map_err(failed)?;
        let descriptor = Descriptor::new(file).map_err(failed)?;
        Ok(Self { len: descriptor.len(), access: Access::Descriptor(descriptor), name: name.into() })
    }

    /// Maps a file into memory. This avoids copies, and makes fetching single rows several times as fast,
    /// for files that are not modified in the meantime. Bytes that are not in memory yet block the thread
    /// that needs them.
    ///
    /// # Safety
    /// The file must not be changed or truncated, by this process or another, while anything read from it
    /// is alive: the bytes behind shared references would change.
    ///
    /// # Errors
    /// If it cannot be opened or mapped.
    #[expect(unsafe_code, reason = "a mapped file could change; the caller rules that out")]
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Self> {
        let opened = Self::open(path)?;
        let Access::Descriptor(Descriptor { file, .. }) = &opened.access else { return Ok(opened) };
        // SAFETY: the caller promises that the file does not change while mapped.
        let map = unsafe { memmap2::Mmap::map(file.as_ref()) }
            .map_err(|error| Error::read(&opened.name, 0..opened.len, error))?;
        Ok(Self { access: Access::Map(MemoryFile::new(Bytes::from_owner(map))), ..opened })
    }

    /// What was read, unless the file has changed.
    fn unchanged<T>(&self, file: &Descriptor, range: Range<u64>, outcome: Result<T>) -> Result<T> {
        if file.is_changed() {
            return Err(Error::read(&self.name, range, "the file was written while it was read"));
        }
        outcome
    }
}

/// Reads `range` of an open file; blocks.
pub(super) fn read_exact_at(file: &File, range: &Range<u64>) -> std::io::Result<Bytes> {
    let mut buffer = Recycled::of_len(len_of(range)?);
    fill_at(file, buffer.as_mut(), range.start)?;
    Ok(buffer.into_bytes())
}

/// Reads ranges of a file one after the other into one buffer; returns as many as `fill` reports to have
/// filled.
fn read_pieces(
    name: &str,
    ranges: &[Range<u64>],
    mut fill: impl FnMut(&mut [u8], u64) -> std::io::Result<bool>,
) -> Result<Vec<Buffer>> {
    // Each piece has the same alignment in memory as in the file.
    let mut places = Vec::with_capacity(ranges.len());
    let mut end = 0usize;
    for range in ranges {
        let len = len_of(range).map_err(|error| Error::read(name, range.clone(), error))?;
        let start = end.next_multiple_of(READ_ALIGNMENT as usize) + (range.start % READ_ALIGNMENT) as usize;
        places.push(start..start + len);
        end = start + len;
    }
    let mut buffer = Recycled::of_len(end);
    let mut filled = 0;
    for (range, place) in ranges.iter().zip(&places) {
        let bytes = &mut buffer.as_mut()[place.clone()];
        if fill(bytes, range.start).map_err(|error| Error::read(name, range.clone(), error))? {
            filled += 1
        } else {
            break;
        }
    }
    let bytes = Buffer::from(buffer.into_bytes());
    let filled = places.into_iter().take(filled);
    Ok(filled.map(|place| bytes.slice_with_length(place.start, place.len())).collect())
}

fn len_of(range: &Range<u64>) -> std::io::Result<usize> {
    usize::try_from(range.end.saturating_sub(range.start))
        .map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))
}

/// Fills `bytes` from a position of an open file.
fn fill_at(file: &File, bytes: &mut [u8], position: u64) -> std::io::Result<()> {
    #[cfg(unix)]
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, position)?;
    #[cfg(windows)]
    {
        use std::os::windows::fs::FileExt as _;
        let mut filled = 0;
        while filled < bytes.len() {
            match file.seek_read(&mut bytes[filled..], position + filled as u64)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
    }
    Ok(())
}

/// Reads `range` of an open file if the operating system has it in memory, so that the read does not
/// block, and if the file has not changed.
pub(super) fn read_at_hand(file: &Descriptor, range: &Range<u64>) -> Option<Bytes> {
    let mut buffer = Recycled::of_len(usize::try_from(range.end.checked_sub(range.start)?).ok()?);
    let is_there = fill_at_hand(&file.file, buffer.as_mut(), range.start) && !file.is_changed();
    is_there.then(|| buffer.into_bytes())
}

/// Fills `bytes` from a position of an open file if that does not block.
#[cfg(target_os = "linux")]
fn fill_at_hand(file: &File, bytes: &mut [u8], position: u64) -> bool {
    use std::io::IoSliceMut;

    use rustix::io::{ReadWriteFlags, preadv2};

    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        let at = position + filled as u64;
        match preadv2(file, &mut [IoSliceMut::new(rest)], at, ReadWriteFlags::NOWAIT) {
            // Not in memory, at the end of the file, or not supported here.
            Ok(0) | Err(_) => return false,
            Ok(read) => filled += read,
        }
    }
    true
}

/// Other systems offer no way to find out what is in memory.
#[cfg(not(target_os = "linux"))]
fn fill_at_hand(_file: &File, _bytes: &mut [u8], _position: u64) -> bool {
    false
}

/// Runs a blocking read on a thread where it does not hold up other tasks.
pub(super) async fn read_blocking(file: &Descriptor, name: &str, range: Range<u64>) -> Result<Bytes> {
    let task = {
        let (file, range) = (Arc::clone(&file.file), range.clone());
        OwnedTask::spawn_blocking(&runtime()?, move || read_exact_at(&file, &range))
    };
    match task.await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(Error::read(name, range, error)),
        Err(error) => Err(Error::read(name, range, error)),
    }
}

/// Makes many small reads. Those that have to wait for the disk run where they do not hold up other
/// tasks.
pub(super) async fn read_many(file: &Descriptor, name: &str, ranges: &[Range<u64>]) -> Result<Vec<Buffer>> {
    let file = &file.file;
    let first = &ranges[..ranges.len().min(READS_AT_HAND)];
    let mut pieces = read_pieces(name, first, |bytes, position| Ok(fill_at_hand(file, bytes, position)))?;
    let (rest, runtime) = (&ranges[pieces.len()..], runtime()?);
    let parts = rest.chunks(READS_PER_TASK).map(|ranges| {
        let (file, name, ranges) = (Arc::clone(file), name.to_owned(), ranges.to_vec());
        OwnedTask::spawn_blocking(&runtime, move || {
            read_pieces(&name, &ranges, |bytes, position| fill_at(&file, bytes, position).map(|()| true))
        })
    });
    let parts = futures::future::join_all(parts).await;
    for (part, ranges) in parts.into_iter().zip(rest.chunks(READS_PER_TASK)) {
        pieces.append(&mut part.map_err(|error| Error::read(name, ranges[0].clone(), error))??);
    }
    Ok(pieces)
}

#[async_trait]
impl ReadAt for LocalFile {
    fn name(&self) -> &str {
        &self.name
    }

    async fn len(&self) -> Result<u64> {
        Ok(self.len)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        match &self.access {
            Access::Descriptor(file) => {
                let bytes = read_blocking(file, &self.name, range.clone()).await;
                self.unchanged(file, range, bytes)
            }
            Access::Map(bytes) => bytes.read(range).await,
        }
    }

    fn at_hand(&self, range: &Range<u64>) -> Option<Bytes> {
        match &self.access {
            Access::Descriptor(file) => read_at_hand(file, range),
            Access::Map(bytes) => bytes.at_hand(range),
        }
    }

    fn contents(&self) -> Option<Bytes> {
        match &self.access {
            Access::Descriptor(_) => None,
            Access::Map(bytes) => bytes.contents(),
        }
    }

    async fn read_many(&self, ranges: &[Range<u64>]) -> Result<Vec<Buffer>> {
        match &self.access {
            Access::Descriptor(file) => {
                let pieces = read_many(file, &self.name, ranges).await;
                self.unchanged(file, ranges.first().cloned().unwrap_or_default(), pieces)
            }
            Access::Map(bytes) => bytes.read_many(ranges).await,
        }
    }

    fn profile(&self) -> StorageProfile {
        match self.access {
            Access::Descriptor(_) => StorageProfile::LOCAL,
            Access::Map(_) => StorageProfile::MEMORY,
        }
    }
}
