//! Messages in one piece: a run of datagrams received into one buffer, or sent from one.
//!
//! The kernel copies 64 KiB at once where it would copy to or from as many places as there are
//! datagrams, and whoever handles them needs no headers but those of the first.

use arrayvec::ArrayVec;
use weft_wire::frame::ETHERNET_LEN;

use super::headers::Headers;
use super::receive::MESSAGE_LEN_MAX;
use super::runs::Call;
use super::socket::Socket;
use super::transmit::Departure;
use super::{UdpPort, mmsg};
use crate::pool::PoolFrame;
use crate::port::{BURST_BYTES, BURST_MAX, Burst, Frame};
use crate::supply::Supply;

impl UdpPort {
    /// Messages may have several datagrams.
    pub(super) fn has_runs(&self) -> bool {
        self.merged.is_some() && self.info.mtu <= MESSAGE_LEN_MAX / 2
    }

    /// Frames for messages in one piece.
    pub(super) fn room_for_runs(&self) -> Supply {
        Supply::new(RUN_FRAMES, self.header_len + MESSAGE_LEN_MAX)
    }

    /// Whether messages are received in one piece. Not where each datagram needs a checksum.
    pub(super) fn joins(&self) -> bool {
        self.joined.is_some() && !self.ipv4_checksum && self.local_addr().is_ipv4()
    }

    /// Keeps a frame of no further use.
    pub(super) fn keep(&mut self, frame: PoolFrame) {
        match self.joined.as_mut().filter(|joined| joined.owns(&frame)) {
            Some(joined) => joined.keep(frame),
            None => self.supply.keep(frame),
        }
    }

    /// Receives messages as one frame each, as long as a burst of datagrams has room for one like
    /// the last and is not long enough.
    pub(super) fn receive_joined(&mut self, index: usize, rx: &mut Burst<PoolFrame>) -> usize {
        let (mut count, mut datagrams) = (0, 0);
        let enough_bytes = self.stats.rx_bytes + BURST_BYTES;
        while !rx.is_full() && self.stats.rx_bytes < enough_bytes {
            let Some(received) = self.receive_message(index, rx) else { break };
            count += usize::from(received > 0);
            datagrams += received;
            if datagrams + received > BURST_MAX {
                break;
            }
        }
        count
    }

    /// Receives one message as one frame; returns how many datagrams it has, 0 if it is of no use.
    /// `None`: there is none.
    fn receive_message(&mut self, index: usize, rx: &mut Burst<PoolFrame>) -> Option<usize> {
        let supply = self.joined.as_mut()?;
        if supply.offer(1) == 0 {
            self.stats.rx_nombuf += u64::from(rx.is_empty());
            return None;
        }
        let (socket, header_len) = (&self.sockets[index], self.header_len);
        let spare = supply.offered(1);
        let outcome = mmsg::receive_one(socket, spare, header_len, MESSAGE_LEN_MAX, &mut []);
        let (message, datagram_len) = match outcome {
            Ok(Some(received)) => received,
            Ok(None) => return None,
            Err(_) => {
                self.stats.rx_errors += 1;
                return None;
            }
        };
        let fits = header_len + datagram_len <= self.info.mtu + ETHERNET_LEN;
        let headers = Headers::of(&message, socket.addr(), false).filter(|_| fits);
        let more = message.payload_len.div_ceil(datagram_len.max(1)).saturating_sub(1);
        let Some(headers) = headers else {
            self.stats.rx_errors += 1 + more as u64;
            return Some(0);
        };
        let frame = supply.take(1, 1).next();
        let taken = self.stats.take(frame.map(|frame| headers.write(frame, datagram_len)), rx);
        if let Some(frame) = rx.last_mut().filter(|_| taken > 0 && more > 0) {
            frame.set_len(header_len + message.payload_len);
            frame.set_datagram_len(datagram_len);
            self.stats.rx_packets += more as u64;
            let more_bytes = message.payload_len - datagram_len + more * header_len;
            self.stats.rx_bytes += more_bytes as u64;
        }
        Some(taken * (more + 1))
    }

    /// Sends a run that stands alone in `tx`.
    pub(super) fn transmit_joined(
        &mut self,
        tx: &mut Burst<PoolFrame>,
        datagram_len: usize,
    ) -> usize {
        let Some(frame) = tx.pop() else { return 0 };
        let bytes = frame.as_ref();
        let first = &bytes[..bytes.len().min(self.header_len + datagram_len)];
        let payload_len = bytes.len().saturating_sub(self.header_len);
        let count = payload_len.div_ceil(datagram_len);
        let Some(plan) = self.plan(first, false) else {
            self.stats.tx_errors += count as u64;
            self.keep(frame);
            return 1;
        };
        let whole = Departure { payload: plan.payload.start..bytes.len(), ..plan.clone() };
        let socket = &mut self.sockets[plan.socket];
        socket.set_traffic_class(plan.traffic_class);
        let departures = [(&whole, bytes)].into_iter();
        let sent = match mmsg::send(socket, departures, &Call::run(1, datagram_len)) {
            Ok(0) => None,
            Ok(_) => {
                socket.accept_runs();
                Some(count)
            }
            Err(errno) if mmsg::is_full(errno) => None,
            Err(errno) => {
                let sent = send_apart(socket, &plan, bytes, datagram_len);
                if sent > 0 {
                    socket.refuse_runs(self.now, errno);
                    self.stats.tx_runs_refused += 1;
                }
                Some(sent)
            }
        };
        let Some(sent) = sent else {
            tx.push(frame);
            return 0;
        };
        self.stats.tx_packets += sent as u64;
        self.stats.tx_errors += (count - sent) as u64;
        let payload_bytes = payload_len.min(sent * datagram_len);
        self.stats.tx_bytes += (sent * self.header_len + payload_bytes) as u64;
        self.keep(frame);
        1
    }
}

/// Sends the datagrams of a run one by one, for the kernel does not cut them out of a message;
/// returns how many.
fn send_apart(socket: &Socket, plan: &Departure, bytes: &[u8], datagram_len: usize) -> usize {
    let of = |at: usize| {
        let payload = at..(at + datagram_len).min(bytes.len());
        Departure { payload, ..plan.clone() }
    };
    let starts = (plan.payload.start..bytes.len()).step_by(datagram_len);
    let departures: ArrayVec<Departure, BURST_MAX> = starts.take(BURST_MAX).map(of).collect();
    let call = Call::one_by_one(departures.len());
    let departures = departures.iter().map(|departure| (departure, bytes));
    mmsg::send(socket, departures, &call).unwrap_or(0)
}

/// Messages of one datagram that are received together; of long ones it is one, and one that goes.
const RUN_FRAMES: usize = 16;
