//! Local folders, listed one by one, since subfolders may be hidden, without interest or not readable, or be links that
//! lead back: then, a list of all that is below would fail, or take long.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore, Result};
use vortex_datafusion::is_hidden;

/// Which subfolders have files that are listed with a folder: all, or those named after values (`day=1`). Tables leave
/// out the files of others, unless `datafusion.execution.listing_table_ignore_subdirectory` is false.
#[derive(Debug, Default)]
pub(crate) struct Subfolders {
    only_of_values: AtomicBool,
}

impl Subfolders {
    pub(crate) fn only_of_values(&self, only: bool) {
        self.only_of_values.store(only, Ordering::Relaxed);
    }

    /// The files of a folder, and of these subfolders.
    pub(crate) fn files(
        &self,
        store: &Arc<dyn ObjectStore>,
        folder: Option<&Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let only_of_values = self.only_of_values.load(Ordering::Relaxed);
        files_below(Arc::clone(store), folder.cloned().unwrap_or_default(), move |subfolder| {
            !only_of_values || subfolder.filename().is_some_and(|name| name.contains('='))
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
    let path = LocalFileSystem::new().path_to_filesystem(folder).ok()?;
    match path.canonicalize() {
        Ok(target) => Some(target),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // Listing it tells why.
        Err(_) => Some(path),
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
    async fn files_are_in_all_visible_subfolders_or_in_those_of_values() {
        let (folder, subfolders) = (folder(), Subfolders::default());
        assert_eq!(
            listed(&folder, &subfolders).await,
            ["a", "b/c", "b/d/e", "h=1/i", "h=1/j=2/k", "h=1/l/m"]
        );
        subfolders.only_of_values(true);
        assert_eq!(listed(&folder, &subfolders).await, ["a", "h=1/i", "h=1/j=2/k"]);
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
        subfolders.only_of_values(false);
        let files = listed(&folder, &subfolders).await;
        assert_eq!(files, ["a", "b/c", "b/d/e", "b/other/x", "h=1/i", "h=1/j=2/k", "h=1/l/m"]);
    }
}
