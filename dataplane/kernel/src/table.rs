//! One table of function pointers per instruction set, and which of them this machine can run.
//!
//! The list of operations stands once, in [`for_each_operation`]; from it come the fields of
//! [`Kernels`] and, per instruction set, a module that compiles every loop of `loops.rs` with that
//! set's features enabled.
//!
//! Invariant: a [`Kernels`] whose functions need a feature leaves this file only through
//! [`Kernels::for_isa`], which has asked the processor for that feature.

use std::fmt;

/// An instruction set that the arithmetic is compiled for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Isa {
    /// What the compilation target guarantees: SSE2 on x86_64, NEON on aarch64.
    Portable,
    /// SSE4.2: what DPDK itself asks of an x86 processor; appliances without AVX2 have it.
    Sse42,
    /// AVX2, from Haswell and Zen on.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, from Skylake-SP and Zen 4 on.
    Avx512,
}

impl Isa {
    /// Every instruction set, slowest first.
    pub const ALL: [Self; 4] = [Self::Portable, Self::Sse42, Self::Avx2, Self::Avx512];
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Portable => "portable",
            Self::Sse42 => "sse4.2",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        })
    }
}

impl Kernels {
    /// Returns the fastest arithmetic that this machine can run.
    #[must_use]
    pub fn detect() -> &'static Self {
        Isa::ALL.into_iter().rev().find_map(Self::for_isa).unwrap_or(Self::portable())
    }

    /// Returns the arithmetic that every machine of this compilation target can run.
    #[must_use]
    pub const fn portable() -> &'static Self {
        &portable::TABLE
    }

    /// Returns the arithmetic for `isa`, or nothing when this machine cannot run it.
    #[must_use]
    pub fn for_isa(isa: Isa) -> Option<&'static Self> {
        match isa {
            Isa::Portable => Some(&portable::TABLE),
            #[cfg(target_arch = "x86_64")]
            Isa::Sse42 => x86::has_sse42().then_some(&sse42::TABLE),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => x86::has_avx2().then_some(&avx2::TABLE),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => x86::has_avx512().then_some(&avx512::TABLE),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Sse42 | Isa::Avx2 | Isa::Avx512 => None,
        }
    }

    /// The instruction set that this arithmetic uses.
    #[must_use]
    pub const fn isa(&self) -> Isa {
        self.isa
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernels").field("isa", &self.isa).finish_non_exhaustive()
    }
}

/// Calls `$callback!` with its arguments, a semicolon and the signature of every operation.
macro_rules! for_each_operation {
    ($callback:ident, $($arguments:tt)*) => {
        $callback! {
            $($arguments)*;
            store_i32(slot: &mut [i32], wire: &[u8]);
            add_i32(slot: &mut [i32], wire: &[u8]);
            add_i32_emit(slot: &mut [i32], wire: &mut [u8]);
            add_run_i32(slot: &mut [i32], stores: bool, wires: &[&[u8]]);
            add_run_i32_emit(slot: &mut [i32], stores: bool, wires: &mut [&mut [u8]]);
            store_i32_clamped(slot: &mut [i32], wire: &[u8], limit: i32) -> bool;
            add_i32_clamped(slot: &mut [i32], wire: &[u8], limit: i32) -> bool;
            add_i32_clamped_emit(slot: &mut [i32], wire: &mut [u8], limit: i32) -> bool;
            max_i32(slot: &mut [i32], wire: &[u8]);
            max_i32_emit(slot: &mut [i32], wire: &mut [u8]);
            emit_i32(slot: &[i32], wire: &mut [u8]);
            emit_i32_ahead(values: &[i32], wire: &mut [u8]);
            store_i32_ahead(values: &mut [i32], wire: &[u8]);
            store_f32(slot: &mut [f32], wire: &[u8]);
            add_f32(slot: &mut [f32], wire: &[u8]);
            add_f32_emit(slot: &mut [f32], wire: &mut [u8]);
            add_run_f32(slot: &mut [f32], stores: bool, wires: &[&[u8]]);
            add_run_f32_emit(slot: &mut [f32], stores: bool, wires: &mut [&mut [u8]]);
            emit_f32(slot: &[f32], wire: &mut [u8]);
            emit_f32_ahead(values: &[f32], wire: &mut [u8]);
            store_f32_ahead(values: &mut [f32], wire: &[u8]);
            sum_rows_f32_emit(rows: &[f32], stride: usize, slot: &mut [f32], wire: &mut [u8]);
            store_bf16(slot: &mut [f32], wire: &[u8]);
            add_bf16(slot: &mut [f32], wire: &[u8]);
            add_bf16_emit(slot: &mut [f32], wire: &mut [u8]);
            emit_bf16(slot: &[f32], wire: &mut [u8]);
            emit_bf16_ahead(values: &[f32], wire: &mut [u8]);
            store_bf16_ahead(values: &mut [f32], wire: &[u8]);
            quantise_f32(values: &[f32], inverse_quantum: f32, limit: i32, wire: &mut [u8]) -> u32;
            dequantise_i32(wire: &[u8], quantum: f32, values: &mut [f32]);
            max_abs_f32(values: &[f32]) -> f32;
            momentum_step_i32(wire: &[u8], scale: f32, momentum: f32, h: &mut [f32], w: &mut [f32]) -> [f64; 2];
            momentum_step_f32(wire: &[u8], scale: f32, momentum: f32, h: &mut [f32], w: &mut [f32]) -> [f64; 2];
            sum_squares_i32(wire: &[u8], scale: f32) -> f64;
            sum_squares_f32(wire: &[u8], scale: f32) -> f64;
        }
    };
}

macro_rules! define_kernels {
    ($kernels:ident; $($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// The arithmetic for one instruction set: choose it once, then call methods on it.
        ///
        /// Holding a reference proves that this machine can run it.
        pub struct $kernels {
            isa: Isa,
            $(pub(crate) $name: unsafe fn($($type),*) $(-> $result)?,)*
        }
    };
}

macro_rules! define_isa {
    (
        $isa:ident, $module:ident, $attribute:tt;
        $($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*
    ) => {
        mod $module {
            use super::{Isa, Kernels};
            use crate::loops;

            pub(super) static TABLE: Kernels = Kernels { isa: Isa::$isa, $($name,)* };

            $(
                #$attribute
                fn $name($($arg: $type),*) $(-> $result)? {
                    loops::$name($($arg),*)
                }
            )*
        }
    };
}

for_each_operation!(define_kernels, Kernels);
for_each_operation!(define_isa, Portable, portable, [inline(never)]);
#[cfg(target_arch = "x86_64")]
for_each_operation!(define_isa, Sse42, sse42, [target_feature(enable = "sse4.2,popcnt")]);
#[cfg(target_arch = "x86_64")]
for_each_operation!(define_isa, Avx2, avx2, [target_feature(enable = "avx2,bmi2")]);
#[cfg(target_arch = "x86_64")]
for_each_operation!(
    define_isa,
    Avx512,
    avx512,
    [target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
);

/// Asks the processor for exactly the features that the modules above enable.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::is_x86_feature_detected as has;

    pub(super) fn has_sse42() -> bool {
        has!("sse4.2") && has!("popcnt")
    }

    pub(super) fn has_avx2() -> bool {
        has!("avx2") && has!("bmi2")
    }

    pub(super) fn has_avx512() -> bool {
        has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") && has!("bmi2")
    }
}
