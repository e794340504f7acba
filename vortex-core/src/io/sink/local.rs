//! Files written to a local disk.
//!
//! ```text
//! dir/.name.tmp-<process>-<number>   written, synced, then renamed to (a long name is left out)
//! dir/name                           and the folder synced
//! ```

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;

use super::Sink;
use crate::io::runtime;
use crate::{Error, Result};

/// Small writes are joined up to this many bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Names of more bytes are not repeated in temporary ones: file systems allow 255 bytes.
const LONG_NAME: usize = 200;

/// Distinguishes the temporary files of one process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A file on a local disk. It is written under a temporary name next to the final one, and renamed once
/// it is complete and synced; an existing file of that name is replaced.
#[derive(Debug)]
pub struct LocalSink {
    name: String,
    path: PathBuf,
    temporary: Temporary,
    file: Arc<File>,
    buffered: Vec<Bytes>,
    buffered_bytes: usize,
}

/// A path that is removed when it goes out of scope.
#[derive(Debug)]
struct Temporary(Option<PathBuf>);

impl Temporary {
    fn remove(&mut self) -> std::io::Result<()> {
        match self.0.take().map_or(Ok(()), std::fs::remove_file) {
            // The file already has its final name, if all that failed is making that durable.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let (Some(path), Err(error)) = (self.0.clone(), self.remove()) {
            tracing::warn!(path = %path.display(), %error, "failed to remove a temporary file");
        }
    }
}

/// The final location of a file that is written under a temporary name and then takes the name `path`:
/// links are followed.
///
/// # Errors
/// If the path is anything but a regular file, such as a folder or a device, which would be lost.
pub fn local_target(path: &Path) -> std::io::Result<PathBuf> {
    match std::fs::metadata(path) {
        Ok(there) if there.is_file() => std::fs::canonicalize(path),
        Ok(there) if there.is_dir() => Err(std::io::Error::other("is a folder")),
        Ok(_) => Err(std::io::Error::other("is not a regular file, and would be replaced by one")),
        // A link whose target does not exist yet.
        Err(_) => match std::fs::read_link(path) {
            Ok(to) => Ok(path.parent().unwrap_or(Path::new("")).join(to)),
            Err(_) => Ok(path.to_path_buf()),
        },
    }
}

impl LocalSink {
    /// Starts a file at `path`, whose folder must exist. The target of a link is replaced, not the link.
    ///
    /// # Errors
    /// If the path is anything but a regular file, or the temporary file cannot be created.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let name = path.as_ref().display().to_string();
        let path = local_target(path.as_ref()).map_err(|error| Error::write(&name, error))?;
        let file_name = path.file_name().ok_or_else(|| Error::write(&name, "not a file name"))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut hidden = OsString::from(".");
        // A longer name might be too long with what is added.
        hidden.push(if file_name.len() <= LONG_NAME { file_name } else { OsStr::new("long-name") });
        hidden.push(format!(".tmp-{}-{number}", std::process::id()));
        let temporary = path.with_file_name(hidden);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .map_err(|error| Error::write(&name, error))?;
        Ok(Self {
            name,
            path,
            temporary: Temporary(Some(temporary)),
            file: Arc::new(file),
            buffered: Vec::new(),
            buffered_bytes: 0,
        })
    }

    /// Runs blocking work on the file on a thread where it does not hold up other tasks.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&File) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let file = Arc::clone(&self.file);
        match runtime()?.spawn_blocking(move || work(&file)).await {
            Ok(outcome) => outcome.map_err(|error| Error::write(&self.name, error)),
            Err(error) => Err(Error::write(&self.name, error)),
        }
    }

    async fn write_buffered(&mut self) -> Result<()> {
        if self.buffered.is_empty() {
            return Ok(());
        }
        if self.temporary.0.is_none() {
            return Err(Error::write(&self.name, "was already aborted or finished"));
        }
        let buffered = std::mem::take(&mut self.buffered);
        self.buffered_bytes = 0;
        let write = move |mut file: &File| buffered.iter().try_for_each(|bytes| file.write_all(bytes));
        let outcome = self.blocking(write).await;
        if outcome.is_err() {
            // An incomplete file must not get its final name. The write error matters more than an error
            // of the removal, which is ignored.
            drop(self.temporary.remove());
        }
        outcome
    }
}

#[async_trait]
impl Sink for LocalSink {
    fn name(&self) -> &str {
        &self.name
    }

    async fn write(&mut self, bytes: Bytes) -> Result<()> {
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
        let Some(temporary) = self.temporary.0.clone() else {
            return Err(Error::write(&self.name, "was already aborted or finished"));
        };
        let path = self.path.clone();
        let finish = move |file: &File| {
            file.sync_all()?;
            std::fs::rename(&temporary, &path)?;
            match sync_folder(&path) {
                // Writing to a folder does not take permission to read it, as syncing it does.
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
                synced => synced,
            }
        };
        self.blocking(finish).await?;
        self.temporary.0 = None;
        Ok(())
    }

    async fn abort(&mut self) -> Result<()> {
        self.buffered.clear();
        self.buffered_bytes = 0;
        let mut temporary = std::mem::replace(&mut self.temporary, Temporary(None));
        match runtime() {
            Ok(_) => self.blocking(move |_| temporary.remove()).await,
            Err(_) => temporary.remove().map_err(|error| Error::write(&self.name, error)),
        }
    }
}

/// Makes the new name of a file durable.
#[cfg(unix)]
fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Other systems sync names on their own, or offer no way to request it.
#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> std::io::Result<()> {
    Ok(())
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
    async fn a_file_that_has_its_name_already_leaves_nothing_to_remove() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = LocalSink::create(folder.path().join("a")).unwrap();
        let temporary = sink.temporary.0.clone().unwrap();
        std::fs::rename(temporary, folder.path().join("a")).unwrap();
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
