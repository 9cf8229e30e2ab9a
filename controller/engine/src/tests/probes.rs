//! Probe trains over idle links: a network that carries them as fast as it truly is.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_control::{BoxIndex, OrderNumber, Role, Version};
use weft_wire::{Members, Rank};

use weft_plan::net::estimate::train::{Arrival, Reading};

use super::world::{job, network, rate};
use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const FRAME: u64 = 1514;

/// Hosts w0, w1, w2 with a worker each, and s0 with the server; nothing is known of their links.
struct Rig {
    controller: Controller,
    now_ns: u64,
    /// By host: up and down, bytes per second.
    truth: BTreeMap<&'static str, (u64, u64)>,
    names: [(&'static str, Reporter); 4],
    coming: Vec<(u64, Reporter, ProbeTrain)>,
    /// When, from where, to where, and how many bytes.
    sent: Vec<(u64, &'static str, &'static str, u64)>,
    commands: Vec<Command>,
    is_lossy: bool,
}

fn worker(rank: u8) -> Reporter {
    Reporter::Worker(JobId(0), Rank::new(rank).unwrap())
}

fn config(idle_probes: Option<bool>) -> Config {
    let mut config = network(3, 100, 100);
    for host in &mut config.hosts {
        (host.up_bytes_per_sec, host.down_bytes_per_sec) = (None, None);
    }
    config.tuning.idle_probes = idle_probes;
    config.jobs = vec![job(3)];
    config
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + index as u8], 5000))
}

impl Rig {
    fn new(config: Config) -> Self {
        let mut controller =
            Controller::new(config, &Saved::fresh(7), built_in_policies()).unwrap();
        let role = RoleState::new(JobId(0), Role::Server, BoxIndex(0), String::new());
        let hello = NodeHello {
            name: "s0".into(),
            life: 1,
            roles: vec![role],
            holdings: Vec::new(),
            bands: None,
        };
        let server = Reporter::Box(controller.handle_node(0, &hello).unwrap());
        for rank in 0..3 {
            controller.handle_worker(JobId(0), Rank::new(rank).unwrap(), 1, None).unwrap();
        }
        let names = [("w0", worker(0)), ("w1", worker(1)), ("w2", worker(2)), ("s0", server)];
        let links = names.map(|(name, _)| (name, (rate(100), rate(100))));
        let (coming, sent, commands) = (Vec::new(), Vec::new(), Vec::new());
        let truth = BTreeMap::from(links);
        Self { controller, now_ns: 0, truth, names, coming, sent, commands, is_lossy: false }
    }

    /// With all of them able to receive trains.
    fn ready(idle_probes: Option<bool>) -> Self {
        let mut rig = Self::new(config(idle_probes));
        for (index, (_, reporter)) in rig.names.into_iter().enumerate() {
            rig.controller.handle_probe_port(reporter, address(index)).unwrap();
        }
        rig
    }

    fn run_for(&mut self, span_ns: u64) {
        let end_ns = self.now_ns + span_ns;
        while self.now_ns < end_ns {
            self.now_ns += MS;
            for (at_ns, receiver, train) in core::mem::take(&mut self.coming) {
                match at_ns <= self.now_ns {
                    true => {
                        self.controller.handle_probe_train(self.now_ns, receiver, &train).unwrap()
                    }
                    false => self.coming.push((at_ns, receiver, train)),
                }
            }
            self.controller.handle_timeout(self.now_ns);
            while let Some(action) = self.controller.poll_action() {
                match action {
                    Action::Probe { from, train, target, packets } => {
                        self.carry(from, train, target, packets);
                    }
                    Action::Command { command, .. } => self.commands.push(command),
                    _ => {}
                }
            }
        }
    }

    /// A train leaves at once and arrives as its path lets it.
    fn carry(&mut self, from: Reporter, train: u32, target: SocketAddr, packets: u32) {
        let (source, _) = self.names.into_iter().find(|(_, known)| *known == from).unwrap();
        let index = (0..4).find(|index| address(*index) == target).unwrap();
        let (sink, receiver) = self.names[index];
        assert_ne!(source, sink);
        self.sent.push((self.now_ns, source, sink, u64::from(packets) * FRAME));
        let slowest = self.truth[source].0.min(self.truth[sink].1);
        let gap_ns = FRAME * SECOND / slowest;
        let at_ns = |i: u64| 77 * SECOND + self.now_ns + i * gap_ns;
        let arrivals = (0..u64::from(packets))
            .map(|i| Arrival { at_ns: at_ns(i), len_bytes: FRAME as u32 })
            .collect();
        let readings = (0..u64::from(packets))
            .map(|i| Reading { at_ns: at_ns(i), total_bytes: i * FRAME })
            .collect();
        let report = ProbeTrain { train, arrivals, readings };
        if !self.is_lossy {
            let told_ns = self.now_ns + u64::from(packets) * gap_ns + MS;
            self.coming.push((told_ns, receiver, report));
        }
    }

    fn known(&self, name: &str) -> HostStatus {
        let status = self.controller.status(self.now_ns);
        status.hosts.into_iter().find(|host| host.name == name).unwrap()
    }

    fn ask(&mut self, rank: u8, update_id: u64) {
        let request = TransferRequest {
            update_id,
            size_bytes: 0,
            version: Version(0),
            norm: 1.0,
            max_abs: 1.0,
        };
        let rank = Rank::new(rank).unwrap();
        self.controller.handle_request(self.now_ns, JobId(0), rank, &request).unwrap();
    }

    /// What the server says of its newest group.
    fn report(&mut self, event: impl Fn(GroupId, OrderNumber) -> Event) {
        let group = self.commands.iter().rev().find_map(|command| match command {
            Command::Install(group) => Some((group.group, group.order)),
            _ => None,
        });
        let (group, order) = group.expect("a group");
        let Reporter::Box(server) = self.names[3].1 else { unreachable!() };
        let event = event(group, order);
        self.controller.handle_event(self.now_ns, server, JobId(0), &event).unwrap();
    }

    /// Hosts that sent or received trains from then on.
    fn touched(&self, since_ns: u64) -> BTreeSet<&'static str> {
        let of = self.sent.iter().filter(|sent| sent.0 > since_ns);
        of.flat_map(|(_, from, to, _)| [*from, *to]).collect()
    }
}

#[test]
fn idle_links_become_known_and_stay_so_within_a_percent() {
    let mut rig = Rig::ready(None);
    rig.truth.insert("w1", (rate(50), rate(100)));
    rig.run_for(2 * SECOND);
    let check = |rig: &Rig| {
        for (name, (up, down)) in &rig.truth {
            let known = rig.known(name);
            for (known, truth) in [(known.up_bytes_per_sec, up), (known.down_bytes_per_sec, down)] {
                assert!(known.abs_diff(*truth) < truth / 20, "{name}: {known} for {truth}");
            }
            assert!(known.confidence > 0.5, "{known:?}");
        }
    };
    check(&rig);
    for _ in 0..28 {
        rig.run_for(SECOND);
        check(&rig);
    }
    // What they took of each link, in any ten seconds.
    for (name, (up, down)) in &rig.truth {
        for (begin, ..) in &rig.sent {
            let within =
                rig.sent.iter().filter(|sent| (*begin..begin + 10 * SECOND).contains(&sent.0));
            let over = |end: usize, link: u64| {
                let bytes = within.clone().filter(|sent| [sent.1, sent.2][end] == *name);
                bytes.map(|sent| sent.3).sum::<u64>() as f64 / (link * 10) as f64
            };
            let (up, down) = (over(0, *up), over(1, *down));
            assert!(up <= 0.01 && down <= 0.01, "{name}: {up} up, {down} down from {begin} ns on");
        }
        let known = rig.known(name);
        let all = |end: usize| -> u64 {
            rig.sent.iter().filter(|s| [s.1, s.2][end] == *name).map(|s| s.3).sum()
        };
        assert_eq!((known.probe_up_bytes, known.probe_down_bytes), (all(0), all(1)));
        // A fresh estimate asks for little: nothing is gained by a train more.
        assert!(all(0) as f64 <= 0.003 * *up as f64 * 30.0, "{name}: {}", all(0));
    }
    assert_eq!(rig.controller.status(rig.now_ns).probes, rig.sent.len() as u64);
}

#[test]
fn a_link_that_falls_while_nothing_moves_is_noticed() {
    let mut rig = Rig::ready(None);
    rig.run_for(5 * SECOND);
    rig.truth.insert("w0", (rate(40), rate(100)));
    rig.run_for(10 * SECOND);
    let up = rig.known("w0").up_bytes_per_sec;
    assert!(up.abs_diff(rate(40)) < rate(2), "{up}");
}

#[test]
fn a_link_that_is_asked_for_planned_or_granted_is_not_probed() {
    let mut rig = Rig::ready(None);
    rig.ask(0, 1);
    // Installed and not acknowledged, then granted, then staged: all the while it is in use.
    let steps: [Option<fn(GroupId, OrderNumber) -> Event>; 3] = [
        None,
        Some(|group, _| Event::Installed { group }),
        Some(|group, _| Event::Staged { group }),
    ];
    for event in steps {
        if let Some(event) = event {
            rig.report(event);
        }
        let since_ns = rig.now_ns;
        rig.run_for(600 * MS);
        let over = rig.sent.iter().filter(|sent| sent.1 == "w0" || sent.2 == "s0");
        assert_eq!(over.count(), 0, "{:?}", rig.sent);
        let touched = rig.touched(since_ns);
        let others = touched.contains("w1") && touched.contains("w2");
        assert!(others || event.is_some(), "{touched:?}: until all is known of those");
    }
    rig.report(|group, order| Event::Decided {
        group,
        order,
        decision: weft_control::Decision::Committed(Version(1)),
        members: Members(1),
        norm: 1.0,
        momentum_norm: 0.0,
    });
    rig.run_for(SECOND);
    let over = rig.sent.iter().filter(|sent| sent.1 == "w0" || sent.2 == "s0");
    assert!(over.count() > 0, "all is idle again");
    // A request that waits for its plan keeps the others from the link too.
    rig.ask(1, 1);
    let sent = rig.sent.len();
    rig.controller.handle_timeout(rig.now_ns);
    assert_eq!(rig.sent.len(), sent);
}

/// Models are pulled without a plan: only the counters show it.
#[test]
fn a_link_over_which_a_model_is_pulled_is_not_probed() {
    let mut rig = Rig::ready(None);
    rig.run_for(SECOND);
    let Reporter::Box(server) = rig.names[3].1 else { unreachable!() };
    let tell = |rig: &mut Rig, mbit: u64| {
        let since_ns = rig.now_ns;
        for step in 0..100 {
            let tx_bytes = step * rate(mbit) / 10;
            let at_ns = rig.now_ns;
            let said = Telemetry { at_ns, tx_bytes, ..Telemetry::default() };
            let _ = rig.controller.handle_telemetry(rig.now_ns, server, &said);
            rig.run_for(100 * MS);
        }
        // The first reports of a stream say nothing yet.
        let sent = rig.sent.iter().filter(|sent| sent.0 > since_ns + 300 * MS);
        sent.filter(|sent| sent.1 == "s0").count()
    };
    assert_eq!(tell(&mut rig, 60), 0);
    assert!(tell(&mut rig, 1) > 0, "handshakes are no model");
}

/// What a train shows beside a transfer that was granted while it was on its way, it shows of both.
#[test]
fn a_train_that_met_a_transfer_shows_nothing() {
    let mut rig = Rig::ready(None);
    while rig.coming.is_empty() {
        rig.run_for(MS);
    }
    let (told_ns, receiver, train) = rig.coming.remove(0);
    rig.now_ns = told_ns;
    for rank in 0..3 {
        rig.ask(rank, 1);
    }
    rig.controller.handle_probe_train(rig.now_ns, receiver, &train).unwrap();
    assert_eq!(rig.controller.status(rig.now_ns).trains, 0);
    for (name, _) in rig.names {
        assert_eq!(rig.known(name).confidence, 0.0);
    }
}

#[test]
fn trains_that_are_lost_and_hosts_that_leave_are_done_without() {
    let mut rig = Rig::ready(None);
    rig.is_lossy = true;
    rig.run_for(2 * SECOND);
    // One at a time, each waited for.
    assert!((3..=5).contains(&rig.sent.len()), "{}", rig.sent.len());
    rig.is_lossy = false;
    rig.run_for(SECOND);
    let since_ns = rig.now_ns;
    rig.controller.handle_worker_gone(JobId(0), Rank::new(0).unwrap());
    let Reporter::Box(server) = rig.names[3].1 else { unreachable!() };
    rig.controller.handle_node_gone(rig.now_ns, server);
    rig.run_for(20 * SECOND);
    let touched = rig.touched(since_ns);
    assert_eq!(touched, ["w1", "w2"].into());
    rig.controller.handle_worker_gone(JobId(0), Rank::new(1).unwrap());
    let since_ns = rig.now_ns;
    rig.run_for(20 * SECOND);
    assert!(rig.touched(since_ns).is_empty(), "one host has nobody to probe");
}

#[test]
fn probes_are_sent_where_something_is_not_configured_or_as_told() {
    let wants = |config: Config| {
        Controller::new(config, &Saved::fresh(7), built_in_policies()).unwrap().wants_probes()
    };
    let configured = |idle_probes| {
        let mut config = network(3, 100, 100);
        config.tuning.idle_probes = idle_probes;
        config
    };
    assert!(wants(config(None)) && wants(config(Some(true))) && !wants(config(Some(false))));
    assert!(!wants(configured(None)) && wants(configured(Some(true))));
    let mut racked = configured(None);
    racked.racks = vec![RackConfig { name: "r0".into(), ..RackConfig::default() }];
    assert!(wants(racked));
    let mut rig = Rig::ready(Some(false));
    rig.run_for(5 * SECOND);
    assert!(rig.sent.is_empty());
}

#[test]
fn reports_that_make_no_sense_are_refused_and_change_nothing() {
    let mut rig = Rig::new(config(None));
    for address in ["0.0.0.0:1", "224.0.0.1:1", "255.255.255.255:1", "10.0.0.1:0", "[ff02::1]:1"] {
        let refusal = rig.controller.handle_probe_port(worker(0), address.parse().unwrap());
        assert_eq!(refusal.unwrap_err().field, "address");
    }
    let stranger = |rank| Reporter::Worker(JobId(9), Rank::new(rank).unwrap());
    for (reporter, field) in
        [(stranger(0), "job"), (worker(9), "rank"), (Reporter::Box(NodeId(99)), "name")]
    {
        let refusal = rig.controller.handle_probe_port(reporter, address(0)).unwrap_err();
        assert_eq!(refusal.field, field);
        let refusal = rig.controller.handle_probe_train(0, reporter, &ProbeTrain::default());
        assert_eq!(refusal.unwrap_err().field, field);
    }
    rig = Rig::ready(None);
    let arrival = |at_ns, len_bytes| Arrival { at_ns, len_bytes };
    let absurd: [Vec<Arrival>; 5] = [
        Vec::new(),
        vec![arrival(u64::MAX, 1514); 256],
        (0..256).map(|i| arrival(u64::MAX - i, 1514)).collect(),
        (0..256).map(|i| arrival(i, 1514)).collect(),
        vec![arrival(0, 0); 256],
    ];
    for arrivals in absurd {
        while rig.coming.is_empty() {
            rig.run_for(MS);
        }
        let (told_ns, receiver, good) = rig.coming.remove(0);
        rig.now_ns = told_ns;
        let other = if receiver == worker(1) { worker(2) } else { worker(1) };
        let refusal = rig.controller.handle_probe_train(rig.now_ns, other, &good).unwrap_err();
        assert_eq!(refusal.field, "train");
        let long = vec![arrival(0, 1515); 12];
        let long = ProbeTrain { arrivals: long, ..good.clone() };
        let refusal = rig.controller.handle_probe_train(rig.now_ns, receiver, &long).unwrap_err();
        assert_eq!(refusal.field, "frame_bytes");
        // It would have arrived long before it was sent.
        let slow = (0..256).map(|i| arrival(i * (u64::MAX / 256), 1514)).collect();
        let slow = ProbeTrain { arrivals: slow, ..good.clone() };
        let refusal = rig.controller.handle_probe_train(rig.now_ns, receiver, &slow).unwrap_err();
        assert_eq!(refusal.field, "at_ns");
        let readings = vec![Reading { at_ns: 3, total_bytes: u64::MAX }; 256];
        let absurd = ProbeTrain { train: good.train, arrivals, readings };
        rig.controller.handle_probe_train(rig.now_ns, receiver, &absurd).unwrap();
        // Once is enough.
        rig.controller.handle_probe_train(rig.now_ns, receiver, &good).unwrap();
    }
    assert_eq!(rig.controller.status(rig.now_ns).trains, 0);
    // And still everything can be found out.
    rig.run_for(60 * SECOND);
    for (name, _) in rig.names {
        let known = rig.known(name);
        assert!(known.up_bytes_per_sec.abs_diff(rate(100)) < rate(5), "{known:?}");
        assert!(known.confidence > 0.5, "{known:?}");
    }
}
