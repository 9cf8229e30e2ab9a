//! Counters: what both workers and boxes report, and how often.

use std::time::Duration;

use crate::v1;

/// Writes counters, each received and sent: of the port, and of the interface where it can tell.
#[must_use]
pub const fn telemetry_to_proto(
    at_ns: u64,
    (rx_bytes, tx_bytes): (u64, u64),
    (nic_rx_bytes, nic_tx_bytes): (Option<u64>, Option<u64>),
) -> v1::Telemetry {
    v1::Telemetry {
        at_ns,
        rx_bytes,
        tx_bytes,
        nic_rx_bytes,
        nic_tx_bytes,
        rx_dropped: 0,
        tx_dropped: 0,
    }
}

/// How often a controller wants them, within reason; `None`: never.
#[must_use]
pub fn telemetry_period(period_ns: u64) -> Option<Duration> {
    let period = Duration::from_nanos(period_ns);
    (period_ns > 0).then(|| period.clamp(TELEMETRY_PERIOD_MIN, TELEMETRY_PERIOD_MAX))
}

const TELEMETRY_PERIOD_MIN: Duration = Duration::from_millis(10);
const TELEMETRY_PERIOD_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_kept_within_reason() {
        assert_eq!(telemetry_period(0), None);
        assert_eq!(telemetry_period(1), Some(Duration::from_millis(10)));
        assert_eq!(telemetry_period(100_000_000), Some(Duration::from_millis(100)));
        assert_eq!(telemetry_period(u64::MAX), Some(Duration::from_secs(60)));
    }
}
