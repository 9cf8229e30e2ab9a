//! The ring, honest and hostile: the other side's words are written at will.

use proptest::prelude::*;

use super::*;

const GEOMETRY: Geometry = Geometry { frame_len_max: 200, slot_count: 64 };

fn pair() -> (Arc<Region>, Putter, Taker) {
    let (region, _) = Region::create(GEOMETRY.region_bytes()).expect("a region");
    let region = Arc::new(region);
    let putter = Putter::new(Arc::clone(&region), GEOMETRY, Direction::Down);
    let taker = Taker::new(Arc::clone(&region), GEOMETRY, Direction::Down);
    (region, putter, taker)
}

fn word(region: &Region, at: fn(Place) -> usize) -> &AtomicU64 {
    &region.words()[at(GEOMETRY.place(Direction::Down))]
}

fn take(taker: &mut Taker) -> Result<Vec<u8>, Taken> {
    let mut buffer = [0xee; 200];
    match taker.take(&mut buffer) {
        Ok(Taken::Frame(len)) => Ok(buffer[..len].to_vec()),
        Ok(other) => Err(other),
        Err(Broken) => panic!("the ring is sound"),
    }
}

/// As the reference says of `port.shm`, and with room for who has 64 of them.
#[test]
fn a_worker_takes_three_quarters_of_a_mebibyte_at_an_mtu_of_1500() {
    let bytes = Geometry::of(1500 + ETHERNET_LEN).region_bytes();
    assert!((750 << 10..=780 << 10).contains(&bytes), "{bytes}");
}

#[test]
fn what_is_put_in_comes_out_once_it_is_published() {
    let (_, mut putter, mut taker) = pair();
    for len in [14, 15, 16, 199, 200_u8] {
        let frame: Vec<u8> = (0..len).collect();
        assert_eq!(putter.put(&frame), Ok(true));
        assert_eq!(take(&mut taker), Err(Taken::Empty), "not published yet");
        putter.publish();
        assert_eq!(take(&mut taker), Ok(frame));
        assert_eq!(take(&mut taker), Err(Taken::Empty));
    }
}

#[test]
fn who_hears_nothing_refuses_what_is_for_all() {
    let (_, mut putter, mut taker) = pair();
    assert_eq!(putter.put_cast(0, 60), Ok(true));
    putter.publish();
    assert_eq!(take(&mut taker), Err(Taken::Refused));
}

#[test]
fn a_full_ring_takes_no_more_until_slots_are_released() {
    let (_, mut putter, mut taker) = pair();
    for _ in 0..64 {
        assert_eq!(putter.put(&[1; 60]), Ok(true));
    }
    assert_eq!(putter.put(&[2; 60]), Ok(false));
    putter.publish();
    assert_eq!(take(&mut taker), Ok(vec![1; 60]));
    assert_eq!(putter.put(&[2; 60]), Ok(false), "the slot is the taker's until it says so");
    taker.release();
    assert_eq!(putter.put(&[2; 60]), Ok(true));
    assert_eq!(putter.put(&[2; 60]), Ok(false));
}

#[test]
fn only_a_sleeper_is_woken_and_once() {
    let (_, mut putter, mut taker) = pair();
    putter.put(&[1; 60]).expect("a sound ring");
    assert!(!putter.publish(), "nobody sleeps");
    assert!(!taker.fall_asleep(), "there is a frame");
    taker.wake_up();
    take(&mut taker).expect("a frame");
    assert!(taker.fall_asleep());
    assert!(!putter.publish(), "nothing new");
    putter.put(&[1; 60]).expect("a sound ring");
    assert!(putter.publish());
    putter.put(&[1; 60]).expect("a sound ring");
    assert!(!putter.publish(), "it was woken already");
}

#[test]
fn indices_that_cannot_be_break_the_ring() {
    for far in [65, 1 << 32, u64::MAX] {
        let (region, _, mut taker) = pair();
        word(&region, |place| place.head).store(far, Ordering::Relaxed);
        assert_eq!(taker.take(&mut [0; 200]), Err(Broken), "{far}");
        assert!(!taker.fall_asleep(), "a broken ring is looked at and not slept on");
    }
    for far in [1, 65, u64::MAX - 64] {
        let (region, mut putter, _) = pair();
        for _ in 0..64 {
            putter.put(&[1; 60]).expect("a sound ring");
        }
        // It was asked about 64 frames of which 64 were there: more were never put in.
        word(&region, |place| place.tail).store(64 + far, Ordering::Relaxed);
        assert_eq!(putter.put(&[1; 60]), Err(Broken), "{far}");
    }
}

#[test]
fn lengths_that_cannot_be_cost_their_frame_alone() {
    for bad in [0, 13, 201, 1 << 40, u64::MAX] {
        let (region, mut putter, mut taker) = pair();
        putter.put(&[1; 60]).expect("a sound ring");
        putter.put(&[2; 60]).expect("a sound ring");
        putter.publish();
        word(&region, |place| place.first_slot).store(bad, Ordering::Relaxed);
        assert_eq!(take(&mut taker), Err(Taken::Refused), "{bad}");
        assert_eq!(take(&mut taker), Ok(vec![2; 60]));
    }
}

#[test]
fn a_frame_that_does_not_fit_the_buffer_is_refused() {
    let (_, mut putter, mut taker) = pair();
    putter.put(&[1; 100]).expect("a sound ring");
    putter.publish();
    assert_eq!(taker.take(&mut [0; 99]), Ok(Taken::Refused));
}

#[test]
fn the_two_directions_do_not_touch() {
    let up = GEOMETRY.place(Direction::Up);
    let down = GEOMETRY.place(Direction::Down);
    assert!(up.first_slot + GEOMETRY.slot_count * GEOMETRY.slot_words() <= down.head);
    let end = down.first_slot + GEOMETRY.slot_count * GEOMETRY.slot_words();
    assert_eq!(end * WORD_LEN, GEOMETRY.region_bytes());
}

#[test]
fn every_mtu_has_rings_that_may_be() {
    for mtu in (576..=65_535).step_by(61).chain([65_535]) {
        let geometry = Geometry::of(mtu + ETHERNET_LEN);
        assert!(geometry.is_sound(), "{geometry:?}");
        assert!(geometry.region_bytes() <= 16 << 20, "{geometry:?}");
    }
}

proptest! {
    /// Against a queue: whatever is put in, taken out, published and released, in any order.
    #[test]
    fn it_is_a_queue(steps in prop::collection::vec((0_u8..4, 14_usize..200), 1..400)) {
        let (_, mut putter, mut taker) = pair();
        let mut queue = std::collections::VecDeque::new();
        let (mut published, mut held, mut value) = (0, 0, 0_u8);
        for (step, len) in steps {
            match step {
                0 | 1 => {
                    value = value.wrapping_add(1);
                    let fits = queue.len() + held < 64;
                    prop_assert_eq!(putter.put(&vec![value; len]), Ok(fits));
                    if fits {
                        queue.push_back(vec![value; len]);
                    }
                }
                2 => {
                    putter.publish();
                    published = queue.len();
                }
                _ => {
                    // What the taker has seen it may see again after it looks; it looks when it
                    // has nothing left, so what is published is there at the latest then.
                    match take(&mut taker) {
                        Ok(frame) => {
                            prop_assert!(published > 0);
                            prop_assert_eq!(Some(frame), queue.pop_front());
                            published -= 1;
                            held += 1;
                        }
                        Err(_) => prop_assert_eq!(published, 0),
                    }
                    if len % 2 == 0 {
                        taker.release();
                        held = 0;
                    }
                }
            }
        }
    }

    /// Words of the other side's making never lead outside, and never to more than a frame.
    #[test]
    fn made_up_words_are_refused_or_bounded(
        head in any::<u64>(),
        tail in any::<u64>(),
        lens in prop::collection::vec(any::<u64>(), 64),
    ) {
        let (region, mut putter, mut taker) = pair();
        word(&region, |place| place.head).store(head, Ordering::Relaxed);
        word(&region, |place| place.tail).store(tail, Ordering::Relaxed);
        let place = GEOMETRY.place(Direction::Down);
        for (index, len) in lens.iter().enumerate() {
            let at = place.first_slot + index * GEOMETRY.slot_words();
            region.words()[at].store(*len, Ordering::Relaxed);
        }
        let mut taken = 0;
        while let Ok(Taken::Frame(_) | Taken::Refused) = taker.take(&mut [0; 200]) {
            taken += 1;
            prop_assert!(taken <= 64);
        }
        let mut put = 0;
        while putter.put(&[1; 60]) == Ok(true) {
            put += 1;
            prop_assert!(put <= 128);
        }
    }
}
