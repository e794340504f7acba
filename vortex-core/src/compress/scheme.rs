//! Ways to encode a column, and the choice among them.

use crate::dtype::DType;
use crate::wire::WriteNode;
use crate::{Error, Level, Release, Result};

/// Levels of schemes below each other.
const MAX_DEPTH: u8 = 3;

/// A column must shrink by more than one of this many bytes to be worth decoding.
const LEAST_SAVING: usize = 50;

/// An encoding that exceeds its estimate by more than this share has the next one tried, too.
const SURPRISE: f64 = 1.1;

/// One way to encode columns of one kind `C`.
///
/// An estimate should be close and cheap: it may look at all values once, but better at a
/// sample. It counts all bytes, those of children included, as if these were compressed well.
pub(super) trait Scheme<C: ?Sized>: Sync {
    /// What makes the encoding known to releases and to other schemes.
    fn kind(&self) -> Kind;

    /// The bytes that encoding will take, nearly; `None` if the scheme does not apply.
    fn estimate(&self, column: &C, cx: &Context) -> Option<usize>;

    /// Encodes, or finds that the scheme does not apply after all.
    ///
    /// # Errors
    /// If a child cannot be encoded.
    fn encode(&self, column: &C, cx: &Context) -> Result<Option<WriteNode>>;
}

/// The kinds of encodings that are chosen from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Sequence,
    Packed,
    Dictionary,
    Runs,
    Sparse,
    Alp,
    AlpRd,
    Fsst,
    OnPair,
    /// Strings one behind the other.
    Joined,
    Pco,
    Zstd,
    /// Zstandard over numbers.
    ZstdNumbers,
    /// Values beside their validity.
    Masked,
    DateTimeParts,
}

impl Kind {
    /// The oldest release that reads it, as it is written here.
    fn first_reader(self) -> Release {
        match self {
            Self::Sequence => Release::new(0, 40),
            Self::Zstd | Self::ZstdNumbers | Self::Masked => Release::new(0, 54),
            // Earlier ones know another version of the pco format.
            Self::Pco => Release::new(0, 59),
            Self::OnPair => Release::new(0, 85),
            _ => Release::OLDEST,
        }
    }

    /// What decoding costs. Zstandard and pco cost so much that they are left where they save most:
    /// large tables, TPC-H's lineitem and a hit log of 105 columns, take some less bytes than as
    /// Parquet with Zstandard. A third of these costs make the hit log 12 % smaller, and half as slow
    /// again to read.
    fn decode_cost(self) -> Cost {
        match self {
            Self::Sequence => Cost { encoded: -0.5, ..FREE },
            Self::Packed | Self::Sparse | Self::Joined | Self::Masked => FREE,
            Self::Alp => Cost { encoded: 0.02, ..FREE },
            Self::Dictionary => Cost { encoded: 0.03, ..FREE },
            Self::Fsst => Cost { encoded: 0.05, ..FREE },
            Self::OnPair | Self::Runs | Self::AlpRd | Self::DateTimeParts => Cost { encoded: 0.1, ..FREE },
            Self::Zstd => Cost { decoded: 0.2, ..FREE },
            Self::ZstdNumbers => Cost { decoded: 0.43, ..FREE },
            Self::Pco => Cost { encoded: 0.1, rows: 1.6, ..FREE },
        }
    }

    /// Whether a level has it.
    fn is_of(self, level: Level) -> bool {
        match self {
            Self::Pco | Self::Zstd | Self::ZstdNumbers | Self::OnPair => level != Level::Fast,
            _ => true,
        }
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// What decoding costs, in bytes that are as bad: per byte that is encoded, per byte that comes out,
/// and per row.
#[derive(Debug, Clone, Copy)]
struct Cost {
    encoded: f64,
    decoded: f64,
    rows: f64,
}

const FREE: Cost = Cost { encoded: 0.0, decoded: 0.0, rows: 0.0 };

/// What a column is once it is decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// What the choice depends on besides the column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    level: Level,
    reader: Release,
    depth: u8,
    /// Kinds not to be used here, as bits.
    barred: u32,
}

impl Context {
    pub(super) fn new(level: Level, reader: Release) -> Self {
        Self { level, reader, depth: 0, barred: 0 }
    }

    pub(super) fn level(&self) -> Level {
        self.level
    }

    pub(super) fn reader(&self) -> Release {
        self.reader
    }

    /// For a child of an array encoded as `kind`, which may not use `barred`.
    pub(super) fn below(&self, kind: Kind, barred: &[Kind]) -> Self {
        let barred = barred.iter().fold(self.barred | kind.bit(), |bits, kind| bits | kind.bit());
        Self { depth: self.depth + 1, barred, ..*self }
    }

    /// Whether schemes of this kind may be used here.
    pub(super) fn allows(&self, kind: Kind) -> bool {
        self.depth < MAX_DEPTH && self.barred & kind.bit() == 0 && self.reads(kind) && kind.is_of(self.level)
    }

    /// Whether the oldest reader knows arrays of this kind.
    pub(super) fn reads(&self, kind: Kind) -> bool {
        self.reader >= kind.first_reader()
    }

    /// Checks that the oldest reader knows a type.
    ///
    /// # Errors
    /// If it does not.
    pub(super) fn check_readable(&self, dtype: &DType) -> Result<()> {
        let first = match dtype {
            DType::FixedSizeList(..) => Release::new(0, 54),
            DType::Map(..) => Release::new(0, 85),
            _ => Release::OLDEST,
        };
        if self.reader < first {
            return Err(Error::unsupported(
                "type to write",
                format!("{dtype}: release {} reads it, {} does not", first, self.reader),
            ));
        }
        Ok(())
    }

    /// What bytes of this kind count for if they decode to `plain`, decoding considered.
    pub(super) fn cost(&self, kind: Kind, bytes: usize, plain: Plain) -> f64 {
        let Cost { encoded, decoded, rows } = kind.decode_cost();
        let extra = bytes as f64 * encoded + plain.bytes as f64 * decoded + plain.rows as f64 * rows;
        bytes as f64 + if self.level == Level::Compact { extra / 10.0 } else { extra }
    }
}

/// Whether all rows of a type can be one scalar, for readers of all releases.
pub(super) fn can_be_constant(dtype: &DType) -> bool {
    match dtype {
        DType::Bool(_) | DType::Primitive(..) | DType::Decimal(..) | DType::Utf8(_) | DType::Binary(_) => {
            true
        }
        DType::Extension(extension) => can_be_constant(extension.storage()),
        _ => false,
    }
}

/// Encodes a column with the scheme that serves best; with none, if it would save
/// too little on the `decoded` bytes of what `plain` makes. Those of `schemes` that cost most to decode
/// stand last: another may spare their estimates, which cost most, too.
pub(super) fn choose<C: ?Sized>(
    schemes: &[&dyn Scheme<C>],
    column: &C,
    cx: &Context,
    decoded: Plain,
    plain: impl FnOnce() -> Result<WriteNode>,
) -> Result<WriteNode> {
    let worth = decoded.bytes - decoded.bytes / LEAST_SAVING;
    let mut estimates = Vec::new();
    let mut least = worth as f64;
    for scheme in schemes.iter().filter(|scheme| cx.allows(scheme.kind())) {
        // What costs more to decode than another costs in all need not be estimated.
        if cx.cost(scheme.kind(), 0, decoded) >= least {
            continue;
        }
        let Some(bytes) = scheme.estimate(column, cx) else { continue };
        let score = cx.cost(scheme.kind(), bytes, decoded);
        if score < worth as f64 {
            least = least.min(score);
            estimates.push((score, bytes, *scheme));
        }
    }
    estimates.sort_by(|left, right| left.0.total_cmp(&right.0));

    let mut best: Option<(f64, WriteNode)> = None;
    for (score, bytes, scheme) in estimates {
        // What was found is better than this can be, or there is no reason to doubt the order.
        if best.as_ref().is_some_and(|(found, _)| *found <= score * sure(cx.level)) {
            break;
        }
        let Some(node) = scheme.encode(column, cx)? else { continue };
        let encoded = node.byte_len();
        let found = cx.cost(scheme.kind(), encoded, decoded);
        let as_expected = encoded as f64 <= bytes as f64 * SURPRISE;
        if best.as_ref().is_none_or(|(best, _)| found < *best) {
            best = Some((found, node));
        }
        if as_expected && cx.level != Level::Compact {
            break;
        }
    }
    match best {
        Some((score, node)) if score < worth as f64 => Ok(node),
        _ => plain(),
    }
}

/// How far an estimate may be off, as a factor on it.
fn sure(level: Level) -> f64 {
    if level == Level::Compact { 0.8 } else { 1.0 }
}
