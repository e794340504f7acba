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
    pub const OLDEST: Self = Self { major: 0, minor: 36 };
    /// The newest release whose reader is known to this crate.
    pub const NEWEST: Self = Self { major: 0, minor: 93 };

    /// The release `major.minor`, for constants; those that users name are to be parsed. A release later than
    /// [`NEWEST`](Self::NEWEST) becomes that one: it reads the same files.
    ///
    /// # Panics
    /// If it is before [`OLDEST`](Self::OLDEST): no file can be written for it.
    pub const fn new(major: u16, minor: u16) -> Self {
        let (oldest, newest) = (Self::OLDEST, Self::NEWEST);
        assert!(
            major > oldest.major || minor >= oldest.minor,
            "no file can be written for releases before 0.36"
        );
        if major > newest.major || minor > newest.minor { newest } else { Self { major, minor } }
    }
}

/// The first releases that read what files may contain, as far as they read them in the form that is written
/// here. Found by reading files with released readers.
pub(crate) mod since {
    use super::Release;

    /// Arithmetic sequences; releases 0.40 and 0.41 abort on those of nullable types.
    pub(crate) const SEQUENCES: Release = Release::new(0, 42);
    /// Half-precision scalars in the current format: bounds, constants and fill values.
    pub(crate) const HALF_SCALARS: Release = Release::new(0, 44);
    pub(crate) const FIXED_SIZE_LISTS: Release = Release::new(0, 54);
    /// Values with a separate validity.
    pub(crate) const MASKED: Release = Release::new(0, 54);
    /// Timestamps before 1970 as days, seconds and ticks, which are negative.
    pub(crate) const NEGATIVE_PARTS: Release = Release::new(0, 54);
    /// Nulls in arrays of structs.
    pub(crate) const NULLABLE_STRUCT_ARRAYS: Release = Release::new(0, 54);
    /// Nulls in columns of structs, whose fields have layouts: until then, such layouts have no validity.
    pub(crate) const NULLABLE_STRUCT_COLUMNS: Release = Release::new(0, 55);
    /// A struct that may be null, and is the only field of another one, with layouts for both: releases 0.55 to 0.88
    /// take its nulls for nulls of the other.
    pub(crate) const LONE_STRUCTS: Release = Release::new(0, 89);
    pub(crate) const ZSTD: Release = Release::new(0, 54);
    /// Batches of rows from two chunks of numbers in Zstandard frames: releases 0.84 to 0.86 fail.
    pub(crate) const JOINED_ZSTD_NUMBERS: Release = Release::new(0, 87);
    /// Decimals as integers that are narrower than the precision requires. Not tested with releases before,
    /// except for 0.36, which does not read them.
    pub(crate) const NARROW_DECIMALS: Release = Release::new(0, 56);
    /// As many values of a dictionary as the type of its codes distinguishes: releases 0.41 to 0.67 take the last one
    /// of 256 or 65,536 numbers for zero.
    pub(crate) const FULL_DICTIONARIES: Release = Release::new(0, 68);
    /// Sequences from a value to one that is farther away than the greatest integer of their type, which is signed:
    /// releases 0.40 to 0.85 fail or abort. 0.86.1 reads them; 0.86.0, which has the same number here, was not tested.
    pub(crate) const FAR_SEQUENCES: Release = Release::new(0, 87);
    /// Nulls among the codes of a dictionary. Releases 0.59 to 0.69 lose these rows where a filter is `column = 1 OR`
    /// what is true of them; 0.36 takes those of decimals for values; and until 0.58, floats in parts with patches
    /// below such codes are errors. Text of which many rows share bytes, and a long value that all rows have, are
    /// stored in this way nevertheless: anything else would take many times the bytes.
    pub(crate) const NULLABLE_CODES: Release = Release::new(0, 70);
    /// A null among the values of a dictionary that chunks share: releases 0.55 and 0.56 return these rows as well if a
    /// filter is true of all other values.
    pub(crate) const NULL_IN_DICTIONARY: Release = Release::new(0, 57);
    /// FSST codes in a buffer of their own.
    pub(crate) const FSST_CODES: Release = Release::new(0, 59);
    /// Earlier releases know another version of the pco format.
    pub(crate) const PCO: Release = Release::new(0, 59);
    /// The release from which on `vortex.zoned`, which 0.76 introduced, serves for pruning.
    pub(crate) const ZONED: Release = Release::new(0, 84);
    pub(crate) const MAPS: Release = Release::new(0, 85);
    pub(crate) const ONPAIR: Release = Release::new(0, 85);
    pub(crate) const UUIDS: Release = Release::new(0, 85);
    /// Decimals of 128 bits in two parts.
    pub(crate) const DECIMAL_HALVES: Release = Release::new(0, 87);
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Release {
    type Err = Error;

    /// Reads `0.76`, `0.76.2` (the last number does not matter) or `newest`. As with [`new`](Self::new), a later
    /// release becomes the newest.
    ///
    /// # Errors
    /// If the text is not a release, or one before [`OLDEST`](Self::OLDEST): no file can be written for it.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "newest" {
            return Ok(Self::NEWEST);
        }
        let mut numbers = text.split('.').map(str::parse::<u16>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if numbers.all(|number| number.is_ok()) => {
                let oldest = Self::OLDEST;
                if (Self { major, minor }) < oldest {
                    return Err(Error::invalid(format!("release {text} is too old; the oldest is {oldest}")));
                }
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
        assert!(release("0.40") < release("0.76.2"));
        assert_eq!(Release::new(1, 0), Release::NEWEST);
        assert_eq!(release("0.36.1"), Release::OLDEST);
        assert_eq!(release("newest"), Release::NEWEST);
        for text in ["", "0", "1.x", "0.36.", "new"] {
            assert!(text.parse::<Release>().is_err(), "{text}");
        }
    }

    #[test]
    fn releases_before_the_oldest_are_refused_and_later_ones_are_the_newest() {
        for text in ["0.0", "0.2", "0.35.9"] {
            let error = text.parse::<Release>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("0.36"), "{error}");
        }
        for text in ["0.93.7", "0.94", "1.0", "99.1"] {
            assert_eq!(text.parse::<Release>().unwrap(), Release::NEWEST, "{text}");
        }
    }
}
