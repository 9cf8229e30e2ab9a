//! One worker of one job with a parameter server (SPEC#push, SPEC#pull; PROTOCOL sections 3 to 5).
//!
//! A [`Pusher`] holds channels to the server and to the boxes it is told of, sends updates the way
//! they were granted, and pulls models. It decides and does no I/O: the caller brings frames, the
//! time, the data, and what a controller said.
//!
//! - `handle_*` says what happened: [`Pusher::handle_frame`], [`Pusher::handle_timeout`],
//!   [`Pusher::handle_grant`], [`Pusher::handle_release`], [`Pusher::handle_outcome`].
//! - `poll_*` says what to do: after any `handle_*` or command, call [`Pusher::poll_transmit`]
//!   until it gives nothing, then [`Pusher::poll_event`] until it gives nothing, and call
//!   `handle_timeout` no later than [`Pusher::poll_timeout`].
//! - [`Pusher::begin_update`], [`Pusher::begin_pull`] and [`Pusher::close`] are the commands.
//!
//! Invariants: no chunk goes to a server that gave no credit for it, nor to an aggregator before
//! the gate opens; a granted rate is a ceiling; an update's data is kept until it is decided
//! (I1: committed whole exactly once, or its worker is told). Memory is taken by commands; a frame
//! allocates nothing (I7).
//!
//! | file | what it decides |
//! | --- | --- |
//! | `commands.rs` | what a caller or a controller may say when |
//! | `update.rs` | where an update stands, what its chunks say |
//! | `flight.rs` | which chunks are out, which go again |
//! | `pull.rs` | the model on its way here |
//! | `receive.rs` | what a frame means |
//! | `versions.rs` | what a frame about the model means |
//! | `transmit.rs` | what goes next |

mod commands;
mod config;
mod event;
mod flight;
mod pull;
mod receive;
mod set;
mod stats;
mod transmit;
mod update;
mod versions;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use weft_control::{BoxIndex, Decision, UPDATE_CHUNKS_MAX, Version};
use weft_kernel::Kernels;
use weft_wire::frame::{ETHERNET_LEN, Endpoint, IPV6_LEN, UDP_LEN};
use weft_wire::header::HEADER_LEN;
use weft_wire::hello::BODY_LEN;
use weft_wire::{GroupId, Nanos};

pub use config::{BOXES_MAX, Grant, NewUpdate, PusherConfig, SEGMENTS_MAX, Segment, Values};
pub use event::{Event, ModelFault, PushFault, PushRefusal};
pub use stats::PusherStats;

use crate::random::SplitMix64;
use crate::role::channel::{
    ChannelClient, ChannelClientConfig, ChannelError, ChannelTerms, Peer, Standing,
};
use crate::send::pacer::TokenBucket;
use crate::send::path::Path;
use crate::session::path::{PathProbe, PathProbeConfig};
use pull::Puller;
use update::{Phase, Update};

/// One worker of one job with a parameter server.
#[derive(Debug)]
pub struct Pusher {
    config: PusherConfig,
    kernels: &'static Kernels,
    life: u64,
    state: State,
    /// The server first, then the boxes in the order in which they were told.
    hosts: Vec<Host>,
    terms: Option<ChannelTerms>,
    updates: Vec<Update>,
    /// Memory of updates that are finished.
    spare: Vec<Update>,
    /// The update that may send first.
    turn: usize,
    puller: Puller,
    /// Credits for groups whose grant has not come yet.
    early: VecDeque<(GroupId, u32)>,
    /// Generation of the next direct update.
    generation: u16,
    /// The newest version that the server has named in this life of its.
    newest: Version,
    /// The version of the last model in this life of the server.
    pulled: Version,
    /// Groups that the server waits for in vain.
    declined: ArrayVec<GroupId, DECLINED_MAX>,
    pacer: Option<TokenBucket>,
    paced_until: Nanos,
    /// The frame written last belongs to a train.
    is_in_train: bool,
    /// Since when the server owes a word.
    asked_at: Option<Nanos>,
    close_at: Nanos,
    events: VecDeque<Event>,
    stats: PusherStats,
}

/// A host and the path to it.
#[derive(Debug)]
struct Host {
    /// `None`: the server.
    index: Option<BoxIndex>,
    is_replica: bool,
    channel: ChannelClient,
    path: Path,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Connecting,
    Open,
    Closing,
    Stopped,
}

impl Pusher {
    /// Starts to open the channel to the server. `seed` must differ between lives of the same
    /// rank; the same inputs and seed give the same frames.
    ///
    /// # Errors
    /// [`PushFault::Channel`] when the two addresses cannot reach each other.
    pub fn new(config: PusherConfig, seed: u64, now: Nanos) -> Result<Self, PushFault> {
        let mut random = SplitMix64::new(seed);
        let life = random.next_non_zero();
        let mut hosts = Vec::with_capacity(1 + BOXES_MAX);
        hosts.push(
            Host::new(&config, None, false, config.server, life, now)
                .map_err(PushFault::Channel)?,
        );
        Ok(Self {
            config,
            kernels: Kernels::detect(),
            life,
            state: State::Connecting,
            hosts,
            terms: None,
            updates: Vec::with_capacity(config.updates_max),
            spare: Vec::with_capacity(config.updates_max),
            turn: 0,
            puller: Puller::new(&config),
            early: VecDeque::with_capacity(EARLY_MAX),
            // An earlier life's updates must not be taken for this one's.
            generation: u16::try_from(random.next_u64() >> 48).unwrap_or(0),
            newest: Version(0),
            pulled: Version(0),
            declined: ArrayVec::new(),
            pacer: config.rate_bytes_per_sec.map(update::bucket),
            paced_until: Nanos::MAX,
            is_in_train: false,
            asked_at: None,
            close_at: Nanos::MAX,
            events: VecDeque::with_capacity(events_max(&config)),
            stats: PusherStats::default(),
        })
    }

    /// Tells of an aggregator or replica of the job, and opens a channel to it. One that is known
    /// by this index is left as it is.
    ///
    /// # Errors
    /// [`PushRefusal::Box`] when there are [`BOXES_MAX`] already, or the addresses' families
    /// differ.
    pub fn add_box(
        &mut self,
        now: Nanos,
        index: BoxIndex,
        target: Endpoint,
        is_replica: bool,
    ) -> Result<(), PushRefusal> {
        let is_known = |host: &Host| host.index == Some(index) && host.is_replica == is_replica;
        if self.hosts.iter().any(is_known) {
            return Ok(());
        }
        if self.hosts.len() > BOXES_MAX {
            return Err(PushRefusal::Box);
        }
        let host = Host::new(&self.config, Some(index), is_replica, target, self.life, now)
            .map_err(|_| PushRefusal::Box)?;
        self.hosts.push(host);
        Ok(())
    }

    /// Turns to another server, which was the job's replica (SPEC#promotion). What is under way is
    /// kept, and asked for there; [`Event::Reconnected`] follows. Nothing happens when it is the
    /// server already.
    ///
    /// # Errors
    /// [`PushRefusal::Box`] when the address is of another family; the old server stays.
    pub fn move_server(&mut self, now: Nanos, target: Endpoint) -> Result<(), PushRefusal> {
        if self.config.server.addr == target.addr {
            return Ok(());
        }
        let host = Host::new(&self.config, None, false, target, self.life, now)
            .map_err(|_| PushRefusal::Box)?;
        self.config.server = target;
        // There is no replica any more; its channel would be the server's now.
        self.hosts.retain(|host| !host.is_replica);
        self.hosts[pull::SERVER] = host;
        self.asked_at = Some(now);
        self.early.clear();
        self.declined.clear();
        self.puller.leave_host(now, &mut self.stats);
        self.stats.servers_moved += 1;
        Ok(())
    }

    /// What the server said of the job, once its channel is open.
    #[must_use]
    pub fn terms(&self) -> Option<&ChannelTerms> {
        self.terms.as_ref()
    }

    /// What has been counted.
    #[must_use]
    pub fn stats(&self) -> &PusherStats {
        &self.stats
    }

    /// Chunks sent of updates whose outcome is not known yet.
    #[must_use]
    pub fn chunks_undecided(&self) -> u64 {
        let open = self.updates.iter().filter(|update| update.phase == Phase::Granted);
        open.map(|update| u64::from(update.sent_count())).sum()
    }

    /// The group of an update that was granted, or sent without a controller.
    #[must_use]
    pub fn group_of(&self, number: u64) -> Option<GroupId> {
        let update = self.updates.iter().find(|update| update.number == number)?;
        (update.phase != Phase::Requested).then_some(update.group)
    }

    /// True while frames are expected: an update was granted, a pull or a handshake is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.state != State::Open
            || !self.puller.is_idle()
            || self.updates.iter().any(|update| update.phase == Phase::Granted)
    }

    /// Bytes that the buffer of [`Pusher::poll_transmit`] must have. Grows once, when the channel
    /// to the server opens, and only where no probe was configured.
    #[must_use]
    pub fn frame_len_max(&self) -> usize {
        let headers = ETHERNET_LEN + IPV6_LEN + UDP_LEN;
        let body = self.chunk_len().max(BODY_LEN);
        headers + (HEADER_LEN + body).max(usize::from(self.config.probe_len))
    }

    /// Gives up what is under way and closes the channels. [`Event::Closed`] follows, within
    /// `close_linger`.
    pub fn close(&mut self, now: Nanos) {
        if matches!(self.state, State::Closing | State::Stopped) {
            return;
        }
        self.state = State::Closing;
        self.close_at = now.saturating_add(Nanos(self.config.close_linger_ns));
        for host in &mut self.hosts {
            host.channel.close(now);
        }
        self.stop_if_closed();
    }

    /// Asks whether the path to the server carries the job's chunks, beside the channel; `None`
    /// while that is not known. `life` is no other of this worker's.
    #[must_use]
    pub fn probe_path(&self, life: u64, now: Nanos) -> Option<PathProbe> {
        self.terms?;
        let PusherConfig { job, rank, local, server: target, probe_len, .. } = self.config;
        let worker = Peer::Worker(rank);
        let chunk_len = u16::try_from(HEADER_LEN + self.chunk_len()).unwrap_or(u16::MAX);
        let probe_len = if probe_len == 0 { chunk_len } else { chunk_len.min(probe_len) };
        let (row, members) = (worker.row(), worker.bit());
        let config = PathProbeConfig { job, row, members, local, target, probe_len };
        PathProbe::new(config, life, now)
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn stop(&mut self, event: Event) {
        if self.state != State::Stopped {
            self.state = State::Stopped;
            self.report(event);
        }
    }

    fn stop_if_closed(&mut self) {
        let is_closed = |host: &Host| host.channel.standing() == Standing::Closed;
        if self.state == State::Closing && self.hosts.iter().all(is_closed) {
            self.stop(Event::Closed);
        }
    }

    /// Queues an event. Each update has three at most and the rest are few, so nothing is lost by
    /// a caller that polls; one that does not poll loses the newest.
    fn report(&mut self, event: Event) {
        if self.events.len() < self.events.capacity() {
            self.events.push_back(event);
        }
    }

    fn decide(&mut self, index: usize, decision: Decision) {
        let update = &mut self.updates[index];
        let number = update.number;
        if matches!(decision, Decision::Committed(_)) && !update.is_delivered {
            // Its outcome has overtaken the last acknowledgement.
            self.report(Event::Delivered { number });
        }
        self.updates[index].decide(decision, &mut self.stats);
        self.report(Event::Decided { number, decision });
    }

    fn update_mut(&mut self, number: u64) -> Result<&mut Update, PushRefusal> {
        let mut updates = self.updates.iter_mut();
        updates.find(|update| update.number == number).ok_or(PushRefusal::Number)
    }

    /// The place of an aggregator among the hosts.
    fn box_host(&self, index: BoxIndex) -> Option<usize> {
        self.hosts.iter().position(|host| host.index == Some(index) && !host.is_replica)
    }

    /// Bytes of a chunk's payload, up or down.
    fn chunk_len(&self) -> usize {
        self.terms.map_or(0, |terms| usize::from(terms.job.elements) * size_of::<f32>())
    }
}

impl Host {
    fn new(
        config: &PusherConfig,
        index: Option<BoxIndex>,
        is_replica: bool,
        target: Endpoint,
        life: u64,
        now: Nanos,
    ) -> Result<Self, ChannelError> {
        let peer = Peer::Worker(config.rank);
        let mut channel = ChannelClientConfig::new(config.job, peer, config.local, target);
        channel.hello_interval_ns = config.hello_interval_ns;
        channel.silent_timeout_ns = config.connect_timeout_ns;
        channel.probe_len = config.probe_len;
        Ok(Self {
            index,
            is_replica,
            channel: ChannelClient::new(channel, life, now)?,
            path: pull::path(config),
        })
    }

    fn is_open(&self) -> bool {
        self.channel.standing() == Standing::Open
    }
}

/// Room for three events of every update, a pull, and those of the session.
fn events_max(config: &PusherConfig) -> usize {
    3 * config.updates_max + 8
}

/// Credits kept for grants that are on their way: a server's first window.
const EARLY_MAX: usize = 256;
/// Refusals that wait to be sent.
const DECLINED_MAX: usize = 8;

#[cfg(test)]
mod tests;
