//! Types of structs, maps and unions.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::DType;
use crate::{Error, Result};

/// Fields of a struct. Names may repeat; fields match by position.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StructType {
    names: Box<[Arc<str>]>,
    dtypes: Box<[DType]>,
    positions: Positions,
}

impl StructType {
    /// A struct type from names and types.
    pub fn new(fields: impl IntoIterator<Item = (Arc<str>, DType)>) -> Self {
        let (names, dtypes): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        Self { names: names.into(), dtypes: dtypes.into(), positions: Positions::default() }
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Names in order.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Types in order.
    pub fn dtypes(&self) -> &[DType] {
        &self.dtypes
    }

    /// Names and types in order.
    pub fn fields(&self) -> impl Iterator<Item = (&Arc<str>, &DType)> {
        self.names.iter().zip(&self.dtypes)
    }

    /// Position of the first field with this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        if self.names.len() <= FEW_FIELDS {
            return self.names.iter().position(|candidate| &**candidate == name);
        }
        let positions = self.positions.0.get_or_init(|| {
            // If names are equal, the first one is kept.
            self.names.iter().enumerate().rev().map(|(at, name)| (Arc::clone(name), at)).collect()
        });
        positions.get(name).copied()
    }
}

/// Up to this many fields are searched one by one.
const FEW_FIELDS: usize = 16;

/// The fields of a struct by name, collected on first use. Comparisons ignore it, since it is derived from
/// the names.
#[derive(Clone, Default)]
struct Positions(OnceLock<HashMap<Arc<str>, usize>>);

impl PartialEq for Positions {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Positions {}

impl Hash for Positions {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl fmt::Debug for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// Types of a map. Keys are never null.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MapType {
    key: DType,
    value: DType,
    keys_sorted: bool,
}

impl MapType {
    /// A map type; `keys_sorted` tells whether the entries of each row are sorted by key.
    ///
    /// # Errors
    /// If keys can be null.
    pub fn try_new(key: DType, value: DType, keys_sorted: bool) -> Result<Self> {
        if key.is_nullable() {
            return Err(Error::invalid(format!("map with nullable keys of type {key}")));
        }
        Ok(Self { key, value, keys_sorted })
    }

    /// Type of the keys, not nullable.
    pub fn key(&self) -> &DType {
        &self.key
    }

    /// Type of the values.
    pub fn value(&self) -> &DType {
        &self.value
    }

    /// Whether the entries of each row are sorted by key.
    pub fn keys_sorted(&self) -> bool {
        self.keys_sorted
    }

    /// The type of one row's entries: `struct{key, value}`, never null.
    pub fn entry(&self) -> DType {
        DType::Struct(
            Arc::new(StructType::new([
                ("key".into(), self.key.clone()),
                ("value".into(), self.value.clone()),
            ])),
            false,
        )
    }
}

/// Variants of a union. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UnionType {
    variants: StructType,
    type_ids: Box<[u8]>,
}

impl UnionType {
    /// A union type from names and types of the variants, and the number that represents each in the data.
    ///
    /// # Errors
    /// If there is no variant, or not a different number for each.
    pub fn try_new(variants: StructType, type_ids: impl Into<Box<[u8]>>) -> Result<Self> {
        let type_ids = type_ids.into();
        let distinct: HashSet<_> = type_ids.iter().collect();
        if variants.is_empty() || type_ids.len() != variants.len() || distinct.len() != type_ids.len() {
            return Err(Error::invalid(format!(
                "union of {} variants with {} distinct ids",
                variants.len(),
                distinct.len()
            )));
        }
        Ok(Self { variants, type_ids })
    }

    /// Names and types of the variants.
    pub fn variants(&self) -> &StructType {
        &self.variants
    }

    /// The number that represents each variant in the data.
    pub fn type_ids(&self) -> &[u8] {
        &self.type_ids
    }

    /// Position of the variant with this number.
    pub fn position(&self, type_id: u8) -> Option<usize> {
        self.type_ids.iter().position(|candidate| *candidate == type_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_fields_with_equal_names_the_first_is_found() {
        for count in [3, 300] {
            let names = (0..count).map(|at| format!("c{}", at / 2).into());
            let fields = StructType::new(names.map(|name| (name, DType::Null)));
            assert_eq!(fields.position("c1"), Some(2));
            assert_eq!(fields.position("c0"), Some(0));
            assert_eq!(fields.position("c"), None);
            assert_eq!(fields, fields.clone());
        }
    }

    #[test]
    fn keys_of_a_map_are_never_null() {
        assert!(MapType::try_new(DType::Utf8(true), DType::Null, false).is_err());
        assert!(MapType::try_new(DType::Null, DType::Null, false).is_err());
        assert!(MapType::try_new(DType::Utf8(false), DType::Null, false).is_ok());
    }

    #[test]
    fn each_variant_of_a_union_has_its_own_number() {
        let variants = StructType::new([("a".into(), DType::Utf8(false)), ("b".into(), DType::Null)]);
        let union = UnionType::try_new(variants.clone(), [5, 200]).unwrap();
        assert_eq!([5, 200, 0].map(|id| union.position(id)), [Some(0), Some(1), None]);
        for ids in [&[][..], &[1], &[1, 1], &[1, 2, 3]] {
            assert!(UnionType::try_new(variants.clone(), ids).is_err(), "{ids:?}");
        }
        assert!(UnionType::try_new(StructType::new([]), []).is_err());
    }
}
