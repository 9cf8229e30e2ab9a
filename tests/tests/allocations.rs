//! Zero allocations per frame once the lease is open, counted: a box's lane on memory ports, and
//! the workers it serves, with a loss now and then.
//!
//! Single-threaded, and the counter is the thread's own, so nothing else is counted.

use crate::counting::counted;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::worker::{ChunkMeta, Event, Payload, Worker};
use weft_io::memory::{MemoryPort, hub};
use weft_io::pool::PoolFrame;
use weft_io::{Burst, Frame, Port, forward_port};
use weft_kernel::{Kernels, crc32c_blank};
use weft_lane::AggregatorLane;
use weft_sim::allreduce::scenario::{Kind, Scenario};
use weft_sim::allreduce::topology;
use weft_wire::Nanos;
use weft_wire::header::{CRC_AT, Flags};

/// Contributes the chunk's number, counts sums.
struct Numbers {
    sums: u32,
    workers: u32,
}

impl Payload for Numbers {
    fn write_chunk(&self, chunk: u32, out: &mut [u8]) -> ChunkMeta {
        out.chunks_exact_mut(4).for_each(|bytes| bytes.copy_from_slice(&chunk.to_be_bytes()));
        ChunkMeta::default()
    }

    fn read_chunk(&mut self, chunk: u32, _: i8, _: Flags, sum: &[u8]) {
        let want = (self.workers * chunk).to_be_bytes();
        assert!(sum.chunks_exact(4).all(|bytes| bytes == want), "chunk {chunk}");
        self.sums += 1;
    }
}

struct Member {
    worker: Worker,
    port: MemoryPort,
    data: Numbers,
    rounds: u32,
}

/// The box's port. As DPDK's do, it may let contributions become answers; then those of a burst
/// come in the order of their chunks, so that they are summed in runs.
struct BoxPort {
    port: MemoryPort,
    recycles: bool,
}

impl Port for BoxPort {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        let received = self.port.rx_burst(now, rx);
        if self.recycles {
            rx.sort_unstable_by_key(|frame| {
                let chunk = frame.as_ref().get(42 + 12..)?.first_chunk::<4>()?;
                Some(u32::from_be_bytes(*chunk))
            });
        }
        received
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        self.port.tx_burst(now, tx)
    }

    fn recycles(&self, _frame_len: usize) -> bool {
        self.recycles
    }

    forward_port!(port: alloc, copy, free, info, stats);
}

/// What was allocated where, once the first round was over.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    breathe: u64,
    handle_frame: u64,
    handle_timeout: u64,
    poll_transmit: u64,
}

const ROUNDS: u32 = 6;
const CHUNKS: u32 = 100;

fn scenario() -> Scenario {
    let plain = |seed: &u64| {
        let scenario = Scenario::new(Kind::Late, *seed);
        let wrap = scenario.numbers == weft_sim::allreduce::data::Numbers::Wrap;
        wrap && scenario.levels == 1 && scenario.shards == 1 && scenario.exponent_fixed
    };
    Scenario::new(Kind::Late, (0..).find(plain).expect("one of the first few hundred"))
}

#[test]
fn the_counter_counts() {
    let mut count = 0;
    let kept = counted(&mut count, || vec![1u8; 100]);
    assert_eq!((count, kept.len()), (1, 100));
}

#[test]
fn no_frame_allocates_once_the_lease_is_open() {
    serve(false);
}

#[test]
fn no_run_of_frames_allocates_once_the_lease_is_open() {
    serve(true);
}

fn serve(recycles: bool) {
    let scenario = scenario();
    let names: Vec<_> =
        ["box", "a", "b", "c", "d"].into_iter().take(1 + scenario.workers).collect();
    let mut ports = hub(1_024, 1_500, &names).into_iter();
    let engine = Aggregator::new(&topology::table(&scenario, 0), 0, 1, Kernels::detect());
    let port = BoxPort { port: ports.next().expect("the box's"), recycles };
    let mut lane = AggregatorLane::new(port, engine);
    let placements = topology::placements(&scenario).into_iter().enumerate();
    let mut members: Vec<_> = ports
        .zip(placements)
        .map(|(port, (index, placement))| {
            let config = topology::worker_config(&scenario, index, placement);
            let worker = Worker::new(config, crc32c_blank::<CRC_AT>, 10 + index as u64, Nanos(0));
            let workers = u32::try_from(scenario.workers).expect("few");
            let data = Numbers { sums: 0, workers };
            Member { worker: worker.expect("IPv4 both"), port, data, rounds: 0 }
        })
        .collect();
    let mut counts = Counts::default();
    let mut received = 0;
    let mut tick = 0;
    while members.iter().any(|member| member.rounds < ROUNDS) {
        tick += 1;
        assert!(tick < 200_000, "the rounds end");
        let now = Nanos(tick * 50_000);
        let warm = members.iter().all(|member| member.rounds > 0);
        let mut idle = Counts::default();
        let counts = if warm { &mut counts } else { &mut idle };
        for member in &mut members {
            turn(now, member, &mut received, counts);
        }
        counted(&mut counts.breathe, || lane.breathe(now, &mut ()));
    }
    assert_eq!(counts, Counts::default());
    let retransmissions: u64 =
        members.iter().map(|member| member.worker.stats().retransmissions).sum();
    assert!(retransmissions > 0, "losses were recovered");
    assert!(members.iter().all(|member| member.data.sums == ROUNDS * CHUNKS));
}

/// Lets a member hear and speak; every 97th frame to a member is lost.
fn turn(now: Nanos, member: &mut Member, received: &mut u64, counts: &mut Counts) {
    let Member { worker, port, data, rounds } = member;
    let mut rx = Burst::new();
    port.rx_burst(now, &mut rx);
    for mut frame in rx.drain(..) {
        *received += 1;
        if !received.is_multiple_of(97) {
            // A flooded frame for another member is refused, which must not allocate either.
            let _ = counted(&mut counts.handle_frame, || {
                worker.handle_frame(now, frame.as_mut(), data)
            });
        }
    }
    counted(&mut counts.handle_timeout, || worker.handle_timeout(now));
    loop {
        let mut frame = port.alloc().expect("the pool is large enough");
        let len = counted(&mut counts.poll_transmit, || {
            worker.poll_transmit(now, data, frame.buffer_mut())
        });
        let Some(len) = len else { break };
        frame.set_len(len);
        let mut tx = Burst::new();
        tx.push(frame);
        port.tx_burst(now, &mut tx);
    }
    while let Some(event) = worker.poll_event() {
        match event {
            Event::Opened => worker.begin_round(now, CHUNKS).expect("open"),
            Event::RoundComplete => {
                *rounds += 1;
                if *rounds < ROUNDS {
                    worker.begin_round(now, CHUNKS).expect("the last round is complete");
                }
            }
            other => panic!("{other:?}"),
        }
    }
}
