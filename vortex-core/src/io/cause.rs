//! Errors of storage, for each of several who wait for the same bytes.

use std::error::Error as StdError;

use object_store::Error as StoreError;

type Cause = Box<dyn StdError + Send + Sync>;

/// An error of the same class and with the same text. What caused errors of a store or the operating system becomes
/// text, since these errors cannot be cloned.
pub(super) fn same(cause: &(dyn StdError + Send + Sync + 'static)) -> Cause {
    if let Some(error) = cause.downcast_ref() {
        return of_store(error).map_or_else(|| cause.to_string().into(), |error| Box::new(error) as Cause);
    }
    match cause.downcast_ref::<std::io::Error>() {
        Some(error) => Box::new(std::io::Error::new(error.kind(), error.to_string())),
        None => cause.to_string().into(),
    }
}

/// `None` for errors in which no request for bytes ends, unless the runtime is shutting down.
fn of_store(error: &StoreError) -> Option<StoreError> {
    let text = |source: &Cause| -> Cause { source.to_string().into() };
    Some(match error {
        StoreError::Generic { store, source } => StoreError::Generic { store, source: text(source) },
        StoreError::NotFound { path, source } => {
            StoreError::NotFound { path: path.clone(), source: text(source) }
        }
        StoreError::Precondition { path, source } => {
            StoreError::Precondition { path: path.clone(), source: text(source) }
        }
        StoreError::NotModified { path, source } => {
            StoreError::NotModified { path: path.clone(), source: text(source) }
        }
        StoreError::PermissionDenied { path, source } => {
            StoreError::PermissionDenied { path: path.clone(), source: text(source) }
        }
        StoreError::Unauthenticated { path, source } => {
            StoreError::Unauthenticated { path: path.clone(), source: text(source) }
        }
        StoreError::NotSupported { source } => StoreError::NotSupported { source: text(source) },
        StoreError::NotImplemented { operation, implementer } => {
            StoreError::NotImplemented { operation: operation.clone(), implementer: implementer.clone() }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_store_keep_their_class_and_text() {
        let path = || "a.vortex".to_owned();
        let source = || Cause::from("because");
        for error in [
            StoreError::Generic { store: "S3", source: source() },
            StoreError::NotFound { path: path(), source: source() },
            StoreError::Precondition { path: path(), source: source() },
            StoreError::NotModified { path: path(), source: source() },
            StoreError::PermissionDenied { path: path(), source: source() },
            StoreError::Unauthenticated { path: path(), source: source() },
            StoreError::NotSupported { source: source() },
            StoreError::NotImplemented { operation: "get".into(), implementer: "S3".into() },
        ] {
            let found = same(&error);
            let found = found.downcast_ref::<StoreError>().expect("an error of a store");
            assert_eq!(std::mem::discriminant(found), std::mem::discriminant(&error));
            assert_eq!(found.to_string(), error.to_string());
        }
    }

    #[test]
    fn errors_of_the_operating_system_keep_their_kind() {
        let found = same(&std::io::Error::from(std::io::ErrorKind::PermissionDenied));
        let found = found.downcast_ref::<std::io::Error>().expect("an error of the operating system");
        assert_eq!(found.kind(), std::io::ErrorKind::PermissionDenied);
        assert_eq!(found.to_string(), "permission denied");
    }

    #[test]
    fn other_errors_become_text() {
        assert_eq!(same(&std::fmt::Error).to_string(), std::fmt::Error.to_string());
    }
}
