//! Local files that have a temporary name until they are complete.
//!
//! ```text
//! dir/.name.tmp-<process>-<number>   written, synced, then renamed to (a long name is left out)
//! dir/name                           and the folder synced
//! ```

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Names of more bytes are not repeated in temporary ones: file systems allow 255 bytes.
const LONG_NAME: usize = 200;
/// Links that are followed one after the other, as many as Linux follows.
const MAX_LINKS: usize = 40;

/// Distinguishes the temporary files of one process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A local file that is being written, under a hidden name next to its final one, so that both are on the same disk.
/// It is removed if dropped before it is complete. All functions block.
#[derive(Debug)]
pub struct PartialFile {
    file: Arc<File>,
    temporary: PathBuf,
    target: PathBuf,
    /// Whether another file of its name gives way.
    replaces: bool,
    /// Whether it was attempted to remove the file.
    is_removed: Arc<AtomicBool>,
}

impl PartialFile {
    /// Starts a file that will be at `path`, whose folder must exist. The target of a link is replaced, not the link. A
    /// file that replaces another one takes over its permissions, though not its owner.
    ///
    /// # Errors
    /// If the path is anything but a regular file, or no file can be created there.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::start(path, true)
    }

    /// As [`create`](Self::create), but a file that has this name by the time this one is complete stays, and
    /// completing fails. Where the file system has no hard links, one that gets its name in the same moment is
    /// replaced.
    ///
    /// # Errors
    /// As `create`, and if there is such a file already.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        let partial = Self::start(path, false)?;
        if partial.target.try_exists()? { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(partial) }
    }

    fn start(path: &Path, replaces: bool) -> io::Result<Self> {
        let target = local_target(path)?;
        let name = target.file_name().ok_or_else(|| io::Error::other("not a file name"))?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let temporary = target.with_file_name(temporary_name(name, number));
            match File::create_new(&temporary) {
                Ok(file) => {
                    let file = Arc::new(file);
                    let partial = Self { file, temporary, target, replaces, is_removed: Arc::default() };
                    if replaces && let Ok(replaced) = partial.target.metadata() {
                        let permissions = replaced.permissions();
                        // Some file systems refuse to set any.
                        if partial.file.metadata()?.permissions() != permissions {
                            partial.file.set_permissions(permissions)?;
                        }
                    }
                    return Ok(partial);
                }
                // Left behind by a process of the same number that was killed; in containers, that number is often 1.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The open file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Where the file is until it is complete.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Makes the file durable and gives it its final name; an existing file of that name is replaced, unless this one
    /// was [to be new](Self::create_new).
    ///
    /// # Errors
    /// If any of that fails. The file is removed then, unless all that failed is making its name durable.
    pub fn complete(self) -> io::Result<()> {
        self.completion()()
    }

    /// The work of completing the file. If this is dropped meanwhile, the file is removed, unless it has its final name
    /// already.
    pub(super) fn completion(&self) -> impl FnOnce() -> io::Result<()> + Send + 'static {
        let (file, temporary, target) = (Arc::clone(&self.file), self.temporary.clone(), self.target.clone());
        let (replaces, is_removed) = (self.replaces, Arc::clone(&self.is_removed));
        move || {
            file.sync_all()?;
            if is_removed.load(Ordering::Relaxed) {
                // Systems that remove files once they are closed would still rename it.
                return Err(io::ErrorKind::NotFound.into());
            }
            if replaces {
                std::fs::rename(&temporary, &target)?
            } else {
                rename_new(&temporary, &target)?
            }
            match sync_folder(&target) {
                // Writing to a folder does not take permission to read it, as syncing it does.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                synced => synced,
            }
        }
    }

    /// Removes the file.
    ///
    /// # Errors
    /// If that fails.
    pub fn remove(self) -> io::Result<()> {
        self.remove_once()
    }

    fn remove_once(&self) -> io::Result<()> {
        if self.is_removed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        match std::fs::remove_file(&self.temporary) {
            // It has its final name if it is complete.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// Renames a file unless there is one with that name.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists || to.try_exists()? => Err(error),
        // Not all file systems have links.
        Err(_) => std::fs::rename(from, to),
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Err(error) = self.remove_once() {
            tracing::warn!(path = %self.temporary.display(), %error, "failed to remove a temporary file");
        }
    }
}

fn temporary_name(name: &OsStr, number: u64) -> OsString {
    let mut hidden = OsString::from(".");
    // A longer name might be too long with what is added.
    hidden.push(if name.len() <= LONG_NAME { name } else { OsStr::new("long-name") });
    hidden.push(format!(".tmp-{}-{number}", std::process::id()));
    hidden
}

/// The final location of a file that is written under a temporary name and then takes the name `path`:
/// links are followed.
///
/// # Errors
/// If the path is anything but a regular file, such as a folder or a device, which would be lost.
pub fn local_target(path: &Path) -> io::Result<PathBuf> {
    match std::fs::metadata(path) {
        Ok(there) if there.is_file() => std::fs::canonicalize(path),
        Ok(there) if there.is_dir() => Err(io::Error::other("is a folder")),
        Ok(_) => Err(io::Error::other("is not a regular file, and would be replaced by one")),
        Err(_) => Ok(end_of_links(path)),
    }
}

/// Where a link leads whose target does not exist yet, which may be a link itself. Links that lead round in circles,
/// which no system follows, end anywhere.
fn end_of_links(path: &Path) -> PathBuf {
    let mut end = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Ok(to) = std::fs::read_link(&end) else { break };
        end = end.parent().unwrap_or(Path::new("")).join(to);
    }
    end
}

/// Makes the new name of a file durable.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Other systems sync names on their own, or offer no way to request it.
#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_of_the_same_number_left_behind_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        let next = NEXT.load(Ordering::Relaxed);
        // Other tests take numbers, too.
        let left =
            (next..next + 100).map(|number| target.with_file_name(temporary_name(OsStr::new("a"), number)));
        for left in left.clone() {
            std::fs::write(left, "left").unwrap();
        }
        PartialFile::create(&target).unwrap().complete().unwrap();
        assert!(std::fs::read(&target).unwrap().is_empty());
        assert!(left.into_iter().all(|left| std::fs::read(left).unwrap() == b"left"));
    }

    #[test]
    fn a_file_that_is_to_be_new_replaces_none_that_appears_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        let (first, second) =
            (PartialFile::create_new(&target).unwrap(), PartialFile::create_new(&target).unwrap());
        std::io::Write::write_all(&mut first.file().as_ref(), b"first").unwrap();
        first.complete().unwrap();
        assert_eq!(second.complete().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(PartialFile::create_new(&target).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&target).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_replaces_another_takes_over_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        for mode in [0o600, 0o640, 0o444] {
            std::fs::write(folder.path().join("old"), "old").unwrap();
            std::fs::rename(folder.path().join("old"), &target).unwrap();
            std::fs::set_permissions(&target, PermissionsExt::from_mode(mode)).unwrap();
            PartialFile::create(&target).unwrap().complete().unwrap();
            let replaced = std::fs::metadata(&target).unwrap();
            assert_eq!((replaced.permissions().mode() & 0o777, replaced.len()), (mode, 0));
        }
    }

    #[test]
    fn a_file_that_is_dropped_before_it_has_its_name_never_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let partial = PartialFile::create(&folder.path().join("a")).unwrap();
        let completion = partial.completion();
        drop(partial);
        assert!(completion().is_err());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn a_file_is_at_one_place_at_a_time_or_at_none() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        let files = || std::fs::read_dir(&folder).unwrap().count();
        drop(PartialFile::create(&target).unwrap());
        assert_eq!(files(), 0);
        PartialFile::create(&target).unwrap().remove().unwrap();
        assert_eq!(files(), 0);
        let partial = PartialFile::create(&target).unwrap();
        assert!(partial.temporary().exists() && !target.exists());
        partial.complete().unwrap();
        assert_eq!((files(), target.exists()), (1, true));
    }
}
