//! Releases of the format's reference implementation. The oldest release that must read a file determines
//! what the file may use.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A release of the reference implementation, by the first two numbers of its version.
///
/// ```
/// # use vortex_core::Release;
/// let release: Release = "0.76".parse()?;
/// assert!(Release::OLDEST <= release && release <= Release::NEWEST);
/// # Ok::<(), vortex_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    major: u16,
    minor: u16,
}

impl Release {
    /// The first release whose files can be read by all later ones.
    pub const OLDEST: Self = Self::new(0, 36);
    /// The newest release whose reader is known to this crate.
    pub const NEWEST: Self = Self::new(0, 91);

    /// The release `major.minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Release {
    type Err = Error;

    /// Reads `0.76`, `0.76.2` (the last number does not matter) or `newest`.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "newest" {
            return Ok(Self::NEWEST);
        }
        let mut numbers = text.split('.').map(str::parse::<u16>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if numbers.all(|number| number.is_ok()) => {
                Ok(Self::new(major, minor))
            }
            _ => Err(Error::invalid(format!("`{text}` is not a release; write `0.76` or `newest`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_ordered_by_their_numbers() {
        let release = |text: &str| text.parse::<Release>().unwrap();
        assert!(release("0.9") < release("0.36"));
        assert_eq!(release("0.36.1"), Release::OLDEST);
        assert_eq!(release("newest").to_string(), "0.91");
        for text in ["", "0", "1.x", "0.36.", "new"] {
            assert!(text.parse::<Release>().is_err(), "{text}");
        }
    }
}
