//! The groups of rows, found by codes.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Schema};
use arrow::record_batch::RecordBatch;
use datafusion_common::{Result, internal_err};
use datafusion_expr::EmitTo;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::aggregates::PhysicalGroupBy;
use datafusion_physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion_physical_plan::aggregates::order::GroupOrdering;

use super::codes::{Codes, MAX_CODES};
use super::source_of;
use crate::convert::values_of;

/// In the table, a code without a group.
const NONE: u32 = u32::MAX;

/// The groups of the rows of a stream.
pub(super) struct Groups {
    /// What is evaluated: of keys that are cast from dictionaries, the dictionaries.
    sources: Vec<Arc<dyn PhysicalExpr>>,
    /// The types of the keys.
    types: Vec<DataType>,
    /// DataFusion's groups, which see each code once.
    values: Box<dyn GroupValues>,
    /// What codes mean; none if the last rows had none.
    codes: Vec<Codes>,
    /// The group of each combination of codes.
    table: Vec<u32>,
    /// The combined code of each row of a batch.
    combined: Vec<u32>,
    /// The group of each row of a batch.
    groups: Vec<usize>,
}

impl Groups {
    /// No groups.
    pub(super) fn try_new(keys: &PhysicalGroupBy, input: &Schema) -> Result<Self> {
        let schema = keys.group_schema(input)?;
        let types = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let sources = keys.expr().iter().map(|(key, _)| Arc::clone(source_of(key, input))).collect();
        Ok(Self {
            sources,
            types,
            values: new_group_values(schema, &GroupOrdering::None)?,
            codes: Vec::new(),
            table: Vec::new(),
            combined: Vec::new(),
            groups: Vec::new(),
        })
    }

    /// Number of groups.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Bytes of memory.
    pub(super) fn size(&self) -> usize {
        self.values.size()
            + (self.table.capacity() + self.combined.capacity()) * size_of::<u32>()
            + self.groups.capacity() * size_of::<usize>()
    }

    /// The keys of all groups, of which there are none afterwards.
    pub(super) fn emit(&mut self) -> Result<Vec<ArrayRef>> {
        let keys = self.values.emit(EmitTo::All)?;
        self.values.clear_shrink(0);
        self.codes.clear();
        (self.table, self.combined, self.groups) = Default::default();
        Ok(keys)
    }

    /// The group of each row that was [searched](Self::find) for.
    pub(super) fn found(&self) -> &[usize] {
        &self.groups
    }

    /// Finds the group of each row.
    pub(super) fn find(&mut self, batch: &RecordBatch) -> Result<()> {
        let rows = batch.num_rows();
        let sources = self.sources.iter().map(|source| source.evaluate(batch)?.into_array(rows));
        let sources = sources.collect::<Result<Vec<_>>>()?;
        if self.combine(&sources, rows) {
            self.look_up(&sources)?;
        } else {
            self.codes.clear();
            let keys = self.keys(&sources, None)?;
            self.values.intern(&keys, &mut self.groups)?;
        }
        Ok(())
    }

    /// Combines the codes of rows. Whether there are few enough.
    fn combine(&mut self, sources: &[ArrayRef], rows: usize) -> bool {
        if self.codes.len() == sources.len() && self.try_combine(sources, rows) {
            return true;
        }
        let codes = sources.iter().enumerate().map(|(at, key)| Codes::covering(key, self.codes.get(at)));
        let Some(codes) = codes.collect::<Option<Vec<_>>>() else { return false };
        let count = codes.iter().try_fold(1usize, |all, codes| all.checked_mul(codes.count()));
        let Some(count) = count.filter(|count| *count <= MAX_CODES) else { return false };
        self.table.clear();
        self.table.resize(count, NONE);
        self.codes = codes;
        self.try_combine(sources, rows)
    }

    /// Combines the codes of rows. Whether all have codes.
    fn try_combine(&mut self, sources: &[ArrayRef], rows: usize) -> bool {
        self.combined.clear();
        self.combined.resize(rows, 0);
        let mut stride = 1;
        self.codes.iter().zip(sources).all(|(codes, key)| {
            let of_key = stride;
            #[expect(clippy::cast_possible_truncation, reason = "combined codes are few")]
            let count = codes.count() as u32;
            stride *= count;
            codes.add(key, of_key, &mut self.combined)
        })
    }

    /// Finds the groups of combined codes.
    fn look_up(&mut self, sources: &[ArrayRef]) -> Result<()> {
        if self.try_look_up() {
            return Ok(());
        }
        self.add_groups(sources)?;
        if self.try_look_up() { Ok(()) } else { internal_err!("{} groups", self.len()) }
    }

    /// Whether all combined codes have groups.
    fn try_look_up(&mut self) -> bool {
        let (table, mut greatest) = (self.table.as_slice(), 0);
        self.groups.clear();
        self.groups.extend(self.combined.iter().map(|code| {
            let group = table[*code as usize];
            greatest = greatest.max(group);
            group as usize
        }));
        greatest != NONE
    }

    /// Gives groups to the combined codes that have none, in the order of the first row of each.
    fn add_groups(&mut self, sources: &[ArrayRef]) -> Result<()> {
        let (mut codes, mut rows) = (Vec::new(), Vec::new());
        for (code, row) in self.combined.iter().zip(0u32..) {
            let group = &mut self.table[*code as usize];
            if *group == NONE {
                *group = 0;
                codes.push(*code);
                rows.push(row);
            }
        }
        let keys = self.keys(sources, Some(&UInt32Array::from(rows)))?;
        self.values.intern(&keys, &mut self.groups)?;
        for (code, group) in codes.into_iter().zip(&self.groups) {
            self.table[code as usize] = u32::try_from(*group).unwrap_or(NONE);
        }
        Ok(())
    }

    /// The keys of all rows, or of some.
    fn keys(&self, sources: &[ArrayRef], rows: Option<&UInt32Array>) -> Result<Vec<ArrayRef>> {
        let key = |source: &ArrayRef, data_type: &DataType| {
            let source = match rows {
                Some(rows) => take(source, rows, None)?,
                None => Arc::clone(source),
            };
            if source.data_type() == data_type {
                return Ok(source);
            }
            // Indices may not fit into those of another dictionary, but the values of few rows do.
            let values = cast(&source, values_of(data_type))?;
            Ok(if values.data_type() == data_type { values } else { cast(&values, data_type)? })
        };
        sources.iter().zip(&self.types).map(|(source, data_type)| key(source, data_type)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow::array::{Array, BooleanArray, DictionaryArray, Int32Array, StringViewArray};
    use arrow::datatypes::Field;
    use datafusion_physical_expr::expressions::{CastExpr, Column};
    use proptest::prelude::*;

    use super::super::coded;
    use super::*;

    /// Rows whose keys are a dictionary of text, an integer and a boolean.
    fn batch(values: &ArrayRef, rows: &[(Option<u32>, Option<i32>, Option<bool>)]) -> RecordBatch {
        let texts = UInt32Array::from_iter(rows.iter().map(|(text, ..)| *text));
        let texts = DictionaryArray::new(texts, Arc::clone(values));
        let numbers = Int32Array::from_iter(rows.iter().map(|(_, number, _)| *number));
        let flags = BooleanArray::from_iter(rows.iter().map(|(.., flag)| *flag));
        let columns: [(&str, ArrayRef); 3] =
            [("t", Arc::new(texts)), ("n", Arc::new(numbers)), ("f", Arc::new(flags))];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
    }

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("t", coded(&DataType::Utf8View), true),
            Field::new("n", DataType::Int32, true),
            Field::new("f", DataType::Boolean, true),
        ])
    }

    fn keys() -> PhysicalGroupBy {
        let text: Arc<dyn PhysicalExpr> = Arc::new(Column::new("t", 0));
        PhysicalGroupBy::new_single(vec![
            (Arc::new(CastExpr::new(text, DataType::Utf8View, None)), "t".into()),
            (Arc::new(Column::new("n", 1)), "n".into()),
            (Arc::new(Column::new("f", 2)), "f".into()),
        ])
    }

    /// A row of keys as text.
    fn shown(keys: &[ArrayRef], row: usize) -> String {
        let value = |key: &ArrayRef| {
            let text = arrow::util::display::array_value_to_string(key, row).unwrap();
            if key.is_null(row) { "null".to_owned() } else { format!("{text:?}") }
        };
        keys.iter().map(value).collect::<Vec<_>>().join(" ")
    }

    fn values() -> impl Strategy<Value = ArrayRef> {
        prop::collection::vec(prop::option::of("[ab]{0,2}|a text that is too long for a view"), 1..6)
            .prop_map(|values| Arc::new(StringViewArray::from(values)) as ArrayRef)
    }

    proptest! {
        #[test]
        fn groups_found_by_codes_are_those_of_the_keys(
            dictionaries in prop::collection::vec(values(), 1..3),
            batches in prop::collection::vec((
                any::<prop::sample::Index>(),
                prop::collection::vec((
                    prop::option::of(any::<prop::sample::Index>()),
                    prop::option::weighted(0.9, prop_oneof![9 => 0..9i32, 1 => -40_000..40_000i32, 1 => Just(i32::MIN)]),
                    any::<Option<bool>>(),
                ), 0..40),
            ), 0..6),
            emitted_after in 0usize..6,
        ) {
            let mut groups = Groups::try_new(&keys(), &schema()).unwrap();
            let mut expected: HashMap<String, usize> = HashMap::new();
            for (at, (dictionary, rows)) in batches.iter().enumerate() {
                if at == emitted_after && groups.len() > 0 {
                    let emitted = groups.emit().unwrap();
                    for (key, group) in expected.drain() {
                        prop_assert_eq!(shown(&emitted, group), key);
                    }
                    prop_assert_eq!(groups.len(), 0);
                }
                let values = dictionary.get(&dictionaries);
                let text = |index: &Option<prop::sample::Index>| index.map(|index| index.index(values.len()) as u32);
                let rows: Vec<_> = rows.iter().map(|(index, number, flag)| (text(index), *number, *flag)).collect();
                let batch = batch(values, &rows);
                let plain = cast(batch.column(0), &DataType::Utf8View).unwrap();
                let plain = [plain, Arc::clone(batch.column(1)), Arc::clone(batch.column(2))];
                groups.find(&batch).unwrap();
                let found = groups.found().to_vec();
                prop_assert_eq!(found.len(), rows.len());
                for (row, group) in found.into_iter().enumerate() {
                    prop_assert_eq!(*expected.entry(shown(&plain, row)).or_insert(group), group);
                }
                prop_assert_eq!(groups.len(), expected.len(), "no two keys share a group");
            }
            let emitted = if expected.is_empty() { Vec::new() } else { groups.emit().unwrap() };
            for (key, group) in expected {
                prop_assert_eq!(shown(&emitted, group), key);
            }
        }
    }
}
