//! One push job at an aggregator: what a controller's word and the server's decisions change.

use alloc::vec::Vec;

use weft_control::{Command, Event, PushConfig};
use weft_kernel::CrcPatch;
use weft_wire::frame::{ETHERNET_LEN, Endpoint, IPV4_LEN, IPV6_LEN, UDP_LEN, UdpAddr};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome};
use weft_wire::{ChunkIndex, GroupId, JobId, Members, Nanos, Rank};

use super::channels::channel;
use super::group::Groups;
use super::have::HaveTemplate;
use super::memory::{Memory, arithmetic};
use super::relay::Relay;
use super::stats::{PushStats, Transition};
use super::{Have, Outbox};
use crate::admit::expected::{Expected, Masks};
use crate::drops::DropReason;
use crate::random::{Draw, Random};
use crate::role::PushIndex;
use crate::role::Verdict;
use crate::role::channel::{ChannelClient, ChannelHost, JobTerms, Peer, Standing};
use crate::send::datagram::plain_header;
use crate::send::pacer::TokenBucket;
use crate::slot::State;
use crate::slot::whole::Arena;
use crate::table::{pull_slot_count, push_slot_count};

/// A push job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) config: PushConfig,
    pub(super) push: PushIndex,
    pub(super) local: Endpoint,
    /// Of all channels that this box opens for the job.
    pub(super) life: u64,
    /// Bytes of a contribution's frame.
    pub(super) frame_len: u64,
    /// Bytes of elements in a contribution.
    pub(super) payload_len: usize,
    /// What each worker's contributions begin with.
    pub(super) expected: Vec<Expected>,
    /// Which bits of that count.
    pub(super) masks: Masks,
    /// What each worker's acknowledgements are made of.
    pub(super) haves: Vec<Option<HaveTemplate>>,
    /// Contributions are summed in runs.
    pub(super) takes_runs: bool,
    pub(super) workers: ChannelHost,
    pub(super) server: ChannelClient,
    pub(super) replica: Option<ChannelClient>,
    pub(super) bucket: Option<TokenBucket>,
    pub(super) arena: Arena,
    pub(super) groups: Groups,
    pub(super) relay: Relay,
    /// Mends the CRC of a sum's copy.
    pub(super) sum_patch: CrcPatch,
    /// Mends the CRC of an answer's copy.
    pub(super) answer_patch: CrcPatch,
    pub(super) stats: PushStats,
}

impl Job {
    /// Begins a job that was judged, in memory that has room for it. It looks to everybody as that
    /// of a box that has just begun: epoch, cookies, tokens and life are new.
    pub(super) fn new(
        memory: Memory,
        local: Endpoint,
        push: PushIndex,
        config: &PushConfig,
        mut random: Random,
    ) -> Self {
        let Memory {
            mut workers,
            peers,
            mut expected,
            mut haves,
            mut arena,
            mut groups,
            mut relay,
        } = memory;
        let elements = usize::from(config.elements);
        let payload_len = elements * config.element_type.len_bytes();
        arena.renew(push_slot_count(config), arithmetic(config), elements);
        groups.renew(config.workers.len());
        relay.renew(pull_slot_count(config), elements * 4);
        expected.resize(config.workers.len(), Expected::NOTHING);
        haves.resize(config.workers.len(), None);
        workers.extend_from_slice(&config.workers);
        let terms = JobTerms {
            job: config.job,
            elements: config.elements,
            integrity: config.integrity,
            exponent: config.exponent,
            chunks: config.chunks,
        };
        let life = random.next_non_zero(Draw::Life);
        let client =
            |target: Endpoint| channel(config, local, target, life).expect("one address family");
        let bucket = |rate| TokenBucket::new(rate, config.burst_bytes);
        let mut job = Self {
            push,
            local,
            life,
            frame_len: frame_len(config),
            payload_len,
            expected,
            masks: Masks::of(None, config.integrity).with_any_group(),
            haves,
            takes_runs: false,
            server: client(config.server),
            replica: config.replica.map(client),
            bucket: config.rate_bytes_per_sec.map(bucket),
            arena,
            groups,
            relay,
            sum_patch: CrcPatch::before(payload_len),
            answer_patch: CrcPatch::before(elements * 4),
            stats: PushStats::default(),
            workers: ChannelHost::in_memory(peers, local, terms, &workers, &[], random),
            config: PushConfig { workers, ..*config },
        };
        job.takes_runs = job.may_take_runs();
        job
    }

    /// Ends the job, whatever its workers and its server do, and gives its memory back.
    pub(super) fn into_memory(self) -> Memory {
        let Self { config, workers, mut expected, mut haves, arena, groups, relay, .. } = self;
        let mut addresses = config.workers;
        addresses.clear();
        expected.clear();
        haves.clear();
        let peers = workers.into_memory();
        Memory { workers: addresses, peers, expected, haves, arena, groups, relay }
    }

    /// The server's decision: whatever it is, the group needs its lease no more.
    pub(super) fn handle_ack(&mut self, header: &Header) -> Result<Verdict, DropReason> {
        let decided =
            matches!(header.outcome, Outcome::Committed | Outcome::Void | Outcome::Dropped);
        if !decided {
            return Ok(Verdict::Hold);
        }
        if self.groups.remove(&mut self.arena, header.group) {
            self.stats.count(Transition::FreeByAck);
            Ok(Verdict::Hold)
        } else {
            Err(DropReason::StaleGroup)
        }
    }

    pub(super) fn handle_command(&mut self, command: &Command, outbox: &mut Outbox) {
        match command {
            Command::Install(descriptor) => {
                let group = descriptor.group;
                let event = match self.groups.install(&self.config, &mut self.arena, descriptor) {
                    Ok(()) => {
                        self.stats.count(Transition::Install);
                        Event::Installed { group }
                    }
                    Err(error) => {
                        self.stats.count(Transition::Refuse);
                        Event::Refused { group, error }
                    }
                };
                outbox.answer(self.config.job, event);
            }
            Command::Remove { group, .. } => {
                if self.groups.remove(&mut self.arena, *group) {
                    self.stats.count(Transition::FreeByController);
                }
            }
            Command::CloseMember { group, rank, .. } => {
                self.close(*rank, |id, _, _| group.is_none_or(|group| group == id));
            }
            Command::MoveServer { server, .. } => self.move_server(*server),
            // The server conducts; this box sends only what it is asked for. What the box holds
            // is not the job's own affair.
            Command::SetRate { .. }
            | Command::Skip { .. }
            | Command::Promote { .. }
            | Command::StandDown { .. }
            | Command::LeaveReplica { .. }
            | Command::Holding(_)
            | Command::SetBands { .. }
            | Command::SetLabel { .. } => {}
        }
    }

    /// Takes a member out of groups; `which` is told the group, its chunks that are in, and of how
    /// many.
    pub(super) fn close(&mut self, rank: Rank, which: impl Fn(GroupId, u32, u32) -> bool) {
        if rank.index() >= self.config.workers.len() {
            return;
        }
        let left = self
            .groups
            .close_member(rank, |id, progress, chunks| which(id, progress.chunks, chunks));
        for _ in 0..left {
            self.stats.count(Transition::Narrow);
        }
    }

    pub(super) fn write_have(&self, have: &Have, frame: &mut [u8]) -> Option<usize> {
        let header =
            Header { chunk: have.chunk, ..self.state(Outcome::Have, have.group, have.members) };
        self.workers.write(have.peer, &header, frame, 0)
    }

    pub(super) fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        let server = self.server.poll_transmit(now, frame);
        server.or_else(|| self.replica.as_mut()?.poll_transmit(now, frame))
    }

    pub(super) fn poll_timeout(&self) -> Nanos {
        let replica = self.replica.as_ref().map_or(Nanos::MAX, ChannelClient::poll_timeout);
        self.server.poll_timeout().min(replica)
    }

    /// Where workers, server and replica speak from.
    pub(super) fn addresses(&self) -> impl Iterator<Item = UdpAddr> + '_ {
        self.config.addresses().map(UdpAddr::from)
    }

    /// Bytes of the frame of a chunk of the model.
    pub(super) fn model_frame_len(&self) -> usize {
        self.server.payload_start() + usize::from(self.config.elements) * 4
    }

    #[inline]
    pub(super) fn prefetch(&self, group: GroupId, chunk: ChunkIndex) {
        if let Some(group) = self.groups.in_row(group.row())
            && chunk.0 < group.range.len
        {
            self.arena.prefetch(group.range, chunk.0);
        }
    }

    /// Header of a STATE.
    pub(super) fn state(&self, outcome: Outcome, group: GroupId, members: Members) -> Header {
        Header { outcome, ..plain_header(Kind::State, self.config.job, group, members) }
    }

    /// Header of a frame with the elements of an update.
    pub(super) fn data_header(&self, group: GroupId, chunk: ChunkIndex, exponent: i8) -> Header {
        Header {
            flags: Flags::NONE,
            chunk,
            element_type: self.config.element_type,
            operation: Operation::Sum,
            exponent,
            count: self.config.elements,
            ..plain_header(Kind::Contrib, self.config.job, group, Members::EMPTY)
        }
    }

    /// Header of a frame with a chunk of the model.
    pub(super) fn model_header(&self, group: GroupId, chunk: ChunkIndex) -> Header {
        Header {
            chunk,
            element_type: ElementType::F32,
            count: self.config.elements,
            ..plain_header(Kind::Answer, self.config.job, group, Members::EMPTY)
        }
    }

    pub(super) fn report(&self) -> PushReport<'_> {
        PushReport { job: self }
    }
}

/// Bytes of a contribution's frame.
fn frame_len(config: &PushConfig) -> u64 {
    let ip_len = if config.server.addr.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
    let payload_len = usize::from(config.elements) * config.element_type.len_bytes();
    (ETHERNET_LEN + ip_len + UDP_LEN + HEADER_LEN + payload_len) as u64
}

/// A read-only view of a push job.
#[derive(Clone, Copy, Debug)]
pub struct PushReport<'a> {
    job: &'a Job,
}

impl<'a> PushReport<'a> {
    /// The job's configuration.
    #[must_use]
    pub fn config(&self) -> &'a PushConfig {
        &self.job.config
    }

    /// Its index on the wire.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.job.config.job
    }

    /// Its counters.
    #[must_use]
    pub fn stats(&self) -> &'a PushStats {
        &self.job.stats
    }

    /// Groups that are open.
    #[must_use]
    pub fn groups_open(&self) -> usize {
        self.job.groups.open()
    }

    /// Ids and masks of the groups that are open, by row.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, Members)> + 'a {
        self.job.groups.iter().map(|group| (group.id, group.mask))
    }

    /// Slots that the quota paid for.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.job.arena.len()
    }

    /// Slots that open groups have.
    #[must_use]
    pub fn slots_in_use(&self) -> usize {
        self.job.arena.len() - self.job.arena.free_len()
    }

    /// State and contributors of a slot, for tests and reports.
    #[must_use]
    pub fn slot(&self, group: GroupId, chunk: u32) -> Option<(State, Members)> {
        self.slot_and_credit(group, chunk).map(|(state, members, _)| (state, members))
    }

    /// The same, and whether the server has asked for its sum.
    #[must_use]
    pub fn slot_and_credit(&self, group: GroupId, chunk: u32) -> Option<(State, Members, bool)> {
        let group = self.job.groups.find(group).ok()?;
        let in_range = chunk < group.range.len;
        let slot = in_range.then(|| self.job.arena.slot(group.place(chunk)))?;
        Some((slot.state(), slot.members(), slot.has_credit()))
    }

    /// Where the channel to the server stands.
    #[must_use]
    pub fn server(&self) -> Standing {
        self.job.server.standing()
    }

    /// Where the channel to the replica stands, if the job has one.
    #[must_use]
    pub fn replica(&self) -> Option<Standing> {
        self.job.replica.as_ref().map(ChannelClient::standing)
    }

    /// Workers that have a channel.
    #[must_use]
    pub fn workers_open(&self) -> Members {
        let all = self.job.workers.worker_mask();
        let open = all.iter().filter(|rank| self.job.workers.is_open(Peer::Worker(*rank)));
        open.fold(Members::EMPTY, |mask, rank| mask.union(rank.bit()))
    }
}
