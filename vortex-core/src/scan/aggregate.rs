//! Aggregates of the rows of a scan: counts, extremes and sums, computed without building batches.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use futures::TryStreamExt as _;
use parking_lot::Mutex;

use super::column::Column;
use super::plan::Plan;
use super::{BatchStream, ScanBuilder};
use crate::array::{Aggregate, ArrayRef};
use crate::dtype::arrow::data_type;
use crate::error::ResultExt as _;
use crate::expr::Expr;
use crate::limits::Work;
use crate::{Error, Result};

/// Aggregates of the rows of a scan.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Aggregates {
    /// Number of rows.
    pub row_count: u64,
    /// One per projected column.
    pub columns: Vec<Aggregate>,
}

/// Aggregates that splits add to, in any order.
#[derive(Debug)]
pub(super) struct Totals(Mutex<Aggregates>);

impl Totals {
    fn new(projection: &[Column]) -> Self {
        let columns = projection.iter().map(|column| Aggregate::empty(&column.dtype)).collect();
        Self(Mutex::new(Aggregates { row_count: 0, columns }))
    }

    /// Adds rows of all columns, which are obtained from `column`, whose errors name the column.
    pub(super) fn add(
        &self,
        projection: &[Column],
        rows: usize,
        column: impl Fn(&Column) -> Result<ArrayRef>,
    ) -> Result<()> {
        let found = projection.iter().map(|of| {
            let _work = Work::begin();
            column(of)?.aggregate().at(|| of.place())
        });
        self.merge(rows, found.collect::<Result<_>>()?);
        Ok(())
    }

    /// Adds decoded rows.
    pub(super) fn add_batch(&self, projection: &[Column], batch: &RecordBatch) -> Result<()> {
        let columns = projection.iter().zip(batch.columns());
        let found = columns.map(|(of, column)| Aggregate::of(column, &of.dtype));
        self.merge(batch.num_rows(), found.collect::<Result<_>>()?);
        Ok(())
    }

    fn merge(&self, rows: usize, found: Vec<Aggregate>) {
        let mut totals = self.0.lock();
        totals.row_count += rows as u64;
        let before = std::mem::take(&mut totals.columns);
        totals.columns = before.into_iter().zip(found).map(|(before, found)| before.merge(found)).collect();
    }
}

impl ScanBuilder {
    /// Counts rows, and computes the null counts, extremes and sums of the projected columns, directly on
    /// encoded data where possible. All rows are read: the statistics that a file
    /// [keeps](crate::file::Footer::statistics) are not used. The order of rows does not matter, so
    /// [`with_ordered`](Self::with_ordered) and [`with_best_first`](Self::with_best_first) are ignored.
    ///
    /// ```
    /// # use vortex_core::VortexFile;
    /// # async fn example() -> vortex_core::Result<()> {
    /// use vortex_core::expr::column;
    ///
    /// let file = VortexFile::open_path("lineitem.vortex").await?;
    /// let by_air = file.scan().with_filter(column("l_shipmode").eq("AIR"));
    /// let found = by_air.with_projection(["l_linenumber", "l_comment"]).aggregate().await?;
    /// println!("{} rows, the line numbers add up to {:?}", found.row_count, found.columns[0].sum);
    /// if let Some(first) = &found.columns[1].min {
    ///     println!("the first comment is {first}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If columns and filter do not fit the file, if the scan has a limit or a
    /// [dynamic filter](Expr::Dynamic), since the totals would depend on which rows these leave, or if reading
    /// fails.
    pub async fn aggregate(self) -> Result<Aggregates> {
        if self.limit.is_some() {
            return Err(Error::invalid("aggregate() does not support a row limit"));
        }
        if self.filter.as_ref().is_some_and(Expr::has_dynamic_filter) {
            return Err(Error::invalid("aggregate() does not support dynamic filters"));
        }
        let mut plan =
            Plan::new(&Self { schema: None, best_first: None, row_numbers: None, ordered: false, ..self })?;
        let fields = plan.projection.iter().map(|column| {
            Ok(Field::new(column.path.to_string(), data_type(&column.dtype)?, column.dtype.is_nullable()))
        });
        plan.schema = Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?));
        let totals = Arc::new(Totals::new(&plan.projection));
        plan.totals = Some(Arc::clone(&totals));
        let rest: Vec<RecordBatch> = BatchStream::start(plan)?.try_collect().await?;
        debug_assert!(rest.is_empty(), "rows are counted, not handed out");
        let totals = totals.0.lock();
        Ok(totals.clone())
    }
}
