//! A port with faults: loss, duplication, reordering, delay, corruption; and with a long link.
//!
//! [`fate`] says what happens to a datagram; this file does it. Frames that are not Weft
//! datagrams pass untouched. Each direction has its own rates; both share the attempt counts and
//! the holding queue.
//!
//! - A lost frame is freed; for the caller it was sent.
//! - Corruption overwrites bytes of the UDP payload and leaves all checksums as they were. A port
//!   that corrupts does not say of itself, or of frames, that nothing can change on the way
//!   ([`MacAddr::MEMORY`]).
//! - The copy of a duplicated frame follows at once, corrupted like the original; if the original
//!   is held as well, the copy is early and the original late.
//! - A reordered frame is held until 1 to `reorder_span` later Weft frames of its direction have
//!   passed, a delayed one until its time has come on the caller's clock. A reordered frame leaves
//!   after `delay_max_ns` at the latest, for there may be no later frame.
//! - Every frame, of other protocols too, then takes `link_delay_ns` more, in order: the time that
//!   a long link would take. A link that is full loses the frame (`link_full`).
//!
//! Invariants: every frame is delivered, sent, lost on purpose, or held; the holding queue is
//! bounded and a frame that finds it full passes at once (`holding_full`); the link takes
//! [`LINK_FRAMES_MAX`] frames in each direction; nothing allocates per burst. When the wrapped port
//! refuses frames whose fate is decided, they wait here, at most two bursts, the holding queue and
//! the link, and the caller's next frames are refused meanwhile: no fate is drawn twice for one
//! offer. Frames held for sending leave during `rx_burst` and `tx_burst`.

mod attempts;
mod decide;
mod lane;

use std::ops::Range;

use weft_wire::frame::Udp;
use weft_wire::{MacAddr, Nanos};

use self::attempts::Attempts;
use self::decide::between;
pub use self::decide::{CORRUPT_LEN_MAX, Fate, FaultRates, Identity, corrupt, fate, member_seed};
pub use self::lane::LINK_FRAMES_MAX;
use self::lane::{Held, Lane};
use crate::forward_port;
use crate::port::{Burst, Port, PortInfo};

/// What a [`Fault`] does.
#[derive(Clone, Copy, Debug)]
pub struct FaultConfig {
    /// Seed of all decisions. Give each member's port its own ([`member_seed`]).
    pub seed: u64,
    /// Faults of received frames.
    pub rx: FaultRates,
    /// Faults of sent frames.
    pub tx: FaultRates,
    /// A reordered frame is overtaken by 1 to this many frames.
    pub reorder_span: u32,
    /// Shortest delay.
    pub delay_min_ns: u64,
    /// Longest delay, and longest time that a reordered frame waits for those behind it.
    pub delay_max_ns: u64,
    /// How long every frame takes in each direction, besides what other faults do to it.
    pub link_delay_ns: u64,
    /// Frames that may be held at a time, both directions together.
    pub holding_max: usize,
    /// Identities whose attempts are remembered: at least four windows of all members and kinds,
    /// or a lost datagram may be lost again for ever. 24 bytes each.
    pub attempts_max: usize,
}

impl Default for FaultConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            rx: FaultRates::NONE,
            tx: FaultRates::NONE,
            reorder_span: 8,
            delay_min_ns: 100_000,
            delay_max_ns: 2_000_000,
            link_delay_ns: 0,
            holding_max: 256,
            attempts_max: 1 << 16,
        }
    }
}

/// How often each fault happened in one direction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FaultCounts {
    /// Weft frames judged.
    pub judged: u64,
    /// Frames of other protocols, and all where every rate is 0, passed on untouched.
    pub passed: u64,
    /// Frames that vanished.
    pub lost: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Frames held for others to overtake.
    pub reordered: u64,
    /// Frames held for a time.
    pub delayed: u64,
    /// Frames with bytes overwritten.
    pub corrupted: u64,
    /// Frames that two or more faults hit.
    pub doubly_hit: u64,
    /// Frames that were to be held and passed, the queue being full.
    pub holding_full: u64,
    /// Copies that were not made for want of a buffer.
    pub copy_failed: u64,
    /// Frames that found the link full, and were lost.
    pub link_full: u64,
}

/// A port whose frames meet faults.
#[derive(Debug)]
pub struct Fault<P: Port> {
    // Frames before the port: they return to its pool before it closes.
    rx: Lane<P::Frame>,
    tx: Lane<P::Frame>,
    judge: Judge,
    port: P,
}

impl<P: Port> Fault<P> {
    /// Wraps `port`.
    ///
    /// # Panics
    /// If a rate is not a probability, or the delay bounds are the wrong way round: check what a
    /// user wrote before.
    #[must_use]
    pub fn new(port: P, config: &FaultConfig) -> Self {
        assert!(config.rx.is_valid() && config.tx.is_valid(), "rates are between 0 and 1");
        assert!(config.delay_min_ns <= config.delay_max_ns, "the shortest delay is the shorter");
        Self {
            rx: Lane::new(config.rx, config.holding_max, config.link_delay_ns),
            tx: Lane::new(config.tx, config.holding_max, config.link_delay_ns),
            judge: Judge {
                config: *config,
                corrupts: config.rx.corrupt + config.tx.corrupt > 0.0,
                is_harmless: config.rx == FaultRates::NONE && config.tx == FaultRates::NONE,
                attempts: Attempts::new(config.attempts_max),
                held: 0,
                now: Nanos(0),
            },
            port,
        }
    }

    /// The wrapped port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Faults of received frames.
    pub fn rx_counts(&self) -> FaultCounts {
        self.rx.counts
    }

    /// Faults of sent frames.
    pub fn tx_counts(&self) -> FaultCounts {
        self.tx.counts
    }

    /// Identities whose attempts were forgotten. In a long run those of finished chunks are.
    pub fn attempts_forgotten(&self) -> u64 {
        self.judge.attempts.forgotten()
    }

    /// Frames held at this moment, both directions together.
    pub fn held(&self) -> usize {
        self.judge.held
    }

    /// Sends what is due and was decided before; true when the wrapped port took it all.
    fn flush(&mut self, now: Nanos) -> bool {
        self.tx.release(now, &mut self.judge.held);
        let mut out = Burst::new();
        while !self.tx.ready.is_empty() {
            while !out.is_full() {
                let Some(frame) = self.tx.ready.pop_front() else { break };
                out.push(frame);
            }
            self.port.tx_burst(now, &mut out);
            if !out.is_empty() {
                while let Some(frame) = out.pop() {
                    self.tx.ready.push_front(frame);
                }
                return false;
            }
        }
        true
    }

    /// Decides one frame's fate and puts what is left of it where it belongs.
    fn judge(&mut self, now: Nanos, frame: P::Frame, direction: Direction) {
        let lane = match direction {
            Direction::Rx => &mut self.rx,
            Direction::Tx => &mut self.tx,
        };
        self.judge.apply(now, frame, lane, |frame| self.port.copy(frame, frame.as_ref().len()));
    }
}

impl<P: Port> Port for Fault<P> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        self.judge.now = now;
        self.flush(now);
        self.rx.release(now, &mut self.judge.held);
        if self.rx.ready.len() < rx.remaining_capacity() {
            let mut arrived = Burst::new();
            self.port.rx_burst(now, &mut arrived);
            for frame in arrived {
                self.judge(now, frame, Direction::Rx);
            }
        }
        let mut count = 0;
        while !rx.is_full() {
            let Some(frame) = self.rx.ready.pop_front() else { break };
            rx.push(frame);
            count += 1;
        }
        count
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        self.judge.now = now;
        if !self.flush(now) {
            return 0;
        }
        let count = tx.len();
        for frame in tx.drain(..) {
            self.judge(now, frame, Direction::Tx);
        }
        self.flush(now);
        count
    }

    fn info(&self) -> PortInfo {
        let mut info = self.port.info();
        if self.judge.corrupts && info.mac == MacAddr::MEMORY {
            info.mac = FAULTY_MAC;
        }
        info
    }

    forward_port!(port: alloc, copy, free, stats, carried, waker);
    forward_port!(port: merges, multicast_base, hears, complaint);

    fn is_open(&self) -> bool {
        let is_under_way = !self.rx.held.is_empty() || !self.rx.link.is_empty();
        !self.rx.ready.is_empty() || is_under_way || self.port.is_open()
    }

    fn wait(&mut self, timeout_ns: u64) {
        let due = self.rx.next_due().min(self.tx.next_due());
        let until_due = due.since(self.judge.now).0;
        if self.rx.ready.is_empty() && self.tx.ready.is_empty() && until_due > 0 {
            self.port.wait(timeout_ns.min(until_due));
        }
    }
}

/// Where a frame says from which Ethernet address it comes.
const SOURCE_MAC: Range<usize> = 6..12;
/// What stands there in place of [`MacAddr::MEMORY`]: 06:57:45:46:54:01.
const FAULTY_MAC: MacAddr = MacAddr([0x06, b'W', b'E', b'F', b'T', 1]);

#[derive(Clone, Copy, Debug)]
enum Direction {
    Rx,
    Tx,
}

/// What decides, with its memory.
#[derive(Debug)]
struct Judge {
    config: FaultConfig,
    /// No rate is above 0: nothing to decide, and nothing to remember.
    is_harmless: bool,
    /// Bits change on the way.
    corrupts: bool,
    attempts: Attempts,
    /// Frames held in both directions.
    held: usize,
    now: Nanos,
}

impl Judge {
    fn apply<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        now: Nanos,
        mut frame: F,
        lane: &mut Lane<F>,
        copy: impl FnOnce(&F) -> Option<F>,
    ) {
        let datagram = if self.is_harmless { None } else { weft_datagram(frame.as_ref()) };
        let Some((payload, identity)) = datagram else {
            lane.counts.passed += 1;
            lane.pass(now, frame);
            return;
        };
        let key = identity.key();
        let fate = fate(&lane.rates, self.config.seed, key, self.attempts.next(key));
        lane.counts.judged += 1;
        lane.counts.doubly_hit += u64::from(fate.fault_count() > 1);
        if fate.lost {
            lane.counts.lost += 1;
            return;
        }
        lane.passed += 1;
        if self.corrupts && frame.as_ref()[SOURCE_MAC] == MacAddr::MEMORY.0 {
            frame.as_mut()[SOURCE_MAC].copy_from_slice(&FAULTY_MAC.0);
        }
        if let Some(word) = fate.corrupted {
            lane.counts.corrupted += 1;
            corrupt(&mut frame.as_mut()[payload], word);
        }
        if fate.duplicated {
            let copy = copy(&frame);
            lane.counts.duplicated += u64::from(copy.is_some());
            lane.counts.copy_failed += u64::from(copy.is_none());
            copy.into_iter().for_each(|copy| lane.pass(now, copy));
        }
        self.hold_or_pass(now, frame, fate, lane);
        lane.release(now, &mut self.held);
    }

    /// Holds a frame that is to be delayed or, if it is not, reordered; a delay reorders as well.
    fn hold_or_pass<F>(&mut self, now: Nanos, frame: F, fate: Fate, lane: &mut Lane<F>) {
        let config = &self.config;
        let (delay_ns, due_passed) = match (fate.delayed, fate.reordered) {
            (None, None) => {
                lane.pass(now, frame);
                return;
            }
            (Some(word), _) => (between(word, config.delay_min_ns, config.delay_max_ns), u64::MAX),
            (None, Some(word)) => {
                let overtakers = between(word, 1, u64::from(config.reorder_span.max(1)));
                (config.delay_max_ns, lane.passed + overtakers)
            }
        };
        if self.held >= config.holding_max {
            lane.counts.holding_full += 1;
            lane.pass(now, frame);
            return;
        }
        lane.counts.delayed += u64::from(fate.delayed.is_some());
        lane.counts.reordered += u64::from(fate.delayed.is_none());
        self.held += 1;
        lane.held.push(Held { frame, due: now.saturating_add(Nanos(delay_ns)), due_passed });
    }
}

/// The datagram's place in a frame, and what it is; `None` for frames that are not Weft.
fn weft_datagram(frame: &[u8]) -> Option<(Range<usize>, Identity)> {
    let payload = Udp::parse(frame).ok()?.payload_range();
    let identity = Identity::of(frame.get(payload.clone())?).ok()?;
    Some((payload, identity))
}
