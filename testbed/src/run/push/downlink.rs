//! How full the server's downlink was while it was wanted, and what the transfers into it waited
//! for. Pure.
//!
//! The downlink is *wanted* while some update is handed over and its outcome is not known. What it
//! carried then is what the server's port received, requests for the model included, by the counter
//! in its log: bytes and times are of the same lines.

use super::log::{BoxEvent, LogLine};

/// What the log of a server says of its downlink.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Downlink {
    /// Time in which it was wanted, between the first and the last line of the log.
    pub(super) wanted_ns: u64,
    /// Bytes of Ethernet frames received in that time.
    pub(super) bytes: u64,
    /// Transfers that arrived.
    pub(super) transfers: u64,
    /// From a transfer's first PULL to its first chunk, mean.
    pub(super) wait_mean_ns: Option<u64>,
    /// How long no chunk had come when a transfer began, mean.
    pub(super) idle_mean_ns: Option<u64>,
    /// Rate within transfers over their ceilings, mean; `None` without a granted rate.
    pub(super) ceiling_share: Option<f64>,
}

impl Downlink {
    /// `pending`: for each update when it was handed over and when its outcome was known.
    pub(super) fn new(lines: &[LogLine], pending: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut downlink = Self::default();
        let wanted = union(pending);
        for pair in lines.windows(2) {
            let overlap_ns = overlap(&wanted, pair[0].t_ns, pair[1].t_ns);
            // A server that was started again counts from 0.
            if let (1.., Some(bytes)) = (overlap_ns, pair[1].rx_bytes.checked_sub(pair[0].rx_bytes))
            {
                downlink.wanted_ns += overlap_ns;
                downlink.bytes += bytes;
            }
        }
        let ceilings: std::collections::HashMap<u32, Option<u64>> = ceilings(lines).collect();
        let (mut waits_ns, mut idles_ns, mut shares) = (0_u64, 0_u64, Vec::new());
        for line in lines {
            let BoxEvent::Transferred { group, bytes, duration_ns, wait_ns, idle_ns, .. } =
                line.event
            else {
                continue;
            };
            downlink.transfers += 1;
            waits_ns += wait_ns;
            idles_ns += idle_ns;
            if let Some(ceiling) = ceilings.get(&group).copied().flatten() {
                let rate = bytes as f64 * 1e9 / duration_ns.max(1) as f64;
                shares.push(rate / ceiling.max(1) as f64);
            }
        }
        downlink.wait_mean_ns = waits_ns.checked_div(downlink.transfers);
        downlink.idle_mean_ns = idles_ns.checked_div(downlink.transfers);
        downlink.ceiling_share =
            (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64);
        downlink
    }

    /// Share of a rate that was used while it was wanted.
    pub(super) fn utilisation(&self, bytes_per_sec: u64) -> Option<f64> {
        let could = bytes_per_sec as f64 * self.wanted_ns as f64 / 1e9;
        (could > 0.0).then_some(self.bytes as f64 / could)
    }
}

/// The granted rate of each group that was installed.
pub(super) fn ceilings(lines: &[LogLine]) -> impl Iterator<Item = (u32, Option<u64>)> {
    lines.iter().filter_map(|line| match line.event {
        BoxEvent::Installed { group, rate_bytes_per_sec, .. } => Some((group, rate_bytes_per_sec)),
        _ => None,
    })
}

/// Disjoint spans, in order.
fn union(spans: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = spans.collect();
    spans.sort_unstable();
    let mut union: Vec<(u64, u64)> = Vec::new();
    for (from, to) in spans {
        match union.last_mut() {
            Some((_, end)) if from <= *end => *end = (*end).max(to),
            _ => union.push((from, to)),
        }
    }
    union
}

fn overlap(spans: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let first = spans.partition_point(|(_, end)| *end <= from);
    let touching = spans[first..].iter().take_while(|(begin, _)| *begin < to);
    touching.map(|(begin, end)| (*end).min(to).saturating_sub((*begin).max(from))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(t_ns: u64, rx_bytes: u64, wait_ns: u64, idle_ns: u64) -> LogLine {
        let (bytes, duration_ns) = (500, 1000);
        let event =
            BoxEvent::Transferred { group: 1, rank: None, bytes, duration_ns, wait_ns, idle_ns };
        LogLine { t_ns, rx_bytes, event }
    }

    fn installed(t_ns: u64) -> LogLine {
        let event = BoxEvent::Installed {
            group: 1,
            order: 0,
            members: Vec::new(),
            exponent: 0,
            via: None,
            replicate: false,
            rate_bytes_per_sec: Some(1_000_000_000),
        };
        LogLine { t_ns, rx_bytes: 0, event }
    }

    #[test]
    fn only_the_time_in_which_it_was_wanted_counts() {
        let lines = [installed(1000), line(2000, 900, 30, 0), line(3000, 950, 50, 40)];
        let busy = Downlink::new(&lines, [(0, 1500), (1400, 2000)].into_iter());
        assert_eq!((busy.wanted_ns, busy.bytes, busy.transfers), (1000, 900, 2));
        assert_eq!((busy.wait_mean_ns, busy.idle_mean_ns), (Some(40), Some(20)));
        assert_eq!(busy.ceiling_share, Some(0.5));
        assert_eq!(busy.utilisation(1_000_000_000), Some(0.9));
        let all = Downlink::new(&lines, [(0, 9000)].into_iter());
        assert_eq!((all.wanted_ns, all.bytes), (2000, 950));
        let half = Downlink::new(&lines, [(1200, 1300), (2500, 2600)].into_iter());
        assert_eq!(half.wanted_ns, 200);
        let never = Downlink::new(&lines, std::iter::empty());
        assert_eq!((never.wanted_ns, never.utilisation(1)), (0, None));
    }

    #[test]
    fn a_server_that_begins_anew_is_left_out() {
        let lines = [line(1000, 900, 0, 0), line(2000, 100, 0, 0), line(3000, 300, 0, 0)];
        let anew = Downlink::new(&lines, [(0, 9000)].into_iter());
        assert_eq!((anew.wanted_ns, anew.bytes), (1000, 200));
        assert_eq!(anew.ceiling_share, None);
    }
}
