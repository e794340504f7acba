//! The columns of Arrow IPC files.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::convert::try_schema_from_ipc_buffer;
use datafusion::common::Result;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectMeta, ObjectStore};

use super::text::named;
use crate::columns::repeated_name;

/// Schemas are expected within so many bytes from the start of a file.
const START_BYTES: u64 = 1 << 20;

/// The columns of files in a remote store, unless a web server does not return their start. From there, DataFusion does
/// not read the files that it and other programs in Rust write: they begin with 64 instead of 8 bytes of magic and
/// padding. See `tests/it/upstream/files.rs`: `arrow_files_of_rust_are_not_found_in_remote_stores`. Local files are
/// checked, but left to DataFusion, which looks at their ends, too.
///
/// # Errors
/// If columns have the same name: DataFusion takes them for one, and reads those behind them from the wrong place.
pub(super) async fn schema(
    store: &Arc<dyn ObjectStore>,
    objects: &[ObjectMeta],
) -> Result<Option<SchemaRef>> {
    let (mut schemas, mut is_local) = (Vec::with_capacity(objects.len()), false);
    for object in objects {
        if object.size == 0 {
            return Ok(None);
        }
        let range = Some(GetRange::Bounded(0..object.size.min(START_BYTES)));
        let start = match store.get_opts(&object.location, GetOptions { range, ..Default::default() }).await {
            Err(object_store::Error::NotSupported { .. }) => return Ok(None),
            start => start?,
        };
        is_local |= matches!(start.payload, GetResultPayload::File(..));
        let start = start.bytes().await?;
        // Files begin with their magic and padding, streams at once with the schema.
        let padded = start.strip_prefix(b"ARROW1").unwrap_or(&start);
        let padding = padded.iter().take_while(|byte| **byte == 0).count();
        // DataFusion tells what is wrong with those that have none.
        let Ok(schema) = try_schema_from_ipc_buffer(&padded[padding..]) else { return Ok(None) };
        if let Some(name) = repeated_name(&schema) {
            let error =
                format!("duplicate column `{name}`; give the columns different names where it is written");
            return Err(named(error, store, object));
        }
        schemas.push(schema);
    }
    Ok(if is_local { None } else { Some(Arc::new(Schema::try_merge(schemas)?)) })
}
