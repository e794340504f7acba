//! Conversions between DataFusion and the core: types, values, expressions, errors.
//!
//! Planning and opening call the same functions, so that a scan does what planning has promised.

mod chains;
mod dynamic;
mod expr;
mod fallible;
mod leaves;
mod rows;
mod scalar;
pub(crate) mod schema;
mod simplify;

use datafusion_common::DataFusionError;

pub(crate) use chains::{balanced, chain};
pub(crate) use dynamic::{TranslatedFilter, is_dynamic};
pub(crate) use expr::{Translator, fuse_bounds};
pub(crate) use fallible::is_fallible;
pub(crate) use leaves::Leaves;
pub(crate) use rows::PhysicalPredicate;
pub(crate) use scalar::{cast_is_monotonic, cast_is_strictly_monotonic, to_core, to_datafusion};
pub(crate) use simplify::simplify;

/// Converts an error of the core to DataFusion's error type. An error that DataFusion raised inside a scan is
/// returned unchanged.
pub(crate) fn datafusion_error(error: vortex_core::Error) -> DataFusionError {
    match error {
        vortex_core::Error::External(inner) => match inner.downcast::<DataFusionError>() {
            Ok(original) => *original,
            Err(other) => DataFusionError::External(other),
        },
        vortex_core::Error::At { place, source }
            if matches!(source.root(), vortex_core::Error::External(_)) =>
        {
            datafusion_error(*source).context(place)
        }
        other => DataFusionError::External(Box::new(other)),
    }
}

/// Wraps an error of DataFusion so that it can pass through the core.
pub(crate) fn core_error(error: DataFusionError) -> vortex_core::Error {
    vortex_core::Error::External(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_datafusion_survives_the_way_through_the_core() {
        let error = datafusion_error(core_error(DataFusionError::Plan("no".into())));
        assert!(matches!(error, DataFusionError::Plan(message) if message == "no"));
        let placed = datafusion_error(core_error(DataFusionError::Plan("no".into())).at("x.vortex"));
        assert!(placed.to_string().contains("x.vortex"));
        assert!(matches!(placed.find_root(), DataFusionError::Plan(_)));
    }
}
