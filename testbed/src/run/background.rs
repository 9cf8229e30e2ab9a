//! Decides the traffic of others beside a run: between which addresses, when, and what became of
//! it. Pure; `running` makes it.

mod running;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::lab::topology::Topology;
use crate::report::{EventRow, FlowRow};
use crate::scenario::{BackgroundSection, Scenario};
use crate::traffic;

pub(super) use running::Background;

/// A flow of the scenario, with its addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlan {
    /// What was asked for.
    pub section: BackgroundSection,
    /// Where it is sent from.
    pub source: IpAddr,
    /// Where it goes.
    pub target: SocketAddr,
    /// Bytes of a datagram without headers.
    pub payload_len: usize,
}

impl FlowPlan {
    /// The flows of a scenario in the lab that it runs in, between addresses of the kernels.
    pub(super) fn all(scenario: &Scenario, topology: Option<&Topology>) -> Vec<Self> {
        let Some(topology) = topology else { return Vec::new() };
        let address = |name: &str| {
            let host = topology.host(name);
            let cidr = host.and_then(|host| host.control.or(host.ip));
            cidr.map_or_else(|| Ipv4Addr::UNSPECIFIED.into(), |cidr| cidr.address)
        };
        let flow = |(section, port): (&BackgroundSection, u16)| Self {
            source: address(&section.from),
            target: SocketAddr::new(address(&section.to), port),
            payload_len: traffic::payload_len(topology.mtu as usize),
            section: section.clone(),
        };
        scenario.background.iter().zip(FIRST_PORT..).map(flow).collect()
    }

    /// The flow in a line.
    #[must_use]
    pub fn words(&self) -> String {
        let BackgroundSection { from, to, rate_mbit, begin_s, end_s } = &self.section;
        let end = end_s.map_or_else(|| "the end".to_owned(), |end_s| format!("{end_s} s"));
        format!(
            "background: UDP from {from} ({}) to {to} ({}), {rate_mbit} Mbit/s, from {begin_s} s to \
             {end}",
            self.source, self.target
        )
    }
}

/// What became of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSeen {
    /// What was asked for.
    pub section: BackgroundSection,
    /// When the boxes were ready, by the monotonic clock.
    pub ready_ns: u64,
    /// From when to when it was sent; `None` when the run was over before.
    pub span_ns: Option<(u64, u64)>,
    /// Bytes of frames sent.
    pub sent_bytes: u64,
    /// Bytes of frames that arrived.
    pub received_bytes: u64,
}

impl FlowSeen {
    /// The flow's row in reports.
    pub(super) fn row(&self) -> FlowRow {
        let since_ready = |at_ns: u64| at_ns.saturating_sub(self.ready_ns) as f64 / 1e9;
        let span_s = self.span_ns.map(|(from, to)| to.saturating_sub(from) as f64 / 1e9);
        let mbit = |bytes: u64| match span_s {
            Some(span_s) if span_s > 0.0 => bytes as f64 * 8.0 / span_s / 1e6,
            _ => 0.0,
        };
        FlowRow {
            from: self.section.from.clone(),
            to: self.section.to.clone(),
            rate_mbit: self.section.rate_mbit,
            begin_s: self.span_ns.map(|(from, _)| since_ready(from)),
            end_s: self.span_ns.map(|(_, to)| since_ready(to)),
            sent_mbit: mbit(self.sent_bytes),
            received_mbit: mbit(self.received_bytes),
        }
    }

    /// Bytes that it put on its sender's uplink and on its receiver's downlink from one moment to
    /// another.
    pub(super) fn bytes_within(&self, from_ns: u64, to_ns: u64) -> [u64; 2] {
        let (began_ns, ended_ns) = self.span_ns.unwrap_or_default();
        let within_ns = ended_ns.min(to_ns).saturating_sub(began_ns.max(from_ns));
        let whole_ns = ended_ns.saturating_sub(began_ns);
        [self.sent_bytes, self.received_bytes].map(|bytes| part(bytes, within_ns, whole_ns))
    }

    /// When it began and ended, for the list of events; times since `origin_ns`.
    pub(super) fn events(&self, origin_ns: u64) -> Vec<EventRow> {
        let BackgroundSection { from, to, rate_mbit, .. } = &self.section;
        let event = |at_ns: u64, event: &str| EventRow {
            t_ns: at_ns.saturating_sub(origin_ns),
            event: event.to_owned(),
            fields: [
                ("from".to_owned(), from.as_str().into()),
                ("to".to_owned(), to.as_str().into()),
                ("rate_mbit".to_owned(), (*rate_mbit).into()),
            ]
            .into_iter()
            .collect(),
        };
        let both =
            |(from, to)| vec![event(from, "background_began"), event(to, "background_ended")];
        self.span_ns.map(both).unwrap_or_default()
    }
}

/// Bytes that flows put on a host's uplink and downlink from one moment to another.
pub(super) fn bytes_at(flows: &[FlowSeen], host: &str, from_ns: u64, to_ns: u64) -> [u64; 2] {
    flows.iter().fold([0, 0], |[up, down], flow| {
        let [sent, received] = flow.bytes_within(from_ns, to_ns);
        let of = |end: &str, bytes: u64| if end == host { bytes } else { 0 };
        [up + of(&flow.section.from, sent), down + of(&flow.section.to, received)]
    })
}

/// What of `bytes` falls into a part of the time in which they all passed.
pub(super) fn part(bytes: u64, part_ns: u64, whole_ns: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(part_ns) / u128::from(whole_ns.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// UDP port of the first flow's receiver; each further one has the next.
const FIRST_PORT: u16 = 22_500;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(span_ns: Option<(u64, u64)>) -> FlowSeen {
        let section = BackgroundSection {
            from: "w0".to_owned(),
            to: "a0".to_owned(),
            rate_mbit: 20.0,
            begin_s: 1.0,
            end_s: None,
        };
        let (sent_bytes, received_bytes) = (5_000_000, 2_500_000);
        FlowSeen { section, ready_ns: 500, span_ns, sent_bytes, received_bytes }
    }

    #[test]
    fn rates_are_over_the_time_that_a_flow_was_sent() {
        let row = seen(Some((1_000_000_500, 3_000_000_500))).row();
        assert_eq!((row.sent_mbit, row.received_mbit), (20.0, 10.0));
        assert_eq!((row.begin_s, row.end_s), (Some(1.0), Some(3.0)));
        let events = seen(Some((1_000_000_500, 3_000_000_500))).events(500);
        let times: Vec<u64> = events.iter().map(|event| event.t_ns).collect();
        assert_eq!(times, [1_000_000_000, 3_000_000_000]);
    }

    #[test]
    fn a_flow_counts_for_a_link_while_both_last() {
        let flow = seen(Some((1_000, 3_000)));
        assert_eq!(flow.bytes_within(0, 9_000), [5_000_000, 2_500_000]);
        assert_eq!(flow.bytes_within(2_000, 9_000), [2_500_000, 1_250_000]);
        assert_eq!(flow.bytes_within(4_000, 9_000), [0, 0]);
        assert_eq!(seen(None).bytes_within(0, 9_000), [0, 0]);
        let both = [flow.clone(), flow];
        assert_eq!(bytes_at(&both, "w0", 0, 9_000), [10_000_000, 0]);
        assert_eq!(bytes_at(&both, "a0", 0, 9_000), [0, 5_000_000]);
    }

    #[test]
    fn a_flow_that_never_began_has_no_times() {
        let row = seen(None).row();
        assert_eq!((row.begin_s, row.sent_mbit), (None, 0.0));
        assert!(seen(None).events(0).is_empty());
    }
}
