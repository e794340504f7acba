//! Object stores that do not list hidden files, whose names or folders below the listed one begin with `.` or `_`, as
//! in Hive and Spark.
//!
//! Among these are files that are being written, those in which other programs keep notes about a table
//! (`_delta_log/`), and those that macOS puts next to others on foreign disks (`._a.vortex`), which would make a folder
//! unreadable. DataFusion's tables contain all files that a store lists. A hidden file or folder that is named is read.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::ready;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use url::Url;
use vortex_datafusion::is_hidden;

use crate::subfolders::Subfolders;

/// A store that lists visible files only.
#[derive(Debug)]
pub(crate) struct VisibleFiles {
    store: Arc<dyn ObjectStore>,
    /// How to list local files.
    local: Option<Arc<Subfolders>>,
    /// The web server, which its store does not tell.
    server: Option<String>,
}

impl VisibleFiles {
    /// Those of a remote store, in which folders are only parts of names.
    pub(crate) fn of(store: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(Self { store, local: None, server: None })
    }

    /// Those of a web server. Messages and the pace of reads are then about this one, not about all servers.
    pub(crate) fn of_server(store: Arc<dyn ObjectStore>, url: &Url) -> Arc<dyn ObjectStore> {
        Arc::new(Self { store, local: None, server: Some(url.origin().ascii_serialization()) })
    }

    /// Those of the local file system.
    pub(crate) fn local(store: Arc<dyn ObjectStore>, subfolders: &Arc<Subfolders>) -> Arc<dyn ObjectStore> {
        Arc::new(Self { store, local: Some(Arc::clone(subfolders)), server: None })
    }
}

/// The number of names in a path.
fn depth(prefix: Option<&Path>) -> usize {
    prefix.map_or(0, |prefix| prefix.parts().count())
}

/// Whether no name of a path is hidden, after this many.
fn is_visible(path: &Path, after: usize) -> bool {
    !path.parts().skip(after).any(|name| is_hidden(name.as_ref()))
}

/// The visible ones of files that were listed with a prefix.
fn visible(
    files: BoxStream<'static, Result<ObjectMeta>>,
    prefix: Option<&Path>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let depth = depth(prefix);
    let keeps = move |file: &Result<ObjectMeta>| {
        ready(file.as_ref().map_or(true, |file| is_visible(&file.location, depth)))
    };
    files.filter(keeps).boxed()
}

#[async_trait]
impl ObjectStore for VisibleFiles {
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let files = match &self.local {
            Some(subfolders) => subfolders.files(&self.store, prefix),
            None => self.store.list(prefix),
        };
        visible(files, prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        if self.local.is_some() {
            let offset = offset.clone();
            return self.list(prefix).try_filter(move |file| ready(file.location > offset)).boxed();
        }
        visible(self.store.list_with_offset(prefix, offset), prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (mut listed, depth) = (self.store.list_with_delimiter(prefix).await?, depth(prefix));
        listed.common_prefixes.retain(|folder| is_visible(folder, depth));
        listed.objects.retain(|file| is_visible(&file.location, depth));
        Ok(listed)
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.store.get_ranges(path, ranges).await
    }

    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.store.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(paths)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.store.rename_opts(from, to, options).await
    }
}

impl fmt::Display for VisibleFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Some(server) => write!(f, "HttpStore({server})"),
            None => self.store.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt as _;
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn hidden_files_are_not_listed_unless_they_are_in_the_named_folder() {
        let store = VisibleFiles::of(Arc::new(InMemory::new()));
        let paths = [
            "a.vortex",
            "b/c.vortex",
            "._a.vortex",
            "b/.c.vortex",
            "b/.d/e.vortex",
            "_f.vortex",
            "b/_g/h.vortex",
            "_i=1/j.vortex",
        ];
        for path in paths {
            store.put(&Path::from(path), "x".into()).await.unwrap();
        }
        let below = |prefix: Option<&str>| {
            let (store, prefix) = (Arc::clone(&store), prefix.map(Path::from));
            async move {
                let offset = prefix.clone().unwrap_or_default();
                let files: Vec<ObjectMeta> = store.list(prefix.as_ref()).try_collect().await.unwrap();
                let others: Vec<ObjectMeta> =
                    store.list_with_offset(prefix.as_ref(), &offset).try_collect().await.unwrap();
                assert_eq!(files, others);
                files.into_iter().map(|file| file.location.to_string()).collect::<Vec<_>>()
            }
        };
        assert_eq!(below(None).await, ["_i=1/j.vortex", "a.vortex", "b/c.vortex"]);
        assert_eq!(below(Some("b")).await, ["b/c.vortex"]);
        assert_eq!(below(Some("b/.d")).await, ["b/.d/e.vortex"]);
        let listed = store.list_with_delimiter(Some(&Path::from("b"))).await.unwrap();
        assert_eq!((listed.objects.len(), listed.common_prefixes.len()), (1, 0));
        assert_eq!(store.get(&Path::from("b/.c.vortex")).await.unwrap().bytes().await.unwrap(), "x");
    }
}
