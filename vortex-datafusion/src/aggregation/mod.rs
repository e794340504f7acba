//! Aggregations without groups that scans compute: instead of rows, they return the states of partial aggregations,
//! which the final one merges.
//!
//! ```text
//! AggregateExec: mode=Final, [sum(a)]              AggregateExec: mode=Final, [sum(a)]
//!   CoalescePartitionsExec                    ->     CoalescePartitionsExec
//!     AggregateExec: mode=Partial, [sum(a)]            DataSourceExec: projection=[sum(a)]
//!       DataSourceExec: projection=[a]
//! ```
//!
//! The core counts, adds and compares: what statistics of files and zones state is not read, the rest is computed on
//! encoded columns where possible (`states.rs`). A file that stores another type than the table has, or integers whose
//! sum floats would round, is aggregated row by row with DataFusion's own functions.

mod states;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion_common::{Result, internal_err};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;
use datafusion_physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion_physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion_physical_plan::ColumnarValue;
pub(crate) use states::ByRows;
use vortex_core::scan::Measures;

use crate::convert::{cast_is_strictly_monotonic, is_bytes};

/// The functions of an aggregation, over the columns of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Aggregation(Arc<[Function]>);

/// An aggregate function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Function {
    kind: Kind,
    /// As DataFusion computes it. Its argument is the column, which may be widened, or a constant that is not null.
    expr: Arc<AggregateFunctionExpr>,
    /// The types of its states, and their names.
    fields: Arc<[FieldRef]>,
}

/// What a function computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Count,
    Sum,
    Min,
    Max,
    Average,
}

impl Kind {
    /// The kind of a function, given its name in a session.
    #[cfg(feature = "proto")]
    pub(crate) fn named(name: &str) -> Option<Self> {
        let kinds = [Self::Count, Self::Sum, Self::Min, Self::Max, Self::Average];
        kinds.into_iter().find(|kind| kind.name() == name)
    }

    /// The name of the function in a session.
    #[cfg(feature = "proto")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Average => "avg",
        }
    }

    /// What it takes of the column.
    fn measures(self) -> Measures {
        match self {
            Self::Count => Measures::COUNTS,
            Self::Sum => Measures::COUNTS.with_sum(),
            Self::Min => Measures::MIN,
            Self::Max => Measures::MAX,
            // The extremes tell whether the sum is the same in any order of additions.
            Self::Average => Measures::ALL,
        }
    }

    /// Whether the scan computes this of a column of type `from`, which the argument converts to `to`.
    fn accepts(self, from: &DataType, to: &DataType) -> bool {
        match self {
            Self::Count => from == to && is_plain(from),
            Self::Sum if from.is_integer() => {
                matches!(to, DataType::Int64 | DataType::UInt64) && cast_is_strictly_monotonic(from, to)
            }
            Self::Sum => from == to && is_summable_decimal(from),
            Self::Min | Self::Max => from == to && has_extremes(from),
            Self::Average => from.is_integer() && *to == DataType::Float64,
        }
    }
}

/// Whether arrays of this type state their nulls themselves.
fn is_plain(data_type: &DataType) -> bool {
    let is_text = data_type.is_string() || is_bytes(data_type);
    data_type.is_primitive() || is_text || *data_type == DataType::Boolean
}

fn is_summable_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..))
}

/// Whether values of this type have the same order here and in DataFusion. Floats do, but for NaN.
fn has_extremes(data_type: &DataType) -> bool {
    use DataType::{Boolean, Date32, Date64, Time32, Time64, Timestamp};
    data_type.is_numeric()
        || data_type.is_string()
        || is_bytes(data_type)
        || matches!(data_type, Boolean | Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..))
}

impl Function {
    /// A function over the columns of a table; `None` if the scan does not compute it.
    ///
    /// # Errors
    /// If the function has no states.
    pub(crate) fn try_new(
        kind: Kind,
        expr: Arc<AggregateFunctionExpr>,
        table: &Schema,
    ) -> Result<Option<Self>> {
        let [argument] = &expr.expressions()[..] else { return Ok(None) };
        let is_accepted = match column_of(argument) {
            Some(column) => {
                let from = column.data_type(table)?;
                kind.accepts(&from, &argument.data_type(table)?)
            }
            None => {
                let constant = argument.downcast_ref::<Literal>();
                kind == Kind::Count && constant.is_some_and(|constant| !constant.value().is_null())
            }
        };
        if expr.is_distinct() || !is_accepted {
            return Ok(None);
        }
        let fields: Arc<[FieldRef]> = expr.state_fields()?.into();
        Ok(states::has_form(kind, &fields).then_some(Self { kind, expr, fields }))
    }

    #[cfg(feature = "proto")]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    #[cfg(feature = "proto")]
    pub(crate) fn expr(&self) -> &Arc<AggregateFunctionExpr> {
        &self.expr
    }

    /// Whether rows have to be counted at most.
    fn counts_rows(&self) -> bool {
        self.column().is_none()
    }

    /// The column that it reads, if it reads one.
    pub(crate) fn column(&self) -> Option<Column> {
        self.expr.expressions().first().and_then(column_of)
    }

    /// What it takes of the column.
    pub(crate) fn measures(&self) -> Measures {
        self.kind.measures()
    }
}

/// The column that is read or converted.
fn column_of(expr: &Arc<dyn PhysicalExpr>) -> Option<Column> {
    match expr.downcast_ref::<CastExpr>() {
        Some(cast) => cast.expr().downcast_ref::<Column>().cloned(),
        None => expr.downcast_ref::<Column>().cloned(),
    }
}

impl Aggregation {
    pub(crate) fn new(functions: Vec<Function>) -> Self {
        Self(functions.into())
    }

    pub(crate) fn functions(&self) -> &[Function] {
        &self.0
    }

    /// Whether a scan that computes it may read less than one that returns rows. If only rows are counted, that reads
    /// none of them either.
    pub(crate) fn pays(&self) -> bool {
        !self.0.iter().all(Function::counts_rows)
    }

    /// The columns that the scan returns.
    pub(crate) fn outputs(&self) -> ProjectionExprs {
        let states = self.0.iter().flat_map(|function| {
            function.fields.iter().map(|field| {
                let state = State { function: Arc::clone(&function.expr), field: Arc::clone(field) };
                ProjectionExpr::new(Arc::new(state), field.name().clone())
            })
        });
        ProjectionExprs::new(states)
    }

    /// The schema of the columns that the scan returns.
    pub(crate) fn schema(&self) -> SchemaRef {
        let fields = self.0.iter().flat_map(|function| function.fields.iter().cloned());
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The arguments of the functions, for rows that are aggregated one by one.
    pub(crate) fn arguments(&self) -> ProjectionExprs {
        let arguments = self.0.iter().flat_map(|function| function.expr.expressions());
        let named = arguments.enumerate().map(|(at, argument)| ProjectionExpr::new(argument, at.to_string()));
        ProjectionExprs::new(named)
    }
}

/// A column that a scan returns instead of rows. It stands for the state in plans, and is not evaluated.
#[derive(Debug, Clone)]
struct State {
    function: Arc<AggregateFunctionExpr>,
    field: FieldRef,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function && self.field == other.field
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name().hash(state);
        self.field.hash(state);
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments = self.function.expressions();
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        write!(f, "{}({})", self.function.fun().name(), arguments.join(", "))
    }
}

impl PhysicalExpr for State {
    fn return_field(&self, _schema: &Schema) -> Result<FieldRef> {
        Ok(Arc::clone(&self.field))
    }

    fn evaluate(&self, _batch: &RecordBatch) -> Result<ColumnarValue> {
        internal_err!("{self} is computed by the scan")
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(self)
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
