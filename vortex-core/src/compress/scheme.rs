//! Ways to encode a column, and how to choose among them.

use crate::dtype::{DType, Meaning};
use crate::release::since;
use crate::wire::WriteNode;
use crate::{Error, Level, Release, Result};

/// Maximum nesting depth of schemes.
const MAX_DEPTH: u8 = 3;

/// A column must shrink by more than one part in this many to be worth decoding.
const MIN_SAVING: usize = 50;

/// Approximate bytes that an encoding with children takes in addition to the data in its buffers: the
/// description of its nodes, their metadata, and padding. It decides about short columns.
pub(super) const NODE_OVERHEAD: usize = 64;

/// If the size of an encoding exceeds its estimate by more than this factor, the next one is tried, too.
const SURPRISE: f64 = 1.1;

/// At the level `Compact`, the cost of decoding counts this many times less.
const COMPACT_DISCOUNT: f64 = 10.0;

/// Share of its estimate that an encoding may take at best. At the level `Compact`, a scheme is thus tried
/// even if its estimate is somewhat above what another one took.
const BEST_SHARE: f64 = 0.8;

/// One way to encode columns of one kind `C`.
///
/// An estimate should be close and cheap: it may read all values once, but preferably only a sample. It
/// includes all bytes, also those of children, assuming that these are compressed well; dictionaries also
/// count what decoding their codes costs, in equivalent bytes.
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
    /// Decimals of 128 bits as two integers.
    Halves,
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
            Self::Halves => since::DECIMAL_HALVES,
            Self::Packed
            | Self::Dictionary
            | Self::Runs
            | Self::Sparse
            | Self::Alp
            | Self::AlpRd
            | Self::Fsst
            | Self::Joined
            | Self::DateTimeParts => Release::OLDEST,
        }
    }

    /// The cost of decoding, at 1.75 ns a byte: pco needs 2.8 ns per number, and Zstandard almost 1 ns per byte of
    /// numbers. So they are used only where they save most: of large tables, TPC-H's lineitem is somewhat smaller
    /// than as Parquet with Zstandard, and a hit log of 105 columns is 2 % larger. At a fifth less for Zstandard,
    /// the hit log is 5 % smaller, and takes 15 % longer to read. Text that Zstandard makes several times smaller,
    /// such as log lines, is decompressed as fast as other schemes decode it: the cost falls with `ratio`, that of
    /// encoded to decoded bytes, so that about half the bytes of another scheme are worth it.
    fn decode_cost(self, ratio: f64) -> Cost {
        match self {
            Self::Sequence => Cost { encoded: -0.5, ..FREE },
            Self::Packed | Self::Joined | Self::Masked => FREE,
            Self::Alp => Cost { encoded: 0.02, ..FREE },
            Self::Dictionary => Cost { encoded: 0.03, ..FREE },
            Self::Fsst => Cost { encoded: 0.05, ..FREE },
            Self::OnPair | Self::Runs | Self::Sparse | Self::AlpRd | Self::DateTimeParts | Self::Halves => {
                Cost { encoded: 0.1, ..FREE }
            }
            Self::Zstd => Cost { decoded: ratio.clamp(0.05, 0.2), ..FREE },
            Self::ZstdNumbers => Cost { decoded: 0.55, ..FREE },
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
    /// The cost that a scheme must stay below to be the best, as far as is known when it is estimated.
    limit: f64,
}

impl Context {
    pub(super) fn new(level: Level, reader: Release) -> Self {
        Self { level, reader, depth: 0, barred: 0, limit: f64::INFINITY }
    }

    pub(super) fn level(&self) -> Level {
        self.level
    }

    pub(super) fn reader(&self) -> Release {
        self.reader
    }

    /// The context for a child of an array encoded as `kind`, which must not use `barred`.
    pub(super) fn below(&self, kind: Kind, barred: &[Kind]) -> Self {
        Self { depth: self.depth + 1, ..self.without(&[kind]).without(barred) }
    }

    /// The same context, in which `barred` must not be used.
    pub(super) fn without(&self, barred: &[Kind]) -> Self {
        let barred = barred.iter().fold(self.barred, |bits, kind| bits | kind.bit());
        Self { barred, ..*self }
    }

    /// Whether schemes of this kind may be used here.
    pub(super) fn allows(&self, kind: Kind) -> bool {
        self.depth < MAX_DEPTH && self.barred & kind.bit() == 0 && self.reads(kind) && kind.is_of(self.level)
    }

    /// Whether the oldest reader supports arrays of this kind here.
    pub(super) fn reads(&self, kind: Kind) -> bool {
        let first = match kind {
            // Not the parts of another array.
            Kind::ZstdNumbers if self.depth == 0 => since::JOINED_ZSTD_NUMBERS,
            _ => kind.first_reader(),
        };
        self.reader >= first
    }

    /// Checks that the oldest reader supports a type.
    ///
    /// # Errors
    /// If it does not.
    pub(super) fn check_readable(&self, dtype: &DType) -> Result<()> {
        let first = match dtype {
            DType::FixedSizeList(..) => since::FIXED_SIZE_LISTS,
            DType::Map(..) => since::MAPS,
            DType::Extension(extension) if *extension.meaning() == Meaning::Uuid => since::UUIDS,
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

    /// Whether a scheme of this kind may be the best if it takes so many bytes.
    pub(super) fn may_pay(&self, kind: Kind, bytes: usize, plain: Plain) -> bool {
        self.cost(kind, bytes, plain) < self.limit
    }

    /// The same context, for the estimate of a scheme that must cost less than `limit`.
    pub(super) fn limited(&self, limit: f64) -> Self {
        Self { limit, ..*self }
    }

    /// The cost of bytes of this kind that decode to `plain`, including that of decoding.
    pub(super) fn cost(&self, kind: Kind, bytes: usize, plain: Plain) -> f64 {
        let ratio = bytes as f64 / plain.bytes.max(1) as f64;
        let Cost { encoded, decoded, rows } = kind.decode_cost(ratio);
        let extra = bytes as f64 * encoded + plain.bytes as f64 * decoded + plain.rows as f64 * rows;
        bytes as f64 + if self.level == Level::Compact { extra / COMPACT_DISCOUNT } else { extra }
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
        let limited = cx.limited(least);
        if !limited.may_pay(scheme.kind(), 0, decoded) {
            continue;
        }
        let Some(bytes) = scheme.estimate(column, &limited) else { continue };
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
        if best.as_ref().is_some_and(|(found, _)| *found <= score * least_share(cx.level)) {
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

/// The share of an estimate that an encoding takes at least.
fn least_share(level: Level) -> f64 {
    if level == Level::Compact { BEST_SHARE } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barring_a_kind_takes_no_level() {
        let cx = Context::new(Level::Default, Release::NEWEST);
        let below = cx.below(Kind::Dictionary, &[]).below(Kind::Fsst, &[]);
        assert!(below.without(&[Kind::Runs]).allows(Kind::Packed));
        assert!(!below.without(&[Kind::Runs]).allows(Kind::Runs));
        assert!(!below.allows(Kind::Dictionary) && !below.allows(Kind::Fsst));
        assert!(!below.below(Kind::Runs, &[]).allows(Kind::Packed));
    }

    #[test]
    fn zstandard_pays_for_text_if_it_takes_about_half_the_bytes() {
        let plain = Plain { rows: 1000, bytes: 100_000 };
        let is_better = |level, zstd, other| {
            let cx = Context::new(level, Release::NEWEST);
            cx.cost(Kind::Zstd, zstd, plain) < cx.cost(Kind::OnPair, other, plain)
        };
        assert!(is_better(Level::Default, 1_000, 12_000));
        assert!(is_better(Level::Default, 8_000, 16_000));
        assert!(!is_better(Level::Default, 8_000, 13_000));
        assert!(!is_better(Level::Default, 1_000, 5_000), "either is tiny");
        assert!(!is_better(Level::Default, 30_000, 45_000));
        assert!(is_better(Level::Compact, 12_000, 13_500));
    }
}
