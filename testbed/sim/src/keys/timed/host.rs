//! A host: an engine, and the thread of its port.

use std::collections::VecDeque;

use weft_engine::role::keys::{Home, OwnStore, Process, To};
use weft_wire::Nanos;
use weft_wire::frame::UdpAddr;

use super::Heard;

#[derive(Debug)]
pub(super) struct Host {
    pub(super) engine: Engine,
    pub(super) heard: Heard,
    /// Frames that wait for the port's thread, and from which hosts.
    pub(super) inbox: VecDeque<(usize, Vec<u8>)>,
    pub(super) turn: Turn,
    /// When the port's thread has sent all.
    pub(super) free_at: Nanos,
    /// When a timer rings.
    pub(super) timer: Option<Nanos>,
}

#[derive(Debug)]
pub(super) enum Engine {
    Process(Box<Process<OwnStore>>),
    Home(Box<Home>),
}

/// What the port's thread does.
#[derive(Debug)]
pub(super) enum Turn {
    Asleep,
    /// It will look.
    Due,
    /// It takes frames; rung meanwhile, it looks again.
    Working {
        is_rung: bool,
    },
}

impl Host {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            heard: Heard::default(),
            inbox: VecDeque::new(),
            turn: Turn::Asleep,
            free_at: Nanos(0),
            timer: None,
        }
    }

    /// The engine takes so many frames; what it sends.
    pub(super) fn turn(
        &mut self,
        now: Nanos,
        count: usize,
        addrs: &[UdpAddr],
    ) -> Vec<(To, Vec<u8>)> {
        let Self { engine, heard, inbox, .. } = self;
        let frames = inbox.drain(..count);
        match engine {
            Engine::Process(process) => {
                for (from, datagram) in frames {
                    // What it refuses it has counted.
                    let _ = process.take_datagram(now, addrs[from], &datagram, heard);
                }
                process.flush(now, heard);
                if now >= process.poll_timeout() {
                    process.poll(now, heard);
                }
            }
            Engine::Home(home) => {
                for (from, datagram) in frames {
                    let _ = home.take_datagram(now, addrs[from], &datagram, heard);
                }
                if now >= home.poll_timeout() {
                    home.poll(now);
                }
                home.flush(heard);
            }
        }
        std::mem::take(&mut heard.sent)
    }
}

impl Engine {
    pub(super) fn poll_timeout(&self) -> Nanos {
        match self {
            Self::Process(process) => process.poll_timeout(),
            Self::Home(home) => home.poll_timeout(),
        }
    }
}
