use std::format;
use std::string::ToString;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

#[test]
fn times_saturate() {
    assert_eq!(Nanos::from_millis(3), Nanos(3_000_000));
    assert_eq!(Nanos::from_micros(3), Nanos(3_000));
    assert_eq!(Nanos::from_millis(u64::MAX), Nanos::MAX);
    assert_eq!(Nanos::from_micros(u64::MAX), Nanos::MAX);
    assert_eq!(Nanos(7).saturating_add(Nanos(5)), Nanos(12));
    assert_eq!(Nanos(7).saturating_add(Nanos::MAX), Nanos::MAX);
    assert_eq!(Nanos(7).since(Nanos(5)), Nanos(2));
    assert_eq!(Nanos(5).since(Nanos(7)), Nanos(0));
}

#[test]
fn reads_and_writes_ethernet_addresses() {
    let mac = MacAddr([0x02, 0, 0xab, 0xcd, 0xef, 0xff]);
    assert_eq!(mac.to_string(), "02:00:ab:cd:ef:ff");
    assert_eq!(format!("{mac:?}"), "02:00:ab:cd:ef:ff");
    assert_eq!("02:00:ab:cd:ef:ff".parse(), Ok(mac));
    assert_eq!("02:00:AB:CD:EF:FF".parse(), Ok(mac));
    for text in [
        "",
        "02",
        "02:00:00:00:00",
        "02:00:00:00:00:00:00",
        "02:00:00:00:00:0",
        "02:00:00:00:00:000",
        "02:00:00:00:00:0g",
        "02:00:00:00:00:+1",
        "02:00:00:00:00:-1",
        "02:00:00:00:00:\u{e9}",
        "02-00-00-00-00-01",
        " 02:00:00:00:00:01",
    ] {
        assert_eq!(text.parse::<MacAddr>(), Err(MacAddrError), "{text:?}");
    }
    assert!(MacAddrError.to_string().contains("02:00:00:00:00:01"));
}

#[test]
fn a_group_is_row_and_generation() {
    let group = GroupId::new(0x1234, 0xabcd);
    assert_eq!(group, GroupId(0x1234_abcd));
    assert_eq!((group.row(), group.generation()), (0x1234, 0xabcd));
    assert_ne!(group, GroupId::new(0x1234, 0xabce), "generations differ as groups");
    assert_eq!(GroupId::new(u16::MAX, u16::MAX), GroupId(u32::MAX));
}

#[test]
fn ranks_end_at_63() {
    assert_eq!(Rank::new(0).map(Rank::bit), Some(Members(1)));
    assert_eq!(Rank::new(63).map(Rank::bit), Some(Members(1 << 63)));
    assert_eq!(Rank::new(63).map(Rank::index), Some(63));
    for rank in 64..=u8::MAX {
        assert_eq!(Rank::new(rank), None);
    }
    assert_eq!(Rank::new(42).unwrap().to_string(), "42");
}

#[test]
fn members_are_a_set() {
    let few = Members(0b1010);
    assert_eq!(few.len(), 2);
    assert!(!few.is_empty() && Members::EMPTY.is_empty());
    assert!(few.contains(Members(0b1000)) && few.contains(few) && few.contains(Members::EMPTY));
    assert!(!few.contains(Members(0b0001)) && !few.contains(Members(0b1001)));
    assert_eq!(few.union(Members(0b0011)), Members(0b1011));
    assert_eq!(few.without(Members(0b0011)), Members(0b1000));
    assert_eq!(few.single(), None);
    assert_eq!(Members::EMPTY.single(), None);
    assert_eq!(few.to_string(), "0xa");
    assert_eq!(format!("{few:?}"), "0xa");
}

#[test]
fn the_first_members_are_the_low_bits() {
    assert_eq!(Members::first(0), Members::EMPTY);
    assert_eq!(Members::first(1), Members(1));
    assert_eq!(Members::first(63), Members(u64::MAX >> 1));
    assert_eq!(Members::first(64), Members(u64::MAX));
    assert_eq!(Members::first(usize::MAX), Members(u64::MAX));
}

#[test]
fn every_single_member_is_its_rank() {
    for rank in (0..64).filter_map(Rank::new) {
        assert_eq!(rank.bit().single(), Some(rank));
        assert_eq!(rank.bit().iter().collect::<Vec<_>>(), [rank]);
    }
}

#[test]
fn a_cookie_tells_its_epoch() {
    let cookie = Cookie::new(Epoch(0x1234_56e1), 0xffaa_bbcc);
    assert_eq!(cookie, Cookie(0xe1aa_bbcc));
    assert!(cookie.is_of(Epoch(0xe1)) && cookie.is_of(Epoch(0xffff_ffe1)));
    assert!(!cookie.is_of(Epoch(0xe0)) && !cookie.is_of(Epoch(0xe1aa_bb00)));
}

proptest! {
    #[test]
    fn members_iterate_in_order(bits in any::<u64>()) {
        let ranks: Vec<_> = Members(bits).iter().collect();
        prop_assert_eq!(ranks.len(), Members(bits).len());
        prop_assert!(ranks.windows(2).all(|pair| pair[0] < pair[1]));
        let again = ranks.iter().fold(Members::EMPTY, |set, rank| set.union(rank.bit()));
        prop_assert_eq!(again, Members(bits));
    }

    #[test]
    fn ethernet_addresses_survive_text(octets in any::<[u8; 6]>()) {
        prop_assert_eq!(MacAddr(octets).to_string().parse(), Ok(MacAddr(octets)));
    }

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,24}") {
        let _ = text.parse::<MacAddr>();
    }
}
