//! What the Tab key completes: paths within quotes; elsewhere keywords and the names of tables and their columns.

use std::borrow::Cow;

use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion_cli::helper::CliHelper;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Result};

use super::shell::command_of;
use super::statement::is_complete;

/// Words that statements often contain.
const KEYWORDS: &str = "\
    all analyze and as asc avg between by case cast copy count create current_date date delete desc describe \
    distinct drop else end except exists explain external extract false filter from full group having in inner \
    insert intersect interval into is join left like limit location max min not null nulls offset on options or \
    order outer over partition partitioned right select set show stored sum table tables then timestamp to true \
    union using values view when where with";

/// Helps to edit lines: the helper of the DataFusion shell, with more completion.
pub(super) struct LineHelper {
    shell: CliHelper,
    paths: FilenameCompleter,
    names: Vec<String>,
    /// The dialect of SQL, if it is known.
    dialect: Option<Box<dyn Dialect>>,
}

impl LineHelper {
    pub(super) fn new(shell: CliHelper, names: Vec<String>, dialect: Option<Box<dyn Dialect>>) -> Self {
        Self { shell, paths: FilenameCompleter::new(), names, dialect }
    }

    /// Whether the input is a command, or ends with a statement. A statement with an error does, too: told what is
    /// wrong, the user starts anew.
    fn ends(&self, input: &str) -> bool {
        command_of(input).is_some()
            || self.dialect.as_deref().is_none_or(|dialect| is_complete(input, dialect))
    }
}

/// The names of tables and of their columns, as statements write them.
pub(super) async fn names(context: &SessionContext) -> Vec<String> {
    let mut names = Vec::new();
    let catalogs = context.catalog_names().into_iter().filter_map(|name| context.catalog(&name));
    for catalog in catalogs.collect::<Vec<_>>() {
        let schemas = catalog.schema_names().into_iter().filter(|name| name != "information_schema");
        for schema in schemas.filter_map(|name| catalog.schema(&name)) {
            for table in schema.table_names() {
                if let Ok(Some(table)) = schema.table(&table).await {
                    names.extend(table.schema().fields().iter().map(|field| quoted(field.name())));
                }
                names.push(quoted(&table));
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// A name in quotes, unless it is the same without.
fn quoted(name: &str) -> String {
    let is_plain = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_';
    if name.chars().all(is_plain) { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Whether quotes are open at the end of a text.
fn is_quoted(text: &str) -> bool {
    let open = text.chars().fold(None, |open, char| match (open, char) {
        (None, '\'' | '"') => Some(char),
        (Some(quote), _) if quote == char => None,
        _ => open,
    });
    open.is_some()
}

/// Where the last word of a text starts, and what it may be the beginning of.
fn completions(text: &str, names: &[String]) -> (usize, Vec<String>) {
    let start = text.trim_end_matches(|char: char| char.is_alphanumeric() || char == '_').len();
    let word = &text[start..];
    if word.is_empty() {
        return (start, Vec::new());
    }
    let begins = |name: &str| {
        let name = name.trim_start_matches('"');
        name.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
    };
    let is_upper = word.starts_with(char::is_uppercase);
    let keywords = KEYWORDS.split(' ').filter(|keyword| begins(keyword));
    let keywords = keywords.map(|keyword| if is_upper { keyword.to_uppercase() } else { keyword.to_owned() });
    (start, names.iter().filter(|name| begins(name)).cloned().chain(keywords).collect())
}

impl Completer for LineHelper {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, context: &Context<'_>) -> Result<(usize, Vec<Pair>)> {
        if is_quoted(&line[..at]) {
            return self.paths.complete(line, at, context);
        }
        let (start, words) = completions(&line[..at], &self.names);
        let pair = |word: String| Pair { display: word.clone(), replacement: word };
        Ok((start, words.into_iter().map(pair).collect()))
    }
}

impl Highlighter for LineHelper {
    fn highlight<'l>(&self, line: &'l str, at: usize) -> Cow<'l, str> {
        self.shell.highlight(line, at)
    }

    fn highlight_char(&self, line: &str, at: usize, kind: CmdKind) -> bool {
        self.shell.highlight_char(line, at, kind)
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        self.shell.highlight_hint(hint)
    }
}

impl Hinter for LineHelper {
    type Hint = String;

    fn hint(&self, line: &str, at: usize, context: &Context<'_>) -> Option<String> {
        self.shell.hint(line, at, context)
    }
}

impl Validator for LineHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> Result<ValidationResult> {
        let ends = self.ends(context.input());
        Ok(if ends { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Helper for LineHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_ends_with_its_statement_whether_that_is_valid_or_not() {
        let dialect = datafusion::sql::sqlparser::dialect::GenericDialect {};
        let helper = LineHelper::new(CliHelper::default(), Vec::new(), Some(Box::new(dialect)));
        for input in ["select 1;", "selec 1;", "select 1; -- one", "\\d", "quit", " Exit; ", "help;", ""] {
            assert!(helper.ends(input), "{input}");
        }
        for input in ["select 1", "selec", "select ';", "select 1 -- ;", "quit now", "/* ;"] {
            assert!(!helper.ends(input), "{input}");
        }
    }

    #[test]
    fn paths_are_completed_within_quotes_only() {
        assert!(
            is_quoted("SELECT 'a' FROM 'b")
                && is_quoted("SELECT \"it's")
                && !is_quoted("SELECT 'a', \"b'\" ")
        );
    }

    #[test]
    fn words_are_completed_by_names_and_keywords() {
        let names = ["visits", "value", "\"Visitor\""].map(str::to_owned);
        assert_eq!(completions("select vis", &names), (7, vec!["visits".into(), "\"Visitor\"".into()]));
        assert_eq!(completions("SEL", &names), (0, vec!["SELECT".into()]));
        assert_eq!(completions("x = va", &names), (4, vec!["value".into(), "values".into()]));
        assert_eq!(completions("select ", &names), (7, vec![]));
    }

    #[tokio::test]
    async fn names_are_those_of_tables_and_columns() {
        let context = SessionContext::new();
        let create = r#"CREATE TABLE visits AS SELECT 1 AS day, 2 AS "Hour""#;
        context.sql(create).await.unwrap();
        let names = names(&context).await;
        assert_eq!(names, ["\"Hour\"", "day", "visits"]);
    }
}
