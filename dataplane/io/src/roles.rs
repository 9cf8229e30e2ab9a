//! Servers and replicas as engines of a lane.

use weft_engine::push::{Command, Event};
use weft_engine::role::aggregator::Verdict;
use weft_engine::role::replica::Replica;
use weft_engine::role::server::Server;
use weft_wire::{JobId, Nanos};

use crate::breath::LaneEngine;

macro_rules! lane_engine {
    ($role:ty) => {
        impl LaneEngine for $role {
            #[inline]
            fn handle_frame(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Verdict {
                self.handle_frame(now, buffer, len)
            }

            fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
                self.poll_transmit(now, frame)
            }

            #[inline]
            fn poll_timeout(&self) -> Nanos {
                self.poll_timeout()
            }

            fn handle_command(&mut self, now: Nanos, command: Command) {
                self.handle_command(now, command);
            }

            fn poll_event(&mut self) -> Option<(JobId, Event)> {
                self.poll_event()
            }
        }
    };
}

lane_engine!(Server);
lane_engine!(Replica);
