//! The oldest release that must read the files to write, as a user names it.

use std::io::Write as _;
use std::str::FromStr;

use vortex_core::{Error, Release};

/// A release as it was named.
#[derive(Debug, Clone)]
pub(crate) struct MinReader {
    pub(crate) release: Release,
    named: String,
}

impl MinReader {
    /// Whether it is later than all known ones. It may exist nevertheless, and reads the same files.
    fn is_unknown(&self) -> bool {
        let newest = Release::NEWEST.to_string();
        let of_newest =
            self.named.strip_prefix(&newest).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.release == Release::NEWEST && self.named != "newest" && !of_newest
    }

    /// Tells the user if the files need another release than the one named.
    pub(crate) fn warn_if_unknown(&self) {
        if self.is_unknown() {
            let (named, newest) = (&self.named, Release::NEWEST);
            let message =
                format!("release {named} is not known; the files need {newest}, the newest one known");
            let _ = writeln!(std::io::stderr(), "vortex: {message}");
        }
    }
}

impl FromStr for MinReader {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { release: text.parse()?, named: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_after_the_newest_known_one_are_accepted_but_unknown() {
        for (text, is_unknown) in [
            ("newest", false),
            ("0.91", false),
            ("0.91.3", false),
            ("0.76", false),
            ("0.99", true),
            ("9.9", true),
        ] {
            assert_eq!(text.parse::<MinReader>().unwrap().is_unknown(), is_unknown, "{text}");
        }
        assert!("0.2".parse::<MinReader>().is_err());
    }
}
