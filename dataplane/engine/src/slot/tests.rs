use alloc::vec;
use alloc::vec::Vec;

use weft_control::SumOrder;
use weft_kernel::Kernels;
use weft_wire::Members;
use weft_wire::header::{ElementType, Operation};
use weft_wire::hello::Overflow;

use super::accumulate::{Arithmetic, Contribution, Store};
use super::bitmap::{Seen, look};
use super::*;

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
    let bank = slots.bank_mut(index);
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
        *slots.bank_mut(bank) = Bank { state, step: 1, ..Bank::default() };
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
