//! Tests of object stores that serve local files, and of stores around them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::limit::LimitStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::io::{ObjectFile, ReadAt as _, StorageProfile, object_name};

/// Local files, with a count of how often one was opened.
#[derive(Debug)]
struct Counting(LocalFileSystem, AtomicUsize);

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Counting {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.get_opts(location, options).await
    }

    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, options).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn many_small_reads_of_a_local_file_open_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    let path = Path::from("file");
    store.put(&path, PutPayload::from((0..=255u8).collect::<Vec<_>>())).await.unwrap();
    let meta = store.head(&path).await.unwrap();
    let store = Arc::new(Counting(store, AtomicUsize::new(0)));
    let file = ObjectFile::new(Arc::clone(&store) as _, meta);
    let ranges: Vec<_> = (0..100).map(|at| 2 * at..2 * at + 1).collect();
    for _ in 0..2 {
        let pieces = file.read_many(&ranges).await.unwrap();
        assert!(pieces.iter().zip(&ranges).all(|(piece, range)| piece.as_slice() == [range.start as u8]));
        assert_eq!(pieces.len(), ranges.len());
    }
    assert_eq!(store.1.load(Ordering::SeqCst), 1);
    assert!(file.read_many(&[]).await.unwrap().is_empty());
}

#[test]
fn a_store_around_a_local_one_has_its_names_but_counts_as_remote() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, part) = (LocalFileSystem::new(), LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let path = Path::from("a/b");
    let of = |store: &dyn ObjectStore| (StorageProfile::of(store), object_name(store, &path));
    let absolute = if cfg!(unix) { "/a/b" } else { "a/b" };
    assert_eq!(of(&whole), (StorageProfile::LOCAL, absolute.into()));
    assert_eq!(of(&part), (StorageProfile::LOCAL, "a/b".into()));
    assert_eq!(of(&LimitStore::new(whole, 1)), (StorageProfile::REMOTE, absolute.into()));
    assert_eq!(of(&object_store::memory::InMemory::new()), (StorageProfile::REMOTE, "a/b".into()));
}
