//! A node behind a P4 switch: the same lane loop, with an agent in the place of an aggregator.
//!
//! Does I/O only: connects, runs the lane, and says why the switch was lost. A switch that is lost
//! is a restart of the node (`main.rs` begins it anew), for nothing in it is known any more.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use weft_config::node::SwitchSection;
use weft_engine::drops::{DropCounters, DropReason};
use weft_engine::role::gather::Transition as T;
use weft_engine::role::switch::Agent;
use weft_engine::slot::counter::Transition;
use weft_io::Port;
use weft_kernel::Kernels;
use weft_lane::RoleLane;
use weft_process::shipped;
use weft_switch::{Link, LinkConfig, Program, connect};
use weft_wire::{JobId, MacAddr, Nanos};

use crate::durable::Keeper;
use crate::error::NodeError;
use crate::host::Host;
use crate::lane;
use crate::node::Node;
use crate::record::Notes;
use crate::stats::{EngineSnapshot, LaneSnapshot};

/// Carries an agent's writes between two breaths.
struct Carrier {
    link: Link,
    start: Instant,
}

impl Keeper<Agent> for Carrier {
    fn exchange(&mut self, agent: &mut Agent, _notes: &mut Notes<'_>) {
        self.link.exchange(self.now(), agent);
        for refusal in agent.take_refusals() {
            weft_process::say!("weft-node: {refusal}");
        }
    }

    fn is_waiting(&self) -> bool {
        self.link.is_waiting()
    }

    /// What the switch has counted since it was last asked belongs to the report.
    fn end(&mut self, agent: &mut Agent) {
        agent.read_last();
        let deadline = Instant::now() + LAST_READ_MAX;
        self.link.exchange(self.now(), agent);
        while self.link.is_waiting() && self.link.reason().is_none() && Instant::now() < deadline {
            std::thread::sleep(LAST_READ_POLL);
            self.link.exchange(self.now(), agent);
        }
    }
}

impl Carrier {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Node<'_> {
    /// Runs until told to stop, or until the switch is lost: then the reason comes with the
    /// counters.
    pub(crate) fn run_switch(
        &self,
        section: &SwitchSection,
        is_again: bool,
    ) -> Result<(Vec<LaneSnapshot>, Option<String>), NodeError> {
        let target = self.settings.switch.clone().expect("it was judged with its section");
        let port = &self.settings.config.port;
        let program = Program::load(&shipped::find(&section.program), &target);
        let config = LinkConfig {
            grpc: section.grpc.clone(),
            device_id: section.device_id,
            election_id: section.election_id,
            program: program.map_err(weft_switch::SwitchError::from)?,
            target: target.clone(),
            mac: port.mac.unwrap_or_else(|| mac_of(port.ip.ip)),
            mtu: port.mtu,
            frame_count: port.frame_count,
            // One that was there comes again.
            patience: (!is_again).then_some(PATIENCE),
            is_waiting: |why| weft_process::say!("weft-node: still dialling: {why}"),
        };
        let (port, link) = connect(config, &self.shared.stop)?;
        let (front, _) = self.settings.steer_receiving(self.wrap(port)?, Vec::new(), true);
        let info = front.info();
        let table = self.settings.table_at(info.mac);
        let host =
            Host::answering(self.settings.config.port.ip, info.mac, table.config().mtu, self.seed);
        let kernels = Kernels::detect();
        let aggregator = self.settings.aggregator(&table, 0, self.seed, kernels);
        let mut lane = RoleLane::new(front, Agent::new(aggregator, target, self.seed));
        let mut carrier = Carrier { link, start: self.shared.start };
        self.announce(&info, &table);
        let snapshot = lane::run(&mut lane, 0, host, self.shared, &mut carrier);
        let reason = carrier.link.reason();
        Ok((vec![snapshot], reason))
    }
}

impl EngineSnapshot for Agent {
    fn describe(&self, snapshot: &mut LaneSnapshot) {
        self.aggregator().describe(snapshot);
        let counters = self.counters();
        snapshot.engine.drops = self.drops();
        for (id, job) in &mut snapshot.jobs {
            let of = |transition| counters.windowed(JobId(*id), transition);
            let added = of(Transition::Claim) + of(Transition::Add);
            job.contributions_added += added;
            job.chunks_completed += of(Transition::CompleteRoot);
            job.answers_sent += of(Transition::CompleteRoot);
            job.answers_repeated += of(Transition::RepeatAnswered);
            job.duplicates += of(Transition::RepeatCollecting);
            for (transition, _) in Transition::ALL {
                snapshot.engine.transitions.count_many(*transition, of(*transition));
            }
        }
        for push in &mut snapshot.pushes {
            let of = |transition| counters.whole(JobId(push.job), transition);
            let stats = &mut push.stats;
            stats.contributions_added += of(T::Store) + of(T::Add);
            stats.duplicates += of(T::RepeatCollecting) + of(T::RepeatSent);
            stats.sums_sent += of(T::SendOnContribution) + of(T::SendOnCredit) + of(T::SendAgain);
            stats.chunks_completed += of(T::SendOnContribution) + of(T::SendOnCredit);
            for (transition, _) in T::ALL {
                stats.count_many(*transition, of(*transition));
            }
        }
    }

    fn drops(&self) -> DropCounters {
        let mut drops = self.aggregator().drops();
        for (reason, _) in DropReason::ALL {
            drops.count_many(*reason, self.counters().drops(*reason));
        }
        drops
    }
}

/// A locally administered address of the box: the same in each of its lives.
fn mac_of(ip: IpAddr) -> MacAddr {
    let [a, b, c, d] = match ip {
        IpAddr::V4(ip) => ip.octets(),
        // Refused at planning.
        IpAddr::V6(_) => [0; 4],
    };
    MacAddr([0x02, 0x57, a, b, c, d])
}

/// How long a switch may take to come up the first time.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a node that ends waits for the switch's counters.
const LAST_READ_MAX: Duration = Duration::from_millis(500);
const LAST_READ_POLL: Duration = Duration::from_millis(1);
