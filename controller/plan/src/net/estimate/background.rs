//! Decides how much of a link others use: bytes on the NIC less Weft's own, smoothed.
//!
//! A frame is counted as own when it is handed over and on the NIC when it leaves, which may be an
//! interval later. So single intervals may come out negative; only the average is cut at zero, or
//! those errors would not cancel.

use crate::float;

use super::Refusal;

/// Average of what others put on a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Background {
    last: Option<Reading>,
    average_bytes_per_sec: f64,
    intervals: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at_ns: u64,
    total_bytes: u64,
    own_bytes: u64,
}

impl Background {
    /// Takes in a reading of the counters.
    ///
    /// # Errors
    /// When a counter or the clock went backwards; the next interval starts here.
    pub fn handle(&mut self, at_ns: u64, total_bytes: u64, own_bytes: u64) -> Result<(), Refusal> {
        let reading = Reading { at_ns, total_bytes, own_bytes };
        let Some(last) = self.last.replace(reading) else { return Ok(()) };
        let total = total_bytes.checked_sub(last.total_bytes).ok_or(Refusal::Backwards)?;
        let own = own_bytes.checked_sub(last.own_bytes).ok_or(Refusal::Backwards)?;
        let interval_ns = at_ns.checked_sub(last.at_ns).ok_or(Refusal::Backwards)?;
        if interval_ns < INTERVAL_NS_MIN {
            // Too short to say anything; it becomes part of the next one.
            self.last = Some(last);
            return Ok(());
        }
        let rate = (total as f64 - own as f64) * 1e9 / interval_ns as f64;
        let weight = 1.0 - float::powf(1.0 - WEIGHT, interval_ns as f64 / INTERVAL_NS);
        // The first intervals are averaged evenly: the start at zero must not weigh for a second.
        self.intervals += 1;
        let weight = weight.max(1.0 / self.intervals as f64);
        self.average_bytes_per_sec += weight * (rate - self.average_bytes_per_sec);
        Ok(())
    }

    /// What others use.
    #[must_use]
    pub const fn bytes_per_sec(&self) -> f64 {
        self.average_bytes_per_sec.max(0.0)
    }
}

/// Weight of a new interval of 100 ms.
const WEIGHT: f64 = 0.3;
const INTERVAL_NS: f64 = 1e8;
const INTERVAL_NS_MIN: u64 = 10_000_000;
