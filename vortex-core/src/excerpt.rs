//! The beginning of a long text.

use std::fmt::{self, Write as _};

/// Maximum number of bytes shown. What a file states of itself mostly fits in; values and types may take gigabytes.
const MAX_SHOWN: usize = 1 << 10;

/// Shows a value as text, of which all but the first kilobyte is replaced by `...`, and not even formatted.
///
/// ```
/// let types = vortex_core::Excerpt("int32 ".repeat(1_000_000)).to_string();
/// assert!(types.len() < 2000 && types.ends_with("..."));
/// assert_eq!(vortex_core::Excerpt(7).to_string(), "7");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Excerpt<T>(pub T);

impl<T: fmt::Display> fmt::Display for Excerpt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut start = Start { out: f, left: MAX_SHOWN, is_cut: false };
        let shown = write!(start, "{}", self.0);
        if start.is_cut { f.write_str("...") } else { shown }
    }
}

/// Writes the first bytes, and fails at the others.
struct Start<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    left: usize,
    is_cut: bool,
}

impl fmt::Write for Start<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let first = &text[..text.floor_char_boundary(self.left)];
        self.out.write_str(first)?;
        self.left -= first.len();
        self.is_cut = first.len() < text.len();
        if self.is_cut { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_between_letters() {
        let long = Excerpt("\u{e9}".repeat(1 << 20)).to_string();
        assert!(long.ends_with("\u{e9}...") && long.len() <= MAX_SHOWN + 3, "{}", long.len());
        for len in [MAX_SHOWN - 1, MAX_SHOWN] {
            assert_eq!(Excerpt("x".repeat(len)).to_string().len(), len);
        }
    }

    #[test]
    fn what_is_cut_is_not_formatted() {
        struct Endless;
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("again and ")?;
                }
            }
        }
        assert!(Excerpt(Endless).to_string().ends_with("..."));
    }
}
