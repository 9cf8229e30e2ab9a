//! Receives a run of frames as if it were like the last one: the first frame gets headers and one
//! segment, each other one a segment behind the place of its headers. Then nothing is copied but
//! headers. What is longer, and what the pool has too few frames for, goes into the buffer.

use std::io::IoSliceMut;

use arrayvec::ArrayVec;
use nix::errno::Errno;

use super::{Messages, PACKET_LEN_MAX, Rest, SEGMENTS_MAX, complete, note, put_headers};
use crate::af_packet::intake::Intake;
use crate::af_packet::sys::Received;
use crate::af_packet::vnet::{Cut, HEADERS_LEN_MAX, VNET_LEN, VnetHeader};
use crate::pool::PoolFrame;
use crate::port::Frame;

impl Messages {
    /// Receives a packet; false when there is none, or no frame for it.
    pub(super) fn receive_run(&mut self, intake: &mut Intake) -> bool {
        let wanted = (PACKET_LEN_MAX / self.segment_len).clamp(1, SEGMENTS_MAX);
        let count = intake.offer(wanted);
        if count == 0 {
            return false;
        }
        let (vnet, about) = match self.scatter(intake.supply.offered(count)) {
            Ok(received) => received,
            Err(errno) => {
                note(errno, intake);
                return false;
            }
        };
        if about.truncated || about.len > PACKET_LEN_MAX {
            intake.refuse(usize::MAX);
        } else if vnet.is_one_frame() {
            self.singles += 1;
            self.take_frame(vnet, &about, count, intake);
        } else {
            let in_first = about.len.min(self.header_len + self.segment_len);
            let head = &intake.supply.offered(count)[0].buffer_mut()[..in_first];
            match Cut::new(vnet, head, about.len) {
                Some(cut) => self.take_run(cut, about, count, intake),
                None => intake.refuse(about.len),
            }
        }
        true
    }

    fn scatter(&mut self, frames: &mut [PoolFrame]) -> Result<(VnetHeader, Received), Errno> {
        let mut vnet = VnetHeader::PLAIN;
        let end = self.header_len + self.segment_len;
        let in_frames = self.header_len + frames.len() * self.segment_len;
        let mut parts: ArrayVec<IoSliceMut<'_>, { SEGMENTS_MAX + 2 }> = ArrayVec::new();
        parts.push(IoSliceMut::new(&mut vnet));
        for (index, frame) in frames.iter_mut().enumerate() {
            let first = if index == 0 { 0 } else { self.header_len };
            parts.push(IoSliceMut::new(&mut frame.buffer_mut()[first..end]));
        }
        let in_frames = in_frames.min(PACKET_LEN_MAX);
        parts.push(IoSliceMut::new(&mut self.bytes[in_frames..PACKET_LEN_MAX]));
        let mut about = self.socket.receive(&mut parts)?;
        drop(parts);
        about.len = about.len.saturating_sub(VNET_LEN);
        Ok((VnetHeader::read(vnet), about))
    }

    /// Takes a packet that is one frame, scattered over `count` offered ones.
    fn take_frame(
        &mut self,
        vnet: VnetHeader,
        about: &Received,
        count: usize,
        intake: &mut Intake,
    ) {
        if about.frame_len() > intake.supply.frame_len_max() {
            intake.refuse(about.frame_len());
            return;
        }
        if about.len > self.header_len + self.segment_len {
            self.collect(intake.supply.offered(count), about.len);
            let first = intake.supply.offered(count)[0].buffer_mut();
            first[..about.len].copy_from_slice(&self.bytes[..about.len]);
        }
        let frame = intake.supply.take(count, 1).next();
        if let Some(mut frame) = frame
            && complete(&mut frame, vnet, about, intake.ipv4_checksum)
        {
            self.frames.push(frame);
        } else {
            intake.refuse(about.frame_len());
        }
    }

    /// Takes a run that is scattered over `count` offered frames.
    fn take_run(&mut self, cut: Cut, about: Received, count: usize, intake: &mut Intake) {
        let is_in_place = cut.header_len == self.header_len
            && cut.segment_len == self.segment_len
            && cut.payload_len <= count * self.segment_len;
        if !is_in_place {
            self.collect(intake.supply.offered(count), about.len);
            self.expect(&cut, intake);
            self.rest = Some(Rest { cut, about, start: 0, taken: 0 });
            return;
        }
        let first = &mut intake.supply.offered(count)[0];
        let mut headers = [0; HEADERS_LEN_MAX];
        let headers = &mut headers[..cut.header_len];
        headers.copy_from_slice(&first.buffer_mut()[..cut.header_len]);
        let (mut taken, mut refused) = (0, 0);
        for mut frame in intake.supply.take(count, cut.payload_len.div_ceil(cut.segment_len)) {
            let len = cut.len_at(taken);
            taken += len;
            if put_headers(&mut frame, headers, len, &cut, &about, intake.ipv4_checksum) {
                self.frames.push(frame);
            } else {
                refused += 1;
            }
        }
        intake.stats.rx_errors += refused;
        self.frames.reverse();
        self.singles = 0;
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
}
