//! Plays the handshake of every member of a row with the engine that members use, so that an
//! unchanged aggregator opens its lease. What a welcome tells is read off the frames.

use weft_engine::role::Verdict;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::worker::{ChunkMeta, Event, Payload, Worker, WorkerConfig};
use weft_engine::table::{BoxConfig, RowConfig};
use weft_io::{Burst, Frame, Port};
use weft_kernel::crc32c_blank;
use weft_wire::frame::Udp;
use weft_wire::header::{CRC_AT, Flags, Header, Kind, Packet};
use weft_wire::hello::{Hello, Phase};
use weft_wire::{Cookie, GroupId, Nanos, Rank};

use super::BenchError;
use super::frames::member_endpoint;

/// What the members were told.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) group: GroupId,
    pub(super) cookies: Vec<Cookie>,
    pub(super) window: u32,
    pub(super) step_count: u32,
}

struct Member {
    worker: Worker,
    /// By lane.
    welcomes: Vec<Option<(GroupId, Hello)>>,
    /// Its port in lane 0.
    port: u16,
    open: bool,
}

/// The members, on their way in.
pub(super) struct Members {
    members: Vec<Member>,
}

impl Members {
    pub(super) fn new(
        table: &BoxConfig,
        row: &RowConfig,
        seed: u64,
        now: Nanos,
    ) -> Result<Self, BenchError> {
        let member = |rank: usize| {
            let number = u8::try_from(rank).ok().and_then(Rank::new).expect("a rank of the row");
            let local = member_endpoint(row, rank);
            let mut config = WorkerConfig::new(row.job, row.row, number, local, table.local);
            config.element_type = row.element_type;
            config.operation = row.operation;
            let worker =
                Worker::new(config, crc32c_blank::<CRC_AT>, seed.wrapping_add(rank as u64), now)
                    .map_err(|error| BenchError::Join(error.to_string()))?;
            let welcomes = vec![None; usize::from(table.shards)];
            Ok(Member { worker, welcomes, port: local.addr.port(), open: false })
        };
        let members = (0..row.members.len()).map(member).collect::<Result<_, BenchError>>()?;
        Ok(Self { members })
    }

    /// Joins the lanes of a box in this process; returns what each told.
    pub(super) fn join_engines(
        mut self,
        lanes: &mut [Aggregator],
    ) -> Result<Vec<Session>, BenchError> {
        let mut buffer = vec![0; 2048];
        for tick in 0..TICKS_MAX {
            let now = Nanos(tick * TICK_NS);
            for member in &mut self.members {
                while let Some(len) = member.poll(now, &mut buffer) {
                    let source = Udp::parse(&buffer[..len]).map_or(0, |udp| udp.source.port());
                    let lane = usize::from(source.wrapping_sub(member.port));
                    let Some(engine) = lanes.get_mut(lane) else { continue };
                    if let Verdict::Send { len } = engine.handle_frame(now, &mut buffer, len) {
                        member.handle(now, &mut buffer[..len])?;
                    }
                }
            }
            let sessions = (0..lanes.len()).map(|lane| self.session(lane));
            if let Some(sessions) = sessions.collect() {
                return Ok(sessions);
            }
        }
        Err(BenchError::Join("it never welcomed all members".to_owned()))
    }

    /// Joins whatever is at the other end of a port.
    pub(super) fn join_port<P: Port>(
        mut self,
        port: &mut P,
        row: &RowConfig,
        now: impl Fn() -> Nanos,
    ) -> Result<Session, BenchError> {
        let (mut rx, mut tx) = (Burst::<P::Frame>::new(), Burst::<P::Frame>::new());
        let begun = now();
        while now().since(begun).0 < JOIN_TIMEOUT_NS {
            let at = now();
            for member in &mut self.members {
                while !tx.is_full()
                    && let Some(mut frame) = port.alloc()
                    && let Some(len) = member.poll(at, frame.buffer_mut())
                {
                    frame.set_len(len);
                    tx.push(frame);
                }
            }
            port.tx_burst(at, &mut tx);
            port.free(&mut tx);
            port.rx_burst(at, &mut rx);
            for frame in &mut rx {
                let Ok(udp) = Udp::parse(frame.as_ref()) else { continue };
                let rank = row.members.iter().position(|member| member.addr == udp.target);
                if let Some(rank) = rank {
                    self.members[rank].handle(at, frame.as_mut())?;
                }
            }
            port.free(&mut rx);
            if let Some(session) = self.session(0) {
                return Ok(session);
            }
        }
        Err(BenchError::Join("no welcome within ten seconds".to_owned()))
    }

    fn session(&self, lane: usize) -> Option<Session> {
        let all = self.members.iter().all(|member| member.open);
        let welcomes = self.members.iter().map(|member| member.welcomes[lane]);
        let welcomes: Vec<(GroupId, Hello)> = welcomes.collect::<Option<_>>().filter(|_| all)?;
        let (group, hello) = welcomes.first().copied()?;
        Some(Session {
            group,
            cookies: welcomes.iter().map(|(_, hello)| hello.cookie_up).collect(),
            window: u32::from(hello.window),
            step_count: hello.step_count,
        })
    }
}

impl Member {
    fn poll(&mut self, now: Nanos, buffer: &mut [u8]) -> Option<usize> {
        if self.open {
            return None;
        }
        if now >= self.worker.poll_timeout() {
            self.worker.handle_timeout(now);
        }
        self.worker.poll_transmit(now, &NoPayload, buffer)
    }

    fn handle(&mut self, now: Nanos, frame: &mut [u8]) -> Result<(), BenchError> {
        if let Some((port, group, hello)) = welcome_in(frame) {
            let lane = usize::from(port.wrapping_sub(self.port));
            if let Some(welcome) = self.welcomes.get_mut(lane) {
                *welcome = Some((group, hello));
            }
        }
        // A late copy is refused, which is right.
        let _ = self.worker.handle_frame(now, frame, &mut NoPayload);
        while let Some(event) = self.worker.poll_event() {
            match event {
                Event::Opened => self.open = true,
                Event::Failed(error) => return Err(BenchError::Join(error.to_string())),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A welcome, and the port that it goes to.
fn welcome_in(frame: &[u8]) -> Option<(u16, GroupId, Hello)> {
    let udp = Udp::parse(frame).ok()?;
    let packet = Packet::new_unchecked(&frame[udp.payload_range()]);
    let header = Header::parse(&packet).ok()?;
    let (hello, _) = Hello::parse(packet.payload()).ok()?;
    let is_welcome = header.kind == Kind::Hello && hello.phase == Phase::Welcome;
    is_welcome.then_some((udp.target.port(), header.group, hello))
}

/// For a worker that never begins a round.
struct NoPayload;

impl Payload for NoPayload {
    fn write_chunk(&self, _: u32, out: &mut [u8]) -> ChunkMeta {
        out.fill(0);
        ChunkMeta::default()
    }

    fn read_chunk(&mut self, _: u32, _: i8, _: Flags, _: &[u8]) {}
}

const TICK_NS: u64 = 20_000_000;
const TICKS_MAX: u64 = 500;
const JOIN_TIMEOUT_NS: u64 = 10_000_000_000;
