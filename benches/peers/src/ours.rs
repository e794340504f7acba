//! The one place that names this repository's plugin.

use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::SessionContext;

/// Whether the engine can run.
pub(crate) const AVAILABLE: bool = false;

/// Makes `STORED AS VORTEX` mean this repository's plugin.
pub(crate) fn register(_: &SessionContext) -> Result<()> {
    Err(DataFusionError::NotImplemented("the plugin has no `register` yet".into()))
}
