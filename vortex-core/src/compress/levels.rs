//! The levels of a file or a stream: one for all columns, and others for some of them.

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::expr::FieldPath;
use crate::{Level, Result};

/// The level of a struct, and those of fields in it that have another. The columns of a file are the fields of its
/// root.
#[derive(Debug, Clone, Default)]
pub(crate) struct Levels {
    pub(crate) level: Level,
    fields: BTreeMap<FieldPath, Level>,
}

impl Levels {
    /// Sets the level of a field, and of fields in it that have none of their own.
    pub(crate) fn set_field(&mut self, path: FieldPath, level: Level) {
        match path.names() {
            [] => self.level = level,
            _ => _ = self.fields.insert(path, level),
        }
    }

    /// The levels of a field and of those in it.
    pub(crate) fn field(&self, name: &str) -> Self {
        let mut field = Self::from(self.level);
        if self.fields.is_empty() {
            return field;
        }
        // Of the paths that begin with a name, the name alone comes first.
        for (path, level) in self.fields.range(FieldPath::from(name)..) {
            match path.names().split_first() {
                Some((first, rest)) if **first == *name => {
                    field.set_field(FieldPath::new(rest.iter().cloned()), *level);
                }
                _ => break,
            }
        }
        field
    }

    /// Checks that a struct has all fields whose level is set.
    ///
    /// # Errors
    /// If it has not; the error tells which fields there are.
    pub(crate) fn check(&self, of: &DType) -> Result<()> {
        self.fields.keys().try_for_each(|path| path.dtype_in(of).map(drop))
    }
}

impl From<Level> for Levels {
    /// One level for everything.
    fn from(level: Level) -> Self {
        Self { level, fields: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dtype::{PType, StructType};

    #[test]
    fn fields_have_their_own_level_or_that_of_the_struct_around_them() {
        let mut levels = Levels::default();
        levels.set_field(["a", "b", "c"].into(), Level::Fast);
        levels.set_field("a".into(), Level::Compact);
        levels.set_field("a.b".into(), Level::Fast);
        levels.set_field("ab".into(), Level::Fast);
        let of = |names: &[&str]| names.iter().fold(levels.clone(), |levels, name| levels.field(name)).level;
        assert_eq!((of(&["a"]), of(&["a", "b"])), (Level::Compact, Level::Compact));
        assert_eq!((of(&["a", "b", "c"]), of(&["a", "b", "c", "d"])), (Level::Fast, Level::Fast));
        assert_eq!(
            (of(&["a", "c"]), of(&["a.b"]), of(&["b"])),
            (Level::Compact, Level::Fast, Level::Default)
        );
    }

    #[test]
    fn a_path_that_names_no_field_is_told_which_there_are() {
        let number = DType::Primitive(PType::I32, false);
        let inner = StructType::new([("x".into(), number.clone()), ("y".into(), number.clone())]);
        let inner = DType::Struct(Arc::new(inner), true);
        let root =
            DType::Struct(Arc::new(StructType::new([("n".into(), number), ("s".into(), inner)])), false);
        let check = |path: FieldPath| {
            let mut levels = Levels::default();
            levels.set_field(path, Level::Fast);
            levels.check(&root).map_err(|error| error.to_string())
        };
        check(["s", "y"].into()).unwrap();
        check("s".into()).unwrap();
        for (path, complaint) in [
            ("t".into(), "no column `t`; there are: n, s"),
            (["s", "z"].into(), "no column `s.z`; there are in `s`: x, y"),
            (["n", "x"].into(), "no column `n.x`: `n` is i32, without fields"),
        ] {
            let error = check(path).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
