//! The encodings, each applied by the reference's encoders to a suitable column.

use std::sync::Arc;

use arrow::array::{ArrayRef as ArrowRef, AsArray, Decimal128Array, StringViewArray};
use arrow::compute::take;
use arrow::datatypes::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use reference_vortex::array::arrays::{
    ConstantArray, DictArray, Primitive, PrimitiveArray, TemporalArray, VarBinViewArray,
};
use reference_vortex::array::validity::Validity;
use reference_vortex::array::{ArrayRef, ExecutionCtx, IntoArray};
use reference_vortex::arrow::convert::from_arrow_dyn;
use reference_vortex::dtype::{DecimalDType, NativePType, Nullability};
use reference_vortex::encodings::alp::{ALP, ALPArrayOwnedExt, RDEncoder, RDEncoderExt, alp_encode};
use reference_vortex::encodings::datetime_parts::DateTimeParts;
use reference_vortex::encodings::decimal_byte_parts::DecimalByteParts;
use reference_vortex::encodings::fastlanes::{BitPacked, Delta, FoR, RLE, delta_compress};
use reference_vortex::encodings::fsst::{fsst_compress, fsst_train_compressor};
use reference_vortex::encodings::pco::Pco;
use reference_vortex::encodings::runend::RunEnd;
use reference_vortex::encodings::sequence::sequence_encode;
use reference_vortex::encodings::sparse::Sparse;
use reference_vortex::encodings::zigzag::ZigZag;
use reference_vortex::encodings::zstd::Zstd;
use reference_vortex::error::{VortexResult, vortex_err};
use reference_vortex::extension::datetime::TimeUnit;
use reference_vortex::scalar::{PValue, Scalar};
use reference_vortex_onpair::{DEFAULT_CONFIG, onpair_compress};

use super::columns::{
    booleans, long_text, narrow, narrow_and_nulls, numbers, numbers_and_nulls, short_text, texts,
    texts_and_nulls,
};

type Encoder = Box<dyn Fn(&ArrowRef, &mut ExecutionCtx) -> VortexResult<ArrayRef>>;

/// A column, and how it is encoded.
pub(super) struct Case {
    /// The name, in the form `encoding/shape`.
    pub(super) name: String,
    /// The expected result of decoding.
    pub(super) plain: ArrowRef,
    /// Whether it is stored without encoding.
    pub(super) is_stored: bool,
    encoder: Encoder,
}

impl Case {
    fn new(
        name: impl Into<String>,
        plain: ArrowRef,
        encoder: impl Fn(&ArrowRef, &mut ExecutionCtx) -> VortexResult<ArrayRef> + 'static,
    ) -> Self {
        Self { name: name.into(), plain, is_stored: false, encoder: Box::new(encoder) }
    }

    /// A column without encoding.
    fn stored(name: &str, plain: ArrowRef) -> Self {
        Self { is_stored: true, ..Self::new(name, plain, |plain, _| convert(plain)) }
    }

    /// The array that the reference encodes from the column.
    pub(super) fn encode(&self, context: &mut ExecutionCtx) -> VortexResult<ArrayRef> {
        (self.encoder)(&self.plain, context)
    }
}

/// All cases.
pub(super) fn all(rows: usize) -> Vec<Case> {
    let mut cases = bit_packed(rows);
    cases.extend(integers(rows));
    cases.extend(floats(rows));
    cases.extend(strings(rows));
    cases.extend(dictionaries(rows));
    cases.extend(others(rows));
    cases
}

fn bit_packed(rows: usize) -> Vec<Case> {
    fn of<T: ArrowPrimitiveType>(rows: usize, widths: &[u8]) -> Vec<Case> {
        let bits = size_of::<T::Native>() * 8;
        let case = |width: u8, what: &str, plain| {
            Case::new(format!("bitpacked/u{bits}/{width}{what}"), plain, pack(width))
        };
        let plain = widths.iter().map(|width| case(*width, "", narrow::<T>(rows, (*width).into(), 0)));
        let width = widths[0];
        let others = [
            case(width, ", patches", narrow::<T>(rows, width.into(), 100)),
            case(width, ", nulls", narrow_and_nulls::<T>(rows, width.into())),
        ];
        plain.chain(others).collect()
    }
    let mut cases = of::<UInt8Type>(rows, &[3, 1, 6]);
    cases.extend(of::<UInt16Type>(rows, &[9, 4, 13]));
    cases.extend(of::<UInt32Type>(rows, &[10, 3, 17, 27]));
    cases.extend(of::<UInt64Type>(rows, &[20, 7, 37, 53]));
    cases
}

fn integers(rows: usize) -> Vec<Case> {
    vec![
        Case::new(
            "for/i32/10",
            numbers::<Int32Type>(rows, |_, hash| (hash % 1024) as i32 - 5000),
            |plain, context| framed::<Int32Type>(plain, 10, context),
        ),
        Case::new(
            "for/i64/20",
            numbers::<Int64Type>(rows, |_, hash| (hash % (1 << 20)) as i64 - 5000),
            |plain, context| framed::<Int64Type>(plain, 20, context),
        ),
        Case::new(
            "for/i64/20, nulls",
            numbers_and_nulls::<Int64Type>(rows, |_, hash| (hash % (1 << 20)) as i64 - 5000),
            |plain, context| framed::<Int64Type>(plain, 20, context),
        ),
        Case::new(
            "delta/u32",
            numbers::<UInt32Type>(rows, |row, hash| (row * 16) as u32 + (hash % 16) as u32),
            delta,
        ),
        Case::new("delta/u64", numbers::<UInt64Type>(rows, |row, hash| row as u64 * 16 + hash % 16), delta),
        Case::new("rle/i32, runs of 16", numbers::<Int32Type>(rows, |row, _| (row / 16) as i32), rle),
        Case::new("rle/u64, runs of 100", numbers::<UInt64Type>(rows, |row, _| row as u64 / 100), rle),
        Case::new("runend/i32, runs of 8", numbers::<Int32Type>(rows, |row, _| (row / 8) as i32), run_end),
        Case::new(
            "runend/i64, runs of 100",
            numbers::<Int64Type>(rows, |row, _| (row / 100) as i64),
            run_end,
        ),
        Case::new(
            "runend/i64, runs of 16, nulls",
            Arc::new(
                (0..rows)
                    .map(|row| (row / 16 % 5 > 0).then_some((row / 16) as i64))
                    .collect::<arrow::array::Int64Array>(),
            ),
            run_end,
        ),
        Case::new("sequence/i64", numbers::<Int64Type>(rows, |row, _| row as i64 * 3 - 7), sequence),
        Case::new("sequence/u32", numbers::<UInt32Type>(rows, |row, _| row as u32), sequence),
        Case::new(
            "zigzag/i16/9",
            numbers::<Int16Type>(rows, |_, hash| (hash % 500) as i16 - 250),
            |plain, context| {
                let to = plain
                    .as_primitive::<Int16Type>()
                    .unary::<_, UInt16Type>(|v| ((v << 1) ^ (v >> 15)) as u16);
                ZigZag::try_new(pack(9)(&(Arc::new(to) as ArrowRef), context)?).map(IntoArray::into_array)
            },
        ),
        Case::new(
            "zigzag/i64/20",
            numbers::<Int64Type>(rows, |_, hash| (hash % 1_000_000) as i64 - 500_000),
            |plain, context| {
                let to = plain
                    .as_primitive::<Int64Type>()
                    .unary::<_, UInt64Type>(|v| ((v << 1) ^ (v >> 63)) as u64);
                ZigZag::try_new(pack(20)(&(Arc::new(to) as ArrowRef), context)?).map(IntoArray::into_array)
            },
        ),
        Case::new(
            "sparse/i64, 5 %",
            numbers::<Int64Type>(rows, |_, hash| if hash % 20 == 0 { (hash >> 40) as i64 } else { 7 }),
            |plain, context| {
                Sparse::encode(
                    &convert(plain)?,
                    Some(Scalar::primitive(7i64, Nullability::NonNullable)),
                    context,
                )
            },
        ),
        Case::new(
            "sparse/i32, 5 % not null",
            Arc::new(
                numbers::<Int64Type>(rows, |_, hash| hash as i64)
                    .as_primitive::<Int64Type>()
                    .iter()
                    .map(|hash| hash.filter(|hash| hash % 20 == 0).map(|hash| (hash >> 40) as i32))
                    .collect::<arrow::array::Int32Array>(),
            ),
            |plain, context| Sparse::encode(&convert(plain)?, None, context),
        ),
        Case::new("constant/i64", numbers::<Int64Type>(rows, |_, _| 42), |plain, _| {
            Ok(ConstantArray::new(Scalar::primitive(42i64, Nullability::NonNullable), plain.len())
                .into_array())
        }),
        Case::stored("primitive/i64", narrow::<Int64Type>(rows, 50, 0)),
        Case::stored("primitive/i64, nulls", narrow_and_nulls::<Int64Type>(rows, 50)),
        Case::new("pco/i64", numbers::<Int64Type>(rows, |_, hash| (hash % 10_000) as i64 * 100), pco),
        Case::new(
            "zstd/i64",
            numbers::<Int64Type>(rows, |_, hash| (hash % 10_000) as i64 * 100),
            |plain, context| {
                let array = convert(plain)?.execute::<PrimitiveArray>(context)?;
                Zstd::from_primitive(&array, 3, 8192, context).map(IntoArray::into_array)
            },
        ),
    ]
}

fn floats(rows: usize) -> Vec<Case> {
    let cents = |hash: u64| (hash % 100_000) as f64 / 100.0;
    let rare = |hash: u64| if (hash >> 32) % 100 == 0 { (hash >> 12) as f64 * 1e-7 } else { cents(hash) };
    vec![
        Case::new("alp/f64", numbers::<Float64Type>(rows, move |_, hash| cents(hash)), alp),
        Case::new("alp/f64, patches", numbers::<Float64Type>(rows, move |_, hash| rare(hash)), alp),
        Case::new("alp/f64, nulls", numbers_and_nulls::<Float64Type>(rows, move |_, hash| cents(hash)), alp),
        Case::new("alp/f32", numbers::<Float32Type>(rows, |_, hash| (hash % 1000) as f32 / 10.0), alp),
        Case::new(
            "alp/f32, patches",
            numbers::<Float32Type>(rows, |_, hash| {
                if (hash >> 32) % 100 == 0 { (hash >> 44) as f32 * 1e-4 } else { (hash % 1000) as f32 / 10.0 }
            }),
            alp,
        ),
        Case::new(
            "alprd/f64",
            numbers::<Float64Type>(rows, |_, hash| 1.0 + (hash >> 11) as f64 / (1u64 << 53) as f64),
            |plain, _| {
                let encoder = RDEncoder::new(plain.as_primitive::<Float64Type>().values());
                real_double(&encoder, plain)
            },
        ),
        Case::new(
            "alprd/f32",
            numbers::<Float32Type>(rows, |_, hash| 1.0 + (hash >> 40) as f32 / (1u64 << 24) as f32),
            |plain, _| {
                let encoder = RDEncoder::new(plain.as_primitive::<Float32Type>().values());
                real_double(&encoder, plain)
            },
        ),
        Case::new("pco/f64", numbers::<Float64Type>(rows, move |_, hash| cents(hash)), pco),
        Case::new(
            "runend/f64, runs of 16",
            numbers::<Float64Type>(rows, move |row, _| (row / 16) as f64),
            run_end,
        ),
    ]
}

fn strings(rows: usize) -> Vec<Case> {
    let many = u64::MAX;
    vec![
        Case::new("fsst/short", texts(rows, many, short_text), fsst),
        Case::new("fsst/long", texts(rows, many, long_text), fsst),
        Case::new("fsst/long, nulls", texts_and_nulls(rows, many, long_text), fsst),
        Case::new("onpair/short", texts(rows, many, short_text), onpair),
        Case::new("onpair/long", texts(rows, many, long_text), onpair),
        Case::stored("varbinview/short", texts(rows, many, short_text)),
        Case::stored("varbinview/long", texts(rows, many, long_text)),
        Case::new("zstd/long", texts(rows, many, long_text), |plain, context| {
            let array = convert(plain)?.execute::<VarBinViewArray>(context)?;
            Zstd::from_var_bin_view(&array, 3, 8192, context).map(IntoArray::into_array)
        }),
        Case::new("constant/long", texts(rows, 1, long_text), |plain, _| {
            let scalar = Scalar::utf8(long_text(0), Nullability::NonNullable);
            Ok(ConstantArray::new(scalar, plain.len()).into_array())
        }),
    ]
}

fn dictionaries(rows: usize) -> Vec<Case> {
    let strings = |count: u64, text: fn(u64) -> String| -> ArrowRef {
        Arc::new(StringViewArray::from_iter_values((0..count).map(text)))
    };
    let longs = |count: usize| numbers::<Int64Type>(count, |_, hash| hash as i64);
    let singles = |count: usize| numbers::<Int32Type>(count, |_, hash| hash as i32);
    let codes8 = |width| narrow::<UInt8Type>(rows, width, 0);
    let codes16 = |width| narrow::<UInt16Type>(rows, width, 0);
    vec![
        dictionary("dict/u8/short", codes8(7), strings(128, short_text), None),
        dictionary("dict/u8/long", codes8(7), strings(128, long_text), None),
        dictionary(
            "dict/u8/long, nulls",
            narrow_and_nulls::<UInt8Type>(rows, 7),
            strings(128, long_text),
            None,
        ),
        dictionary("dict/u8 packed/long", codes8(7), strings(128, long_text), Some(7)),
        dictionary("dict/u16/short", codes16(12), strings(4096, short_text), None),
        dictionary("dict/u16/long", codes16(12), strings(4096, long_text), None),
        dictionary("dict/u16 packed/long", codes16(12), strings(4096, long_text), Some(12)),
        dictionary("dict/u8/i64", codes8(7), longs(128), None),
        dictionary("dict/u8/i32", codes8(7), singles(128), None),
        dictionary("dict/u16/i64", codes16(12), longs(4096), None),
        dictionary("dict/u16/i64, nulls", narrow_and_nulls::<UInt16Type>(rows, 12), longs(4096), None),
        dictionary("dict/u16 packed/i64", codes16(12), longs(4096), Some(12)),
    ]
}

fn others(rows: usize) -> Vec<Case> {
    let amount = |hash: u64| (hash % 1_000_000) as i64;
    let decimals = |value: &dyn Fn(u64) -> i64| -> ArrowRef {
        let values = numbers::<Int64Type>(rows, |_, hash| value(hash));
        let values = values.as_primitive::<Int64Type>().iter().map(|value| value.map(i128::from));
        let array = values.collect::<Decimal128Array>().with_precision_and_scale(15, 2);
        Arc::new(array.expect("fifteen digits may have two after the point"))
    };
    let micros = |_, hash: u64| 1_700_000_000_000_000 + (hash % (1 << 50)) as i64;
    vec![
        Case::new("datetimeparts/us", numbers::<TimestampMicrosecondType>(rows, micros), date_time_parts),
        Case::new(
            "datetimeparts/us, nulls",
            numbers_and_nulls::<TimestampMicrosecondType>(rows, micros),
            date_time_parts,
        ),
        Case::new("decimal_byte_parts/i64", decimals(&amount), |plain, _| {
            decimal_byte_parts(convert(&small(plain))?)
        }),
        Case::new("decimal_byte_parts/i64 packed", decimals(&amount), |plain, context| {
            decimal_byte_parts(pack(20)(&small(plain), context)?)
        }),
        Case::stored("decimal/i128", decimals(&amount)),
        Case::stored("bool", booleans(rows, false)),
        Case::stored("bool, nulls", booleans(rows, true)),
        Case::stored("primitive/i8", narrow::<Int8Type>(rows, 6, 0)),
    ]
}

/// The same values without encoding.
fn convert(plain: &ArrowRef) -> VortexResult<ArrayRef> {
    from_arrow_dyn(plain.as_ref(), plain.is_nullable())
}

fn pack(width: u8) -> impl Fn(&ArrowRef, &mut ExecutionCtx) -> VortexResult<ArrayRef> {
    move |plain, context| Ok(BitPacked::encode(&convert(plain)?, width, context)?.into_array())
}

fn framed<T: ArrowPrimitiveType>(
    plain: &ArrowRef,
    width: u8,
    context: &mut ExecutionCtx,
) -> VortexResult<ArrayRef>
where
    T::Native: NativePType + Into<PValue> + std::ops::Sub<Output = T::Native>,
{
    let plain = plain.as_primitive::<T>();
    let least = arrow::compute::min(plain).ok_or_else(|| vortex_err!("no rows"))?;
    let offsets: ArrowRef = Arc::new(plain.unary::<_, T>(|value| value - least));
    let packed = pack(width)(&offsets, context)?;
    Ok(FoR::try_new(packed, Scalar::primitive(least, Nullability::NonNullable))?.into_array())
}

fn delta(plain: &ArrowRef, context: &mut ExecutionCtx) -> VortexResult<ArrayRef> {
    let array = convert(plain)?.execute::<PrimitiveArray>(context)?;
    let (bases, deltas) = delta_compress(&array, context)?;
    let deltas = BitPacked::encode(&deltas.into_array(), 10, context)?;
    let delta =
        Delta::try_new(bases.into_array(), deltas.into_array(), Validity::NonNullable, 0, plain.len())?;
    Ok(delta.into_array())
}

fn rle(plain: &ArrowRef, context: &mut ExecutionCtx) -> VortexResult<ArrayRef> {
    let array = convert(plain)?.execute::<PrimitiveArray>(context)?;
    Ok(RLE::encode(array.as_view(), context)?.into_array())
}

fn run_end(plain: &ArrowRef, context: &mut ExecutionCtx) -> VortexResult<ArrayRef> {
    Ok(RunEnd::encode(convert(plain)?, context)?.into_array())
}

fn sequence(plain: &ArrowRef, context: &mut ExecutionCtx) -> VortexResult<ArrayRef> {
    let array = convert(plain)?.execute::<PrimitiveArray>(context)?;
    sequence_encode(array.as_view(), context)?.ok_or_else(|| vortex_err!("not a sequence"))
}

fn pco(plain: &ArrowRef, context: &mut ExecutionCtx) -> VortexResult<ArrayRef> {
    let array = convert(plain)?.execute::<PrimitiveArray>(context)?;
    Ok(Pco::from_primitive(array.as_view(), 3, 8192, context)?.into_array())
}

/// Decimal floats over bit-packed integers.
fn alp(plain: &ArrowRef, context: &mut ExecutionCtx) -> VortexResult<ArrayRef> {
    let array = convert(plain)?.execute::<PrimitiveArray>(context)?;
    let (integers, exponents, patches) = alp_encode(array.as_view(), None, context)?.into_parts();
    let integers = BitPacked::encode(&integers, 24, context)?.into_array();
    Ok(ALP::try_new(integers, exponents, patches)?.into_array())
}

fn real_double(encoder: &RDEncoder, plain: &ArrowRef) -> VortexResult<ArrayRef> {
    let array = convert(plain)?;
    let view = array.as_opt::<Primitive>().ok_or_else(|| vortex_err!("not primitive"))?;
    Ok(encoder.encode(view).into_array())
}

fn fsst(plain: &ArrowRef, context: &mut ExecutionCtx) -> VortexResult<ArrayRef> {
    let array = convert(plain)?;
    let compressor = fsst_train_compressor(&array, context)?;
    Ok(fsst_compress(&array, &compressor, context)?.into_array())
}

fn onpair(plain: &ArrowRef, context: &mut ExecutionCtx) -> VortexResult<ArrayRef> {
    onpair_compress(&convert(plain)?, DEFAULT_CONFIG, context)
}

fn dictionary(name: &str, codes: ArrowRef, values: ArrowRef, width: Option<u8>) -> Case {
    let plain = take(&values, &codes, None).expect("codes lie within the values");
    Case::new(name, plain, move |_, context| {
        let codes = match width {
            Some(width) => pack(width)(&codes, context)?,
            None => convert(&codes)?,
        };
        Ok(DictArray::try_new(codes, convert(&values)?)?.into_array())
    })
}

fn date_time_parts(plain: &ArrowRef, context: &mut ExecutionCtx) -> VortexResult<ArrayRef> {
    let micros = arrow::compute::cast(plain, &arrow::datatypes::DataType::Int64);
    let micros = convert(&micros.map_err(|error| vortex_err!("{error}"))?)?;
    let temporal = TemporalArray::new_timestamp(micros, TimeUnit::Microseconds, None);
    Ok(DateTimeParts::try_from_temporal(temporal, context)?.into_array())
}

/// The unscaled values of decimals as 64-bit integers.
fn small(plain: &ArrowRef) -> ArrowRef {
    let values = plain.as_primitive::<arrow::datatypes::Decimal128Type>();
    Arc::new(values.unary::<_, Int64Type>(|value| i64::try_from(value).expect("values have few digits")))
}

fn decimal_byte_parts(parts: ArrayRef) -> VortexResult<ArrayRef> {
    Ok(DecimalByteParts::try_new(parts, DecimalDType::new(15, 2))?.into_array())
}
