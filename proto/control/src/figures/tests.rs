use super::*;

/// Every figure is 7 or more, and no two are the same.
fn figures() -> BoxFigures {
    let band = |queue: u64| BandFigures {
        sent: 100 + queue,
        sent_bytes: 200 + queue,
        full: 300 + queue,
        aged: 400 + queue,
        wait_max_ns: 500 + queue,
        waiting: 600 + queue,
        waiting_bytes: 700 + queue,
        oldest_ns: 800 + queue,
    };
    BoxFigures {
        drops: core::array::from_fn(|at| 10 + at as u64),
        drops_other: 7,
        rx_dropped: 8,
        tx_dropped: 9,
        bands: Some(core::array::from_fn(|queue| band(queue as u64))),
    }
}

#[test]
fn what_only_grows_may_not_shrink_and_what_waits_may() {
    let before = figures();
    assert!(before.continues(&before) && before.continues(&BoxFigures::default()));
    let shrinks: [fn(&mut BoxFigures); 10] = [
        |it| it.drops[0] -= 1,
        |it| it.drops[DropReason::COUNT - 1] -= 1,
        |it| it.drops_other -= 1,
        |it| it.rx_dropped -= 1,
        |it| it.tx_dropped -= 1,
        |it| it.bands.as_mut().unwrap()[8].sent -= 1,
        |it| it.bands.as_mut().unwrap()[0].sent_bytes -= 1,
        |it| it.bands.as_mut().unwrap()[3].full -= 1,
        |it| it.bands.as_mut().unwrap()[3].aged -= 1,
        |it| it.bands = None,
    ];
    for (which, shrink) in shrinks.iter().enumerate() {
        let mut now = before.clone();
        shrink(&mut now);
        assert!(!now.continues(&before), "{which}");
    }
    let mut now = before.clone();
    now.forget_waiting();
    assert!(now.continues(&before));
    assert_eq!(
        now.bands.unwrap()[4],
        BandFigures { waiting: 0, waiting_bytes: 0, oldest_ns: 0, ..before.bands.unwrap()[4] }
    );
}

#[test]
fn sums_count_all_and_never_overflow() {
    let mut sum = figures().plus(&figures());
    assert_eq!((sum.drops[3], sum.drops_other, sum.rx_dropped, sum.tx_dropped), (26, 14, 16, 18));
    let band = sum.bands.unwrap()[2];
    assert_eq!((band.sent, band.full, band.waiting), (204, 604, 1204));
    assert_eq!((band.wait_max_ns, band.oldest_ns), (502, 802), "the longest, not the sum");
    assert_eq!(figures().plus(&BoxFigures::default()), figures());
    assert_eq!(BoxFigures::default().plus(&figures()), figures());
    sum.drops = [u64::MAX; DropReason::COUNT];
    sum.bands.as_mut().unwrap()[2].sent_bytes = u64::MAX;
    let most = sum.plus(&sum);
    assert_eq!((most.drops[3], most.bands.unwrap()[2].sent_bytes), (u64::MAX, u64::MAX));
}
