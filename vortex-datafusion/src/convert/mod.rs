//! Conversions between DataFusion and the core: types, values, expressions, errors.
//!
//! Planning and opening call the same functions, so that a scan does what planning has promised.

mod boundary;
mod chains;
mod classes;
mod dynamic;
mod expr;
mod fallible;
mod guards;
mod leaves;
mod prefixes;
mod rows;
mod scalar;
pub(crate) mod schema;
mod simplify;
mod steps;

use datafusion_common::DataFusionError;
use vortex_core::Error;

pub(crate) use chains::{balanced, chain};
pub(crate) use classes::{is_dynamic, is_volatile, needs_scan, reads_nested};
pub(crate) use dynamic::{AppliedTo, TranslatedFilter};
pub(crate) use expr::{Translator, fuse_bounds};
pub(crate) use fallible::is_fallible;
pub(crate) use guards::guarded;
pub(crate) use leaves::Leaves;
pub(crate) use rows::PhysicalPredicate;
pub(crate) use scalar::{
    cast_is_monotonic, cast_is_strictly_monotonic, digits, is_bytes, is_coarse, to_core, to_datafusion,
    values_of,
};
pub(crate) use simplify::{is_zero, simplify};

/// Converts an error of the core to DataFusion's error type. An error that DataFusion raised inside a scan is
/// returned unchanged, and one of an object store as such, so that callers can tell whether to try again.
pub(crate) fn datafusion_error(error: Error) -> DataFusionError {
    match error {
        Error::External(inner) => match inner.downcast::<DataFusionError>() {
            Ok(original) => *original,
            Err(other) => DataFusionError::External(other),
        },
        Error::At { place, source } | Error::InFile { file: place, source }
            if matches!(source.root(), Error::External(_)) || of_store(source.root()).is_some() =>
        {
            // The object may already be named there.
            let is_named = of_store(source.root()) == Some(&*place);
            let error = datafusion_error(*source);
            if is_named { error } else { error.context(place) }
        }
        other if of_store(&other).is_some() => store_error(other),
        other => DataFusionError::External(Box::new(other)),
    }
}

/// The object that an object store failed to read or write.
fn of_store(error: &Error) -> Option<&str> {
    match error {
        Error::Read { object, source, .. } | Error::Write { object, source } => {
            source.is::<object_store::Error>().then_some(&**object)
        }
        _ => None,
    }
}

/// The error of an object store, in the context of what it was to do.
fn store_error(error: Error) -> DataFusionError {
    let text = error.to_string();
    let (Error::Read { source, .. } | Error::Write { source, .. }) = error else {
        return DataFusionError::External(Box::new(error));
    };
    match source.downcast::<object_store::Error>() {
        Ok(cause) => {
            let attempt = text.strip_suffix(&format!(": {cause}")).unwrap_or(&text).to_owned();
            DataFusionError::ObjectStore(cause).context(attempt)
        }
        Err(other) => DataFusionError::External(other),
    }
}

/// Wraps an error of DataFusion so that it can pass through the core.
pub(crate) fn core_error(error: DataFusionError) -> Error {
    Error::external(error)
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

    #[test]
    fn an_error_of_an_object_store_keeps_its_class_and_its_place() {
        let missing =
            || object_store::Error::NotFound { path: "x.vortex".into(), source: "no such object".into() };
        let read = Error::read("x.vortex", 2..8, missing()).at("column `a`").at("x.vortex");
        let write = Error::write("x.vortex", missing());
        for (error, place) in
            [(read, "column `a`\ncaused by\nreading bytes 2..8 of x.vortex"), (write, "writing x.vortex")]
        {
            let error = datafusion_error(error);
            let DataFusionError::ObjectStore(root) = error.find_root() else { panic!("{error}") };
            assert!(matches!(**root, object_store::Error::NotFound { .. }));
            assert!(
                error.to_string().starts_with(&format!("{place}\ncaused by\nObject Store error")),
                "{error}"
            );
        }
    }

    #[test]
    fn other_errors_of_storage_are_external() {
        let short = Error::read("x.vortex", 2..8, "got 3 bytes").at("x.vortex");
        let error = datafusion_error(short);
        let DataFusionError::External(inner) = error.find_root() else { panic!("{error}") };
        let inner = inner.downcast_ref::<Error>().unwrap();
        assert!(matches!(inner.root(), Error::Read { .. }));
    }
}
