use alloc::vec::Vec;

use super::*;
use crate::sample::{Numbers, Shape, THOUSAND};

fn small() -> Case {
    let shape = Shape { updates: 40, hosts: 40, reservations: 60, racks: 3, ..THOUSAND };
    Case::new(&shape.spec(2)).expect("a sample case")
}

/// Reserves a few updates' direct transfers.
fn send(case: &Case, ledger: &mut Ledger, numbers: &mut Numbers, count: usize) {
    for _ in 0..count {
        let update = &case.updates[numbers.index(case.updates.len())];
        let path = ledger.path(update.host, case.server(update.server).host);
        let mut segments = Vec::new();
        ledger
            .probe_segments(&path, case.now_ns, update.size_bytes, &mut segments)
            .expect("an end");
        ledger.reserve(&path, &segments);
    }
}

#[test]
fn goes_back_to_each_mark_and_no_further() {
    let case = small();
    let (mut ledger, mut numbers) = (Ledger::new(&case), Numbers::new(7));
    for _ in 0..20 {
        send(&case, &mut ledger, &mut numbers, 3);
        let before = ledger.links.clone();
        let outer = ledger.mark();
        send(&case, &mut ledger, &mut numbers, 4);
        let between = ledger.links.clone();
        let inner = ledger.mark();
        for _ in 0..2 {
            send(&case, &mut ledger, &mut numbers, 5);
            assert_ne!(ledger.links, between);
            ledger.rollback(inner);
            assert_eq!(ledger.links, between);
        }
        ledger.rollback(outer);
        assert_eq!(ledger.links, before);
        ledger.commit();
    }
}

#[test]
fn remembers_from_the_first_mark_to_the_commit() {
    let case = small();
    let (mut ledger, mut numbers) = (Ledger::new(&case), Numbers::new(7));
    let mut remembers = |ledger: &mut Ledger| {
        send(&case, ledger, &mut numbers, 3);
        !ledger.journal.is_empty()
    };
    assert!(!remembers(&mut ledger));
    let mark = ledger.mark();
    assert!(remembers(&mut ledger));
    ledger.rollback(mark);
    assert!(remembers(&mut ledger), "to go back to the mark again");
    ledger.commit();
    assert!(!remembers(&mut ledger));
}

#[test]
fn what_is_promised_beforehand_is_taken_from_both_ends() {
    let case = small();
    let ledger = Ledger::new(&case);
    let capacities = Topology::capacities(&case);
    for (link, timeline) in ledger.links.iter().enumerate() {
        let on_link = case.reservations.iter().filter(|reservation| {
            let path = ledger.topology.half_open_path(reservation.from, reservation.to);
            path.links().iter().any(|other| other.index() == link)
        });
        let on_link: Vec<Segment> = on_link.map(|reservation| reservation.segment).collect();
        let edges = on_link.iter().flat_map(|segment| [segment.from_ns, segment.to_ns]);
        for at_ns in edges.flat_map(|at_ns| [at_ns - 1, at_ns]) {
            let holds = |s: &&Segment| s.from_ns <= at_ns && at_ns < s.to_ns;
            let taken: u64 = on_link.iter().filter(holds).map(|s| s.bytes_per_sec).sum();
            assert_eq!(timeline.residual_at(at_ns), capacities[link].saturating_sub(taken));
        }
    }
}
