//! The columns of CSV files.
//!
//! DataFusion cuts a file into pieces at line breaks, even at those within quotes, and parses each by itself.
//! Here, a file is parsed from its start.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::csv::reader::Format;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::Session;
use datafusion::common::{Result, exec_err};
use datafusion::config::CsvOptions;
use futures::stream;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectMeta;
use object_store::path::Path;
use parking_lot::Mutex;

use super::LINES_FOR_TYPES;
use super::text::Files;
use crate::columns::{repeated_name, with_types};

/// Headers that are read at the same time.
const READ_AT_ONCE: usize = 32;

/// The columns of files, with types that fit their first rows: Null if these have no value; text if no rows are to be
/// read. Times are in microseconds, also if all first ones are whole seconds, since the parser would cut later ones
/// off; in nanoseconds if the first ones are.
pub(super) async fn schema(
    options: &CsvOptions,
    session: &dyn Session,
    files: &Files<'_>,
) -> Result<SchemaRef> {
    let has_header = has_header(options, session);
    let format = format(options, has_header);
    let rows = options.schema_infer_max_rec.unwrap_or(LINES_FOR_TYPES);
    let mut left = rows;
    let mut schemas = Vec::new();
    let mut objects = files.objects.iter();
    for object in objects.by_ref() {
        let (schema, read) = inferred(&format, files, object, left).await?;
        schemas.push((object, schema));
        left -= read;
        if left == 0 {
            break;
        }
    }
    if has_header {
        // Columns are read by position, also in files of which nothing else is looked at here.
        let rest: Vec<_> =
            objects.as_slice().iter().map(|object| inferred(&format, files, object, 0)).collect();
        let rest: Vec<_> = stream::iter(rest).buffered(READ_AT_ONCE).try_collect().await?;
        let rest = objects.zip(rest.iter().map(|(schema, _)| schema));
        let all = schemas.iter().map(|(object, schema)| (*object, schema)).chain(rest);
        check_order(all.map(|(object, schema)| (&object.location, schema)))?;
    }
    let schema = Schema::try_merge(schemas.into_iter().map(|(_, schema)| schema))?;
    let schema = match rows {
        0 => with_types(&schema, |_| DataType::Utf8),
        _ => with_types(&schema, |inferred| match inferred.data_type() {
            DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            other => other.clone(),
        }),
    };
    Ok(Arc::new(schema))
}

/// The columns of a file, with types that fit so many of its first rows, and the number of rows read.
async fn inferred(
    format: &Format,
    files: &Files<'_>,
    object: &ObjectMeta,
    rows: usize,
) -> Result<(Schema, usize)> {
    let format = format.clone();
    files
        .text
        .read(object, move |file| {
            let (schema, read) = format.infer_schema(file, Some(rows))?;
            check_names(&schema)?;
            Ok((schema, read))
        })
        .await
}

/// The files whose headers have been compared with the columns of a table: their paths, times and sizes.
#[derive(Debug, Default)]
pub(super) struct Headers(Mutex<HashSet<(Path, i64, u64)>>);

impl Headers {
    /// Those of some files whose headers have not been compared.
    pub(super) fn unchecked<'a>(&self, files: impl Iterator<Item = &'a ObjectMeta>) -> Vec<ObjectMeta> {
        let checked = self.0.lock();
        files.filter(|file| !checked.contains(&identity(file))).cloned().collect()
    }

    /// Refuses files in which a column of the table is at another place: as columns are read by position, values would
    /// be taken for those of other columns. A column may have a name of which there is none in the header.
    pub(super) async fn check(
        &self,
        options: &CsvOptions,
        session: &dyn Session,
        files: &Files<'_>,
        table: &Schema,
    ) -> Result<()> {
        if !has_header(options, session) {
            return Ok(());
        }
        let format = format(options, true);
        let compared = files.objects.iter().map(|object| {
            let (format, table) = (format.clone(), table.clone());
            files.text.read(object, move |file| {
                let (header, _) = format.infer_schema(file, Some(0))?;
                Ok(check_places(&table, &header)?)
            })
        });
        let compared: Vec<_> = compared.collect();
        let () = stream::iter(compared).buffered(READ_AT_ONCE).try_collect().await?;
        self.add(files.objects);
        Ok(())
    }

    /// Adds files of which the columns of the table come.
    pub(super) fn add(&self, files: &[ObjectMeta]) {
        self.0.lock().extend(files.iter().map(identity));
    }
}

fn identity(file: &ObjectMeta) -> (Path, i64, u64) {
    (file.location.clone(), file.last_modified.timestamp_micros(), file.size)
}

/// Refuses a header that has more names than there are columns, or that of a column at another place only.
fn check_places(table: &Schema, header: &Schema) -> Result<(), String> {
    let names: Vec<&str> = header.fields().iter().map(|field| field.name().as_str()).collect();
    let order = names.join(", ");
    let declared = table.fields().len();
    if names.len() > declared {
        return Err(format!(
            "the table has {declared} of {} columns, which are read by position; declare all of them, under any names, in \
             the order of the file: {order}",
            names.len()
        ));
    }
    for (at, column) in table.fields().iter().enumerate() {
        let is_name = |name: &&str| name.trim().eq_ignore_ascii_case(column.name());
        if names.get(at).is_some_and(is_name) {
            continue;
        }
        if let Some(place) = names.iter().position(is_name) {
            return Err(format!(
                "column {} of the table is `{}`, which is column {} of the file, and columns are read by position; declare \
                 all of them, under any names, in the order of the file: {order}",
                at + 1,
                column.name(),
                place + 1,
            ));
        }
    }
    Ok(())
}

/// Refuses files whose columns are in another order than those of the first one: as they are read by position, values
/// would be taken for those of other columns.
fn check_order<'a>(mut files: impl Iterator<Item = (&'a Path, &'a Schema)>) -> Result<()> {
    let Some((first_place, first)) = files.find(|(_, schema)| !schema.fields().is_empty()) else {
        return Ok(());
    };
    for (place, schema) in files {
        let pairs = first.fields().iter().zip(schema.fields()).enumerate();
        let other = |(_, (one, other)): &(usize, (&Arc<Field>, &Arc<Field>))| one.name() != other.name();
        if let Some((at, (one, other))) = pairs.into_iter().find(other) {
            let (at, one, other) = (at + 1, one.name(), other.name());
            return exec_err!(
                "{place}: column {at} is `{other}`, that of {first_place} is `{one}`; query them one by one"
            );
        }
    }
    Ok(())
}

/// The columns without a value in the rows that were read as text: later rows may have one, which would be dropped.
pub(crate) fn text_if_empty(schema: &Schema) -> Schema {
    with_types(schema, |inferred| match inferred.data_type() {
        DataType::Null => DataType::Utf8,
        other => other.clone(),
    })
}

fn has_header(options: &CsvOptions, session: &dyn Session) -> bool {
    options.has_header.unwrap_or(session.config_options().catalog.has_header)
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
    match repeated_name(schema) {
        None => Ok(()),
        Some(name) => Err(format!(
            "duplicate column `{name}`; name the columns in SQL: CREATE EXTERNAL TABLE t (name TYPE, ...) STORED AS CSV \
             LOCATION '...'"
        )),
    }
}
