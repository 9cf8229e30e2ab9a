//! Decides how a link's delay is made where the kernel has netem: the `tc` commands. No I/O.
//!
//! A frame waits for its delay first and for the rate of the link then, as Mininet has it.

use std::time::Duration;

use super::tc::Shaper;
use super::topology::{QUEUE_PACKETS_DEFAULT, Shape};

/// Puts netem behind what shapes an interface: `lines` are the commands of its shaper, none where
/// its rate is not limited.
pub(super) fn add(
    lines: &mut Vec<String>,
    interface: &str,
    shape: Option<&Shape>,
    delay: Duration,
    mtu: u32,
) {
    let place = match shape.map(|shape| shape.shaper) {
        None => "root handle 1:",
        Some(Shaper::Htb) => {
            // Netem takes the place of the queue of the class.
            lines.pop();
            "parent 1:10 handle 10:"
        }
        Some(Shaper::Tbf) => "parent 1:1 handle 10:",
    };
    let (delay_us, limit) = (delay.as_micros(), limit_packets(shape, delay, mtu));
    lines.push(format!("qdisc add dev {interface} {place} netem delay {delay_us}us limit {limit}"));
}

/// Packets that are under way or wait: what the rate puts on the way in small packets, and the
/// queue of the link.
fn limit_packets(shape: Option<&Shape>, delay: Duration, mtu: u32) -> u64 {
    let Some(shape) = shape else { return UNSHAPED_PACKETS };
    let under_way = shape.rate.bytes_per_sec() as u128 * delay.as_nanos() / 1_000_000_000;
    let full = under_way / u128::from(mtu);
    let small = u64::try_from(full).unwrap_or(UNSHAPED_PACKETS).saturating_mul(SMALL_PER_FULL);
    small.saturating_add(u64::from(shape.queue_packets.max(QUEUE_PACKETS_DEFAULT)))
}

/// The packets of a link without a rate: 100 ms of a million a second.
const UNSHAPED_PACKETS: u64 = 100_000;
/// Small packets in the time of a full one.
const SMALL_PER_FULL: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::tc::Rate;

    #[test]
    fn netem_follows_the_shaper_or_stands_alone() {
        let rate = Rate::from_mbit(100.0).unwrap();
        let delay = Duration::from_millis(5);
        let lines = |shape: Option<Shape>| {
            let mut lines = match &shape {
                Some(shape) => shape.shaper.batch("eth0", shape.rate, 1500, shape.queue_packets),
                None => Vec::new(),
            };
            add(&mut lines, "eth0", shape.as_ref(), delay, 1500);
            lines
        };
        // 62,500 bytes are under way at a time.
        let htb = lines(Some(Shape::new(rate)));
        assert_eq!(htb.len(), 4);
        assert_eq!(
            htb[3],
            "qdisc add dev eth0 parent 1:10 handle 10: netem delay 5000us limit 1656"
        );
        let tbf = lines(Some(Shape { shaper: Shaper::Tbf, ..Shape::new(rate) }));
        let behind = htb[3].replace("parent 1:10", "parent 1:1");
        assert_eq!((tbf.len(), &tbf[1]), (2, &behind));
        let alone = lines(None);
        assert_eq!(alone, ["qdisc add dev eth0 root handle 1: netem delay 5000us limit 100000"]);
    }
}
