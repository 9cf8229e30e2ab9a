//! All members of a row at once: sends contributions as fast as the window and the device allow,
//! takes the answers, compares sampled sums.
//!
//! Closed loop: at most `window` contributions of each member are out, which the rings between the
//! processes hold, so hardly anything is lost. What is lost stops the window soon; when nothing has
//! come for [`REPEAT_NS`], all that is unanswered is sent again and counted. [`REPEATS_MAX`] times
//! at most: after that, and when nothing comes for [`STALL_NS`], the bench ends with
//! [`BenchError::Stalled`] and gives no figure. Against an echo the same frames go out by the same
//! rule, and each must come back unchanged behind its Ethernet header.

use std::time::Duration;

use weft_engine::table::{RowConfig, Table};
use weft_io::reseal::Reseal;
use weft_io::{Burst, Frame, Port};
use weft_wire::frame::ETHERNET_LEN;
use weft_wire::header::{HEADER_LEN, Kind, LAYOUT, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{Cookie, GroupId, Nanos};

use super::frames::Frames;
use super::join::{Members, Session};
use super::replay::{Outside, Settings};
use super::{BenchError, Measurement};

/// Measures what is at the other end of `port`: an aggregator, or an echo.
pub(super) fn run<P: Port>(
    mut port: P,
    table: &Table,
    frames: &Frames,
    settings: Settings,
    duration: Duration,
    echo: bool,
    outside: &impl Outside,
) -> Result<Measurement, BenchError> {
    let row = &table.config().rows[0];
    let session = if echo {
        Session {
            group: GroupId::new(row.row, 0),
            cookies: vec![Cookie::default(); row.members.len()],
            window: u32::from(row.window),
            step_count: u32::MAX,
        }
    } else {
        let members = Members::new(table.config(), row, settings.seed, outside.now())?;
        members.join_port(&mut port, row, || outside.now())?
    };
    let mut generator = Generator::new(port, row, frames, session, settings, echo);
    generator.alive = outside.now();
    if echo {
        generator.probe(outside)?;
    }
    generator.run_for(duration / 10, outside)?;
    let before = (outside.now(), outside.cpu(), generator.sent, generator.received);
    outside.mark("begin");
    generator.run_for(duration, outside)?;
    let after = (outside.now(), outside.cpu(), generator.sent, generator.received);
    outside.mark("end");
    outside.wait_to_end();
    Ok(Measurement {
        mode: if echo { "echo" } else { "generate" },
        packets: after.2 - before.2,
        contributions_added: after.3 - before.3,
        answers: after.3 - before.3,
        cpu_seconds: (after.1 - before.1).as_secs_f64(),
        wall_seconds: Duration::from_nanos(after.0.since(before.0).0).as_secs_f64(),
        checked: generator.compared,
        wrong: generator.wrong,
        repeated: generator.repeated,
        ..Measurement::default()
    })
}

struct Generator<'a, P: Port> {
    port: P,
    frames: &'a Frames,
    session: Session,
    reseal: Option<Reseal>,
    echo: bool,
    payload_start: usize,
    /// Where chunk, group and cookie lie in a datagram.
    fields: [usize; 3],
    /// The next contribution: step and rank.
    next: (u32, usize),
    /// What each member has got.
    answers: Vec<Answers>,
    check_every: u32,
    countdown: u32,
    sent: u64,
    received: u64,
    compared: u64,
    wrong: u64,
    /// When the last new answer came.
    alive: Nanos,
    /// Frames that were sent again.
    repeated: u64,
    /// How often all that was unanswered was.
    repeats: u32,
    /// When to do so next, if no answer comes.
    repeat_due: Nanos,
    rx: Burst<P::Frame>,
    tx: Burst<P::Frame>,
}

impl<'a, P: Port> Generator<'a, P> {
    fn new(
        port: P,
        row: &RowConfig,
        frames: &'a Frames,
        session: Session,
        settings: Settings,
        echo: bool,
    ) -> Self {
        let fields = ["chunk", "group", "cookie"].map(byte_of);
        Self {
            port,
            frames,
            answers: vec![Answers::new(session.window); session.cookies.len()],
            session,
            reseal: (row.integrity == Integrity::Crc32c).then(|| {
                let datagram_len = frames.frame_len() - frames.payload_start();
                Reseal::new(weft_kernel::crc32c, datagram_len, &fields)
            }),
            echo,
            payload_start: frames.payload_start(),
            fields,
            next: (0, 0),
            check_every: settings.check_every.max(1),
            countdown: settings.check_every.max(1),
            sent: 0,
            received: 0,
            compared: 0,
            wrong: 0,
            alive: Nanos(0),
            repeated: 0,
            repeats: 0,
            repeat_due: Nanos(0),
            rx: Burst::new_const(),
            tx: Burst::new_const(),
        }
    }

    fn run_for(&mut self, duration: Duration, outside: &impl Outside) -> Result<(), BenchError> {
        let begun = outside.now();
        let end = begun.0 + u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2);
        self.repeat_due = begun.saturating_add(Nanos(REPEAT_NS));
        loop {
            let now = outside.now();
            if now.0 >= end || outside.is_stopped() {
                return Ok(());
            }
            self.send(now);
            let before = self.received;
            self.receive(now);
            if self.received > before {
                self.alive = now;
                self.repeat_due = now.saturating_add(Nanos(REPEAT_NS));
            } else if now.since(self.alive).0 > STALL_NS || self.repeats > REPEATS_MAX {
                let out = self.sent - self.received;
                return Err(BenchError::Stalled(
                    Duration::from_nanos(now.since(self.alive).0),
                    out,
                ));
            } else if now >= self.repeat_due {
                self.repeat(now);
                self.repeat_due = now.saturating_add(Nanos(REPEAT_NS));
            }
        }
    }

    /// Sends again what is out and unanswered: the contribution or its answer was lost.
    fn repeat(&mut self, now: Nanos) {
        self.repeats += 1;
        for rank in 0..self.answers.len() {
            let end = self.next.0 + u32::from(rank < self.next.1);
            for step in self.answers[rank].low..end {
                if self.answers[rank].has(step) {
                    continue;
                }
                if self.tx.is_full() {
                    self.flush(now);
                }
                // A full ring has not emptied: the rest waits for the next time.
                if self.tx.is_full() || !self.put(step, rank) {
                    return;
                }
                self.repeated += 1;
            }
        }
        self.flush(now);
    }

    /// Sends single frames until one comes back, for an echo has no handshake that would wait for
    /// the link, and a memif loses what is sent while it connects.
    fn probe(&mut self, outside: &impl Outside) -> Result<(), BenchError> {
        let begun = outside.now();
        let mut heard = 0;
        while heard == 0 && !outside.is_stopped() {
            if outside.now().since(begun).0 > START_NS {
                return Err(BenchError::Stalled(Duration::from_nanos(START_NS), 1));
            }
            let template = self.frames.frame(0, 0);
            if let Some(mut frame) = self.port.alloc() {
                frame.set_len(template.len());
                frame.as_mut().copy_from_slice(template);
                self.tx.push(frame);
            }
            self.port.tx_burst(outside.now(), &mut self.tx);
            self.port.free(&mut self.tx);
            heard = self.drain(outside);
        }
        // What is still on its way must not be taken for an answer.
        self.drain(outside);
        self.alive = outside.now();
        Ok(())
    }

    /// Throws away what arrives for a while; returns how much that was.
    fn drain(&mut self, outside: &impl Outside) -> usize {
        let begun = outside.now();
        let mut count = 0;
        while outside.now().since(begun).0 < PROBE_NS {
            count += self.port.rx_burst(outside.now(), &mut self.rx);
            self.port.free(&mut self.rx);
        }
        count
    }

    fn send(&mut self, now: Nanos) {
        while !self.tx.is_full() {
            let (step, rank) = self.next;
            let is_open = step.wrapping_sub(self.answers[rank].low) < self.session.window
                && step < self.session.step_count;
            if !is_open || !self.put(step, rank) {
                break;
            }
            self.sent += 1;
            self.next =
                if rank + 1 < self.answers.len() { (step, rank + 1) } else { (step + 1, 0) };
        }
        self.flush(now);
    }

    /// Puts a contribution behind those that wait to be sent; false when there is no buffer.
    fn put(&mut self, step: u32, rank: usize) -> bool {
        let Some(mut frame) = self.port.alloc() else { return false };
        let template = self.frames.frame(step, rank);
        frame.set_len(template.len());
        frame.as_mut().copy_from_slice(template);
        self.stamp(frame.as_mut(), step, rank);
        self.tx.push(frame);
        true
    }

    /// What the port does not take stays, to be offered again.
    fn flush(&mut self, now: Nanos) {
        self.port.tx_burst(now, &mut self.tx);
    }

    fn stamp(&self, frame: &mut [u8], step: u32, rank: usize) {
        let header: &mut [u8; HEADER_LEN] =
            frame[self.payload_start..].first_chunk_mut().expect("a contribution has a header");
        let words = [step, self.session.group.0, self.session.cookies[rank].0];
        match &self.reseal {
            Some(reseal) => reseal.write(header, &words),
            None => {
                for (at, word) in self.fields.into_iter().zip(words) {
                    header[at..at + 4].copy_from_slice(&word.to_be_bytes());
                }
            }
        }
    }

    fn receive(&mut self, now: Nanos) {
        self.port.rx_burst(now, &mut self.rx);
        let rx = std::mem::take(&mut self.rx);
        for frame in &rx {
            self.take(frame.as_ref());
        }
        self.rx = rx;
        self.port.free(&mut self.rx);
    }

    /// Takes a frame that came back; the rank is the last byte of its Ethernet address.
    fn take(&mut self, frame: &[u8]) {
        let rank = frame.get(5).map_or(0, |byte| usize::from(*byte));
        let is_ours = frame.len() == self.frames.frame_len() && rank < self.answers.len();
        if !is_ours {
            return;
        }
        let packet = Packet::new_unchecked(&frame[self.payload_start..]);
        let kind = if self.echo { Kind::Contrib } else { Kind::Answer };
        if packet.kind() != Some(kind) {
            return;
        }
        let step = packet.chunk().0;
        if step >= self.next.0 + u32::from(rank < self.next.1) {
            // Of a step that was not sent.
            self.wrong += 1;
            return;
        }
        if !self.answers[rank].take(step) {
            // A second answer, for the contribution was sent twice.
            return;
        }
        self.received += 1;
        self.countdown -= 1;
        if self.countdown == 0 {
            self.compared += 1;
            self.wrong += u64::from(!self.is_right(frame, step, rank));
            self.countdown = self.check_every;
        }
    }

    fn is_right(&self, frame: &[u8], step: u32, rank: usize) -> bool {
        if !self.echo {
            return self.frames.is_answer(frame, step);
        }
        let mut sent = self.frames.frame(step, rank).to_vec();
        self.stamp(&mut sent, step, rank);
        sent[ETHERNET_LEN..] == frame[ETHERNET_LEN..]
    }
}

/// The answers that a member has: all below `low`, and some of the window above.
#[derive(Clone, Debug)]
struct Answers {
    low: u32,
    /// By step modulo the window; those below `low` are cleared.
    early: Vec<bool>,
}

impl Answers {
    fn new(window: u32) -> Self {
        Self { low: 0, early: vec![false; window as usize] }
    }

    fn has(&self, step: u32) -> bool {
        step < self.low || self.early[step as usize % self.early.len()]
    }

    /// Takes the answer to a step that was sent, so within the window; false if it is here already.
    fn take(&mut self, step: u32) -> bool {
        if self.has(step) {
            return false;
        }
        let window = self.early.len();
        self.early[step as usize % window] = true;
        while std::mem::take(&mut self.early[self.low as usize % window]) {
            self.low += 1;
        }
        true
    }
}

/// Where a field lies in a datagram.
fn byte_of(name: &str) -> usize {
    let field = LAYOUT.iter().find(|(field, ..)| *field == name);
    field.map_or_else(|| unreachable!("the header has a field {name}"), |field| field.1)
}

/// Time between two probes.
const PROBE_NS: u64 = 30_000_000;
/// How long the other process may take to start: EAL, on a machine that builds something beside.
const START_NS: u64 = 30_000_000_000;
/// Longest time without an answer before what is out is sent again: no round trip between two
/// polling processes takes as long, and a loss costs a row of 0.4 s about a hundredth.
const REPEAT_NS: u64 = 5_000_000;
/// How often that may happen. A busy machine that stops the other process for a while needs some.
const REPEATS_MAX: u32 = 1000;
/// Longest time without an answer.
const STALL_NS: u64 = 5_000_000_000;
