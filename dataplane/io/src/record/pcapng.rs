//! Blocks of a pcapng file: one interface, nanoseconds, and a direction for each packet, as
//! Wireshark shows it. Source: draft-ietf-opsawg-pcapng.

use weft_wire::Nanos;

/// Which way a frame went, as the engine sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// To the engine.
    In,
    /// From it.
    Out,
}

impl Direction {
    /// The two lowest bits of `epb_flags`.
    #[must_use]
    pub const fn flags(self) -> u32 {
        match self {
            Self::In => 1,
            Self::Out => 2,
        }
    }

    /// What the flags say, if they say it.
    #[must_use]
    pub const fn of_flags(flags: u32) -> Option<Self> {
        match flags & 3 {
            1 => Some(Self::In),
            2 => Some(Self::Out),
            _ => None,
        }
    }
}

/// Begins a file: who writes it, and the one interface.
pub(super) fn write_head(out: &mut Vec<u8>, program: &str, interface: &str, driver: &str) {
    block(out, SECTION, |out| {
        out.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        out.extend_from_slice(&[1, 0, 0, 0]);
        // The section's length is not said.
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        option(out, SECTION_PROGRAM, program.as_bytes());
        option(out, END_OF_OPTIONS, &[]);
    });
    block(out, INTERFACE, |out| {
        out.extend_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
        // No frame is cut.
        out.extend_from_slice(&[0; 6]);
        option(out, INTERFACE_NAME, interface.as_bytes());
        option(out, INTERFACE_DESCRIPTION, driver.as_bytes());
        option(out, INTERFACE_RESOLUTION, &[9]);
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// Adds a packet.
pub(super) fn write_packet(out: &mut Vec<u8>, at: Nanos, direction: Direction, frame: &[u8]) {
    let padding = frame.len().next_multiple_of(4) - frame.len();
    let len = PACKET_OVERHEAD + frame.len() + padding;
    let word = |value: usize| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
    let mut head = [0; 28];
    head[0..4].copy_from_slice(&PACKET.to_le_bytes());
    head[4..8].copy_from_slice(&word(len));
    // Interface 0 at 8.
    let at = at.0.to_le_bytes();
    head[12..16].copy_from_slice(&at[4..]);
    head[16..20].copy_from_slice(&at[..4]);
    head[20..24].copy_from_slice(&word(frame.len()));
    head[24..28].copy_from_slice(&word(frame.len()));
    let mut tail = [0; 16];
    tail[0..2].copy_from_slice(&PACKET_FLAGS.to_le_bytes());
    tail[2] = 4;
    tail[4..8].copy_from_slice(&direction.flags().to_le_bytes());
    // The end of the options at 8.
    tail[12..16].copy_from_slice(&word(len));
    out.extend_from_slice(&head);
    out.extend_from_slice(frame);
    out.extend_from_slice(&[0; 3][..padding]);
    out.extend_from_slice(&tail);
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = u32::try_from(out.len() + 4 - start).unwrap_or(u32::MAX).to_le_bytes();
    out[start + 4..start + 8].copy_from_slice(&len);
    out.extend_from_slice(&len);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(OPTION_LEN_MAX)];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&u16::try_from(value.len()).unwrap_or(0).to_le_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
const END_OF_OPTIONS: u16 = 0;
const SECTION_PROGRAM: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_DESCRIPTION: u16 = 3;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
/// A packet block without the frame.
const PACKET_OVERHEAD: usize = 28 + 16;
const OPTION_LEN_MAX: usize = 255;
