//! The columns that an expression reads, down to single fields of structs.
//!
//! ```text
//! expressions   upper(name)      address.city      address.zip + 1
//! leaves        [name, address.city, address.zip]
//! rewritten     upper(@0)        @1                @2 + 1
//! ```
//!
//! A scan decodes the leaves; the rewritten expressions are evaluated on its batches.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};
use datafusion_common::tree_node::{Transformed, TransformedResult as _, TreeNode, TreeNodeRecursion};
use datafusion_common::{HashMap, Result};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{CastExpr, Column, LambdaVariable};
use vortex_core::expr::FieldPath;

use super::schema::retyped;
use super::{Translator, values_of};

/// Added to the indexes of lambda variables, which thus stay in order and behind all columns. DataFusion takes a
/// variable for a column if its index is that of a column.
const BEHIND_COLUMNS: usize = 1 << 20;

/// The distinct columns and struct fields that expressions over one file read.
#[derive(Debug, Default)]
pub(crate) struct Leaves {
    paths: Vec<FieldPath>,
    positions: HashMap<(FieldPath, DataType), usize>,
    fields: Vec<FieldRef>,
}

impl Leaves {
    /// Adds the columns that `expr` reads, and returns `expr` as an expression over the leaves.
    ///
    /// # Errors
    /// If it reads a column that the file lacks.
    pub(crate) fn rewrite(
        &mut self,
        expr: Arc<dyn PhysicalExpr>,
        file: &Translator,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        expr.transform_down(|node| {
            if let Some(variable) = node.downcast_ref::<LambdaVariable>() {
                let at = variable.index() + BEHIND_COLUMNS;
                return Ok(Transformed::yes(Arc::new(LambdaVariable::new(at, Arc::clone(variable.field())))));
            }
            let Some((path, field)) = decoded(&node, file)? else { return Ok(Transformed::no(node)) };
            let at = self.add(path, &field);
            let leaf: Arc<dyn PhysicalExpr> = Arc::new(Column::new(self.fields[at].name(), at));
            Ok(Transformed::new(leaf, true, TreeNodeRecursion::Jump))
        })
        .data()
    }

    fn add(&mut self, path: FieldPath, field: &FieldRef) -> usize {
        let leaf = (path, field.data_type().clone());
        if let Some(at) = self.positions.get(&leaf) {
            return *at;
        }
        let path = leaf.0.clone();
        self.fields.push(match path.names() {
            [] | [_] => Arc::clone(field),
            _ => Arc::new(field.as_ref().clone().with_name(path.to_string())),
        });
        let at = self.paths.len();
        self.positions.insert(leaf, at);
        self.paths.push(path);
        at
    }

    /// Paths of the leaves.
    pub(crate) fn paths(&self) -> &[FieldPath] {
        &self.paths
    }

    /// The schema of batches of the leaves.
    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.fields.iter().cloned().collect::<Fields>()))
    }
}

/// The column or struct field that is decoded for `node`, and how: also of one that is cast to a dictionary of its
/// values, since it may be stored as one.
fn decoded(node: &Arc<dyn PhysicalExpr>, file: &Translator) -> Result<Option<(FieldPath, FieldRef)>> {
    let Some(cast) = node.downcast_ref::<CastExpr>() else { return file.field(node) };
    let DataType::Dictionary(_, values) = cast.cast_type() else { return Ok(None) };
    let Some((path, field)) = file.field(cast.expr())? else { return Ok(None) };
    let packed = || Arc::new(retyped(&field, cast.cast_type().clone()));
    Ok((values_of(field.data_type()) == values.as_ref()).then(|| (path, packed())))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion_expr::Operator;
    use datafusion_physical_expr::expressions::BinaryExpr;

    use super::super::expr::tests::{File, get_field};
    use super::*;

    #[test]
    fn each_field_is_read_once_and_siblings_are_not() {
        let file = File::sample();
        let translator = file.translator();
        let mut leaves = Leaves::default();
        let city = get_field(&file, "s", &["t"]);
        let first = leaves.rewrite(Arc::clone(&city), &translator).unwrap();
        let again = leaves.rewrite(city, &translator).unwrap();
        let plain = leaves.rewrite(file.column("i"), &translator).unwrap();
        assert_eq!(leaves.paths(), [FieldPath::new(["s", "t"]), FieldPath::from("i")]);
        assert_eq!(first.to_string(), "s.t@0");
        assert_eq!(again.to_string(), "s.t@0");
        assert_eq!(plain.to_string(), "i@1");
        assert_eq!(leaves.schema().field(0).name(), "s.t");
    }

    #[test]
    fn what_is_cast_to_a_dictionary_of_its_values_is_decoded_as_one() {
        let file = File::sample();
        let mut leaves = Leaves::default();
        let packed = |of: DataType| DataType::Dictionary(Box::new(DataType::UInt32), Box::new(of));
        let mut rewritten = |column: &str, to: DataType| {
            let cast = Arc::new(CastExpr::new(file.column(column), to, None));
            leaves.rewrite(cast, &file.translator()).unwrap().to_string()
        };
        assert_eq!(rewritten("t", packed(DataType::Utf8View)), "t@0");
        assert_eq!(rewritten("t", DataType::Binary), "CAST(t@1 AS Binary)");
        assert_eq!(rewritten("t", packed(DataType::Utf8)), "CAST(t@1 AS Dictionary(UInt32, Utf8))");
        assert_eq!(rewritten("d", packed(DataType::Utf8)), "d@2");
        assert_eq!(leaves.paths(), ["t", "t", "d"].map(FieldPath::from));
        let types =
            leaves.schema().fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>();
        assert_eq!(types, [packed(DataType::Utf8View), DataType::Utf8View, packed(DataType::Utf8)]);
    }

    #[test]
    fn variables_of_lambdas_stay_behind_all_leaves() {
        let file = File::sample();
        let mut leaves = Leaves::default();
        let number = Arc::new(Field::new("x", DataType::Int32, true));
        let variable = |at| Arc::new(LambdaVariable::new(at, Arc::clone(&number))) as Arc<dyn PhysicalExpr>;
        let sum = [variable(0), variable(1), file.column("i")]
            .into_iter()
            .reduce(|left, right| Arc::new(BinaryExpr::new(left, Operator::Plus, right)))
            .unwrap();
        let rewritten = leaves.rewrite(sum, &file.translator()).unwrap();
        assert_eq!(rewritten.to_string(), format!("x@{} + x@{} + i@0", BEHIND_COLUMNS, BEHIND_COLUMNS + 1));
        assert_eq!(leaves.paths(), [FieldPath::from("i")]);
    }
}
