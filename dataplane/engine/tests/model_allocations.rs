//! Zero allocations of a durable server and its replica after their start, counted: announcing,
//! pulling, staging, committing, writing records, following and repairing.

use std::net::SocketAddr;

use crate::counting::counted;
use weft_control::BoxIndex;
use weft_engine::role::Verdict;
use weft_engine::role::channel::{ChannelClient, ChannelClientConfig, ClientEvent, Peer};
use weft_engine::role::model::ModelConfig;
use weft_engine::role::model::journal::record_len_max;
use weft_engine::role::replica::{Replica, ReplicaJobConfig};
use weft_engine::role::server::{Server, ServerJobConfig};
use weft_engine::send::datagram::plain_header;
use weft_kernel::Kernels;
use weft_wire::frame::{Datagram, Endpoint};
use weft_wire::header::{ElementType, Flags, Header, Kind, Operation, Packet};
use weft_wire::rows::ROW_DIRECT;
use weft_wire::{GroupId, JobId, MacAddr, Nanos, Rank};

const JOB: JobId = JobId(1);
const ELEMENTS: u16 = 64;
const CHUNKS: usize = 10;
const FRAME_LEN: usize = 1514;
const WORKER: u8 = 1;
const SERVER: u8 = 100;
const REPLICA: u8 = 101;

fn endpoint(host: u8) -> Endpoint {
    let addr = SocketAddr::from(([10, 0, 0, host], 22341));
    Endpoint { mac: MacAddr([2, 0, 0, 0, 0, host]), addr }
}

/// The three ends, and frames on their way in memory that was taken before.
struct World {
    server: Server,
    replica: Replica,
    worker: ChannelClient,
    wire: Vec<([u8; FRAME_LEN], usize)>,
    now: Nanos,
    /// Chunks that the server asked for, and groups that it decided.
    asked: Vec<u32>,
    decided: usize,
    record: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let model = ModelConfig {
            elements: ELEMENTS,
            momentum: 0.9,
            ..ModelConfig::new(JOB, usize::from(ELEMENTS) * CHUNKS)
        };
        let shape = model.clone();
        let workers = vec![endpoint(WORKER).addr];
        let job = ServerJobConfig {
            boxes: vec![Some(endpoint(REPLICA).addr)],
            replica: Some(BoxIndex(0)),
            div_max: Some(1e12),
            tau_max: 1_000_000,
            staging_bytes_max: 20_000,
            log_bytes_max: 20_000,
            log_entries_max: 8,
            is_durable: true,
            ..ServerJobConfig::new(model.clone(), workers.clone())
        };
        let kernels = Kernels::detect();
        let follower = ReplicaJobConfig {
            staging_bytes_max: 20_000,
            ..ReplicaJobConfig::new(model, BoxIndex(0), endpoint(SERVER), workers)
        };
        let peer = Peer::Worker(Rank::new(0).unwrap());
        let config = ChannelClientConfig::new(JOB, peer, endpoint(WORKER), endpoint(SERVER));
        Self {
            server: Server::new(endpoint(SERVER), 1500, &[job], 1, kernels).unwrap(),
            replica: Replica::new(endpoint(REPLICA), 1500, &[follower], 2, kernels).unwrap(),
            worker: ChannelClient::new(config, 3, Nanos(0)).unwrap(),
            wire: Vec::with_capacity(256),
            now: Nanos(0),
            asked: Vec::with_capacity(256),
            decided: 0,
            record: Vec::with_capacity(record_len_max(&shape)),
        }
    }

    /// Lets everybody speak until nobody has anything to say at this moment.
    fn settle(&mut self) {
        loop {
            let mut frame = [0; FRAME_LEN];
            while let Some(len) = self.server.poll_transmit(self.now, &mut frame) {
                self.wire.push((frame, len));
            }
            // A disk that is fast.
            while let Some((job, position)) = self.server.poll_journal(&mut self.record) {
                assert!(!self.record.is_empty());
                self.server.handle_durable(job, position);
                while let Some(len) = self.server.poll_transmit(self.now, &mut frame) {
                    self.wire.push((frame, len));
                }
            }
            while let Some(len) = self.replica.poll_transmit(self.now, &mut frame) {
                self.wire.push((frame, len));
            }
            while let Some(len) = self.worker.poll_transmit(self.now, &mut frame) {
                self.wire.push((frame, len));
            }
            while self.server.poll_event().is_some() {}
            while self.replica.poll_event().is_some() {}
            let Some((frame, len)) = self.wire.pop() else { return };
            self.deliver(frame, len);
        }
    }

    fn deliver(&mut self, mut frame: [u8; FRAME_LEN], len: usize) {
        let udp = Datagram::find(&frame[..len]).unwrap();
        let verdict = match frame[udp.payload_start() - 9] {
            SERVER => self.server.handle_frame(self.now, &mut frame, len),
            REPLICA => self.replica.handle_frame(self.now, &mut frame, len),
            _ => {
                let packet = Packet::new_unchecked(&frame[udp.payload_range()]);
                let header = Header::parse(&packet).unwrap();
                let event = self.worker.handle_frame(self.now, &udp, &header, &mut frame);
                if event == Ok(ClientEvent::Frame) && header.kind == Kind::Pull {
                    self.asked.push(header.chunk.0);
                }
                self.decided += usize::from(header.kind == Kind::Ack);
                return;
            }
        };
        if let Verdict::Send { len } = verdict {
            self.wire.push((frame, len));
        }
    }

    /// A worker's frame with this header and payload.
    fn say(&mut self, header: &Header, payload: &[u8]) {
        let mut frame = [0; FRAME_LEN];
        let start = self.worker.payload_start();
        frame[start..start + payload.len()].copy_from_slice(payload);
        let len = self.worker.write(header, &mut frame, payload.len()).unwrap();
        self.deliver(frame, len);
    }

    /// One whole update without a controller.
    fn update(&mut self, number: u16) {
        let id = GroupId::new(ROW_DIRECT, number);
        let bit = Rank::new(0).unwrap().bit();
        let shape = Header {
            element_type: ElementType::I32,
            count: ELEMENTS,
            ..plain_header(Kind::Status, JOB, id, bit)
        };
        let payload = [7; ELEMENTS as usize * 4];
        self.say(&shape, &[]);
        self.settle();
        while let Some(chunk) = self.asked.pop() {
            let header = Header {
                kind: Kind::Contrib,
                flags: Flags::DIRECT,
                operation: Operation::Sum,
                exponent: 0,
                chunk: weft_wire::ChunkIndex(chunk),
                ..shape
            };
            self.say(&header, &payload);
            self.settle();
        }
        self.now = Nanos(self.now.0 + 30_000_000);
        self.settle();
    }
}

#[test]
fn the_counter_counts() {
    let mut allocations = 0;
    counted(&mut allocations, || drop(std::hint::black_box(Box::new(1))));
    assert_eq!(allocations, 1);
}

#[test]
fn updates_take_no_memory() {
    let mut world = World::new();
    for _ in 0..10 {
        world.now = Nanos(world.now.0 + 30_000_000);
        world.settle();
    }
    let mut allocations = 0;
    counted(&mut allocations, || (0..40).for_each(|number| world.update(number)));
    assert_eq!(allocations, 0);
    let (server, replica) = (world.server.model(JOB).unwrap(), world.replica.model(JOB).unwrap());
    assert_eq!((server.version.0, replica.version.0, world.decided), (40, 40, 40));
    assert_eq!(server.weights, replica.weights);
    let stats = world.server.jobs().next().unwrap().1;
    assert_eq!(stats.repairs, 40 * 10);
}
