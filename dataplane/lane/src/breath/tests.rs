//! What a lane does with a verdict, and what full and empty mean on its way out.

use weft_control::{Command, Event};
use weft_io::memory::{MemoryPort, link};
use weft_io::pool::PoolFrame;
use weft_wire::JobId;

use super::*;

const NOW: Nanos = Nanos(0);
const HOLD: u8 = 0;
const SEND: u8 = 1;
const HOST: u8 = 2;

/// An engine whose verdict a frame's first byte names, with frames of its own to send.
struct Fake {
    own: u32,
}

impl LaneEngine for Fake {
    fn handle_frame(&mut self, _: Nanos, buffer: &mut [u8], len: usize) -> Verdict {
        match buffer[0] {
            HOLD => Verdict::Hold,
            SEND => Verdict::Send { len },
            _ => Verdict::Host,
        }
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

impl HostSide<MemoryPort> for Echo {
    fn handle(&mut self, _: Nanos, _: &mut MemoryPort, frame: PoolFrame) -> Option<PoolFrame> {
        Some(frame)
    }
}

const RING_FRAMES: usize = 4;

fn lane(own: u32) -> (MemoryPort, RoleLane<MemoryPort, Fake>) {
    let (peer, port) = link(RING_FRAMES, 1500, ["peer", "box"]);
    (peer, RoleLane::new(port, Fake { own }))
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
