//! Levels of single columns of the files that are written: `OPTIONS ('level::address.city' 'compact')`.

use arrow::datatypes::{DataType, Fields, Schema};
use datafusion_common::{Result, config_datafusion_err};
use vortex_core::Level;
use vortex_core::expr::FieldPath;

/// What options begin with that are followed by a column.
pub(crate) const PREFIX: &str = "level::";

/// Number of columns that an error lists.
const LISTED: usize = 20;

/// The level that an option gives a column.
///
/// # Errors
/// If it is not a level.
pub(crate) fn level_of(column: &str, value: &str) -> Result<Level> {
    let level = value.trim().parse::<Level>();
    level.map_err(|_| {
        let names = Level::ALL.map(Level::name).join(", ");
        config_datafusion_err!("`{value}` is not a value of the Vortex option `{PREFIX}{column}` ({names})")
    })
}

/// The column, or field of structs, whose names joined by dots are `text`. Case is ignored if there is none, since SQL
/// turns the names of options into lower case.
///
/// # Errors
/// If there is none, or several differ only in case.
pub fn column_path(schema: &Schema, text: &str) -> Result<FieldPath, String> {
    let mut paths = Vec::new();
    add_fields(schema.fields(), &FieldPath::new::<&str>([]), &mut paths);
    // A column whose name has dots is found before a field of a struct.
    paths.sort_by_key(|path| path.names().len());
    let listed = |paths: &[FieldPath]| {
        let names: Vec<String> = paths.iter().take(LISTED).map(FieldPath::to_string).collect();
        let more = match paths.len().saturating_sub(LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        names.join(", ") + &more
    };
    if let Some(path) = paths.iter().find(|path| path.to_string() == text) {
        return Ok(path.clone());
    }
    let text_in_lower_case = text.to_lowercase();
    let is_alike = |path: &&FieldPath| path.to_string().to_lowercase() == text_in_lower_case;
    let alike: Vec<FieldPath> = paths.iter().filter(is_alike).cloned().collect();
    match alike.as_slice() {
        [path] => Ok(path.clone()),
        [] => Err(format!("no column `{text}`; there are: {}", listed(&paths))),
        several => Err(format!("several columns `{text}`: {}", listed(several))),
    }
}

fn add_fields(fields: &Fields, around: &FieldPath, paths: &mut Vec<FieldPath>) {
    for field in fields {
        let path = around.child(field.name());
        if let DataType::Struct(fields) = field.data_type() {
            add_fields(fields, &path, paths);
        }
        paths.push(path);
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    fn schema(names: &[&str]) -> Schema {
        let inner = ["City", "zip"].map(|name| Field::new(name, DataType::Utf8, true));
        let address = Field::new_struct("address", inner.to_vec(), true);
        let columns = names.iter().map(|name| Field::new(*name, DataType::Int32, true));
        Schema::new(columns.chain([address]).collect::<Vec<_>>())
    }

    #[test]
    fn columns_are_found_by_names_joined_by_dots_and_without_regard_to_case_if_need_be() {
        let columns = schema(&["Id", "id", "a.b", "Größe", "address.zip"]);
        let found = |text| column_path(&columns, text).unwrap();
        assert_eq!((found("Id"), found("id")), ("Id".into(), "id".into()));
        assert_eq!((found("a.b"), found("größe")), ("a.b".into(), "Größe".into()));
        assert_eq!((found("address"), found("address.city")), ("address".into(), ["address", "City"].into()));
        assert_eq!(found("address.zip"), "address.zip".into(), "the column rather than the field");
    }

    #[test]
    fn a_column_that_is_missing_or_may_be_several_is_told_which_there_are() {
        let error = |names: &[&str], text| column_path(&schema(names), text).unwrap_err();
        assert_eq!(
            error(&["a"], "address.town"),
            "no column `address.town`; there are: a, address, address.City, address.zip"
        );
        assert_eq!(error(&["Id", "ID"], "id"), "several columns `id`: Id, ID");
        let many: Vec<String> = (0..50).map(|at| format!("c{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(error(&many, "id").ends_with("c18, c19 and 33 more"), "{}", error(&many, "id"));
    }
}
