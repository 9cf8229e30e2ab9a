//! The numbers of a program: as wide as need be, as BMv2 computes them, and cut to a width only
//! when they are stored. Most fit 128 bits and never leave the stack.

use num_bigint::{BigInt, Sign};

/// An integer without bound.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Value {
    Small(i128),
    /// What does not fit `Small`, and only that.
    Big(BigInt),
}

impl Value {
    pub(crate) const ZERO: Self = Self::Small(0);

    pub(crate) fn from_u128(value: u128) -> Self {
        match i128::try_from(value) {
            Ok(small) => Self::Small(small),
            Err(_) => Self::Big(BigInt::from(value)),
        }
    }

    /// The value of the low 64 bits, as BMv2 takes indices.
    pub(crate) fn low_u64(&self) -> u64 {
        let bytes = match self {
            Self::Small(value) => return u64::try_from(value & i128::from(u64::MAX)).unwrap_or(0),
            Self::Big(value) => value.to_signed_bytes_le(),
        };
        let mut low = [0; 8];
        low.copy_from_slice(&bytes[..8]);
        u64::from_le_bytes(low)
    }

    /// The value, if it is neither negative nor wider than 128 bits.
    pub(crate) fn to_u128(&self) -> Option<u128> {
        match self {
            Self::Small(value) => u128::try_from(*value).ok(),
            Self::Big(value) => u128::try_from(value).ok(),
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        matches!(self, Self::Small(0))
    }

    /// Reads `0x1f` or `-0x1f`.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(rest) => ("-", rest),
            None => ("", text),
        };
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        let value = BigInt::parse_bytes(format!("{sign}{digits}").as_bytes(), 16)?;
        Some(Self::from_big(value))
    }

    /// The first `width` bits of `bytes` behind `skip` of them, the first bit the highest.
    pub(crate) fn from_bits(bytes: &[u8], skip: usize, width: usize) -> Self {
        let (first, end) = (skip / 8, (skip + width).div_ceil(8));
        let behind = end * 8 - skip - width;
        if end - first <= 15 {
            let whole = bytes[first..end].iter().fold(0, |all, byte| all << 8 | i128::from(*byte));
            return Self::Small(whole >> behind).cut(width);
        }
        let whole = BigInt::from_bytes_be(Sign::Plus, &bytes[first..end]);
        Self::from_big(whole >> behind).cut(width)
    }

    /// Writes the low `width` bits behind `skip` bits of `bytes`, which are zero there.
    pub(crate) fn put_bits(&self, bytes: &mut [u8], skip: usize, width: usize) {
        let (first, end) = (skip / 8, (skip + width).div_ceil(8));
        let behind = end * 8 - skip - width;
        let target = &mut bytes[first..end];
        if let Self::Small(value) = self.cut(width)
            && target.len() <= 15
        {
            let all = (value << behind).to_be_bytes();
            let from = all.len() - target.len();
            target.iter_mut().zip(&all[from..]).for_each(|(to, byte)| *to |= byte);
            return;
        }
        let (_, all) = (self.cut(width).big() << behind).to_bytes_be();
        let from = target.len() - all.len();
        target[from..].iter_mut().zip(&all).for_each(|(to, byte)| *to |= byte);
    }

    /// The low `width` bits, without sign.
    pub(crate) fn cut(&self, width: usize) -> Self {
        match self {
            Self::Small(value) if width < 127 => Self::Small(value & ((1 << width) - 1)),
            Self::Small(value) if *value >= 0 => self.clone(),
            _ => Self::from_big(self.big() & ((BigInt::from(1) << width) - 1)),
        }
    }

    /// The low `width` bits in two's complement.
    pub(crate) fn cut_signed(&self, width: usize) -> Self {
        let low = self.cut(width);
        let half = Self::from_big(BigInt::from(1) << (width - 1));
        if low.compare(&half).is_lt() {
            return low;
        }
        Self::from_big(low.big() - (BigInt::from(1) << width))
    }

    pub(crate) fn add(&self, other: &Self) -> Self {
        self.compute(other, i128::checked_add, |a, b| a + b)
    }

    pub(crate) fn sub(&self, other: &Self) -> Self {
        self.compute(other, i128::checked_sub, |a, b| a - b)
    }

    pub(crate) fn mul(&self, other: &Self) -> Self {
        self.compute(other, i128::checked_mul, |a, b| a * b)
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        self.compute(other, |a, b| Some(a & b), |a, b| a & b)
    }

    pub(crate) fn or(&self, other: &Self) -> Self {
        self.compute(other, |a, b| Some(a | b), |a, b| a | b)
    }

    pub(crate) fn xor(&self, other: &Self) -> Self {
        self.compute(other, |a, b| Some(a ^ b), |a, b| a ^ b)
    }

    pub(crate) fn not(&self) -> Self {
        match self {
            Self::Small(value) => Self::Small(!value),
            Self::Big(value) => Self::from_big(!value),
        }
    }

    /// Shifted left by `count` bits, at most [`SHIFT_MAX`]: beyond, nothing is left of it in any
    /// field.
    pub(crate) fn shl(&self, count: u64) -> Self {
        if count > SHIFT_MAX {
            return Self::ZERO;
        }
        match self {
            Self::Small(value) if count < 64 && value.unsigned_abs() < 1 << 62 => {
                Self::Small(value << count)
            }
            _ => Self::from_big(self.big() << count),
        }
    }

    pub(crate) fn shr(&self, count: u64) -> Self {
        match self {
            Self::Small(value) => Self::Small(value >> count.min(127)),
            Self::Big(value) => Self::from_big(value >> count.min(SHIFT_MAX)),
        }
    }

    pub(crate) fn compare(&self, other: &Self) -> core::cmp::Ordering {
        match (self, other) {
            (Self::Small(a), Self::Small(b)) => a.cmp(b),
            _ => self.big().cmp(&other.big()),
        }
    }

    fn compute(
        &self,
        other: &Self,
        small: impl FnOnce(i128, i128) -> Option<i128>,
        big: impl FnOnce(BigInt, BigInt) -> BigInt,
    ) -> Self {
        if let (Self::Small(a), Self::Small(b)) = (self, other)
            && let Some(value) = small(*a, *b)
        {
            return Self::Small(value);
        }
        Self::from_big(big(self.big(), other.big()))
    }

    fn big(&self) -> BigInt {
        match self {
            Self::Small(value) => BigInt::from(*value),
            Self::Big(value) => value.clone(),
        }
    }

    fn from_big(value: BigInt) -> Self {
        match i128::try_from(&value) {
            Ok(small) => Self::Small(small),
            Err(_) => Self::Big(value),
        }
    }
}

/// The widest field has 2048 bits.
const SHIFT_MAX: u64 = 4096;

#[cfg(test)]
mod tests;
