//! A box whose slots are in a switch (PROTOCOL section 11): the part that a switch cannot do.
//!
//! The switch sums; this box does what needs a keyed hash, a timer or memory per peer. Handshakes,
//! formation, hand-over and channels are an [`Aggregator`]'s as ever, over frames of the switch's
//! CPU port. Its slots hold only sums that were handed over; contributions, credits and questions
//! are the switch's to answer.
//!
//! | file | decides |
//! | --- | --- |
//! | `target.rs` | what the switch cannot do, at planning |
//! | `wishes.rs` | what the switch is to hold for what the box serves |
//! | `mirror.rs`, `scope.rs`, `room.rs` | what is written when, and into which banks |
//! | `entry.rs`, `op.rs` | how that is spelt: entries of tables, and frames to the registers |
//! | `ops.rs` | when a question to the registers is repeated; whether the switch has restarted |
//! | `counters.rs` | what the switch's counters say of jobs and groups |
//!
//! [`Agent`] is polled like any role, and besides: [`Agent::poll_write`] and
//! [`Agent::handle_written`] for entries, [`Agent::poll_read`] and [`Agent::handle_read`] for
//! counters. [`Agent::lost`] says that the switch is not what it was: then the box begins anew.
//!
//! Invariant: a member hears WELCOME, and a controller `Installed`, only after all that their
//! frames need is in the switch; an answer that was handed over goes to members only after the
//! switch has it. What a stranger sends allocates nothing: only what a member, a server or a
//! controller has shown changes what the switch is to hold.

mod counters;
mod entry;
mod mirror;
mod op;
mod ops;
mod reconcile;
mod room;
mod scope;
mod target;
#[cfg(test)]
mod tests;
mod wishes;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use weft_control::{Command, Event, HoldingCommand, HoldingError, InstallError};
use weft_wire::frame::Udp;
use weft_wire::header::{Header, Kind, Packet};
use weft_wire::{ChunkIndex, GroupId, JobId, Nanos};

pub use counters::{CODES, Codes, Counter, Counters, Read, WHOLE};
pub use entry::{
    Address, CPU_METER, Entry, EntryKey, FLOOD_GROUP, Field, JOB_METER, REPLICA_ID, Rendered, Row,
    RowKey, SERVER_ID, TableEntry, Write, group_of,
};
pub use op::{ETHERTYPE_OP, VECTOR_AT, is_op};
pub use ops::Lost;
pub use target::Target;

use mirror::{Mirror, Told};
use op::{Echo, Op, Seed};
use ops::{For, Ops, Question};
use scope::Owner;

use super::aggregator::{Aggregator, LeaseView};
use super::{LeaseIndex, Verdict};
use crate::random::SplitMix64;

/// A box whose slots are in a switch.
#[derive(Debug)]
pub struct Agent {
    aggregator: Aggregator,
    target: Target,
    mirror: Mirror,
    counters: Counters,
    /// Groups whose installation the switch has not taken in yet.
    installing: Vec<(JobId, GroupId)>,
    events: VecDeque<(JobId, Event)>,
    /// Answers that were handed over and are in the switch: to which member next.
    answers: VecDeque<(LeaseIndex, u32, usize)>,
    refusals: Vec<String>,
    stats: AgentStats,
}

/// What a box counts of its switch.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AgentStats {
    /// Writes that the switch has carried out.
    pub writes: u64,
    /// Writes that it has refused.
    pub writes_refused: u64,
    /// Questions to its registers, repeats included.
    pub ops_sent: u64,
    /// Answers to these.
    pub ops_echoed: u64,
    /// Leases and groups that it does not take.
    pub rows_refused: u64,
}

/// What a frame says that it is, before anybody has judged it.
#[derive(Clone, Copy, Debug)]
struct Asked {
    kind: Kind,
    job: JobId,
    group: GroupId,
    chunk: ChunkIndex,
}

impl Agent {
    /// Puts a lane, the only one of its box, before a switch that holds nothing yet. `seed` must
    /// differ from start to start.
    #[must_use]
    pub fn new(aggregator: Aggregator, target: Target, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed ^ AGENT_SEED);
        let ops = Ops::new(random.next_non_zero(), random.next_u32());
        let mut agent = Self {
            aggregator: aggregator.behind_switch(),
            mirror: Mirror::new(&target, ops, random.next_u32()),
            counters: Counters::new(&target),
            target,
            installing: Vec::new(),
            events: VecDeque::new(),
            answers: VecDeque::new(),
            refusals: Vec::new(),
            stats: AgentStats::default(),
        };
        agent.reconcile();
        agent
    }

    /// The part that is like any aggregator's.
    #[must_use]
    pub fn aggregator(&self) -> &Aggregator {
        &self.aggregator
    }

    /// The same, to note arrivals.
    pub fn aggregator_mut(&mut self) -> &mut Aggregator {
        &mut self.aggregator
    }

    /// What was counted of the switch.
    #[must_use]
    pub fn stats(&self) -> AgentStats {
        self.stats
    }

    /// What the switch's counters say.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Why the switch is not what it was; the box is to begin anew.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        self.mirror.ops.lost()
    }

    /// What the switch has refused since this was asked last, in words.
    pub fn take_refusals(&mut self) -> Vec<String> {
        core::mem::take(&mut self.refusals)
    }

    /// Decides the fate of a frame of the CPU port, as [`Aggregator::handle_frame`].
    pub fn handle_frame(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Verdict {
        if is_op(&buffer[..len]) {
            if let Some(echo) = Echo::parse(&buffer[..len]) {
                self.handle_echo(now, echo);
            }
            return Verdict::Hold;
        }
        let asked = Asked::of(&buffer[..len]);
        if asked.is_some_and(|asked| self.is_too_early(asked)) {
            return Verdict::Hold;
        }
        let verdict = self.aggregator.handle_frame(now, buffer, len);
        let Some(asked) = asked else { return verdict };
        match (asked.kind, verdict) {
            (_, Verdict::Drop(_) | Verdict::Host) => {}
            (Kind::Answer, Verdict::Multicast { lease, .. }) => {
                self.hand_over(lease, asked);
                return Verdict::Hold;
            }
            // Lives, channels and decisions; a frame that shows nothing changes nothing.
            (Kind::Hello | Kind::Ack | Kind::State, _) => self.reconcile(),
            _ => {}
        }
        verdict
    }

    /// True for a frame that is to come again: what it is about is on its way to the switch.
    fn is_too_early(&self, asked: Asked) -> bool {
        match asked.kind {
            // The switch answers it once it has the row; the slots here know nothing.
            Kind::Pull | Kind::Contrib | Kind::Status => {
                let key = (asked.job, asked.group);
                self.aggregator.gather().has_group(key.0, key.1)
                    || self.aggregator.view_of(key.0, key.1.row()).is_some()
            }
            Kind::Answer => {
                let step = self.aggregator.step_of(asked.job, asked.group, asked.chunk);
                step.is_some_and(|(of, at)| {
                    self.mirror.ops.any(|whose| {
                    matches!(whose, For::HandOver { lease, step, .. } if (lease, step) == (of, at))
                })
                })
            }
            Kind::Ack | Kind::State | Kind::Hello => false,
        }
    }

    /// A sum was handed over: it goes to the switch, and then to the members.
    fn hand_over(&mut self, lease: LeaseIndex, asked: Asked) {
        let view = self.aggregator.view(lease);
        let key = RowKey { job: asked.job, row: asked.group.row() };
        let step = self.aggregator.step_of(asked.job, asked.group, asked.chunk);
        let Some((_, step)) = step else { return };
        let (Some((lease_epoch, base)), Some(seeded)) =
            (self.mirror.serves(key), view.handed_over(step))
        else {
            return;
        };
        let seed = Seed {
            index: base + seeded.bank,
            lease_epoch,
            step,
            members: view.mask(),
            exponent: seeded.exponent,
            has_data: true,
        };
        let whose = For::HandOver { lease_epoch, lease, step };
        self.mirror.ops.ask(Question { op: Op::Seed(seed), whose });
    }

    fn handle_echo(&mut self, now: Nanos, echo: Echo) {
        self.stats.ops_echoed += 1;
        match self.mirror.ops.handle_echo(now, echo) {
            Some(For::Life) => self.mirror.handle_kept(),
            Some(For::Row { lease_epoch }) => self.mirror.handle_seeded(lease_epoch),
            Some(For::HandOver { lease, step, .. }) => self.answers.push_back((lease, step, 0)),
            None => {}
        }
        self.take_told();
    }

    /// Writes the next frame that no incoming frame asked for; returns its length.
    pub fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        if let Some((question, nonce)) = self.mirror.ops.poll(now) {
            let len = self.write_op(question, nonce, frame);
            if len.is_some() {
                self.stats.ops_sent += 1;
                return len;
            }
        }
        while let Some((lease, step, member)) = self.answers.pop_front() {
            let len = self.aggregator.write_handed_over(lease, member, step, frame);
            if len.is_some() {
                self.answers.push_front((lease, step, member + 1));
                return len;
            }
        }
        self.aggregator.poll_transmit(now, frame)
    }

    fn write_op(&self, question: Question, nonce: u32, frame: &mut [u8]) -> Option<usize> {
        let mac = self.aggregator.local().mac;
        let len = question.op.write(mac, nonce, self.target.elements, frame)?;
        if let For::HandOver { lease, step, .. } = question.whose {
            let view: LeaseView<'_> = self.aggregator.view(lease);
            view.write_sum(step, &mut frame[VECTOR_AT..VECTOR_AT + view.payload_len()]);
        }
        Some(len)
    }

    /// When [`Agent::poll_transmit`] will have something; [`Nanos::MAX`]: never.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        if !self.answers.is_empty() {
            return Nanos(0);
        }
        self.aggregator.poll_timeout().min(self.mirror.ops.timeout())
    }

    /// The next write, with its number: to be carried out in this order.
    pub fn poll_write(&mut self) -> Option<(u64, Write)> {
        self.mirror.poll_write()
    }

    /// A write was carried out, or refused with these words.
    pub fn handle_written(&mut self, number: u64, result: Result<(), String>) {
        match &result {
            Ok(()) => self.stats.writes += 1,
            Err(reason) => {
                self.stats.writes_refused += 1;
                self.note_refusal(reason.clone());
            }
        }
        self.mirror.handle_written(number, result);
        self.take_told();
    }

    /// The next counters that are to be read.
    pub fn poll_read(&mut self, now: Nanos) -> Option<Read> {
        self.counters.poll(now, &self.mirror)
    }

    /// Has the counters read now: the box is about to end.
    pub fn read_last(&mut self) {
        self.counters.hurry();
    }

    /// When [`Agent::poll_read`] will have something.
    #[must_use]
    pub fn read_timeout(&self) -> Nanos {
        self.counters.timeout()
    }

    /// What a counter stands at.
    pub fn handle_read(&mut self, counter: Counter, cell: u32, value: u64) {
        self.counters.handle(counter, cell, value, &self.mirror, &mut self.events);
    }

    /// Takes a controller's word. Answered by events.
    pub fn handle_command(&mut self, command: Command) {
        if let Command::Holding(holding) = &command
            && let Err(error) = self.judge(holding)
        {
            let event = Event::HoldingRefused { holding: holding.holding(), error };
            return self.aggregator.gather_mut().answer(holding.job(), event);
        }
        self.aggregator.handle_command(command);
        self.reconcile();
    }

    fn judge(&self, command: &HoldingCommand) -> Result<(), HoldingError> {
        let checked = match command {
            HoldingCommand::InstallLease(row) => self.target.check_row(row),
            HoldingCommand::InstallPush(push) => self.target.check_push(push),
            _ => Ok(()),
        };
        checked.map_err(|error| error.reason)
    }

    /// The next event, and the job that it is about.
    pub fn poll_event(&mut self) -> Option<(JobId, Event)> {
        self.take_events();
        self.events.pop_front()
    }

    /// Takes what the aggregator has said; a group that the switch does not have yet waits.
    fn take_events(&mut self) {
        while let Some((job, event)) = self.aggregator.gather_mut().poll_event() {
            match event {
                Event::Installed { group } if !self.is_installed(job, group) => {
                    self.installing.push((job, group));
                }
                event => self.events.push_back((job, event)),
            }
        }
    }

    fn is_installed(&self, job: JobId, group: GroupId) -> bool {
        self.mirror.serves(RowKey { job, row: group.row() }).is_some()
    }
}

impl Asked {
    fn of(frame: &[u8]) -> Option<Self> {
        let udp = Udp::parse(frame).ok()?;
        let packet = Packet::new_checked(frame.get(udp.payload_range())?).ok()?;
        let Header { kind, job, group, chunk, .. } = Header::parse(&packet).ok()?;
        Some(Self { kind, job, group, chunk })
    }
}

/// What is drawn here and what the aggregator draws differ.
const AGENT_SEED: u64 = 0x7377_6974_6368;
/// Words of the switch that wait to be told to people.
const REFUSALS_MAX: usize = 16;
const NO_SCOPE: &str = "the switch's program has no scope left for a lease or push job";
