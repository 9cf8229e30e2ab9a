//! Finds out why a session stalled: whether its path has become narrower since it began.
//!
//! A link that loses long frames says nothing, and what is short still passes; so the box answers
//! and the round does not go on. The handshake of a life of its own is asked again, as at the start
//! with a full datagram first and short ones when that is not answered. It ends before its JOIN, so
//! that the box keeps nothing of it and the others' group stays as it is.

use std::time::Duration;

use weft_engine::role::worker::{Event, Payload, Worker, WorkerConfig, WorkerError};
use weft_io::{Frame, Port};
use weft_wire::frame::Udp;
use weft_wire::header::{HEADER_LEN, Operation};
use weft_wire::hello::{Hello, Phase};

use crate::config::Config;
use crate::error::Error;
use crate::io::{Io, WAIT_NS_MAX, Workers};
use crate::payload::Nothing;

/// Runs a round to its end. One that stalls may do so because the path has become narrower.
pub(crate) fn finish<P: Port>(
    io: &mut Io<P>,
    config: &Config,
    active: Workers<'_>,
    payload: &mut dyn Payload,
) -> Result<(), Error> {
    let error = match io.finish_round(active, payload) {
        Err(Error::Session(error)) if error.is_stall() => error,
        outcome => return outcome,
    };
    let worker = config.worker(config.row, Operation::Sum, io.port.info().mac)?;
    let found = getrandom::u64().ok().and_then(|seed| probe(io, worker, seed));
    Err(match found {
        Some(found) => Error::Narrower { error, found },
        None => Error::Session(error),
    })
}

/// What the probe of a path says: `Some` when short datagrams pass and full ones do not.
fn probe<P: Port>(io: &mut Io<P>, config: WorkerConfig, seed: u64) -> Option<WorkerError> {
    let begun = io.now();
    let limit_ns = u64::try_from(PROBE_MAX.as_nanos()).unwrap_or(u64::MAX);
    let config = WorkerConfig { connect_timeout_ns: limit_ns, ..config };
    let mut worker = Worker::new(config, weft_kernel::crc32c, seed, begun).ok()?;
    while io.now().since(begun).0 < limit_ns {
        let moved = turn(io, &mut worker)?;
        match worker.poll_event() {
            Some(Event::Failed(error @ WorkerError::MtuTooSmall { .. })) => return Some(error),
            Some(Event::Failed(_)) => return None,
            _ if moved || !io.port.is_open() => {}
            _ => {
                let wait_ns = worker.poll_timeout().since(io.now()).0.min(WAIT_NS_MAX);
                io.port.wait(wait_ns);
            }
        }
    }
    None
}

/// Sends what is due and takes in what has come; whether there was any. `None` once the box has
/// answered a full datagram, for then it would be joined.
fn turn<P: Port>(io: &mut Io<P>, worker: &mut Worker) -> Option<bool> {
    let now = io.now();
    let received = io.take(|frame| {
        // What it refuses it has counted: sums of the session, above all.
        let _ = worker.handle_frame(now, frame, &mut Nothing);
    });
    if now >= worker.poll_timeout() {
        worker.handle_timeout(now);
    }
    // What could not leave in the round would never leave now.
    let mut sent = false;
    while let Some(mut frame) = io.port.alloc() {
        let Some(len) = worker.poll_transmit(now, &Nothing, frame.buffer_mut()) else { break };
        frame.set_len(len);
        if phase(frame.as_ref()) == Some(Phase::Join) {
            return None;
        }
        io.send(now, frame);
        sent = true;
    }
    Some(sent || received > 0)
}

fn phase(frame: &[u8]) -> Option<Phase> {
    let udp = Udp::parse(frame).ok()?;
    let (hello, _) = Hello::parse(frame.get(udp.payload_range())?.get(HEADER_LEN..)?).ok()?;
    Some(hello.phase)
}

/// Longest that it takes: a full datagram and short ones, some of each.
const PROBE_MAX: Duration = Duration::from_secs(2);
