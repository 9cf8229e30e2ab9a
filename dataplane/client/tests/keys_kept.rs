//! Tables of rows that are kept on a disk while they are used, and what comes back from there.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_client::keys::{KeyConfig, KeyError, KeySession, OnLoss};
use weft_io::{Burst, Port, PortInfo, PortStats, memory};
use weft_wire::Nanos;
use weft_wire::frame::Udp;
use weft_wire::header::{Header, Packet};
use weft_wire::keys::What;

use crate::table::{
    DEATH, FIRST, KEYS, Site, StopOnDrop, connect, connect_with, over_udp, pulled, row,
};

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

/// A port to which no row comes.
struct Rowless<P>(P);

impl<P: Port> Port for Rowless<P> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        self.0.rx_burst(now, rx);
        rx.retain(|frame| {
            let octets: &[u8] = (*frame).as_ref();
            let udp = Udp::parse(octets).ok();
            let packet = udp.and_then(|udp| octets.get(udp.payload_range()));
            let header =
                packet.and_then(|it| Header::parse(&Packet::new_unchecked(it.to_vec())).ok());
            header.is_none_or(|header| What::of(&header) != Some(What::Row))
        });
        rx.len()
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        self.0.tx_burst(now, tx)
    }

    fn alloc(&mut self) -> Option<P::Frame> {
        self.0.alloc()
    }

    fn info(&self) -> PortInfo {
        self.0.info()
    }

    fn stats(&self) -> PortStats {
        self.0.stats()
    }

    fn is_open(&self) -> bool {
        self.0.is_open()
    }
}

/// A row that is on its way all the time: who gave it away keeps a copy, and keeps that.
#[test]
fn a_row_that_is_on_its_way_is_kept_by_its_giver() {
    let folder = Folder::new("on-its-way");
    let site = Site::in_memory(2);
    let mut ports = memory::hub(1024, 1500, &["home", "p0", "p1"]);
    let (home, first) = (ports.remove(0), ports.remove(0));
    site.with_home(home, || {
        let [(config, port), (other, rowless)] =
            [(site.config(0), first), (site.config(1), ports.remove(0))];
        thread::scope(|scope| {
            let one = scope.spawn(move || KeySession::over(port, &config).unwrap());
            let two = scope.spawn(move || KeySession::over(Rowless(rowless), &other).unwrap());
            let sessions = [one.join().unwrap(), two.join().unwrap()];
            sessions[0].push(&[FIRST], &row(5.0)).unwrap();
            let coming = sessions[1].start_localize(&[FIRST]).unwrap();
            let begun = Instant::now();
            while sessions[0].statistics().process.rows_given == 0 {
                assert!(begun.elapsed() < Duration::from_secs(10), "nobody asks for the row");
                thread::sleep(Duration::from_millis(1));
            }
            keep(&sessions, &folder, 1);
            assert!(!coming.is_finished(), "the row was on its way until now");
        });
    });
    assert_eq!(kept_values(&folder)[0], 5.0);
}
