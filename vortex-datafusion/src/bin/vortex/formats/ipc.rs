//! The columns of Arrow IPC files.

use std::sync::Arc;

use arrow::ipc::convert::try_schema_from_ipc_buffer;
use datafusion::common::Result;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};

use super::text::named;
use crate::columns::repeated_name;

/// Schemas are expected within so many bytes from the start of a file.
const START_BYTES: u64 = 1 << 20;

/// Refuses columns of the same name: DataFusion takes them for one, and reads those behind them from the wrong place.
pub(super) async fn check_names(store: &Arc<dyn ObjectStore>, objects: &[ObjectMeta]) -> Result<()> {
    for object in objects.iter().filter(|object| object.size > 0) {
        let start = match store.get_range(&object.location, 0..object.size.min(START_BYTES)).await {
            // A web server without ranges.
            Err(object_store::Error::NotSupported { .. }) => continue,
            start => start?,
        };
        // Files begin with their magic and padding, streams at once with the schema.
        let padded = start.strip_prefix(b"ARROW1").unwrap_or(&start);
        let padding = padded.iter().take_while(|byte| **byte == 0).count();
        // What is wrong with those that have none is told when they are read.
        let Ok(schema) = try_schema_from_ipc_buffer(&padded[padding..]) else { continue };
        if let Some(name) = repeated_name(&schema) {
            let error =
                format!("duplicate column `{name}`; give the columns different names where it is written");
            return Err(named(error, store, object));
        }
    }
    Ok(())
}
