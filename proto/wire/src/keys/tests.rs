use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::header::{ElementType, Operation};
use crate::rows::{ROW_KEYS, TABLES_MAX, is_of_keys};
use crate::{ChunkIndex, Cookie, GroupId, JobId, Members};

fn header(what: What, body_len: usize) -> Header {
    let (kind, flags, outcome) = what.header_fields();
    Header {
        kind,
        flags,
        outcome,
        job: JobId(1),
        cookie: Cookie(2),
        group: GroupId::new(ROW_KEYS, 1),
        chunk: ChunkIndex(0),
        element_type: ElementType::I32,
        operation: Operation::None,
        exponent: 0,
        count: u16::try_from(body_len / 4).unwrap(),
        members: Members(1),
    }
}

fn body(head: Head, entries: &[u8]) -> Vec<u8> {
    let mut body = vec![0xff; HEAD_LEN];
    head.emit(body.first_chunk_mut().unwrap());
    body.extend_from_slice(entries);
    body
}

fn heads() -> impl Strategy<Value = Head> {
    (any::<[u8; 2]>(), any::<[u64; 2]>(), 0u16..4).prop_map(
        |([hops, peer], [number, low], row_len)| Head {
            row_len,
            entries: 0,
            floors: 0,
            hops,
            peer,
            number: Number(number),
            low,
        },
    )
}

/// Bit patterns, so that a NaN equals itself.
fn read(octets: Option<&[u8]>) -> Option<Vec<u32>> {
    octets.map(|octets| values(octets).map(f32::to_bits).collect())
}

proptest! {
    #[test]
    fn accesses_are_read_as_they_were_written(
        head in heads(),
        list in prop::collection::vec((any::<u64>(), 1u8..8, any::<[u32; 3]>()), 0..8),
    ) {
        let row_len = usize::from(head.row_len);
        let mut entries = vec![0; 8 * 64];
        let mut len = 0;
        for (key, parts, words) in &list {
            let parts = Parts(*parts);
            let value: Vec<f32> = words[..row_len].iter().map(|w| f32::from_bits(*w)).collect();
            let set = parts.contains(Parts::SET).then_some(&value[..]);
            let add = parts.contains(Parts::ADD).then_some(&value[..]);
            len += emit::access(&mut entries[len..], *key, parts, set, add).unwrap();
        }
        let head = Head { entries: u16::try_from(list.len()).unwrap(), ..head };
        let body = body(head, &entries[..len]);
        let frame = Frame::parse(&header(What::Access, body.len()), &body).unwrap();
        prop_assert_eq!(frame.head, head);
        prop_assert_eq!(frame.accesses().count(), list.len());
        let mut octets = Vec::new();
        for (access, (key, parts, words)) in frame.accesses().zip(&list) {
            let value = words[..row_len].to_vec();
            prop_assert_eq!((access.key, access.parts.0), (*key, *parts));
            if row_len > 0 {
                prop_assert_eq!(read(access.set), (parts & 1 != 0).then(|| value.clone()));
                prop_assert_eq!(read(access.value), (parts & 2 != 0).then_some(value));
            }
            octets.extend_from_slice(access.octets);
        }
        prop_assert_eq!(&octets[..], &body[HEAD_LEN..]);
    }

    #[test]
    fn answers_are_read_as_they_were_written(
        head in heads(),
        list in prop::collection::vec((any::<u64>(), any::<bool>(), any::<[u32; 3]>()), 0..8),
    ) {
        let row_len = usize::from(head.row_len.max(1));
        let mut entries = vec![0; 8 * 64];
        let mut len = 0;
        for (key, has_value, words) in &list {
            let value: Vec<f32> = words[..row_len].iter().map(|w| f32::from_bits(*w)).collect();
            let value = has_value.then_some(&value[..]);
            len += emit::answer(&mut entries[len..], *key, value).unwrap();
        }
        let head = Head {
            entries: u16::try_from(list.len()).unwrap(),
            row_len: u16::try_from(row_len).unwrap(),
            ..head
        };
        let body = body(head, &entries[..len]);
        let frame = Frame::parse(&header(What::Answer, body.len()), &body).unwrap();
        prop_assert_eq!(frame.accesses().count(), list.len());
        for (answer, (key, has_value, words)) in frame.accesses().zip(&list) {
            prop_assert_eq!(answer.key, *key);
            prop_assert_eq!(read(answer.value), has_value.then(|| words[..row_len].to_vec()));
            prop_assert!(answer.set.is_none());
        }
    }

    #[test]
    fn rows_are_read_as_they_were_written(
        head in heads(),
        floors in any::<[u64; 3]>(),
        list in prop::collection::vec(any::<(u64, u64, [u64; 4], [u32; 3])>(), 0..6),
    ) {
        let row_len = usize::from(head.row_len);
        let mut entries = vec![0; 1024];
        let floors = floors.map(|floor| Number(floor % 3));
        let mut len = emit::numbers(&mut entries, &floors).unwrap();
        for (key, epoch, lasts, words) in &list {
            let value: Vec<f32> = words[..row_len].iter().map(|w| f32::from_bits(*w)).collect();
            let lasts = lasts.map(|last| Number(last % 5));
            let room = &mut entries[len..];
            let written = emit::row(room, *key, RowEpoch(*epoch), (&lasts, 1), &value).unwrap();
            prop_assert_eq!(written, emit::row_len(&lasts, value.len()));
            len += written;
        }
        let head = Head {
            entries: u16::try_from(list.len()).unwrap(),
            floors: u16::try_from(emit::number_count(&floors)).unwrap(),
            ..head
        };
        let body = body(head, &entries[..len]);
        let frame = Frame::parse(&header(What::Row, body.len()), &body).unwrap();
        let mut read_floors = [Number::NONE; 3];
        frame.floors().for_each(|(process, number)| read_floors[process as usize] = number);
        prop_assert_eq!(read_floors, floors);
        prop_assert_eq!(frame.rows().count(), list.len());
        for (row, (key, epoch, lasts, words)) in frame.rows().zip(&list) {
            let mut read_lasts = [Number::NONE; 4];
            row.lasts().for_each(|(process, number)| read_lasts[process as usize] = number);
            prop_assert_eq!((row.key, row.epoch.0), (*key, *epoch));
            prop_assert_eq!(read_lasts, lasts.map(|last| Number(last % 5)));
            prop_assert_eq!(read(Some(row.value)).unwrap(), words[..row_len].to_vec());
        }
    }

    #[test]
    fn claims_and_keys_are_read_as_they_were_written(
        head in heads(),
        list in prop::collection::vec(any::<(u64, u64, u32)>(), 0..20),
    ) {
        let at = |word: u32| match word % 3 {
            0 => At::Here,
            1 => At::This,
            _ => At::Process(word % 64),
        };
        let claims: Vec<_> = list
            .iter()
            .map(|(key, epoch, word)| Claim { key: *key, epoch: RowEpoch(*epoch), at: at(*word) })
            .collect();
        let head = Head { entries: u16::try_from(list.len()).unwrap(), ..head };
        let mut entries = vec![0; 20 * CLAIM_LEN];
        let mut len = 0;
        for claim in &claims {
            len += emit::claim(&mut entries[len..], claim).unwrap();
        }
        let octets = body(head, &entries[..len]);
        for what in [What::Claim, What::RowAck, What::Void, What::TakeBack, What::Restore] {
            let frame = Frame::parse(&header(what, octets.len()), &octets).unwrap();
            prop_assert_eq!(frame.what, what);
            prop_assert_eq!(frame.claims().collect::<Vec<_>>(), claims.clone());
        }
        let mut len = 0;
        for claim in &claims {
            len += emit::key(&mut entries[len..], claim.key).unwrap();
        }
        let octets = body(head, &entries[..len]);
        for what in [What::Localize, What::Wait, What::Stale] {
            let frame = Frame::parse(&header(what, octets.len()), &octets).unwrap();
            let keys: Vec<u64> = claims.iter().map(|claim| claim.key).collect();
            prop_assert_eq!(frame.keys().collect::<Vec<_>>(), keys);
        }
    }

    #[test]
    fn no_octets_panic(
        place in 0usize..What::ALL.len(),
        entries in 0u8..6,
        row_len in 0u8..5,
        floors in 0u8..3,
        octets in prop::collection::vec(prop_oneof![Just(0u8), 0u8..8, any::<u8>()], 0..200),
    ) {
        let mut octets = octets;
        if octets.len() >= HEAD_LEN {
            octets[..6].fill(0);
            (octets[1], octets[3], octets[5]) = (row_len, entries, floors);
        }
        let header = header(What::ALL[place].0, octets.len());
        if let Ok(frame) = Frame::parse(&header, &octets) {
            // What was taken has as many entries as it says, whoever reads them.
            let count = usize::from(frame.head.entries);
            let read = match frame.what {
                What::Access | What::Answer => frame.accesses().count(),
                What::Localize | What::Wait | What::Stale => frame.keys().count(),
                What::Row => frame.rows().count(),
                What::Beat => 0,
                _ => frame.claims().count(),
            };
            prop_assert_eq!(read, count);
            prop_assert_eq!(frame.floors().count(), usize::from(frame.head.floors));
        }
    }
}

#[test]
fn each_meaning_has_one_header() {
    let mut seen = Vec::new();
    for &(what, name, kind, direct, outcome) in What::ALL {
        assert!(!seen.contains(&(kind, direct, outcome)), "{name}");
        seen.push((kind, direct, outcome));
        assert_eq!(What::of(&header(what, 24)), Some(what));
    }
    let none = Header { outcome: Outcome::Staged, ..header(What::Claim, 24) };
    assert_eq!(Frame::parse(&none, &[0; 24]).err(), Some(KeysError::What));
}

#[test]
fn bodies_that_their_entries_do_not_fill_are_refused() {
    let of = |what, head: Head, entries: &[u8]| {
        let body = body(head, entries);
        Frame::parse(&header(what, body.len()), &body).err()
    };
    let one = Head { entries: 1, row_len: 1, ..Head::default() };
    assert_eq!(of(What::Localize, one, &[0; 8]), None);
    assert_eq!(of(What::Localize, one, &[0; 12]), Some(KeysError::Length));
    assert_eq!(of(What::Localize, one, &[0; 4]), Some(KeysError::Length));
    assert_eq!(of(What::Beat, one, &[0; 8]), Some(KeysError::Length));
    assert_eq!(of(What::Localize, Head { floors: 1, ..one }, &[0; 20]), Some(KeysError::Length));
    let mut entry = [0; 16];
    assert_eq!(of(What::Access, one, &entry), Some(KeysError::Parts));
    entry[8] = 8;
    assert_eq!(of(What::Access, one, &entry), Some(KeysError::Parts));
    entry[8] = 2;
    assert_eq!(of(What::Access, one, &entry), None);
    assert_eq!(of(What::Answer, one, &entry), Some(KeysError::Parts));
    assert_eq!(Frame::parse(&header(What::Beat, 20), &[0; 20]).err(), Some(KeysError::Length));
}

#[test]
fn numbers_and_epochs_have_a_life_and_a_count() {
    assert_eq!(Number::new(0x0102, 3).0, 0x0102_0000_0000_0003);
    assert!(Number::new(1, Number::COUNT_MAX) < Number::new(2, 0));
    assert_eq!((Number::new(9, 4).life(), RowEpoch::born(7).moved().birth()), (9, 7));
    assert!(!Number::NONE.is_some() && RowEpoch::born(1).is_some());
}

#[test]
fn rows_of_keys_are_a_range() {
    let last = ROW_KEYS + (TABLES_MAX - 1);
    assert!(is_of_keys(ROW_KEYS) && is_of_keys(last));
    assert!(!is_of_keys(ROW_KEYS - 1) && !is_of_keys(last + 1));
}
