//! Listing tables of DataFusion, but for two cases.
//!
//! - A single file was found when the table was created, and scans that follow soon need not look for it again
//!   (`one_file.rs`).
//! - Folders may be named in another way than DataFusion displays their values: for `month = 1`, it lists the files in
//!   `month=1/` alone, also if they are in `month=01/`; for `k = 'a:b'`, those in `k=a:b/`, not in `k=a%3Ab/`. See `tests/it/upstream/files.rs`:
//!   `folders_are_looked_for_by_one_of_the_names_that_a_value_has`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use datafusion::datasource::listing::ListingTable;
use datafusion_catalog::{ScanArgs, ScanResult};
use datafusion_common::tree_node::{Transformed, TreeNode as _};
use datafusion_common::{Constraints, Result, ScalarValue};
use datafusion_expr::dml::InsertOp;
use datafusion_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableType, in_list};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_session::{Session, TableProvider};
use percent_encoding::percent_decode_str;

use super::one_file::Found;

/// A listing table that is scanned in another way.
#[derive(Debug)]
pub(super) struct ListedTable {
    listed: ListingTable,
    /// Its only file, if that is known.
    found: Option<Found>,
    /// Whether files may be in other folders than DataFusion looks for.
    searches_all: bool,
}

impl ListedTable {
    /// The table, as simple as it can be.
    pub(super) fn provider(
        listed: ListingTable,
        found: Option<Found>,
        searches_all: bool,
    ) -> Arc<dyn TableProvider> {
        match found.is_some() || searches_all {
            true => Arc::new(Self { listed, found, searches_all }),
            false => Arc::new(listed),
        }
    }
}

/// Whether a folder, `column=value`, has the name that DataFusion looks for: as it displays the value, with nothing that it
/// or the store may encode.
pub(super) fn is_named_as_usual(folder: &str, data_type: &DataType) -> bool {
    let Some((column, value)) = folder.split_once('=') else { return true };
    let value = percent_decode_str(value).decode_utf8().unwrap_or(Cow::Borrowed(value));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"=-_.:+,".contains(&byte);
    folder.bytes().all(is_plain)
        && ScalarValue::try_from_string(value.into_owned(), data_type)
            .is_ok_and(|value| folder == format!("{column}={value}"))
}

/// Whether folders are usually named as DataFusion displays values of a type: it displays times as numbers.
pub(super) fn is_usually_displayed(data_type: &DataType) -> bool {
    use DataType::{Duration, Time32, Time64, Timestamp};
    !matches!(data_type, Timestamp(..) | Time32(_) | Time64(_) | Duration(_))
}

/// The same filter, without comparisons by `=`, of which DataFusion makes the names of folders.
fn of_any_folder(filter: &Expr) -> Result<Expr> {
    let replaced = filter.clone().transform_up(|part| {
        Ok(match part {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => match (*left, *right) {
                (column @ Expr::Column(_), value @ Expr::Literal(..))
                | (value @ Expr::Literal(..), column @ Expr::Column(_)) => {
                    Transformed::yes(in_list(column, vec![value], false))
                }
                (left, right) => Transformed::no(left.eq(right)),
            },
            other => Transformed::no(other),
        })
    });
    replaced.map(|filter| filter.data)
}

#[async_trait]
impl TableProvider for ListedTable {
    fn schema(&self) -> SchemaRef {
        self.listed.schema()
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.listed.constraints()
    }

    fn table_type(&self) -> TableType {
        self.listed.table_type()
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.listed.get_table_definition()
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.listed.get_column_default(column)
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.listed.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let args = ScanArgs::default()
            .with_projection(projection.map(Vec::as_slice))
            .with_filters(Some(filters))
            .with_limit(limit);
        Ok(self.scan_with_args(session, args).await?.into_inner())
    }

    async fn scan_with_args<'a>(&self, session: &dyn Session, args: ScanArgs<'a>) -> Result<ScanResult> {
        if let Some(found) = &self.found
            && let Some(scan) = found.scan(&self.listed, session, &args).await?
        {
            return Ok(ScanResult::new(scan));
        }
        let filters = args
            .filters()
            .filter(|_| self.searches_all)
            .map(|filters| filters.iter().map(of_any_folder).collect::<Result<Vec<_>>>());
        match filters.transpose()? {
            Some(filters) => {
                let args = args.with_filters(Some(&filters));
                self.listed.scan_with_args(session, args).await
            }
            None => self.listed.scan_with_args(session, args).await,
        }
    }

    async fn insert_into(
        &self,
        session: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.listed.insert_into(session, input, op).await
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;
    use datafusion_expr::{col, lit};

    use super::*;

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

    #[test]
    fn filters_keep_their_meaning() {
        let filter = col("m").eq(lit(1)).and(lit(2).eq(col("d"))).and(col("m").eq(col("d")));
        let found = of_any_folder(&filter).unwrap().to_string();
        assert_eq!(found, "m IN ([Int32(1)]) AND d IN ([Int32(2)]) AND m = d");
    }
}
