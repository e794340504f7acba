//! Columns that folders are named after: `year` and `day` of `year=2026/day=1/`.
//!
//! DataFusion leaves out files whose paths lack some of the columns of a table, and columns that only others have.
//! Therefore, the folders of all files of a table name the same columns, or it is refused.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::datasource::listing::{ListingOptions, ListingTableUrl};
use datafusion_common::{Result, ScalarValue, plan_err};
use datafusion_session::Session;
use futures::TryStreamExt as _;
use object_store::path::Path;
use percent_encoding::percent_decode_str;

use super::places::listed_files;
use crate::format::VortexFormat;

/// The columns of a table that folders name.
#[derive(Debug)]
pub(super) struct FolderColumns {
    /// From the outermost folder inwards.
    columns: Vec<(String, DataType)>,
    /// Whether all folders are named as DataFusion looks for them.
    pub(super) are_usual: bool,
}

impl FolderColumns {
    /// Those that the names of folders state.
    ///
    /// # Errors
    /// If they differ between files.
    pub(super) async fn inferred(
        session: &dyn Session,
        urls: &[ListingTableUrl],
        options: &ListingOptions,
    ) -> Result<Self> {
        let data_type = dictionary_of_names();
        let mut first: Option<(Path, Vec<String>)> = None;
        let mut are_usual = true;
        for url in urls {
            for (file, folders) in folders_of_files(session, url, options).await? {
                are_usual &= folders.split('/').all(|folder| is_named_as_usual(folder, &data_type));
                let names: Vec<_> = folder_columns(folders.split('/')).map(str::to_owned).collect();
                match &first {
                    None => first = Some((file, names)),
                    Some((_, same)) if *same == names => {}
                    Some((other, others)) => {
                        return plan_err!(
                            "the folders of {other} name the columns {others:?}, those of {file} {names:?}: create a \
                             table for each, and a view of both"
                        );
                    }
                }
            }
        }
        let names = first.map(|(_, names)| names).unwrap_or_default();
        Ok(Self { columns: names.into_iter().map(|name| (name, data_type.clone())).collect(), are_usual })
    }

    /// Those that a statement declares, possibly none.
    ///
    /// # Errors
    /// If there are some, and the folders of a file do not name them. They may name others below these.
    pub(super) async fn declared(
        session: &dyn Session,
        urls: &[ListingTableUrl],
        options: &ListingOptions,
        columns: Vec<(String, DataType)>,
    ) -> Result<Self> {
        if columns.is_empty() {
            for url in urls {
                folders_of_files(session, url, options).await?;
            }
            return Ok(Self { columns, are_usual: true });
        }
        let expected: String = columns.iter().map(|(column, _)| format!("{column}=…/")).collect();
        let mut are_usual = columns.iter().all(|(_, data_type)| is_usually_displayed(data_type));
        for url in urls {
            if !url.is_collection() {
                return plan_err!(
                    "{url} is a single file, and PARTITIONED BY is for folders named {expected}"
                );
            }
            for (file, folders) in folders_of_files(session, url, options).await? {
                let names = folder_columns(folders.split('/')).take(columns.len());
                if !names.eq(columns.iter().map(|(column, _)| column)) {
                    return plan_err!("{url}: {file} is not in a folder named {expected}");
                }
                let mut values = folders.split('/').zip(&columns);
                are_usual &= values.all(|(folder, (_, data_type))| is_named_as_usual(folder, data_type));
            }
        }
        Ok(Self { columns, are_usual })
    }

    /// Options of a table with these columns. Vortex files may contain them, too: those of the folders take their
    /// place. Formats that are read by the positions of columns could not do without them.
    pub(super) fn added_to(&self, options: ListingOptions) -> ListingOptions {
        let mut options = options.with_table_partition_cols(self.columns.clone());
        if let Some(format) = options.format.downcast_ref::<VortexFormat>() {
            let names = self.columns.iter().map(|(name, _)| name.clone());
            options.format = Arc::new(format.clone().leaving_out(names.collect()));
        }
        options
    }
}

/// The folders that contain the files at a place, relative to it, each with the first of its files; that of a single
/// file is not named. All files are looked at, which DataFusion lists before any query in any case.
pub(super) async fn folders_of_files(
    session: &dyn Session,
    url: &ListingTableUrl,
    options: &ListingOptions,
) -> Result<Vec<(Path, String)>> {
    if !url.is_collection() {
        return Ok(vec![(url.prefix().clone(), String::new())]);
    }
    let store = session.runtime_env().object_store(url)?;
    let mut files = listed_files(session, url, store.as_ref(), &options.file_extension).await?;
    let mut found: Vec<(Path, String)> = Vec::new();
    while let Some(file) = files.try_next().await? {
        let Some(relative) = file.location.as_ref().strip_prefix(url.prefix().as_ref()) else { continue };
        let (folders, _name) = relative.trim_start_matches('/').rsplit_once('/').unwrap_or_default();
        // Stores list the files of a folder one after the other.
        if found.last().is_none_or(|(_, last)| last != folders) {
            let folders = folders.to_owned();
            found.push((file.location, folders));
        }
    }
    Ok(found)
}

/// The columns that folders name, from the outermost one inwards: `year` and `day` of the folders `year=2026/day=1/`.
/// What is behind a folder that is not named after a value does not count.
pub fn folder_columns<'a>(folders: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    folders.map_while(|folder| Some(folder.split_once('=')?.0))
}

/// The name that `PARTITIONED BY` writes like this: DataFusion takes quotes for parts of it.
pub(super) fn unquoted(name: &str) -> Cow<'_, str> {
    match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\"").into(),
        None => name.into(),
    }
}

/// The type of partition columns that are not declared, as in DataFusion.
pub(super) fn dictionary_of_names() -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8))
}

/// Whether a folder, `column=value`, has the name that DataFusion looks for: as it displays the value, with nothing
/// that it or the store may encode.
fn is_named_as_usual(folder: &str, data_type: &DataType) -> bool {
    let Some((column, value)) = folder.split_once('=') else { return true };
    let value = percent_decode_str(value).decode_utf8().unwrap_or(Cow::Borrowed(value));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"=-_.:+,".contains(&byte);
    folder.bytes().all(is_plain)
        && ScalarValue::try_from_string(value.into_owned(), data_type)
            .is_ok_and(|value| folder == format!("{column}={value}"))
}

/// Whether folders are usually named as DataFusion displays values of a type: it displays times as numbers.
fn is_usually_displayed(data_type: &DataType) -> bool {
    use DataType::{Duration, Time32, Time64, Timestamp};
    !matches!(data_type, Timestamp(..) | Time32(_) | Time64(_) | Duration(_))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn folders_name_columns_until_one_is_not_named_after_a_value() {
        for (folders, expected) in [
            ("year=2026/day=1", vec!["year", "day"]),
            ("year=2026/x/day=1", vec!["year"]),
            ("x/day=1", vec![]),
            ("text=a=b", vec!["text"]),
            ("", vec![]),
        ] {
            assert_eq!(folder_columns(folders.split('/')).collect::<Vec<_>>(), expected, "{folders}");
        }
    }

    #[test]
    fn folders_are_named_in_several_ways() {
        let decimal = DataType::Decimal128(6, 2);
        let names = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8));
        for (folder, data_type) in [
            ("a=1", DataType::Int32),
            ("a=-12", DataType::Int64),
            ("a=2024-05-01", DataType::Date32),
            ("a=1.50", decimal.clone()),
            ("a=x_y", DataType::Utf8),
            ("a=x", names.clone()),
            ("a=true", DataType::Boolean),
        ] {
            assert!(is_named_as_usual(folder, &data_type), "{folder}");
        }
        for (folder, data_type) in [
            ("a=01", DataType::Int32),
            ("a=-0", DataType::Int32),
            ("a=1.5", decimal),
            ("a=TRUE", DataType::Boolean),
            ("a=2024-05-01T00:00:00", DataType::Timestamp(TimeUnit::Second, None)),
            ("a=x", DataType::Int32),
            ("a=x%3Ay", DataType::Utf8),
            ("a=x%5By", names),
            ("größe=1", DataType::Int32),
        ] {
            assert!(!is_named_as_usual(folder, &data_type), "{folder}");
        }
    }
}
