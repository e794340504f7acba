//! Values and names as text, whose sum is limited.

use std::fmt::Display;

use arrow::array::{Array as _, ArrayRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_common::{Result, resources_err};
use vortex_core::Excerpt;
use vortex_core::dtype::arrow::data_type;
use vortex_core::scalar::Scalar;

/// Maximum number of bytes of text in the rows of one file. A small file may refer to long names, types and zone tables
/// any number of times.
const MAX_TEXT: usize = 512 << 20;

/// The room for text that is left.
pub(super) struct Room {
    left: usize,
}

impl Room {
    /// The room for one file.
    pub(super) fn new() -> Self {
        Self { left: MAX_TEXT }
    }

    /// A value as text, which is cut if it is long.
    pub(super) fn text(&mut self, value: impl Display) -> Result<String> {
        let text = Excerpt(value).to_string();
        self.take(text.len())?;
        Ok(text)
    }

    /// Counts bytes, of text or of rows that may have none.
    pub(super) fn take(&mut self, bytes: usize) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => {
                return resources_err!(
                    "the description of the file takes more than {MAX_TEXT} bytes of text"
                );
            }
        }
        Ok(())
    }
}

/// A value as Arrow displays it: dates as dates, decimals with a decimal point.
pub(super) fn shown(value: &Scalar) -> String {
    let array = data_type(value.dtype()).ok().and_then(|to| value.to_arrow(&to, 1).ok());
    array.and_then(|array| shown_at(&array, 0)).unwrap_or_else(|| value.to_string())
}

/// A value of an array, unless it is null.
pub(super) fn shown_at(array: &ArrayRef, at: usize) -> Option<String> {
    let options = FormatOptions::new();
    let formatter = ArrayFormatter::try_new(array.as_ref(), &options).ok()?;
    (at < array.len() && array.is_valid(at)).then(|| formatter.value(at).try_to_string().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_their_sum_is_limited() {
        let mut room = Room { left: 3000 };
        let long = "x".repeat(5000);
        for _ in 0..2 {
            assert!(room.text(&long).unwrap().len() < 1100);
        }
        let error = room.text(&long).unwrap_err().to_string();
        assert!(error.contains("the description of the file takes more than"), "{error}");
        assert!(room.text("short").is_ok());
    }
}
