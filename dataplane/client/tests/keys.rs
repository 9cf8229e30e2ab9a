//! Rows that move between processes, over UDP on loopback and over memory, with a home beside an
//! aggregator as a node has it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_client::keys::{KeyError, KeySession, KeyStatistics, Mode, SAMPLE_EVERY};
use weft_engine::role::keys::CallError;

use crate::table::{
    DEATH, FIRST, KEYS, ROW_LEN, Site, StopOnDrop, connect, connect_with, is_local, over_memory,
    over_udp, pulled, row,
};

/// Every thread pushes and pulls one key while everybody localizes it; nothing is lost or counted
/// twice, and each thread sees what it has pushed.
fn hot_key(sessions: &[KeySession], threads: usize, rounds: u32, localize_every: u32) {
    let key = FIRST + 7;
    let barrier = Barrier::new(sessions.len() * threads);
    thread::scope(|scope| {
        for session in sessions {
            for _ in 0..threads {
                scope.spawn(|| {
                    barrier.wait();
                    let mut last = 0.0;
                    for round in 0..rounds {
                        if round % localize_every == 0 {
                            session.localize(&[key]).unwrap();
                        }
                        session.push(&[key], &row(1.0)).unwrap();
                        let now = pulled(session, key);
                        assert!(now > last, "{now} after {last}: an own push is not seen");
                        last = now;
                    }
                });
            }
        }
    });
    let count = u32::try_from(sessions.len() * threads).unwrap() * rounds;
    for session in sessions {
        assert_eq!(f64::from(pulled(session, key)), f64::from(count));
    }
}

#[test]
fn one_hot_key_moves_between_two_processes_and_its_sum_is_exact() {
    over_udp(2, |sessions| {
        hot_key(sessions, 2, 10_000, 1_000);
        let moved: u64 = sessions.iter().map(|it| it.statistics().process.localizes).sum();
        assert!(moved > 0, "the row has moved");
    });
}

#[test]
fn one_hot_key_moves_all_the_time_between_three_processes() {
    over_memory(3, |sessions| hot_key(sessions, 2, 300, 3));
}

fn locality(sessions: &[KeySession]) {
    let keys: Vec<u64> = (FIRST..FIRST + u64::from(KEYS)).collect();
    for session in sessions {
        session.localize(&keys).unwrap();
        assert!(keys.iter().all(|key| is_local(session, *key)));
        let before = session.statistics().process.accesses;
        session.push(&keys, &row(1.0).repeat(keys.len())).unwrap();
        assert_eq!(session.statistics().process.accesses, before, "nothing left the process");
        for other in sessions.iter().filter(|other| !std::ptr::eq(*other, session)) {
            assert!(keys.iter().all(|key| !is_local(other, *key)));
        }
    }
    let expected = f32::from(u8::try_from(sessions.len()).unwrap());
    assert!(keys.iter().all(|key| pulled(&sessions[0], *key) == expected));
}

#[test]
fn rows_are_where_they_were_localized_over_udp() {
    over_udp(3, locality);
}

#[test]
fn rows_are_where_they_were_localized_over_memory() {
    over_memory(2, locality);
}

/// Calls of many keys, here and elsewhere, against what they should give.
#[test]
fn many_keys_have_the_values_that_were_set_and_pushed() {
    over_udp(3, |sessions| {
        let keys: Vec<u64> = (FIRST..FIRST + u64::from(KEYS)).rev().collect();
        let values: Vec<f32> = (0..KEYS * u32::from(ROW_LEN))
            .map(|value| f32::from(u16::try_from(value).unwrap()))
            .collect();
        sessions[0].set(&keys, &values).unwrap();
        let ticket = sessions[1].start_push(&keys, &values).unwrap();
        ticket.wait().unwrap();
        let all = sessions[2].start_pull(&keys).unwrap();
        let twice: Vec<f32> = values.iter().map(|value| value * 2.0).collect();
        assert_eq!(all.wait().unwrap(), twice);
        // Some are here now, some are not.
        sessions[2].localize(&keys[3..90]).unwrap();
        let mut found = vec![0.0; values.len()];
        sessions[2].pull(&keys, &mut found).unwrap();
        assert_eq!(found, twice);
        assert_eq!(sessions[2].start_pull(&keys).unwrap().wait().unwrap(), twice);
        sessions[1].set(&keys, &values).unwrap();
        sessions[0].pull(&keys, &mut found).unwrap();
        assert_eq!(found, values);
    });
}

/// Tickets of one thread on one key happen in the order of its calls, while another thread of its
/// process has the row come and another process takes it away.
#[test]
fn a_threads_tickets_are_not_overtaken_by_another_threads_localize() {
    over_udp(2, |sessions| {
        let key = FIRST;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for session in sessions {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        session.localize(&[key]).unwrap();
                    }
                });
            }
            let _stop = StopOnDrop(&stop);
            for round in 1..=1_500_u16 {
                let session = &sessions[0];
                let set = session.start_set(&[key], &row(f32::from(round) * 10.0)).unwrap();
                let push = session.start_push(&[key], &row(1.0)).unwrap();
                let pull = session.start_pull(&[key]).unwrap();
                let values = pull.wait().unwrap();
                assert_eq!(values, row(f32::from(round) * 10.0 + 1.0));
                assert!(set.is_finished() && push.is_finished(), "they came before");
                set.wait().unwrap();
                push.wait().unwrap();
            }
        });
    });
}

#[test]
fn calls_that_cannot_be_are_named_and_change_nothing() {
    over_udp(2, |sessions| {
        let session = &sessions[0];
        let unknown = FIRST + u64::from(KEYS);
        let refused = |error| match error {
            KeyError::Call(error) => error,
            other => panic!("{other}"),
        };
        let two = [FIRST, unknown];
        let error = session.push(&two, &row(1.0).repeat(2)).unwrap_err();
        assert_eq!(refused(error), CallError::UnknownKey(unknown));
        let error = session.localize(&two).unwrap_err();
        assert_eq!(refused(error), CallError::UnknownKey(unknown));
        let error = session.pull(&[FIRST - 1], &mut row(0.0)).unwrap_err();
        assert_eq!(refused(error), CallError::UnknownKey(FIRST - 1));
        let error = session.set(&[FIRST], &[1.0; 3]).unwrap_err();
        assert_eq!(refused(error), CallError::RowLen { given: 3, row_len: ROW_LEN });
        let error = session.push(&[FIRST, FIRST + 1], &row(1.0)).unwrap_err();
        assert!(matches!(error, KeyError::Values { given: 8, keys: 2, row_len: ROW_LEN }));
        assert_eq!(pulled(session, FIRST), 0.0);
        assert_eq!(pulled(&sessions[1], FIRST), 0.0);
    });
}

/// Connects the processes of a table of this mode.
fn in_mode(processes: u8, mode: Mode, work: impl FnOnce(&[KeySession])) {
    let site = Site::on_loopback(processes);
    site.with_udp_home(|| work(&connect_with(&site, |config| config.mode(mode))));
}

#[test]
fn rows_of_classic_tables_stay_and_every_operation_is_exact() {
    for mode in [Mode::Classic, Mode::ClassicFastLocal] {
        in_mode(2, mode, |sessions| {
            hot_key(sessions, 2, 100, 10);
            let (near, far) = (FIRST, FIRST + u64::from(KEYS) - 1);
            sessions[0].localize(&[far]).unwrap();
            assert!(!is_local(&sessions[0], far), "{mode:?}: it has stayed");
            assert_eq!(sessions[0].statistics().latencies.localize.count(), 0, "nothing was done");
            let is_fast = mode == Mode::ClassicFastLocal;
            assert_eq!(is_local(&sessions[0], near), is_fast, "{mode:?}");
            let before = sessions[0].statistics();
            sessions[0].push(&[near], &row(2.0)).unwrap();
            let after = sessions[0].statistics();
            let left = after.process.accesses - before.process.accesses;
            assert_eq!(
                (left, after.local - before.local),
                (1 - u64::from(is_fast), u64::from(is_fast))
            );
            assert_eq!(pulled(&sessions[1], near), 2.0);
            assert!(sessions.iter().all(|it| it.statistics().process.rows_given == 0));
        });
    }
}

/// What was called is counted once, as what it was and where the row was.
#[test]
fn operations_are_timed_by_what_they_are_and_where_the_row_was() {
    over_udp(2, |sessions| {
        let (near, far) = (FIRST, FIRST + u64::from(KEYS) - 1);
        let session = &sessions[0];
        for _ in 0..20 {
            session.push(&[far], &row(1.0)).unwrap();
        }
        for _ in 0..10 {
            pulled(session, far);
        }
        session.localize(&[far, near]).unwrap();
        for _ in 0..SAMPLE_EVERY {
            pulled(session, near);
            session.push(&[near], &row(1.0)).unwrap();
        }
        let KeyStatistics { local, latencies, process } = session.statistics();
        let counted = [&latencies.pull_remote, &latencies.push_remote, &latencies.localize];
        assert_eq!(counted.map(|it| it.count()), [10, 20, 1], "near was here already");
        assert_eq!(latencies.pull_local.count() + latencies.push_local.count(), 2, "one in 251");
        let [local_ns, remote_ns] = [&latencies.pull_local, &latencies.pull_remote]
            .map(|it| it.per_mille(1000).unwrap_or(0));
        assert!(local_ns < remote_ns, "{local_ns} {remote_ns}");
        assert_eq!((local, process.remote), (2 * u64::from(SAMPLE_EVERY), 30));
        let share = session.statistics().local_share();
        assert!((share - 502.0 / 532.0).abs() < 1e-9, "{share}");
    });
}

/// More operations than have room: they wait for it, and all happen.
#[test]
fn what_has_no_room_waits_for_it() {
    over_udp(2, |sessions| {
        // The other process's half.
        let keys: Vec<u64> = (FIRST..FIRST + u64::from(KEYS) / 2).collect();
        let tickets: Vec<_> = (0..60)
            .map(|_| sessions[1].start_push(&keys, &row(1.0).repeat(keys.len())).unwrap())
            .collect();
        for ticket in tickets {
            ticket.wait().unwrap();
        }
        assert!(keys.iter().all(|key| pulled(&sessions[0], *key) == 60.0));
    });
}

#[test]
fn what_never_has_room_is_an_error_that_names_the_keys_in_bounded_time() {
    let site = Site::on_loopback(2);
    site.with_udp_home(|| {
        let mut sessions = thread::scope(|scope| {
            let threads = [0, 1].map(|me| {
                let mut config = site.config(me).call_timeout(Duration::from_millis(200));
                config.limits.active_keys_max = 4;
                scope.spawn(move || KeySession::connect(&config).unwrap())
            });
            threads.map(|thread| thread.join().unwrap()).into_iter().collect::<Vec<_>>()
        });
        // Nobody answers for the first half any more.
        drop(sessions.remove(0));
        let keys: Vec<u64> = (FIRST..FIRST + 6).collect();
        let begun = Instant::now();
        let error = sessions[0].start_push(&keys, &row(1.0).repeat(6)).unwrap_err();
        let KeyError::Full { keys: refused, .. } = error else { panic!("{error}") };
        assert_eq!(refused, keys[4..]);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_lost_process_is_an_error_that_names_its_keys_in_bounded_time() {
    let site = Site::on_loopback(3);
    site.with_udp_home(|| {
        let mut sessions = connect(&site);
        drop(sessions.remove(2));
        let begun = Instant::now();
        // The last third was there. Who is to restore the rows hears first.
        let key = FIRST + u64::from(KEYS) - 1;
        let error = sessions[0].push(&[key], &row(1.0)).unwrap_err();
        let KeyError::RowsLost { keys } = &error else { panic!("{error}") };
        assert!(keys.iter().all(|key| (FIRST + 200..FIRST + 300).contains(key)), "{keys:?}");
        assert!(error.to_string().contains("restart the job"), "{error}");
        assert!(begun.elapsed() < DEATH * 8, "{:?}", begun.elapsed());
        let error = sessions[0].pull_if_local(FIRST, &mut row(0.0)).unwrap_err();
        assert!(matches!(error, KeyError::RowsLost { .. }), "{error}");
    });
}

#[test]
fn a_home_that_is_not_there_is_an_error_that_names_it() {
    let site = Site::on_loopback(2);
    let config = site.config(0).connect_timeout(Duration::from_millis(100));
    let error = KeySession::connect(&config).unwrap_err();
    let KeyError::NoHome { home, .. } = error else { panic!("{error}") };
    assert_eq!(home, site.home);
}
