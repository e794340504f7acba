//! Logical types: the meaning of a column, independent of its encoding.
//!
//! [`DType`] is the type of a column in the file; [`arrow`](mod@self::arrow) maps it to
//! Arrow fields and back. Nullability is part of the type.

pub mod arrow;
mod extension;
mod ptype;
pub(crate) mod stored;

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

pub use extension::{Extension, Meaning, TimeUnit};
pub use ptype::PType;

use crate::{Error, Result};

/// The logical type of a column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// Only nulls.
    Null,
    /// Booleans. The flag of this and the following variants is whether they are nullable.
    Bool(bool),
    /// Integers and floats.
    Primitive(PType, bool),
    /// Fixed-point numbers.
    Decimal(DecimalType, bool),
    /// UTF-8 strings.
    Utf8(bool),
    /// Byte strings.
    Binary(bool),
    /// Named fields.
    Struct(Arc<StructType>, bool),
    /// Lists of any length.
    List(Arc<DType>, bool),
    /// Lists of a fixed length.
    FixedSizeList(Arc<DType>, u32, bool),
    /// Key-value lists.
    Map(Arc<MapType>, bool),
    /// A storage type with a meaning; its nullability is that of the storage.
    Extension(Arc<Extension>),
    /// Self-describing values.
    Variant(bool),
    /// One of several types per row.
    Union(Arc<UnionType>, bool),
}

/// Precision and scale of a decimal: `value = unscaled * 10^-scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DecimalType {
    precision: u8,
    scale: i8,
}

impl DecimalType {
    /// Maximum number of digits of a decimal.
    pub const MAX_PRECISION: u8 = 76;

    /// A decimal type.
    ///
    /// # Errors
    /// If precision is not 1 to 76 or the scale exceeds it.
    pub fn try_new(precision: u8, scale: i8) -> Result<Self> {
        if !(1..=Self::MAX_PRECISION).contains(&precision)
            || i16::from(scale) > i16::from(precision)
            || scale < -(Self::MAX_PRECISION as i8)
        {
            return Err(Error::invalid(format!("decimal({precision},{scale}) is not a valid type")));
        }
        Ok(Self { precision, scale })
    }

    /// Number of decimal digits.
    pub fn precision(self) -> u8 {
        self.precision
    }

    /// Number of digits after the decimal point; may be negative.
    pub fn scale(self) -> i8 {
        self.scale
    }
}

/// The name of the only column of a file whose root is not a struct, or may be null.
pub const ROOT_COLUMN: &str = "value";

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
    /// Type of the keys, not nullable.
    pub key: DType,
    /// Type of the values.
    pub value: DType,
    /// Whether the entries of each row are sorted by key.
    pub keys_sorted: bool,
}

impl MapType {
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

/// Variants of a union.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UnionType {
    /// Names and types of the variants.
    pub variants: StructType,
    /// The number that represents each variant in the data.
    pub type_ids: Box<[u8]>,
}

impl DType {
    /// Whether rows of this type consist of other values.
    pub fn is_nested(&self) -> bool {
        matches!(
            self.storage(),
            DType::Struct(..)
                | DType::List(..)
                | DType::FixedSizeList(..)
                | DType::Map(..)
                | DType::Variant(_)
                | DType::Union(..)
        )
    }

    /// Whether rows of this type can be null.
    pub fn is_nullable(&self) -> bool {
        match self {
            DType::Null => true,
            DType::Bool(nullable)
            | DType::Primitive(_, nullable)
            | DType::Decimal(_, nullable)
            | DType::Utf8(nullable)
            | DType::Binary(nullable)
            | DType::Struct(_, nullable)
            | DType::List(_, nullable)
            | DType::FixedSizeList(_, _, nullable)
            | DType::Map(_, nullable)
            | DType::Variant(nullable)
            | DType::Union(_, nullable) => *nullable,
            DType::Extension(extension) => extension.storage().is_nullable(),
        }
    }

    /// The same type with another nullability. Null stays nullable.
    #[must_use]
    pub fn with_nullable(&self, nullable: bool) -> DType {
        match self {
            DType::Null => DType::Null,
            DType::Bool(_) => DType::Bool(nullable),
            DType::Primitive(ptype, _) => DType::Primitive(*ptype, nullable),
            DType::Decimal(decimal, _) => DType::Decimal(*decimal, nullable),
            DType::Utf8(_) => DType::Utf8(nullable),
            DType::Binary(_) => DType::Binary(nullable),
            DType::Struct(fields, _) => DType::Struct(Arc::clone(fields), nullable),
            DType::List(element, _) => DType::List(Arc::clone(element), nullable),
            DType::FixedSizeList(element, size, _) => {
                DType::FixedSizeList(Arc::clone(element), *size, nullable)
            }
            DType::Map(map, _) => DType::Map(Arc::clone(map), nullable),
            DType::Extension(extension) => DType::Extension(Arc::new(extension.with_nullable(nullable))),
            DType::Variant(_) => DType::Variant(nullable),
            DType::Union(union, _) => DType::Union(Arc::clone(union), nullable),
        }
    }

    /// The machine type, if this is a primitive.
    ///
    /// # Errors
    /// If it is something else.
    pub fn ptype(&self) -> Result<PType> {
        match self {
            DType::Primitive(ptype, _) => Ok(*ptype),
            other => Err(Error::corrupt(format!("expected a primitive type, found {other}"))),
        }
    }

    /// The fields, if this is a struct.
    pub fn as_struct(&self) -> Option<&Arc<StructType>> {
        match self {
            DType::Struct(fields, _) => Some(fields),
            _ => None,
        }
    }

    /// The fields, if this is a struct that is never null: the columns of a usual file.
    pub fn as_columns(&self) -> Option<&Arc<StructType>> {
        match self {
            DType::Struct(fields, false) => Some(fields),
            _ => None,
        }
    }

    /// The type in which values are stored: the innermost storage of extensions, else the type itself.
    pub fn storage(&self) -> &DType {
        match self {
            DType::Extension(extension) => extension.storage().storage(),
            other => other,
        }
    }

    /// A rough size of one decoded row in bytes, for planning.
    pub(crate) fn row_bytes_hint(&self) -> usize {
        let fields = |fields: &StructType| {
            fields.dtypes().iter().fold(0usize, |sum, dtype| sum.saturating_add(dtype.row_bytes_hint()))
        };
        let some = |bytes: usize| bytes.saturating_mul(4).saturating_add(4);
        match self {
            DType::Null => 0,
            DType::Bool(_) => 1,
            DType::Primitive(ptype, _) => ptype.byte_width(),
            DType::Decimal(decimal, _) => {
                if decimal.precision() > 38 {
                    32
                } else {
                    16
                }
            }
            DType::Utf8(_) | DType::Binary(_) => 32,
            DType::Struct(inner, _) => fields(inner),
            DType::List(element, _) => some(element.row_bytes_hint()),
            DType::FixedSizeList(element, size, _) => element.row_bytes_hint().saturating_mul(*size as usize),
            DType::Map(map, _) => some(map.key.row_bytes_hint().saturating_add(map.value.row_bytes_hint())),
            DType::Extension(extension) => extension.storage().row_bytes_hint(),
            DType::Variant(_) => 64,
            DType::Union(union, _) => fields(&union.variants).saturating_add(1),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn fields(f: &mut fmt::Formatter<'_>, fields: &StructType) -> fmt::Result {
            for (at, (name, dtype)) in fields.fields().enumerate() {
                let comma = if at == 0 { "" } else { ", " };
                write!(f, "{comma}{name}={dtype}")?;
            }
            Ok(())
        }
        match self {
            DType::Null => return f.write_str("null"),
            DType::Bool(_) => f.write_str("bool")?,
            DType::Primitive(ptype, _) => write!(f, "{ptype}")?,
            DType::Decimal(decimal, _) => {
                write!(f, "decimal({},{})", decimal.precision, decimal.scale)?;
            }
            DType::Utf8(_) => f.write_str("utf8")?,
            DType::Binary(_) => f.write_str("binary")?,
            DType::Struct(inner, _) => {
                f.write_str("{")?;
                fields(f, inner)?;
                f.write_str("}")?;
            }
            DType::List(element, _) => write!(f, "list({element})")?,
            DType::FixedSizeList(element, size, _) => {
                write!(f, "fixed_size_list({element})[{size}]")?;
            }
            DType::Map(map, _) => write!(f, "map({}, {})", map.key, map.value)?,
            DType::Extension(extension) => return write!(f, "{extension}"),
            DType::Variant(_) => f.write_str("variant")?,
            DType::Union(union, _) => {
                f.write_str("union(")?;
                fields(f, &union.variants)?;
                f.write_str(")")?;
            }
        }
        if self.is_nullable() { f.write_str("?") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nullability_of_an_extension_is_that_of_its_storage() {
        let date = DType::Extension(Arc::new(
            Extension::try_new("vortex.date", DType::Primitive(PType::I32, false), vec![4]).unwrap(),
        ));
        assert!(!date.is_nullable());
        assert!(date.with_nullable(true).is_nullable());
    }

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
    fn decimal_scale_must_not_exceed_precision() {
        assert!(DecimalType::try_new(5, 6).is_err());
        assert!(DecimalType::try_new(0, 0).is_err());
        assert!(DecimalType::try_new(77, 0).is_err());
        assert!(DecimalType::try_new(5, -3).is_ok());
    }

    #[test]
    fn the_size_of_a_row_has_no_end() {
        let wide = (0..5).fold(DType::Primitive(PType::I64, false), |element, _| {
            DType::List(Arc::new(DType::FixedSizeList(Arc::new(element), u32::MAX, false)), false)
        });
        assert_eq!(wide.row_bytes_hint(), usize::MAX);
    }

    #[test]
    fn displays_like_the_reference() {
        let dtype = DType::Struct(
            Arc::new(StructType::new([
                ("a".into(), DType::Primitive(PType::I32, true)),
                ("b".into(), DType::List(Arc::new(DType::Utf8(false)), false)),
            ])),
            false,
        );
        assert_eq!(dtype.to_string(), "{a=i32?, b=list(utf8)}");
    }
}
