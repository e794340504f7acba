//! Rows of Vortex files, read by the core.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::execution::object_store::ObjectStoreRegistry as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::{ObjectMeta, ObjectStore};
use vortex_core::VortexFile;
use vortex_core::file::Footer;
use vortex_core::io::ObjectFile;
use vortex_core::scan::ScanBuilder;
use vortex_datafusion::recorded_order;

use super::find::Found;
use super::input::{Rows, Wanted};
use crate::failure::{Failure, Outcome};
use crate::stores::Stores;

/// Number of descriptions read at the same time.
const READS: usize = 16;

/// A file whose description has been read. It is opened again for its rows: there may be more files than a
/// process can have open.
struct Described {
    name: String,
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
    footer: Arc<Footer>,
    /// Number of rows to read.
    limit: u64,
}

impl Described {
    async fn read(stores: &Stores, found: Found) -> Outcome<Self> {
        let read = async {
            let store = stores.get_store(found.url.as_ref())?;
            let object = ObjectFile::new(Arc::clone(&store), found.meta.clone());
            let file = VortexFile::open(Arc::new(object)).await?;
            Ok::<_, Failure>((store, Arc::clone(file.footer())))
        };
        let (store, footer) = read.await.map_err(|failure| Failure::at(&found.name, failure))?;
        let limit = footer.row_count();
        Ok(Self { name: found.name, store, meta: found.meta, footer, limit })
    }

    fn scan(&self, columns: Option<&[String]>) -> ScanBuilder {
        let object = ObjectFile::new(Arc::clone(&self.store), self.meta.clone());
        let scan = VortexFile::from_footer(Arc::new(object), Arc::clone(&self.footer)).scan();
        let scan = match columns {
            Some(names) => scan.with_projection(names.iter().map(String::as_str)),
            None => scan,
        };
        if self.limit < self.footer.row_count() { scan.with_limit(self.limit) } else { scan }
    }
}

/// Rows of files, one after the other; `None` if the files have different schemas.
pub(super) async fn scanned(stores: &Stores, files: &[Found], wanted: &Wanted<'_>) -> Outcome<Option<Rows>> {
    let mut schema: Option<SchemaRef> = None;
    let mut left = wanted.limit.unwrap_or(u64::MAX);
    let mut count = 0u64;
    let mut described: Vec<Described> = Vec::with_capacity(files.len());
    let reads = stream::iter(files.to_vec()).map(|found| Described::read(stores, found));
    let mut reads = reads.buffered(READS);
    while let Some(mut file) = reads.try_next().await? {
        let own = file.footer.schema().map_err(|error| Failure::at(&file.name, error))?;
        if *schema.get_or_insert_with(|| Arc::clone(&own)) != own {
            return Ok(None);
        }
        file.limit = file.limit.min(left);
        left -= file.limit;
        count = count.saturating_add(file.limit);
        // The schema of every file counts, but not all of them have rows to read.
        if file.limit > 0 || described.is_empty() {
            described.push(file);
        }
    }
    let Some(first) = described.first() else { return Ok(None) };
    let projected = first.scan(wanted.columns).into_stream();
    let projected = projected.map_err(|error| Failure::at(&first.name, error))?;
    let schema = Arc::clone(projected.schema());
    // Several files may be in order each, but not together.
    let order = if files.len() == 1 { recorded_order(&first.footer, &schema) } else { None };
    let columns = wanted.columns.map(<[String]>::to_vec);
    // A scan starts when the preceding one has ended.
    let batches = stream::iter(described).map(move |file| {
        let scan = file.scan(columns.as_deref());
        let batches = scan.into_stream().map_err(|error| Failure::at(&file.name, error))?;
        Ok::<_, Failure>(batches.map_err(move |error| Failure::at(&file.name, error)))
    });
    let batches = batches.try_flatten().boxed();
    Ok(Some(Rows { schema, count: Some(count), order, batches }))
}
