//! Rows that move between processes, over UDP on loopback and over memory, with a home beside an
//! aggregator as a node has it.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_client::keys::{
    KeyConfig, KeyError, KeySession, KeyStatistics, Mode, OnLoss, SAMPLE_EVERY,
};
use weft_engine::random::Seed;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::keys::{CallError, TableConfig};
use weft_engine::table::{BoxConfig, Table};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Port, memory};
use weft_kernel::Kernels;
use weft_lane::{Homes, KeyTable, Keyed, RoleLane};
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, Nanos};

const ROW_LEN: u16 = 8;
const KEYS: u32 = 300;
const FIRST: u64 = 1_000;
const DEATH: Duration = Duration::from_millis(700);

/// The home and the processes of a table.
struct Site {
    home: SocketAddr,
    processes: Vec<SocketAddr>,
}

impl Site {
    /// On ports of loopback that are free now.
    fn on_loopback(processes: u8) -> Self {
        let sockets: Vec<_> =
            (0..=processes).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let mut addrs: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let home = addrs.pop().unwrap();
        Self { home, processes: addrs }
    }

    fn in_memory(processes: u8) -> Self {
        let addr = |host| SocketAddr::from(([10, 0, 0, host], 4000));
        Self { home: addr(100), processes: (1..=processes).map(addr).collect() }
    }

    fn config(&self, me: u8) -> KeyConfig {
        let mut config = KeyConfig::new(self.home, self.processes.clone(), me, ROW_LEN, KEYS)
            .job(3)
            .first_key(FIRST)
            .call_timeout(Duration::from_secs(20));
        config.beat = Duration::from_millis(50);
        config.limits.queued_max = 4096;
        config
    }

    /// Runs the home on `port` while `work` goes on in this thread.
    fn with_home<P: Port + Send, R>(&self, port: P, work: impl FnOnce() -> R) -> R {
        let local = Endpoint { mac: port.info().mac, addr: self.home };
        let config = BoxConfig {
            local,
            shards: 1,
            mtu: 1500,
            jobs: Vec::new(),
            rows: Vec::new(),
            pushes: Vec::new(),
        };
        let table = TableConfig {
            job: JobId(3),
            table: 0,
            row_len: ROW_LEN,
            first_key: FIRST,
            key_count: KEYS,
            processes: u8::try_from(self.processes.len()).unwrap(),
            payload_max: 1472,
        };
        let death_timeout = Nanos(u64::try_from(DEATH.as_nanos()).unwrap());
        let tables = [KeyTable { table, processes: self.processes.clone(), death_timeout }];
        let homes = Homes::new(local, &tables, &Seed::from(42));
        let engine = Aggregator::new(&Table::new(config).unwrap(), 0, 42, Kernels::detect());
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut lane = RoleLane::new(port, Keyed::new(engine, homes));
                let origin = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    let now = Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap());
                    if lane.breathe(now, &mut ()) == 0 {
                        lane.port_mut().wait(1_000_000);
                    }
                }
            });
            // Also when `work` panics, or nobody would hear of it.
            let _stop = StopOnDrop(&stop);
            work()
        })
    }

    fn with_udp_home<R>(&self, work: impl FnOnce() -> R) -> R {
        self.with_home(UdpPort::open(&UdpConfig::new(self.home)).unwrap(), work)
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Connects all processes, each in a thread of its own, and lets `work` use them.
fn connect(site: &Site) -> Vec<KeySession> {
    connect_with(site, |config| config)
}

fn connect_with(site: &Site, change: impl Fn(KeyConfig) -> KeyConfig + Sync) -> Vec<KeySession> {
    let change = &change;
    let count = u8::try_from(site.processes.len()).unwrap();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|me| {
                let config = change(site.config(me));
                scope.spawn(move || KeySession::connect(&config).unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn over_udp(processes: u8, work: impl FnOnce(&[KeySession])) {
    let site = Site::on_loopback(processes);
    site.with_udp_home(|| work(&connect(&site)));
}

fn over_memory(processes: u8, work: impl FnOnce(&[KeySession])) {
    let site = Site::in_memory(processes);
    let names = ["home", "p0", "p1", "p2"];
    let mut ports = memory::hub(1024, 1500, &names[..=usize::from(processes)]);
    let home = ports.remove(0);
    site.with_home(home, || {
        let sessions: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..processes)
                .zip(ports)
                .map(|(me, port)| {
                    let config = site.config(me);
                    scope.spawn(move || KeySession::over(port, &config).unwrap())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        work(&sessions);
    });
}

fn row(value: f32) -> Vec<f32> {
    vec![value; usize::from(ROW_LEN)]
}

fn pulled(session: &KeySession, key: u64) -> f32 {
    let mut values = row(0.0);
    session.pull(&[key], &mut values).unwrap();
    assert!(values.iter().all(|value| *value == values[0]), "a torn row: {values:?}");
    values[0]
}

fn is_local(session: &KeySession, key: u64) -> bool {
    session.pull_if_local(key, &mut row(0.0)).unwrap()
}

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
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
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

/// A folder of this test's own, gone in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("weft-keys-{}-{name}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// All processes keep round `round` of their table, each in a thread of its own.
fn keep(sessions: &[KeySession], folder: &Folder, round: u64) {
    thread::scope(|scope| {
        for session in sessions {
            scope.spawn(|| session.checkpoint(&folder.0, round).unwrap());
        }
    });
}

fn all_keys() -> Vec<u64> {
    (FIRST..FIRST + u64::from(KEYS)).collect()
}

#[test]
fn the_rows_of_a_dead_process_come_back_as_they_were_kept() {
    let site = Site::on_loopback(3);
    let folder = Folder::new("restore");
    site.with_udp_home(|| {
        let on_loss = OnLoss::Restore(folder.0.clone());
        let mut sessions = connect_with(&site, |config| config.on_loss(on_loss.clone()));
        let keys = all_keys();
        sessions[0].push(&keys, &row(1.0).repeat(keys.len())).unwrap();
        keep(&sessions, &folder, 1);
        // Of what comes after the round, only what dies with its process is lost.
        sessions[1].push(&keys, &row(10.0).repeat(keys.len())).unwrap();
        sessions[0].localize(&[keys[299]]).unwrap();
        drop(sessions.remove(2));
        let begun = Instant::now();
        for (index, key) in keys.iter().enumerate() {
            let expected = if index < 200 || index == 299 { 11.0 } else { 1.0 };
            assert_eq!(pulled(&sessions[index % 2], *key), expected, "key {key}");
        }
        assert!(begun.elapsed() < DEATH * 8, "{:?}", begun.elapsed());
        assert_eq!(sessions[0].restored(), keys[200..299], "the lowest living process has them");
        // And all goes on, rounds too.
        sessions[1].localize(&keys).unwrap();
        sessions[0].push(&keys, &row(1.0).repeat(keys.len())).unwrap();
        assert_eq!(pulled(&sessions[1], keys[250]), 2.0);
        keep(&sessions, &folder, 2);
    });
}

#[test]
fn rows_that_cannot_come_back_end_the_job_with_their_names_and_the_reason() {
    let site = Site::on_loopback(2);
    let folder = Folder::new("none");
    site.with_udp_home(|| {
        let on_loss = OnLoss::Restore(folder.0.clone());
        let mut sessions = connect_with(&site, |config| config.on_loss(on_loss.clone()));
        drop(sessions.remove(1));
        let error = sessions[0].push(&[FIRST + 299], &row(1.0)).unwrap_err();
        let KeyError::NotRestored { keys, .. } = &error else { panic!("{error}") };
        assert!(keys.iter().all(|key| (FIRST + 150..FIRST + 300).contains(key)), "{keys:?}");
        assert!(error.to_string().contains("no whole checkpoint"), "{error}");
    });
}

/// A row that is nowhere when its processes go through all keys: after one, and before the other,
/// it goes from the other to the one.
#[test]
fn a_row_that_comes_between_two_sweeps_is_kept() {
    let folder = Folder::new("between");
    over_udp(2, |sessions| {
        let key = FIRST + 299;
        sessions[1].push(&[key], &row(5.0)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| sessions[0].checkpoint(&folder.0, 1).unwrap());
            let swept = folder.0.join("job3-table0.1.p0.swept");
            let begun = Instant::now();
            while !swept.exists() {
                assert!(begun.elapsed() < Duration::from_secs(10));
                thread::sleep(Duration::from_millis(1));
            }
            sessions[0].localize(&[key]).unwrap();
            // The giver hears that it has arrived, and keeps no copy any more.
            thread::sleep(Duration::from_millis(200));
            sessions[1].checkpoint(&folder.0, 1).unwrap();
        });
    });
    assert_eq!(kept_values(&folder)[299], 5.0);
}

/// Rows move all the time while rounds are kept: each round has every row, and each row no less
/// than was pushed before the round and no more than after it.
#[test]
fn a_round_that_is_kept_while_rows_move_lacks_none() {
    let site = Site::on_loopback(3);
    let folder = Folder::new("moving");
    site.with_udp_home(|| {
        let sessions = connect(&site);
        let keys = all_keys();
        let (is_over, pushes) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            for session in &sessions {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        session.localize(&keys).unwrap();
                        session.push(&keys, &row(1.0).repeat(keys.len())).unwrap();
                        pushes.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            let _stop = StopOnDrop(&is_over);
            for round in 1..=20 {
                let before = pushes.load(Ordering::SeqCst);
                keep(&sessions, &folder, round);
                let after = pushes.load(Ordering::SeqCst) + 3;
                let values = kept_values(&folder);
                assert_eq!(values.len(), keys.len(), "round {round}");
                for value in values {
                    let range = before as f32..=after as f32;
                    assert!(range.contains(&value), "round {round}: {value} not in {range:?}");
                }
            }
        });
        assert!(pushes.into_inner() > 10, "rows have moved");
    });
}

/// The first element of each row of the newest whole round, as another table takes it.
fn kept_values(folder: &Folder) -> Vec<f32> {
    let site = Site::in_memory(1);
    let mut ports = memory::hub(1024, 1500, &["home", "p0"]);
    let home = ports.remove(0);
    site.with_home(home, || {
        let session = KeySession::over(ports.remove(0), &site.config(0)).unwrap();
        session.load(&folder.0).unwrap();
        all_keys().iter().map(|key| pulled(&session, *key)).collect()
    })
}

#[test]
fn a_table_begins_again_with_what_was_kept_and_refuses_what_is_not_its_own() {
    let folder = Folder::new("load");
    over_udp(3, |sessions| {
        let keys = all_keys();
        let values: Vec<f32> = keys.iter().flat_map(|key| row(*key as f32)).collect();
        sessions[1].set(&keys, &values).unwrap();
        sessions[2].localize(&keys[..100]).unwrap();
        keep(sessions, &folder, 4);
        keep(sessions, &folder, 5);
        let error = sessions[0].load(&folder.0.join("none")).unwrap_err().to_string();
        assert!(error.contains("no whole checkpoint"), "{error}");
    });
    let files = || std::fs::read_dir(&folder.0).unwrap().map(|it| it.unwrap().path());
    assert_eq!(files().count(), 6, "two parts a process, and none of round 4");
    over_udp(2, |sessions| {
        for session in sessions {
            assert_eq!(session.load(&folder.0).unwrap(), 5, "kept by three, read by two");
        }
        for key in all_keys() {
            assert_eq!(pulled(&sessions[0], key), key as f32);
        }
        let torn = files().next().unwrap();
        let bytes = std::fs::read(&torn).unwrap();
        std::fs::write(&torn, &bytes[..bytes.len() - 1]).unwrap();
        let error = sessions[0].load(&folder.0).unwrap_err().to_string();
        let name = torn.file_name().unwrap().to_str().unwrap();
        assert!(error.contains(name) && error.contains("torn"), "{error}");
    });
}

#[test]
fn a_round_that_not_all_keep_is_an_error_in_bounded_time() {
    let site = Site::on_loopback(2);
    let folder = Folder::new("alone");
    site.with_udp_home(|| {
        let brief = |config: KeyConfig| config.call_timeout(Duration::from_millis(300));
        let sessions = connect_with(&site, brief);
        let error = sessions[0].checkpoint(&folder.0, 1).unwrap_err();
        assert!(matches!(error, KeyError::RoundOpen { round: 1, .. }), "{error}");
        assert!(sessions[0].load(&folder.0).is_err());
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
