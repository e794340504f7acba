//! The ids of the layouts that are written, too.

pub(crate) const CHUNKED: &str = "vortex.chunked";
pub(crate) const DICT: &str = "vortex.dict";
pub(crate) const FLAT: &str = "vortex.flat";
pub(crate) const STATS: &str = "vortex.stats";
pub(crate) const STRUCT: &str = "vortex.struct";
pub(crate) const ZONED: &str = "vortex.zoned";
