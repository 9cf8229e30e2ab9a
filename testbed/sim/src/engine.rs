//! A lane's engine, and what becomes of its verdicts where frames are buffers of their own.

use weft_control::{Command, Event, Train};
use weft_engine::role::Verdict;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::replica::Replica;
use weft_engine::role::server::Server;
use weft_lane::LaneEngine;
use weft_wire::{JobId, Nanos};

/// Room for a frame of any MTU here.
pub const FRAME_LEN_MAX: usize = 9_014;
/// Frames that one call may ask to send: more than any window, so more is an endless loop (I8).
const BURST_MAX: usize = 4_096;

/// The engine of a box, or of one of its lanes.
#[derive(Debug)]
pub enum Engine {
    /// Reduces, gathers and relays.
    Aggregator(Box<Aggregator>),
    /// Conducts and commits.
    Server(Box<Server>),
    /// Follows.
    Replica(Box<Replica>),
}

/// Calls a method of whichever engine it is.
macro_rules! engine {
    ($engine:expr, $method:ident($($argument:expr),*)) => {
        match $engine {
            Engine::Aggregator(engine) => LaneEngine::$method(&mut **engine, $($argument),*),
            Engine::Server(engine) => LaneEngine::$method(&mut **engine, $($argument),*),
            Engine::Replica(engine) => LaneEngine::$method(&mut **engine, $($argument),*),
        }
    };
}

impl Engine {
    /// Takes a frame; returns what goes out.
    pub fn handle(&mut self, now: Nanos, frame: &[u8]) -> Vec<Vec<u8>> {
        let mut buffer = vec![0xee; FRAME_LEN_MAX.max(frame.len())];
        buffer[..frame.len()].copy_from_slice(frame);
        let mut out = Vec::new();
        match (engine!(self, handle_frame(now, &mut buffer, frame.len())), self) {
            (Verdict::Drop(_) | Verdict::Hold | Verdict::Host, _) => {}
            (Verdict::Send { len }, _) => out.push(buffer[..len].to_vec()),
            (Verdict::Multicast { len, lease }, Self::Aggregator(lane)) => {
                for member in 1..lane.fan_out(lease) {
                    let mut copy = buffer[..len].to_vec();
                    let header_len = lane.encap_len(lease);
                    lane.readdress(lease, member, &mut copy[..header_len], len);
                    out.push(copy);
                }
                out.push(buffer[..len].to_vec());
            }
            (Verdict::Fan { len, push }, Self::Aggregator(lane)) => {
                let gather = lane.gather();
                for peer in gather.copies(push, &buffer[..len]) {
                    let mut copy = buffer[..len].to_vec();
                    let head = &mut copy[..gather.copy_header_len(push)];
                    if gather.address_copy(push, peer, head, len) {
                        out.push(copy);
                    }
                }
                out.push(buffer[..len].to_vec());
            }
            (verdict, _) => unreachable!("only aggregators make copies: {verdict:?}"),
        }
        out
    }

    /// What goes out unasked.
    pub fn poll(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let mut buffer = vec![0xee; FRAME_LEN_MAX];
        while let Some(len) = engine!(self, poll_transmit(now, &mut buffer)) {
            out.push(buffer[..len].to_vec());
            assert!(out.len() < BURST_MAX, "poll_transmit never ends");
        }
        out
    }

    /// When it wants to be polled.
    #[must_use]
    pub fn timeout(&self) -> Nanos {
        match self {
            Self::Aggregator(engine) => engine.poll_timeout(),
            Self::Server(engine) => engine.poll_timeout(),
            Self::Replica(engine) => engine.poll_timeout(),
        }
    }

    /// Takes a controller's word.
    pub fn command(&mut self, now: Nanos, command: Command) {
        engine!(self, handle_command(now, command));
    }

    /// Its stream to a controller has begun, or ended.
    pub fn note_controller(&mut self, now: Nanos, is_there: bool) {
        engine!(self, handle_controller(now, is_there));
    }

    /// The next frame arrived now, by the port's clock.
    pub fn note_arrival(&mut self, now: Nanos) {
        engine!(self, note_arrival(now.0));
    }

    /// The next train that has arrived.
    pub fn train(&mut self) -> Option<Train> {
        engine!(self, poll_train())
    }

    /// What it reports.
    pub fn event(&mut self) -> Option<(JobId, Event)> {
        engine!(self, poll_event())
    }
}
