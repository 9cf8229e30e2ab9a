//! Sends a burst: which socket each frame leaves by, and what becomes of those that do not.

use std::net::SocketAddr;
use std::ops::Range;

use arrayvec::ArrayVec;
use weft_wire::frame::label::traffic_class;
use weft_wire::frame::{ETHERNET_LEN, IPV4_LEN, UDP_LEN, Udp};

use super::frame_set::FrameSet;
use super::runs::Call;
use super::socket::ECT0;
use super::{UdpPort, mmsg, runs};
use crate::pool::PoolFrame;
use crate::port::{BURST_MAX, Burst, Frame as _};
use crate::runs::run_frames_max;

/// How a frame leaves.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    pub(super) socket: usize,
    pub(super) target: SocketAddr,
    /// The DSCP that the frame has, and ECT(0).
    pub(super) traffic_class: u8,
    pub(super) payload: Range<usize>,
    /// Not in a run with others.
    pub(super) is_apart: bool,
}

impl Departure {
    /// True when `frame` has the same headers as `other`, whose departure this is.
    fn has_headers_of(&self, other: &[u8], frame: &PoolFrame) -> bool {
        let frame = frame.as_ref();
        let (own, others) = (frame.first_chunk::<IPV4_START>(), other.first_chunk::<IPV4_START>());
        // Those of IPv4 are compared in registers.
        frame.len() == other.len()
            && own == others
            && (self.payload.start == IPV4_START
                || frame[IPV4_START..self.payload.start] == other[IPV4_START..self.payload.start])
    }
}

impl UdpPort {
    pub(super) fn transmit(&mut self, tx: &mut Burst<PoolFrame>) -> usize {
        if let [run] = &tx[..]
            && let Some(datagram_len) = run.datagram_len()
        {
            return self.transmit_joined(tx, datagram_len);
        }
        if let Some(sent) = self.transmit_run(tx) {
            return sent;
        }
        let offered = tx.len();
        let mut plans: ArrayVec<Option<Departure>, BURST_MAX> = ArrayVec::new();
        for (index, frame) in tx.iter().enumerate() {
            // Neighbours in a run differ in their payloads alone.
            let last = plans.last().and_then(Option::as_ref);
            let last = last.filter(|last| last.has_headers_of(tx[index - 1].as_ref(), frame));
            let like = last.map(|last| Departure { is_apart: frame.is_apart(), ..last.clone() });
            plans.push(like.or_else(|| self.plan(frame.as_ref(), frame.is_apart())));
        }
        let mut pending = FrameSet::of(&plans, Option::is_some);
        self.stats.tx_errors += (offered - pending.len()) as u64;
        let mut refused = FrameSet::default();
        while let Some(Some(plan)) = pending.first().map(|index| plans[index].as_ref()) {
            let socket = plan.socket;
            let batch = FrameSet::of(&plans, |plan| {
                plan.as_ref().is_some_and(|plan| plan.socket == socket)
            });
            refused = refused.union(self.send(socket, tx, &plans, batch));
            pending = pending.without(batch);
        }
        let mut left = Burst::new();
        for (index, frame) in tx.drain(..).enumerate() {
            if refused.contains(index) {
                left.push(frame);
            } else {
                self.keep(frame);
            }
        }
        *tx = left;
        offered - tx.len()
    }

    /// Sends a burst that is one run, as a worker's are: it needs one plan. `None`: it is none, or
    /// the socket does not take it so; nothing was sent.
    fn transmit_run(&mut self, tx: &mut Burst<PoolFrame>) -> Option<usize> {
        let first = tx.first().filter(|first| tx.len() > 1 && !first.is_apart())?;
        let plan = self.plan(first.as_ref(), false)?;
        let goes_along =
            |frame: &PoolFrame| !frame.is_apart() && plan.has_headers_of(first.as_ref(), frame);
        let fits = tx.len() <= run_frames_max(first.as_ref().len());
        if !fits
            || !self.sockets[plan.socket].takes_runs(self.now)
            || !tx[1..].iter().all(goes_along)
        {
            return None;
        }
        let (count, bytes) = (tx.len(), (tx.len() * first.as_ref().len()) as u64);
        let departures = tx.iter().map(|frame| (&plan, frame.as_ref()));
        let call = Call::run(count, plan.payload.len());
        self.sockets[plan.socket].set_traffic_class(plan.traffic_class);
        match mmsg::send(&self.sockets[plan.socket], departures, &call) {
            Ok(0) => Some(0),
            Ok(_) => {
                self.sockets[plan.socket].accept_runs();
                self.stats.tx_packets += count as u64;
                self.stats.tx_bytes += bytes;
                tx.drain(..).for_each(|frame| self.keep(frame));
                Some(count)
            }
            Err(errno) => mmsg::is_full(errno).then_some(0),
        }
    }

    /// Where a frame's payload lies and goes, and the socket that sends it. `None` when no socket
    /// can: not UDP, too long, or from an address that is not this port's.
    pub(super) fn plan(&self, frame: &[u8], is_apart: bool) -> Option<Departure> {
        let udp = Udp::parse(frame).ok()?;
        let first = self.local_addr();
        let lane = usize::from(udp.source.port().checked_sub(first.port())?);
        let sendable = lane < self.sender_count
            && udp.source.ip() == first.ip()
            && udp.target.is_ipv4() == first.is_ipv4()
            && frame.len() <= self.info.mtu + ETHERNET_LEN;
        sendable.then(|| Departure {
            socket: lane,
            target: udp.target,
            // Weft is ECN-capable, whatever a frame met on its way here.
            traffic_class: traffic_class(frame).unwrap_or(0) & !0b11 | ECT0,
            payload: udp.payload_range(),
            is_apart,
        })
    }

    /// Sends the frames of `batch` (indices into `tx`, all of one socket); returns those that the
    /// socket had no room for.
    fn send(
        &mut self,
        socket: usize,
        tx: &[PoolFrame],
        plans: &[Option<Departure>],
        mut batch: FrameSet,
    ) -> FrameSet {
        let mut takes_runs = self.sockets[socket].takes_runs(self.now);
        // A run failed, and its frames are tried one by one.
        let mut doubt = None;
        while !batch.is_empty() {
            let departures = batch
                .iter()
                .filter_map(|index| plans[index].as_ref().map(|plan| (plan, tx[index].as_ref())));
            let call = runs::next_call(departures.clone().map(|(plan, _)| plan), takes_runs);
            let class = departures.clone().next().map(|(plan, _)| plan.traffic_class);
            self.sockets[socket].set_traffic_class(class.unwrap_or(ECT0));
            match mmsg::send(&self.sockets[socket], departures, &call) {
                Ok(0) => break,
                Ok(messages) => {
                    if let Some(errno) = doubt.take() {
                        self.sockets[socket].refuse_runs(self.now, errno);
                        self.stats.tx_runs_refused += 1;
                    } else if call.frames(1) > 1 {
                        self.sockets[socket].accept_runs();
                    }
                    let sent = call.frames(messages);
                    for index in batch.iter().take(sent) {
                        self.stats.tx_packets += 1;
                        self.stats.tx_bytes += tx[index].as_ref().len() as u64;
                    }
                    batch = batch.skip(sent);
                }
                Err(errno) if mmsg::is_full(errno) => break,
                Err(errno) if call.frames(1) > 1 => {
                    takes_runs = false;
                    doubt = Some(errno);
                }
                Err(_) => {
                    doubt = None;
                    self.stats.tx_errors += 1;
                    batch = batch.skip(1);
                }
            }
        }
        batch
    }
}

/// Where the payload of an IPv4 frame starts.
const IPV4_START: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;

#[cfg(test)]
mod tests {
    use nix::sys::socket::setsockopt;
    use nix::{setsockopt_impl, sockopt_impl};
    use weft_wire::Nanos;
    use weft_wire::frame::{Encap, Endpoint};

    use super::super::{UdpConfig, pseudo_mac};
    use super::*;
    use crate::port::{Frame, Port};

    sockopt_impl!(
        /// Datagrams without a checksum, which the kernel does not cut out of a message.
        NoCheck,
        SetOnly,
        libc::SOL_SOCKET,
        libc::SO_NO_CHECK,
        libc::c_int
    );

    /// Has the kernel refuse runs from here on, or take them.
    fn refuse(port: &UdpPort, refuses: bool) {
        setsockopt(port.sockets[0].inner(), NoCheck, &refuses.into()).unwrap();
    }

    /// When a kernel that has refused once is asked again.
    const LATER: Nanos = Nanos::from_millis(1_000);

    #[test]
    fn a_run_in_one_piece_that_the_kernel_refuses_leaves_datagram_by_datagram() {
        let config = UdpConfig::new("127.0.0.1:0".parse().unwrap());
        let config = UdpConfig { offload: true, ..config };
        let open = || UdpPort::open(&config).unwrap();
        let (mut port, mut server) = (open(), open());
        port.join_runs(true);
        let end = |addr: SocketAddr| Endpoint { mac: pseudo_mac(addr.ip()), addr };
        let encap = Encap::new(end(port.local_addr()), end(server.local_addr())).unwrap();
        refuse(&port, true);
        let mut run = port.alloc_run().unwrap();
        for (place, mark) in run.buffer_mut()[IPV4_START..][..95].chunks_mut(10).zip(0..) {
            place.fill(mark);
        }
        encap.emit(run.buffer_mut(), 10);
        run.set_len(IPV4_START + 95);
        run.set_datagram_len(10);
        let mut tx = Burst::from_iter([run]);
        assert_eq!((port.tx_burst(Nanos(0), &mut tx), tx.len()), (1, 0));
        assert_eq!((port.stats().tx_packets, port.stats().tx_errors), (10, 0));
        assert!(port.alloc_run().is_none(), "it is not asked again");
        assert_eq!(port.rx_burst(LATER, &mut Burst::new()), 0);
        assert!(port.alloc_run().is_some(), "but later it is");
        let mut rx = Burst::new();
        assert_eq!(server.rx_burst(Nanos(0), &mut rx), 10);
        let payloads = rx.iter().map(|frame| &frame.as_ref()[IPV4_START..]);
        let seen: Vec<(usize, u8)> = payloads.map(|bytes| (bytes.len(), bytes[0])).collect();
        assert_eq!(seen, (0..10).map(|at| (if at < 9 { 10 } else { 5 }, at)).collect::<Vec<_>>());
    }

    #[test]
    fn a_kernel_that_refuses_runs_gets_frames_and_is_asked_again_later() {
        let config = UdpConfig::new("127.0.0.1:0".parse().unwrap());
        let config = UdpConfig { offload: true, ..config };
        let open = || UdpPort::open(&config).unwrap();
        let (mut port, mut server) = (open(), open());
        let end = |addr: SocketAddr| Endpoint { mac: pseudo_mac(addr.ip()), addr };
        let encap = Encap::new(end(port.local_addr()), end(server.local_addr())).unwrap();
        // A second of refusals, then two; then it takes a run, and the next refusal is a first one.
        for (at_s, refuses, refused, takes) in [
            (0, true, 1, false),
            (0, true, 1, false),
            (1, true, 2, false),
            (2, true, 2, false),
            (3, false, 2, true),
            (4, true, 3, false),
            (5, false, 3, true),
        ] {
            refuse(&port, refuses);
            let now = Nanos::from_millis(1_000 * at_s);
            let mut tx = Burst::new();
            for mark in 0..5 {
                let mut frame = port.alloc().unwrap();
                frame.buffer_mut()[encap.header_len()] = mark;
                let len = encap.emit(frame.buffer_mut(), 1);
                frame.set_len(len);
                tx.push(frame);
            }
            assert_eq!(port.tx_burst(now, &mut tx), 5);
            assert_eq!((port.stats().tx_runs_refused, port.stats().tx_errors), (refused, 0));
            assert_eq!(port.sockets[0].takes_runs(now), takes, "{at_s} s");
            let mut rx = Burst::new();
            while rx.len() < 5 {
                server.rx_burst(now, &mut rx);
            }
            let marks = rx.iter().map(|frame| frame.as_ref()[encap.header_len()]);
            assert_eq!(marks.collect::<Vec<u8>>(), [0, 1, 2, 3, 4]);
        }
    }
}
