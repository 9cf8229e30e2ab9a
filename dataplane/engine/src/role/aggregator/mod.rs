//! The aggregator of one lane: collect contributions in slots, send the sum, bring the answer down.
//!
//! Decides the fate of every frame that reaches a lane. It is called once per frame with the
//! frame's buffer and rewrites it in place when something goes out, so no payload is copied. It
//! owns its leases alone: lanes share nothing, so there are no locks (DESIGN "Hot path"). Checks
//! run in the order of SPEC#checks, all before a slot is touched (I7). O(1) per frame.

mod admit;
mod behind;
mod cast;
mod data;
mod formation;
mod held;
mod hello;
mod holdings;
mod joined;
mod lease;
mod place;
mod quick;
mod reply;
mod roots;
mod run;
mod settled;
mod stats;
mod upstream;

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use weft_kernel::Kernels;
use weft_wire::frame::{Datagram, Endpoint, UdpAddr};
use weft_wire::header::{HEADER_LEN, Header, Packet};
use weft_wire::{ChunkIndex, GroupId, Nanos};

use crate::admit::StrangersQuota;
use crate::admit::quota::{Payer, Strangers};
use crate::classify::{Class, classify_padded};
use crate::drops::DropReason;
use crate::random::{Draw, Owner, Random, Seed};
use crate::role::gather::Gather;
use crate::role::{LeaseIndex, Verdict};
use crate::send::datagram::{dispatch_out, has_udp_checksum};
use crate::send::pacer::TokenBucket;
use crate::table::{ArenaConfig, BoxShape, JOBS_MAX, JobConfig, ROWS_MAX, Table};
use crate::timers::Timers;

pub(crate) use behind::{LeaseView, Seeded};
pub use lease::{LeaseReport, MemberReport, Phase};
pub use settled::UNSETTLED_MAX;
pub use stats::{JobStats, Stats};

use lease::{Lease, Room};
use place::Past;
use quick::Quick;
use roots::Roots;
use run::WindowedRuns;
use settled::Settled;

/// The aggregator of one lane.
#[derive(Debug)]
pub struct Aggregator {
    shape: BoxShape,
    local: Endpoint,
    local_addr: UdpAddr,
    lane: u16,
    shards: u16,
    /// Shards are a power of two: its exponent.
    shards_log2: u32,
    jobs: Vec<Option<Job>>,
    jobs_max: usize,
    /// Row index to lease.
    rows: Vec<Option<LeaseIndex>>,
    /// By row index: what its next lease goes on from.
    pasts: Vec<Past>,
    arena: ArenaConfig,
    /// The places for leases, free or not.
    leases: Vec<Lease>,
    /// Which lease a root speaks to.
    roots: Roots,
    /// When each lease's leaf has something to say to its root.
    timers: Timers,
    strangers: Strangers,
    runs: WindowedRuns,
    gather: Gather,
    random: Random,
    secret: (u64, u64),
    settled: Settled,
    /// Where the rows' multicast addresses begin.
    multicast: Option<IpAddr>,
    has_far_slots: bool,
    /// A switch has the slots that contributions go to; those here hold what was handed over.
    is_behind_switch: bool,
    /// Its port shares memory with members, and gives no other frames that source.
    has_memory: bool,
    /// What [`Aggregator::prefetch`] was asked for last.
    prefetched: (GroupId, ChunkIndex),
    stats: Stats,
}

#[derive(Debug)]
struct Job {
    config: JobConfig,
    bucket: Option<TokenBucket>,
    stats: JobStats,
}

/// A frame under examination: what [`classify_padded`] found, and the buffer it lies in.
struct Incoming<'a> {
    udp: Datagram,
    header: Header,
    buffer: &'a mut [u8],
    now: Nanos,
    payer: Payer,
}

impl Incoming<'_> {
    #[inline]
    fn source(&self) -> UdpAddr {
        self.udp.source(self.buffer)
    }

    /// Bytes of the frame, up to the end of its datagram.
    #[inline]
    fn len_bytes(&self) -> usize {
        self.udp.payload_range().end
    }

    fn datagram(&mut self) -> &mut [u8] {
        let range = self.udp.payload_range();
        &mut self.buffer[range]
    }
}

impl Aggregator {
    /// Builds the lane `lane` of a box and takes all memory it will ever use: a place for each row
    /// and push job, and what the table's arena keeps free. `seed` must differ from start to start:
    /// epochs, cookies and tokens come from it (PROTOCOL section 6).
    #[must_use]
    pub fn new(table: &Table, lane: u16, seed: u64, kernels: &'static Kernels) -> Self {
        Self::of_seed(table, lane, &seed.into(), kernels)
    }

    /// The same of a seed that may have a tape.
    #[must_use]
    pub fn of_seed(table: &Table, lane: u16, seed: &Seed, kernels: &'static Kernels) -> Self {
        let (config, arena, shape) = (table.config(), table.arena(), table.config().shape());
        assert!(lane < shape.shards, "a lane of the box");
        let random = seed.map(|seed| seed ^ (u64::from(lane) << 48)).random(Owner::Lane);
        let mut jobs: Vec<Option<Job>> = Vec::new();
        jobs.resize_with(JOBS_MAX, || None);
        let rooms = config.rows.iter().map(|row| Room::of_row(&shape, row));
        let mut leases: Vec<Lease> = rooms.map(|room| Lease::vacant(room, kernels)).collect();
        let of_file = leases.len();
        let spare = core::iter::repeat_n(Room::of_arena(&shape, &arena), arena.leases.into());
        leases.extend(spare.map(|room| Lease::vacant(room, kernels)));
        leases[of_file..].iter_mut().for_each(Lease::touch);
        // What reduces and what gathers must not draw the same numbers.
        let gather = Gather::new(table, lane, seed.map(|seed| !seed), kernels);
        let addresses_max: usize = leases.iter().map(Lease::addresses_max).sum();
        let addresses_max = addresses_max + gather.addresses_max();
        let mut lane = Self {
            shape,
            local: config.local,
            local_addr: config.local.addr.into(),
            lane,
            shards: config.shards,
            shards_log2: config.shards.trailing_zeros(),
            jobs,
            jobs_max: config.jobs.len() + usize::from(arena.jobs),
            rows: vec![None; ROWS_MAX],
            pasts: vec![Past::default(); ROWS_MAX],
            arena,
            roots: Roots::new(leases.len()),
            timers: Timers::new(leases.len()),
            strangers: Strangers::new(StrangersQuota::default(), addresses_max),
            leases,
            runs: WindowedRuns::new(),
            gather,
            random,
            secret: (0, 0),
            settled: Settled::WHOLE,
            multicast: None,
            has_far_slots: false,
            is_behind_switch: false,
            has_memory: false,
            prefetched: Default::default(),
            stats: Stats::default(),
        };
        for job in &config.jobs {
            lane.add_job(*job);
        }
        for (row, place) in config.rows.iter().zip(0..) {
            lane.add_lease(LeaseIndex(place), row.clone());
        }
        let random = lane.random.of(Owner::Lane);
        lane.secret = (random.next_u64(Draw::Secret(0)), random.next_u64(Draw::Secret(1)));
        lane.renew();
        lane
    }

    /// Sets what frames that do not show whose they are may cost. Without it the defaults of
    /// [`StrangersQuota`] hold.
    #[must_use]
    pub fn with_strangers(mut self, quota: StrangersQuota) -> Self {
        self.strangers = self.strangers.with_quota(quota);
        self
    }

    /// Answers to all members of a row go as one datagram to the row's multicast address, where
    /// every member has said that it hears that (SPEC#answers-by-multicast). The rows' addresses
    /// begin with `base`; one that is none for all rows is as good as no address.
    #[must_use]
    pub fn with_multicast(mut self, base: Option<IpAddr>) -> Self {
        self.multicast = base;
        for lease in self.leases.iter_mut().filter(|lease| lease.is_installed) {
            lease.cast_from(&self.shape, self.lane, base);
        }
        self
    }

    /// Of a box that a controller tells what to hold: about what it does not serve it says nothing
    /// before [`Aggregator::handle_settled`], or for [`UNSETTLED_MAX`].
    #[must_use]
    pub fn unsettled(mut self) -> Self {
        self.settled = Settled::PARTIAL;
        self
    }

    /// The controller has had the box hold all that it is to hold. Called between bursts.
    pub fn handle_settled(&mut self) {
        self.settled = Settled::WHOLE;
    }

    /// The push jobs, for reports and copies.
    #[must_use]
    pub fn gather(&self) -> &Gather {
        &self.gather
    }

    /// The push jobs, to command them between bursts.
    pub fn gather_mut(&mut self) -> &mut Gather {
        &mut self.gather
    }

    /// Decides the fate of the frame in `buffer[..len]`. The rest of `buffer` is room for a longer
    /// answer. Never panics on any content.
    pub fn handle_frame(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Verdict {
        self.stats.frames += 1;
        if !self.gather.is_empty()
            && let Some(result) = self.gather.take_quickly(now, buffer, len)
        {
            return result.unwrap_or_else(|reason| self.refuse(reason));
        }
        match self.take_quickly(now, buffer, len) {
            Quick::Hold => Verdict::Hold,
            Quick::Complete(index, step) => self.complete(index, step, buffer),
            Quick::Drop(reason) => self.refuse(reason),
            Quick::Else => match self.take_slowly(now, buffer, len) {
                Ok(verdict) => verdict,
                Err(reason) => self.refuse(reason),
            },
        }
    }

    fn refuse(&mut self, reason: DropReason) -> Verdict {
        self.stats.drops.count(reason);
        Verdict::Drop(reason)
    }

    /// The long way, which every frame may go.
    #[inline(never)]
    fn take_slowly(
        &mut self,
        now: Nanos,
        buffer: &mut [u8],
        len: usize,
    ) -> Result<Verdict, DropReason> {
        match classify_padded(&buffer[..len], |port| self.listens(port)) {
            Class::Host => Ok(Verdict::Host),
            Class::Drop(reason) => Err(reason),
            Class::Weft(udp, header) => {
                if udp.target(buffer).is_same_host(self.local_addr) {
                    let payer = Payer::Strangers;
                    self.dispatch(&mut Incoming { udp, header, buffer, now, payer })
                } else {
                    Err(DropReason::NotForUs)
                }
            }
        }
    }

    /// True when a lease's slots, or whole leases, lie beyond the caches near the lcore, so that
    /// [`Aggregator::prefetch`] pays. Nearer, the hints cost more than they hide: the processor
    /// sees sixteen lines in a row by itself.
    #[inline]
    #[must_use]
    pub fn has_far_slots(&self) -> bool {
        self.has_far_slots || !self.gather.is_empty()
    }

    /// Touches the memory that [`Aggregator::handle_frame`] will need for this frame, so that it
    /// is in cache by then. Reads the header without judging it.
    #[inline]
    pub fn prefetch(&mut self, frame: &[u8]) {
        let Some(head) = frame.first_chunk::<{ 42 + HEADER_LEN }>() else { return };
        let packet = Packet::new_unchecked(&head[42..]);
        // Of the contributions to a step, which come together, the first is enough.
        let target = (packet.group(), packet.chunk());
        if target == self.prefetched {
            return;
        }
        self.prefetched = target;
        if let Some(push) = self.gather.find(packet.job()) {
            return self.gather.prefetch(push, &packet);
        }
        let Some(Some(index)) = self.rows.get(usize::from(packet.group().row())) else { return };
        let lease = &self.leases[index.index()];
        let step = packet.chunk().0 >> self.shards_log2;
        lease.slots.prefetch(step);
    }

    /// Members of a lease: how many frames a [`Verdict::Multicast`] becomes.
    #[inline]
    #[must_use]
    pub fn fan_out(&self, lease: LeaseIndex) -> usize {
        self.leases[lease.index()].members.len()
    }

    /// Bytes of Ethernet, IP and UDP header that [`Aggregator::readdress`] rewrites.
    #[inline]
    #[must_use]
    pub fn encap_len(&self, lease: LeaseIndex) -> usize {
        self.leases[lease.index()].members[0].encap.header_len()
    }

    /// Rewrites `header`, the first [`Aggregator::encap_len`] bytes of a copy of a multicast frame
    /// of `frame_len` bytes, for the member with index `member`. The payload need not be there.
    #[inline]
    pub fn readdress(&self, lease: LeaseIndex, member: usize, header: &mut [u8], frame_len: usize) {
        let lease = &self.leases[lease.index()];
        let encap = &lease.members[member].encap;
        let payload_len = frame_len - encap.header_len();
        if has_udp_checksum(encap, lease.row.integrity) {
            encap.readdress(&lease.members[0].encap, header, payload_len);
        } else {
            // Nothing is read, for the copy's bytes are still on their way to the cache.
            encap.emit(header, payload_len);
        }
    }

    /// Writes the next frame that no incoming frame asked for (a leaf's own handshake with the
    /// root, its hand-overs and repeated sums) and returns its length. Call after each burst and
    /// at [`Aggregator::poll_timeout`], until it returns `None`.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        while let Some(index) = self.timers.due(now) {
            let index = LeaseIndex(u16::try_from(index).expect("at most 1024 rows"));
            let len = self.poll_upstream(index, now, frame);
            self.renew_timer(index);
            if len.is_some() {
                return len;
            }
        }
        self.gather.poll_transmit(now, frame)
    }

    /// When [`Aggregator::poll_transmit`] will have something without further input;
    /// [`Nanos::MAX`]: never.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.timers.earliest().min(self.gather.poll_timeout())
    }

    /// Counters of the lane.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Counters of the jobs, by index on the wire.
    pub fn jobs(&self) -> impl Iterator<Item = (u16, &JobStats)> {
        (0u16..).zip(&self.jobs).filter_map(|(id, job)| Some((id, &job.as_ref()?.stats)))
    }

    /// State of every lease, for reports and tests.
    pub fn leases(&self) -> impl Iterator<Item = LeaseReport<'_>> {
        self.installed().map(Lease::report)
    }

    fn job_mut(&mut self, lease: LeaseIndex) -> &mut Job {
        self.leases[lease.index()].job(&mut self.jobs)
    }
}

/// Slots of up to this many bytes are near: what an lcore may expect of a shared L3. With 4 MiB of
/// slots prefetching cost 3 % more than it gained.
const NEAR_BYTES: usize = 8 << 20;

#[cfg(test)]
pub(crate) mod tests;
