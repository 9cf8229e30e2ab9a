//! Finds out why a session goes on no more: whether its path carries full datagrams.
//!
//! A link that loses long frames says nothing, and what is short still passes; so hosts answer, and
//! nothing comes of it. A handshake of a life of its own is asked then ([`PathProbe`]): alone,
//! where the session has ended, or beside it ([`Watch`]), where nothing would end it.

use std::fmt;
use std::net::SocketAddr;

use weft_engine::role::worker::{Payload, WorkerError};
use weft_engine::{PathProbe, PathProbeConfig, PathVerdict};
use weft_io::{Burst, Frame, Port};
use weft_wire::Nanos;
use weft_wire::frame::label::set_dscp;
use weft_wire::header::Operation;

use crate::config::Config;
use crate::error::Error;
use crate::io::{Io, WAIT_NS_MAX, Workers};

/// A path that carries short datagrams and no full ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NarrowPath {
    /// Where it leads.
    pub to: SocketAddr,
    /// UDP payload bytes that do not pass.
    pub datagram_len: u16,
}

impl fmt::Display for NarrowPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, datagram_len } = self;
        write!(
            f,
            "short datagrams reach {to} but {datagram_len} bytes of UDP payload do not: raise the \
             MTU on the path, which may have become narrower"
        )
    }
}

/// Watches whether a session goes on, and has its path probed when it does not. Decides, and does
/// no I/O.
#[derive(Debug)]
pub(crate) struct Watch {
    patience: Nanos,
    /// Of the next probe.
    life: u64,
    stuck_since: Option<Nanos>,
    probe: Option<PathProbe>,
}

impl Watch {
    /// Of a session that may stand still for `patience` before its path is probed. `seed` is
    /// random.
    pub(crate) fn new(patience: Nanos, seed: u64) -> Self {
        Self { patience, life: seed, stuck_since: None, probe: None }
    }

    fn next_life(&mut self) -> u64 {
        self.life = self.life.wrapping_add(1);
        self.life
    }

    /// The probe that is under way, or one that begins: for a session that has ended.
    pub(crate) fn last_probe(
        &mut self,
        begin: impl FnOnce(u64) -> Option<PathProbe>,
    ) -> Option<PathProbe> {
        self.probe.take().or_else(|| begin(self.next_life()))
    }

    /// Takes note of whether the session is stuck: it has something under way and nothing has come
    /// of it since the last look. `begin` makes a probe of a life. The path, if it is narrow.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        is_stuck: bool,
        begin: impl FnOnce(u64) -> Option<PathProbe>,
    ) -> Option<NarrowPath> {
        if !is_stuck {
            (self.stuck_since, self.probe) = (None, None);
            return None;
        }
        let since = *self.stuck_since.get_or_insert(now);
        match &self.probe {
            Some(probe) => {
                let verdict = probe.verdict(now)?;
                let found = found(probe, verdict);
                (self.stuck_since, self.probe) = (Some(now), None);
                found
            }
            None => {
                if now.since(since) >= self.patience {
                    self.probe = begin(self.next_life());
                    self.stuck_since = Some(now);
                }
                None
            }
        }
    }

    /// Takes a frame, if it was an answer to the probe.
    pub(crate) fn take_frame(&mut self, now: Nanos, frame: &[u8]) -> bool {
        self.probe.as_mut().is_some_and(|probe| probe.handle_frame(now, frame))
    }

    /// Writes what the probe has to send.
    pub(crate) fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.probe.as_mut()?.poll_transmit(now, frame)
    }

    /// When to look again at the latest.
    pub(crate) fn poll_timeout(&self) -> Nanos {
        let of_patience = self.stuck_since.map(|since| since.saturating_add(self.patience));
        let of_probe = self.probe.as_ref().map(PathProbe::poll_timeout);
        of_probe.or(of_patience).unwrap_or(Nanos::MAX)
    }
}

fn found(probe: &PathProbe, verdict: PathVerdict) -> Option<NarrowPath> {
    let (to, datagram_len) = probe.path();
    (verdict == PathVerdict::Narrow).then_some(NarrowPath { to, datagram_len })
}

/// Runs a probe on the port of a session that is over. The path, if it is narrow.
pub(crate) fn find_out<P: Port>(
    port: &mut P,
    dscp: u8,
    now: impl Fn() -> Nanos,
    probe: &mut PathProbe,
) -> Option<NarrowPath> {
    let (mut rx, mut tx) = (Burst::new(), Burst::new());
    loop {
        let at = now();
        let received = port.rx_burst(at, &mut rx);
        for frame in &rx {
            probe.handle_frame(at, frame.as_ref());
        }
        port.free(&mut rx);
        if let Some(verdict) = probe.verdict(at) {
            return found(probe, verdict);
        }
        if let Some(mut frame) = port.alloc()
            && let Some(len) = probe.poll_transmit(at, frame.buffer_mut())
        {
            frame.set_len(len);
            set_dscp(frame.as_mut(), dscp);
            tx.push(frame);
            port.tx_burst(at, &mut tx);
            // What the port refuses is loss.
            port.free(&mut tx);
        } else if received == 0 {
            if !port.is_open() {
                return None;
            }
            port.wait(probe.poll_timeout().since(now()).0.clamp(1, WAIT_NS_MAX));
        }
    }
}

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
    let of = PathProbeConfig {
        job: worker.job,
        row: worker.row,
        members: worker.rank.bit(),
        local: worker.local,
        target: worker.target,
        probe_len: worker.probe_len,
    };
    let life = getrandom::u64().ok();
    let probe = life.and_then(|life| PathProbe::new(of, life, io.now()));
    let found = probe.and_then(|mut probe| io.find_out(&mut probe));
    Err(match found {
        Some(NarrowPath { datagram_len: probe_len, .. }) => {
            Error::Narrower { error, found: WorkerError::MtuTooSmall { probe_len } }
        }
        None => Error::Session(error),
    })
}

#[cfg(test)]
mod tests;
