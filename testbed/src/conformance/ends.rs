//! The ends of a push job: channels, as workers open them and as server and replica host them.

use weft_control::PushConfig;
use weft_engine::random::SplitMix64;
use weft_engine::role::channel::{
    ChannelClient, ChannelClientConfig, ChannelHost, ChannelHostConfig, JobTerms, Peer, Standing,
};
use weft_wire::frame::Datagram;
use weft_wire::header::{Header, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{Cookie, Nanos, Rank};

use super::parse::box_endpoint;
use super::script::Part;
use super::target::FRAME_LEN_MAX;

/// One end of a push job.
#[derive(Debug)]
pub(super) enum End {
    Worker(Box<ChannelClient>),
    Host { host: Box<ChannelHost>, peer: Peer },
}

impl End {
    pub(super) fn new(
        push: &PushConfig,
        part: Part,
        integrity: Integrity,
        life: u64,
        now: Nanos,
    ) -> Self {
        let host = |local| {
            let terms = JobTerms {
                job: push.job,
                elements: push.elements,
                integrity,
                exponent: push.exponent,
                chunks: push.chunks,
            };
            let boxes = vec![Some(box_endpoint().addr)];
            let workers = push.workers.clone();
            let config = ChannelHostConfig { local, terms, workers, boxes };
            let host = Box::new(ChannelHost::new(&config, SplitMix64::new(life)));
            Self::Host { host, peer: Peer::Box(push.box_index) }
        };
        match part {
            Part::Server => host(push.server),
            Part::Replica => host(push.replica.expect("the job has one")),
            Part::Member(rank) => {
                let mut local = push.server;
                local.addr = push.workers[usize::from(rank)];
                local.mac.0[5] = rank + 1;
                let peer = Peer::Worker(Rank::new(rank).expect("a script has few members"));
                let config = ChannelClientConfig::new(push.job, peer, local, box_endpoint());
                let config = ChannelClientConfig { probe_len: 0, ..config };
                let client = ChannelClient::new(config, life, now).expect("both ends are IPv4");
                Self::Worker(Box::new(client))
            }
        }
    }

    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Worker(client) => client.standing() == Standing::Open,
            Self::Host { host, peer } => host.is_open(*peer),
        }
    }

    /// The cookie that its frames carry.
    pub(super) fn cookie_up(&self) -> Cookie {
        match self {
            Self::Worker(client) => client.path().map(|(_, cookie)| cookie),
            Self::Host { host, peer } => host.path(*peer).map(|(_, cookie)| cookie),
        }
        .unwrap_or_default()
    }

    /// The next datagram of a worker's handshake.
    pub(super) fn poll(&mut self, now: Nanos) -> Option<Vec<u8>> {
        let Self::Worker(client) = self else { return None };
        let mut frame = vec![0; FRAME_LEN_MAX];
        let len = client.poll_transmit(now, &mut frame)?;
        frame.truncate(len);
        Some(frame)
    }

    /// Takes a handshake datagram of the box; the answer of a host.
    pub(super) fn handle_hello(&mut self, now: Nanos, frame: &[u8]) -> Option<Vec<u8>> {
        let mut buffer = vec![0; FRAME_LEN_MAX];
        buffer[..frame.len()].copy_from_slice(frame);
        let udp = Datagram::find(frame).ok()?;
        let header = Header::parse(&Packet::new_unchecked(&frame[udp.payload_range()])).ok()?;
        match self {
            Self::Worker(client) => {
                let _ = client.handle_frame(now, &udp, &header, &mut buffer[..frame.len()]);
                None
            }
            Self::Host { host, .. } => {
                let reply = host.handle_hello(&udp, &header, &mut buffer).ok()?;
                buffer.truncate(reply.len);
                Some(buffer)
            }
        }
    }
}
