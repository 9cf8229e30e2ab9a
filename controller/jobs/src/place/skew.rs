//! Placement by the skew of a model's tensor sizes (Tiresias, NSDI'19, section 3.4).
//!
//! A parameter server that holds one tensor much larger than the others is what the others wait
//! for, so a skewed model gains from few nodes; any other model fills what is left over. Sizes are
//! those of the public simulator (SymbioticLab/Tiresias at 959f9b0, Apache-2.0), in MB, of tensors
//! of at least 1 MB. The paper fits PACKLIMIT to a cluster's history; here it is an option.

use alloc::vec::Vec;

use super::{Nodes, Placer, Share};
use crate::job::{Job, JobId};

/// PACKLIMIT unless told otherwise: between the VGG models and AlexNet (0.61 and more) and the
/// others (0.15 and less).
pub const PACK_LIMIT_DEFAULT: f64 = 0.4;

/// Consolidates skewed models and fills fragments with the others.
#[derive(Debug)]
pub(super) struct BySkew {
    pub(super) nodes: Nodes,
    pub(super) pack_limit: f64,
}

impl Placer for BySkew {
    fn place(&mut self, _: JobId, job: &Job, gpus: u32) -> Option<Vec<Share>> {
        match is_skewed(&job.model, self.pack_limit) {
            true => self.nodes.take_packed(gpus),
            false => self.nodes.take_fragments(gpus),
        }
    }

    fn release(&mut self, _: JobId, _: &Job, _: u32, shares: &[Share]) {
        self.nodes.give(shares);
    }
}

/// Whether a model's skew is above the limit. A model without known sizes counts as skewed: few
/// nodes are never slower.
#[must_use]
pub fn is_skewed(model: &str, pack_limit: f64) -> bool {
    is_above(skew(model), pack_limit)
}

/// Whether a skew is above the limit; one that is not known counts as if it were.
#[must_use]
pub fn is_above(skew: Option<f64>, pack_limit: f64) -> bool {
    skew.is_none_or(|skew| skew > pack_limit)
}

/// The bytes of a model's tensors of at least 1 MB; `None` for a model without known sizes.
#[must_use]
pub fn bytes(model: &str) -> Option<u64> {
    let sizes = TENSORS_MB.iter().find(|(name, _)| *name == model)?.1;
    let all = sizes.iter().map(|(size, count)| size * f64::from(*count)).sum::<f64>();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "under 1 GB")]
    Some((all * 1e6) as u64)
}

/// The largest tensor's part of a model, from 0 to 1; `None` for a model without known sizes.
#[must_use]
pub fn skew(model: &str) -> Option<f64> {
    let sizes = TENSORS_MB.iter().find(|(name, _)| *name == model)?.1;
    let [mut all, mut largest] = [0.0, 0.0];
    for (size, count) in sizes {
        all += size * f64::from(*count);
        largest = f64::max(largest, *size);
    }
    Some(largest / all)
}

/// Sizes of tensors in MB, and how many there are of each.
type Sizes = &'static [(f64, u16)];

const TENSORS_MB: &[(&str, Sizes)] = &[
    ("vgg19", &[(1.1, 1), (2.3, 3), (4.5, 1), (9.0, 7), (15.6, 1), (64.0, 1), (392.0, 1)]),
    ("vgg16", &[(1.1, 1), (2.3, 2), (4.5, 1), (9.0, 5), (15.6, 1), (64.0, 1), (392.0, 1)]),
    ("vgg11", &[(1.1, 1), (2.3, 1), (4.5, 1), (9.0, 3), (15.6, 1), (64.0, 1), (392.0, 1)]),
    ("alexnet", &[(1.2, 1), (2.5, 1), (3.4, 1), (5.1, 1), (15.6, 1), (64.0, 1), (144.0, 1)]),
    ("resnet152", &[(2.0, 2), (2.3, 36), (4.0, 5), (7.8, 1), (8.0, 1), (9.0, 3)]),
    ("resnet101", &[(2.0, 2), (2.3, 23), (4.0, 5), (7.8, 1), (8.0, 1), (9.0, 3)]),
    ("resnet50", &[(2.0, 2), (2.3, 6), (4.0, 5), (7.8, 1), (8.0, 1), (9.0, 3)]),
    (
        "inception4",
        &[
            (1.1, 20),
            (1.3, 9),
            (1.5, 34),
            (1.8, 1),
            (2.0, 4),
            (2.2, 1),
            (2.3, 6),
            (2.6, 3),
            (3.5, 1),
            (5.1, 1),
            (5.9, 1),
        ],
    ),
    (
        "inception3",
        &[
            (1.3, 1),
            (1.5, 1),
            (1.6, 1),
            (1.7, 8),
            (1.9, 1),
            (2.1, 1),
            (2.2, 1),
            (2.5, 1),
            (3.0, 1),
            (3.5, 1),
            (3.8, 1),
            (5.9, 2),
            (7.8, 1),
        ],
    ),
];
