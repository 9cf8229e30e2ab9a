//! The box of a table: it knows at which process each row is (PROTOCOL section 13, "Directory",
//! "Restart", "Death").
//!
//! | file | decides |
//! | --- | --- |
//! | `directory.rs` | where each row is, and when nobody has it |
//! | `join.rs` | who lives in which life |
//! | `traffic.rs` | where frames go on to, and what follows from claims |
//!
//! It holds a cache of what processes know, begins empty, and learns it again. It never
//! deduplicates. It takes frames of this life alone, from processes that live in it; what is of
//! another life is told so. A process that is silent for too long is dead: a new life begins
//! without it.

mod directory;
mod join;
mod traffic;

use alloc::vec::Vec;

use weft_wire::frame::UdpAddr;
use weft_wire::header::{Header, Kind};
use weft_wire::keys::{Number, What};
use weft_wire::{Cookie, Members, Nanos};

use self::directory::Directory;
use self::join::Member;
use super::check;
use super::config::{TableConfig, TableError};
use super::frames::{Frames, Kinship, Outbox, To};
use crate::drops::{DropCounters, DropReason};
use crate::random::{Draw, Owner, Random, Seed};
use crate::session::host::Host;

/// What a box is told of a table.
#[derive(Clone, Debug)]
pub struct HomeConfig<'a> {
    /// The table.
    pub table: TableConfig,
    /// Where its processes are.
    pub processes: &'a [UdpAddr],
    /// How long a process may be silent before it is dead.
    pub death_timeout: Nanos,
}

/// What happened, counted.
#[derive(Clone, Debug, Default)]
pub struct HomeStats {
    /// Frames that were refused.
    pub drops: DropCounters,
    /// Accesses and localizes that were sent on, by key.
    pub accesses: u64,
    /// See above.
    pub localizes: u64,
    /// Rows that arrived at their takers.
    pub row_acks: u64,
    /// Keys that were asked for and are not known, or went round too often.
    pub waits: u64,
    /// Keys that were claimed.
    pub claims: u64,
    /// Keys of which a copy was taken back, and of which nobody had the row; repeats count.
    pub taken_back: u64,
    /// See above.
    pub restored: u64,
    /// Lives that began here.
    pub lives: u64,
    /// Processes that were declared dead.
    pub deaths: u64,
}

/// The box of a table.
#[derive(Debug)]
pub struct Home {
    table: TableConfig,
    death_timeout: Nanos,
    /// 0: not all have joined.
    life: u16,
    living: Members,
    began_at: Nanos,
    /// When it last did anything.
    awake_at: Nanos,
    members: Vec<Member>,
    host: Host,
    random: Random,
    cookie_down: Cookie,
    directory: Directory,
    frames: Frames,
    stats: HomeStats,
}

impl Home {
    /// A box that knows nothing. The seed is of this life of the box.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn new(config: &HomeConfig<'_>, seed: &Seed, now: Nanos) -> Result<Self, TableError> {
        let table = config.table;
        table.check()?;
        if config.processes.len() != usize::from(table.processes) {
            return Err(TableError::Addresses);
        }
        let mut random = seed.clone().random(Owner::Row(table.row()));
        let secret = [0, 1].map(|half| random.next_u64(Draw::Secret(half)));
        let host =
            Host { job: table.job, row: table.row(), lane: 0, secret: (secret[0], secret[1]) };
        Ok(Self {
            table,
            death_timeout: config.death_timeout,
            life: 0,
            living: Members::EMPTY,
            began_at: now,
            awake_at: now,
            members: config.processes.iter().map(|addr| Member::new(*addr)).collect(),
            host,
            random,
            cookie_down: Cookie::default(),
            directory: Directory::new(table.key_count),
            frames: Frames::new(table),
            stats: HomeStats::default(),
        })
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &TableConfig {
        &self.table
    }

    /// What happened.
    #[must_use]
    pub fn stats(&self) -> &HomeStats {
        &self.stats
    }

    /// The life; 0 while not all have joined.
    #[must_use]
    pub fn life(&self) -> u16 {
        self.life
    }

    /// Who lives in it.
    #[must_use]
    pub fn living(&self) -> Members {
        self.living
    }

    /// True once it is known of each key where it is.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.life > 0 && (0..self.table.key_count).all(|index| self.directory.is_settled(index))
    }

    /// When [`Home::poll`] has something to do: somebody has been silent for too long, or it has to
    /// be seen that this box is awake.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        let due = self.silent_at();
        due.min(match due {
            Nanos::MAX => due,
            _ => self.awake_at.saturating_add(Nanos(self.death_timeout.0 / LOOKS)),
        })
    }

    /// When the first has been silent for too long.
    fn silent_at(&self) -> Nanos {
        let first = match self.life {
            0 => self.members.iter().any(|member| member.known_life > 0).then_some(self.began_at),
            _ => self.living_members().map(|(_, member)| member.heard_at).min(),
        };
        first.map_or(Nanos::MAX, |at| at.saturating_add(self.death_timeout))
    }

    /// Looks who is silent.
    pub fn poll(&mut self, now: Nanos) {
        self.wake(now);
        if now >= self.silent_at() {
            self.bury(now);
        }
    }

    /// What passed while this box stood still, and its machine perhaps with it, was nobody's
    /// silence.
    fn wake(&mut self, now: Nanos) {
        let gap = now.since(self.awake_at);
        self.awake_at = now;
        if gap > Nanos(self.death_timeout.0 / 2) {
            let later = |at: Nanos| at.saturating_add(gap).min(now);
            self.began_at = later(self.began_at);
            self.members.iter_mut().for_each(|member| member.heard_at = later(member.heard_at));
        }
    }

    /// Takes a datagram from `source`.
    ///
    /// # Errors
    /// Why it was refused; that is counted, and nothing has changed.
    pub fn handle_datagram(
        &mut self,
        now: Nanos,
        source: UdpAddr,
        datagram: &[u8],
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let result = self.take_datagram(now, source, datagram, out);
        self.flush(out);
        result
    }

    /// As [`Home::handle_datagram`], one of several that came together: what goes on because of
    /// them leaves with [`Home::flush`], many keys in a frame.
    ///
    /// # Errors
    /// As before.
    pub fn take_datagram(
        &mut self,
        now: Nanos,
        source: UdpAddr,
        datagram: &[u8],
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        self.wake(now);
        let result = self.take(now, source, datagram, out);
        if let Err(reason) = result {
            self.stats.drops.count(reason);
        }
        result
    }

    /// Sends what goes on.
    pub fn flush(&mut self, out: &mut impl Outbox) {
        self.frames.flush_all(out);
    }

    fn take(
        &mut self,
        now: Nanos,
        source: UdpAddr,
        datagram: &[u8],
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let header = check::parse(&self.table, datagram)?;
        let about = header.members.single().ok_or(DropReason::BadMembers)?.number();
        if about >= self.table.processes {
            return Err(DropReason::BadMembers);
        }
        let place = self.members.iter().position(|member| member.peer.addr() == source);
        let sender = place.and_then(|place| u8::try_from(place).ok());
        let sender = sender.ok_or(DropReason::WrongSource)?;
        check::check_crc(datagram)?;
        if header.kind == Kind::Hello {
            return self.take_hello(now, sender, &header, datagram, out);
        }
        self.check_terms(sender, &header, out)?;
        if !self.living.contains(Members(1 << about)) {
            return Err(DropReason::BadMembers);
        }
        let frame = check::body(&self.table, &header, datagram)?;
        let is_sent_on = matches!(frame.what, What::Access | What::Localize);
        if about != sender && !is_sent_on {
            return Err(DropReason::WrongSource);
        }
        self.member(sender).heard_at = now;
        self.take_frame(about, &header, &frame, out)
    }

    /// Checks life and cookie; tells who lives in another life so.
    fn check_terms(
        &mut self,
        sender: u8,
        header: &Header,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let is_of_life = self.life > 0 && header.group.generation() == self.life;
        let is_known = is_of_life && self.living.contains(Members(1 << sender));
        if is_known && header.cookie == self.member(sender).peer.cookie_up() {
            return Ok(());
        }
        let stale = Kinship::new(What::Stale, sender, Number::NONE);
        self.frames.send_lone(To::Process(sender), &stale, header.cookie, out);
        Err(if is_known { DropReason::BadCookie } else { DropReason::StaleEpoch })
    }

    fn member(&mut self, process: u8) -> &mut Member {
        &mut self.members[usize::from(process)]
    }

    fn living_members(&self) -> impl Iterator<Item = (u8, &Member)> {
        let living = self.living;
        let members = (0u8..).zip(&self.members);
        members.filter(move |(process, _)| living.contains(Members(1 << process)))
    }
}

/// How often it looks, in the time after which a silent process is dead.
const LOOKS: u64 = 4;
