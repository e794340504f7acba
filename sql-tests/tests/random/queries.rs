//! Random statements with one right answer.
//!
//! Nothing may depend on the order of rows or of additions: limits are on what the order determines, and no
//! floats are summed. Literals are mostly values of the table, so that filters match some rows.

use arrow::array::{Array as _, RecordBatch};
use rand::Rng as _;
use rand::rngs::StdRng;

use crate::rows::literal;

/// The type of an expression, as far as other expressions depend on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Float,
    Text,
    Date,
    Timestamp,
    Decimal,
    Boolean,
}

/// The columns of both tables with a type that has literals.
pub(crate) const COLUMNS: [(&str, Kind); 13] = [
    ("id", Kind::Integer),
    ("i", Kind::Integer),
    ("j", Kind::Integer),
    ("k", Kind::Integer),
    ("u", Kind::Integer),
    ("f", Kind::Float),
    ("s", Kind::Text),
    ("x", Kind::Text),
    ("d", Kind::Date),
    ("m", Kind::Timestamp),
    ("p", Kind::Decimal),
    ("q", Kind::Boolean),
    ("h", Kind::Integer),
];

/// Numbers that no arithmetic below takes out of their types.
const SMALL: [&str; 2] = ["i", "id"];

pub(crate) struct Statement {
    pub(crate) sql: String,
    /// Whether it determines the order of its rows.
    pub(crate) is_ordered: bool,
}

pub(crate) struct Queries<'a> {
    random: &'a mut StdRng,
    rows: &'a RecordBatch,
    /// The order that files may have recorded.
    order: &'a str,
    /// What precedes names of columns, such as `a.`.
    prefix: &'static str,
    /// Whether aggregates are of groups.
    in_groups: bool,
}

impl<'a> Queries<'a> {
    pub(crate) fn new(random: &'a mut StdRng, rows: &'a RecordBatch, order: &'a str) -> Self {
        Self { random, rows, order, prefix: "", in_groups: false }
    }

    /// A statement over `t`, and sometimes `o`.
    pub(crate) fn statement(&mut self) -> Statement {
        if self.one_in(6) {
            return Statement { sql: self.best(), is_ordered: true };
        }
        Statement { sql: self.unordered(), is_ordered: false }
    }

    fn unordered(&mut self) -> String {
        match self.random.random_range(0..14) {
            0..3 => {
                let what = self.list(4, Self::expression);
                format!("SELECT {what} FROM {}", self.source())
            }
            3 => format!("SELECT * FROM {}", self.source()),
            4..6 => format!("SELECT {} FROM {}", self.aggregates(), self.source()),
            6 => self.groups(),
            7 => {
                let what = self.list(2, Self::expression);
                format!("SELECT DISTINCT {what} FROM {}", self.source())
            }
            8..10 => self.window(),
            10..12 => self.join(),
            12 => self.semi_join(),
            _ => {
                let (first, second) = (self.source(), self.source());
                let what = self.column();
                if self.one_in(2) {
                    return format!(
                        "SELECT id, k FROM (SELECT id, 1 AS k FROM {first} UNION ALL SELECT id, 0 AS k FROM {second}) \
                         ORDER BY k, id DESC LIMIT 100"
                    );
                }
                format!("SELECT {what}, id FROM {first} UNION ALL SELECT {what}, 1 FROM {second}")
            }
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.random.random_ratio(1, n)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.random_range(0..of.len())]
    }

    /// Up to `most` items, separated by commas.
    fn list(&mut self, most: usize, item: fn(&mut Self) -> String) -> String {
        let count = self.random.random_range(1..=most);
        (0..count).map(|at| format!("{} AS c{at}", item(self))).collect::<Vec<_>>().join(", ")
    }

    /// The table with a filter, or a subquery with another one.
    fn source(&mut self) -> String {
        match self.random.random_range(0..10) {
            0 => "t".to_owned(),
            1 => {
                let inner = self.predicate(2);
                format!("(SELECT * FROM t WHERE {inner}) WHERE {}", self.predicate(1))
            }
            2 => {
                // Without a limit, DataFusion 55 may skip rows in any order. See `tests/it/upstream/orders.rs` of the
                // plugin: `orders_below_offsets_without_a_limit_are_dropped`.
                let limit = self.pick(&[
                    "LIMIT 0",
                    "LIMIT 1",
                    "LIMIT 10",
                    "LIMIT 5000",
                    "LIMIT 100000",
                    "LIMIT 5000 OFFSET 3",
                    "LIMIT 100000 OFFSET 10",
                    "LIMIT 100000 OFFSET 5000",
                ]);
                let order = self.pick(&["id", self.order]);
                format!("(SELECT * FROM t ORDER BY {order} {limit}) WHERE {}", self.predicate(1))
            }
            _ => format!("t WHERE {}", self.predicate(3)),
        }
    }

    fn aggregates(&mut self) -> String {
        self.list(4, |it| {
            let column = it.column();
            let extreme = it.extreme();
            let aggregate = match it.random.random_range(0..9) {
                0 => "count(*)".to_owned(),
                1 => format!("count({column})"),
                2 => format!("count(DISTINCT {column})"),
                3 => format!("sum({}i)", it.prefix),
                4 => format!("sum({}p)", it.prefix),
                5 => format!("max({extreme})"),
                // Of small integers, whose sums are exact.
                6 => format!("avg({}i)", it.prefix),
                _ => format!("min({extreme})"),
            };
            if it.one_in(6) { format!("{aggregate} FILTER (WHERE {})", it.predicate(1)) } else { aggregate }
        })
    }

    /// What to take an extreme of. With NaN, that of a group depends on the order of rows in DataFusion 55.
    fn extreme(&mut self) -> String {
        let kinds = [Kind::Integer, Kind::Text, Kind::Date, Kind::Timestamp, Kind::Decimal, Kind::Boolean];
        let kind = self.pick(&kinds);
        if self.in_groups { self.of_kind(kind) } else { self.expression() }
    }

    fn groups(&mut self) -> String {
        let key = match self.random.random_range(0..3) {
            0 => self.expression(),
            _ => self.column().to_owned(),
        };
        let having = match self.random.random_range(0..4) {
            0 => "HAVING count(*) > 2",
            1 => "HAVING max(id) > 100",
            _ => "",
        };
        self.in_groups = true;
        let what = self.aggregates();
        self.in_groups = false;
        let source = self.source();
        if self.one_in(3) {
            let second = self.column();
            format!(
                "SELECT {key} AS key, {second} AS second, {what} FROM {source} GROUP BY {key}, {second} {having}"
            )
        } else {
            format!("SELECT {key} AS key, {what} FROM {source} GROUP BY {key} {having}")
        }
    }

    /// The first rows of an order. Rows may tie, so only what is ordered is selected, or the order is total.
    fn best(&mut self) -> String {
        let mut order = || {
            let key = if self.one_in(3) { self.expression() } else { self.column().to_owned() };
            let direction = self.pick(&["", "DESC", "NULLS FIRST", "DESC NULLS LAST"]);
            (key, direction)
        };
        let ((key, direction), (second, second_direction)) = (order(), order());
        let limit = self.pick(&["LIMIT 1", "LIMIT 10", "LIMIT 3 OFFSET 5", "LIMIT 1000", "LIMIT 20000"]);
        let source = self.source();
        match self.random.random_range(0..4) {
            0 => format!("SELECT {key} AS key FROM {source} ORDER BY {key} {direction} {limit}"),
            3 => format!("SELECT * FROM {source} ORDER BY {} {limit}", self.order),
            1 => format!("SELECT * FROM {source} ORDER BY {key} {direction}, id {limit}"),
            _ => format!(
                "SELECT s, id FROM {source} ORDER BY {key} {direction}, {second} {second_direction}, id DESC {limit}"
            ),
        }
    }

    /// Functions over the rows before each, in an order without ties.
    fn window(&mut self) -> String {
        let partition =
            if self.one_in(2) { format!("PARTITION BY {}", self.column()) } else { String::new() };
        let by = format!("{} {}, id", self.expression(), self.pick(&["", "DESC", "NULLS FIRST"]));
        let order = if self.one_in(2) { self.order.to_owned() } else { by };
        let function = match self.random.random_range(0..4) {
            0 => "row_number()".to_owned(),
            1 => "sum(id)".to_owned(),
            2 => format!("first_value({})", self.column()),
            _ => format!("lag({})", self.column()),
        };
        format!("SELECT id, {function} OVER ({partition} ORDER BY {order}) AS w FROM {}", self.source())
    }

    fn join(&mut self) -> String {
        let kind = self.pick(&["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        let key = self.pick(&["id", "i", "k", "u", "s", "x", "d", "m", "p", "j"]);
        let (first, second) = self.pick(&[("t", "o"), ("o", "t")]);
        self.prefix = "a.";
        let filter = self.predicate(1);
        let what = self.aggregates();
        self.prefix = "b.";
        let other = self.predicate(1);
        let and = if self.one_in(3) { format!("AND {}", self.predicate(1)) } else { String::new() };
        self.prefix = "";
        if self.one_in(3) {
            // Below the sort, DataFusion may evaluate what it passes to scans.
            let key = self.pick(&["f", "n", "l", key]);
            let by = self.pick(&COLUMNS).0;
            return format!(
                "SELECT a.id AS a, b.id AS b FROM {first} a {kind} {second} b ON a.{key} = b.{key} AND a.u = b.u \
                 WHERE {filter} AND b.id < 1000 ORDER BY a.{by}, a.id, b.id"
            );
        }
        format!(
            "SELECT {what}, count(b.id) FROM {first} a {kind} {second} b ON a.{key} = b.{key} AND a.q = b.q {and} \
             WHERE {filter} AND ({other} OR b.id IS NULL)"
        )
    }

    fn semi_join(&mut self) -> String {
        let key = self.pick(&["id", "i", "k", "u", "s", "x", "d", "p"]);
        let what = self.aggregates();
        let outer = self.predicate(1);
        let inner = self.predicate(2);
        let not = if self.one_in(3) { "NOT " } else { "" };
        match self.random.random_range(0..3) {
            0 => format!(
                "SELECT {what} FROM t WHERE {outer} AND {not}EXISTS (SELECT 1 FROM o WHERE o.{key} = t.{key} AND o.id > 3)"
            ),
            1 => format!(
                "SELECT {what} FROM t WHERE {outer} AND {key} = (SELECT max({key}) FROM t WHERE {inner})"
            ),
            _ => format!(
                "SELECT {what} FROM t WHERE {outer} AND {not}({key} IN (SELECT {key} FROM o WHERE {inner}))"
            ),
        }
    }

    /// A name, without the prefix of joins.
    fn column(&mut self) -> String {
        let name = self.pick(&COLUMNS).0;
        format!("{}{name}", self.prefix)
    }

    /// A value per row: mostly a column.
    fn expression(&mut self) -> String {
        let kind = self.pick(&[
            Kind::Integer,
            Kind::Float,
            Kind::Text,
            Kind::Date,
            Kind::Timestamp,
            Kind::Decimal,
            Kind::Boolean,
        ]);
        self.of_kind(kind)
    }

    fn of_kind(&mut self, kind: Kind) -> String {
        let p = self.prefix;
        let names: Vec<&str> = COLUMNS.iter().filter(|(_, it)| *it == kind).map(|(name, _)| *name).collect();
        let column = format!("{p}{}", self.pick(&names));
        if self.one_in(2) {
            return column;
        }
        match kind {
            Kind::Integer => {
                let small = format!("{p}{}", self.pick(&SMALL));
                match self.random.random_range(0..10) {
                    0 => format!("{small} + {}", self.pick(&["1", "-7", "1000"])),
                    1 => format!("-{small}"),
                    2 => format!("{small} % 7"),
                    3 => format!("CAST({small} AS BIGINT)"),
                    4 => format!("length({})", self.of_kind(Kind::Text)),
                    5 => format!("{p}n['a']"),
                    6 => format!("cardinality({p}l)"),
                    7 => format!("{p}l[1]"),
                    8 => format!("coalesce({small}, 5)"),
                    _ => format!("nullif({small}, 3)"),
                }
            }
            Kind::Float => match self.random.random_range(0..5) {
                0 => format!("{p}f * 2"),
                1 => format!("CAST({p}i AS DOUBLE)"),
                2 => format!("log(0.5, {p}u)"),
                3 => format!("floor({p}f)"),
                _ => format!("-{p}f"),
            },
            Kind::Text => match self.random.random_range(0..6) {
                0 => format!("upper({column})"),
                1 => format!("substr({column}, 2, 4)"),
                2 => format!("{column} || '!'"),
                3 => format!("{p}n['b']"),
                4 => format!("CAST({p}i AS VARCHAR)"),
                _ => format!("coalesce({column}, 'none')"),
            },
            Kind::Date => match self.random.random_range(0..2) {
                0 => format!("CAST({p}m AS DATE)"),
                _ => format!("{p}d + INTERVAL '1 month'"),
            },
            Kind::Timestamp => match self.random.random_range(0..2) {
                0 => format!("date_trunc('{}', {p}m)", self.pick(&["hour", "day", "month"])),
                _ => format!("CAST({p}d AS TIMESTAMP)"),
            },
            Kind::Decimal => match self.random.random_range(0..2) {
                0 => format!("{p}p + 1"),
                _ => format!("CAST({p}i AS DECIMAL(12, 2))"),
            },
            Kind::Boolean => match self.random.random_range(0..2) {
                0 => format!("NOT {p}q"),
                _ => format!("({p}i > 3)"),
            },
        }
    }

    /// A literal that suits values of a kind.
    fn literal(&mut self, kind: Kind) -> String {
        let names: Vec<&str> = COLUMNS.iter().filter(|(_, it)| *it == kind).map(|(name, _)| *name).collect();
        let column = &self.rows[self.pick(&names)];
        for _ in 0..3 {
            if !column.is_empty()
                && let Some(literal) = literal(column, self.random.random_range(0..column.len()))
            {
                return literal;
            }
        }
        match kind {
            Kind::Integer => "5",
            Kind::Float => "-2.5",
            Kind::Text => "'b'",
            Kind::Date => "DATE '1970-02-03'",
            Kind::Timestamp => "TIMESTAMP '1970-02-03T04:05:06'",
            Kind::Decimal => "CAST(7.25 AS DECIMAL(12, 2))",
            Kind::Boolean => "true",
        }
        .to_owned()
    }

    fn predicate(&mut self, depth: u32) -> String {
        if depth > 0 && self.one_in(2) {
            let (a, b) = (self.predicate(depth - 1), self.predicate(depth - 1));
            return match self.random.random_range(0..8) {
                0..3 => format!("({a} AND {b})"),
                3..6 => format!("({a} OR {b})"),
                6 => format!("(NOT {a})"),
                _ => format!("CASE WHEN {a} THEN {b} ELSE {} END", self.predicate(0)),
            };
        }
        let (_, kind) = self.pick(&COLUMNS);
        let value = self.of_kind(kind);
        let operators = ["=", "<>", "<", "<=", ">", ">="];
        match self.random.random_range(0..12) {
            0 => format!("{value} IS {}NULL", self.pick(&["", "NOT "])),
            1 => format!(
                "{value} {}BETWEEN {} AND {}",
                self.pick(&["", "NOT "]),
                self.literal(kind),
                self.literal(kind)
            ),
            2 => {
                let mut items: Vec<_> =
                    (0..self.random.random_range(1..6)).map(|_| self.literal(kind)).collect();
                if self.one_in(6) {
                    items.push("NULL".to_owned());
                }
                format!("{value} {}IN ({})", self.pick(&["", "NOT "]), items.join(", "))
            }
            // In parentheses, since what follows would belong to the literal.
            3 => format!("({value} IS {}DISTINCT FROM {})", self.pick(&["", "NOT "]), self.literal(kind)),
            4 => format!("{value} {} {}", self.pick(&operators), self.of_kind(kind)),
            5 | 6 if kind == Kind::Text => {
                let pattern = self.pattern();
                format!("{value} {}{} {pattern}", self.pick(&["", "NOT "]), self.pick(&["LIKE", "ILIKE"]))
            }
            5 if kind == Kind::Boolean => value,
            6 => {
                let list = format!("{}l", self.prefix);
                format!("{list} {}", self.pick(&["IS NULL", "IS NOT NULL", "= [0, 1]", "<> [0]"]))
            }
            _ => format!("{value} {} {}", self.pick(&operators), self.literal(kind)),
        }
    }

    /// A pattern made of a part of a text of the table.
    fn pattern(&mut self) -> String {
        let text = self.literal(Kind::Text);
        let letters: Vec<char> = text.trim_matches('\'').chars().filter(|it| *it != '\'').collect();
        let start = self.random.random_range(0..=letters.len());
        let end = self.random.random_range(start..=letters.len());
        let part: String = letters[start..end].iter().collect();
        let other: String = letters[start / 2..start].iter().collect();
        match self.random.random_range(0..8) {
            0 => format!("'{part}%'"),
            1 => format!("'%{part}'"),
            2 => format!("'%{part}%'"),
            3 => format!("'{part}'"),
            4 => format!("'_{part}%'"),
            5 => format!("'{other}%{part}'"),
            6 => format!("'%{other}%{part}%{other}'"),
            _ => format!("'%{part}%e%'"),
        }
    }
}
