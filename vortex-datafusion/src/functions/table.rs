//! Tables whose columns are values of rows of one type.

use std::iter;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, ListBuilder, RecordBatch, StringArray, StringBuilder, UInt32Array, UInt32Builder,
    UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::Result;
use vortex_core::file::SegmentId;

/// The name of a column, and its values.
pub(super) type Column<R> = (&'static str, Values<R>);

/// What a column has of each row.
pub(super) enum Values<R> {
    Text(fn(&R) -> Option<&str>),
    Texts(fn(&R) -> Option<&[String]>),
    Count(fn(&R) -> Option<u64>),
    Flag(fn(&R) -> Option<bool>),
    Id(fn(&R) -> SegmentId),
    Ids(fn(&R) -> Vec<SegmentId>),
}

impl<R> Values<R> {
    fn field(&self, name: &str) -> Field {
        let list_of = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        let data_type = match self {
            Self::Text(_) => DataType::Utf8,
            Self::Texts(_) => list_of(DataType::Utf8),
            Self::Count(_) => DataType::UInt64,
            Self::Flag(_) => DataType::Boolean,
            Self::Id(_) => DataType::UInt32,
            Self::Ids(_) => list_of(DataType::UInt32),
        };
        Field::new(name, data_type, !matches!(self, Self::Id(_)))
    }

    fn of(&self, rows: &[R]) -> ArrayRef {
        match self {
            Self::Text(of) => Arc::new(rows.iter().map(of).collect::<StringArray>()),
            Self::Texts(of) => {
                let mut lists = ListBuilder::new(StringBuilder::new());
                for row in rows {
                    lists.append_option(of(row).map(|texts| texts.iter().map(Some)));
                }
                Arc::new(lists.finish())
            }
            Self::Count(of) => Arc::new(rows.iter().map(of).collect::<UInt64Array>()),
            Self::Flag(of) => Arc::new(rows.iter().map(of).collect::<BooleanArray>()),
            Self::Id(of) => Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| of(row).0))),
            Self::Ids(of) => {
                let mut lists = ListBuilder::new(UInt32Builder::new());
                for row in rows {
                    lists.append_value(of(row).into_iter().map(|id| Some(id.0)));
                }
                Arc::new(lists.finish())
            }
        }
    }
}

/// The schema of these columns, after one for the name of the file.
pub(super) fn schema<R>(columns: &[Column<R>]) -> SchemaRef {
    let file = Field::new("file", DataType::Utf8, false);
    let fields = columns.iter().map(|(name, values)| values.field(name));
    Arc::new(Schema::new(iter::once(file).chain(fields).collect::<Vec<_>>()))
}

/// The rows of one file.
pub(super) fn batch<R>(file: &str, columns: &[Column<R>], rows: &[R]) -> Result<RecordBatch> {
    let file: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|_| file)));
    let arrays = iter::once(file).chain(columns.iter().map(|(_, values)| values.of(rows)));
    Ok(RecordBatch::try_new(schema(columns), arrays.collect())?)
}
