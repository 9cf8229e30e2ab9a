//! Names what limited a run, with the measurement behind it. A network claim from a run that was
//! CPU-bound would be false, so every live report says which it was (DESIGN section 6).

/// What was used of what there was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Length of the run in nanoseconds.
    pub wall_ns: u64,
    /// Processor time of all boxes and workers.
    pub cpu_ns: u64,
    /// Processors of the machine.
    pub cpus: u64,
    /// Time that workers spent in `allreduce`, added up over workers.
    pub waiting_ns: u64,
    /// Workers.
    pub workers: u64,
    /// Bytes that the busiest link carried in one direction.
    pub link_bytes: u64,
    /// Its rate; `None` when links are not shaped.
    pub link_bytes_per_sec: Option<u64>,
    /// Contributions sent again.
    pub retransmissions: u64,
    /// Contributions sent.
    pub contributions: u64,
    /// Faults fired on purpose.
    pub faults_fired: u64,
}

/// The limit and the evidence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bottleneck {
    /// `cpu`, `link`, `slots` (neither is busy: rounds wait for round trips of the window) or
    /// `faults`.
    pub name: &'static str,
    /// The measurement.
    pub evidence: String,
}

impl Bottleneck {
    /// Decides from what was used.
    #[must_use]
    pub fn of(usage: &Usage) -> Self {
        let wall_s = usage.wall_ns as f64 / 1e9;
        let cpu = ratio(usage.cpu_ns as f64, usage.wall_ns as f64 * usage.cpus as f64);
        let link = usage.link_bytes_per_sec.map(|rate| {
            // While workers compute no link is busy: only the time of the transfers counts.
            let transfer_s = usage.waiting_ns as f64 / 1e9 / (usage.workers.max(1)) as f64;
            ratio(usage.link_bytes as f64, transfer_s.min(wall_s) * rate as f64)
        });
        let repeated = ratio(usage.retransmissions as f64, usage.contributions as f64);
        if let Some(share) = link.filter(|share| *share >= LINK_BUSY) {
            let evidence =
                format!("busiest link {:.0} % of its rate during transfers", share * 100.0);
            return Self { name: "link", evidence };
        }
        if usage.faults_fired > 0 && repeated >= FAULTS_HURT && cpu < CPU_BUSY {
            let evidence = format!(
                "{} faults fired; {:.1} % of contributions sent again",
                usage.faults_fired,
                repeated * 100.0
            );
            return Self { name: "faults", evidence };
        }
        let link = link.map_or_else(
            || "links not shaped".to_owned(),
            |share| format!("busiest link {:.0} % of its rate", share * 100.0),
        );
        let evidence = format!("{:.0} % of {} CPUs used; {link}", cpu * 100.0, usage.cpus);
        Self { name: if cpu >= CPU_BUSY { "cpu" } else { "slots" }, evidence }
    }
}

impl Bottleneck {
    /// Decides for a push run, from the busiest link's share of its rate with its name, the
    /// processors' share, and the share of time that workers computed.
    #[must_use]
    pub fn of_push(link: Option<(f64, String)>, cpu: f64, cpus: usize, computing: f64) -> Self {
        let link_text = link.as_ref().map_or_else(
            || "links not shaped".to_owned(),
            |(share, name)| format!("{name} {:.0} % of its rate", share * 100.0),
        );
        let evidence = format!(
            "{link_text}; {:.0} % of {cpus} CPUs used; workers computed {:.0} % of the time",
            cpu * 100.0,
            computing * 100.0
        );
        let name = match link {
            _ if cpu >= CPU_BUSY => "cpu",
            Some((share, _)) if share >= LINK_BUSY_OVER_A_RUN => "link",
            _ if computing >= COMPUTING_LIMITS => "compute",
            _ => "slots",
        };
        Self { name, evidence }
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A link this busy limits.
const LINK_BUSY: f64 = 0.8;
/// A link this busy from the first to the last commit limits: between two transfers it must idle,
/// for the plan learns of an update when it is there.
const LINK_BUSY_OVER_A_RUN: f64 = 0.6;
/// Workers that compute for this share of the time are what the network waits for.
const COMPUTING_LIMITS: f64 = 0.6;
/// Processors this busy limit.
const CPU_BUSY: f64 = 0.7;
/// This share of repeats costs more than it hides.
const FAULTS_HURT: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    fn usage() -> Usage {
        Usage {
            wall_ns: 10_000_000_000,
            cpu_ns: 5_000_000_000,
            cpus: 2,
            waiting_ns: 8_000_000_000,
            workers: 4,
            link_bytes: 100_000_000,
            link_bytes_per_sec: Some(125_000_000),
            retransmissions: 0,
            contributions: 1000,
            faults_fired: 0,
        }
    }

    #[test]
    fn a_busy_link_is_named_first() {
        let busy = Usage { link_bytes: 225_000_000, ..usage() };
        let found = Bottleneck::of(&busy);
        assert_eq!((found.name, found.evidence.contains("90 %")), ("link", true));
    }

    #[test]
    fn faults_that_cost_repeats_are_named() {
        let faulty = Usage { retransmissions: 50, faults_fired: 70, ..usage() };
        assert_eq!(Bottleneck::of(&faulty).name, "faults");
        let idle_faults = Usage { faults_fired: 70, ..usage() };
        assert_eq!(Bottleneck::of(&idle_faults).name, "slots");
    }

    #[test]
    fn a_push_names_its_busiest_link_unless_the_processors_were_busier() {
        let link = |share| Some((share, "downlink of server".to_owned()));
        let found = Bottleneck::of_push(link(0.9), 0.2, 2, 0.3);
        assert_eq!(found.name, "link");
        assert!(found.evidence.starts_with("downlink of server 90 %"), "{}", found.evidence);
        assert_eq!(Bottleneck::of_push(link(0.9), 0.8, 2, 0.3).name, "cpu");
        assert_eq!(Bottleneck::of_push(link(0.4), 0.2, 2, 0.7).name, "compute");
        assert_eq!(Bottleneck::of_push(None, 0.2, 2, 0.1).name, "slots");
    }

    #[test]
    fn otherwise_it_is_the_processors_or_the_window() {
        let busy = Usage { cpu_ns: 18_000_000_000, ..usage() };
        assert_eq!(Bottleneck::of(&busy).name, "cpu");
        let found = Bottleneck::of(&Usage { link_bytes_per_sec: None, ..usage() });
        assert_eq!(found.name, "slots");
        assert_eq!(found.evidence, "25 % of 2 CPUs used; links not shaped");
    }
}
