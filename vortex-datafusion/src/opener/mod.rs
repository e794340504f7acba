//! Opening one file of a scan: from what planning knows to a stream of batches.
//!
//! ```text
//! fill      partition columns, file name, results of subqueries become literals
//! prune     check filters against constants and statistics known from planning: perhaps nothing is read
//! footer    from the cache, or one read
//! adapt     columns of the table -> columns of this file (types, missing columns, fields)
//! filter    evaluate each conjunct on encodings, or by DataFusion on decoded columns;
//!           dynamic filters in addition
//! project   leaves to decode, and expressions over them
//! rows      those that are selected, in the range of the file (bytes -> whole splits of rows), and of the numbers
//!           that filters want
//! aggregate states of functions instead of rows, if the plan wants these
//! stream    project, stop early
//! ```
//!
//! All of this is done per file: files of a table may differ in columns and types.

mod aggregate;
mod ahead;
mod conjuncts;
mod constants;
mod listed_values;
mod numbered;
mod open_files;
mod prune;
mod split;
mod stream;
mod translations;

use std::sync::Arc;

use aggregate::Aggregated;
pub(crate) use ahead::{Ahead, SharedAhead};
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use conjuncts::{Conjuncts, Evaluation};
use constants::FileConstants;
use datafusion_common::{DataFusionError, Result, ScalarValue, plan_err};
use datafusion_datasource::file_stream::{FileOpenFuture, FileOpener};
use datafusion_datasource::{PartitionedFile, TableSchema};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{Column, Literal};
use datafusion_physical_expr::projection::ProjectionExprs;
use datafusion_physical_expr::utils::split_conjunction;
use datafusion_physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use numbered::{ROW_NUMBER, wants_row_numbers, with_number};
use object_store::ObjectStore;
use open_files::OpenFile;
pub(crate) use open_files::OpenFiles;
pub(crate) use prune::FilePruning;
use prune::Outlook;
use stream::{Projector, projected};
pub(crate) use translations::Translations;
use vortex_core::VortexFile;
use vortex_core::expr::{Expr, FieldPath};
use vortex_core::io::object_name;
use vortex_core::scan::{BestRows, Extremes, RowRanges, ScanBuilder};

use crate::aggregation::Aggregation;
use crate::convert::{
    AppliedTo, Leaves, PhysicalPredicate, TranslatedFilter, Translator, datafusion_error, guarded,
    is_dynamic, is_fallible, schema, simplify,
};
use crate::memory::ScanMemory;
use crate::metrics::ScanCounters;
use crate::options::VortexOptions;
use crate::pushdown::{BestFirst, Filters};
use crate::reading::Reading;
use crate::selection::RowSelection;

/// Batches of one file.
type Batches = BoxStream<'static, Result<arrow::array::RecordBatch>>;

/// Opens files for one partition of a scan.
pub(crate) struct VortexOpener {
    pub(crate) state: Arc<OpenerState>,
    /// Files opened before their turn, if that is worthwhile.
    pub(crate) ahead: Option<Arc<Ahead>>,
}

/// The state shared by all files of a partition.
pub(crate) struct OpenerState {
    pub(crate) table: TableSchema,
    /// What to compute of rows: the columns that the plan expects, or the arguments of the aggregation.
    pub(crate) outputs: ProjectionExprs,
    /// The schema of the outputs.
    pub(crate) output_schema: SchemaRef,
    pub(crate) aggregation: Option<Aggregation>,
    /// The filters that apply despite a limit.
    pub(crate) filters: Filters,
    /// Those filters, as what excludes files.
    pub(crate) pruning: FilePruning,
    /// Those filters, as what scans evaluate.
    pub(crate) translations: Translations,
    pub(crate) best_first: Option<BestFirst>,
    pub(crate) reading: Reading,
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) batch_size: usize,
    /// For each function of an aggregation, the extremes found in the files of the partition; none if these are read
    /// ahead.
    pub(crate) extremes: Vec<Arc<Extremes>>,
    /// Adapts expressions to a file in another way than DataFusion does.
    pub(crate) adapters: Option<Arc<dyn PhysicalExprAdapterFactory>>,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) limit: Option<usize>,
    /// Whether rows must come in the order of the file.
    pub(crate) ordered: bool,
    /// Whether rows are decoded when they are taken: if there are partitions to keep all workers of the runtime busy.
    pub(crate) late: bool,
    /// The best rows found in the files of the partition.
    pub(crate) best_rows: Arc<BestRows>,
    pub(crate) memory: Option<Arc<ScanMemory>>,
    pub(crate) metrics: ScanCounters,
}

impl FileOpener for VortexOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let (state, ahead) = (Arc::clone(&self.state), self.ahead.clone());
        Ok(Box::pin(async move {
            let path = object_name(state.store.as_ref(), &file.object_meta.location);
            let (listings, location) = (state.reading.listings().clone(), file.object_meta.location.clone());
            let opened = match ahead {
                Some(ahead) => ahead.open(state, file).await,
                None => state.open(file).await,
            };
            let opened = opened.map_err(|error| {
                listings.forget_if_gone(&location, &error);
                error.context(format!("opening {path}"))
            })?;
            Ok(opened.inspect_err(move |error| listings.forget_if_gone(&location, error)).boxed())
        }))
    }
}

impl OpenerState {
    fn options(&self) -> &VortexOptions {
        self.reading.options()
    }

    async fn open(&self, file: PartitionedFile) -> Result<Batches> {
        self.open_beside(&self.best_rows, file).await
    }

    /// Opens a file before its turn, which may come in another partition, or another execution of the plan: the best
    /// rows found in it do not count for others.
    async fn open_early(&self, file: PartitionedFile) -> Result<Batches> {
        self.open_beside(&best_rows(self.best_first.as_ref()), file).await
    }

    async fn open_beside(&self, found: &Arc<BestRows>, file: PartitionedFile) -> Result<Batches> {
        let constants = FileConstants::new(&self.table, &file);
        let Outlook::Open(pruner) = self.outlook(&constants, &file)? else { return Ok(nothing()) };
        let entry = self.open_file(&file);
        let opened = entry.clone().await.map_err(DataFusionError::Shared)?;
        if opened.row_count() == 0 {
            return Ok(nothing());
        }
        let adapted = Adapted::try_new(self, &opened, constants)?;
        let Some(filter) = adapted.filter()? else { return Ok(nothing()) };
        let (leaves, projector) = adapted.projection()?;
        let metrics = self.metrics.file(ahead::len(&file));
        let scan = adapted.scan_builder(&leaves, filter, found).with_metrics(Arc::clone(metrics.scan()));
        let Some(scan) = self.rows_to_read(scan, &file, opened.row_count())? else { return Ok(nothing()) };
        let aggregated = match &self.aggregation {
            Some(aggregation) => Some(Aggregated::try_new(&adapted, aggregation, &scan)?),
            None => None,
        };
        let rows = move || {
            let batches = scan.into_stream().map_err(datafusion_error)?;
            Ok(projected(batches, projector, pruner, metrics, entry).boxed())
        };
        match aggregated {
            Some(aggregated) => Ok(aggregated.into_batches(rows)),
            None => rows(),
        }
    }

    /// What is known of the file before it is opened, which is counted.
    fn outlook(&self, constants: &FileConstants, file: &PartitionedFile) -> Result<Outlook> {
        let errors = &self.metrics.predicate_errors;
        let outlook = self.pruning.outlook(constants, file, errors)?;
        match outlook {
            Outlook::Excluded => self.metrics.files_pruned.add_pruned(1),
            Outlook::Open(_) => self.metrics.files_pruned.add_matched(1),
        }
        Ok(outlook)
    }

    /// Opens the file, unless it is open already, as files of tables over open files are.
    fn open_file(&self, file: &PartitionedFile) -> OpenFile {
        match file.extension::<VortexFile>() {
            Some(open) => {
                let open = self.check_verified(open).map(|()| open.clone()).map_err(Arc::new);
                futures::future::ready(open).boxed().shared()
            }
            None => self.files.entry(&file.object_meta, || self.load(file)),
        }
    }

    /// Whether an open file is verified as the options ask: it is too late to do so.
    fn check_verified(&self, open: &VortexFile) -> Result<()> {
        let footer = open.footer();
        let ignores = footer.has_checksums() && !footer.verifies_checksums();
        if self.options().verify_checksums && ignores {
            plan_err!(
                "{} was opened without verifying its checksums, which `verify_checksums` asks for: open it with \
                 `OpenOptions::with_verify_checksums(true)`",
                open.source().name()
            )
        } else {
            Ok(())
        }
    }

    /// The scan of those rows of a file that are selected, in its range, and not excluded by filters on their
    /// numbers; `None` if there are none.
    fn rows_to_read(
        &self,
        scan: ScanBuilder,
        file: &PartitionedFile,
        row_count: u64,
    ) -> Result<Option<ScanBuilder>> {
        let selection = file.extension::<RowSelection>();
        let mut scan = match selection {
            Some(selection) => selection.apply(scan),
            None => scan,
        };
        let mut rows = range_of(file, &scan)?;
        if self.options().predicate_pushdown
            && let Some(passing) = numbered::passing(self.filters.hints())
        {
            let passing = passing.intersection(&rows.unwrap_or((0..row_count).into()));
            if let (None, Some(few)) = (selection, numbered::listed(&passing)) {
                scan = scan.with_row_indices(few);
            }
            rows = Some(passing);
        }
        Ok(match rows {
            None => Some(scan),
            Some(rows) if rows.is_empty() => None,
            Some(rows) => Some(scan.with_row_ranges(rows)),
        })
    }

    /// Reads the footer, unless it is cached.
    fn load(&self, file: &PartitionedFile) -> OpenFile {
        let hint = file.metadata_size_hint.and_then(|hint| u64::try_from(hint).ok());
        let (reading, store) = (self.reading.clone(), Arc::clone(&self.store));
        let (meta, time) = (file.object_meta.clone(), self.metrics.metadata_time.clone());
        let open = async move {
            let _timer = time.timer();
            reading.open(&store, &meta, hint).await.map_err(Arc::new)
        };
        open.boxed().shared()
    }
}

/// None yet of the best rows that are wanted.
pub(crate) fn best_rows(order: Option<&BestFirst>) -> Arc<BestRows> {
    Arc::new(order.and_then(|order| order.rows).map_or_else(BestRows::default, BestRows::new))
}

/// The rows to which the byte range of a file corresponds; `None` for all of them.
fn range_of(file: &PartitionedFile, scan: &ScanBuilder) -> Result<Option<RowRanges>> {
    let Some(range) = &file.range else { return Ok(None) };
    let bytes = u64::try_from(range.start).unwrap_or(0)..u64::try_from(range.end).unwrap_or(0);
    // All ranges of a file have the same splits: these depend only on the columns, and dynamic filters name theirs from
    // the start.
    let splits = scan.splits().map_err(datafusion_error)?;
    Ok(Some(split::rows_of(bytes, file.object_meta.size, &splits)))
}

fn nothing() -> Batches {
    futures::stream::empty().boxed()
}

/// The value of a boolean literal, which may be NULL.
fn literal(expr: &Arc<dyn PhysicalExpr>) -> Option<Option<bool>> {
    match expr.downcast_ref::<Literal>()?.value() {
        ScalarValue::Boolean(value) => Some(*value),
        ScalarValue::Null => Some(None),
        _ => None,
    }
}

/// The scan's expressions in terms of one file.
struct Adapted<'a> {
    scan: &'a OpenerState,
    file: &'a VortexFile,
    constants: FileConstants<'a>,
    /// The schema to which the file is decoded.
    physical: SchemaRef,
    adapter: Arc<dyn PhysicalExprAdapter>,
}

impl<'a> Adapted<'a> {
    fn try_new(scan: &'a OpenerState, file: &'a VortexFile, constants: FileConstants<'a>) -> Result<Self> {
        let table = scan.table.file_schema();
        let own = file.schema().map_err(datafusion_error)?;
        let physical = schema::physical(file.footer().dtype(), &own, table)?;
        let default: &dyn PhysicalExprAdapterFactory = &DefaultPhysicalExprAdapterFactory;
        let adapters = scan.adapters.as_deref().unwrap_or(default);
        let adapter = adapters.create(Arc::clone(table), Arc::clone(&physical))?;
        Ok(Self { scan, file, constants, physical, adapter })
    }

    fn translator(&self) -> Translator<'_> {
        Translator::new(&self.physical, self.file.footer().dtype())
    }

    fn adapt(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        if self.scan.adapters.is_none() && expr.downcast_ref().is_some_and(|column| self.is_as_stored(column))
        {
            return Ok(Arc::clone(expr));
        }
        self.adapter.rewrite(self.constants.fill(expr)?)
    }

    /// Whether a column of the table is the same column of the file. DataFusion's adapter would compare its name with
    /// those of all columns.
    fn is_as_stored(&self, column: &Column) -> bool {
        let field = |schema: &'_ SchemaRef| schema.fields().get(column.index()).cloned();
        let declared = field(self.scan.table.file_schema());
        declared.is_some_and(|it| it.name() == column.name() && field(&self.physical).as_ref() == Some(&it))
    }

    fn simplify(&self, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        simplify(expr, &self.physical)
    }

    /// The filter that rows must satisfy; `None` if no row of this file can.
    fn filter(&self) -> Result<Option<Expr>> {
        let dtype = self.file.footer().dtype();
        self.scan.translations.get(&self.physical, dtype, || self.translated_filter())
    }

    fn translated_filter(&self) -> Result<Option<Expr>> {
        let mut conjuncts = Conjuncts::default();
        for filter in self.scan.filters.accepted() {
            let filter = self.simplify(self.adapt(filter)?)?;
            for part in split_conjunction(&filter) {
                match literal(part) {
                    Some(Some(true)) => continue,
                    Some(_) => return Ok(None),
                    None => {}
                }
                match self.translator().translate(part) {
                    Some(expr) => conjuncts.push(expr, Evaluation::Native),
                    None if is_fallible(part, &self.physical) => {
                        let part = guarded(part, &self.physical)?;
                        conjuncts.push(self.evaluated(&part)?, Evaluation::Fallible);
                    }
                    None => conjuncts.push(self.evaluated(part)?, Evaluation::Decoded),
                }
            }
        }
        let hints = self.scan.filters.hints().iter().filter_map(|filter| self.hint(filter));
        Ok(Some(Expr::all(conjuncts.finish().into_iter().chain(hints))))
    }

    /// A conjunct that DataFusion evaluates.
    fn evaluated(&self, part: &Arc<dyn PhysicalExpr>) -> Result<Expr> {
        Ok(Expr::Rows(Arc::new(PhysicalPredicate::try_new(part, &self.translator())?)))
    }

    /// A filter that is checked again above the scan, for skipping data. Parts that cannot be used are left
    /// out.
    fn hint(&self, filter: &Arc<dyn PhysicalExpr>) -> Option<Expr> {
        let adapted = self.adapt(filter).ok()?;
        let is_dynamic = is_dynamic(&adapted);
        if !is_dynamic {
            // Without a part that can be used, it is of no use.
            self.translator().weaken(&self.simplify(Arc::clone(&adapted)).ok()?).0?;
        }
        let dtype = self.file.footer().dtype().clone();
        let options = self.scan.options();
        let applied_to = if options.predicate_pushdown && is_dynamic {
            if options.fallback_filter_eval { AppliedTo::AllRows } else { AppliedTo::EncodedRows }
        } else if options.prune {
            AppliedTo::Statistics
        } else {
            return None;
        };
        let filter =
            TranslatedFilter::try_new(adapted, Arc::clone(&self.physical), dtype, applied_to).ok()?;
        Some(Expr::Dynamic(Arc::new(filter)))
    }

    /// The scan of all rows of the file.
    fn scan_builder(&self, leaves: &Leaves, filter: Expr, found: &Arc<BestRows>) -> ScanBuilder {
        let wanted = self.scan;
        let mut scan = self
            .file
            .scan()
            .with_projection(leaves.paths().to_vec())
            .with_schema(leaves.schema())
            .with_filter(filter)
            .with_batch_size(wanted.batch_size)
            .with_ordered(wanted.ordered)
            .with_late_decoding(wanted.late)
            .with_pruning(wanted.options().prune);
        if wants_row_numbers(&wanted.outputs) {
            scan = scan.with_row_numbers(ROW_NUMBER);
        }
        if let Some((path, options)) = self.best_first() {
            scan = scan.with_best_first(path, options).with_best_rows(Arc::clone(found));
        }
        if let Some(scheduler) = wanted.reading.scheduler() {
            scan = scan.with_scheduler(Arc::clone(scheduler));
        }
        if let Some(memory) = &wanted.memory {
            scan = scan.with_memory_pool(Arc::clone(memory) as _);
        }
        if let Some(limit) = wanted.limit {
            scan = scan.with_limit(limit as u64);
        }
        scan
    }

    /// The column whose best rows are wanted first, if this file stores it unchanged.
    fn best_first(&self) -> Option<(FieldPath, SortOptions)> {
        let wanted = self.scan.best_first.as_ref()?;
        let column: Arc<dyn PhysicalExpr> = Arc::new(wanted.column.clone());
        let adapted = self.simplify(self.adapt(&column).ok()?).ok()?;
        let column = adapted.downcast_ref::<Column>()?;
        Some((FieldPath::from(column.name()), wanted.options))
    }

    /// The leaves to decode, and the expressions to compute from them.
    fn projection(&self) -> Result<(Leaves, Projector)> {
        let mut leaves = Leaves::default();
        let outputs = self
            .scan
            .outputs
            .iter()
            .map(|output| leaves.rewrite(self.simplify(self.adapt(&output.expr)?)?, &self.translator()))
            .collect::<Result<Vec<_>>>()?;
        let number = leaves.paths().len();
        let outputs = outputs.into_iter().map(|output| with_number(output, number)).collect::<Result<_>>()?;
        let projector =
            Projector::new(outputs, Arc::clone(&self.scan.output_schema), self.file.source().name());
        Ok((leaves, projector))
    }
}
