//! Sessions of pushes and of keys whose path carries long frames no more: they end and name it.

use crate::table;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Cluster, ELEMENTS, JOB, PARAMETERS, server_addr, worker_addr};
use crate::table::{FIRST, KEYS, ROW_LEN, Site};
use weft_client::NarrowPath;
use weft_client::keys::{KeyError, KeySession};
use weft_client::push::{PushConfig, PushError, PushSession, Version};
use weft_engine::role::push::PushFault;
use weft_io::memory::{self, MemoryPort};
use weft_io::pool::PoolFrame;
use weft_io::{Burst, Port, forward_port};
use weft_wire::Nanos;

/// A port that loses what is longer than its path carries, both ways and without a word.
struct Path {
    port: MemoryPort,
    len_max: Arc<AtomicUsize>,
    complaint: Option<&'static str>,
}

impl Path {
    fn new(port: MemoryPort) -> (Self, Arc<AtomicUsize>) {
        let len_max = Arc::new(AtomicUsize::new(usize::MAX));
        (Self { port, len_max: Arc::clone(&len_max), complaint: None }, len_max)
    }

    fn keep_passing(&mut self, burst: &mut Burst<PoolFrame>) -> usize {
        let len_max = self.len_max.load(Ordering::SeqCst);
        let before = burst.len();
        burst.retain(|frame| frame.as_ref().len() <= len_max);
        before - burst.len()
    }
}

impl Port for Path {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        let before = rx.len();
        self.port.rx_burst(now, rx);
        self.keep_passing(rx);
        rx.len() - before
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        self.keep_passing(tx) + self.port.tx_burst(now, tx)
    }

    fn complaint(&self) -> Option<String> {
        self.complaint.map(str::to_owned)
    }

    forward_port!(port: alloc, merges, free, info, stats, is_open, wait, waker);
}

/// Frames with a chunk, or with many keys, are longer, all others shorter.
const NARROW: usize = 300;
const PATIENCE: Duration = Duration::from_secs(6);

fn pusher(rank: u8) -> PushConfig {
    let config = PushConfig::new(worker_addr(rank), server_addr()).job(JOB.0).rank(rank);
    PushConfig { member_timeout: PATIENCE, seed: Some(u64::from(rank) + 11), ..config }
}

/// What becomes of `work`, whose worker's path gets narrower once it is connected.
fn narrowed(work: impl FnOnce(&mut PushSession) -> Result<(), PushError>) -> PushError {
    let (_cluster, mut ports) = Cluster::start(2, |job| job.tau_max = 100);
    let (path, len_max) = Path::new(ports.remove(0));
    let mut session = PushSession::over(path, &pusher(0)).unwrap();
    let mut model = vec![0.0; PARAMETERS];
    session.pull(&mut model).unwrap();
    len_max.store(NARROW, Ordering::SeqCst);
    let begun = Instant::now();
    let error = work(&mut session).expect_err("nothing long passes");
    let took = begun.elapsed();
    assert!(took < PATIENCE + Duration::from_secs(2), "{took:?}: {error}");
    error
}

#[test]
fn a_push_session_names_the_path_that_has_become_narrower() {
    // Asked for again and again: the server is never silent.
    let pushed = narrowed(|session| session.push(&[1.0; PARAMETERS], Version(0))?.wait().map(drop));
    let pulled = narrowed(|session| session.pull(&mut [0.0; PARAMETERS]).map(drop));
    for error in [pushed, pulled] {
        let datagram_len = 32 + 4 * ELEMENTS;
        let expected = NarrowPath { to: server_addr(), datagram_len };
        assert!(matches!(error, PushError::Narrow(found) if found == expected), "{error:?}");
        assert!(error.to_string().contains("raise the MTU"), "{error}");
    }
}

#[test]
fn a_push_session_that_waits_on_a_narrow_path_for_others_goes_on() {
    let (_cluster, mut ports) = Cluster::start(2, |job| job.tau_max = 100);
    // Chunks pass, a full datagram would not.
    let (path, len_max) = Path::new(ports.remove(0));
    let patience = Duration::from_secs(2);
    let config = PushConfig { member_timeout: patience, ..pusher(0) };
    let mut session = PushSession::over(path, &config).unwrap();
    len_max.store(400, Ordering::SeqCst);
    let last = ports.pop().unwrap();
    let other = thread::spawn(move || {
        thread::sleep(2 * patience);
        let mut session = PushSession::over(last, &pusher(1)).unwrap();
        session.push(&[1.0; PARAMETERS], Version(0)).unwrap().wait().unwrap();
        session.close().unwrap();
    });
    let mut model = vec![0.0; PARAMETERS];
    assert_eq!(session.pull_newer(&mut model, Version(0)).unwrap(), Version(1));
    assert!(model.iter().all(|value| *value == 1.0));
    other.join().unwrap();
    session.close().unwrap();
}

#[test]
fn sessions_whose_hosts_are_silent_say_what_the_port_knows() {
    const COMPLAINT: &str = "nobody on the link answers";
    let (cluster, mut ports) = Cluster::start(1, |job| job.tau_max = 100);
    let (mut path, len_max) = Path::new(ports.remove(0));
    path.complaint = Some(COMPLAINT);
    let config = PushConfig { member_timeout: Duration::from_secs(1), ..pusher(0) };
    let mut session = PushSession::over(path, &config).unwrap();
    len_max.store(0, Ordering::SeqCst);
    let error = session.pull(&mut [0.0; PARAMETERS]).expect_err("nothing passes");
    let PushError::Link { fault: PushFault::ServerSilent { server }, complaint } = &error else {
        panic!("{error:?}")
    };
    assert_eq!((*server, complaint.as_str()), (server_addr(), COMPLAINT));
    assert!(error.to_string().ends_with(COMPLAINT), "{error}");
    drop(cluster);

    let site = Site::in_memory(1);
    let mut ports = memory::hub(1024, 1500, &["home", "p0"]);
    let (mut path, _) = Path::new(ports.pop().unwrap());
    path.complaint = Some(COMPLAINT);
    let config = site.config(0).connect_timeout(Duration::from_secs(1));
    let error = KeySession::over(path, &config).expect_err("there is no home");
    let KeyError::Link { error: failure, complaint } = &error else { panic!("{error:?}") };
    assert!(matches!(**failure, KeyError::NoHome { .. }), "{error:?}");
    assert_eq!(complaint, COMPLAINT);
}

/// A table of two processes, the first of which has `complaint`, and how long the frames of each
/// may be, while `work` goes on.
fn over_paths<R>(
    call_timeout: Duration,
    complaint: Option<&'static str>,
    work: impl FnOnce(&[KeySession; 2], &[Arc<AtomicUsize>; 2]) -> R,
) -> R {
    let site = Site::in_memory(2);
    let mut ports = memory::hub(1024, 1500, &["home", "p0", "p1"]);
    let (last, last_len_max) = Path::new(ports.pop().unwrap());
    let (mut first, first_len_max) = Path::new(ports.pop().unwrap());
    first.complaint = complaint;
    let config = |me| site.config(me).call_timeout(call_timeout);
    site.with_home(ports.pop().unwrap(), || {
        let sessions = thread::scope(|scope| {
            let first = scope.spawn(|| KeySession::over(first, &config(0)).unwrap());
            let last = scope.spawn(|| KeySession::over(last, &config(1)).unwrap());
            [first.join().unwrap(), last.join().unwrap()]
        });
        work(&sessions, &[first_len_max, last_len_max])
    })
}

/// A call of process 0, after this one's path has become narrower, to rows of process 1.
fn stuck(narrow: usize, call_timeout: Duration, complaint: Option<&'static str>) -> KeyError {
    over_paths(call_timeout, complaint, |sessions, len_max| {
        let keys: Vec<_> = (0..u64::from(KEYS) / 2).map(|key| FIRST + 150 + key).collect();
        let mut values = vec![0.0; keys.len() * usize::from(ROW_LEN)];
        sessions[0].pull(&keys, &mut values).unwrap();
        len_max[narrow].store(NARROW, Ordering::SeqCst);
        sessions[0].pull(&keys[..1], &mut values[..usize::from(ROW_LEN)]).expect("it is short");
        let begun = Instant::now();
        let error = sessions[0].pull(&keys, &mut values).expect_err("nothing long passes");
        assert!(begun.elapsed() < call_timeout + Duration::from_secs(1), "{error}");
        error
    })
}

#[test]
fn a_key_session_names_the_path_that_is_too_narrow() {
    let error = stuck(0, PATIENCE, None);
    let home: SocketAddr = Site::in_memory(2).home;
    let expected = NarrowPath { to: home, datagram_len: 1472 };
    assert!(matches!(error, KeyError::Narrow(found) if found == expected), "{error:?}");
}

#[test]
fn a_key_session_whose_calls_run_out_before_says_what_the_port_knows() {
    let error = stuck(0, Duration::from_millis(1_200), Some("the port is odd"));
    let KeyError::Link { error: failure, complaint } = &error else { panic!("{error:?}") };
    assert!(matches!(**failure, KeyError::Unanswered { .. }), "{error:?}");
    assert_eq!(complaint, "the port is odd");
}

#[test]
fn a_key_session_does_not_blame_its_own_path_for_anothers() {
    let error = stuck(1, Duration::from_secs(4), None);
    assert!(matches!(error, KeyError::Unanswered { .. }), "{error:?}");
    assert!(error.to_string().contains("`mtu`"), "{error}");
}

#[test]
fn a_key_session_whose_frames_are_short_goes_on_over_a_narrow_path() {
    let patience = Duration::from_secs(1);
    over_paths(patience, None, |sessions, len_max| {
        len_max[0].store(NARROW, Ordering::SeqCst);
        let begun = Instant::now();
        while begun.elapsed() < 3 * patience {
            sessions[0].push(&[FIRST + 200], &table::row(1.0)).expect("it is short");
        }
    });
}
