//! A real process that is the home of a table of rows, and sessions of `weft-client`.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{ConfigFile, Running, run_to_end, weft_node};
use nix::sys::signal::Signal;
use weft_client::keys::{KeyConfig, KeySession};
use weft_config::StatsFormat;
use weft_config::node::{Io, KeysSection, NodeConfig, PortSection};

const ROW_LEN: u16 = 20;
const KEYS: u32 = 60;
/// How often the home is killed.
const KILLS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(30);

fn free_addrs<const COUNT: usize>() -> [SocketAddr; COUNT] {
    let sockets = [(); COUNT].map(|()| UdpSocket::bind("127.0.0.1:0").expect("loopback has ports"));
    sockets.map(|socket| socket.local_addr().expect("it is bound"))
}

fn config(home: SocketAddr, processes: Vec<SocketAddr>) -> NodeConfig {
    let mut port = PortSection::new(Io::Udp, IpAddr::from([127, 0, 0, 1]));
    port.udp_port = home.port();
    let mut config = NodeConfig::new(port);
    config.node.stats_format = StatsFormat::Json;
    config.keys.push(KeysSection::new(2, ROW_LEN, KEYS, processes));
    config
}

/// Both processes of the table.
fn joined(home: SocketAddr, processes: &[SocketAddr]) -> [KeySession; 2] {
    let connect = |me| {
        let config = KeyConfig::new(home, processes.to_vec(), me, ROW_LEN, KEYS).job(2);
        KeySession::connect(&config).expect("the home is there")
    };
    thread::scope(|scope| {
        [0, 1].map(|me| scope.spawn(move || connect(me))).map(|it| it.join().expect("no panic"))
    })
}

#[test]
fn a_node_is_the_home_of_rows_that_move() {
    let [home, first, second] = free_addrs();
    let processes = vec![first, second];
    let file = ConfigFile::new("home", &config(home, processes.clone()));
    let node = Running::start(&mut weft_node(&file, &[]));
    let sessions = joined(home, &processes);
    let keys: Vec<u64> = (0..KEYS.into()).collect();
    let ones = vec![1.0; keys.len() * usize::from(ROW_LEN)];
    thread::scope(|scope| {
        for session in &sessions {
            scope.spawn(|| {
                for _ in 0..50 {
                    session.localize(&keys).expect("all are there");
                    session.push(&keys, &ones).expect("all are there");
                }
            });
        }
    });
    let mut values = vec![0.0; ones.len()];
    for session in &sessions {
        session.pull(&keys, &mut values).expect("all are there");
        assert!(values.iter().all(|value| *value == 100.0), "{values:?}");
    }
    let moved: u64 = sessions.iter().map(|it| it.statistics().process.rows_taken).sum();
    drop(sessions);
    let ended = node.end(Signal::SIGTERM);
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let table = &json["tables"][0];
    let figures = ["job", "table", "life", "living", "lives", "deaths"].map(|it| &table[it]);
    assert_eq!(figures, [2, 0, 1, 2, 1, 0], "{table}");
    let acks = table["row_acks"].as_u64().expect("a number");
    assert!(moved > 0 && acks >= moved, "{moved} rows moved: {table}");
    assert!(table["localizes"].as_u64().expect("a number") >= moved, "{table}");
}

/// Both processes take all rows from each other and add to them; the box is killed on the way, and
/// comes back as if it had never been there.
#[test]
fn a_home_that_is_killed_while_rows_move_learns_where_they_are() {
    let [home, first, second] = free_addrs();
    let processes = vec![first, second];
    let file = ConfigFile::new("killed-home", &config(home, processes.clone()));
    let node = Running::start(&mut weft_node(&file, &[]));
    let sessions = joined(home, &processes);
    let keys: Vec<u64> = (0..KEYS.into()).collect();
    let ones = vec![1.0; keys.len() * usize::from(ROW_LEN)];
    let (is_over, turns) = (AtomicBool::new(false), AtomicU32::new(0));
    let node = thread::scope(|scope| {
        let mut node = node;
        for session in &sessions {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    session.localize(&keys).expect("the home comes back");
                    session.push(&keys, &ones).expect("the home comes back");
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..KILLS {
            let before = turns.load(Ordering::Relaxed);
            let begun = Instant::now();
            while turns.load(Ordering::Relaxed) < before + 20 {
                assert!(begun.elapsed() < PATIENCE, "rows do not move");
                thread::sleep(Duration::from_millis(1));
            }
            node.end(Signal::SIGKILL);
            node = Running::start(&mut weft_node(&file, &[]));
        }
        is_over.store(true, Ordering::Relaxed);
        node
    });
    // Exact: an f32 counts to 2^24.
    let expected = turns.into_inner() as f32;
    let mut values = vec![0.0; ones.len()];
    for session in &sessions {
        session.pull(&keys, &mut values).expect("all are there");
        assert!(values.iter().all(|value| *value == expected), "{expected}: {values:?}");
    }
    drop(sessions);
    assert_eq!(node.end(Signal::SIGTERM).code, Some(0));
}

#[test]
fn a_table_that_cannot_be_is_refused_in_one_line() {
    let [home, first, second] = free_addrs();
    let check = |change: &dyn Fn(&mut KeysSection)| {
        let mut config = config(home, vec![first, second]);
        change(&mut config.keys[0]);
        let file = ConfigFile::new("table", &config);
        let output = run_to_end(&mut weft_node(&file, &["--check-config"]));
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let (code, said) = check(&|_| ());
    assert_eq!(code, Some(0), "{said}");
    let refused = |change: &dyn Fn(&mut KeysSection), expected: &str| {
        let (code, said) = check(change);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}: not {expected}");
    };
    refused(&|it| it.processes.clear(), "keys[0].processes");
    refused(&|it| it.row_len = 400, "keys[0].row_len");
    refused(&|it| it.key_count = 0, "keys[0].key_count");
}
