//! Local folders, listed one by one, since subfolders may be hidden, without interest or not readable, or be links that
//! lead back: then, a list of all that is below would fail, or take long.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use glob::Pattern;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore, Result};
use parking_lot::Mutex;
use vortex_datafusion::is_hidden;

/// Which subfolders have files that are listed with a folder: all, or those that tables do not leave out.
///
/// Unless `datafusion.execution.listing_table_ignore_subdirectory` is false, tables have files of subfolders that are
/// named after values (`day=1`), and of those that the pattern of the table matches: that is held against the first
/// name below the folder, be it of a file or a folder.
#[derive(Debug)]
pub(crate) struct Subfolders {
    only_of_tables: AtomicBool,
    /// The patterns of all tables.
    patterns: Mutex<Vec<Pattern>>,
}

impl Default for Subfolders {
    fn default() -> Self {
        // The plugin applies this one to folders of Vortex files.
        let vortex = Pattern::new("*.vortex").ok();
        Self { only_of_tables: AtomicBool::new(false), patterns: Mutex::new(vortex.into_iter().collect()) }
    }
}

impl Subfolders {
    pub(crate) fn only_of_tables(&self, only: bool) {
        self.only_of_tables.store(only, Ordering::Relaxed);
    }

    /// Adds the pattern of a table.
    pub(crate) fn add(&self, pattern: &Pattern) {
        let mut patterns = self.patterns.lock();
        if !patterns.contains(pattern) {
            patterns.push(pattern.clone());
        }
    }

    /// The files of a folder, and of these subfolders.
    pub(crate) fn files(
        &self,
        store: &Arc<dyn ObjectStore>,
        folder: Option<&Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let patterns = self.only_of_tables.load(Ordering::Relaxed).then(|| self.patterns.lock().clone());
        let folder = folder.cloned().unwrap_or_default();
        files_below(Arc::clone(store), folder.clone(), move |subfolder| {
            let (Some(patterns), Some(below)) = (&patterns, subfolder.prefix_match(&folder)) else {
                return true;
            };
            let first = below.map(|name| name.as_ref().to_owned()).find(|name| !name.contains('='));
            first.is_none_or(|name| patterns.iter().any(|pattern| pattern.matches(&name)))
        })
    }
}

/// The files in a local folder and those subfolders that are visible and entered. Links to folders are followed,
/// unless they lead back.
pub(crate) fn files_below(
    store: Arc<dyn ObjectStore>,
    folder: Path,
    enters: impl Fn(&Path) -> bool + Send + Sync + 'static,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let around = target(&folder).into_iter().collect();
    let list = Arc::new((store, enters));
    let listed = stream::try_unfold(vec![(folder, around)], move |mut folders: Vec<(Path, Vec<PathBuf>)>| {
        let list = Arc::clone(&list);
        async move {
            let (store, enters) = list.as_ref();
            let Some((folder, around)) = folders.pop() else { return Ok::<_, Error>(None) };
            let listed = store.list_with_delimiter(Some(&folder)).await?;
            for subfolder in listed.common_prefixes {
                if subfolder.filename().is_none_or(is_hidden) || !enters(&subfolder) {
                    continue;
                }
                let Some(place) = target(&subfolder).filter(|place| !around.contains(place)) else {
                    continue;
                };
                let around = around.iter().cloned().chain([place]).collect();
                folders.push((subfolder, around));
            }
            Ok(Some((stream::iter(listed.objects).map(Ok), folders)))
        }
    });
    listed.try_flatten().boxed()
}

/// The folder at a path, after following links, if it is there.
fn target(folder: &Path) -> Option<PathBuf> {
    // The name of a folder may be one that no file may have.
    let file = LocalFileSystem::new().path_to_filesystem(&folder.clone().join("file")).ok()?;
    let path = file.parent()?;
    match path.canonicalize() {
        Ok(target) => Some(target),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // Listing it tells why.
        Err(_) => Some(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    async fn listed(folder: &TempDir, subfolders: &Subfolders) -> Vec<String> {
        let prefix = Path::from_absolute_path(folder.path()).unwrap();
        let files = subfolders.files(&(Arc::new(LocalFileSystem::new()) as _), Some(&prefix));
        let files: Vec<ObjectMeta> = files.try_collect().await.unwrap();
        let below = |file: ObjectMeta| {
            let names = file.location.prefix_match(&prefix).unwrap();
            names.map(|name| name.as_ref().to_owned()).collect::<Vec<_>>().join("/")
        };
        let mut files: Vec<String> = files.into_iter().map(below).collect();
        files.sort();
        files
    }

    fn folder() -> TempDir {
        let folder = TempDir::new().unwrap();
        for file in ["a", "b/c", "b/d/e", ".f/g", "h=1/i", "h=1/j=2/k", "h=1/l/m"] {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "x").unwrap();
        }
        folder
    }

    #[tokio::test]
    async fn files_are_in_all_visible_subfolders_or_in_those_of_tables() {
        let (folder, subfolders) = (folder(), Subfolders::default());
        assert_eq!(
            listed(&folder, &subfolders).await,
            ["a", "b/c", "b/d/e", "h=1/i", "h=1/j=2/k", "h=1/l/m"]
        );
        subfolders.only_of_tables(true);
        assert_eq!(listed(&folder, &subfolders).await, ["a", "h=1/i", "h=1/j=2/k"]);
        subfolders.add(&Pattern::new("[bc]").unwrap());
        assert_eq!(listed(&folder, &subfolders).await, ["a", "b/c", "b/d/e", "h=1/i", "h=1/j=2/k"]);
        subfolders.add(&Pattern::new("l*").unwrap());
        assert_eq!(
            listed(&folder, &subfolders).await,
            ["a", "b/c", "b/d/e", "h=1/i", "h=1/j=2/k", "h=1/l/m"]
        );
        let odd = folder.path().join("n=a#1");
        fs::create_dir(&odd).unwrap();
        fs::write(odd.join("o"), "x").unwrap();
        assert!(listed(&folder, &subfolders).await.contains(&"n=a#1/o".to_owned()));
    }

    #[tokio::test]
    #[cfg(unix)]
    async fn links_to_folders_are_followed_unless_they_lead_back() {
        let (folder, other, subfolders) = (folder(), TempDir::new().unwrap(), Subfolders::default());
        fs::write(other.path().join("x"), "x").unwrap();
        let link = |to: &std::path::Path, name: &str| {
            std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
        };
        link(folder.path(), "b/d/back");
        link(other.path(), "b/other");
        link(std::path::Path::new("nowhere"), "b/broken");
        link(std::path::Path::new(".."), ".f/back");
        let files = listed(&folder, &subfolders).await;
        assert_eq!(files, ["a", "b/c", "b/d/e", "b/other/x", "h=1/i", "h=1/j=2/k", "h=1/l/m"]);
    }
}
