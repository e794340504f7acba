//! What applications store in the files that they write: `OPTIONS ('metadata::station' 'Oslo')`, as of Parquet files.
//!
//! [`VortexFile::user_metadata`](vortex_core::VortexFile::user_metadata) and `vortex inspect` read it.

use std::collections::BTreeMap;

use datafusion_common::{Result, config_err};
use vortex_core::write::WriteOptions;

use crate::convert::datafusion_error;
use crate::orders;

/// What keys begin with where they are options.
pub(crate) const PREFIX: &str = "metadata::";

/// Keys that begin like this are those of this crate.
const OWN_KEYS: &str = "vortex-datafusion.";

/// Keys and values that every file of a statement gets, and that a file has room for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UserMetadata(BTreeMap<String, String>);

impl UserMetadata {
    /// Adds an entry, in place of one with the same key.
    ///
    /// # Errors
    /// If the key is reserved, empty or too long, or there are too many.
    pub(crate) fn insert(&mut self, key: &str, value: &str) -> Result<()> {
        if key.starts_with(OWN_KEYS) {
            return config_err!("metadata keys that start with `{OWN_KEYS}` are reserved");
        }
        self.0.insert(key.to_owned(), value.to_owned());
        // The order of the rows is an entry, too.
        let with_order = WriteOptions::new().with_user_metadata(orders::KEY, "").map_err(datafusion_error)?;
        self.added_to(with_order).map(drop)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The options of a writer, with these entries.
    pub(crate) fn added_to(&self, options: WriteOptions) -> Result<WriteOptions> {
        let add = |options: WriteOptions, (key, value): (&str, &str)| {
            options.with_user_metadata(key, value.to_owned()).map_err(datafusion_error)
        };
        self.iter().try_fold(options, add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_keys_of_applications_and_fit_into_a_file() {
        let mut metadata = UserMetadata::default();
        for at in 0..13 {
            metadata.insert(&at.to_string(), "x").unwrap();
        }
        metadata.insert("7", "another").unwrap();
        assert_eq!(metadata.iter().nth(10), Some(("7", "another")));
        assert!(metadata.clone().insert("13", "").unwrap_err().to_string().contains("more than 14 entries"));
        for key in ["", "vortex-datafusion.order", "vortex-core.version", &"k".repeat(65)] {
            assert!(UserMetadata::default().insert(key, "x").is_err(), "{key}");
        }
    }
}
