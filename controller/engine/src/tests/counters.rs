//! What the counters of hosts say of others: who may speak, and what several on one host come to.

use alloc::vec::Vec;

use weft_wire::Rank;

use super::world::{World, job, network, rate};
use super::*;

const PERIOD_NS: u64 = 100_000_000;
const W0: u8 = 0;

/// Two workers, each on its host; server and a box of nobody's on `w0`, if wanted.
fn world(with_box: bool) -> World {
    let mut config = network(2, 100, 100);
    if with_box {
        config.nodes = vec![world::node("p0", "w0")];
    }
    let mut world = World::new(config, vec![job(2)]);
    world.attach_all();
    if with_box {
        let hello = NodeHello {
            name: "p0".into(),
            life: 1,
            roles: Vec::new(),
            holdings: Vec::new(),
            bands: None,
        };
        assert_eq!(world.controller.handle_node(0, &hello), Ok(P0));
    }
    world
}

/// The box on w0, the first node that is configured.
const P0: NodeId = NodeId(0);

/// Uplink of a host, Mb/s.
fn up_mbit(world: &World, name: &str) -> u64 {
    let status = world.controller.status(world.now_ns);
    status.hosts.iter().find(|host| host.name == name).unwrap().up_bytes_per_sec / 125_000
}

/// Counters after `elapsed_ns` of own and all traffic up, in Mb/s.
fn up(elapsed_ns: u64, own: u64, all: u64) -> Telemetry {
    let carried = |mbit: u64| rate(mbit) * elapsed_ns / 1_000_000_000;
    Telemetry {
        at_ns: 5_000_000_000 + elapsed_ns,
        tx_bytes: carried(own),
        nic_tx_bytes: Some(7_000_000_000 + carried(all)),
        ..Telemetry::default()
    }
}

impl World {
    fn worker_says(&mut self, rank: u8, said: &Telemetry) -> Result<(), Refusal> {
        let rank = Rank::new(rank).unwrap();
        self.controller.handle_worker_telemetry(self.now_ns, JobId(0), rank, said)
    }

    fn box_says(&mut self, said: &Telemetry) {
        self.controller.handle_telemetry(self.now_ns, P0, said).unwrap();
    }
}

#[test]
fn what_others_put_on_a_workers_uplink_is_not_planned_with() {
    let mut world = world(false);
    for step in 0..15 {
        world.now_ns += PERIOD_NS;
        world.worker_says(W0, &up(step * PERIOD_NS, 20, 80)).unwrap();
        // The other one's says nothing of this link.
        world.worker_says(1, &up(step * PERIOD_NS, 20, 20)).unwrap();
    }
    assert!((38..=43).contains(&up_mbit(&world, "w0")), "{}", up_mbit(&world, "w0"));
    assert_eq!(up_mbit(&world, "w1"), 100);
    // Without its word nothing is known of others.
    world.controller.handle_worker_gone(JobId(0), Rank::new(W0).unwrap());
    assert_eq!(up_mbit(&world, "w0"), 100);
}

/// Each counts its own bytes. That they speak at different times, and that one of them stops
/// between two reports of the other, makes nothing of theirs others'.
#[test]
fn all_on_a_host_count_together() {
    let mut world = world(true);
    let half_ns = PERIOD_NS / 2;
    // The worker sends 40 Mb/s until it stops, the box 30 all the time, others 30 from then on.
    let (stop_ns, others_ns) = (10 * PERIOD_NS + half_ns, 40 * PERIOD_NS);
    let bytes = |mbit: u64, span_ns: u64| rate(mbit) * span_ns / 1_000_000_000;
    let by_worker = |at_ns: u64| bytes(40, at_ns.min(stop_ns));
    let mut lowest = 100;
    for step in 0..60 {
        let at_ns = step * PERIOD_NS;
        world.now_ns += half_ns;
        let said = up(at_ns, 30, 30);
        let more = by_worker(at_ns) + bytes(30, at_ns.saturating_sub(others_ns));
        let nic_tx_bytes = said.nic_tx_bytes.map(|bytes| bytes + more);
        world.box_says(&Telemetry { nic_tx_bytes, ..said });
        world.now_ns += half_ns;
        // Half a period after the box; it does not read the interface.
        let tx_bytes = by_worker(at_ns + half_ns);
        let later = Telemetry { tx_bytes, nic_tx_bytes: None, ..up(at_ns + half_ns, 0, 0) };
        world.worker_says(W0, &later).unwrap();
        if at_ns <= others_ns {
            lowest = lowest.min(up_mbit(&world, "w0"));
        }
    }
    assert!(lowest >= 99, "{lowest} Mb/s beside nobody");
    assert!((68..=72).contains(&up_mbit(&world, "w0")), "{}", up_mbit(&world, "w0"));
}

/// Whose bytes are not known, they would pass for others'.
#[test]
fn a_host_is_silent_while_somebody_on_it_is() {
    let mut world = world(true);
    for step in 0..20 {
        world.now_ns += PERIOD_NS;
        world.box_says(&up(step * PERIOD_NS, 0, 50));
    }
    assert_eq!(up_mbit(&world, "w0"), 100);
    // The worker has left: the box speaks for all.
    world.controller.handle_worker_gone(JobId(0), Rank::new(W0).unwrap());
    for step in 20..40 {
        world.now_ns += PERIOD_NS;
        world.box_says(&up(step * PERIOD_NS, 0, 50));
    }
    assert!((49..=51).contains(&up_mbit(&world, "w0")), "{}", up_mbit(&world, "w0"));
    // A box that has just lost its stream serves on: the worker alone does not know.
    let rank = Rank::new(W0).unwrap();
    world.controller.handle_worker(JobId(0), rank, 77, None).unwrap();
    world.controller.handle_node_gone(world.now_ns, P0);
    for step in 0..3 {
        world.now_ns += PERIOD_NS;
        world.worker_says(W0, &up(step * PERIOD_NS, 0, 90)).unwrap();
    }
    assert!(up_mbit(&world, "w0") >= 49, "{}", up_mbit(&world, "w0"));
}

#[test]
fn counters_that_make_no_sense_are_refused_and_harm_nobody() {
    let mut world = world(false);
    let told = up(PERIOD_NS, 20, 80);
    world.worker_says(W0, &told).unwrap();
    let nic = |nic_tx_bytes| Telemetry { nic_tx_bytes: Some(nic_tx_bytes), ..told };
    let later = Telemetry { at_ns: told.at_ns + 1, ..told };
    let absurd = [
        Telemetry { at_ns: told.at_ns - 1, ..told },
        Telemetry { tx_bytes: told.tx_bytes - 1, ..later },
        nic(0),
        nic(u64::MAX),
        Telemetry { tx_bytes: u64::MAX, ..later },
        Telemetry { rx_bytes: u64::MAX, ..later },
    ];
    for (count, absurd) in (1..).zip(&absurd) {
        let refusal = world.worker_says(W0, absurd).unwrap_err();
        assert_eq!(refusal.field, "telemetry", "{absurd:?}");
        assert_eq!(world.controller.status(0).refused["telemetry"], count);
        // The next one is a beginning again.
        world.worker_says(W0, &told).unwrap();
    }
    for rank in [Rank::new(2), Rank::new(63)].into_iter().flatten() {
        let refusal = world.controller.handle_worker_telemetry(0, JobId(0), rank, &told);
        assert_eq!(refusal.unwrap_err().field, "rank");
    }
    let refusal =
        world.controller.handle_worker_telemetry(0, JobId(9), Rank::new(0).unwrap(), &told);
    assert_eq!(refusal.unwrap_err().field, "job");
    world.controller.handle_worker_gone(JobId(0), Rank::new(1).unwrap());
    assert_eq!(world.worker_says(1, &told).unwrap_err().field, "hello");
    assert_eq!((up_mbit(&world, "w0"), up_mbit(&world, "w1")), (100, 100));
    world.ask(0, 0);
    world.run_for(1_000_000_000);
    assert_eq!(world.status(0).counters.committed, 1);
}

/// Another process counts from zero, and what was sent before it spoke is not held against anybody.
#[test]
fn a_new_life_begins_anew() {
    let mut world = world(false);
    let rank = Rank::new(W0).unwrap();
    for life in [5, 6] {
        world.controller.handle_worker(JobId(0), rank, life, None).unwrap();
        for step in 0..10 {
            world.now_ns += PERIOD_NS;
            world.worker_says(W0, &up(step * PERIOD_NS, 50, 50)).unwrap();
            assert!(up_mbit(&world, "w0") >= 99, "{} in life {life}", up_mbit(&world, "w0"));
        }
    }
}
