//! Reading a file and comparing it with its expected contents.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema};
use arrow::ipc::reader::FileReader;

use crate::given::{collect_blocking, open_blocking};

/// The rows of an Arrow IPC file.
fn read_arrow(path: &Path) -> RecordBatch {
    let reader = FileReader::try_new(File::open(path).expect("file exists"), None).expect("an Arrow file");
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>().expect("batches");
    concat_batches(&schema, &batches).expect("one schema")
}

/// Checks that a file has the expected contents: Arrow types, validity, and values bit for bit.
pub(crate) fn check(path: &Path, expected: &Path) -> Result<(), String> {
    let expected = read_arrow(expected);
    let file = open_blocking(path).map_err(|error| error.to_string())?;
    let natural = collect_blocking(file.scan()).map_err(|error| error.to_string())?;
    // Names and types are taken from the file's own schema, the Arrow types to decode to from the expected one.
    let fields = natural.schema();
    if fields.fields().len() != expected.num_columns() {
        return Err(format!("{} columns, expected {}", fields.fields().len(), expected.num_columns()));
    }
    let wanted: Vec<Field> = fields
        .fields()
        .iter()
        .zip(expected.schema().fields())
        .map(|(ours, theirs)| Field::new(ours.name(), theirs.data_type().clone(), ours.is_nullable()))
        .collect();
    if natural.num_rows() != expected.num_rows() {
        return Err(format!("{} rows, expected {}", natural.num_rows(), expected.num_rows()));
    }
    let scan = file.scan().with_schema(Arc::new(Schema::new(wanted)));
    let presented = collect_blocking(scan).map_err(|error| error.to_string())?;
    for (at, field) in expected.schema().fields().iter().enumerate() {
        let (ours, theirs) = (presented.column(at), expected.column(at));
        if presented.schema().field(at).name() != field.name() && fields.fields().len() > 1 {
            return Err(format!("column {at} is called {:?}", presented.schema().field(at).name()));
        }
        same(ours, theirs).map_err(|what| format!("column `{}`: {what}", field.name()))?;
    }
    Ok(())
}

/// Compares logically: values under nulls are ignored.
fn same(ours: &ArrayRef, theirs: &ArrayRef) -> Result<(), String> {
    if ours.data_type() != theirs.data_type() {
        return Err(format!("type {}, expected {}", ours.data_type(), theirs.data_type()));
    }
    if ours.as_ref() == theirs.as_ref() {
        return Ok(());
    }
    for row in 0..ours.len() {
        if ours.slice(row, 1).as_ref() != theirs.slice(row, 1).as_ref() {
            return Err(format!("row {row}: {:?}, expected {:?}", ours.slice(row, 1), theirs.slice(row, 1)));
        }
    }
    Ok(())
}
