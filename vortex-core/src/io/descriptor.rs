//! Open files on a local disk, and whether they have changed since.

use std::fs::{File, Metadata};
use std::sync::Arc;
use std::time::SystemTime;

/// An open file. One that replaces it under its name is another file; but programs such as `cp` write into the file
/// itself, and what is read of it then may belong to either version.
#[derive(Debug, Clone)]
pub(super) struct Descriptor {
    pub(super) file: Arc<File>,
    first: State,
}

/// What changes when a file is written, unless within the few milliseconds that the clock of a file system may take
/// from one time to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    len: u64,
    modified: Option<SystemTime>,
}

impl State {
    fn of(metadata: &Metadata) -> Self {
        Self { len: metadata.len(), modified: metadata.modified().ok() }
    }
}

impl Descriptor {
    /// An open file, before it is read.
    ///
    /// # Errors
    /// If nothing can be found out about it.
    pub(super) fn new(file: File) -> std::io::Result<Self> {
        let first = State::of(&file.metadata()?);
        Ok(Self { file: Arc::new(file), first })
    }

    /// Number of bytes, when it was opened.
    pub(super) fn len(&self) -> u64 {
        self.first.len
    }

    /// Whether the file was written since it was opened. To be asked after bytes were read: they are those of the
    /// version that was opened only if it was not.
    pub(super) fn is_changed(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| State::of(&metadata) != self.first)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::local::LocalFileSystem;
    use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt as _};

    use super::super::{LocalFile, ObjectFile, ReadAt};
    use super::*;

    /// Writes into a file that was written at another time than now.
    fn write_into(path: &std::path::Path, bytes: &[u8]) {
        std::fs::write(path, bytes).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(bytes.len() as u64)).unwrap();
    }

    #[tokio::test]
    async fn a_file_that_is_written_while_it_is_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.vortex");
        for written in [b"other bytes", &b"fewer"[..], &b"many more bytes"[..]] {
            write_into(&path, b"first bytes.");
            let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(&folder).unwrap());
            let meta = store.head(&"a.vortex".into()).await.unwrap();
            let object: Arc<dyn ReadAt> = Arc::new(ObjectFile::new(store, meta));
            let local: Arc<dyn ReadAt> = Arc::new(LocalFile::open(&path).unwrap());
            for source in [&object, &local] {
                assert_eq!(source.read(0..5).await.unwrap(), "first");
                assert_eq!(source.read_many(&[6..8, 9..11]).await.unwrap()[1].as_slice(), b"es");
            }
            write_into(&path, written);
            for source in [&object, &local] {
                assert!(source.at_hand(&(0..5)).is_none());
                source.read(0..5).await.unwrap_err();
                source.read_many(&[6..8, 9..11]).await.unwrap_err();
            }
            let error = object.read(0..5).await.unwrap_err();
            let crate::Error::Read { source, .. } = error.root() else { panic!("{error}") };
            assert!(matches!(source.downcast_ref(), Some(StoreError::Precondition { .. })), "{error}");
        }
    }

    #[tokio::test]
    async fn a_file_that_replaces_another_leaves_its_readers_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [path, new] = ["a.vortex", "new"].map(|name| folder.path().join(name));
        write_into(&path, b"first");
        let local = LocalFile::open(&path).unwrap();
        write_into(&new, b"other bytes");
        std::fs::rename(&new, &path).unwrap();
        assert_eq!(local.read(0..5).await.unwrap(), "first");
    }
}
