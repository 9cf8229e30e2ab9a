//! Receives packets, each a frame or a run of frames, straight from the socket into frames.
//!
//! A packet is scattered over frames as if it were a run like the last one, which it most often is:
//! the first frame gets headers and one segment, each other one a segment behind the place of its
//! headers. So there is one copy, the kernel's, and a frame is here as soon as the socket has it;
//! a ring would be a second copy, and TPACKET_V3 hands a block over only when it is full or 1 ms
//! old. The price is a system call for each packet. Otherwise, and where the pool has too few
//! frames for it, the packet lies in one buffer and is copied into frames piece by piece.

use std::io::IoSliceMut;
use std::time::Duration;

use arrayvec::ArrayVec;
use nix::errno::Errno;
use weft_wire::frame::run;

use super::restore::{Checksum, VLAN_TAG_LEN, finish};
use super::supply::Supply;
use super::sys::{PacketSocket, Received};
use super::vnet::{Cut, HEADERS_LEN_MAX, VNET_LEN, VnetHeader};
use crate::pool::PoolFrame;
use crate::port::{Burst, Frame, PortStats};

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) stats: PortStats,
    /// Frames that were longer than the interface's MTU allows.
    pub(super) oversize: u64,
}

impl Tally {
    /// Refuses something of `len` bytes where frames have room for `frame_len_max`.
    fn refuse(&mut self, len: usize, frame_len_max: usize) {
        self.stats.rx_errors += 1;
        self.oversize += u64::from(len > frame_len_max);
    }
}

/// A receiving socket, and what of its last packet was not handed out.
#[derive(Debug)]
pub(super) struct Messages {
    socket: PacketSocket,
    /// Frames of the last packet, the next one last.
    frames: ArrayVec<PoolFrame, SEGMENTS_MAX>,
    /// The last packet, while `rest` is of it.
    bytes: Box<[u8]>,
    rest: Option<Rest>,
    /// Bytes of headers and payload that the first frame of the next packet may have.
    header_len: usize,
    segment_len: usize,
}

/// A packet of which frames are still to be made.
#[derive(Debug)]
struct Rest {
    cut: Cut,
    about: Received,
    /// Bytes of payload that are in frames.
    taken: usize,
}

impl Messages {
    pub(super) fn new(socket: PacketSocket, frame_len_max: usize) -> Self {
        let header_len = HEADERS_LEN_MAX - 20;
        Self {
            socket,
            frames: ArrayVec::new(),
            bytes: vec![0; MESSAGE_LEN_MAX].into_boxed_slice(),
            rest: None,
            header_len,
            segment_len: frame_len_max.saturating_sub(header_len).max(1),
        }
    }

    /// True while there is something for another frame.
    pub(super) fn has_more(&self) -> bool {
        !self.frames.is_empty() || self.rest.is_some()
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
    pub(super) fn receive(
        &mut self,
        supply: &mut Supply,
        tally: &mut Tally,
        ipv4_checksum: bool,
        rx: &mut Burst<PoolFrame>,
    ) -> usize {
        let mut count = self.hand_out(supply, tally, ipv4_checksum, rx);
        while !rx.is_full() && !self.has_more() {
            if !self.receive_one(supply, tally, ipv4_checksum) {
                break;
            }
            count += self.hand_out(supply, tally, ipv4_checksum, rx);
        }
        count
    }

    /// Receives a packet; false when there is none, or no frame for it.
    fn receive_one(&mut self, supply: &mut Supply, tally: &mut Tally, ipv4_checksum: bool) -> bool {
        let frame_len_max = supply.frame_len_max();
        let wanted = (MESSAGE_LEN_MAX / self.segment_len).clamp(1, SEGMENTS_MAX);
        let count = supply.offer(wanted);
        if count == 0 {
            tally.stats.rx_nombuf += 1;
            return false;
        }
        let (vnet, about) = match self.scatter(supply.offered(count)) {
            Ok(received) => received,
            Err(Errno::EAGAIN | Errno::EINTR) => return false,
            // A packet that this kernel has no words for, or the interface went down.
            Err(_) => {
                tally.stats.rx_errors += 1;
                return false;
            }
        };
        if about.truncated || about.len > self.bytes.len() {
            tally.refuse(usize::MAX, frame_len_max);
            return true;
        }
        if vnet.is_one_frame() {
            self.take_frame(vnet, &about, supply, count, tally, ipv4_checksum);
            return true;
        }
        let in_first = about.len.min(self.header_len + self.segment_len);
        let head = &supply.offered(count)[0].buffer_mut()[..in_first];
        let Some(cut) = Cut::new(vnet, head, about.len) else {
            tally.refuse(about.len, frame_len_max);
            return true;
        };
        let is_in_place = cut.header_len == self.header_len
            && cut.segment_len == self.segment_len
            && cut.payload_len <= count * self.segment_len;
        if is_in_place {
            self.take_run(&cut, &about, supply, count, tally, ipv4_checksum);
        } else {
            self.collect(supply.offered(count), about.len);
            self.rest = Some(Rest { cut, about, taken: 0 });
        }
        self.learn(cut.header_len, cut.segment_len, frame_len_max);
        true
    }

    fn scatter(&mut self, frames: &mut [PoolFrame]) -> Result<(VnetHeader, Received), Errno> {
        let mut vnet = VnetHeader::PLAIN;
        let in_frames = self.header_len + frames.len() * self.segment_len;
        let mut parts: ArrayVec<IoSliceMut<'_>, { SEGMENTS_MAX + 2 }> = ArrayVec::new();
        parts.push(IoSliceMut::new(&mut vnet));
        for (index, frame) in frames.iter_mut().enumerate() {
            let first = if index == 0 { 0 } else { self.header_len };
            let end = self.header_len + self.segment_len;
            parts.push(IoSliceMut::new(&mut frame.buffer_mut()[first..end]));
        }
        let in_frames = in_frames.min(self.bytes.len());
        parts.push(IoSliceMut::new(&mut self.bytes[in_frames..]));
        let mut about = self.socket.receive(&mut parts)?;
        drop(parts);
        about.len = about.len.checked_sub(VNET_LEN).ok_or(Errno::EMSGSIZE)?;
        Ok((VnetHeader::read(vnet), about))
    }

    /// Takes a packet that is one frame, and has most often all of it in the first one.
    fn take_frame(
        &mut self,
        vnet: VnetHeader,
        about: &Received,
        supply: &mut Supply,
        count: usize,
        tally: &mut Tally,
        ipv4_checksum: bool,
    ) {
        let frame_len_max = supply.frame_len_max();
        let tag_len = if about.vlan.is_some() { VLAN_TAG_LEN } else { 0 };
        if about.len + tag_len > frame_len_max {
            tally.refuse(about.len + tag_len, frame_len_max);
            return;
        }
        if about.len > self.header_len + self.segment_len {
            self.collect(supply.offered(count), about.len);
            supply.offered(count)[0].buffer_mut()[..about.len]
                .copy_from_slice(&self.bytes[..about.len]);
        }
        let checksum = if vnet.lacks_checksum() { Checksum::Missing } else { Checksum::Carried };
        if let Some(mut frame) = supply.take(count, 1).next() {
            frame.set_arrived_ns(about.arrived_ns);
            if finish(&mut frame, about.len, about.vlan, checksum, ipv4_checksum) {
                self.frames.push(frame);
            } else {
                tally.stats.rx_errors += 1;
            }
        }
        self.learn(self.header_len, about.len.saturating_sub(self.header_len), frame_len_max);
    }

    /// Takes the frames of a run whose payloads lie where they belong.
    fn take_run(
        &mut self,
        cut: &Cut,
        about: &Received,
        supply: &mut Supply,
        count: usize,
        tally: &mut Tally,
        ipv4_checksum: bool,
    ) {
        let first = &mut supply.offered(count)[0];
        let mut headers = [0; HEADERS_LEN_MAX];
        let headers = &mut headers[..cut.header_len];
        headers.copy_from_slice(&first.buffer_mut()[..cut.header_len]);
        let mut taken = 0;
        for mut frame in supply.take(count, cut.payload_len.div_ceil(cut.segment_len)) {
            let len = cut.len_at(taken);
            taken += len;
            if put_headers(&mut frame, headers, len, cut, about, ipv4_checksum) {
                self.frames.push(frame);
            } else {
                tally.stats.rx_errors += 1;
            }
        }
        self.frames.reverse();
    }

    /// Moves what there is of the last packet into `rx`, as much as it has room for.
    fn hand_out(
        &mut self,
        supply: &mut Supply,
        tally: &mut Tally,
        ipv4_checksum: bool,
        rx: &mut Burst<PoolFrame>,
    ) -> usize {
        let mut count = 0;
        while !rx.is_full()
            && let Some(frame) = self.frames.pop()
        {
            count += tally.stats.take(Some(frame), rx);
        }
        while !rx.is_full()
            && let Some(Rest { cut, about, taken }) = &mut self.rest
        {
            let len = cut.len_at(*taken);
            let payload = &self.bytes[cut.header_len + *taken..][..len];
            let tag_len = if about.vlan.is_some() { VLAN_TAG_LEN } else { 0 };
            let frame_len = cut.header_len + len + tag_len;
            if frame_len > supply.frame_len_max() {
                tally.refuse(frame_len, supply.frame_len_max());
            } else if let Some(mut frame) = supply.alloc() {
                frame.buffer_mut()[cut.header_len..][..len].copy_from_slice(payload);
                let headers = &self.bytes[..cut.header_len];
                let is_made = put_headers(&mut frame, headers, len, cut, about, ipv4_checksum);
                count += tally.stats.take(is_made.then_some(frame), rx);
            } else {
                tally.stats.rx_nombuf += 1;
                break;
            }
            *taken += len;
            if *taken == cut.payload_len {
                self.rest = None;
            }
        }
        count
    }

    /// Puts the first `len` bytes of a packet that is scattered over `frames` together in the
    /// buffer, which has what found no frame already.
    fn collect(&mut self, frames: &mut [PoolFrame], len: usize) {
        let (mut at, mut first) = (0, 0);
        for frame in frames {
            let end = len.min(at + self.header_len + self.segment_len - first);
            self.bytes[at..end].copy_from_slice(&frame.buffer_mut()[first..][..end - at]);
            (at, first) = (end, self.header_len);
        }
    }

    /// Scatters the next packet as this one would have had to be.
    fn learn(&mut self, header_len: usize, segment_len: usize, frame_len_max: usize) {
        let segment_len_max = frame_len_max.saturating_sub(header_len);
        if (SEGMENT_LEN_MIN..=segment_len_max).contains(&segment_len) {
            (self.header_len, self.segment_len) = (header_len, segment_len);
        }
    }
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

/// Longest packet: what the length field of an IP header can say, and what lies around it.
const MESSAGE_LEN_MAX: usize = (1 << 16) + HEADERS_LEN_MAX;
/// Most frames that a packet is scattered over.
const SEGMENTS_MAX: usize = 64;
/// Shorter segments are cheap to copy, and a frame for each would be dear.
const SEGMENT_LEN_MIN: usize = 512;
