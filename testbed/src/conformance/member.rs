//! A member of a lease, as far as a script needs one: its life, and what the handshake gave it.

use weft_wire::header::{Header, Kind};
use weft_wire::hello::{Hello, Phase};
use weft_wire::{Cookie, Epoch, GroupId};

/// What one member knows.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) life: u64,
    pub(super) session: u64,
    pub(super) token: u64,
    pub(super) cookie_up: Cookie,
    pub(super) cookie_down: Cookie,
    pub(super) cookie_old: Cookie,
    pub(super) group: GroupId,
    pub(super) group_old: GroupId,
    /// Of the last WELCOME.
    pub(super) epoch: Epoch,
    /// What it said at its last JOIN that it holds.
    pub(super) held: Option<Vec<u32>>,
    /// It joined, and has no WELCOME to that.
    pub(super) waits: bool,
}

impl Member {
    pub(super) fn new(row: u16, life: u64) -> Self {
        Self {
            life,
            session: 0,
            token: 0,
            cookie_up: Cookie::default(),
            cookie_down: Cookie::default(),
            cookie_old: Cookie::default(),
            group: GroupId::new(row, 0),
            group_old: GroupId::new(row, 0),
            epoch: Epoch::default(),
            held: None,
            waits: false,
        }
    }

    /// The body of a handshake datagram that it sends, and its bitmap.
    pub(super) fn body(&self, phase: Phase) -> (Hello, Vec<u8>) {
        let mut body = Hello::new(phase);
        let mut bitmap = Vec::new();
        body.life = self.life;
        match phase {
            Phase::Join => {
                body.token = self.token;
                if let Some(held) = &self.held {
                    body.session = if self.session == 0 { SESSION } else { self.session };
                    let low = (0..).find(|step| !held.contains(step)).expect("a list ends");
                    let top = held.iter().max().map_or(0, |top| top + 1);
                    bitmap = vec![0; top.saturating_sub(low).div_ceil(8) as usize];
                    for step in held.iter().filter(|step| **step >= low) {
                        let bit = step - low;
                        bitmap[bit as usize / 8] |= 0x80 >> (bit % 8);
                    }
                    body.low_step = low;
                    body.step_bits = u16::try_from(bitmap.len() * 8).expect("steps are few");
                }
            }
            Phase::Close => {
                body.epoch = self.epoch;
                body.cookie_up = self.cookie_up;
            }
            _ => {}
        }
        (body, bitmap)
    }

    /// Learns from a handshake datagram of the box.
    pub(super) fn learn(&mut self, header: &Header, body: &Hello) {
        if header.kind != Kind::Hello || body.life != self.life {
            return;
        }
        match body.phase {
            Phase::Challenge => self.token = body.token,
            Phase::Welcome => {
                if body.cookie_up != self.cookie_up {
                    (self.cookie_old, self.group_old) = (self.cookie_up, self.group);
                }
                self.session = body.session;
                self.cookie_up = body.cookie_up;
                self.cookie_down = body.cookie_down;
                self.group = header.group;
                self.epoch = body.epoch;
                self.waits = false;
            }
            Phase::Waiting => self.waits = true,
            _ => {}
        }
    }
}

/// What a member resumes that never had a session here: a box that has begun anew takes any.
const SESSION: u64 = 777;
