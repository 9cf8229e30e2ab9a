//! Captures of somebody else against a configuration: which frame is whose, and what it would be
//! if it had come to this box.
//!
//! Who sends a contribution has its bit in it, so ranks follow from the frames, or from `--map`.
//! Rows are the configuration's of the same job and number, else its rows in the order in which the
//! capture has them. The box is who most contributions go to. A handshake cannot be repeated, for
//! tokens are secret: that of the capture is left out, and each generation of a row that the
//! capture has is formed anew by members of our own ([`Member`]), who hold the steps that the
//! capture's JOINs hold. Where the capture has WELCOMEs, frames with a cookie of none of them are
//! strangers' here too. Then job, row, group, cookie and addresses of a frame are rewritten, and
//! its CRC or checksum; of what comes out they are mapped back. A CRC that was wrong stays wrong.
//!
//! What is compared: what the box sent to each member, in order, without the handshake. What the
//! two boxes' network stacks decide differs by nature and is left out ([`OUTER`]).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use weft_engine::role::aggregator::Aggregator;
use weft_io::PortInfo;
use weft_io::pcap::{Capture, Packet as Captured, PcapWriter};
use weft_kernel::{Kernels, crc32c};
use weft_lane::{LanePort, RoleLane, Settings};
use weft_node::stats::{LaneSnapshot, Report};
use weft_wire::frame::{Encap, Endpoint, Udp};
use weft_wire::header::{Kind, Packet};
use weft_wire::hello::{Hello, Integrity, Phase};
use weft_wire::{Cookie, GroupId, JobId, MacAddr, Nanos, Rank};

use super::difference::Difference;
use super::load::{ReplayError, read_config};
use super::member::Member;
use super::options::{Options, Outcome, Speed};
use super::play::{alone, compare};
use super::port::{Script, ScriptPort};

/// Fields that network stacks decide.
pub const OUTER: &str = "eth.target,eth.source,ip.tos,ip.id,ip.fragment,ip.ttl,ip.checksum,ip.flow,\
                         udp.checksum";

/// Frames on their way.
#[derive(Debug, Default)]
struct Wire {
    inbox: VecDeque<Vec<u8>>,
    outbox: Vec<Vec<u8>>,
}

impl Script for Wire {
    fn arrive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let frame = self.inbox.pop_front()?;
        buffer.get_mut(..frame.len())?.copy_from_slice(&frame);
        Some(frame.len())
    }

    fn leave(&mut self, _now: Nanos, frame: &[u8]) {
        self.outbox.push(frame.to_vec());
    }

    fn is_empty_pool(&mut self) -> bool {
        false
    }
}

/// Replays captures of somebody else, merged by time, against a node's configuration.
///
/// # Errors
/// [`ReplayError`]: a capture or configuration that cannot be read, or that does not fit.
pub fn replay_captures(
    inputs: &[PathBuf],
    config: &std::path::Path,
    map: &BTreeMap<IpAddr, Rank>,
    options: &Options,
) -> Result<Outcome, ReplayError> {
    let started = Instant::now();
    let settings = read_config(config)?;
    check(&settings, config)?;
    let captures = load(inputs)?;
    let expected = options.expect.as_ref().map(|path| load(std::slice::from_ref(path)));
    let expected = expected.transpose()?;
    let survey = Survey::of(captures.iter().chain(expected.iter().flatten()), map);
    let Some(target) = survey.target else {
        let problem = "nobody contributes in the capture: it has no CONTRIB of one member";
        return Err(ReplayError::Unfit(problem.to_owned()));
    };
    let mut replay = Foreign::new(&settings, survey, target, map, options);
    replay.run(&captures, expected.is_some());
    for capture in expected.iter().flatten() {
        capture.packets().enumerate().for_each(|(index, packet)| replay.expect(index, &packet));
    }
    replay.finish()?;
    let mut outcome = replay.outcome;
    let snapshot = LaneSnapshot::take(0, &replay.lane, &weft_node::host::Host::silent());
    outcome.report = Some(Report::new(&settings.config, 0.0, &[snapshot]));
    outcome.judge(started.elapsed().as_secs_f64());
    Ok(outcome)
}

/// What a capture can be replayed against.
fn check(settings: &Settings, config: &std::path::Path) -> Result<(), ReplayError> {
    let table = &settings.table;
    let problem = if table.rows.is_empty() {
        "has no [[row]]: a capture alone says what members contribute, not what a controller did"
    } else if table.rows.iter().any(|row| row.parent.is_some()) {
        "has a row with a parent: record the leaf itself (weft-node --record)"
    } else if table.shards > 1 {
        "has several lanes: set lcores.shards = 1"
    } else {
        return Ok(());
    };
    Err(ReplayError::Unfit(format!("{} {problem}", config.display())))
}

fn load(inputs: &[PathBuf]) -> Result<Vec<Capture>, ReplayError> {
    let one = |path: &PathBuf| {
        let capture = Capture::load(path)?;
        match capture.first_backward() {
            None => Ok(capture),
            Some(index) => Err(super::load::damaged(
                path,
                &format!("packet {} is before the one in front of it: `reordercap` it", index + 1),
            )),
        }
    };
    inputs.iter().map(one).collect()
}

/// What captures say of who is who.
#[derive(Debug, Default)]
struct Survey {
    target: Option<Endpoint>,
    /// Ranks by the address that contributions came from, and their Ethernet addresses.
    ranks: BTreeMap<SocketAddr, (Rank, MacAddr)>,
    /// Groups that the box welcomed members to, and the sessions.
    welcomed: BTreeMap<(JobId, u32), u64>,
    /// What it told them to put into their frames, and what its own carry.
    cookies_up: BTreeSet<u32>,
    welcome_down: BTreeMap<(JobId, u32), Cookie>,
    /// What the box put into frames to an address, by group.
    cookies_down: BTreeMap<(SocketAddr, u32), Cookie>,
}

impl Survey {
    fn of<'a>(captures: impl Iterator<Item = &'a Capture>, map: &BTreeMap<IpAddr, Rank>) -> Self {
        let mut survey = Self::default();
        let mut targets: BTreeMap<SocketAddr, (usize, MacAddr)> = BTreeMap::new();
        for packet in captures.flat_map(Capture::packets) {
            let Some((udp, weft)) = open(&packet) else { continue };
            if weft.kind() == Some(Kind::Contrib)
                && let Some(rank) = weft.members().single()
            {
                let rank = map.get(&udp.source.ip()).copied().unwrap_or(rank);
                survey.ranks.entry(udp.source).or_insert((rank, udp.source_mac));
                let mac =
                    packet.bytes.first_chunk().map_or_else(MacAddr::default, |mac| MacAddr(*mac));
                targets.entry(udp.target).or_insert((0, mac)).0 += 1;
            } else if weft.kind() == Some(Kind::Hello) {
                if let Ok((hello, _)) = Hello::parse(weft.payload())
                    && hello.phase == Phase::Welcome
                {
                    survey.cookies_up.insert(hello.cookie_up.0);
                    let key = (weft.job(), weft.group().0);
                    survey.welcome_down.insert(key, hello.cookie_down);
                    survey.welcomed.insert((weft.job(), weft.group().0), hello.session);
                }
            } else {
                survey.cookies_down.insert((udp.target, weft.group().0), weft.cookie());
            }
        }
        let most = targets.into_iter().max_by_key(|(_, (count, _))| *count);
        survey.target = most.map(|(addr, (_, mac))| Endpoint { mac, addr });
        survey
    }
}

/// The datagram of Weft's in a whole packet.
fn open<'a>(packet: &Captured<'a>) -> Option<(Udp, Packet<&'a [u8]>)> {
    if packet.is_cut() {
        return None;
    }
    let udp = Udp::parse(packet.bytes).ok()?;
    let weft = Packet::new_checked(packet.bytes.get(udp.payload_range())?).ok()?;
    (weft.version() == weft_wire::header::VERSION && weft.kind().is_some()).then_some((udp, weft))
}

/// A row of the capture, and which of ours it is.
#[derive(Debug)]
struct Row {
    job: JobId,
    number: u16,
    /// Ours, by index in the configuration.
    index: usize,
    members: Vec<Member>,
    /// The last JOIN of each rank in the capture.
    joins: Vec<Option<(Hello, Vec<u8>)>>,
    formed: Vec<Formed>,
}

/// A generation of the capture, and what it is here.
#[derive(Debug)]
struct Formed {
    theirs: GroupId,
    ours: GroupId,
    cookies_up: Vec<Cookie>,
    cookie_down: Cookie,
    session: u64,
}

struct Foreign<'a> {
    settings: &'a Settings,
    survey: Survey,
    map: &'a BTreeMap<IpAddr, Rank>,
    options: Options,
    /// The box in the capture.
    target: Endpoint,
    local: Endpoint,
    lane: RoleLane<LanePort<ScriptPort<Wire>>, Aggregator>,
    wire: Rc<RefCell<Wire>>,
    rows: Vec<Row>,
    lives: u64,
    handshakes: u64,
    cut: u64,
    /// By receiver in the capture: what its box sent, and what came out here.
    theirs: BTreeMap<SocketAddr, Vec<(usize, Vec<u8>)>>,
    ours: BTreeMap<SocketAddr, Vec<(Nanos, Vec<u8>)>>,
    outcome: Outcome,
}

impl<'a> Foreign<'a> {
    fn new(
        settings: &'a Settings,
        survey: Survey,
        target: Endpoint,
        map: &'a BTreeMap<IpAddr, Rank>,
        options: &Options,
    ) -> Self {
        let mac = settings.config.port.mac.unwrap_or(MacAddr([2, b'W', b'E', 0, 0, 1]));
        let table = settings.table_at(mac);
        let wire = Rc::new(RefCell::new(Wire::default()));
        let info = PortInfo { mac, mtu: usize::from(table.config().mtu), ..PortInfo::default() };
        let buffer_len = info.mtu + weft_wire::frame::ETHERNET_LEN;
        let port = ScriptPort::new(Rc::clone(&wire), info, buffer_len, None, false);
        let engine = settings.aggregator(&table, 0, 0_u64, Kernels::detect());
        let lane = RoleLane::new(alone(port, &settings.lanes), engine);
        let mut options = options.clone();
        options.ignore.add(OUTER);
        Self {
            settings,
            survey,
            map,
            options,
            target,
            local: table.config().local,
            lane,
            wire,
            rows: Vec::new(),
            lives: 0,
            handshakes: 0,
            cut: 0,
            theirs: BTreeMap::new(),
            ours: BTreeMap::new(),
            outcome: Outcome::default(),
        }
    }

    /// All frames in the order of their times; what the box sent is expected, unless it stands in
    /// another capture.
    fn run(&mut self, captures: &[Capture], has_expected: bool) {
        let started = Instant::now();
        let mut order: Vec<(Nanos, usize, usize)> = Vec::new();
        for (file, capture) in captures.iter().enumerate() {
            order.extend(capture.packets().enumerate().map(|(index, it)| (it.at, file, index)));
        }
        order.sort_unstable();
        let first = order.first().map_or(Nanos(0), |(at, ..)| *at);
        for (at, file, index) in order {
            let Some(packet) = captures[file].get(index) else { continue };
            if self.options.speed == Speed::Realtime {
                let due = Duration::from_nanos(at.since(first).0);
                std::thread::sleep(due.saturating_sub(started.elapsed()));
            }
            // The box's clock does not begin at its first frame.
            let now = Nanos(at.since(first).0 + CLOCK_START_NS);
            let is_down = open(&packet).is_some_and(|(udp, _)| udp.source == self.target.addr);
            if is_down {
                if !has_expected {
                    self.expect(index, &packet);
                }
            } else {
                self.take(now, &packet);
            }
        }
    }

    /// A frame that the box of the capture sent.
    fn expect(&mut self, index: usize, packet: &Captured<'_>) {
        let Some((udp, weft)) = open(packet) else {
            self.unmapped(packet);
            return;
        };
        if udp.source != self.target.addr {
            self.unmapped(packet);
        } else if weft.kind() == Some(Kind::Hello) {
            self.handshakes += 1;
        } else {
            self.theirs.entry(udp.target).or_default().push((index, packet.bytes.to_vec()));
        }
    }

    fn unmapped(&mut self, packet: &Captured<'_>) {
        self.outcome.unmapped += 1;
        self.cut += u64::from(packet.is_cut());
    }

    /// A frame that was sent to the box of the capture.
    fn take(&mut self, now: Nanos, packet: &Captured<'_>) {
        let opened = open(packet).filter(|(udp, _)| udp.target == self.target.addr);
        let Some((udp, weft)) = opened else { return self.unmapped(packet) };
        if weft.kind() == Some(Kind::Hello) {
            self.handshakes += 1;
            return self.note_join(&weft);
        }
        let known = self.survey.ranks.get(&udp.source).map(|(rank, _)| *rank);
        let rank =
            self.map.get(&udp.source.ip()).copied().or(known).or_else(|| weft.members().single());
        let frame = rank.and_then(|rank| self.translate(now, packet.bytes, &udp, &weft, rank));
        match frame {
            Some(frame) => self.meet(now, frame),
            None => self.unmapped(packet),
        }
    }

    /// Keeps what a JOIN says of the steps that its sender holds.
    fn note_join(&mut self, weft: &Packet<&[u8]>) {
        let Ok((hello, bitmap)) = Hello::parse(weft.payload()) else { return };
        let rank = weft.members().single().filter(|_| hello.phase == Phase::Join);
        let row = rank.and_then(|_| self.row(weft));
        if let (Some(rank), Some(row)) = (rank, row)
            && let Some(join) = self.rows[row].joins.get_mut(rank.index())
        {
            *join = Some((hello, bitmap.to_vec()));
        }
    }

    /// Has the engine meet a frame of the capture, and keeps what comes of it.
    fn meet(&mut self, now: Nanos, frame: Vec<u8>) {
        self.outcome.packets_in += 1;
        for frame in self.breathe(now, frame) {
            if let Some((to, frame)) = self.map_back(&frame) {
                self.outcome.packets_out += 1;
                self.ours.entry(to).or_default().push((now, frame));
            }
        }
    }

    fn breathe(&mut self, now: Nanos, frame: Vec<u8>) -> Vec<Vec<u8>> {
        self.wire.borrow_mut().inbox.push_back(frame);
        self.lane.breathe(now, &mut ());
        std::mem::take(&mut self.wire.borrow_mut().outbox)
    }

    /// What the frame would be if it had come to this box.
    fn translate(
        &mut self,
        now: Nanos,
        bytes: &[u8],
        udp: &Udp,
        weft: &Packet<&[u8]>,
        rank: Rank,
    ) -> Option<Vec<u8>> {
        let row = self.row(weft)?;
        if rank.index() >= self.rows[row].members.len() {
            return None;
        }
        let is_known = self.rows[row].formed.iter().any(|it| it.theirs == weft.group());
        let welcomed = &self.survey.welcomed;
        let has_handshake = welcomed
            .keys()
            .any(|(job, group)| *job == weft.job() && GroupId(*group).row() == weft.group().row());
        let is_stale = has_handshake && !self.survey.cookies_up.contains(&weft.cookie().0);
        if !is_known && !is_stale {
            self.form(now, row, weft.group());
        }
        let row = &self.rows[row];
        let config = &self.settings.table.rows[row.index];
        let formed = row.formed.iter().find(|formed| formed.theirs == weft.group());
        let unknown = GroupId::new(config.row, weft.group().generation());
        let (cookie, group) = match formed {
            _ if is_stale => (weft.cookie(), formed.map_or(unknown, |formed| formed.ours)),
            Some(formed) => (formed.cookies_up[rank.index()], formed.ours),
            None => return None,
        };
        let mut datagram = bytes[udp.payload_range()].to_vec();
        datagram[2..4].copy_from_slice(&config.job.0.to_be_bytes());
        datagram[4..8].copy_from_slice(&cookie.0.to_be_bytes());
        datagram[8..12].copy_from_slice(&group.0.to_be_bytes());
        if weft.members().single().is_some() {
            datagram[24..32].copy_from_slice(&rank.bit().0.to_be_bytes());
        }
        let is_crc = config.integrity == Integrity::Crc32c;
        let was_good = weft.crc() == 0 || {
            let mut copy = bytes[udp.payload_range()].to_vec();
            Packet::new_unchecked(&mut copy[..]).verify_crc(crc32c)
        };
        let was_good = was_good && (udp.checksum == 0 || udp.checksum_ok(bytes));
        let mut frame = row.members[rank.index()].datagram(&mut datagram, is_crc);
        if !was_good && let Some(last) = frame.last_mut() {
            *last ^= 1;
        }
        Some(frame)
    }

    /// The row of a frame; a new one finds its place in the configuration.
    fn row(&mut self, weft: &Packet<&[u8]>) -> Option<usize> {
        let (job, number) = (weft.job(), weft.group().row());
        let known = self.rows.iter().position(|row| row.job == job && row.number == number);
        if known.is_some() {
            return known;
        }
        let ours = &self.settings.table.rows;
        let is_free = |index: &usize| self.rows.iter().all(|row| row.index != *index);
        let same = ours.iter().position(|row| row.job == job && row.row == number);
        let index = same.filter(is_free).or_else(|| (0..ours.len()).find(is_free))?;
        let config = &ours[index];
        let has_checksum = config.integrity == Integrity::Checksum16;
        let member = |(rank, member): (u8, &weft_engine::table::MemberConfig)| {
            let mac = MacAddr([2, 0, 0, 0, u8::try_from(index).unwrap_or(u8::MAX), rank]);
            let own = Endpoint { mac, addr: member.addr };
            let (row, rank) = (config.row, Rank::new(rank)?);
            let member = Member::new((own, self.local), config.job, row, rank, 1)?;
            Some(if has_checksum { member.with_checksum() } else { member })
        };
        let members = (0..=u8::MAX).zip(&config.members).map(member).collect::<Option<_>>()?;
        let members: Vec<Member> = members;
        let joins = vec![None; members.len()];
        self.rows.push(Row { job, number, index, members, joins, formed: Vec::new() });
        Some(self.rows.len() - 1)
    }

    /// Forms a row's lease anew, for this generation of the capture.
    fn form(&mut self, now: Nanos, row: usize, theirs: GroupId) {
        let count = self.rows[row].members.len();
        for rank in 0..count {
            self.lives += 1;
            let life = self.lives;
            self.rows[row].members[rank].begin(life);
            let hello = self.rows[row].members[rank].hello();
            self.shake(now, row, hello);
        }
        // The last one to join is welcome; the others hear it when they ask again.
        for _ in 0..2 {
            for rank in 0..count {
                let join = self.join(row, rank);
                self.shake(now, row, join);
            }
        }
        let row = &mut self.rows[row];
        let terms = row.members.iter().map(Member::terms).collect::<Option<Vec<_>>>();
        let Some(terms) = terms.filter(|terms| !terms.is_empty()) else { return };
        let ours = terms[0].1;
        let cookies_up = terms.into_iter().map(|(cookie, _)| cookie).collect();
        let (session, cookie_down) = (row.members[0].session(), row.members[0].cookie_down());
        row.formed.push(Formed { theirs, ours, cookies_up, cookie_down, session });
    }

    /// A member's JOIN, which holds what its namesake's in the capture does.
    fn join(&self, row: usize, rank: usize) -> Vec<u8> {
        let row = &self.rows[row];
        let member = &row.members[rank];
        match &row.joins[rank] {
            Some((hello, bitmap)) if hello.session != 0 => {
                let is_it = |formed: &&Formed| {
                    let key = (row.job, formed.theirs.0);
                    self.survey.welcomed.get(&key) == Some(&hello.session)
                };
                let known = row.formed.iter().find(is_it).map(|formed| formed.session);
                member.resume(known.unwrap_or(hello.session), hello, bitmap)
            }
            _ => member.join(),
        }
    }

    fn shake(&mut self, now: Nanos, row: usize, frame: Vec<u8>) -> Option<Phase> {
        let answers = self.breathe(now, frame);
        let members = &mut self.rows[row].members;
        let heard = answers.iter().flat_map(|answer| {
            members.iter_mut().find_map(|member| member.handle(answer)).into_iter()
        });
        heard.last()
    }

    /// What a frame would be if the box of the capture had sent it, and to whom.
    fn map_back(&self, frame: &[u8]) -> Option<(SocketAddr, Vec<u8>)> {
        let udp = Udp::parse(frame).ok()?;
        let mut datagram = frame.get(udp.payload_range())?.to_vec();
        let weft = Packet::new_checked(&datagram[..]).ok()?;
        if weft.kind() == Some(Kind::Hello) {
            return None;
        }
        let (group, has_crc) = (weft.group(), weft.crc() != 0);
        let ours = &self.settings.table.rows;
        let row = self.rows.iter().find(|row| ours[row.index].row == group.row())?;
        let config = &ours[row.index];
        let formed = row.formed.iter().find(|formed| formed.ours == group);
        let stale = GroupId::new(row.number, group.generation());
        let theirs = formed.map_or(stale, |formed| formed.theirs);
        let rank = config.members.iter().position(|member| member.addr == udp.target)?;
        let peer = self.survey.ranks.iter().find(|(_, (it, _))| it.index() == rank);
        // One that never contributed in the capture is where the configuration has it.
        let to = peer.map_or_else(
            || Endpoint { mac: MacAddr::default(), addr: udp.target },
            |(addr, it)| Endpoint { mac: it.1, addr: *addr },
        );
        datagram[2..4].copy_from_slice(&row.job.0.to_be_bytes());
        datagram[8..12].copy_from_slice(&theirs.0.to_be_bytes());
        // Another cookie than the lease's is a stranger's, echoed.
        let is_own =
            formed.is_some_and(|formed| formed.cookie_down.0.to_be_bytes() == datagram[4..8]);
        let welcome = self.survey.welcome_down.get(&(row.job, theirs.0));
        let seen = || self.survey.cookies_down.get(&(to.addr, theirs.0));
        if let Some(cookie) = welcome.or_else(seen).filter(|_| is_own) {
            datagram[4..8].copy_from_slice(&cookie.0.to_be_bytes());
        }
        let mut packet = Packet::new_unchecked(&mut datagram[..]);
        if has_crc {
            packet.seal(crc32c);
        }
        let encap = Encap::new(self.target, to)?;
        let start = encap.header_len();
        let mut frame = vec![0; start + datagram.len()];
        frame[start..].copy_from_slice(&datagram);
        encap.emit(&mut frame, datagram.len());
        if udp.checksum != 0 {
            encap.finish(&mut frame);
        }
        Some((to.addr, frame))
    }

    /// Compares what came out with what the box of the capture sent.
    fn finish(&mut self) -> Result<(), ReplayError> {
        self.write()?;
        if self.theirs.is_empty() {
            let note = "the capture has nothing that the box sent: nothing is compared";
            self.outcome.notes.push(note.to_owned());
        }
        let mut compared = std::mem::take(&mut self.theirs);
        let is_compared = !compared.is_empty();
        for (to, ours) in std::mem::take(&mut self.ours) {
            let theirs = compared.remove(&to).unwrap_or_default();
            let mut theirs = theirs.into_iter();
            for (now, frame) in ours {
                match theirs.next() {
                    Some((index, expected)) => {
                        let both = (&expected[..], &frame[..]);
                        compare(&mut self.outcome, 0, index, now, both, &self.options);
                    }
                    None if is_compared => self.lacks(0, now, to, "none", "a frame"),
                    None => {}
                }
            }
            compared.insert(to, theirs.collect());
        }
        for (to, missing) in compared {
            for (index, _) in missing {
                self.lacks(index + 1, Nanos(0), to, "a frame", "none");
            }
        }
        if self.handshakes > 0 {
            let note = format!("{} frames of handshakes were replaced", self.handshakes);
            self.outcome.notes.push(note);
        }
        if self.cut > 0 {
            let cut = self.cut;
            self.outcome.notes.push(format!("{cut} frames are cut by the capture's snaplen"));
        }
        Ok(())
    }

    fn lacks(&mut self, packet: usize, now: Nanos, to: SocketAddr, expected: &str, got: &str) {
        self.outcome.differ(|| Difference {
            lane: 0,
            packet: packet as u64,
            at_ns: now.0,
            field: format!("frame to {to}"),
            expected: expected.to_owned(),
            got: got.to_owned(),
        });
    }

    /// Writes what came out, in the order of time.
    fn write(&self) -> Result<(), ReplayError> {
        let Some(path) = &self.options.write else { return Ok(()) };
        let mut all: Vec<&(Nanos, Vec<u8>)> = self.ours.values().flatten().collect();
        all.sort_by_key(|(now, _)| *now);
        let write = || {
            let file = std::fs::File::create(path)?;
            let mut writer = PcapWriter::new(std::io::BufWriter::new(file))?;
            for (now, frame) in all {
                writer.write(*now, frame)?;
            }
            writer.finish().map(|_| ())
        };
        write().map_err(|source| ReplayError::File { path: path.clone(), attempt: "write", source })
    }
}

/// Token buckets begin full, and a time of 0 means "never" to nobody.
const CLOCK_START_NS: u64 = 1_000_000;
