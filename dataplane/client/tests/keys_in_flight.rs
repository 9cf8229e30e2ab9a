//! Tables with several accesses to a key in flight, over UDP on loopback: each push and set counts
//! once, and what has ended comes before what is called after it; no more.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use weft_client::keys::{KeyConfig, KeyError, KeySession, KeyTicket, Mode};
use weft_engine::role::keys::TableError;

use crate::table::{FIRST, Site, connect_with, pulled, row};

const THREADS: usize = 2;
const ROUNDS: u32 = 400;
const OPEN: usize = 8;

fn with_table(processes: u8, mode: Mode, work: impl FnOnce(&[KeySession]) + Send) {
    let site = Site::on_loopback(processes);
    site.with_udp_home(|| work(&connect_with(&site, |config| config.mode(mode).in_flight(4))));
}

/// All threads of all processes push one key and pull it, up to eight tickets at a time, while it
/// moves; then nothing is missing, and nothing is there twice.
fn share(sessions: &[KeySession], moves: bool) {
    let key = FIRST + 7;
    thread::scope(|scope| {
        for (place, session) in sessions.iter().enumerate() {
            for _ in 0..THREADS {
                scope.spawn(move || {
                    let mut open = VecDeque::new();
                    let mut ended = 0;
                    for round in 0..ROUNDS {
                        if open.len() >= OPEN {
                            let (push, pull, before): (KeyTicket, KeyTicket, u32) =
                                open.pop_front().unwrap();
                            push.wait().unwrap();
                            let seen = f64::from(pull.wait().unwrap()[0]);
                            assert!(seen >= f64::from(before), "what had ended");
                            ended += 1;
                        }
                        let push = session.start_push(&[key], &row(1.0)).unwrap();
                        let pull = session.start_pull(&[key]).unwrap();
                        open.push_back((push, pull, ended));
                        if moves && round % 50 == u32::try_from(place).unwrap() {
                            session.localize(&[key]).unwrap();
                        }
                    }
                    for (push, pull, _) in open {
                        push.wait().unwrap();
                        pull.wait().unwrap();
                    }
                    assert!(f64::from(pulled(session, key)) >= f64::from(ROUNDS), "own pushes");
                });
            }
        }
    });
    let all = u32::try_from(sessions.len() * THREADS).unwrap() * ROUNDS;
    for session in sessions {
        assert_eq!(f64::from(pulled(session, key)), f64::from(all));
    }
}

#[test]
fn one_hot_key_has_every_push_once() {
    with_table(3, Mode::Relocation, |sessions| share(sessions, true));
    with_table(3, Mode::Classic, |sessions| share(sessions, false));
}

/// The row of a set that has ended is seen; tickets that are open have no order.
#[test]
fn set_that_has_ended_is_seen_and_not_lost() {
    with_table(2, Mode::Relocation, |sessions| {
        let [owner, other] = sessions else { panic!("two processes") };
        for round in 0..100_u16 {
            let key = FIRST + u64::from(round % 3);
            other.set(&[key], &row(f32::from(round))).unwrap();
            let pushes: Vec<_> =
                (0..4).map(|_| other.start_push(&[key], &row(1.0)).unwrap()).collect();
            for push in pushes {
                push.wait().unwrap();
            }
            for session in [other, owner] {
                assert_eq!(pulled(session, key), f32::from(round) + 4.0);
            }
        }
    });
}

#[test]
fn accesses_to_one_key_do_not_wait_for_each_other() {
    with_table(2, Mode::Relocation, |sessions| {
        let other = &sessions[1];
        let calls: Vec<_> = (0..64)
            .flat_map(|_| {
                let push = other.start_push(&[FIRST], &row(1.0)).unwrap();
                [push, other.start_pull(&[FIRST]).unwrap()]
            })
            .collect();
        for call in calls {
            call.wait().unwrap();
        }
        assert_eq!(pulled(other, FIRST), 64.0);
    });
}

#[test]
fn what_cannot_be_is_one_clear_error() {
    let site = Site::on_loopback(2);
    let refused = |config: KeyConfig| config.check().unwrap_err();
    for (in_flight, mode) in [(0, Mode::Relocation), (5, Mode::Relocation), (2, Mode::StaleServer)]
    {
        let error = refused(site.config(0).mode(mode).in_flight(in_flight));
        let is_named = matches!(error, KeyError::Table(TableError::InFlight(n)) if n == in_flight);
        assert!(is_named, "{error}");
    }
    // Those who say less than others do not come in.
    site.with_udp_home(|| {
        thread::scope(|scope| {
            let configs = [site.config(0).in_flight(2), site.config(1)];
            let [more, less] = configs.map(|config| {
                let config = config.connect_timeout(Duration::from_secs(3));
                scope.spawn(move || KeySession::connect(&config).err())
            });
            let (more, less) = (more.join().unwrap(), less.join().unwrap());
            assert!(matches!(less, Some(KeyError::NoHome { .. })), "{less:?}");
            assert!(more.is_none(), "{more:?}");
        });
    });
}
