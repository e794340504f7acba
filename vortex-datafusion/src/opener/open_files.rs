//! Files that scans of one plan have open.

use std::sync::Arc;

use datafusion_common::{DataFusionError, HashMap, Result};
use futures::future::{BoxFuture, Shared, WeakShared};
use object_store::ObjectMeta;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use vortex_core::VortexFile;

use crate::reading::footers::same_version;

/// Entries of finished scans are removed when there are this many entries.
const SWEEP_AT: usize = 64;

/// Files that scans of one plan have open: partitions that read different ranges of a file share its
/// descriptor and the bytes they fetch. A file is closed when its last scan ends.
///
/// Nothing is shared between runtimes: one that stands still would hold up the others.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    files: Mutex<HashMap<Key, (ObjectMeta, WeakShared<Opening>)>>,
}

type Key = (Path, Option<Id>);
type Opening = BoxFuture<'static, Result<VortexFile, Arc<DataFusionError>>>;

/// A file that is opened once for all that wait for it, by whichever of them is polled.
pub(crate) type OpenFile = Shared<Opening>;

impl OpenFiles {
    /// The file in the version that `meta` describes; `open` opens it if it is not open.
    pub(crate) fn entry(&self, meta: &ObjectMeta, open: impl FnOnce() -> OpenFile) -> OpenFile {
        let key = (meta.location.clone(), runtime());
        let mut files = self.files.lock();
        if let Some((version, file)) = files.get(&key)
            && same_version(version, meta)
            && let Some(file) = file.upgrade()
        {
            return file;
        }
        if files.len() >= SWEEP_AT {
            files.retain(|_, (_, file)| file.upgrade().is_some());
        }
        let file = open();
        if let Some(shared) = file.downgrade() {
            files.insert(key, (meta.clone(), shared));
        }
        file
    }
}

/// The runtime that polls the caller.
pub(crate) fn runtime() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn meta(e_tag: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            location: Path::from("a.vortex"),
            last_modified: Default::default(),
            size: 10,
            e_tag: e_tag.map(str::to_owned),
            version: None,
        }
    }

    fn opened() -> OpenFile {
        futures::future::pending().boxed().shared()
    }

    #[test]
    fn readers_of_one_version_share_the_file() {
        let files = OpenFiles::default();
        let first = files.entry(&meta(Some("1")), opened);
        assert!(first.ptr_eq(&files.entry(&meta(Some("1")), opened)));
        assert!(!first.ptr_eq(&files.entry(&meta(Some("2")), opened)));
    }

    #[test]
    fn a_file_closes_with_its_last_reader() {
        let files = OpenFiles::default();
        drop(files.entry(&meta(None), opened));
        let (_, file) = &files.files.lock()[&(Path::from("a.vortex"), None)];
        assert!(file.upgrade().is_none());
    }

    #[tokio::test]
    async fn runtimes_do_not_share_files() {
        let files = Arc::new(OpenFiles::default());
        let first = files.entry(&meta(None), opened);
        let other = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _entered = runtime.enter();
            files.entry(&meta(None), opened)
        });
        assert!(!first.ptr_eq(&other.join().unwrap()));
    }

    #[tokio::test]
    async fn a_file_opens_although_its_first_reader_is_not_polled() {
        let files = OpenFiles::default();
        let (answer, answered) = tokio::sync::oneshot::channel::<()>();
        let refused = async move {
            let _ = answered.await;
            Err(Arc::new(DataFusionError::Internal("refused".to_owned())))
        };
        let mut first = files.entry(&meta(None), || refused.boxed().shared());
        let second = files.entry(&meta(None), opened);
        assert!(futures::poll!(&mut first).is_pending());
        answer.send(()).unwrap();
        assert!(second.await.is_err());
    }
}
