//! Values that are computed on first use, and kept.

use std::sync::OnceLock;

use crate::Result;

/// The value of `once`, computed by `make` if there is none yet. Threads that ask at the same time may
/// all compute it; the first result is kept, and errors are not.
///
/// # Errors
/// As `make`.
pub(crate) fn get_or_try_init<T>(once: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    match once.get() {
        Some(known) => Ok(known),
        None => {
            let made = make()?;
            Ok(once.get_or_init(|| made))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn only_the_first_success_is_kept() {
        let once = OnceLock::new();
        assert!(get_or_try_init(&once, || Err(Error::corrupt("not yet"))).is_err());
        assert_eq!(get_or_try_init(&once, || Ok(1)).unwrap(), &1);
        assert_eq!(get_or_try_init(&once, || Ok(2)).unwrap(), &1);
    }
}
