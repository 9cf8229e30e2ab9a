//! Tables whose rows and copies come by intents and clocks, over UDP on loopback.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use weft_client::keys::{KeyError, KeySession, Mode};
use weft_engine::role::keys::CallError;

use crate::table::{FIRST, KEYS, Site, connect_with, is_local, pulled, row};

const THREADS: usize = 2;
const CLOCKS: u32 = 12;
const PUSHES: u32 = 40;

fn with_table(
    processes: u8,
    (mode, staleness): (Mode, u32),
    work: impl FnOnce(&[KeySession]) + Send,
) {
    let site = Site::on_loopback(processes);
    site.with_udp_home(|| {
        work(&connect_with(&site, |config| config.mode(mode).staleness(staleness)));
    });
}

/// All threads of all processes push one key and pull it, in clocks that begin together: each pull
/// has what this thread has pushed, and what all have pushed in clocks that the bound names.
fn share(sessions: &[KeySession], staleness: u32) {
    let key = FIRST + 7;
    let all = Barrier::new(sessions.len() * THREADS);
    let per_clock = u32::try_from(sessions.len() * THREADS).unwrap() * PUSHES;
    thread::scope(|scope| {
        for session in sessions {
            for number in 0..THREADS {
                let all = &all;
                scope.spawn(move || {
                    let mut last = 0.0;
                    if number == 0 {
                        session.intend(&[key], 1, CLOCKS + 1).unwrap();
                    }
                    for clock in 1..=CLOCKS {
                        for push in 0..PUSHES {
                            session.push(&[key], &row(1.0)).unwrap();
                            let now = pulled(session, key);
                            assert!(now > last, "{now} after {last}: an own push is not seen");
                            last = now;
                            let whole = clock.saturating_sub(staleness + 2) * per_clock;
                            let least = whole + if whole > 0 { push + 1 } else { 0 };
                            assert!(f64::from(now) >= f64::from(least), "{now}, not {least}");
                        }
                        all.wait();
                        if number == 0 {
                            assert_eq!(session.advance_clock().unwrap(), clock + 1);
                        }
                        all.wait();
                    }
                });
            }
        }
    });
    for session in sessions {
        assert_eq!(session.clock(), CLOCKS + 1);
    }
    // Beyond the bound at all of them.
    for session in sessions {
        for _ in 0..=staleness {
            session.advance_clock().unwrap();
        }
        assert_eq!(f64::from(pulled(session, key)), f64::from(per_clock * CLOCKS));
    }
}

#[test]
fn what_many_mean_to_use_is_as_new_as_the_bound() {
    for staleness in [0, 1, 3] {
        with_table(3, (Mode::Relocation, staleness), |sessions| {
            share(sessions, staleness);
            let statistics: Vec<_> = sessions.iter().map(KeySession::statistics).collect();
            let copied: u64 = statistics.iter().map(|it| it.process.copied).sum();
            assert!(copied > 0, "two of three have copies");
        });
    }
}

#[test]
fn stale_tables_are_as_new_as_the_bound() {
    for mode in [Mode::StaleClient, Mode::StaleServer] {
        with_table(3, (mode, 1), |sessions| share(sessions, 1));
    }
}

#[test]
fn a_row_comes_to_the_only_one_who_means_to_use_it() {
    with_table(3, (Mode::Relocation, 1), |sessions| {
        let keys: Vec<u64> = (FIRST..FIRST + u64::from(KEYS)).collect();
        for session in sessions {
            let clock = session.clock();
            session.intend(&keys, clock + 1, clock + 2).unwrap();
            let begun = Instant::now();
            while !keys.iter().all(|key| is_local(session, *key)) {
                assert!(begun.elapsed() < Duration::from_secs(20), "rows do not come");
                thread::sleep(Duration::from_millis(1));
            }
            session.push(&keys, &row(1.0).repeat(keys.len())).unwrap();
            for _ in 0..2 {
                session.advance_clock().unwrap();
            }
        }
        assert!(keys.iter().all(|key| pulled(&sessions[2], *key) == 3.0));
    });
}

#[test]
fn an_intent_for_a_key_that_is_none_is_refused() {
    with_table(1, (Mode::Relocation, 1), |sessions| {
        let error = sessions[0].intend(&[FIRST - 1], 1, 2).unwrap_err();
        assert!(matches!(error, KeyError::Call(CallError::UnknownKey(_))), "{error}");
    });
}
