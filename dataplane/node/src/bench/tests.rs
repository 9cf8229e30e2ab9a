//! The replay bench on a device of memory: that it measures sums, and that it notices wrong ones.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::Table;
use weft_io::memory::{MemoryPort, link};
use weft_io::pool::PoolFrame;
use weft_io::{AggregatorLane, Burst, Port, forward_port};
use weft_kernel::Kernels;
use weft_wire::Nanos;
use weft_wire::frame::Udp;
use weft_wire::header::Packet;

use super::frames::Frames;
use super::generate;
use super::memory::MemoryLoop;
use super::replay::{self, Limit, Outside};
use super::run;
use crate::config::{self, LeaseName, Settings};
use crate::node::Options;

fn settings(integrity: &str) -> Settings {
    settings_of(integrity, 3)
}

fn settings_of(integrity: &str, workers: u8) -> Settings {
    let members: Vec<_> = (1..=workers).map(|rank| format!("\"10.77.1.{rank}:7000\"")).collect();
    let members = members.join(", ");
    let text = format!(
        "[port]\nio = \"udp\"\nip = \"10.77.0.100/16\"\n\n[bench]\nmode = \"loop\"\npackets = \
         3000\ncheck_every = 3\n\n[[job]]\nid = 0\n\n[[row]]\nrow = 0\njob = 0\nexponent = 0\n\
         window = 8\nelements = 16\nintegrity = \"{integrity}\"\nmembers = [{members}]\n"
    );
    config::parse("bench.toml", &text).unwrap()
}

#[test]
fn every_replayed_contribution_enters_a_right_sum() {
    for integrity in ["none", "crc32c", "checksum16"] {
        let options = Options::default();
        let measured = run(&settings(integrity), options).unwrap();
        if integrity == "checksum16" {
            // The restamping does not mend UDP checksums, and the bench says so.
            assert_eq!(measured.contributions_added, 0);
            assert!(measured.drops["integrity"] >= 3000);
            continue;
        }
        assert!(measured.packets >= 3000, "{integrity}");
        assert_eq!(measured.contributions_added, measured.packets, "{integrity}");
        assert!(measured.checked > 90 && measured.wrong == 0, "{integrity} {measured:?}");
    }
}

#[test]
fn every_replayed_contribution_enters_a_whole_lease() {
    for integrity in ["none", "crc32c"] {
        let mut settings = settings(integrity);
        let bench = settings.config.bench.as_mut().unwrap();
        // More than a group's, so that groups change and sums are released.
        (bench.lease, bench.packets) = (LeaseName::Whole, 5_000);
        let measured = run(&settings, Options::default()).unwrap();
        assert!(measured.packets >= 5_000, "{integrity}");
        assert_eq!(measured.contributions_added, measured.packets, "{integrity}");
        assert!(measured.checked > 20 && measured.wrong == 0, "{integrity} {measured:?}");
        assert!(measured.answers > 1_000, "{measured:?}");
    }
}

/// A bench by itself, whose clock goes as the test has it go: by default it stands still.
#[derive(Default)]
struct Ticking(std::rc::Rc<Cell<u64>>);

impl Outside for Ticking {
    fn now(&self) -> Nanos {
        Nanos(self.0.get())
    }
    fn cpu(&self) -> Duration {
        Duration::ZERO
    }
    fn is_stopped(&self) -> bool {
        false
    }
    fn mark(&self, _: &str) {}
    fn wait_to_end(&self) {}
}

#[test]
fn sums_of_other_numbers_are_wrong() {
    let table = Table::new(settings("none").table).unwrap();
    let row = &table.config().rows[0];
    let sent = Frames::new(table.config(), row, 256, 1);
    let expected = Frames::new(table.config(), row, 256, 2);
    let run = replay::Settings { limit: Limit::Packets(3000), seed: 7, check_every: 3 };
    let measured = replay::run(
        MemoryLoop::new(&sent),
        &table,
        &expected,
        run,
        Kernels::detect(),
        &Ticking::default(),
    )
    .unwrap();
    assert_eq!(measured.contributions_added, measured.packets);
    assert!(measured.checked > 90);
    assert_eq!(measured.wrong, measured.checked);
}

/// Looks at every answer that leaves a device of memory.
struct Witness<'a> {
    inner: MemoryLoop<'a>,
    frames: &'a Frames,
    seen: &'a RefCell<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Right answers by who they go to.
    answers: BTreeMap<SocketAddr, u64>,
    wrong: u64,
    /// Copies that took a new buffer.
    allocated: u64,
}

impl Port for Witness<'_> {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        self.inner.rx_burst(now, rx)
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let mut seen = self.seen.borrow_mut();
        for frame in tx.iter() {
            let udp = Udp::parse(frame.as_ref()).expect("answers are UDP");
            let packet = Packet::new_unchecked(&frame.as_ref()[udp.payload_range()]);
            if self.frames.is_answer(frame.as_ref(), packet.chunk().0) {
                *seen.answers.entry(udp.target).or_default() += 1;
            } else {
                seen.wrong += 1;
            }
        }
        self.inner.tx_burst(now, tx)
    }

    fn copy(&mut self, frame: &PoolFrame, header_len: usize) -> Option<PoolFrame> {
        self.seen.borrow_mut().allocated += 1;
        self.inner.copy(frame, header_len)
    }

    forward_port!(inner: alloc, recycles, info, stats);
}

/// Copies are made in the frames that were added, so none takes a new buffer.
#[test]
fn every_member_gets_each_answer_once_in_a_recycled_frame() {
    for workers in [1, 2, 3, 4, 5, 8, 16] {
        let table = Table::new(settings_of("crc32c", workers).table).unwrap();
        let row = &table.config().rows[0];
        let frames = Frames::new(table.config(), row, 256, 1);
        let seen = RefCell::new(Seen::default());
        let port = Witness { inner: MemoryLoop::new(&frames), frames: &frames, seen: &seen };
        let run = replay::Settings { limit: Limit::Packets(3200), seed: 7, check_every: 1 };
        replay::run(port, &table, &frames, run, Kernels::detect(), &Ticking::default()).unwrap();
        let seen = seen.into_inner();
        assert_eq!(seen.wrong, 0, "{workers} workers");
        assert_eq!(seen.answers.len(), usize::from(workers));
        let counts: Vec<u64> = seen.answers.into_values().collect();
        assert!(counts[0] >= 3200 / u64::from(workers), "{workers} workers: {counts:?}");
        assert!(counts.iter().all(|count| *count == counts[0]), "{workers} workers: {counts:?}");
        assert_eq!(seen.allocated, 0, "{workers} workers");
    }
}

/// An aggregator at the other end of a wire that loses some of the generator's frames and some of
/// the answers, named by their place in the order of frames with elements.
struct Wire {
    near: MemoryPort,
    far: AggregatorLane<MemoryPort>,
    clock: std::rc::Rc<Cell<u64>>,
    lost: [&'static [u64]; 2],
    passed: [u64; 2],
}

impl Wire {
    fn lose(&mut self, direction: usize, frames: &mut Burst<PoolFrame>) {
        frames.retain(|frame| {
            let has_elements = frame.as_ref().len() == 42 + 32 + 16 * 4;
            self.passed[direction] += u64::from(has_elements);
            !(has_elements && self.lost[direction].contains(&self.passed[direction]))
        });
    }
}

impl Port for Wire {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        self.far.breathe(now, &mut ());
        self.near.rx_burst(now, rx);
        self.lose(1, rx);
        // A tenth of a millisecond for every poll.
        self.clock.set(self.clock.get() + 100_000);
        rx.len()
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let count = tx.len();
        self.lose(0, tx);
        self.near.tx_burst(now, tx);
        assert!(tx.is_empty(), "the link holds a window");
        count
    }

    forward_port!(near: alloc, info, stats);
}

fn generate_over(lost: [&'static [u64]; 2]) -> Result<super::Measurement, super::BenchError> {
    let table = Table::new(settings("crc32c").table).unwrap();
    let row = &table.config().rows[0];
    let frames = Frames::new(table.config(), row, 256, 1);
    let (near, far) = link(1024, 1500, ["near", "far"]);
    let far = AggregatorLane::new(far, Aggregator::new(&table, 0, 5, Kernels::detect()));
    let clock = std::rc::Rc::new(Cell::new(1));
    let wire = Wire { near, far, clock: clock.clone(), lost, passed: [0; 2] };
    let run = replay::Settings { limit: Limit::Packets(0), seed: 7, check_every: 3 };
    let second = Duration::from_secs(1);
    generate::run(wire, &table, &frames, run, second, false, &Ticking(clock))
}

#[test]
fn a_generator_sends_lost_frames_again_and_says_so() {
    let whole = generate_over([&[], &[]]).unwrap();
    assert!(whole.packets > 10_000 && whole.wrong == 0 && whole.repeated == 0, "{whole:?}");
    // A contribution, and two answers to different members: nobody gets the step of the first.
    for lost in [[&[3000_u64][..], &[]], [&[], &[3001, 3503]], [&[3000, 3001, 4000], &[3300]]] {
        let measured = generate_over(lost).unwrap();
        assert!(measured.repeated > 0, "{lost:?}");
        assert!(measured.wrong == 0 && measured.checked > 3_000, "{lost:?} {measured:?}");
        // Each loss costs a pause, not the row.
        assert!(measured.packets > whole.packets * 9 / 10, "{lost:?} {measured:?} {whole:?}");
    }
}
