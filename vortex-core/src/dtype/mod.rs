//! Logical types: the meaning of a column, independent of its encoding.
//!
//! [`DType`] is the type of a column in the file; [`arrow`](mod@self::arrow) maps it to
//! Arrow fields and back. Nullability is part of the type.

pub mod arrow;
mod extension;
mod inner;
mod nested;
mod ptype;
pub(crate) mod stored;
pub(crate) mod time_zone;

use std::fmt;
use std::sync::Arc;

use ::arrow::datatypes::DECIMAL128_MAX_PRECISION;

pub use extension::{Extension, Meaning, TimeUnit};
pub(crate) use inner::{any_inner, with_inner};
pub use nested::{MapType, StructType, UnionType};
pub use ptype::PType;
pub(crate) use ptype::{match_integer, match_ptype};

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

    /// Whether rows of this type can be null: those of unions also in that the variant that they select is null.
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
            | DType::Variant(nullable) => *nullable,
            DType::Union(_, nullable) => *nullable || self.has_nullable_variants(),
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
    pub fn as_ptype(&self) -> Option<PType> {
        match self {
            DType::Primitive(ptype, _) => Some(*ptype),
            _ => None,
        }
    }

    /// The machine type of values in a file.
    ///
    /// # Errors
    /// If they are not primitive.
    pub(crate) fn ptype(&self) -> Result<PType> {
        self.as_ptype().ok_or_else(|| Error::corrupt(format!("expected a primitive type, found {self}")))
    }

    /// The machine type of integers.
    pub(crate) fn integer_ptype(&self) -> Result<PType> {
        let ptype = self.ptype()?;
        if !ptype.is_integer() {
            return Err(Error::corrupt(format!("holds integers, not {ptype}")));
        }
        Ok(ptype)
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

    /// The position and the type of the first column with this name. A type that has no
    /// [columns](Self::as_columns) is itself one, called [`ROOT_COLUMN`].
    pub fn column(&self, name: &str) -> Option<(usize, &DType)> {
        match self.as_columns() {
            Some(columns) => {
                let at = columns.position(name)?;
                Some((at, columns.dtypes().get(at)?))
            }
            None => (name == ROOT_COLUMN).then_some((0, self)),
        }
    }

    /// Whether this is a union with variants that may be null. As Arrow counts, rows that select a null one are null,
    /// too; the format's null counts leave them out.
    pub(crate) fn has_nullable_variants(&self) -> bool {
        match self.storage() {
            DType::Union(union, _) => union.variants().dtypes().iter().any(DType::is_nullable),
            _ => false,
        }
    }

    /// The type in which values are stored: the innermost storage of extensions, else the type itself.
    pub fn storage(&self) -> &DType {
        match self {
            DType::Extension(extension) => extension.storage().storage(),
            other => other,
        }
    }

    /// Whether values are booleans, numbers, text or byte strings, which are in an order.
    pub(crate) fn is_scalar(&self) -> bool {
        matches!(
            self.storage(),
            DType::Bool(_) | DType::Primitive(..) | DType::Decimal(..) | DType::Utf8(_) | DType::Binary(_)
        )
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
                if decimal.precision() > DECIMAL128_MAX_PRECISION {
                    32
                } else {
                    16
                }
            }
            DType::Utf8(_) | DType::Binary(_) => 32,
            DType::Struct(inner, _) => fields(inner),
            DType::List(element, _) => some(element.row_bytes_hint()),
            DType::FixedSizeList(element, size, _) => element.row_bytes_hint().saturating_mul(*size as usize),
            DType::Map(map, _) => {
                some(map.key().row_bytes_hint().saturating_add(map.value().row_bytes_hint()))
            }
            DType::Extension(extension) => extension.storage().row_bytes_hint(),
            DType::Variant(_) => 64,
            DType::Union(union, _) => fields(union.variants()).saturating_add(1),
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
            DType::Map(map, _) => write!(f, "map({}, {})", map.key(), map.value())?,
            DType::Extension(extension) => return write!(f, "{extension}"),
            DType::Variant(_) => f.write_str("variant")?,
            DType::Union(union, _) => {
                f.write_str("union(")?;
                fields(f, union.variants())?;
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
    fn decimal_scale_must_not_exceed_precision() {
        assert!(DecimalType::try_new(5, 6).is_err());
        assert!(DecimalType::try_new(0, 0).is_err());
        assert!(DecimalType::try_new(77, 0).is_err());
        assert!(DecimalType::try_new(5, -3).is_ok());
    }

    #[test]
    fn only_numbers_have_a_machine_type() {
        assert_eq!(DType::Primitive(PType::I8, true).as_ptype(), Some(PType::I8));
        assert_eq!(DType::Bool(false).as_ptype(), None);
    }

    #[test]
    fn a_type_without_columns_is_a_column_itself() {
        let number = DType::Primitive(PType::I32, false);
        let fields = Arc::new(StructType::new([("a".into(), DType::Null), ("b".into(), number.clone())]));
        let (usual, nullable) = (DType::Struct(Arc::clone(&fields), false), DType::Struct(fields, true));
        assert_eq!((usual.column("b"), usual.column(ROOT_COLUMN)), (Some((1, &number)), None));
        for whole in [number, nullable] {
            assert_eq!((whole.column(ROOT_COLUMN), whole.column("b")), (Some((0, &whole)), None));
        }
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
