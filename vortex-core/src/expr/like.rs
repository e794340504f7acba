//! LIKE patterns.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray, Scalar as ArrowScalar, StringArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::DataType;
use memchr::memmem::Finder;

use crate::Result;

/// A LIKE pattern: `%` matches any characters, `_` matches any one character, `\` escapes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Like {
    /// The pattern.
    pub pattern: Arc<str>,
    /// NOT LIKE.
    pub negated: bool,
    /// ILIKE.
    pub case_insensitive: bool,
}

/// A pattern without wildcards for single characters, and without escapes.
pub(crate) enum Pattern<'a> {
    Equals(&'a str),
    StartsWith(&'a str),
    /// `start%...%end`, with some text for each of the dots.
    Contains {
        start: &'a str,
        between: Vec<&'a str>,
        end: &'a str,
    },
}

impl Like {
    /// `LIKE pattern`.
    pub fn new(pattern: impl Into<Arc<str>>) -> Self {
        Self { pattern: pattern.into(), negated: false, case_insensitive: false }
    }

    /// Sets whether this is NOT LIKE.
    #[must_use]
    pub fn with_negated(self, negated: bool) -> Self {
        Self { negated, ..self }
    }

    /// Sets whether this is ILIKE.
    #[must_use]
    pub fn with_case_insensitive(self, case_insensitive: bool) -> Self {
        Self { case_insensitive, ..self }
    }

    /// What the pattern looks for, if that is constants only.
    pub(crate) fn pattern(&self) -> Option<Pattern<'_>> {
        if self.case_insensitive || self.pattern.contains(['_', '\\']) {
            return None;
        }
        let Some((start, rest)) = self.pattern.split_once('%') else {
            return Some(Pattern::Equals(&self.pattern));
        };
        Some(match rest.rsplit_once('%') {
            None if rest.is_empty() => Pattern::StartsWith(start),
            None => Pattern::Contains { start, between: Vec::new(), end: rest },
            Some((between, end)) => Pattern::Contains { start, between: between.split('%').collect(), end },
        })
    }

    /// Evaluates the pattern on strings.
    ///
    /// # Errors
    /// If they are not strings.
    pub(super) fn evaluate(&self, values: &ArrayRef) -> Result<BooleanArray> {
        use arrow::compute::kernels::comparison as text;
        if let Some(outcome) = self.search(values) {
            return Ok(outcome);
        }
        let pattern = StringArray::new_scalar(&*self.pattern);
        let pattern: ArrayRef = arrow::compute::cast(
            &pattern.into_inner(),
            match values.data_type() {
                DataType::Dictionary(_, inner) => inner.as_ref(),
                other => other,
            },
        )?;
        let pattern = ArrowScalar::new(pattern);
        Ok(match (self.negated, self.case_insensitive) {
            (false, false) => text::like(values, &pattern)?,
            (true, false) => text::nlike(values, &pattern)?,
            (false, true) => text::ilike(values, &pattern)?,
            (true, true) => text::nilike(values, &pattern)?,
        })
    }

    /// Searches for several constants, for which Arrow uses a regular expression.
    fn search(&self, values: &ArrayRef) -> Option<BooleanArray> {
        let Some(Pattern::Contains { start, between, end }) = self.pattern() else { return None };
        let between: Vec<&str> = between.into_iter().filter(|text| !text.is_empty()).collect();
        if between.len() + usize::from(!start.is_empty()) + usize::from(!end.is_empty()) < 2 {
            return None;
        }
        let between: Vec<Finder<'_>> = between.into_iter().map(Finder::new).collect();
        let holds = |text: &str| {
            let Some(mut rest) = text.strip_prefix(start).map(str::as_bytes) else { return false };
            let all = between.iter().all(|part| {
                let found = part.find(rest);
                found.inspect(|at| rest = &rest[at + part.needle().len()..]).is_some()
            });
            all && rest.ends_with(end.as_bytes())
        };
        let (len, nulls) = (values.len(), values.nulls().cloned());
        let found = match values.data_type() {
            DataType::Utf8View => {
                let values = values.as_string_view();
                BooleanBuffer::collect_bool(len, |row| holds(values.value(row)))
            }
            DataType::Utf8 => {
                let values = values.as_string::<i32>();
                BooleanBuffer::collect_bool(len, |row| holds(values.value(row)))
            }
            DataType::LargeUtf8 => {
                let values = values.as_string::<i64>();
                BooleanBuffer::collect_bool(len, |row| holds(values.value(row)))
            }
            _ => return None,
        };
        Some(BooleanArray::new(if self.negated { !&found } else { found }, nulls))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;
    use arrow::compute::{cast, kernels::comparison};

    use super::*;

    #[test]
    fn constants_are_found_as_arrow_finds_them() {
        let texts = [
            "",
            "a",
            "ab",
            "aba",
            "abab",
            "ababab",
            "b",
            "ba",
            "bab",
            "abcab",
            "%",
            "a%b",
            "a_b",
            "a\\b",
            "äöüaöb",
            "ab\nab",
        ];
        let parts = ["", "a", "b", "ab", "aba", "ö", "%", "_", "\\%"];
        let values = texts.map(Some).into_iter().chain([None]);
        let views: ArrayRef = Arc::new(StringViewArray::from_iter(values));
        let columns =
            [DataType::Utf8View, DataType::Utf8, DataType::LargeUtf8].map(|to| cast(&views, &to).unwrap());
        let pairs = parts.into_iter().flat_map(|start| parts.map(|one| (start, one)));
        for (start, one, end) in pairs.flat_map(|(start, one)| parts.map(|end| (start, one, end))) {
            for pattern in
                [format!("{start}%{one}%{end}"), format!("{start}%{one}%b%{end}"), format!("{start}%{end}")]
            {
                let wanted = comparison::like(&views, &StringViewArray::new_scalar(&pattern)).unwrap();
                for column in &columns {
                    let like = Like::new(&*pattern);
                    assert_eq!(like.evaluate(column).unwrap(), wanted, "{pattern}");
                    let wanted = arrow::compute::not(&wanted).unwrap();
                    assert_eq!(like.with_negated(true).evaluate(column).unwrap(), wanted, "NOT {pattern}");
                }
            }
        }
    }

    #[test]
    fn only_several_constants_are_not_left_to_arrow() {
        let values: ArrayRef = Arc::new(StringArray::from(vec!["abc"]));
        let searches = |pattern: &str| Like::new(pattern).search(&values).is_some();
        for pattern in ["a%b", "%a%b%", "a%b%", "%a%%b%", "%a%b", "a%%b%c"] {
            assert!(searches(pattern), "{pattern}");
        }
        for pattern in ["", "a", "a%", "%a", "%a%", "%%", "%%a%%", "a%_", "a\\%b%c"] {
            assert!(!searches(pattern), "{pattern}");
        }
        assert!(Like::new("a%b").with_case_insensitive(true).search(&values).is_none());
    }
}
