//! What a lane does with a verdict, and what full and empty mean on its way out.

use weft_control::{Command, Event};
use weft_io::forward_port;
use weft_io::memory::{MemoryPort, link};
use weft_io::pool::PoolFrame;
use weft_wire::frame::{Encap, Endpoint};
use weft_wire::{JobId, MacAddr};

use super::*;

const NOW: Nanos = Nanos(0);
const HOLD: u8 = 0;
const SEND: u8 = 1;
const HOST: u8 = 2;

/// An engine whose verdict a frame's first byte names, with frames of its own to send.
struct Fake {
    own: u32,
    takes_joined: bool,
}

impl LaneEngine for Fake {
    fn handle_frame(&mut self, _: Nanos, buffer: &mut [u8], len: usize) -> Verdict {
        match buffer[0] {
            HOLD => Verdict::Hold,
            SEND => Verdict::Send { len },
            _ => Verdict::Host,
        }
    }

    fn takes_joined(&self) -> bool {
        self.takes_joined
    }

    /// Those that begin with `HOLD`.
    fn handle_run(&mut self, _: Nanos, _: &Udp, datagrams: &mut [u8], len: usize) -> usize {
        datagrams.chunks(len).take_while(|datagram| datagram[0] == HOLD).count()
    }

    fn poll_transmit(&mut self, _: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.own = self.own.checked_sub(1)?;
        frame[..60].fill(SEND);
        Some(60)
    }

    fn poll_timeout(&self) -> Nanos {
        if self.own > 0 { NOW } else { Nanos::MAX }
    }

    fn handle_command(&mut self, _: Nanos, _: Command) {}

    fn poll_event(&mut self) -> Option<(JobId, Event)> {
        None
    }
}

/// Sends back what it gets.
struct Echo;

impl<P: Port> HostSide<P> for Echo {
    fn handle(&mut self, _: Nanos, _: &mut P, frame: P::Frame) -> Option<P::Frame> {
        Some(frame)
    }
}

const RING_FRAMES: usize = 4;

fn lane(own: u32) -> (MemoryPort, RoleLane<MemoryPort, Fake>) {
    let (peer, port) = link(RING_FRAMES, 1500, ["peer", "box"]);
    (peer, RoleLane::new(port, Fake { own, takes_joined: false }))
}

fn first_bytes(port: &mut MemoryPort) -> Vec<u8> {
    let mut rx = Burst::new();
    port.rx_burst(NOW, &mut rx);
    rx.iter().map(|frame| frame.as_ref()[0]).collect()
}

#[test]
fn each_frame_meets_its_verdict() {
    let (mut peer, mut lane) = lane(0);
    let mut tx: Burst<PoolFrame> = [HOST, HOLD, SEND]
        .map(|verdict| {
            let mut frame = peer.alloc().expect("a frame for a test");
            frame.set_len(60);
            frame.as_mut().fill(verdict);
            frame
        })
        .into_iter()
        .collect();
    peer.tx_burst(NOW, &mut tx);
    assert_eq!(lane.breathe(NOW, &mut Echo), 3);
    assert_eq!(first_bytes(&mut peer), [HOST, SEND], "in the order they came in");
    assert_eq!(lane.breathe(NOW, &mut Echo), 0);
    let stats = LaneStats { busy_breaths: 1, idle_breaths: 1, ..LaneStats::default() };
    assert_eq!(lane.stats(), stats);
}

#[test]
fn a_full_transmit_ring_costs_the_frames_and_is_counted() {
    let (mut peer, mut lane) = lane(6);
    let free = lane.port().free_count();
    lane.breathe(NOW, &mut ());
    assert_eq!(lane.stats().tx_dropped, 2);
    assert_eq!(lane.port().free_count(), free - RING_FRAMES, "the others went back to the pool");
    assert_eq!(first_bytes(&mut peer), [SEND; RING_FRAMES]);
}

#[test]
fn an_empty_pool_is_counted_and_the_engine_asked_again() {
    let (mut peer, mut lane) = lane(1);
    let held: Vec<_> = std::iter::from_fn(|| lane.port_mut().alloc()).collect();
    lane.breathe(NOW, &mut ());
    assert_eq!(lane.stats().tx_nombuf, 1);
    drop(held);
    lane.breathe(NOW, &mut ());
    assert_eq!(lane.stats().tx_nombuf, 1);
    assert_eq!(first_bytes(&mut peer), [SEND]);
}

/// Gives what comes as runs of datagrams of `LEN` bytes, while it is asked to.
struct Joining {
    port: MemoryPort,
    is_on: bool,
}

const LEN: usize = 10;

impl Port for Joining {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        let count = self.port.rx_burst(now, rx);
        rx.iter_mut().filter(|_| self.is_on).for_each(|frame| frame.set_datagram_len(LEN));
        count
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        self.port.tx_burst(now, tx)
    }

    fn join_runs(&mut self, is_on: bool) -> bool {
        self.is_on = is_on;
        true
    }

    forward_port!(port: alloc, free, info, stats);
}

/// Sends a message of five datagrams, two of which the engine wants as frames; returns what came
/// back.
fn exchange(peer: &mut MemoryPort, lane: &mut RoleLane<Joining, Fake>) -> Vec<Vec<u8>> {
    let end =
        |addr: &str| Endpoint { mac: MacAddr([9; 6]), addr: addr.parse().expect("an address") };
    let encap = Encap::new(end("10.0.0.1:7"), end("10.0.0.2:9")).expect("of one family");
    let start = encap.header_len();
    let mut frame = peer.alloc().expect("a frame for a test");
    for (datagram, mark) in frame.buffer_mut()[start..].chunks_mut(LEN).zip([0, 0, 5, 0, 6]) {
        datagram.fill(mark);
    }
    encap.emit(frame.buffer_mut(), LEN);
    frame.set_len(start + 5 * LEN);
    peer.tx_burst(NOW, &mut Burst::from_iter([frame]));
    assert_eq!(lane.breathe(NOW, &mut Echo), 1);
    let mut rx = Burst::new();
    peer.rx_burst(NOW, &mut rx);
    let payload = |frame: &PoolFrame| {
        assert_eq!(Udp::parse(frame.as_ref()).expect("headers of its own").payload_len, LEN);
        frame.as_ref()[start..].to_vec()
    };
    rx.iter().map(payload).collect()
}

#[test]
fn of_a_run_in_one_piece_the_engine_takes_what_it_can_and_the_rest_are_frames() {
    let (mut peer, port) = link(RING_FRAMES, 1500, ["peer", "box"]);
    let engine = Fake { own: 0, takes_joined: true };
    let mut lane = RoleLane::new(Joining { port, is_on: false }, engine);
    let free = lane.port().port.free_count();
    assert_eq!(exchange(&mut peer, &mut lane), [vec![5; LEN], vec![6; LEN]]);
    // An engine that takes none has the port give none.
    lane.engine_mut().takes_joined = false;
    lane.breathe(NOW, &mut ());
    assert!(!lane.port().is_on);
    lane.engine_mut().takes_joined = true;
    assert_eq!(exchange(&mut peer, &mut lane).len(), 2);
    assert_eq!(lane.port().port.free_count(), free, "every frame went back to the pool");
}
