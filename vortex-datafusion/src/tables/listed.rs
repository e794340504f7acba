//! Listing tables of DataFusion, but for three cases.
//!
//! - Folders are listed before DataFusion looks for their listing, so that none is kept that is outdated
//!   (`reading/listings.rs`).
//! - A single file was found when the table was created, and scans that follow soon need not look for it again
//!   (`one_file.rs`).
//! - Folders may be named in another way than DataFusion displays their values (`folders.rs`): for `month = 1`, it
//!   lists the files in `month=1/` alone, also if they are in `month=01/`; for `k = 'a:b'`, those in `k=a:b/`, not in
//!   `k=a%3Ab/`. See `tests/it/upstream/files.rs`: `folders_are_looked_for_by_one_of_the_names_that_a_value_has`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::datasource::listing::{ListingTable, ListingTableUrl};
use datafusion_catalog::{ScanArgs, ScanResult};
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion_common::{Constraints, Result};
use datafusion_expr::dml::InsertOp;
use datafusion_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableType, in_list};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_session::{Session, TableProvider};

use super::one_file::Found;
use crate::reading::listings::{Listings, Made, is_gone};

/// A listing table that is scanned in another way.
#[derive(Debug)]
pub(super) struct ListedTable {
    listed: ListingTable,
    /// Its only file, if that is known.
    found: Option<Found>,
    /// Whether files may be in other folders than DataFusion looks for.
    searches_all: bool,
    /// The bytes that listings could take when one of the table turned out to be longer.
    too_long_for: AtomicUsize,
}

impl ListedTable {
    /// The table, as simple as it can be.
    pub(super) fn provider(
        listed: ListingTable,
        found: Option<Found>,
        searches_all: bool,
    ) -> Arc<dyn TableProvider> {
        if found.is_some() || listed.table_paths().iter().any(ListingTableUrl::is_collection) {
            Arc::new(Self { listed, found, searches_all, too_long_for: AtomicUsize::new(usize::MAX) })
        } else {
            Arc::new(listed)
        }
    }
}

/// The same filter, without comparisons by `=`, of which DataFusion makes the names of folders.
fn of_any_folder(filter: &Expr) -> Result<Expr> {
    filter
        .clone()
        .transform_up(|part| {
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
        })
        .data()
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
        let listings = Listings::of(&session.runtime_env().cache_manager);
        let (places, limit) = (self.listed.table_paths(), listings.limit());
        let mut made = Made::Kept;
        if self.too_long_for.load(Ordering::Relaxed) != limit {
            made = listings.make(session, places).await?;
            let too_long_for = if made == Made::TooLong { limit } else { usize::MAX };
            self.too_long_for.store(too_long_for, Ordering::Relaxed);
        }
        let filters = args
            .filters()
            .filter(|_| self.searches_all)
            .map(|filters| filters.iter().map(of_any_folder).collect::<Result<Vec<_>>>());
        let scanned = match filters.transpose()? {
            Some(filters) => {
                let args = args.with_filters(Some(&filters));
                self.listed.scan_with_args(session, args).await
            }
            None => self.listed.scan_with_args(session, args).await,
        };
        if made == Made::Changing || scanned.as_ref().is_err_and(is_gone) {
            listings.remove(places);
        }
        scanned
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
    use datafusion_expr::{col, lit};

    use super::*;

    #[test]
    fn filters_keep_their_meaning() {
        let filter = col("m").eq(lit(1)).and(lit(2).eq(col("d"))).and(col("m").eq(col("d")));
        let found = of_any_folder(&filter).unwrap().to_string();
        assert_eq!(found, "m IN ([Int32(1)]) AND d IN ([Int32(2)]) AND m = d");
    }
}
