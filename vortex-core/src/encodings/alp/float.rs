//! The floats that integers represent.

use std::fmt;
use std::ops::RangeInclusive;

use arrow::array::{ArrowNativeTypeOp, ArrowPrimitiveType};
use arrow::datatypes::{ArrowNativeType, Float32Type, Float64Type};

use crate::dtype::PType;
use crate::kernels::simd::Vectorized;
use crate::scalar::{Scalar, Value};

/// Number of integers converted at a time.
pub(super) const ROWS_AT_A_TIME: usize = 1024;

/// A float type that decimals can be decoded to.
pub(super) trait Float: ArrowNativeTypeOp + ArrowNativeType + fmt::Debug {
    type Arrow: ArrowPrimitiveType<Native = Self>;
    /// The integer type of the same width.
    type Integer: ArrowNativeType;
    const INTEGER: PType;
    /// 10^k, correctly rounded.
    const POWERS: &'static [Self];
    /// 10^-k, correctly rounded.
    const FRACTIONS: &'static [Self];
    const INTEGERS: RangeInclusive<i64>;

    /// The value of one of the [`Self::INTEGERS`].
    fn decode(integer: i64, scale: Scale<Self>) -> Self;

    /// Replaces integers with the bits of their values.
    fn decode_block(integers: &mut [Self::Integer], scale: Scale<Self>);

    fn of(constant: &Scalar) -> Option<Self>;

    fn into_value(self) -> Value;
}

/// The factors applied to an integer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale<F> {
    pub(super) up: F,
    pub(super) down: F,
}

impl Float for f32 {
    type Arrow = Float32Type;
    type Integer = i32;
    const INTEGER: PType = PType::I32;
    const POWERS: &'static [f32] = &[1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];
    const FRACTIONS: &'static [f32] = &[1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10];
    const INTEGERS: RangeInclusive<i64> = i32::MIN as i64..=i32::MAX as i64;

    fn decode(integer: i64, scale: Scale<f32>) -> f32 {
        integer as i32 as f32 * scale.up * scale.down
    }

    #[inline(always)]
    fn decode_block(integers: &mut [i32], scale: Scale<f32>) {
        for integer in integers {
            let value = *integer as f32 * scale.up * scale.down;
            *integer = value.to_bits() as i32;
        }
    }

    fn of(constant: &Scalar) -> Option<f32> {
        match constant.value() {
            Value::F32(value) => Some(*value),
            _ => None,
        }
    }

    fn into_value(self) -> Value {
        Value::F32(self)
    }
}

impl Float for f64 {
    type Arrow = Float64Type;
    type Integer = i64;
    const INTEGER: PType = PType::I64;
    const POWERS: &'static [f64] = &[
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
        1e18, 1e19, 1e20, 1e21, 1e22, 1e23,
    ];
    const FRACTIONS: &'static [f64] = &[
        1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15,
        1e-16, 1e-17, 1e-18, 1e-19, 1e-20, 1e-21, 1e-22, 1e-23,
    ];
    const INTEGERS: RangeInclusive<i64> = i64::MIN..=i64::MAX;

    fn decode(integer: i64, scale: Scale<f64>) -> f64 {
        integer as f64 * scale.up * scale.down
    }

    /// Few machines can convert vectors of 64-bit integers. Integers within 2^51 of zero need no
    /// conversion: added to the bits of 1.5 * 2^52, they become its lowest digits.
    #[inline(always)]
    fn decode_block(integers: &mut [i64], scale: Scale<f64>) {
        const MAGIC: f64 = 1.5 * (1u64 << 52) as f64;
        const HALF: i64 = 1 << 51;
        let magic_bits = MAGIC.to_bits() as i64;
        let beyond = integers.iter().fold(0, |bits, integer| bits | integer.wrapping_add(HALF));
        if beyond as u64 >> 52 == 0 {
            for integer in integers {
                let value = f64::from_bits(integer.wrapping_add(magic_bits) as u64) - MAGIC;
                *integer = (value * scale.up * scale.down).to_bits() as i64;
            }
        } else {
            for integer in integers {
                *integer = f64::decode(*integer, scale).to_bits() as i64;
            }
        }
    }

    fn of(constant: &Scalar) -> Option<f64> {
        match constant.value() {
            Value::F64(value) => Some(*value),
            _ => None,
        }
    }

    fn into_value(self) -> Value {
        Value::F64(self)
    }
}

/// Replaces integers with the bits of their values.
pub(super) struct Decimals<'a, F: Float> {
    pub(super) integers: &'a mut [F::Integer],
    pub(super) scale: Scale<F>,
}

impl<F: Float> Vectorized for Decimals<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for block in self.integers.chunks_mut(ROWS_AT_A_TIME) {
            F::decode_block(block, self.scale);
        }
    }
}
