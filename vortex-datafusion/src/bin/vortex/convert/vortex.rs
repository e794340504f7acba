//! Rows of Vortex files, read by the core.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::execution::object_store::ObjectStoreRegistry as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::{ObjectMeta, ObjectStore};
use vortex_core::VortexFile;
use vortex_core::file::{Footer, OpenOptions};
use vortex_core::io::ObjectFile;
use vortex_core::scan::{BatchStream, ScanBuilder};
use vortex_datafusion::recorded_order;

use super::find::Found;
use super::input::{Rows, Wanted, are_local};
use crate::failure::{Failure, Outcome};
use crate::stores::Stores;

/// Number of descriptions read at the same time.
const READS: usize = 32;
/// Files in object stores whose first rows are read before their turn, unless the files have more bytes on average.
const AHEAD: usize = 16;
const AHEAD_BYTES: u64 = 4 << 20;
/// Bytes of descriptions that are kept until the rows of their files are read. Those of further files are read again.
const MAX_KEPT: usize = 64 << 20;

/// A file whose description has been read. It is opened again for its rows: there may be more files than a
/// process can have open.
struct Described {
    name: String,
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
    /// Its description, unless those of other files take too much memory.
    footer: Option<Arc<Footer>>,
    row_count: u64,
    /// Number of rows to read.
    limit: u64,
}

impl Described {
    async fn read(stores: &Stores, found: Found) -> Outcome<(Self, Arc<Footer>)> {
        let read = async {
            let store = stores.get_store(found.url.as_ref())?;
            let object = ObjectFile::new(Arc::clone(&store), found.meta.clone());
            let file = options().open(Arc::new(object)).await?;
            Ok::<_, Failure>((store, Arc::clone(file.footer())))
        };
        let (store, footer) = read.await.map_err(|failure| Failure::at(&found.name, failure))?;
        let row_count = footer.row_count();
        let this =
            Self { name: found.name, store, meta: found.meta, footer: None, row_count, limit: row_count };
        Ok((this, footer))
    }

    async fn stream(&self, columns: Option<&[String]>) -> Outcome<BatchStream> {
        let scan = async { Ok::<_, Failure>(self.scan(columns).await?.into_stream()?) };
        scan.await.map_err(|failure| Failure::at(&self.name, failure))
    }

    async fn scan(&self, columns: Option<&[String]>) -> Outcome<ScanBuilder> {
        let object = Arc::new(ObjectFile::new(Arc::clone(&self.store), self.meta.clone()));
        let file = match &self.footer {
            Some(footer) => VortexFile::from_footer(object, Arc::clone(footer)),
            None => options().open(object).await?,
        };
        let scan = match columns {
            Some(names) => file.scan().with_projection(names.iter().map(String::as_str)),
            None => file.scan(),
        };
        Ok(if self.limit < self.row_count { scan.with_limit(self.limit) } else { scan })
    }
}

/// As all of a file is read, its checksums are verified if it has any.
fn options() -> OpenOptions {
    OpenOptions::new().with_verify_checksums(true)
}

/// Rows of files, one after the other; `None` if the files have different schemas.
pub(super) async fn scan(stores: &Stores, files: &[Found], wanted: &Wanted<'_>) -> Outcome<Option<Rows>> {
    let mut schema: Option<SchemaRef> = None;
    let mut left = wanted.limit.unwrap_or(u64::MAX);
    let mut count = 0u64;
    let mut kept = 0;
    let mut described: Vec<Described> = Vec::with_capacity(files.len());
    let reads = stream::iter(files.to_vec()).map(|found| Described::read(stores, found));
    let mut reads = reads.buffered(READS);
    while let Some((mut file, footer)) = reads.try_next().await? {
        let own = footer.schema().map_err(|error| Failure::at(&file.name, error))?;
        if *schema.get_or_insert_with(|| Arc::clone(&own)) != own {
            return Ok(None);
        }
        file.limit = file.limit.min(left);
        left -= file.limit;
        count = count.saturating_add(file.limit);
        // The schema of every file counts, but not all of them have rows to read.
        if file.limit > 0 || described.is_empty() {
            let bytes = footer.memory_size();
            if described.is_empty() || bytes <= MAX_KEPT - kept {
                kept = MAX_KEPT.min(kept + bytes);
                file.footer = Some(footer);
            }
            described.push(file);
        }
    }
    let Some(first) = described.first() else { return Ok(None) };
    let projected = first.stream(wanted.columns).await?;
    let schema = Arc::clone(projected.schema());
    // Several files may be in order each, but not together.
    let order = match (files, &first.footer) {
        ([_], Some(footer)) => recorded_order(footer, &schema),
        _ => None,
    };
    let columns = wanted.columns.map(<[String]>::to_vec);
    let bytes: u64 = described.iter().map(|file| file.meta.size).sum();
    let is_short = bytes / described.len() as u64 <= AHEAD_BYTES;
    let at_once = if is_short && !are_local(files) { AHEAD } else { 1 };
    let batches = stream::iter(described).map(move |file| {
        let columns = columns.clone();
        async move {
            let mut batches = file.stream(columns.as_deref()).await?;
            let first = batches.next().await;
            let batches = stream::iter(first).chain(batches);
            Ok::<_, Failure>(batches.map_err(move |error| Failure::at(&file.name, error)))
        }
    });
    let batches = batches.buffered(at_once).try_flatten().boxed();
    Ok(Some(Rows { schema, count: Some(count), order, batches }))
}
