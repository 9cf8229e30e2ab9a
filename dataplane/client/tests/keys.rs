//! Sessions of keys over UDP on the loopback, each process one session of this program, and their
//! box: what peers' functional tests check, in our own words.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use weft_client::keys::{KeptRow, KeyConfig, KeyError, KeyHome, KeyHomeConfig, KeySession, OnLoss};

const ROW_LEN: u16 = 4;

/// Addresses that nobody uses.
fn free_addrs(count: usize) -> Vec<SocketAddr> {
    let sockets: Vec<_> =
        (0..count).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a free port")).collect();
    sockets.iter().map(|socket| socket.local_addr().expect("it has one")).collect()
}

/// A box and its processes, all of which have joined.
struct Job {
    home: Option<KeyHome>,
    home_config: KeyHomeConfig,
    sessions: Vec<KeySession>,
}

impl Job {
    fn start(processes: usize, keys: u32, change: impl Fn(KeyConfig) -> KeyConfig) -> Self {
        let addrs = free_addrs(processes + 1);
        let (home, processes) = addrs.split_first().expect("one at least");
        let configs: Vec<_> = (0..)
            .zip(processes)
            .map(|(me, _)| change(KeyConfig::new(me, *home, processes).rows(keys, ROW_LEN)))
            .collect();
        let home_config = KeyHomeConfig::of(&configs[0]).death_timeout(Duration::from_millis(700));
        let home = Some(KeyHome::start(&home_config).expect("the box starts"));
        let joining = configs.into_iter().map(|config| {
            thread::spawn(move || KeySession::connect(&config).expect("the process joins"))
        });
        let joining: Vec<_> = joining.collect();
        let sessions = joining.into_iter().map(|thread| thread.join().expect("it joins")).collect();
        Self { home, home_config, sessions }
    }
}

fn same(config: KeyConfig) -> KeyConfig {
    config
}

#[test]
fn rows_begin_in_equal_ranges_and_are_where_they_were_localized() {
    let job = Job::start(3, 36, same);
    let mut row = [0.0; 4];
    for key in 0..36 {
        for (process, session) in (0..).zip(&job.sessions) {
            let is_here = session.pull_if_local(key, &mut row).expect("a key");
            assert_eq!(is_here, key / 12 == process, "key {key} at process {process}");
        }
    }
    job.sessions[2].localize(&[0, 1, 13, 30]).expect("they come");
    for key in [0, 1, 13, 30] {
        assert!(job.sessions[2].pull_if_local(key, &mut row).expect("a key"));
        assert!(!job.sessions[0].pull_if_local(key, &mut row).expect("a key"));
    }
}

#[test]
fn operations_on_many_keys_give_known_values() {
    let job = Job::start(3, 100, same);
    let keys: Vec<u64> = (0..100).collect();
    let value_of = |key: u64, add: f32| {
        let key = f32::from(u8::try_from(key).expect("small"));
        [key, key * 2.0, add, -key]
    };
    let values: Vec<f32> = keys.iter().flat_map(|key| value_of(*key, 1.0)).collect();
    job.sessions[0].set(&keys, &values).expect("set");
    let terms: Vec<f32> = keys.iter().flat_map(|_| [0.0, 0.0, 1.0, 0.0]).collect();
    let tickets: Vec<_> =
        job.sessions.iter().map(|session| session.start_push(&keys, &terms)).collect();
    for ticket in tickets {
        ticket.expect("pushed").wait().expect("added");
    }
    job.sessions[1].localize(&keys[20..70]).expect("they come");
    for session in &job.sessions {
        let mut read = vec![0.0; 400];
        session.pull(&keys, &mut read).expect("pulled");
        let expected: Vec<f32> = keys.iter().flat_map(|key| value_of(*key, 4.0)).collect();
        assert_eq!(read, expected);
        let ticket = session.start_pull(&keys[50..60]).expect("asked");
        assert_eq!(ticket.wait().expect("pulled"), expected[200..240]);
    }
}

#[test]
fn one_hot_key_that_everybody_wants_has_the_exact_sum() {
    const PUSHES: u16 = 2_000;
    const EVERY: u16 = 20;
    let job = Job::start(3, 1, same);
    let threads = job.sessions.iter().flat_map(|session| [session.clone(), session.clone()]);
    let all_begin = Arc::new(Barrier::new(6));
    let threads: Vec<_> = threads
        .map(|session| {
            let all_begin = Arc::clone(&all_begin);
            thread::spawn(move || {
                all_begin.wait();
                let mut tickets = Vec::new();
                let mut row = [0.0; 4];
                for push in 0..PUSHES {
                    if push % EVERY == 0 {
                        // Or the process that has the row is done before anybody gets it.
                        thread::sleep(Duration::from_millis(1));
                        session.localize(&[0]).expect("it comes");
                    }
                    tickets.push(session.start_push(&[0], &[1.0, 0.0, 0.0, 2.0]).expect("pushed"));
                    if push % 16 == 0 {
                        let before = row[0];
                        session.pull(&[0], &mut row).expect("pulled");
                        assert!(row[0] >= f32::from(push + 1), "its own pushes are in");
                        assert!(row[0] >= before, "the row does not grow younger");
                    }
                }
                for ticket in tickets {
                    ticket.wait().expect("added");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no assertion fails");
    }
    let mut row = [0.0; 4];
    job.sessions[0].pull(&[0], &mut row).expect("pulled");
    assert_eq!(row, [12_000.0, 0.0, 0.0, 24_000.0]);
    let moves: u64 =
        job.sessions.iter().map(|session| session.statistics().engine.rows_taken).sum();
    assert!(moves > 20, "{moves}");
}

#[test]
fn a_box_that_restarts_in_the_middle_of_moves_loses_nothing() {
    let mut job = Job::start(3, 50, same);
    let workers: Vec<_> = (0_u64..)
        .zip(job.sessions.clone())
        .map(|(worker, session)| {
            thread::spawn(move || {
                for step in 0..1_500_u64 {
                    let key = (step * 7 + worker * 13) % 50;
                    if step % 5 == 0 {
                        session.localize(&[key]).expect("it comes");
                    }
                    session.push(&[key], &[1.0; 4]).expect("added");
                }
            })
        })
        .collect();
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(60));
        job.home = None;
        job.home = Some(KeyHome::start(&job.home_config).expect("it begins again"));
    }
    for worker in workers {
        worker.join().expect("nothing is lost");
    }
    let keys: Vec<u64> = (0..50).collect();
    let mut rows = vec![0.0; 200];
    job.sessions[1].pull(&keys, &mut rows).expect("pulled");
    assert_eq!(rows.iter().sum::<f32>(), 4.0 * 3.0 * 1_500.0);
}

#[test]
fn a_job_that_loses_rows_ends_with_an_error_that_names_them() {
    let mut job = Job::start(3, 30, |config| config.timeout(Duration::from_secs(20)));
    let dead = job.sessions.remove(1);
    dead.close();
    let error = job.sessions[0].push(&[12], &[1.0; 4]).expect_err("its row is gone");
    // The lowest living process is told of what is lost.
    assert!(matches!(error, KeyError::Lost { first: 10, others: _ }), "{error}");
    assert!(error.to_string().starts_with("rows are lost with a process that died, key 10 and"));
}

#[test]
fn a_job_may_go_on_from_what_it_kept() {
    let kept = |key: u64| {
        let value = vec![f32::from(u8::try_from(key).expect("small")); 4];
        Some(KeptRow { value, lasts: Vec::new() })
    };
    let on_loss = OnLoss::Restore(Arc::new(kept));
    let mut job = Job::start(3, 30, |config| config.on_loss(on_loss.clone()));
    drop(job.sessions.remove(2));
    let mut row = [0.0; 4];
    job.sessions[1].pull(&[25], &mut row).expect("it is restored");
    assert_eq!(row, [25.0; 4]);
    job.sessions[1].pull(&[15], &mut row).expect("nothing happened to it");
    assert_eq!(row, [0.0; 4]);
}

#[test]
fn bad_input_is_one_clear_error() {
    let addrs = free_addrs(2);
    let config = |keys, row_len| KeyConfig::new(0, addrs[0], &addrs[1..]).rows(keys, row_len);
    let refused = |config: &KeyConfig| KeySession::connect(config).expect_err("bad").to_string();
    assert!(refused(&config(0, 4)).contains("a table of 0 keys cannot be made"));
    assert!(refused(&config(9, 2_000)).contains("use shorter rows, fewer processes"));
    assert!(refused(&KeyConfig::new(0, addrs[0], &[])).contains("one address for each"));
    let unheard = config(9, 4).connect_timeout(Duration::from_millis(100));
    assert!(refused(&unheard).contains("could not be joined within 100ms"));

    let job = Job::start(2, 10, same);
    let session = &job.sessions[0];
    let says = |error: KeyError| error.to_string();
    let unknown = session.push(&[10], &[0.0; 4]).expect_err("no such key");
    assert!(says(unknown).starts_with("key 10 is not in the table"));
    let short = session.push(&[1], &[0.0; 3]).expect_err("too short");
    assert_eq!(says(short), "3 elements were given for 1 keys: rows have 4 elements each");
}
