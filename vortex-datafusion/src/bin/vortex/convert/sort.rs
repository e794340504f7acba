//! `--sort-by`: the order in which rows are written.

use std::str::FromStr;

/// One column to sort by: `name`, `name desc`, `name nulls first`, `name desc nulls last`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SortKey {
    pub(super) column: String,
    pub(super) descending: bool,
    pub(super) nulls_first: bool,
}

impl FromStr for SortKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, nulls_first) = match (without(text, "nulls first"), without(text, "nulls last")) {
            (Some(rest), _) => (rest, Some(true)),
            (_, Some(rest)) => (rest, Some(false)),
            _ => (text.trim(), None),
        };
        let (column, descending) = match (without(text, "desc"), without(text, "asc")) {
            (Some(rest), _) => (rest, true),
            (_, Some(rest)) => (rest, false),
            _ => (text, false),
        };
        if column.is_empty() {
            return Err("expected the name of a column".to_owned());
        }
        // As in SQL: nulls are greater than all other values.
        let nulls_first = nulls_first.unwrap_or(descending);
        Ok(Self { column: column.to_owned(), descending, nulls_first })
    }
}

/// The text before `words`, if it ends in them.
fn without<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    let text = text.trim();
    let at = text.len().checked_sub(words.len())?;
    let ends = text.get(at..)?.eq_ignore_ascii_case(words) && text.get(..at)?.ends_with(char::is_whitespace);
    ends.then(|| text[..at].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> (String, bool, bool) {
        let key: SortKey = text.parse().unwrap();
        (key.column, key.descending, key.nulls_first)
    }

    #[test]
    fn directions_follow_names() {
        assert_eq!(key("day"), ("day".into(), false, false));
        assert_eq!(key(" day DESC "), ("day".into(), true, true));
        assert_eq!(key("day desc nulls last"), ("day".into(), true, false));
        assert_eq!(key("day Nulls First"), ("day".into(), false, true));
    }

    #[test]
    fn names_may_look_like_directions() {
        assert_eq!(key("desc"), ("desc".into(), false, false));
        assert_eq!(key("my col desc"), ("my col".into(), true, true));
        assert!("".parse::<SortKey>().is_err());
    }
}
