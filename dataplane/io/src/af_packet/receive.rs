//! Receives packets, each a frame or a run of frames, straight from the socket into frames.
//!
//! Where runs come, a packet is scattered over frames as if it were a run like the last one, which
//! it most often is ([`scatter`]). A system call takes one such packet. Where frames come one by
//! one, as from a wire, a call takes many of them. What came otherwise than it was expected lies in
//! a buffer and is copied into frames piece by piece.
//!
//! So most bytes are copied once, by the kernel, and a frame is here as soon as the socket has it.
//! A ring would be a copy more, and TPACKET_V3 hands a block over only when it is full or 1 ms old.

mod scatter;

use std::io::IoSliceMut;
use std::time::Duration;

use arrayvec::ArrayVec;
use nix::errno::Errno;
use weft_wire::frame::run;

use super::intake::Intake;
use super::restore::{Checksum, finish};
use super::sys::{PacketSocket, Received};
use super::vnet::{Cut, HEADERS_LEN_MAX, VNET_LEN, VnetHeader};
use crate::pool::PoolFrame;
use crate::port::{BURST_MAX, Burst, Frame};

/// A receiving socket, and what of its last packets was not handed out.
#[derive(Debug)]
pub(super) struct Messages {
    socket: PacketSocket,
    /// Frames that are made, the next one last.
    frames: ArrayVec<PoolFrame, SEGMENTS_MAX>,
    /// The packet of which frames are made next.
    rest: Option<Rest>,
    /// Packets that come after it, the next one last.
    waiting: ArrayVec<Waiting, BURST_MAX>,
    /// A place for each packet of a call. Most of it is never touched.
    bytes: Box<[u8]>,
    /// Bytes of headers and payload that the first frame of the next run may have.
    header_len: usize,
    segment_len: usize,
    /// Packets that were one frame since the last run.
    singles: u32,
}

/// A packet of which frames are still to be made.
#[derive(Debug)]
struct Rest {
    cut: Cut,
    about: Received,
    /// Where it lies in the buffer.
    start: usize,
    /// Bytes of payload that are in frames.
    taken: usize,
}

/// A packet that came with others.
#[derive(Debug)]
struct Waiting {
    /// Its first bytes, or all.
    frame: PoolFrame,
    vnet: VnetHeader,
    about: Received,
    /// Where the others lie in the buffer, behind room for the first.
    start: usize,
}

impl Messages {
    pub(super) fn new(socket: PacketSocket, frame_len_max: usize) -> Self {
        let header_len = HEADERS_LEN_MAX - 20;
        Self {
            socket,
            frames: ArrayVec::new(),
            rest: None,
            waiting: ArrayVec::new(),
            bytes: vec![0; BURST_MAX * PACKET_LEN_MAX].into_boxed_slice(),
            header_len,
            segment_len: frame_len_max.saturating_sub(header_len).max(1),
            singles: SINGLES_IN_A_ROW,
        }
    }

    /// True while there is something for another frame.
    pub(super) fn has_more(&self) -> bool {
        !self.frames.is_empty() || self.rest.is_some() || !self.waiting.is_empty()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.socket.dropped()
    }

    pub(super) fn wait(&self, timeout: Duration) {
        if !self.has_more() {
            self.socket.wait(timeout);
        }
    }

    /// Receives until `rx` is full or the socket, or the supply, is empty.
    pub(super) fn receive(&mut self, intake: &mut Intake, rx: &mut Burst<PoolFrame>) -> usize {
        let mut count = self.hand_out(intake, rx);
        while !rx.is_full() && !self.has_more() {
            let may_go_on = if self.singles < SINGLES_IN_A_ROW {
                self.receive_run(intake)
            } else {
                self.receive_many(rx.remaining_capacity(), intake)
            };
            count += self.hand_out(intake, rx);
            if !may_go_on {
                break;
            }
        }
        count
    }

    /// Receives up to `wanted` packets; false when there are no more, or no frames for them.
    fn receive_many(&mut self, wanted: usize, intake: &mut Intake) -> bool {
        let frame_len_max = intake.supply.frame_len_max();
        let count = intake.offer(wanted);
        if count == 0 {
            return false;
        }
        let mut vnets = [VnetHeader::PLAIN; BURST_MAX];
        let mut received = ArrayVec::new();
        let outcome = {
            let regions = self.bytes.chunks_exact_mut(PACKET_LEN_MAX);
            let frames = intake.supply.offered(count).iter_mut();
            let mut parts: ArrayVec<[IoSliceMut<'_>; 3], BURST_MAX> = ArrayVec::new();
            for ((frame, vnet), region) in frames.zip(&mut vnets).zip(regions) {
                let beyond = region.get_mut(frame_len_max..).unwrap_or_default();
                parts.push([vnet, frame.buffer_mut(), beyond].map(IoSliceMut::new));
            }
            self.socket.receive_many(&mut parts, &mut received)
        };
        if let Err(errno) = outcome {
            note(errno, intake);
        }
        let frames = intake.supply.take(count, received.len());
        for (index, (frame, mut about)) in frames.zip(received.iter().copied()).enumerate() {
            about.len = about.len.saturating_sub(VNET_LEN);
            let vnet = VnetHeader::read(vnets[index]);
            self.waiting.push(Waiting { frame, vnet, about, start: index * PACKET_LEN_MAX });
        }
        self.waiting.reverse();
        received.len() == count
    }

    /// Looks at the next packet of those that came together.
    fn open(&mut self, mut next: Waiting, intake: &mut Intake) {
        let Waiting { vnet, about, start, .. } = next;
        let in_frame = about.len.min(intake.supply.frame_len_max());
        if about.truncated || about.len > PACKET_LEN_MAX {
            intake.refuse(usize::MAX);
        } else if vnet.is_one_frame() {
            self.singles = self.singles.saturating_add(1);
            if complete(&mut next.frame, vnet, &about, intake.ipv4_checksum) {
                self.frames.push(next.frame);
                return;
            }
            intake.refuse(about.frame_len());
        } else if let Some(cut) = Cut::new(vnet, &next.frame.buffer_mut()[..in_frame], about.len) {
            let bytes = &mut self.bytes[start..][..in_frame];
            bytes.copy_from_slice(&next.frame.buffer_mut()[..in_frame]);
            self.expect(&cut, intake);
            self.rest = Some(Rest { cut, about, start, taken: 0 });
        } else {
            intake.refuse(about.len);
        }
        intake.supply.keep(next.frame);
    }

    /// Moves what there is of the last packets into `rx`, as much as it has room for.
    fn hand_out(&mut self, intake: &mut Intake, rx: &mut Burst<PoolFrame>) -> usize {
        let mut count = 0;
        while !rx.is_full() {
            if let Some(frame) = self.frames.pop() {
                count += intake.pass(frame, rx);
            } else if self.rest.is_some() {
                if !self.cut_next(intake) {
                    break;
                }
            } else if let Some(next) = self.waiting.pop() {
                self.open(next, intake);
            } else {
                break;
            }
        }
        count
    }

    /// Makes the next frame of the packet in the buffer, or refuses it; false when there is no
    /// frame for it.
    fn cut_next(&mut self, intake: &mut Intake) -> bool {
        let Some(Rest { cut, about, start, taken }) = &mut self.rest else { return false };
        let len = cut.len_at(*taken);
        let about = Received { len: cut.header_len + len, ..*about };
        if about.frame_len() > intake.supply.frame_len_max() {
            intake.refuse(about.frame_len());
        } else {
            let Some(mut frame) = intake.alloc() else { return false };
            let (headers, payloads) = self.bytes[*start..].split_at(cut.header_len);
            let own = &mut frame.buffer_mut()[cut.header_len..][..len];
            own.copy_from_slice(&payloads[*taken..][..len]);
            if put_headers(&mut frame, headers, len, cut, &about, intake.ipv4_checksum) {
                self.frames.push(frame);
            } else {
                intake.refuse(about.frame_len());
            }
        }
        *taken += len;
        if *taken == cut.payload_len {
            self.rest = None;
        }
        true
    }

    /// Expects the next packet to be a run like this one.
    fn expect(&mut self, cut: &Cut, intake: &Intake) {
        let &Cut { header_len, segment_len, .. } = cut;
        let segment_len_max = intake.supply.frame_len_max().saturating_sub(header_len);
        if (SEGMENT_LEN_MIN..=segment_len_max).contains(&segment_len) {
            (self.header_len, self.segment_len) = (header_len, segment_len);
        }
        self.singles = 0;
    }
}

/// Makes a frame of a packet that lies in it as a whole. False when that is none, or too long.
fn complete(
    frame: &mut PoolFrame,
    vnet: VnetHeader,
    about: &Received,
    ipv4_checksum: bool,
) -> bool {
    let checksum = if vnet.lacks_checksum() { Checksum::Missing } else { Checksum::Carried };
    frame.set_arrived_ns(about.arrived_ns);
    finish(frame, about.len, about.vlan, checksum, ipv4_checksum)
}

/// Completes a frame of a run whose payload of `len` bytes lies in its place. False if there is no
/// room for its tag.
fn put_headers(
    frame: &mut PoolFrame,
    headers: &[u8],
    len: usize,
    cut: &Cut,
    about: &Received,
    ipv4_checksum: bool,
) -> bool {
    let own = &mut frame.buffer_mut()[..cut.header_len];
    own.copy_from_slice(headers);
    run::set_payload_len(own, len);
    frame.set_arrived_ns(about.arrived_ns);
    let checksum = if cut.has_checksum { Checksum::Missing } else { Checksum::Carried };
    finish(frame, cut.header_len + len, about.vlan, checksum, ipv4_checksum)
}

/// Takes note of why nothing came.
fn note(errno: Errno, intake: &mut Intake) {
    match errno {
        Errno::EAGAIN | Errno::EINTR => {}
        // A packet that this kernel has no words for, as a run for one before 6.2.
        Errno::EINVAL => intake.refuse(usize::MAX),
        // The interface went down.
        _ => intake.stats.rx_errors += 1,
    }
}

/// Longest packet: what the length field of an IP header can say, and what lies around it.
const PACKET_LEN_MAX: usize = (1 << 16) + HEADERS_LEN_MAX;
/// Most frames that a packet is scattered over.
const SEGMENTS_MAX: usize = 64;
/// Shorter segments are cheap to copy, and a frame for each would be dear.
const SEGMENT_LEN_MIN: usize = 512;
/// After so many packets that were one frame, the next are expected to be such too.
const SINGLES_IN_A_ROW: u32 = 4;

#[cfg(test)]
mod tests;
