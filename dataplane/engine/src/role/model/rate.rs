//! How the delay of an update scales it at the server (facts on MLfabric, decision 15).
//!
//! The learning rate is inside the update already; a job may have it reduced by the delay that the
//! update turned out to have. Server and replica compute the same f32 from the same delay.

use weft_control::LearningRate;

/// The factor of an update that meets version `version` with this delay.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a factor of 24 bits is all that is asked for")]
#[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the intent")]
pub(crate) fn scale(rate: LearningRate, version: u64, delay: u16) -> f32 {
    let delay = f64::from(delay);
    match rate {
        LearningRate::Plain => 1.0,
        LearningRate::InverseDelay => (1.0 / delay.max(1.0)) as f32,
        LearningRate::AdaDelay => {
            let seen = version as f64 + 1.0;
            weft_kernel::sqrt(seen / (seen + delay)) as f32
        }
    }
}
