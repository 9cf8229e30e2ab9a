use alloc::vec;
use alloc::vec::Vec;

use weft_control::SumOrder;
use weft_kernel::Kernels;
use weft_wire::header::{ElementType, Header, Kind, Operation};
use weft_wire::hello::Overflow;
use weft_wire::{GroupId, JobId, Members};

use super::accumulate::{Arithmetic, Contribution, Store};
use super::bitmap::{Seen, look};
use super::counter::{Lag, Transition, TransitionCounters};
use super::next_step::{Event, NextStep, transition};
use super::*;
use crate::send::datagram::plain_header;

fn store(element_type: ElementType, sum_order: SumOrder, members: usize) -> Store {
    let arithmetic =
        Arithmetic { element_type, operation: Operation::Sum, sum_order, overflow: Overflow::Wrap };
    Store::new(Kernels::detect(), arithmetic, 3, members, 8)
}

fn slots() -> Slots {
    Slots::new(4, store(ElementType::I32, SumOrder::Arrival, 2))
}

fn from(rank: usize) -> Contribution {
    Contribution { rank, limit: i32::MAX }
}

fn complete(slots: &mut Slots, step: u32) {
    let index = slots.locate(step);
    let (bank, _) = slots.bank_and_store(index);
    bank.state = State::Answered;
    bank.step = step;
}

#[test]
fn slot_and_bank_follow_from_the_step() {
    let slots = slots();
    let places: Vec<usize> = (0..12).map(|step| slots.locate(step).0).collect();
    assert_eq!(places, [0, 2, 4, 6, 1, 3, 5, 7, 0, 2, 4, 6]);
}

#[test]
fn an_untouched_slot_takes_only_the_first_window() {
    let slots = slots();
    let claimable: Vec<u32> = (0..20).filter(|step| slots.is_claimable(*step)).collect();
    assert_eq!(claimable, [0, 1, 2, 3]);
}

#[test]
fn only_the_direct_successor_may_claim() {
    let mut slots = slots();
    complete(&mut slots, 1);
    let of_slot: Vec<u32> =
        (0..40).filter(|step| step % 4 == 1 && slots.is_claimable(*step)).collect();
    assert_eq!(of_slot, [5]);
    complete(&mut slots, 5);
    assert!(slots.is_claimable(9));
    assert!(!slots.is_claimable(1), "a step that was replaced never returns");
    assert!(!slots.is_claimable(5), "a step is claimed once");
}

#[test]
fn an_incomplete_predecessor_bars_its_successor() {
    let mut slots = slots();
    for (state, may_claim) in [
        (State::Empty, false),
        (State::Collecting, false),
        (State::Sent, true),
        (State::Answered, true),
    ] {
        let bank = slots.locate(1);
        *slots.bank_and_store(bank).0 = Bank { state, step: 1, ..Bank::default() };
        assert_eq!(slots.is_claimable(5), may_claim, "{state:?}");
    }
}

#[test]
fn a_seeded_slot_takes_only_its_frontier() {
    let mut slots = slots();
    slots.seed(|slot| if slot == 2 { 10 } else { slot });
    assert!(slots.is_claimable(10));
    assert!(!slots.is_claimable(2));
    assert!(!slots.is_claimable(14));
    assert_eq!(look(&slots, 6, Members(1)), Seen::New, "the virtual predecessor is current");
    assert!(slots.is_claimable(0));
}

/// SPEC#slot, cell by cell: CONTRIB, then STATUS, each also from the rank that completed the step.
#[test]
fn what_goes_out_follows_from_the_bank_and_what_was_seen() {
    use NextStep::{Add, Claim, Have, HaveAndResend, KeptAnswer, Stale};
    use State::{Answered, Collecting, Empty, Sent};
    for (state, seen, contribution, status) in [
        (Empty, Seen::Claimable, [Claim; 2], [Have; 2]),
        (Answered, Seen::Claimable, [Claim; 2], [Have; 2]),
        (Collecting, Seen::New, [Add; 2], [Have; 2]),
        (Collecting, Seen::Repeat, [Have; 2], [Have; 2]),
        (Sent, Seen::New, [Have; 2], [Have; 2]),
        (Sent, Seen::Repeat, [Have, HaveAndResend], [Have, HaveAndResend]),
        (Answered, Seen::New, [KeptAnswer; 2], [KeptAnswer; 2]),
        (Answered, Seen::Repeat, [KeptAnswer; 2], [KeptAnswer; 2]),
        (Collecting, Seen::Foreign, [Stale; 2], [Stale; 2]),
        (Answered, Seen::Foreign, [Stale; 2], [Stale; 2]),
    ] {
        let cell = (state, seen);
        assert_eq!(
            [false, true].map(|it| transition(state, Event::Contribution(seen), it)),
            contribution,
            "{cell:?}"
        );
        assert_eq!(
            [false, true].map(|it| transition(state, Event::Status(seen), it)),
            status,
            "{cell:?}"
        );
    }
}

#[test]
fn the_bank_tells_whether_a_rank_is_in_its_step() {
    let mut slots = slots();
    let bit = Members(0b10);
    assert_eq!(look(&slots, 1, bit), Seen::Claimable);
    assert_eq!(look(&slots, 0, bit), Seen::Claimable, "EMPTY banks have the tag 0");
    let bank = slots.locate(1);
    *slots.bank_and_store(bank).0 =
        Bank { state: State::Collecting, step: 1, members: Members(1), ..Bank::default() };
    assert_eq!(look(&slots, 1, bit), Seen::New);
    assert_eq!(look(&slots, 1, Members(1)), Seen::Repeat);
    assert_eq!(look(&slots, 9, Members(1)), Seen::Foreign, "the bank holds another step");
    assert_eq!(slots.occupied().map(|bank| bank.step).collect::<Vec<_>>(), [1]);
}

/// What was collected before is another sum's: nothing of it is told with the answer.
#[test]
fn a_kept_answer_leaves_nothing_of_what_its_bank_held() {
    let mut slots = slots();
    let place = slots.locate(1);
    *slots.bank_and_store(place).0 = Bank {
        state: State::Collecting,
        step: 9,
        exponent: 3,
        flags: Flags::CLAMPED,
        members: Members(1),
        run: 5,
        ..Bank::default()
    };
    let header = Header {
        exponent: -2,
        flags: Flags::CONGESTION.union(Flags::RETRANSMIT),
        ..plain_header(Kind::Answer, JobId(0), GroupId::default(), Members(0b11))
    };
    slots.keep_answer(1, &header, Members(0b11), &[7; 12]);
    let bank = slots.bank(place);
    assert!(bank.keeps_answer(1) && !bank.keeps_answer(9));
    assert_eq!((bank.exponent(), bank.flags()), (-2, Flags::CONGESTION));
    assert_eq!((bank.members(), bank.run()), (Members(0b11), Bank::NO_RUN));
    let mut wire = [0; 12];
    slots.store().emit(place, &mut wire);
    assert_eq!(wire, [7; 12]);
}

#[test]
fn counters_count_each_transition_by_itself() {
    let mut counters = TransitionCounters::default();
    counters.count(Transition::Claim);
    counters.count(Transition::Add);
    counters.count_many(Transition::Add, 3);
    counters.count_many(Transition::SeedResumed, 2);
    assert_eq!(counters.of(Transition::Add), 4);
    let counted: Vec<_> = counters.iter().filter(|(_, count)| *count > 0).collect();
    let expected = [(Transition::Claim, 1), (Transition::Add, 4), (Transition::SeedResumed, 2)];
    assert_eq!(counted, expected);
    assert_eq!(counters.iter().count(), Transition::COUNT);
}

#[test]
fn lag_is_the_sum_and_the_most_of_what_came_late() {
    let mut lag = Lag::default();
    for late_ns in [0, 5, 3] {
        lag.count(Nanos(late_ns));
    }
    assert_eq!(lag, Lag { count: 3, total: Nanos(8), max: Nanos(5) });
}

#[test]
fn a_store_takes_whole_cache_lines_and_a_row_for_each_rank_of_rank_order() {
    // Three elements take a line of 16 words; eight banks; one line more to begin on one.
    assert_eq!(store(ElementType::I32, SumOrder::Arrival, 3).len_bytes(), (8 + 1) * 64);
    assert_eq!(store(ElementType::F32, SumOrder::Arrival, 3).len_bytes(), (8 + 1) * 64);
    assert_eq!(store(ElementType::F32, SumOrder::Rank, 3).len_bytes(), (8 * 4 + 1) * 64);
}

#[test]
fn a_store_is_laid_out_anew_within_its_memory_and_no_further() {
    let arithmetic = Arithmetic {
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Wrap,
    };
    let mut store = Store::vacant(Kernels::detect(), 8 * 16);
    assert!(store.lay_out(arithmetic, 3, 2, 8));
    assert!(!store.lay_out(arithmetic, 3, 2, 9), "it has eight lines");
    assert_eq!(store.len_bytes(), (8 + 1) * 64, "what is refused changes nothing");
    assert!(store.lay_out(arithmetic, 3, 2, 4));
    assert_eq!(store.len_bytes(), (4 + 1) * 64);
}

#[test]
fn rank_order_does_not_depend_on_arrival() {
    // 1e8 + 1 - 1e8 depends on the order in f32.
    let values = [1.0e8_f32, 1.0, -1.0e8];
    let wire = |value: f32| value.to_be_bytes().repeat(3);
    let mut bits = vec![];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut store = store(ElementType::F32, SumOrder::Rank, 3);
        let bank = BankIndex(5);
        store.first(bank, from(order[0]), &wire(values[order[0]]));
        store.add(bank, from(order[1]), &wire(values[order[1]]));
        let mut last = wire(values[order[2]]);
        store.add_last(bank, from(order[2]), &mut last);
        let mut kept = vec![0; 12];
        store.emit(bank, &mut kept);
        assert_eq!(kept, last, "the kept answer is the answer");
        bits.push(last);
    }
    assert!(bits.iter().all(|sum| *sum == bits[0]));
}

#[test]
fn bf16_is_summed_in_f32_and_rounded_once() {
    let mut store = store(ElementType::Bf16, SumOrder::Arrival, 3);
    // 256 and two halves: in bf16 steps the halves would vanish one by one.
    let wire = |bits: u16| bits.to_be_bytes().repeat(3);
    let bank = BankIndex(0);
    store.first(bank, from(0), &wire(0x4380));
    store.add(bank, from(1), &wire(0x3f80));
    let mut last = wire(0x3f80);
    store.add_last(bank, from(2), &mut last);
    assert_eq!(last, wire(0x4381), "258");
    let mut kept = wire(0);
    store.emit(bank, &mut kept);
    assert_eq!(kept, last);
}

#[test]
fn banks_do_not_overlap() {
    let mut store = store(ElementType::I32, SumOrder::Arrival, 2);
    for bank in 0..8_u8 {
        let value = i32::from(bank) + 1;
        store.first(BankIndex(bank.into()), from(0), &value.to_be_bytes().repeat(3));
    }
    for bank in 0..8_u8 {
        let mut wire = vec![0; 12];
        store.emit(BankIndex(bank.into()), &mut wire);
        assert_eq!(wire, (i32::from(bank) + 1).to_be_bytes().repeat(3));
    }
}
