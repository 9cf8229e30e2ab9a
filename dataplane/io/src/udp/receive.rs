//! Receives a burst: into frames, or message by message where the kernel merges datagrams.
//!
//! A merged message is scattered over frames as if its datagrams were as long as those of the last
//! one, which they most often are: then nothing is copied. Otherwise, and where the pool has too
//! few frames for it, the message lies in one buffer and is copied into frames piece by piece.

use arrayvec::ArrayVec;
use weft_wire::frame::ETHERNET_LEN;

use super::UdpPort;
use super::headers::Headers;
use super::mmsg::{self, Received};
use crate::pool::PoolFrame;
use crate::port::{BURST_BYTES, Burst, Frame, PortStats};

/// What the kernel gave as one message, until all of it was handed out.
#[derive(Debug)]
pub(super) struct Merged {
    /// Its datagrams that lie in frames, the next one last.
    frames: ArrayVec<PoolFrame, SEGMENTS_MAX>,
    /// The message, from `taken` on.
    bytes: Box<[u8]>,
    taken: usize,
    segment_len: usize,
    socket: usize,
    message: Received,
    /// Bytes of each frame that the next message is scattered over.
    scatter_len: usize,
    /// Datagrams of the last message.
    datagrams: usize,
}

impl Merged {
    /// No datagram is longer than `payload_len_max`.
    pub(super) fn new(payload_len_max: usize) -> Self {
        Self {
            frames: ArrayVec::new(),
            bytes: vec![0; MESSAGE_LEN_MAX.max(payload_len_max + 1)].into_boxed_slice(),
            taken: 0,
            segment_len: 0,
            socket: 0,
            message: Received::NOTHING,
            scatter_len: payload_len_max,
            datagrams: 0,
        }
    }

    /// True while there is something in it for another frame.
    pub(super) fn has_more(&self) -> bool {
        !self.frames.is_empty() || self.taken < self.message.payload_len
    }

    /// Frames that a message takes whose datagrams are as long as the last ones were. What is left
    /// of the longest one has room in the buffer.
    fn frames_wanted(&self) -> usize {
        (MESSAGE_LEN_MAX / self.scatter_len).clamp(1, SEGMENTS_MAX)
    }

    /// Takes note of a message of `segment_len`, scattered over `spare`, and hands out the frames
    /// that hold a datagram each.
    fn note(
        &mut self,
        message: Received,
        segment_len: usize,
        socket: usize,
        header_len: usize,
        spare: &mut [PoolFrame],
    ) -> usize {
        (self.message, self.segment_len, self.socket) = (message, segment_len, socket);
        self.datagrams = message.payload_len.div_ceil(segment_len.max(1));
        let scattered = message.payload_len.min(spare.len() * self.scatter_len);
        let is_one = segment_len == message.payload_len && segment_len <= self.scatter_len;
        if segment_len == self.scatter_len || is_one {
            self.taken = scattered;
            return scattered.div_ceil(self.scatter_len).max(1);
        }
        let pieces = self.bytes[..scattered].chunks_mut(self.scatter_len);
        for (piece, frame) in pieces.zip(spare) {
            piece.copy_from_slice(&frame.buffer_mut()[header_len..][..piece.len()]);
        }
        self.taken = 0;
        0
    }

    /// Scatters the next message as this one would have had to be.
    fn learn(&mut self, payload_len_max: usize) {
        if (SCATTER_LEN_MIN..=payload_len_max).contains(&self.segment_len) {
            self.scatter_len = self.segment_len;
        }
    }
}

impl UdpPort {
    /// Receives from one socket until `rx` is full or the socket, or the pool, is empty.
    pub(super) fn receive(&mut self, index: usize, rx: &mut Burst<PoolFrame>) -> usize {
        let wanted = match &self.merged {
            // What is left had no frame, and is not to be lost.
            Some(merged) if merged.has_more() => return 0,
            Some(merged) => merged.frames_wanted(),
            None => rx.remaining_capacity(),
        };
        if self.joins() {
            return self.receive_joined(index, rx);
        }
        let offered = self.supply.offer(wanted);
        if offered == 0 {
            self.stats.rx_nombuf += 1;
            return 0;
        }
        if self.merged.is_some() {
            return self.receive_merged(index, rx);
        }
        let socket = &self.sockets[index];
        let mut received = ArrayVec::new();
        let frames = self.supply.offered(offered);
        if mmsg::receive(socket, frames, self.header_len, &mut received).is_err() {
            self.stats.rx_errors += 1;
        }
        let mut count = 0;
        let frames = self.supply.take(offered, received.len());
        for (message, frame) in received.iter().zip(frames) {
            let len = message.payload_len;
            let headers = Headers::of(message, socket.addr(), self.ipv4_checksum);
            count += self.stats.take(headers.map(|headers| headers.write(frame, len)), rx);
        }
        count
    }

    /// As [`UdpPort::receive`], message by message, as long as `rx` has room for one like the last:
    /// answers to half a run are half a run. A burst of long frames ends before it is full.
    fn receive_merged(&mut self, index: usize, rx: &mut Burst<PoolFrame>) -> usize {
        let mut count = 0;
        let enough_bytes = self.stats.rx_bytes + BURST_BYTES;
        while !rx.is_full() && self.stats.rx_bytes < enough_bytes {
            let Some(merged) = self.merged.as_mut() else { break };
            if !rx.is_empty() && rx.remaining_capacity() < merged.datagrams {
                break;
            }
            let (scatter_len, wanted) = (merged.scatter_len, merged.frames_wanted());
            let offered = self.supply.offer(wanted);
            if offered == 0 {
                break;
            }
            let (socket, spare) = (&self.sockets[index], self.supply.offered(offered));
            let outcome =
                mmsg::receive_one(socket, spare, self.header_len, scatter_len, &mut merged.bytes);
            let (message, segment_len) = match outcome {
                Ok(Some(received)) => received,
                Ok(None) => break,
                Err(_) => {
                    self.stats.rx_errors += 1;
                    break;
                }
            };
            let filled = merged.note(message, segment_len, index, self.header_len, spare);
            let mut left = message.payload_len;
            let headers = Headers::of(&message, socket.addr(), self.ipv4_checksum)
                .map(|headers| headers.prepared(segment_len));
            for frame in self.supply.take(offered, filled) {
                let payload_len = left.min(scatter_len);
                left -= payload_len;
                let frame = headers.as_ref().map(|headers| headers.write(frame, payload_len));
                match frame {
                    Some(frame) if rx.is_full() => merged.frames.push(frame),
                    frame => count += self.stats.take(frame, rx),
                }
            }
            merged.frames.reverse();
            merged.learn(self.info.mtu + ETHERNET_LEN - self.header_len);
            count += self.split_merged(rx);
        }
        count
    }

    /// Hands out what is left of a message; datagrams that no frame can hold are refused.
    pub(super) fn split_merged(&mut self, rx: &mut Burst<PoolFrame>) -> usize {
        let Some(merged) = self.merged.as_mut() else { return 0 };
        let mut count = hand_out(&mut merged.frames, &mut self.stats, rx);
        while merged.frames.is_empty() && merged.has_more() && !rx.is_full() {
            let end = (merged.taken + merged.segment_len).min(merged.message.payload_len);
            let segment = &merged.bytes[merged.taken..end];
            if segment.len() > self.info.mtu + ETHERNET_LEN - self.header_len {
                self.stats.rx_errors += 1;
                merged.taken = end;
                continue;
            }
            let Some(mut frame) = self.supply.alloc() else {
                self.stats.rx_nombuf += 1;
                break;
            };
            frame.buffer_mut()[self.header_len..][..segment.len()].copy_from_slice(segment);
            let (message, len) = (&merged.message, segment.len());
            merged.taken = end;
            let target = self.sockets[merged.socket].addr();
            let headers = Headers::of(message, target, self.ipv4_checksum);
            count += self.stats.take(headers.map(|headers| headers.write(frame, len)), rx);
        }
        count
    }
}

/// Moves frames from the end of `frames` into `rx`, as many as it has room for.
fn hand_out(
    frames: &mut ArrayVec<PoolFrame, SEGMENTS_MAX>,
    stats: &mut PortStats,
    rx: &mut Burst<PoolFrame>,
) -> usize {
    let mut count = 0;
    while !rx.is_full()
        && let Some(frame) = frames.pop()
    {
        count += stats.take(Some(frame), rx);
    }
    count
}

/// Longest message: what the length field of a UDP header can say.
pub(super) const MESSAGE_LEN_MAX: usize = 1 << 16;
/// Most datagrams of a message that go into frames at once: what the kernel cuts or merges.
pub(super) const SEGMENTS_MAX: usize = 64;
/// Shorter datagrams are cheap to copy, and a frame for each would be dear.
const SCATTER_LEN_MIN: usize = 512;
