//! Files written to a local disk.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::{PartialFile, Sink};
use crate::io::runtime;
use crate::{Error, Result};

/// Number of bytes collected before they are written together, on a thread that may block.
const BUFFER_BYTES: usize = 1 << 20;

/// Smaller pieces are copied together, to be written by fewer calls.
const SMALL_PIECE: usize = 64 << 10;

/// A file on a local disk. It is written under a temporary name next to the final one, and renamed once
/// it is complete and synced; an existing file of that name is replaced.
#[derive(Debug)]
pub struct LocalSink {
    name: String,
    /// `None` once the file is finished, failed or aborted.
    partial: Option<PartialFile>,
    buffered: Vec<Bytes>,
    buffered_bytes: usize,
}

impl LocalSink {
    /// Starts a file at `path`, whose folder must exist. The target of a link is replaced, not the link.
    ///
    /// # Errors
    /// If the path is anything but a regular file, or the temporary file cannot be created.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::start(path.as_ref(), PartialFile::create)
    }

    /// As [`create`](Self::create), but a file that has this name by the time this one is complete stays: finishing
    /// fails then. See [`PartialFile::create_new`].
    ///
    /// # Errors
    /// As `create`, and if there is such a file already.
    pub fn create_new(path: impl AsRef<Path>) -> Result<Self> {
        Self::start(path.as_ref(), PartialFile::create_new)
    }

    fn start(path: &Path, create: impl FnOnce(&Path) -> std::io::Result<PartialFile>) -> Result<Self> {
        let name = path.display().to_string();
        let partial = create(path).map_err(|error| Error::write(&name, error))?;
        Ok(Self { name, partial: Some(partial), buffered: Vec::new(), buffered_bytes: 0 })
    }

    /// Runs blocking work on a thread where it does not hold up other tasks.
    async fn blocking(&self, work: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> Result<()> {
        match runtime()?.spawn_blocking(work).await {
            Ok(outcome) => outcome.map_err(|error| Error::write(&self.name, error)),
            Err(error) => Err(Error::write(&self.name, error)),
        }
    }

    async fn write_buffered(&mut self) -> Result<()> {
        if self.buffered.is_empty() {
            return Ok(());
        }
        let Some(partial) = &self.partial else { return Err(self.closed()) };
        let file = Arc::clone(partial.file());
        let buffered = std::mem::take(&mut self.buffered);
        self.buffered_bytes = 0;
        let outcome = self.blocking(move || write_all(&file, &buffered)).await;
        if outcome.is_err() {
            // An incomplete file must not get its final name.
            self.partial = None;
        }
        outcome
    }

    fn closed(&self) -> Error {
        Error::write(&self.name, "was already aborted or finished")
    }
}

fn write_all(file: &File, pieces: &[Bytes]) -> std::io::Result<()> {
    let mut writer = BufWriter::with_capacity(SMALL_PIECE, file);
    pieces.iter().try_for_each(|piece| writer.write_all(piece))?;
    writer.flush()
}

#[async_trait]
impl Sink for LocalSink {
    fn name(&self) -> &str {
        &self.name
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        if self.partial.is_none() {
            return Err(self.closed());
        }
        self.buffered_bytes += bytes.len();
        self.buffered.push(bytes);
        if self.buffered_bytes < BUFFER_BYTES {
            return Ok(());
        }
        self.write_buffered().await
    }

    fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    async fn finish(&mut self) -> Result<()> {
        self.write_buffered().await?;
        let Some(partial) = &self.partial else { return Err(self.closed()) };
        let outcome = self.blocking(partial.completion()).await;
        // Nothing is left to be removed, or the file is incomplete.
        self.partial = None;
        outcome
    }

    async fn abort(&mut self) -> Result<()> {
        self.buffered.clear();
        self.buffered_bytes = 0;
        let Some(partial) = self.partial.take() else { return Ok(()) };
        match runtime() {
            Ok(_) => self.blocking(|| partial.remove()).await,
            Err(_) => partial.remove().map_err(|error| Error::write(&self.name, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn what_a_link_points_to_is_replaced_and_what_is_no_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("far")).unwrap();
        std::os::unix::fs::symlink("far/x.vortex", path("link")).unwrap();
        for bytes in [b"one", b"two"] {
            let mut sink = LocalSink::create(path("link")).unwrap();
            sink.write(Bytes::from_static(bytes)).await.unwrap();
            sink.finish().await.unwrap();
            assert_eq!(std::fs::read(path("far/x.vortex")).unwrap(), bytes);
        }
        assert!(path("link").is_symlink());
        assert_eq!(names(&path("far")), ["x.vortex"]);
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let refused = LocalSink::create(path("socket")).unwrap_err();
        assert!(refused.to_string().contains("not a regular file"), "{refused}");
        assert!(LocalSink::create(path("far")).unwrap_err().to_string().contains("folder"));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn links_to_links_are_followed_to_a_file_that_does_not_exist_yet() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("far")).unwrap();
        for (link, to) in [("first", "far/second"), ("far/second", "../third"), ("round", "round")] {
            std::os::unix::fs::symlink(to, path(link)).unwrap();
        }
        let mut sink = LocalSink::create(path("first")).unwrap();
        sink.finish().await.unwrap();
        assert!(path("first").is_symlink() && path("far/second").is_symlink() && path("third").is_file());
        LocalSink::create(path("round")).unwrap().abort().await.unwrap();
    }

    #[tokio::test]
    async fn nothing_is_written_after_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = LocalSink::create(folder.path().join("x")).unwrap();
        sink.finish().await.unwrap();
        let refused = sink.write(Bytes::from_static(b"late")).await.unwrap_err();
        assert!(refused.to_string().contains("already aborted or finished"), "{refused}");
    }

    #[tokio::test]
    async fn a_file_gets_its_name_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.vortex");
        std::fs::write(&path, "old").unwrap();
        let mut sink = LocalSink::create(&path).unwrap();
        for _ in 0..3 {
            sink.write(Bytes::from(vec![7; BUFFER_BYTES / 2])).await.unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(sink.buffered_bytes(), BUFFER_BYTES / 2);
        sink.finish().await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; BUFFER_BYTES / 2 * 3]);
        drop(sink);
        assert_eq!(names(folder.path()), ["x.vortex"]);
    }

    #[tokio::test]
    async fn a_name_may_be_as_long_as_the_file_system_allows() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a".repeat(200), "b".repeat(255), "ä".repeat(120)] {
            let mut sink = LocalSink::create(folder.path().join(&name)).unwrap();
            sink.finish().await.unwrap();
            assert!(names(folder.path()).contains(&name));
        }
        assert_eq!(names(folder.path()).len(), 3);
    }

    #[tokio::test]
    async fn what_is_dropped_or_given_up_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut dropped = LocalSink::create(folder.path().join("a")).unwrap();
        dropped.write(Bytes::from_static(b"abc")).await.unwrap();
        drop(dropped);
        let mut aborted = LocalSink::create(folder.path().join("a")).unwrap();
        aborted.abort().await.unwrap();
        assert!(aborted.finish().await.is_err());
        assert!(names(folder.path()).is_empty());
    }

    #[tokio::test]
    async fn small_pieces_are_written_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut sink = LocalSink::create(&path).unwrap();
        let mut all = Vec::new();
        for (number, len) in [1, 70_000, 0, 3, 900_000, 5, 200_000, 64 << 10, 7].into_iter().enumerate() {
            let piece = vec![number as u8; len];
            all.extend_from_slice(&piece);
            sink.write(piece.into()).await.unwrap();
        }
        sink.finish().await.unwrap();
        assert!(std::fs::read(&path).unwrap() == all);
        assert!(sink.finish().await.unwrap_err().to_string().contains("already"));
        sink.abort().await.unwrap();
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[tokio::test]
    async fn a_file_without_folder_is_an_error_that_names_it() {
        let error = LocalSink::create("/nonexistent/x.vortex").unwrap_err().to_string();
        assert!(error.starts_with("writing /nonexistent/x.vortex: "), "{error}");
        assert!(LocalSink::create("/").is_err());
        assert!(LocalSink::create("/tmp").is_err());
    }
}
