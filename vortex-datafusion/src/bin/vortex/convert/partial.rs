//! Files that have a temporary name until they are complete.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use vortex_core::io::{PartialFile, local_target};

use crate::failure::{Failure, Outcome};

/// The temporary names of all files that are being written.
static ALL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn all<T>(change: impl FnOnce(&mut BTreeSet<PathBuf>) -> T) -> T {
    change(&mut ALL.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Removes the files that are being written, since the process is about to end without dropping them. No thread starts
/// another one while `end` runs.
pub(crate) fn remove_all<T>(end: impl FnOnce() -> T) -> T {
    all(|all| {
        for temporary in std::mem::take(all) {
            // Nothing more can be done about a file that cannot be removed.
            let _ = fs::remove_file(temporary);
        }
        end()
    })
}

/// A file that is being written. It is removed if dropped before it is complete.
#[derive(Debug)]
pub(super) struct Partial {
    file: PartialFile,
    // Dropped after the file, which is gone then.
    _listed: Listed,
    /// The name in messages.
    place: String,
}

/// A temporary name, until it is no longer used.
#[derive(Debug)]
struct Listed(PathBuf);

impl Drop for Listed {
    fn drop(&mut self) {
        all(|all| all.remove(&self.0));
    }
}

impl Partial {
    /// Starts a file, which may replace another one.
    pub(super) fn create(target: &Path) -> Outcome<Self> {
        Self::start(target, PartialFile::create)
    }

    /// Starts a file where there is none.
    pub(super) fn create_new(target: &Path) -> Outcome<Self> {
        Self::start(target, PartialFile::create_new)
    }

    fn start(target: &Path, start: fn(&Path) -> io::Result<PartialFile>) -> Outcome<Self> {
        let place = target.display().to_string();
        local_target(target).map_err(|error| Failure::Usage(format!("{place}: {error}")))?;
        let create = |all: &mut BTreeSet<PathBuf>| {
            let file = start(target)?;
            let temporary = file.temporary().to_path_buf();
            all.insert(temporary.clone());
            Ok((file, Listed(temporary)))
        };
        let (file, listed) = all(create).map_err(|error: io::Error| Failure::at(&place, error))?;
        Ok(Self { file, _listed: listed, place })
    }

    /// A handle to write through.
    pub(super) fn file(&self) -> Outcome<File> {
        self.file.file().try_clone().map_err(|error| Failure::at(&self.place, error))
    }

    /// Makes the file durable and gives it its final name.
    pub(super) fn complete(self) -> Outcome {
        let Self { file, _listed, place } = self;
        file.complete().map_err(|error| Failure::at(place, error))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_name_appears_with_the_last_byte_or_never() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out.csv");
        let files = || fs::read_dir(&folder).unwrap().count();
        drop(Partial::create(&target).unwrap());
        assert_eq!(files(), 0);
        let ended = Partial::create_new(&target).unwrap();
        remove_all(|| ());
        assert_eq!(files(), 0);
        drop(ended);
        let partial = Partial::create(&target).unwrap();
        partial.file().unwrap().write_all(b"rows").unwrap();
        assert!(!target.exists());
        partial.complete().unwrap();
        assert_eq!((fs::read(&target).unwrap().as_slice(), files()), (b"rows".as_slice(), 1));
    }
}
