//! Schemes for floats: decimals with few digits, and splitting off bits that vary little.

use arrow::buffer::ScalarBuffer;
use arrow::datatypes::ArrowNativeType;

use super::dictionary::Dictionary;
use super::integer;
use super::numbers::{Numbers, Schemes, compress_words};
use super::pco::Pco;
use super::runs::Runs;
use super::sample::{self, Sample};
use super::scheme::{Context, Kind, Scheme};
use super::sparse::Sparse;
use crate::Result;
use crate::dtype::PType;
use crate::encodings::shared::patches::EncodedPatches;
use crate::encodings::{alp, alprd, primitive};
use crate::kernels::Word;
use crate::wire::WriteNode;

/// Number of floats on which exponents are tried.
const TRIED: usize = 128;

/// Bytes for the row of an exception, in addition to its value.
const EXCEPTION_ROW: usize = 4;

/// The schemes for floats.
pub(super) fn schemes<W: Word>() -> Schemes<W, 6> {
    [&Alp, &AlpRd, &Dictionary, &Runs, &Sparse, &Pco]
}

/// Floats that are decimals with few digits, stored as integers.
pub(super) struct Alp;

impl<W: Word> Scheme<Numbers<W>> for Alp {
    fn kind(&self) -> Kind {
        Kind::Alp
    }

    fn estimate(&self, numbers: &Numbers<W>, _: &Context) -> Option<usize> {
        alp_bytes(numbers, numbers.len())
    }

    fn encode(&self, numbers: &Numbers<W>, cx: &Context) -> Result<Option<WriteNode>> {
        match numbers.ptype {
            PType::F32 => encode::<f32, W>(numbers, cx, PType::I32).map(Some),
            PType::F64 => encode::<f64, W>(numbers, cx, PType::I64).map(Some),
            _ => Ok(None),
        }
    }
}

/// Estimated bytes of `rows` decimals, given these or some of them; `None` if they are no decimals.
pub(super) fn alp_bytes<W: Word>(numbers: &Numbers<W>, rows: usize) -> Option<usize> {
    match numbers.ptype {
        PType::F32 => decimal_bytes::<f32, W>(numbers, rows),
        PType::F64 => decimal_bytes::<f64, W>(numbers, rows),
        _ => None,
    }
}

/// The same bits, as floats.
fn floats<F: ArrowNativeType, W: Word>(numbers: &Numbers<W>) -> ScalarBuffer<F> {
    numbers.values.inner().clone().into()
}

fn exponents<F: alp::ToInteger + ArrowNativeType>(floats: &[F]) -> alp::Exponents {
    let rows: Vec<usize> = sample::rows(floats.len()).flatten().collect();
    let tried = rows.iter().step_by((rows.len() / TRIED).max(1)).take(TRIED);
    alp::find_exponents(&tried.map(|row| floats[*row]).collect::<Vec<F>>())
}

fn decimal_bytes<F: alp::ToInteger + ArrowNativeType, W: Word>(
    numbers: &Numbers<W>,
    rows: usize,
) -> Option<usize> {
    let floats = floats::<F, W>(numbers);
    let sample: Vec<F> = sample::rows(floats.len()).flat_map(|rows| floats[rows].iter().copied()).collect();
    let decimals = alp::to_integers(&sample, exponents(&floats));
    if decimals.exceptions.len() == sample.len() {
        return None;
    }
    // Relative to the minimum, which is all that matters for packing.
    let ordered = |integer: &F::Integer| F::widen(*integer);
    let min = decimals.integers.iter().map(ordered).min()?;
    let ranks = decimals.integers.iter().map(|integer| ordered(integer).wrapping_sub(min).cast_unsigned());
    let sample = Sample::new(ranks.collect(), rows);
    let packed = integer::packed_bytes(&sample, W::BITS);
    let exceptions = decimals.exceptions.len() * (size_of::<F>() + EXCEPTION_ROW);
    Some((packed + exceptions as f64 * sample.scale()) as usize + numbers.null_bytes())
}

fn encode<F: alp::ToInteger + ArrowNativeType, W: Word>(
    numbers: &Numbers<W>,
    cx: &Context,
    ptype: PType,
) -> Result<WriteNode> {
    let floats = floats::<F, W>(numbers);
    let exponents = exponents(&floats);
    let mut decimals = alp::to_integers(&floats, exponents);
    if let Some(nulls) = &numbers.nulls {
        decimals.exceptions.retain(|row| nulls.is_valid(*row as usize));
    }
    let patches = (!decimals.exceptions.is_empty()).then(|| {
        let values = decimals.exceptions.iter().map(|row| numbers.values[*row as usize]);
        EncodedPatches::new(&decimals.exceptions, primitive::encode(values.collect::<Vec<W>>(), None))
    });
    let below = cx.below(Kind::Alp, &[]);
    let integers = compress_words(&below, ptype, decimals.integers.into(), numbers.nulls.as_ref())?;
    Ok(alp::encode(exponents, integers, patches))
}

/// Floats split into two parts, with a dictionary of left parts.
struct AlpRd;

impl AlpRd {
    fn cut<W: Word>(numbers: &Numbers<W>) -> Option<alprd::Cut> {
        let sample: Vec<u64> = sample::rows(numbers.len())
            .flat_map(|rows| numbers.values[rows].iter().map(|bits| bits.as_u64()))
            .collect();
        alprd::find_cut::<W>(&sample)
    }
}

impl<W: Word> Scheme<Numbers<W>> for AlpRd {
    fn kind(&self) -> Kind {
        Kind::AlpRd
    }

    fn estimate(&self, numbers: &Numbers<W>, _: &Context) -> Option<usize> {
        if !matches!(numbers.ptype, PType::F32 | PType::F64) {
            return None;
        }
        let cut = Self::cut(numbers)?;
        Some((cut.bits * numbers.len() as f64 / 8.0) as usize + numbers.null_bytes())
    }

    fn encode(&self, numbers: &Numbers<W>, cx: &Context) -> Result<Option<WriteNode>> {
        let Some(cut) = Self::cut(numbers) else { return Ok(None) };
        let validity = numbers.validity(cx)?;
        Ok(Some(alprd::encode(&numbers.values, &cut, numbers.nulls.as_ref(), validity)))
    }
}
