//! Receives a burst: into frames, or through a buffer where the kernel merges datagrams.

use arrayvec::ArrayVec;
use weft_wire::frame::ETHERNET_LEN;

use super::mmsg::{self, Received};
use super::{UdpPort, headers};
use crate::pool::PoolFrame;
use crate::port::{Burst, Frame};

/// A message of several datagrams, of which the first `taken` bytes are in frames.
#[derive(Debug)]
pub(super) struct Merged {
    /// Its bytes from the first segment on.
    bytes: Box<[u8]>,
    taken: usize,
    segment_len: usize,
    socket: usize,
    message: Received,
}

impl Merged {
    /// `payload_len_max` bytes of a message go to a frame before others come here.
    pub(super) fn new(payload_len_max: usize) -> Self {
        Self {
            bytes: vec![0; MESSAGE_LEN_MAX.max(payload_len_max + 1)].into_boxed_slice(),
            taken: 0,
            segment_len: 0,
            socket: 0,
            message: Received::NOTHING,
        }
    }

    /// True while there is something in it for another frame.
    pub(super) fn has_more(&self) -> bool {
        self.taken < self.message.payload_len
    }
}

impl UdpPort {
    /// Receives from one socket until `rx` is full or the socket, or the pool, is empty.
    pub(super) fn receive(&mut self, index: usize, rx: &mut Burst<PoolFrame>) -> usize {
        while self.spare.len() < rx.remaining_capacity() {
            let Some(frame) = self.pool.alloc() else { break };
            self.spare.push(frame);
        }
        let want = rx.remaining_capacity().min(self.spare.len());
        if want == 0 {
            self.stats.rx_nombuf += 1;
            return 0;
        }
        if self.merged.is_some() {
            return self.receive_merged(index, rx);
        }
        let socket = &self.sockets[index];
        let mut received = ArrayVec::new();
        let frames = &mut self.spare[..want];
        if mmsg::receive(socket, frames, self.header_len, &mut received).is_err() {
            self.stats.rx_errors += 1;
        }
        let mut count = 0;
        for (message, frame) in received.iter().zip(self.spare.drain(..received.len())) {
            let written = headers::write(frame, message, socket.addr(), self.ipv4_checksum);
            count += self.stats.take(written, rx);
        }
        count
    }

    /// As [`UdpPort::receive`], message by message.
    fn receive_merged(&mut self, index: usize, rx: &mut Burst<PoolFrame>) -> usize {
        let mut count = 0;
        while !rx.is_full() {
            let (Some(merged), Some(mut frame)) = (self.merged.as_mut(), self.spare.pop()) else {
                break;
            };
            let socket = &self.sockets[index];
            let outcome = mmsg::receive_one(socket, &mut frame, self.header_len, &mut merged.bytes);
            let (message, segment_len) = match outcome {
                Ok(Some(received)) => received,
                Ok(None) => {
                    self.spare.push(frame);
                    break;
                }
                Err(_) => {
                    self.stats.rx_errors += 1;
                    self.spare.push(frame);
                    break;
                }
            };
            let room = frame.buffer_mut().len() - self.header_len;
            let mut taken = 0;
            if segment_len <= room {
                // What came behind the first segment, but still into its frame.
                let end = message.payload_len.min(room);
                let tail = &frame.buffer_mut()[self.header_len..][segment_len..end];
                merged.bytes[segment_len..end].copy_from_slice(tail);
                taken = segment_len;
            }
            (merged.message, merged.socket) = (message, index);
            (merged.segment_len, merged.taken) = (segment_len, taken);
            if taken > 0 || message.payload_len == 0 {
                let first = Received { payload_len: taken, ..message };
                let written = headers::write(frame, &first, socket.addr(), self.ipv4_checksum);
                count += self.stats.take(written, rx);
            } else {
                self.spare.push(frame);
            }
            count += self.split_merged(rx);
        }
        count
    }

    /// Makes frames of what is left of a message; datagrams that no frame can hold are refused.
    pub(super) fn split_merged(&mut self, rx: &mut Burst<PoolFrame>) -> usize {
        let Some(merged) = self.merged.as_mut() else { return 0 };
        let mut count = 0;
        while merged.has_more() && !rx.is_full() {
            let end = (merged.taken + merged.segment_len).min(merged.message.payload_len);
            let segment = &merged.bytes[merged.taken..end];
            if segment.len() > self.info.mtu + ETHERNET_LEN - self.header_len {
                self.stats.rx_errors += 1;
                merged.taken = end;
                continue;
            }
            let Some(mut frame) = self.spare.pop().or_else(|| self.pool.alloc()) else {
                self.stats.rx_nombuf += 1;
                break;
            };
            frame.buffer_mut()[self.header_len..][..segment.len()].copy_from_slice(segment);
            let message = Received { payload_len: segment.len(), ..merged.message };
            merged.taken = end;
            let target = self.sockets[merged.socket].addr();
            let written = headers::write(frame, &message, target, self.ipv4_checksum);
            count += self.stats.take(written, rx);
        }
        count
    }
}

/// Longest message: what the length field of a UDP header can say.
const MESSAGE_LEN_MAX: usize = 1 << 16;
