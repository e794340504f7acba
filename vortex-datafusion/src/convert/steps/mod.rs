//! Comparisons of what keeps the order of a column: casts, truncated times, whole quotients.
//!
//! ```text
//! CAST(t AS ns) < x                t < y              t is in milliseconds, and y is the first one after x
//! CAST(t AS Date32) = x            t BETWEEN y AND z  the first and the last time of the day
//! date_trunc('month', t) >= x      t >= y             the first time of the month, or of the next one
//! t - INTERVAL '1 day' > x         t >= y
//! to_timestamp(n) < x              n < y
//! n / 1000 = 5                     n BETWEEN 5000 AND 5999
//! ```
//!
//! Statistics bound the column, not what is made of it, and encoded values are compared without decoding them. Values
//! for which the function would fail, such as 9999-12-31 in nanoseconds, are compared, too.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNanoType, Schema, TimeUnit};
use datafusion_common::utils::normalize_float_zero_scalar;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{Operator, SimpleScalarUDF};
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal, in_list, lit};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::boundary::{Boundary, Values};
use super::chains::{chain, joined};
use super::scalar::{cast_is_monotonic, cast_is_strictly_monotonic, digits, is_coarse, is_fixed};
use super::simplify::{is_nan, is_zero, simplest};

/// Values of a list whose boundaries are looked for. To compare with more ranges takes longer than to compute the
/// function and look its values up.
const MOST_SEARCHED: usize = 8;

/// Seconds before and after 1970, to 1716 and 2223, of times that functions are tried with. Beyond them, some would
/// overflow in nanoseconds.
const TRIED_SECONDS: i128 = 8_000_000_000;

/// Functions of DataFusion that keep the order of this argument if the others are constant. They are known by name, as
/// those of [`is_fallible`](super::is_fallible) are.
const ORDERED_FUNCTIONS: &[(&str, usize)] = &[
    ("date_trunc", 1),
    ("from_unixtime", 0),
    ("to_timestamp", 0),
    ("to_timestamp_micros", 0),
    ("to_timestamp_millis", 0),
    ("to_timestamp_nanos", 0),
    ("to_timestamp_seconds", 0),
];

/// An expression whose values are in the order of those of an operand, although some may be equal.
pub(super) struct Step {
    /// The operand.
    inner: Arc<dyn PhysicalExpr>,
    from: DataType,
    to: DataType,
    function: Function,
}

enum Function {
    Cast,
    /// An expression of column 0.
    Other(Arc<dyn PhysicalExpr>),
}

impl Step {
    /// Takes such an expression apart. `None` if it is none.
    pub(super) fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Self>> {
        if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            let (from, to) = (cast.expr().data_type(schema)?, cast.cast_type().clone());
            return Ok(Some(Self { inner: Arc::clone(cast.expr()), from, to, function: Function::Cast }));
        }
        let Some(position) = ordered_operand(expr) else { return Ok(None) };
        let mut operands: Vec<_> = expr.children().into_iter().map(Arc::clone).collect();
        let inner = std::mem::replace(&mut operands[position], Arc::new(Column::new("", 0)));
        let (from, to) = (inner.data_type(schema)?, expr.data_type(schema)?);
        let others = operands.iter().enumerate().filter(|(at, _)| *at != position);
        let others: Option<Vec<_>> =
            others.map(|(_, other)| Some(other.downcast_ref::<Literal>()?.value())).collect();
        let is_ordered = others.is_some_and(|others| keeps_order(expr, &from, &others));
        if !is_ordered || matches!(&to, DataType::Timestamp(_, zone) if !is_fixed(zone.as_deref())) {
            return Ok(None);
        }
        let function = Function::Other(Arc::clone(expr).with_new_children(operands)?);
        Ok(Some(Self { inner, from, to, function }))
    }

    /// The function of each value; null or an error where it fails.
    fn apply(&self, values: &ArrayRef) -> Result<ArrayRef> {
        match &self.function {
            Function::Cast => {
                let options = CastOptions { safe: true, ..CastOptions::default() };
                Ok(cast_with_options(values, &self.to, &options)?)
            }
            Function::Other(function) => {
                let schema = Schema::new(vec![Field::new("", self.from.clone(), true)]);
                let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::clone(values)])?;
                function.evaluate(&batch)?.into_array(values.len())
            }
        }
    }

    /// Whether the function packs values into a dictionary, or unpacks them. DataFusion tells the zeros of floats apart
    /// in dictionaries only.
    fn packs(&self) -> bool {
        let is_dictionary = |data_type: &DataType| matches!(data_type, DataType::Dictionary(..));
        is_dictionary(&self.from) != is_dictionary(&self.to)
    }

    /// The only value that becomes `value`, of a cast that keeps values distinct and in order.
    fn undo(&self, value: &ScalarValue) -> Option<ScalarValue> {
        let is_cast = matches!(self.function, Function::Cast);
        if !is_cast || !cast_is_strictly_monotonic(&self.from, &self.to) {
            return None;
        }
        if value.is_null() {
            return ScalarValue::try_from(&self.from).ok();
        }
        // A cast to a wider float makes NaN quiet, which sorts after those that are not.
        if value.data_type() != self.to || (self.packs() && is_zero(value)) || is_nan(value) {
            return None;
        }
        let one = value.to_array().ok()?;
        let before = cast(&one, &self.from).ok()?;
        let after = cast(&before, &self.to).ok()?;
        let same = after.is_valid(0) && after == one;
        same.then(|| ScalarValue::try_from_array(&before, 0).ok())?
    }

    /// The values whose boundaries can be looked for; `None` if the function fails for some of them where a query
    /// expects the error.
    fn values(&self) -> Option<Values<'_>> {
        let values = Values::of(&self.from)?;
        match self.function {
            Function::Cast if !rarely_fails(&self.from, &self.to) => None,
            Function::Cast if !cast_is_monotonic(&self.from, &self.to) => None,
            Function::Cast => Some(values),
            Function::Other(_) => Some(match &self.from {
                DataType::Timestamp(unit, _) => values.up_to(TRIED_SECONDS * per_second(*unit)),
                DataType::Date32 => values.up_to(TRIED_SECONDS / 86_400),
                _ => values,
            }),
        }
    }

    fn is(&self, op: Operator, value: ScalarValue) -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(Arc::clone(&self.inner), op, lit(value)))
    }

    /// The comparison with a constant.
    ///
    /// # Errors
    /// If an expression cannot be built with its new children.
    pub(super) fn compare(
        &self,
        op: Operator,
        constant: &ScalarValue,
        schema: &Schema,
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        // What is never, or always, true of the outcome is so of the operand, whatever the function fails for.
        if let (Some(found), Some(all)) = (self.trivial(op, constant), self.extremes()) {
            return Ok(self.every(found, &all));
        }
        if let Some(value) = self.undo(constant) {
            return Ok(Some(self.is(op, value)));
        }
        if constant.data_type() != self.to || constant.is_null() || is_nan(constant) {
            return Ok(None);
        }
        let Some(values) = self.values() else { return Ok(None) };
        let Some(boundary) = Boundary::of(&values, constant, &|values| self.apply(values)) else {
            return Ok(None);
        };
        let (ops, both) = match op {
            Operator::Eq => ([Operator::GtEq, Operator::LtEq], Operator::And),
            Operator::NotEq => ([Operator::Lt, Operator::Gt], Operator::Or),
            _ => return Ok(self.beyond(op, boundary)),
        };
        let Some((first, last)) = boundary.first.clone().zip(boundary.last.clone()) else {
            return Ok(self.every(op == Operator::NotEq, &boundary.all));
        };
        if first == last {
            return Ok(Some(self.is(op, first)));
        }
        let sides = [self.is(ops[0], first), self.is(ops[1], last)];
        if self.inner.is::<Column>() {
            return Ok(Some(joined(both, &sides)));
        }
        // The operand would be computed twice.
        let mut simpler = Vec::with_capacity(sides.len());
        for side in &sides {
            simpler.extend(simplest(side, schema)?);
        }
        Ok((simpler.len() == sides.len()).then(|| joined(both, &simpler)))
    }

    /// Whether this is a comparison that is true, or false, for every outcome, as [`every`](Self::every) writes it.
    fn trivial(&self, op: Operator, constant: &ScalarValue) -> Option<bool> {
        let [least, greatest] = Values::of(&self.to).filter(|_| !self.to.is_floating())?.extremes()?;
        match op {
            Operator::Lt if *constant == least => Some(false),
            Operator::LtEq if *constant == greatest => Some(true),
            _ => None,
        }
    }

    fn extremes(&self) -> Option<[ScalarValue; 2]> {
        Values::of(&self.from)?.extremes()
    }

    /// Whether values are on this side of a boundary.
    fn beyond(&self, op: Operator, boundary: Boundary) -> Option<Arc<dyn PhysicalExpr>> {
        let (op, value) = match op {
            Operator::Lt => (Operator::Lt, &boundary.first),
            Operator::LtEq => (Operator::Lt, &boundary.after),
            Operator::Gt => (Operator::GtEq, &boundary.after),
            Operator::GtEq => (Operator::GtEq, &boundary.first),
            _ => return None,
        };
        match value {
            Some(value) => Some(self.is(op, value.clone())),
            None => self.every(op == Operator::Lt, &boundary.all),
        }
    }

    /// What is true, or false, for all values; null is null.
    fn every(&self, is_true: bool, [least, greatest]: &[ScalarValue; 2]) -> Option<Arc<dyn PhysicalExpr>> {
        match is_true {
            // Some are not among them.
            _ if self.from.is_floating() => None,
            true => Some(self.is(Operator::LtEq, greatest.clone())),
            false => Some(self.is(Operator::Lt, least.clone())),
        }
    }

    /// Whether a value is, or is not, one of these.
    ///
    /// # Errors
    /// If an expression cannot be built with its new children.
    pub(super) fn in_list(
        &self,
        values: &[&ScalarValue],
        negated: bool,
        schema: &Schema,
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let exact = values.iter().map(|value| self.undo(value).map(lit)).collect::<Option<Vec<_>>>();
        if let Some(exact) = exact {
            return in_list(Arc::clone(&self.inner), exact, &negated, schema).map(Some);
        }
        // Comparisons take -0.0 for 0.0, lists do not.
        let is_plain = |value: &ScalarValue| normalize_float_zero_scalar(value.clone()) == *value;
        if values.is_empty() || values.len() > MOST_SEARCHED || !values.iter().all(|value| is_plain(value)) {
            return Ok(None);
        }
        let (op, all) = if negated { (Operator::NotEq, Operator::And) } else { (Operator::Eq, Operator::Or) };
        let mut each = Vec::with_capacity(values.len());
        for value in values {
            let Some(compared) = self.compare(op, value, schema)? else { return Ok(None) };
            let compared = simplest(&compared, schema)?.unwrap_or(compared);
            // The operand would be computed for each of them.
            if values.len() > 1 && !compares_columns(&compared) {
                return Ok(None);
            }
            each.push(compared);
        }
        Ok(Some(joined(all, &each)))
    }
}

/// Whether a filter consists of comparisons of columns with constants.
fn compares_columns(filter: &Arc<dyn PhysicalExpr>) -> bool {
    let is_operand = |operand: &Arc<dyn PhysicalExpr>| operand.is::<Column>() || operand.is::<Literal>();
    match chain(filter) {
        Some((_, parts)) => parts.into_iter().all(compares_columns),
        None => filter.children().into_iter().all(is_operand),
    }
}

/// The position of the operand whose order `expr` keeps, if the other operands are suitable constants.
fn ordered_operand(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
        let function = function.fun();
        let (_, position) = ORDERED_FUNCTIONS.iter().find(|(name, _)| *name == function.name())?;
        return (!function.inner().is::<SimpleScalarUDF>()).then_some(*position);
    }
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    match binary.op() {
        Operator::Divide | Operator::Minus => Some(0),
        Operator::Plus => Some(usize::from(binary.left().is::<Literal>())),
        _ => None,
    }
}

/// Whether the order of operands of type `from` is kept, given the other ones.
fn keeps_order(expr: &Arc<dyn PhysicalExpr>, from: &DataType, others: &[&ScalarValue]) -> bool {
    let is_time = is_fixed_time(from) || *from == DataType::Date32;
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        let [other] = others else { return false };
        return match binary.op() {
            // By a positive number; quotients are cut off, towards zero.
            Operator::Divide => {
                let zero = ScalarValue::new_zero(from);
                from.is_integer() && other.data_type() == *from && zero.is_ok_and(|zero| **other > zero)
            }
            // Months differ in length: 31 January at 1:00 and 30 January at 2:00 change places.
            _ => is_time && has_no_months(other),
        };
    }
    // `to_timestamp` is also given formats of text.
    is_fixed_time(from) || (from.is_integer() && others.is_empty())
}

/// Whether this is an interval that takes a time as far whatever the time.
fn has_no_months(interval: &ScalarValue) -> bool {
    match interval {
        ScalarValue::IntervalMonthDayNano(Some(interval)) => {
            IntervalMonthDayNanoType::to_parts(*interval).0 == 0
        }
        ScalarValue::IntervalDayTime(Some(_))
        | ScalarValue::DurationSecond(Some(_))
        | ScalarValue::DurationMillisecond(Some(_))
        | ScalarValue::DurationMicrosecond(Some(_))
        | ScalarValue::DurationNanosecond(Some(_)) => true,
        _ => false,
    }
}

/// Whether these are times in no zone, or in one that never turns its clocks.
fn is_fixed_time(of: &DataType) -> bool {
    matches!(of, DataType::Timestamp(_, zone) if is_fixed(zone.as_deref()))
}

fn per_second(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Whether a cast fails for no value, or only for those out of the range of a time, or of a decimal that DataFusion
/// chose to compare with. Who casts integers to shorter ones expects an error.
fn rarely_fails(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, Timestamp};
    match (from, to) {
        (from, to) if is_coarse(from) || is_coarse(to) => false,
        (from, to) if from.is_integer() && to.is_integer() => {
            let whole = |of| digits(of).map(|(whole, _)| whole);
            whole(from) < whole(to) && (from.is_unsigned_integer() || to.is_signed_integer())
        }
        (from, to) if from.is_floating() => {
            to.is_floating() && from.primitive_width() <= to.primitive_width()
        }
        (from, to) if from.is_integer() || from.is_decimal() => match (digits(from), digits(to)) {
            // Rounding may carry, and not all integers of so many digits fit.
            (Some((whole, _)), Some((more, _))) if to.is_integer() => {
                to.is_signed_integer() && whole + 1 < more
            }
            (Some((whole, fraction)), Some((more, finer))) => {
                whole + i16::from(finer < fraction) <= more || (from.is_decimal() && fraction < finer)
            }
            // Small negative decimals would become -0.0, which only some comparisons take for zero.
            _ => to.is_floating() && !(from.is_decimal() && *to == DataType::Float16),
        },
        (Timestamp(..) | Date64, Date32 | Date64) | (Date32, Timestamp(_, None) | Date64) => true,
        (Timestamp(..), Timestamp(..)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
