use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;
use weft_control::{BoxIndex, LearningRate, divergence_bound};
use weft_kernel::Kernels;
use weft_wire::header::ElementType;
use weft_wire::{Members, Nanos, Rank};

use super::params::Sum;
use super::snapshot::Offer;
use super::*;
use crate::role::channel::Peer;

fn wire(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_be_bytes()).collect()
}

fn pool() -> (StagePool, StageIndex) {
    let mut pool = StagePool::new(Kernels::detect(), 2, 2, 2);
    let stage = pool.take().unwrap();
    (pool, stage)
}

const A: Members = Members(1);
const B: Members = Members(2);
const C: Members = Members(4);
const ABC: Members = Members(7);

fn add(pool: &mut StagePool, stage: StageIndex, from: Members, values: &[i32]) -> Staged {
    pool.add(stage, 1, ElementType::I32, ABC, from, &mut wire(values))
}

#[test]
fn staging_cell_by_cell() {
    let (mut pool, stage) = pool();
    assert_eq!(add(&mut pool, stage, Members::EMPTY, &[9, 9]), Staged::Outside);
    assert_eq!(add(&mut pool, stage, Members(8), &[9, 9]), Staged::Outside);
    assert_eq!(add(&mut pool, stage, A, &[1, 10]), Staged::Added(false));
    assert_eq!(add(&mut pool, stage, A, &[1, 10]), Staged::Duplicate);
    assert_eq!(add(&mut pool, stage, B.union(C), &[6, 60]), Staged::Added(true));
    assert_eq!(add(&mut pool, stage, A.union(B), &[9, 9]), Staged::Duplicate);
    assert_eq!(pool.data(stage, 1), wire(&[7, 70]));
    assert_eq!(pool.holders(stage, 0), Members::EMPTY);
}

/// PROTOCOL section 4: by "subset" alone a full sum that arrives after a direct send counts twice.
#[test]
fn a_full_sum_after_a_direct_send_counts_once() {
    let (mut pool, stage) = pool();
    assert_eq!(add(&mut pool, stage, B, &[2, 20]), Staged::Added(false));
    assert_eq!(add(&mut pool, stage, ABC, &[7, 70]), Staged::Added(true));
    assert_eq!(pool.data(stage, 1), wire(&[7, 70]));
}

#[test]
fn partial_overlaps_are_refused() {
    let (mut pool, stage) = pool();
    assert_eq!(add(&mut pool, stage, A.union(B), &[3, 30]), Staged::Added(false));
    assert_eq!(add(&mut pool, stage, B.union(C), &[6, 60]), Staged::Overlap);
    assert_eq!(pool.data(stage, 1), wire(&[3, 30]));
    assert_eq!(add(&mut pool, stage, C, &[4, 40]), Staged::Added(true));
    assert_eq!(pool.data(stage, 1), wire(&[7, 70]));
}

#[test]
fn a_removed_member_takes_its_chunks_with_it() {
    let (mut pool, stage) = pool();
    add(&mut pool, stage, ABC, &[7, 70]);
    let mut first = wire(&[5, 5]);
    pool.add(stage, 0, ElementType::I32, ABC, A.union(B), &mut first);
    assert_eq!(pool.restage(stage, C, A.union(B)), 1);
    assert_eq!(pool.holders(stage, 1), Members::EMPTY);
    assert_eq!(pool.holders(stage, 0), A.union(B));
    assert_eq!(pool.restage(stage, ABC, Members::EMPTY), 0);
}

#[test]
fn a_stage_that_was_given_back_is_empty_again() {
    let (mut pool, stage) = pool();
    add(&mut pool, stage, ABC, &[7, 70]);
    let other = pool.take().unwrap();
    assert_eq!(pool.take(), None);
    pool.give_back(stage);
    assert_eq!(pool.take(), Some(stage));
    assert_eq!(pool.holders(stage, 1), Members::EMPTY);
    pool.give_back(other);
    assert_eq!(pool.free_count(), 1);
}

#[test]
fn floats_are_added_and_applied() {
    let (mut pool, stage) = pool();
    let floats = |a: f32, b: f32| [a.to_be_bytes(), b.to_be_bytes()].concat();
    for (from, a, b) in [(A, 0.5, 1.0), (B.union(C), 0.25, -1.0)] {
        for chunk in 0..2 {
            pool.add(stage, chunk, ElementType::F32, ABC, from, &mut floats(a, b));
        }
    }
    assert_eq!(pool.data(stage, 1), floats(0.75, 0.0));
    let mut model = Model::new(Kernels::detect(), 0.5, 4);
    let sum =
        Sum { wire: pool.sums(stage), element_type: ElementType::F32, exponent: 0, scale: 2.0 };
    let norm = model.apply(&sum, 3);
    assert_eq!(model.version(), 3);
    assert_eq!(model.parts().0, [1.5, 0.0, 1.5, 0.0]);
    assert_eq!(norm, weft_kernel::sqrt(4.5));
    assert_eq!(sum.norm(Kernels::detect()), norm);
    model.apply(&sum, 1);
    assert_eq!(model.parts().1, [2.25, 0.0, 2.25, 0.0]);
    assert_eq!(model.parts().0, [3.75, 0.0, 3.75, 0.0]);
    let measured = model.momentum_norm();
    model.load(4, &[], &[]);
    assert_eq!(model.momentum_norm(), measured);
}

/// The golden values of the facts on MLfabric, section 2.3.
#[test]
fn the_bound_is_the_one_of_the_facts() {
    let norms = [3.0, 1.0, 2.0, 4.0];
    for (momentum, expected) in [(0.9, [3.0, 6.7, 12.03, 20.827]), (0.0, [3.0, 4.0, 6.0, 10.0])] {
        for (lag, expected) in (1..).zip(expected) {
            let bound = divergence_bound(momentum, 0.0, norms[..lag].iter().copied());
            assert!((bound - expected).abs() < 1e-12, "{momentum} {lag}: {bound}");
        }
    }
    assert_eq!(divergence_bound(0.9, 5.0, core::iter::empty()), 0.0);
}

#[test]
fn delays_scale_as_the_job_says() {
    assert_eq!(scale(LearningRate::Plain, 5, 9), 1.0);
    assert_eq!(scale(LearningRate::InverseDelay, 5, 0), 1.0);
    assert_eq!(scale(LearningRate::InverseDelay, 5, 4), 0.25);
    assert_eq!(scale(LearningRate::AdaDelay, 0, 3), 0.5);
    assert_eq!(scale(LearningRate::AdaDelay, 7, 0), 1.0);
}

#[test]
fn counters_are_found_again_from_their_low_bits() {
    for counter in [0, 5, (1 << 32) - 1, 1 << 32, (1 << 32) + 7, u64::from(u32::MAX) * 9] {
        for shift in [-1000i64, -1, 0, 1, 1000] {
            let reference = counter.saturating_add_signed(shift);
            assert_eq!(near(reference, low_bits(counter)), counter, "{counter} {shift}");
        }
    }
}

/// A model of four parameters, and copies of two chunks of two, of which one that nobody asks for
/// is idle after 100 ns.
struct Copies {
    model: Model,
    snapshots: Snapshots,
}

impl Copies {
    fn new(count: usize) -> Self {
        let kernels = Kernels::detect();
        let (model, snapshots) =
            (Model::new(kernels, 0.0, 4), Snapshots::new(kernels, count, 2, 2, 100));
        Self { model, snapshots }
    }

    fn commit(&mut self) {
        let one = wire(&[1, 2, 3, 4]);
        let sum = Sum { wire: &one, element_type: ElementType::I32, exponent: 0, scale: 1.0 };
        self.model.apply(&sum, 1);
    }

    /// The version that a peer is offered.
    fn offer(&mut self, at_ns: u64, peer: Peer) -> u64 {
        let next_order = self.model.version();
        let offer = self.snapshots.offer(Nanos(at_ns), peer, &self.model, next_order, u64::MAX);
        offer.unwrap().version
    }

    /// A chunk of a version, if there is a copy of it.
    fn pull(&mut self, at_ns: u64, peer: Peer, generation: u16, chunk: u32) -> Option<[f32; 2]> {
        let mut wire = [0; 8];
        self.snapshots.emit(Nanos(at_ns), peer, generation, chunk, &mut wire)?;
        let [first, second] = [0, 4].map(|at| wire[at..at + 4].try_into().unwrap());
        Some([f32::from_be_bytes(first), f32::from_be_bytes(second)])
    }
}

const fn worker(rank: u8) -> Peer {
    Peer::Worker(Rank::new(rank).unwrap())
}

#[test]
fn pullers_keep_their_version_while_commits_go_on() {
    let mut copies = Copies::new(2);
    let (one, two, three) = (worker(0), worker(1), Peer::Box(BoxIndex(0)));
    assert_eq!(copies.offer(0, one), 0);
    copies.commit();
    assert_eq!(copies.offer(10, two), 1);
    copies.commit();
    assert_eq!(copies.offer(20, three), 1, "both copies are in use: the newest is on offer");
    assert_eq!(copies.pull(90, one, 0, 0), Some([0.0; 2]));
    assert_eq!(copies.offer(130, three), 2, "version 0 was asked for lately, version 1 was not");
    assert_eq!(copies.pull(131, two, 1, 0), None);
    assert_eq!(copies.pull(131, three, 2, 1), Some([6.0, 8.0]));
    assert_eq!(copies.pull(131, three, 2, 3), Some([3.0, 4.0]), "the momentum term");
    assert_eq!(copies.pull(131, three, 2, 4), None);
}

/// Each pulls one version at a time, so one copy more than there are pullers is always enough, and
/// nobody is offered a version without its own commits, or loses the one that it pulls.
#[test]
fn whoever_asks_is_offered_the_newest_version_however_fast_they_come() {
    for (workers, copies_max) in [(1, 2), (3, 4), (5, 6)] {
        let mut copies = Copies::new(copies_max);
        let mut pulled = [0; 5];
        for turn in 0..200u64 {
            // In an order that repeats late: some keep theirs over many versions.
            let rank = usize::try_from((turn * turn + turn / 3) % workers).unwrap();
            let peer = worker(u8::try_from(rank).unwrap());
            assert_eq!(copies.offer(turn, peer), turn, "{workers} workers");
            pulled[rank] = turn;
            copies.commit();
            for (rank, version) in pulled.iter().take(usize::try_from(workers).unwrap()).enumerate()
            {
                let peer = worker(u8::try_from(rank).unwrap());
                let generation = u16::try_from(*version).unwrap();
                // Those that have asked for something; at version 0 some have not.
                if *version > 0 {
                    let chunk = copies.pull(turn, peer, generation, 0);
                    let parameter = *version as f32;
                    assert_eq!(chunk, Some([parameter, 2.0 * parameter]), "turn {turn}");
                }
            }
        }
    }
}

/// A question goes twice, two versions are offered, and the first is pulled.
#[test]
fn what_is_asked_for_is_pulled_whatever_was_offered_since() {
    let mut copies = Copies::new(3);
    assert_eq!(copies.offer(0, worker(0)), 0);
    copies.commit();
    assert_eq!(copies.offer(1, worker(0)), 1);
    assert_eq!(copies.pull(2, worker(0), 0, 0), Some([0.0; 2]));
    for version in 2..20 {
        copies.commit();
        assert_eq!(copies.offer(version, worker(1)), version);
        assert_eq!(copies.pull(version, worker(0), 0, 0), Some([0.0; 2]), "version {version}");
    }
}

/// Of copies that nobody pulls the one goes that was wanted longest ago: the word of the newest may
/// be on its way to somebody.
#[test]
fn the_copy_that_was_used_longest_ago_makes_room() {
    let mut copies = Copies::new(3);
    for version in 0..3 {
        assert_eq!(copies.offer(version, worker(0)), version);
        copies.commit();
    }
    assert_eq!(copies.pull(3, worker(0), 1, 0), Some([1.0, 2.0]));
    assert_eq!(copies.offer(4, worker(1)), 3);
    assert_eq!(copies.pull(5, worker(0), 0, 0), None);
    assert!(copies.pull(5, worker(0), 2, 0).is_some());
}

proptest! {
    /// DESIGN I5: bound and true distance, both in f64, groups of several updates, momentum on.
    #[test]
    fn the_true_distance_never_exceeds_the_bound(
        momentum in prop::sample::select(vec![0.0f32, 0.5, 0.9, 0.99]),
        updates in prop::collection::vec(prop::collection::vec(-1000i32..1000, 6), 1..24),
        applied in 0usize..24,
    ) {
        let kernels = Kernels::detect();
        let applied = applied.min(updates.len());
        let mut server = Model::new(kernels, momentum, 6);
        let mut replica = Model::new(kernels, momentum, 6);
        let mut norms = Vec::new();
        for (index, update) in updates.iter().enumerate() {
            let bytes = wire(update);
            let sum = Sum { wire: &bytes, element_type: ElementType::I32, exponent: -6, scale: 1.0 };
            let norm = server.apply(&sum, 2);
            if index < applied {
                replica.apply(&sum, 2);
            } else {
                norms.push(norm);
            }
        }
        let bound =
            divergence_bound(server.momentum(), replica.momentum_norm(), norms.into_iter());
        let true_distance = distance(server.parts().0, replica.parts().0);
        prop_assert!(true_distance <= bound * (1.0 + 1e-5) + 1e-5, "{true_distance} {bound}");
    }
}

/// While a replica lags, versions that it lacks wait; a stream of commits does not push out the one
/// that is next to be shown.
#[test]
fn only_versions_that_may_be_shown_are_offered() {
    let mut model = Model::new(Kernels::detect(), 0.0, 4);
    let mut snapshots = Snapshots::new(Kernels::detect(), 1, 1, 4, 0);
    assert_eq!(snapshots.offer(Nanos(0), worker(0), &model, 1, 0), None);
    for version in 1..5 {
        // Copied once, it stays what it was until it is shown.
        model.load(version, &[], &[]);
        assert_eq!(snapshots.offer(Nanos(version), worker(0), &model, 1 + version, 0), None);
    }
    let offer = snapshots.offer(Nanos(9), worker(0), &model, 5, 3);
    assert_eq!(offer, Some(Offer { version: 0, next_order: 1 }));
    // Shown once, it makes room for the newest.
    assert_eq!(snapshots.offer(Nanos(10), worker(0), &model, 5, 3), None);
    let offer = snapshots.offer(Nanos(11), worker(0), &model, 5, 5);
    assert_eq!(offer, Some(Offer { version: 4, next_order: 5 }));
}
