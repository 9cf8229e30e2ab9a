use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// The same function, kept instant by instant.
#[derive(Clone)]
struct Slow(Vec<u64>);

const LEN: u64 = 40;

fn at(at_ns: u64) -> usize {
    usize::try_from(at_ns).expect("a short time")
}

fn agree(fast: &Timeline, slow: &Slow) -> Result<(), TestCaseError> {
    for at_ns in 0..LEN {
        prop_assert_eq!(fast.residual_at(at_ns), slow.0[at(at_ns)], "at {}", at_ns);
    }
    let steps = fast.steps();
    prop_assert!(steps.windows(2).all(|w| w[0].from_ns < w[1].from_ns));
    prop_assert!(steps.windows(2).all(|w| w[0].bytes_per_sec != w[1].bytes_per_sec));
    Ok(())
}

/// Segments that fit what is left, made from cuts and wishes.
fn fitting(slow: &Slow, cuts: &[u64], wish: u64) -> Vec<Segment> {
    let mut cuts = cuts.to_vec();
    cuts.sort_unstable();
    let pairs = cuts.chunks_exact(2).filter(|pair| pair[0] < pair[1]);
    let segments = pairs.filter_map(|pair| {
        let inside = &slow.0[at(pair[0])..at(pair[1])];
        let bytes_per_sec = wish.min(*inside.iter().min()?);
        (bytes_per_sec > 0).then_some(Segment { from_ns: pair[0], to_ns: pair[1], bytes_per_sec })
    });
    segments.collect()
}

proptest! {
    #[test]
    fn promises_add_up_and_can_be_taken_back(
        asks in prop::collection::vec((prop::collection::vec(0..LEN, 2..8), 1..12u64), 1..12),
    ) {
        let mut fast = Timeline::new(20);
        let mut slow = Slow(vec![20; at(LEN)]);
        let mut scratch = Vec::new();
        let mut history = Vec::new();
        for (cuts, wish) in asks {
            let segments = fitting(&slow, &cuts, wish);
            let before = fast.clone();
            let mut old = Vec::new();
            let new = fast.reserve(&segments, &mut scratch, Some(&mut old));
            let mut undone = fast.clone();
            undone.replace(new, &old);
            prop_assert_eq!(&undone, &before);
            history.push((before, segments.clone()));
            for s in &segments {
                for at_ns in s.from_ns..s.to_ns {
                    slow.0[at(at_ns)] -= s.bytes_per_sec;
                }
            }
            agree(&fast, &slow)?;
        }
        for (before, segments) in history.into_iter().rev() {
            fast.release(&segments, &mut scratch);
            prop_assert_eq!(&fast, &before);
        }
    }

    #[test]
    fn what_others_take_leaves_nothing_negative(
        takes in prop::collection::vec((0..LEN - 1, 1..LEN, 1..30i64), 1..12),
    ) {
        let mut edges = Vec::new();
        let mut slow = Slow(vec![20; at(LEN)]);
        for (from_ns, len, rate) in takes {
            let to_ns = (from_ns + len).min(LEN);
            edges.push(Edge { at_ns: from_ns, change: rate });
            edges.push(Edge { at_ns: to_ns, change: -rate });
            for at_ns in from_ns..to_ns {
                let left = &mut slow.0[at(at_ns)];
                *left = left.saturating_sub(rate.unsigned_abs());
            }
        }
        edges.sort_by_key(|edge| edge.at_ns);
        let mut fast = Timeline::new(20);
        fast.take(edges.into_iter());
        agree(&fast, &slow)?;
    }
}

#[test]
#[should_panic(expected = "more than a link has left")]
fn a_promise_beyond_what_is_left_is_a_fault() {
    let segment = Segment { from_ns: 0, to_ns: 10, bytes_per_sec: 21 };
    Timeline::new(20).reserve(&[segment], &mut Vec::new(), None);
}

#[test]
fn the_first_free_instant_skips_what_is_taken() {
    let mut timeline = Timeline::new(5);
    let edges = [(10, 9), (20, -9)].map(|(at_ns, change)| Edge { at_ns, change });
    timeline.take(edges.into_iter());
    assert_eq!(timeline.first_free_ns(3), Some(3));
    assert_eq!(timeline.first_free_ns(10), Some(20));
    assert_eq!(timeline.constant_from_ns(), 20);
}
