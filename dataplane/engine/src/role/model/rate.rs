//! How the delay of an update scales it at the server (facts on MLfabric, decision 15).
//!
//! The learning rate is inside the update already; a job may have it reduced by the delay that the
//! update turned out to have. Server and replica compute the same f32 from the same delay.

/// How a job scales updates at the commit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LearningRate {
    /// As they are (equation 2 of MLfabric).
    #[default]
    Plain,
    /// By 1 / max(1, delay), as MLfabric's prototype did (derived).
    InverseDelay,
    /// By sqrt((v + 1) / (v + 1 + delay)) at version v: a step of c / sqrt(t) becomes AdaDelay's
    /// c / sqrt(t + delay) (derived).
    AdaDelay,
}

impl LearningRate {
    /// The factor of an update that meets version `version` with this delay.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a factor of 24 bits is all that is asked for")]
    #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the intent")]
    pub fn scale(self, version: u64, delay: u16) -> f32 {
        let delay = f64::from(delay);
        match self {
            Self::Plain => 1.0,
            Self::InverseDelay => (1.0 / delay.max(1.0)) as f32,
            Self::AdaDelay => {
                let seen = version as f64 + 1.0;
                weft_kernel::sqrt(seen / (seen + delay)) as f32
            }
        }
    }
}
