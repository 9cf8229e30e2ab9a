//! Zero allocations per frame of a pusher, counted: what commands take is all that it takes.

use std::net::SocketAddr;

use crate::counting::counted;
use weft_control::{Decision, Version};
use weft_engine::role::Verdict;
use weft_engine::role::model::ModelConfig;
use weft_engine::role::push::{Event, NewUpdate, Pusher, PusherConfig, Values};
use weft_engine::role::server::{Server, ServerJobConfig};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, MacAddr, Nanos, Rank};

const PARAMETERS: usize = 20_000;

/// A pusher and a server that hand each other frames; every `lose`-th is lost.
struct Pair {
    pusher: Pusher,
    server: Server,
    now: Nanos,
    frame: Vec<u8>,
    frames: u64,
    lose: u64,
    /// Allocations of the pusher.
    allocations: u64,
    events: Vec<Event>,
}

impl Pair {
    fn new(lose: u64) -> Self {
        let addr = |host, port| SocketAddr::from(([10, 0, 0, host], port));
        let local = Endpoint { mac: MacAddr([2; 6]), addr: addr(1, 7000) };
        let host = Endpoint { mac: MacAddr([4; 6]), addr: addr(100, 22341) };
        let job = ServerJobConfig::new(ModelConfig::new(JobId(0), PARAMETERS), vec![local.addr]);
        let mut config = PusherConfig::new(JobId(0), Rank::new(0).unwrap(), local, host);
        config.probe_len = 1472;
        Self {
            pusher: Pusher::new(config, 1, Nanos(0)).unwrap(),
            server: Server::new(host, 1500, &[job], 2, Kernels::detect()).unwrap(),
            now: Nanos(0),
            frame: vec![0; 2048],
            frames: 0,
            lose,
            allocations: 0,
            events: Vec::with_capacity(64),
        }
    }

    fn is_lost(&mut self) -> bool {
        self.frames += 1;
        self.lose > 0 && self.frames.is_multiple_of(self.lose)
    }

    fn counted<T>(&mut self, work: impl FnOnce(&mut Pusher, &mut [u8], Nanos) -> T) -> T {
        counted(&mut self.allocations, || work(&mut self.pusher, &mut self.frame, self.now))
    }

    fn run(&mut self, done: impl Fn(&[Event]) -> bool) {
        while !done(&self.events) {
            assert!(self.now.0 < 60_000_000_000, "{:?}", self.events);
            self.counted(|pusher, _, now| {
                if now >= pusher.poll_timeout() {
                    pusher.handle_timeout(now);
                }
            });
            while let Some(len) =
                self.counted(|pusher, frame, now| pusher.poll_transmit(now, frame))
            {
                if self.is_lost() {
                    continue;
                }
                if let Verdict::Send { len } =
                    self.server.handle_frame(self.now, &mut self.frame, len)
                {
                    self.deliver(len);
                }
            }
            while let Some(len) = self.server.poll_transmit(self.now, &mut self.frame) {
                self.deliver(len);
            }
            while let Some(event) = self.counted(|pusher, _, _| pusher.poll_event()) {
                self.events.push(event);
            }
            self.now = Nanos(self.now.0 + 200_000);
        }
    }

    fn deliver(&mut self, len: usize) {
        if !self.is_lost() {
            let _ = self.counted(|pusher, frame, now| pusher.handle_frame(now, &mut frame[..len]));
        }
    }
}

#[test]
fn pushing_and_pulling_allocates_nothing_per_frame() {
    for lose in [0, 13] {
        let mut pair = Pair::new(lose);
        pair.run(|events| events.contains(&Event::Connected));
        for number in 0..4 {
            let values = Values::Reals(vec![0.5; PARAMETERS]);
            let new = NewUpdate { number, version: Version(number), values };
            pair.pusher.begin_update(new).unwrap();
            pair.pusher.send_direct(pair.now, number).unwrap();
            pair.pusher.begin_pull(pair.now, PARAMETERS, Some(Version(number)), None).unwrap();
            let version = Version(number + 1);
            let decision = Decision::Committed(version);
            pair.run(|events| {
                events.contains(&Event::Decided { number, decision })
                    && events.contains(&Event::Pulled { version })
            });
            pair.pusher.finish(number).unwrap();
            assert_eq!(pair.pusher.model()[PARAMETERS - 1], 0.5 * (number + 1) as f32);
        }
        assert!(pair.frames > 1_000, "{} frames", pair.frames);
        assert_eq!(pair.allocations, 0, "in {} frames, every {lose}-th lost", pair.frames);
    }
}
