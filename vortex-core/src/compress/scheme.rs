//! Ways to encode a column, and how to choose among them.

use crate::dtype::DType;
use crate::release::since;
use crate::wire::WriteNode;
use crate::{Error, Level, Release, Result};

/// Maximum nesting depth of schemes.
const MAX_DEPTH: u8 = 3;

/// A column must shrink by more than one part in this many to be worth decoding.
const MIN_SAVING: usize = 50;

/// If the size of an encoding exceeds its estimate by more than this factor, the next one is tried, too.
const SURPRISE: f64 = 1.1;

/// One way to encode columns of one kind `C`.
///
/// An estimate should be close and cheap: it may read all values once, but preferably only a sample. It
/// includes all bytes, also those of children, assuming that these are compressed well.
pub(super) trait Scheme<C: ?Sized>: Sync {
    /// Identifies the encoding to releases and to other schemes.
    fn kind(&self) -> Kind;

    /// Approximate number of encoded bytes; `None` if the scheme does not apply.
    fn estimate(&self, column: &C, cx: &Context) -> Option<usize>;

    /// Encodes the column; returns `None` if the scheme turns out not to apply.
    ///
    /// # Errors
    /// If a child cannot be encoded.
    fn encode(&self, column: &C, cx: &Context) -> Result<Option<WriteNode>>;
}

/// The kinds of encodings to choose from.
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
    /// Concatenated strings.
    Joined,
    Pco,
    Zstd,
    /// Zstandard for numbers.
    ZstdNumbers,
    /// Values with a separate validity.
    Masked,
    DateTimeParts,
}

impl Kind {
    /// The oldest release that reads it in the form written here.
    fn first_reader(self) -> Release {
        match self {
            Self::Sequence => since::SEQUENCES,
            Self::Masked => since::MASKED,
            Self::Zstd | Self::ZstdNumbers => since::ZSTD,
            Self::Pco => since::PCO,
            Self::OnPair => since::ONPAIR,
            _ => Release::OLDEST,
        }
    }

    /// The cost of decoding. The costs of Zstandard and pco are so high that they are used only where
    /// they save most: large tables, TPC-H's lineitem and a hit log of 105 columns, are somewhat smaller
    /// than as Parquet with Zstandard. With a third of these costs, the hit log is 12 % smaller, but
    /// takes 50 % longer to read.
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

    /// Whether it is used at a level.
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

/// The cost of decoding, in equivalent bytes: per encoded byte, per decoded byte, and per row.
#[derive(Debug, Clone, Copy)]
struct Cost {
    encoded: f64,
    decoded: f64,
    rows: f64,
}

const FREE: Cost = Cost { encoded: 0.0, decoded: 0.0, rows: 0.0 };

/// The size of a decoded column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// The parameters of the choice other than the column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    level: Level,
    reader: Release,
    depth: u8,
    /// Kinds that must not be used here, as bits.
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

    /// The context for a child of an array encoded as `kind`, which must not use `barred`.
    pub(super) fn below(&self, kind: Kind, barred: &[Kind]) -> Self {
        let barred = barred.iter().fold(self.barred | kind.bit(), |bits, kind| bits | kind.bit());
        Self { depth: self.depth + 1, barred, ..*self }
    }

    /// Whether schemes of this kind may be used here.
    pub(super) fn allows(&self, kind: Kind) -> bool {
        self.depth < MAX_DEPTH && self.barred & kind.bit() == 0 && self.reads(kind) && kind.is_of(self.level)
    }

    /// Whether the oldest reader supports arrays of this kind.
    pub(super) fn reads(&self, kind: Kind) -> bool {
        self.reader >= kind.first_reader()
    }

    /// Checks that the oldest reader supports a type.
    ///
    /// # Errors
    /// If it does not.
    pub(super) fn check_readable(&self, dtype: &DType) -> Result<()> {
        let first = match dtype {
            DType::FixedSizeList(..) => since::FIXED_SIZE_LISTS,
            DType::Map(..) => since::MAPS,
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

    /// The cost of bytes of this kind that decode to `plain`, including that of decoding.
    pub(super) fn cost(&self, kind: Kind, bytes: usize, plain: Plain) -> f64 {
        let Cost { encoded, decoded, rows } = kind.decode_cost();
        let extra = bytes as f64 * encoded + plain.bytes as f64 * decoded + plain.rows as f64 * rows;
        bytes as f64 + if self.level == Level::Compact { extra / 10.0 } else { extra }
    }
}

/// Whether all rows of a type can be encoded as one scalar for readers of all releases.
pub(super) fn can_be_constant(dtype: &DType) -> bool {
    match dtype {
        DType::Bool(_) | DType::Primitive(..) | DType::Decimal(..) | DType::Utf8(_) | DType::Binary(_) => {
            true
        }
        DType::Extension(extension) => can_be_constant(extension.storage()),
        _ => false,
    }
}

/// Encodes a column with the best scheme, or as `plain` does if that would save too little of the
/// `decoded` bytes. Schemes whose decoding costs most are last in `schemes`: a better one may make their
/// estimates, which also cost most, unnecessary.
pub(super) fn choose<C: ?Sized>(
    schemes: &[&dyn Scheme<C>],
    column: &C,
    cx: &Context,
    decoded: Plain,
    plain: impl FnOnce() -> Result<WriteNode>,
) -> Result<WriteNode> {
    let worth = decoded.bytes - decoded.bytes / MIN_SAVING;
    let mut estimates = Vec::new();
    let mut least = worth as f64;
    for scheme in schemes.iter().filter(|scheme| cx.allows(scheme.kind())) {
        // Schemes whose decoding alone costs more than another one in total need no estimate.
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
        // The result is better than this scheme can be, or there is no reason to doubt the order.
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

/// The factor by which an estimate may be too high.
fn sure(level: Level) -> f64 {
    if level == Level::Compact { 0.8 } else { 1.0 }
}
