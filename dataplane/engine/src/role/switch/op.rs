//! Op frames: how a box reads and writes what P4Runtime cannot, a switch's registers.
//!
//! Decides the octets of a question and what an echo says. The switch takes them from the CPU port
//! alone, and echoes each. A question may be repeated: doing it twice is doing it once.

use weft_wire::frame::ETHERNET_LEN;
use weft_wire::{MacAddr, Members};

/// What the switch is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Op {
    /// Keep this life.
    SetLife(u64),
    /// Say which life is kept.
    AskLife,
    /// Have a bank hold this, unless it went on by itself.
    Seed(Seed),
}

/// What a bank is to hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Seed {
    /// The bank, of all.
    pub(super) index: u32,
    /// The installation that it is of.
    pub(super) lease_epoch: u32,
    /// The step, or chunk.
    pub(super) step: u32,
    /// Whose contributions.
    pub(super) members: Members,
    /// Of the sum.
    pub(super) exponent: i8,
    /// A vector follows; without one the bank is answered and has no data.
    pub(super) has_data: bool,
}

/// What a switch has answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Echo {
    /// Of the question.
    pub(super) nonce: u32,
    /// The life that the switch keeps.
    pub(super) life: u64,
}

impl Op {
    /// Writes the frame, but for the vector, which follows at [`VECTOR_AT`]; returns its length.
    /// `None` where the buffer is too short.
    #[must_use]
    pub(super) fn write(
        &self,
        mac: MacAddr,
        nonce: u32,
        elements: u16,
        frame: &mut [u8],
    ) -> Option<usize> {
        let (code, life, seed) = match *self {
            Self::SetLife(life) => (SET_LIFE, life, None),
            Self::AskLife => (ASK_LIFE, 0, None),
            Self::Seed(seed) => (SEED, 0, Some(seed)),
        };
        let count = seed.filter(|seed| seed.has_data).map_or(0, |_| elements);
        let len = VECTOR_AT + usize::from(count) * 4;
        let head = frame.get_mut(..len)?.first_chunk_mut::<VECTOR_AT>()?;
        head.fill(0);
        head[..6].copy_from_slice(&mac.0);
        head[6..12].copy_from_slice(&mac.0);
        head[12..14].copy_from_slice(&ETHERTYPE_OP.to_be_bytes());
        head[14] = code;
        head[18..20].copy_from_slice(&count.to_be_bytes());
        head[22..26].copy_from_slice(&nonce.to_be_bytes());
        if let Some(seed) = seed {
            head[15] = if seed.has_data { ANSWERED } else { VIRTUAL };
            head[16] = seed.exponent.cast_unsigned();
            head[26..30].copy_from_slice(&seed.index.to_be_bytes());
            head[30..34].copy_from_slice(&seed.lease_epoch.to_be_bytes());
            head[34..38].copy_from_slice(&seed.step.to_be_bytes());
            head[38..46].copy_from_slice(&seed.members.0.to_be_bytes());
        }
        head[46..54].copy_from_slice(&life.to_be_bytes());
        Some(len)
    }
}

impl Echo {
    /// What a frame from the switch says, if it is an echo. A question is none: whoever sends those
    /// is not the switch.
    #[must_use]
    pub(super) fn parse(frame: &[u8]) -> Option<Self> {
        let head = frame.first_chunk::<VECTOR_AT>()?;
        let is_echo = is_op(frame) && head[14] & ECHO != 0;
        is_echo.then(|| Self {
            nonce: u32::from_be_bytes([head[22], head[23], head[24], head[25]]),
            life: head[46..54].iter().fold(0, |life, octet| life << 8 | u64::from(*octet)),
        })
    }
}

/// True for an op frame, whoever sent it.
#[must_use]
pub fn is_op(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&ETHERTYPE_OP.to_be_bytes())
}

/// Where a vector begins.
pub const VECTOR_AT: usize = ETHERNET_LEN + 40;
/// IEEE's EtherType for local experiments.
pub const ETHERTYPE_OP: u16 = 0x88b5;

const SET_LIFE: u8 = 1;
const ASK_LIFE: u8 = 2;
const SEED: u8 = 3;
const ECHO: u8 = 0x80;
/// A bank that holds an answer.
const ANSWERED: u8 = 3;
/// A bank that counts as answered and holds no data.
const VIRTUAL: u8 = 4;
