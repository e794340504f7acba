//! `FROM 'a.vortex' WHERE ..`, short for `SELECT * FROM 'a.vortex' WHERE ..`.
//!
//! The parser takes such a query for one without columns, and refuses clauses after the tables: words are put before
//! it. Wherever this is not done, at least the query without clauses is completed.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Select, SelectFlavor, SelectItem, VisitorMut, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::visit::visit;

/// Puts `SELECT *` before each `FROM` with which a query begins, and which no `SELECT` follows.
pub(super) fn select_all(tokens: Vec<TokenWithSpan>, dialect: &dyn Dialect) -> Vec<TokenWithSpan> {
    if !dialect.supports_from_first_select() {
        return tokens;
    }
    let is_first = |at: usize| {
        keyword(&tokens[at].token) == Some(Keyword::FROM)
            && begins_query(&tokens[..at])
            && !selects(&tokens[at + 1..])
    };
    let first: Vec<usize> = (0..tokens.len()).filter(|&at| is_first(at)).collect();
    let mut selected = Vec::with_capacity(tokens.len() + first.len() * 2);
    for (at, token) in tokens.into_iter().enumerate() {
        if first.binary_search(&at).is_ok() {
            let added = [Token::make_keyword("SELECT"), Token::Mul];
            selected.extend(added.map(|added| TokenWithSpan::new(added, token.span)));
        }
        selected.push(token);
    }
    selected
}

/// Whether a query begins after these tokens.
fn begins_query(before: &[TokenWithSpan]) -> bool {
    let (mut depth, mut is_start) = (0_u32, true);
    // The first and the last keyword of the statement, or of what is within the parentheses around.
    let (mut first, mut last) = (None, None);
    for token in before.iter().rev() {
        match &token.token {
            Token::Whitespace(_) => continue,
            Token::SemiColon => break,
            Token::LParen if depth == 0 => break,
            Token::LParen => depth -= 1,
            Token::RParen => depth += 1,
            other if depth == 0 => match keyword(other) {
                Some(Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT) if is_between(last) => {
                    return true;
                }
                // The tables of a query that has begun, or of something else.
                Some(
                    Keyword::SELECT | Keyword::FROM | Keyword::DELETE | Keyword::UPDATE | Keyword::VALUES,
                ) => return false,
                Some(keyword) => {
                    first = Some(keyword);
                    last = last.or(first);
                }
                None => {}
            },
            _ => {}
        }
        is_start = false;
    }
    use Keyword::{AS, CREATE, DESC, DESCRIBE, DISTINCT, EXPLAIN, INSERT, PREPARE, WITH};
    match first {
        None => is_start,
        Some(CREATE | PREPARE) => last == Some(AS),
        // As in `a IS DISTINCT FROM b`.
        Some(WITH | EXPLAIN | INSERT | DESCRIBE | DESC) => last != Some(DISTINCT),
        _ => false,
    }
}

/// Whether nothing else may be between the keyword that combines two queries and the second one.
fn is_between(last: Option<Keyword>) -> bool {
    matches!(last, None | Some(Keyword::ALL | Keyword::DISTINCT | Keyword::NAME))
}

/// Whether a query that goes on with these tokens has a `SELECT`.
fn selects(after: &[TokenWithSpan]) -> bool {
    let mut depth = 0_u32;
    for token in after {
        match &token.token {
            Token::SemiColon => return false,
            Token::RParen | Token::VerticalBarRightAngleBracket if depth == 0 => return false,
            Token::RParen => depth -= 1,
            Token::LParen => depth += 1,
            other if depth == 0 => match keyword(other) {
                Some(Keyword::SELECT) => return true,
                Some(Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT) => return false,
                _ => {}
            },
            _ => {}
        }
    }
    false
}

/// Makes queries of a statement that select nothing select all columns.
pub(super) fn complete(statement: &mut Statement) {
    let _ = visit(statement, &mut SelectAll);
}

struct SelectAll;

impl VisitorMut for SelectAll {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.flavor = SelectFlavor::Standard;
            select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        }
        ControlFlow::Continue(())
    }
}

fn keyword(token: &Token) -> Option<Keyword> {
    match token {
        Token::Word(word) if word.keyword != Keyword::NoKeyword => Some(word.keyword),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;
    use datafusion::sql::sqlparser::dialect::{GenericDialect, MySqlDialect};
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn completed(sql: &str, dialect: &dyn Dialect) -> Vec<TokenWithSpan> {
        select_all(Tokenizer::new(dialect, sql).tokenize_with_location().unwrap(), dialect)
    }

    fn text(tokens: &[TokenWithSpan]) -> String {
        let words = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
        words.map(|token| token.token.to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn queries_that_begin_with_from_select_all_columns() {
        for sql in [
            "^FROM t",
            "^FROM t WHERE a > 1 ORDER BY b LIMIT 10; /* b */ ^FROM u GROUP BY ALL",
            "^FROM 'a.vortex' JOIN (^FROM b WHERE x) USING (id) WHERE y",
            "EXPLAIN ANALYZE ^FROM t LIMIT 1",
            "EXPLAIN FORMAT TREE ^FROM t LIMIT 1",
            "WITH c AS (^FROM t WHERE a), d AS (SELECT 1) ^FROM c WHERE b",
            "COPY (^FROM t WHERE a) TO 'b.vortex'",
            "CREATE VIEW v AS ^FROM t WHERE a",
            "CREATE TABLE v AS WITH c AS (SELECT 1) SELECT * FROM c",
            "INSERT INTO t ^FROM u WHERE a",
            "INSERT INTO t (a, b) ^FROM u WHERE a",
            "^FROM a UNION ALL ^FROM b WHERE x",
            "SELECT * FROM a EXCEPT ^FROM b WHERE x INTERSECT SELECT 1",
            "SELECT 1 UNION ALL BY NAME ^FROM b WHERE x",
            "SELECT (^FROM t LIMIT 1), extract(year FROM d) FROM u WHERE EXISTS (^FROM t WHERE a)",
            "FROM t SELECT a WHERE b",
            "WITH c AS (SELECT 1) FROM c SELECT 2",
            "WITH c AS (SELECT 1) SELECT count(*) FROM c",
            "SELECT (a IS DISTINCT FROM b), trim(BOTH 'x' FROM c), substring(c FROM 2) FROM t",
            "DELETE FROM t WHERE a",
            "EXPLAIN UPDATE t SET a = 5 WHERE b IS DISTINCT FROM 2",
            "DESCRIBE ^FROM t",
            "PREPARE p AS ^FROM t WHERE a = $1",
            "PREPARE p (INT) AS ^FROM t WHERE a = $1",
            "^FROM t |> SELECT a |> WHERE b",
            "COPY (^FROM t |> WHERE a) TO 'b.vortex'",
            "SHOW COLUMNS FROM t",
            "SELECT \"from\" FROM \"select\"",
            "^FROM \"select\" WHERE \"from\" = 1",
        ] {
            let completed = completed(&sql.replace('^', ""), &GenericDialect {});
            let marked = Tokenizer::new(&GenericDialect {}, &sql.replace('^', "SELECT * "))
                .tokenize_with_location()
                .unwrap();
            assert_eq!(text(&completed), text(&marked));
            if !sql.starts_with("SHOW") {
                let parser = DFParserBuilder::new(completed).build();
                parser.unwrap().parse_statements().unwrap_or_else(|error| panic!("{sql}: {error}"));
            }
        }
    }

    #[test]
    fn errors_keep_the_place_in_what_was_written() {
        let parser = DFParserBuilder::new(completed("FROM t WHERE a ==== 1", &GenericDialect {})).build();
        let error = parser.unwrap().parse_statements().unwrap_err().to_string();
        assert!(error.contains("Column: 18"), "{error}");
    }

    #[test]
    fn dialects_without_such_queries_are_left_alone() {
        assert_eq!(text(&completed("FROM t", &MySqlDialect {})), "FROM t");
    }
}
