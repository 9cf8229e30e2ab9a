//! The model and its momentum term, and the one step that changes them.
//!
//! Its values are private: [`super::Ledger`] alone commits to it, or loads a stored one.
//! h = momentum * h + scale * sum; w = w + h, once per group, at server and replica alike (facts on
//! MLfabric, decision 2). Everything is f32 and elementwise, no product is fused into a sum, and
//! every NaN is the same NaN, so that both ends have the same bits on any processor.

use alloc::vec;
use alloc::vec::Vec;

use weft_control::{OrderNumber, Version};
use weft_kernel::Kernels;
use weft_wire::header::ElementType;
use weft_wire::quant;

/// A whole update, as it was staged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum<'a> {
    /// Its elements, big-endian.
    pub(crate) wire: &'a [u8],
    pub(crate) element_type: ElementType,
    pub(crate) exponent: i8,
    /// What the job's learning rate makes of its delay.
    pub(crate) scale: f32,
}

impl Sum<'_> {
    fn factor(&self) -> f32 {
        match self.element_type {
            ElementType::F32 => self.scale,
            _ => quant::quantum(self.exponent) * self.scale,
        }
    }

    /// Euclidean norm of the scaled sum.
    pub(crate) fn norm(&self, kernels: &Kernels) -> f64 {
        let factor = self.factor();
        weft_kernel::sqrt(match self.element_type {
            ElementType::F32 => kernels.sum_squares_f32(self.wire, factor),
            _ => kernels.sum_squares_i32(self.wire, factor),
        })
    }
}

/// The model of a job, to look at.
#[derive(Clone, Copy, Debug)]
pub struct ModelView<'a> {
    /// Its version.
    pub version: Version,
    /// The order number that is decided next.
    pub next_order: OrderNumber,
    /// The weights, without padding.
    pub weights: &'a [f32],
    /// The momentum term, without padding.
    pub momentum: &'a [f32],
}

/// A model.
#[derive(Debug)]
pub(crate) struct Model {
    kernels: &'static Kernels,
    momentum: f32,
    /// Updates that have entered it.
    version: u64,
    /// The weights, padded with zeros to whole chunks.
    w: Vec<f32>,
    /// The momentum term.
    h: Vec<f32>,
    /// Euclidean norm of the momentum term.
    momentum_norm: f64,
}

impl Model {
    /// A model of zeros at version 0.
    pub(super) fn new(kernels: &'static Kernels, momentum: f32, len: usize) -> Self {
        Self {
            kernels,
            momentum,
            version: 0,
            w: vec![0.0; len],
            h: vec![0.0; len],
            momentum_norm: 0.0,
        }
    }

    /// Takes in a stored model, whose length was checked. Parameters that it lacks stay.
    pub(super) fn load(&mut self, version: u64, weights: &[f32], momentum: &[f32]) {
        self.version = version;
        self.w[..weights.len()].copy_from_slice(weights);
        self.h[..momentum.len()].copy_from_slice(momentum);
        self.measure_momentum();
    }

    /// Changes places with a whole model that came over the network.
    pub(super) fn exchange(&mut self, version: u64, w: &mut Vec<f32>, h: &mut Vec<f32>) {
        debug_assert_eq!((w.len(), h.len()), (self.w.len(), self.h.len()), "of one shape");
        self.version = version;
        core::mem::swap(&mut self.w, w);
        core::mem::swap(&mut self.h, h);
        self.measure_momentum();
    }

    /// Updates that have entered it.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Euclidean norm of the momentum term.
    pub(crate) fn momentum_norm(&self) -> f64 {
        self.momentum_norm
    }

    /// Weights and momentum term, padded with zeros to whole chunks.
    pub(crate) fn parts(&self) -> (&[f32], &[f32]) {
        (&self.w, &self.h)
    }

    /// The arithmetic that it is computed with.
    pub(crate) fn kernels(&self) -> &'static Kernels {
        self.kernels
    }

    /// The momentum as the bound takes it.
    pub(crate) fn momentum(&self) -> f64 {
        f64::from(self.momentum)
    }

    /// Commits a sum of `members` updates; returns the norm of the scaled sum.
    pub(super) fn apply(&mut self, sum: &Sum<'_>, members: u64) -> f64 {
        let (factor, momentum) = (sum.factor(), self.momentum);
        let (h, w) = (&mut self.h, &mut self.w);
        let [update, term] = match sum.element_type {
            ElementType::F32 => self.kernels.momentum_step_f32(sum.wire, factor, momentum, h, w),
            _ => self.kernels.momentum_step_i32(sum.wire, factor, momentum, h, w),
        };
        self.version += members;
        self.momentum_norm = weft_kernel::sqrt(term);
        weft_kernel::sqrt(update)
    }

    /// Norm of the momentum term, computed anew: for one that was not computed here.
    fn measure_momentum(&mut self) {
        self.momentum_norm = weft_kernel::sqrt(weft_kernel::squares(&self.h));
    }
}
