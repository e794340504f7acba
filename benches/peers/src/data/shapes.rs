//! The kinds of columns of the hit log, and how they are converted to Arrow arrays.
//!
//! A value is a hash of the column's name and of the entity it belongs to: a visitor has the same screen
//! for all hits, and a hit has its own duration. So runs and repetition are those of a real log, and any
//! column can be generated without the others.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int16Array, Int32Array, Int64Array,
    StringViewBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, TimeUnit};

use super::random::{heavy_tailed, mix, one_in, unit};
use super::visits::Hit;

/// Days from 1970 to the first day of the log: 2025-03-01.
const FIRST_DAY: i32 = 20_148;
const SECONDS_PER_DAY: i64 = 86_400;
const MICROS_PER_SECOND: i64 = 1_000_000;
/// The longest text; a few per million reach it.
const MAX_TEXT: usize = 2_000;

const WORDS: &[&str] = &[
    "green",
    "garden",
    "chair",
    "repair",
    "guide",
    "cheap",
    "flights",
    "weather",
    "lemon",
    "cake",
    "recipe",
    "used",
    "bicycle",
    "winter",
    "jacket",
    "phone",
    "screen",
    "replacement",
    "how",
    "to",
    "plant",
    "tomato",
    "city",
    "map",
    "museum",
    "tickets",
    "history",
    "of",
    "paper",
    "river",
    "house",
    "rent",
    "office",
    "desk",
    "lamp",
    "coffee",
    "grinder",
    "review",
    "best",
    "running",
    "shoes",
    "kids",
    "puzzle",
    "song",
    "lyrics",
    "train",
    "timetable",
    "night",
    "sky",
    "photo",
    "camera",
    "lens",
    "second",
    "hand",
    "piano",
    "lesson",
    "online",
    "free",
    "course",
    "language",
    "stone",
    "bread",
    "oven",
    "paint",
];

/// The entity that equal values have in common.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope {
    Hit,
    Visit,
    Visitor,
    Site,
}

/// The type and distribution of a column.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    /// The site of the hit, sorted.
    Site,
    /// The day of the hit, sorted within a site.
    Date,
    /// The moment of the hit, sorted within a visit.
    Time,
    /// Unique and unordered: the look-up key.
    EventId,
    /// The visitor, sorted within a site and day.
    Visitor,
    /// Position within the visit.
    HitNumber,
    /// A 64-bit hash.
    Hash,
    /// A 32-bit hash.
    Address,
    /// 1 in one row out of this many, 0 in the others.
    Flag(u64),
    /// As `Flag`, as a boolean.
    Truth(u64),
    /// A code below the bound; small codes are frequent.
    Code(u64),
    /// A count below the bound; nearly all are small.
    Count(u64),
    /// A count below the bound in one row out of twenty, otherwise 0.
    Rare(u64),
    /// A duration of about this many milliseconds with a long tail; a third are 0.
    Millis(u64),
    /// Uniform in `0.0..1.0`.
    Ratio,
    /// A 64-bit number in one row out of this many, otherwise null.
    SparseId(u64),
    /// An amount of money in one row out of this many, otherwise null.
    Amount(u64),
    /// A time after the hit in one row out of this many, otherwise null.
    Later(u64),
    /// One of these names; the first ones are the most frequent.
    Name(&'static [&'static str]),
    /// Empty in this percentage of rows, otherwise text of this kind.
    Text(u64, Text),
}

/// The kind of a text.
#[derive(Debug, Clone, Copy)]
pub(super) enum Text {
    /// A URL on the site of the hit.
    Page,
    /// A URL anywhere.
    Link,
    Title,
    Phrase,
    /// Key and value pairs.
    Parameters,
    Agent,
    /// A short code.
    Tag,
}

/// One column of the hit log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(crate) name: &'static str,
    pub(crate) scope: Scope,
    pub(crate) shape: Shape,
}

impl Shape {
    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Date => DataType::Date32,
            Self::Time | Self::Later(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::EventId | Self::Visitor | Self::Hash | Self::SparseId(_) => DataType::Int64,
            Self::Site | Self::Address | Self::Count(_) | Self::Rare(_) | Self::Millis(_) => DataType::Int32,
            Self::Flag(_) | Self::Code(_) | Self::HitNumber => DataType::Int16,
            Self::Truth(_) => DataType::Boolean,
            Self::Ratio => DataType::Float64,
            Self::Amount(_) => DataType::Decimal128(12, 2),
            Self::Name(_) | Self::Text(..) => DataType::Utf8View,
        }
    }

    pub(super) fn nullable(self) -> bool {
        matches!(self, Self::SparseId(_) | Self::Amount(_) | Self::Later(_))
    }
}

impl Column {
    /// The values of these hits.
    pub(super) fn build(&self, hits: &[Hit]) -> ArrayRef {
        let salt = self.name.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        let hashes = hits.iter().map(|hit| mix(salt ^ self.scope.key(hit)));
        let int16 = |values: &mut dyn Iterator<Item = u64>| -> ArrayRef {
            Arc::new(Int16Array::from_iter_values(values.map(|value| value as i16)))
        };
        let int32 = |values: &mut dyn Iterator<Item = u64>| -> ArrayRef {
            Arc::new(Int32Array::from_iter_values(values.map(|value| value as i32)))
        };
        let int64 = |values: &mut dyn Iterator<Item = u64>| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(values.map(|value| value as i64)))
        };
        match self.shape {
            Shape::Site => int32(&mut hits.iter().map(|hit| hit.site)),
            Shape::Date => {
                Arc::new(Date32Array::from_iter_values(hits.iter().map(|hit| FIRST_DAY + hit.day as i32)))
            }
            Shape::Time => Arc::new(TimestampMicrosecondArray::from_iter_values(hits.iter().map(micros))),
            Shape::EventId => {
                Arc::new(Int64Array::from_iter_values(hits.iter().map(|hit| event_id(hit.row))))
            }
            Shape::Visitor => int64(&mut hits.iter().map(|hit| hit.visitor)),
            Shape::HitNumber => int16(&mut hits.iter().map(|hit| hit.hit)),
            Shape::Hash => int64(&mut hashes.map(|hash| hash >> 1)),
            Shape::Address => int32(&mut hashes.map(|hash| hash & 0x7fff_ffff)),
            Shape::Flag(n) => int16(&mut hashes.map(|hash| u64::from(one_in(hash, n)))),
            Shape::Truth(n) => {
                let values: Vec<bool> = hashes.map(|hash| one_in(hash, n)).collect();
                Arc::new(BooleanArray::from(values))
            }
            Shape::Code(n) => int16(&mut hashes.map(|hash| heavy_tailed(hash, n, 3))),
            Shape::Count(n) => int32(&mut hashes.map(|hash| heavy_tailed(hash, n, 6))),
            Shape::Rare(n) => int32(&mut hashes.map(|hash| {
                let count = 1 + heavy_tailed(mix(hash), n - 1, 4);
                if one_in(hash, 20) { count } else { 0 }
            })),
            Shape::Millis(typical) => int32(&mut hashes.map(|hash| millis(hash, typical))),
            Shape::Ratio => Arc::new(Float64Array::from_iter_values(hashes.map(unit))),
            Shape::SparseId(n) => Arc::new(Int64Array::from_iter(
                hashes.map(|hash| one_in(hash, n).then_some((mix(hash) >> 1) as i64)),
            )),
            Shape::Amount(n) => {
                let cents = |hash| (unit(mix(hash)).powi(-1).min(1e6) * 499.0) as i128;
                let amounts =
                    Decimal128Array::from_iter(hashes.map(|hash| one_in(hash, n).then(|| cents(hash))));
                Arc::new(amounts.with_precision_and_scale(12, 2).expect("the largest amount has 11 digits"))
            }
            Shape::Later(n) => {
                Arc::new(TimestampMicrosecondArray::from_iter(hits.iter().zip(hashes).map(|(hit, hash)| {
                    let delay = (mix(hash) % 3_600) as i64 * MICROS_PER_SECOND;
                    one_in(hash, n).then(|| micros(hit) + delay)
                })))
            }
            Shape::Name(names) => {
                let mut texts = StringViewBuilder::with_capacity(hits.len());
                hashes.for_each(|hash| {
                    texts.append_value(names[heavy_tailed(hash, names.len() as u64, 2) as usize]);
                });
                Arc::new(texts.finish())
            }
            Shape::Text(empty_percent, text) => {
                let mut texts = StringViewBuilder::with_capacity(hits.len());
                let mut value = String::new();
                for (hit, hash) in hits.iter().zip(hashes) {
                    value.clear();
                    if mix(hash) % 100 >= empty_percent {
                        text.write(hit, hash, &mut value);
                    }
                    texts.append_value(&value);
                }
                Arc::new(texts.finish())
            }
        }
    }
}

impl Scope {
    fn key(self, hit: &Hit) -> u64 {
        match self {
            Self::Hit => mix(hit.row),
            Self::Visit => mix(hit.visitor.wrapping_add(hit.day)),
            Self::Visitor => hit.visitor,
            Self::Site => hit.site,
        }
    }
}

impl Text {
    fn write(self, hit: &Hit, hash: u64, out: &mut String) {
        match self {
            Self::Page => write_address(out, hit.site, heavy_tailed(hash, 4_000, 4)),
            Self::Link => write_address(out, heavy_tailed(hash, 20_000, 5), heavy_tailed(mix(hash), 300, 4)),
            Self::Title => {
                write_words(out, mix(hit.site << 20 | heavy_tailed(hash, 4_000, 4)), 4, ' ');
                let _ = write!(out, " | Site {}", hit.site);
            }
            Self::Phrase => {
                let phrase = mix(heavy_tailed(hash, 200_000, 3));
                write_words(out, phrase, 1 + phrase % 4, ' ');
            }
            Self::Parameters => {
                let count = (unit(hash).max(1e-6).powf(-0.6) as usize).min(MAX_TEXT / 16);
                for i in 0..count {
                    let separator = if i == 0 { '{' } else { ',' };
                    let pair = mix(hash.wrapping_add(i as u64));
                    let _ = write!(out, "{separator}\"{}\":{}", word(pair), mix(pair) % 1_000);
                }
                out.push('}');
            }
            Self::Agent => {
                let version = heavy_tailed(hash, 90, 2);
                let _ = write!(
                    out,
                    "Mozilla/5.0 (X{}; rv:{version}.0) Engine/{} Browser/{version}.{}",
                    mix(hash) % 9,
                    hash % 7,
                    hash % 30
                );
            }
            Self::Tag => {
                let _ = write!(out, "{}-{:x}", word(hash), heavy_tailed(hash, 5_000, 3));
            }
        }
    }
}

/// The key of the hit at `row`, never negative.
pub(super) fn event_id(row: u64) -> i64 {
    (mix(row ^ 0x0005_eed0_fe4e_4715) >> 1) as i64
}

fn micros(hit: &Hit) -> i64 {
    let seconds = (i64::from(FIRST_DAY) + hit.day as i64) * SECONDS_PER_DAY + hit.second as i64;
    seconds * MICROS_PER_SECOND
}

fn millis(hash: u64, typical: u64) -> u64 {
    if one_in(hash, 3) {
        return 0;
    }
    ((typical as f64 / unit(mix(hash)).max(1e-4)) as u64).min(600_000)
}

fn write_address(out: &mut String, site: u64, page: u64) {
    let hash = mix(site << 32 | page);
    let domain = ["example", "shop", "news", "forum", "maps"][(mix(site) % 5) as usize];
    let _ = write!(out, "https://{}{site}.{domain}.test/{}/", word(mix(site)), word(hash));
    write_words(out, mix(hash), 1 + hash % 3, '-');
    if page % 4 != 0 {
        let tail = (unit(mix(hash ^ 1)).max(1e-6).powf(-0.5) as usize).min(MAX_TEXT / 16);
        for i in 0..tail {
            let separator = if i == 0 { '?' } else { '&' };
            let pair = mix(hash.wrapping_add(i as u64));
            let _ = write!(out, "{separator}{}={:x}", word(pair), pair % 65_536);
        }
    }
}

fn write_words(out: &mut String, hash: u64, count: u64, separator: char) {
    for i in 0..count {
        if i > 0 {
            out.push(separator);
        }
        out.push_str(word(mix(hash ^ i)));
    }
}

fn word(hash: u64) -> &'static str {
    WORDS[heavy_tailed(hash, WORDS.len() as u64, 2) as usize]
}
