//! Captures of somebody else against a configuration: which frame is whose, and what it would be
//! if it had come to this box.
//!
//! | module | what it does |
//! | --- | --- |
//! | `survey` | finds out from the frames who is who (pure) |
//! | `mapping` | rewrites frames for this box, and back |
//! | `hearing` | has our members say whether they hear the multicast address |
//! | `judge` | compares what came out, and writes it |
//!
//! Has the engine meet the frames of the capture, and handshakes of our own in between.
//!
//! Who sends a contribution has its bit in it, so ranks follow from the frames, or from `--map`.
//! Rows are the configuration's of the same job and number, else its rows in the order in which the
//! capture has them. The box is who most contributions go to. A handshake cannot be repeated, for
//! tokens are secret: that of the capture is left out, and each generation of a row that the
//! capture has is formed anew by members of our own ([`Member`]), who hold the steps that the
//! capture's JOINs hold, speak from memory where those do, and say whether they hear the multicast
//! address when those do. Where the capture has WELCOMEs, frames with a cookie of none of them are
//! strangers' here too. Then job, row, group, cookie and addresses of a frame are rewritten, and
//! its CRC or checksum; of what comes out they are mapped back. A CRC that was wrong stays wrong.
//!
//! What is compared: what the box sent to each member, in order, without the handshake. What the
//! two boxes' network stacks decide differs by nature and is left out ([`OUTER`]).

mod hearing;
mod judge;
mod mapping;
mod survey;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use weft_engine::drops::DropReason;
use weft_engine::role::aggregator::Aggregator;
use weft_io::PortInfo;
use weft_io::pcap::Capture;
use weft_kernel::Kernels;
use weft_lane::{LanePort, RoleLane, Settings};
use weft_node::stats::{LaneSnapshot, Report};
use weft_wire::frame::{Endpoint, Udp};
use weft_wire::header::{Kind, Packet};
use weft_wire::hello::{Hello, Phase};
use weft_wire::{GroupId, MacAddr, Nanos, Rank};

use super::load::{ReplayError, read_config};
use super::member::Member;
use super::options::{Options, Outcome, Speed};
use super::play::alone;
use super::port::{Script, ScriptPort};

use mapping::{Formed, Join, Row};
use survey::{Survey, frames, open};

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
        let mut problem =
            "nobody contributes in the capture: it has no CONTRIB of one member".to_owned();
        if !survey.skipped.is_empty() {
            problem += &format!("; frames that are none of Weft's: {}", listed(&survey.skipped));
        }
        return Err(ReplayError::Unfit(problem));
    };
    let mut replay = Foreign::new(&settings, survey, target, map, options);
    replay.run(&captures, expected.is_some());
    for capture in expected.iter().flatten() {
        for (index, packet) in capture.packets().enumerate() {
            for frame in frames(&packet).into_iter().flatten() {
                replay.expect(index, frame);
            }
        }
    }
    replay.finish()?;
    let mut outcome = replay.outcome;
    let snapshot = LaneSnapshot::take(0, &replay.lane, &weft_node::host::Host::silent());
    outcome.report = Some(Report::new(&settings.config, 0.0, &[snapshot]));
    outcome.judge(started.elapsed().as_secs_f64());
    Ok(outcome)
}

/// Counts by their reasons: `3 cut, 76 vlan`.
fn listed(skipped: &BTreeMap<&'static str, u64>) -> String {
    let all: Vec<_> = skipped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    all.join(", ")
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
    /// By receiver in the capture: what its box sent, and what came out here.
    theirs: BTreeMap<SocketAddr, Vec<(usize, Vec<u8>)>>,
    ours: BTreeMap<SocketAddr, Vec<(Nanos, Vec<u8>)>>,
    outcome: Outcome,
}

impl<'a> Foreign<'a> {
    fn new(
        settings: &'a Settings,
        mut survey: Survey,
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
        let skipped = std::mem::take(&mut survey.skipped);
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
            theirs: BTreeMap::new(),
            ours: BTreeMap::new(),
            outcome: Outcome { skipped, ..Outcome::default() },
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
            for frame in frames(&packet).into_iter().flatten() {
                let is_down = open(&frame).is_some_and(|(udp, _)| udp.source == self.target.addr);
                match is_down {
                    true if has_expected => {}
                    true => self.expect(index, frame),
                    false => self.take(now, &frame),
                }
            }
        }
    }

    /// A frame that the box of the capture sent.
    fn expect(&mut self, index: usize, frame: Cow<'_, [u8]>) {
        let Some((udp, weft)) = open(&frame) else { return };
        if udp.source != self.target.addr {
            self.skip(DropReason::NotForUs);
        } else if weft.kind() == Some(Kind::Hello) {
            self.handshakes += 1;
        } else {
            self.theirs.entry(udp.target).or_default().push((index, frame.into_owned()));
        }
    }

    fn skip(&mut self, reason: DropReason) {
        *self.outcome.skipped.entry(reason.name()).or_default() += 1;
    }

    /// A frame that was sent to the box of the capture.
    fn take(&mut self, now: Nanos, frame: &[u8]) {
        let Some((udp, weft)) = open(frame) else { return };
        if udp.target != self.target.addr {
            return self.skip(DropReason::NotForUs);
        }
        let known = self.survey.ranks.get(&udp.source).map(|(rank, _)| *rank);
        let rank =
            self.map.get(&udp.source.ip()).copied().or(known).or_else(|| weft.members().single());
        if weft.kind() == Some(Kind::Hello) {
            self.handshakes += 1;
            return rank.map_or((), |rank| self.take_hello(now, &udp, &weft, rank));
        }
        let rank = rank.ok_or(DropReason::BadMembers);
        match rank.and_then(|rank| self.translate(now, frame, &udp, &weft, rank)) {
            Ok(frame) => self.meet(now, frame),
            Err(reason) => self.skip(reason),
        }
    }

    /// What a handshake says that ours cannot know: the steps that its sender holds, where it is,
    /// and whether it hears the multicast address.
    fn take_hello(&mut self, now: Nanos, udp: &Udp, weft: &Packet<&[u8]>, rank: Rank) {
        let Ok((hello, bitmap)) = Hello::parse(weft.payload()) else { return };
        match hello.phase {
            Phase::Join => {
                let Some(row) = self.row(weft) else { return };
                let join = Join { hello, bitmap: bitmap.to_vec(), mac: udp.source_mac };
                if let Some(last) = self.rows[row].joins.get_mut(rank.index()) {
                    *last = Some(join);
                }
            }
            Phase::Listen | Phase::Deaf => self.pass_on(now, weft, &hello, rank),
            _ => {}
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

    /// Forms a row's lease anew, for this generation of the capture.
    fn form(&mut self, now: Nanos, row: usize, theirs: GroupId) {
        let count = self.rows[row].members.len();
        for rank in 0..count {
            self.lives += 1;
            let (life, mac) = (self.lives, self.mac_of(row, rank));
            let member = &mut self.rows[row].members[rank];
            member.begin(life);
            member.move_to(mac);
            let hello = member.hello();
            self.shake(now, row, hello);
        }
        // The last one to join is welcome; the others hear it when they ask again.
        for _ in 0..2 {
            for rank in 0..count {
                let join = self.join(row, rank);
                self.shake(now, row, join);
            }
        }
        let formed = &mut self.rows[row];
        let terms = formed.members.iter().map(Member::terms).collect::<Option<Vec<_>>>();
        let Some(terms) = terms.filter(|terms| !terms.is_empty()) else { return };
        let ours = terms[0].1;
        let cookies_up = terms.into_iter().map(|(cookie, _)| cookie).collect();
        let (session, cookie_down) = (formed.members[0].session(), formed.members[0].cookie_down());
        formed.formed.push(Formed { theirs, ours, cookies_up, cookie_down, session });
        self.listen_of_old(now, row, theirs);
    }

    /// A member's JOIN, which holds what its namesake's in the capture does.
    fn join(&self, row: usize, rank: usize) -> Vec<u8> {
        let row = &self.rows[row];
        let member = &row.members[rank];
        match &row.joins[rank] {
            Some(Join { hello, bitmap, .. }) if hello.session != 0 => {
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
}

/// Token buckets begin full, and a time of 0 means "never" to nobody.
const CLOCK_START_NS: u64 = 1_000_000;
