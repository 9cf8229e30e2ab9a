//! Reads what comes over a cable, by a raw socket in the namespace where it ends.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Protocol, Socket, Type};

/// A reader of frames, until it is told to stop.
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    reads: JoinHandle<Vec<(Instant, Vec<u8>)>>,
}

impl Capture {
    /// Reads all interfaces of a namespace, both directions.
    pub(crate) fn start(namespace: File) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, ready) = mpsc::channel();
        let is_over = Arc::clone(&stop);
        let reads = std::thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).expect("root may enter");
            let all = Some(Protocol::from(i32::from(ETH_P_ALL.to_be())));
            let mut socket = Socket::new(Domain::PACKET, Type::RAW, all).expect("root may read");
            socket.set_recv_buffer_size(BUFFER_BYTES).expect("a buffer");
            socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
            told.send(()).expect("the test waits");
            let (mut frames, mut frame) = (Vec::new(), vec![0; FRAME_LEN_MAX]);
            let mut until = None;
            loop {
                // Asked first: what came before it was set is still read, but not for ever.
                if is_over.load(Ordering::Relaxed) {
                    until.get_or_insert_with(|| Instant::now() + REST);
                }
                match socket.read(&mut frame) {
                    Ok(len) => frames.push((Instant::now(), frame[..len].to_vec())),
                    Err(_) if until.is_some() => return frames,
                    Err(_) => {}
                }
                if until.is_some_and(|until| until <= Instant::now()) {
                    return frames;
                }
            }
        });
        ready.recv().expect("it reads");
        Self { stop, reads }
    }

    /// The frames in the order in which they came, and when they were read.
    pub(crate) fn end(self) -> Vec<(Instant, Vec<u8>)> {
        self.stop.store(true, Ordering::Relaxed);
        self.reads.join().expect("it reads")
    }
}

const ETH_P_ALL: u16 = 3;
/// How long what has come is read when nobody wants more.
const REST: Duration = Duration::from_millis(100);
/// The kernel gives as much of it as it allows.
const BUFFER_BYTES: usize = 8 << 20;
/// A run of frames that the kernel has not yet cut, and then some.
const FRAME_LEN_MAX: usize = 128 << 10;
