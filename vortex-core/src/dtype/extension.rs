//! Extension types: a storage type with a meaning and a few bytes of parameters.

use std::fmt;
use std::sync::Arc;

use super::{DType, PType};
use crate::{Error, Result};

/// The unit of a temporal type. The numbers are those of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum TimeUnit {
    Nanoseconds = 0,
    Microseconds = 1,
    Milliseconds = 2,
    Seconds = 3,
    Days = 4,
}

impl TimeUnit {
    fn try_from_number(number: u8) -> Result<Self> {
        Ok(match number {
            0 => TimeUnit::Nanoseconds,
            1 => TimeUnit::Microseconds,
            2 => TimeUnit::Milliseconds,
            3 => TimeUnit::Seconds,
            4 => TimeUnit::Days,
            other => return Err(Error::corrupt(format!("time unit {other} does not exist"))),
        })
    }

    /// Ticks in one second; `None` for days.
    pub fn ticks_per_second(self) -> Option<i64> {
        Some(match self {
            TimeUnit::Nanoseconds => 1_000_000_000,
            TimeUnit::Microseconds => 1_000_000,
            TimeUnit::Milliseconds => 1_000,
            TimeUnit::Seconds => 1,
            TimeUnit::Days => return None,
        })
    }
}

/// The meaning of an extension type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Meaning {
    /// `vortex.date`: days in i32 or milliseconds in i64 since the epoch.
    Date(TimeUnit),
    /// `vortex.time`: time of day.
    Time(TimeUnit),
    /// `vortex.timestamp`: ticks since the epoch, in UTC if a zone is given.
    Timestamp(TimeUnit, Option<Arc<str>>),
    /// `vortex.uuid`: 16 bytes, big endian.
    Uuid,
    /// `vortex.json`: JSON text.
    Json,
    /// An id unknown to this build; values are presented as their storage type.
    Unknown,
}

impl Meaning {
    /// Whether equal values of storage mean the same: timestamps are in UTC, whatever their zone.
    pub(crate) fn counts_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Timestamp(unit, zone), Self::Timestamp(other_unit, other_zone)) => {
                unit == other_unit && zone.is_some() == other_zone.is_some()
            }
            _ => self == other,
        }
    }
}

/// An extension type: id, storage and parameters, which have been checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Extension {
    id: Arc<str>,
    storage: DType,
    metadata: Arc<[u8]>,
    meaning: Meaning,
}

impl Extension {
    /// Creates an extension type; for built-in ids, storage and parameters are checked.
    ///
    /// # Errors
    /// If a built-in id has invalid storage or parameters.
    pub fn try_new(id: &str, storage: DType, metadata: impl Into<Arc<[u8]>>) -> Result<Self> {
        let metadata = metadata.into();
        let meaning = meaning(id, &storage, &metadata)?;
        Ok(Self { id: id.into(), storage, metadata, meaning })
    }

    /// The id, such as `vortex.timestamp`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The type in which values are stored.
    pub fn storage(&self) -> &DType {
        &self.storage
    }

    /// The parameters, as the file has them.
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// The meaning.
    pub fn meaning(&self) -> &Meaning {
        &self.meaning
    }

    /// The same extension over storage with this nullability.
    #[must_use]
    pub fn with_nullable(&self, nullable: bool) -> Self {
        Self { storage: self.storage.with_nullable(nullable), ..self.clone() }
    }
}

fn meaning(id: &str, storage: &DType, metadata: &[u8]) -> Result<Meaning> {
    let unit = || match metadata.first() {
        Some(number) => TimeUnit::try_from_number(*number),
        None => Err(Error::corrupt(format!("{id} has no time unit"))),
    };
    let stored_in = |expected: PType| match storage {
        DType::Primitive(ptype, _) if *ptype == expected => Ok(()),
        other => Err(Error::corrupt(format!("{id} is stored in {expected}, not in {other}"))),
    };
    Ok(match id {
        "vortex.date" => {
            let unit = unit()?;
            stored_in(match unit {
                TimeUnit::Days => PType::I32,
                TimeUnit::Milliseconds => PType::I64,
                _ => return Err(Error::corrupt(format!("{id} cannot count {unit:?}"))),
            })?;
            Meaning::Date(unit)
        }
        "vortex.time" => {
            let unit = unit()?;
            stored_in(match unit {
                TimeUnit::Seconds | TimeUnit::Milliseconds => PType::I32,
                TimeUnit::Microseconds | TimeUnit::Nanoseconds => PType::I64,
                TimeUnit::Days => return Err(Error::corrupt(format!("{id} cannot count days"))),
            })?;
            Meaning::Time(unit)
        }
        "vortex.timestamp" => {
            let unit = unit()?;
            if unit == TimeUnit::Days {
                return Err(Error::corrupt(format!("{id} cannot count days")));
            }
            stored_in(PType::I64)?;
            let [_, low, high, rest @ ..] = metadata else {
                return Err(Error::corrupt(format!("{id} has {} parameter bytes, needs 3", metadata.len())));
            };
            let len = usize::from(u16::from_le_bytes([*low, *high]));
            let zone = rest.get(..len).ok_or_else(|| Error::corrupt(format!("{id} has a cut time zone")))?;
            let zone = std::str::from_utf8(zone)
                .map_err(|error| Error::corrupt(format!("{id} has a broken time zone: {error}")))?;
            Meaning::Timestamp(unit, (!zone.is_empty()).then(|| zone.into()))
        }
        "vortex.uuid" => match storage {
            DType::FixedSizeList(element, 16, _) if **element == DType::Primitive(PType::U8, false) => {
                Meaning::Uuid
            }
            other => return Err(Error::corrupt(format!("{id} is stored in 16 bytes, not in {other}"))),
        },
        "vortex.json" => match storage {
            DType::Utf8(_) => Meaning::Json,
            other => return Err(Error::corrupt(format!("{id} is stored in utf8, not in {other}"))),
        },
        _ => Meaning::Unknown,
    })
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        match &self.meaning {
            Meaning::Date(unit) | Meaning::Time(unit) | Meaning::Timestamp(unit, None) => {
                write!(f, "[{unit:?}]")?;
            }
            Meaning::Timestamp(unit, Some(zone)) => write!(f, "[{unit:?}, {zone}]")?,
            Meaning::Uuid | Meaning::Json | Meaning::Unknown => {}
        }
        write!(f, "({})", self.storage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_needs_three_parameter_bytes() {
        let storage = DType::Primitive(PType::I64, false);
        assert!(Extension::try_new("vortex.timestamp", storage.clone(), vec![1]).is_err());
        assert!(Extension::try_new("vortex.timestamp", storage.clone(), vec![4, 0, 0]).is_err());
        assert!(Extension::try_new("vortex.timestamp", storage.clone(), vec![0, 9, 0]).is_err());
        let utc = Extension::try_new("vortex.timestamp", storage, b"\x00\x03\x00UTC".to_vec());
        assert_eq!(utc.unwrap().meaning(), &Meaning::Timestamp(TimeUnit::Nanoseconds, Some("UTC".into())));
    }

    #[test]
    fn an_unknown_id_keeps_its_storage() {
        let unknown = Extension::try_new("geo.point", DType::Utf8(true), vec![]).unwrap();
        assert_eq!(unknown.meaning(), &Meaning::Unknown);
        assert_eq!(unknown.storage(), &DType::Utf8(true));
    }
}
