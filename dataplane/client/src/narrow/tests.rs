use weft_wire::frame::Endpoint;
use weft_wire::{JobId, MacAddr, Members};

use super::*;

const PATIENCE: Nanos = Nanos::from_millis(5_000);

fn probe(life: u64, now: Nanos) -> Option<PathProbe> {
    let end = |host: u8| Endpoint {
        mac: MacAddr::BROADCAST,
        addr: SocketAddr::from(([10, 0, 0, host], 22341)),
    };
    let (local, target) = (end(1), end(2));
    let (job, members) = (JobId(0), Members(1));
    let of = PathProbeConfig { job, row: 0, members, local, target, probe_len: 1000 };
    PathProbe::new(of, life, now)
}

/// How many frames leave at `ms`.
fn sent(watch: &mut Watch, ms: u64) -> usize {
    let now = Nanos::from_millis(ms);
    let mut frame = [0; 1514];
    std::iter::from_fn(|| watch.poll_transmit(now, &mut frame)).count()
}

fn look(watch: &mut Watch, ms: u64, is_stuck: bool) -> Vec<u64> {
    let now = Nanos::from_millis(ms);
    let mut lives = Vec::new();
    let found = watch.look(now, is_stuck, |life| {
        lives.push(life);
        probe(life, now)
    });
    assert_eq!(found, None, "nobody has answered");
    lives
}

#[test]
fn only_a_session_that_is_stuck_for_long_has_its_path_probed() {
    let mut watch = Watch::new(PATIENCE, 7);
    assert_eq!(watch.poll_timeout(), Nanos::MAX);
    for ms in (0..60_000).step_by(1_000) {
        // It comes on every four seconds.
        assert_eq!(look(&mut watch, ms, ms % 4_000 != 0), []);
        assert_eq!(sent(&mut watch, ms), 0);
    }
    assert_eq!(watch.poll_timeout(), Nanos::from_millis(62_000), "since 57 s");
    assert_eq!(look(&mut watch, 61_999, true), []);
    assert_eq!(look(&mut watch, 62_000, true), [8]);
    assert_eq!(sent(&mut watch, 62_000), 1);
}

#[test]
fn a_probe_that_finds_nothing_is_made_again_and_one_that_is_not_needed_goes() {
    let mut watch = Watch::new(PATIENCE, 7);
    assert_eq!(look(&mut watch, 0, true), []);
    assert_eq!(look(&mut watch, 5_000, true), [8]);
    assert_eq!(look(&mut watch, 5_499, true), [], "it is not over");
    assert_eq!(look(&mut watch, 5_500, true), [], "nobody has answered");
    assert_eq!(sent(&mut watch, 5_500), 0);
    assert_eq!(look(&mut watch, 10_499, true), []);
    assert_eq!(look(&mut watch, 10_500, true), [9], "another life");
    assert_eq!(sent(&mut watch, 10_500), 1);
    assert_eq!(look(&mut watch, 10_600, false), []);
    assert_eq!(sent(&mut watch, 10_700), 0, "it goes on");
}
