//! The columns of CSV files.
//!
//! DataFusion cuts a file into pieces at line breaks, even at those within quotes, and parses each by itself.
//! Here, a file is parsed from its start.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::csv::reader::Format;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::config::CsvOptions;
use datafusion::datasource::file_format::DEFAULT_SCHEMA_INFER_MAX_RECORD;

use super::text::Files;

/// The columns of files, with types that fit their first rows: Null if these have no value; text if no rows are to be
/// read. Times are in microseconds, also if all first ones are whole seconds, since the parser would cut later ones off;
/// in nanoseconds if the first ones are.
pub(super) async fn schema(
    options: &CsvOptions,
    session: &dyn Session,
    files: &Files<'_>,
) -> Result<SchemaRef> {
    let has_header = options.has_header.unwrap_or(session.config_options().catalog.has_header);
    let format = format(options, has_header);
    let rows = options.schema_infer_max_rec.unwrap_or(DEFAULT_SCHEMA_INFER_MAX_RECORD);
    let mut left = rows;
    let mut schemas = Vec::new();
    for object in files.objects {
        let format = format.clone();
        let (schema, read) = files
            .read(object, move |file| {
                let (schema, read) = format.infer_schema(file, Some(left))?;
                check_names(&schema)?;
                Ok((schema, read))
            })
            .await?;
        schemas.push(schema);
        left -= read;
        if left == 0 {
            break;
        }
    }
    let schema = Schema::try_merge(schemas)?;
    let schema = match rows {
        0 => with_types(&schema, |_| DataType::Utf8),
        _ => with_types(&schema, |inferred| match inferred {
            DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            other => other.clone(),
        }),
    };
    Ok(Arc::new(schema))
}

/// The columns without a value in the rows that were read as text: later rows may have one, which would be dropped.
pub(crate) fn text_if_empty(schema: &Schema) -> Schema {
    with_types(schema, |inferred| match inferred {
        DataType::Null => DataType::Utf8,
        other => other.clone(),
    })
}

fn with_types(schema: &Schema, of: impl Fn(&DataType) -> DataType) -> Schema {
    let typed = |field: &Arc<Field>| field.as_ref().clone().with_data_type(of(field.data_type()));
    let fields: Vec<Field> = schema.fields().iter().map(typed).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn format(options: &CsvOptions, has_header: bool) -> Format {
    let mut format = Format::default()
        .with_header(has_header)
        .with_delimiter(options.delimiter)
        .with_quote(options.quote)
        .with_truncated_rows(options.truncated_rows.unwrap_or(false));
    if let Some(escape) = options.escape {
        format = format.with_escape(escape);
    }
    if let Some(comment) = options.comment {
        format = format.with_comment(comment);
    }
    if let Some(terminator) = options.terminator {
        format = format.with_terminator(terminator);
    }
    format
}

/// Refuses columns of the same name, which DataFusion would take for one. See `tests/it/upstream/files.rs`:
/// `columns_of_one_name_in_csv_files_are_taken_for_one`.
fn check_names(schema: &Schema) -> Result<(), String> {
    let mut names = HashSet::new();
    match schema.fields().iter().find(|field| !names.insert(field.name())) {
        None => Ok(()),
        Some(field) => Err(format!(
            "duplicate column `{}`; name the columns in SQL: CREATE EXTERNAL TABLE t (name TYPE, ...) STORED AS CSV \
             LOCATION '...'",
            field.name()
        )),
    }
}
