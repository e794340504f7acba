//! Files in any object store.

use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectMeta, ObjectStore};

use super::local::read_blocking;
use super::{ReadAt, StorageProfile};
use crate::{Error, Result};

/// An object of an object store, in one version: reads ask for the e-tag that was listed, so
/// that an object overwritten meanwhile is an error and not a mixture.
///
/// A store that serves local files hands out an open descriptor with its first answer; later
/// reads go through that, with no open and stat each.
#[derive(Debug)]
pub struct ObjectFile {
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
    descriptor: OnceLock<Arc<File>>,
    local: bool,
}

impl ObjectFile {
    /// The object that a listing or a head request described.
    pub fn new(store: Arc<dyn ObjectStore>, meta: ObjectMeta) -> Self {
        let local = store.to_string().starts_with("LocalFileSystem");
        Self { store, meta, descriptor: OnceLock::new(), local }
    }

    fn failed(&self, range: &Range<u64>, error: object_store::Error) -> Error {
        Error::read(&self.meta.location, range.clone(), error)
    }
}

#[async_trait]
impl ReadAt for ObjectFile {
    fn name(&self) -> &str {
        self.meta.location.as_ref()
    }

    async fn len(&self) -> Result<u64> {
        Ok(self.meta.size)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if let Some(file) = self.descriptor.get() {
            return read_blocking(Arc::clone(file), self.name(), range).await;
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: self.meta.e_tag.clone(),
            version: self.meta.version.clone(),
            ..GetOptions::default()
        };
        let result = self
            .store
            .get_opts(&self.meta.location, options)
            .await
            .map_err(|error| self.failed(&range, error))?;
        if let GetResultPayload::File(file, _) = result.payload {
            // A second reader may have been as fast; either descriptor will do.
            let file = Arc::clone(self.descriptor.get_or_init(|| Arc::new(file)));
            return read_blocking(file, self.name(), range).await;
        }
        let bytes = result.bytes().await.map_err(|error| self.failed(&range, error))?;
        let expected = range.end - range.start;
        if bytes.len() as u64 != expected {
            let message = format!("the store returned {} bytes instead of {expected}", bytes.len());
            return Err(Error::read(self.name(), range, message));
        }
        Ok(bytes)
    }

    fn profile(&self) -> StorageProfile {
        if self.local || self.descriptor.get().is_some() {
            StorageProfile::LOCAL
        } else {
            StorageProfile::REMOTE
        }
    }
}
