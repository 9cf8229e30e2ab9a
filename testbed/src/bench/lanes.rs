//! How many lanes the aggregator of a bench has. Decides, but for counting the CPUs.

use std::str::FromStr;

use super::place::allowed_cpus;

/// Most lanes of an aggregator that is measured.
pub const LANES_MAX: u16 = 8;

/// What was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lanes {
    /// So many.
    Count(u16),
    /// One for two workers, as far as a CPU is left for each worker: more cost time.
    Auto,
}

impl Lanes {
    /// The lanes beside so many workers, on the CPUs that this process may use.
    #[must_use]
    pub fn beside(self, workers: u8) -> u16 {
        match self {
            Self::Count(lanes) => lanes,
            Self::Auto => fitting(allowed_cpus().len(), workers),
        }
    }
}

impl FromStr for Lanes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let lanes = text.parse().ok().filter(|lanes| CHOICES.contains(lanes));
        lanes.map(Self::Count).ok_or("1, 2, 4, 8 or auto")
    }
}

/// A box has a power of two of them.
const CHOICES: [u16; 4] = [1, 2, 4, LANES_MAX];

fn fitting(cpus: usize, workers: u8) -> u16 {
    let left = cpus.saturating_sub(workers.into()).min(usize::from(workers / 2));
    CHOICES.into_iter().rfind(|lanes| usize::from(*lanes) <= left).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_leaves_a_cpu_for_each_worker_and_two_workers_for_each_lane() {
        for (cpus, workers, lanes) in
            [(2, 4, 1), (16, 16, 1), (16, 4, 2), (16, 8, 4), (8, 6, 2), (256, 16, 8), (0, 2, 1)]
        {
            assert_eq!(fitting(cpus, workers), lanes, "{cpus} CPUs, {workers} workers");
        }
    }

    #[test]
    fn a_box_has_a_power_of_two_of_lanes() {
        assert_eq!("4".parse(), Ok(Lanes::Count(4)));
        assert_eq!("auto".parse(), Ok(Lanes::Auto));
        for text in ["0", "3", "16", "-1", ""] {
            assert!(text.parse::<Lanes>().is_err(), "{text}");
        }
    }
}
