//! Contributions to whole leases in runs against the same frames one by one: what leaves, what is
//! counted, and what slots hold.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;
use weft_control::GroupDescriptor;
use weft_wire::header::{ElementType, Flags, Header};
use weft_wire::hello::{Integrity, Overflow};

use super::super::PushConfig;
use super::rig::*;
use crate::drops::DropReason;
use crate::role::{RunIndex, Taken};
use crate::slot::State;

const WORKERS: usize = 6;
const RANKS: [u8; WORKERS] = [0, 1, 2, 3, 4, 5];

/// What left the box because of a frame.
type Fate = Result<Vec<Vec<u8>>, DropReason>;

/// A box, and the frames that wait in it.
struct Box {
    rig: Rig,
    /// By run: the number of the frame in its burst, and the frame.
    runs: BTreeMap<usize, Vec<(usize, Vec<u8>)>>,
    /// How many runs of each length were summed.
    lengths: [usize; 5],
}

fn open() -> weft_wire::GroupId {
    group(5, 1)
}

impl Box {
    fn new(config: &PushConfig, train_chunks: u16) -> Self {
        let mut rig = Rig::new(alloc::vec![config.clone()]);
        rig.install(GroupDescriptor {
            replicate: true,
            train_chunks,
            element_type: config.element_type,
            ..descriptor(1, open(), &RANKS)
        });
        Self { rig, runs: BTreeMap::new(), lengths: [0; 5] }
    }

    fn one_by_one(&mut self, burst: &[Vec<u8>]) -> Vec<Fate> {
        burst.iter().map(|frame| self.rig.raw(frame)).collect()
    }

    /// As a lane does it.
    fn in_runs(&mut self, burst: &[Vec<u8>]) -> Vec<Fate> {
        let mut fates: Vec<Fate> = alloc::vec![Ok(Vec::new()); burst.len()];
        for (number, frame) in burst.iter().enumerate() {
            match self.rig.aggregator.take(self.rig.now, frame) {
                Taken::Wait(run) => self.wait(run, number, frame),
                Taken::Drop(reason) => fates[number] = Err(reason),
                Taken::Sum(run) => {
                    self.wait(run, number, frame);
                    self.sum(run, &mut fates);
                }
                Taken::Else => {
                    self.sum_all(&mut fates);
                    fates[number] = self.rig.raw(frame);
                }
            }
        }
        self.sum_all(&mut fates);
        fates
    }

    fn wait(&mut self, run: RunIndex, number: usize, frame: &[u8]) {
        assert!(run.is_whole());
        self.runs.entry(run.index()).or_default().push((number, frame.to_vec()));
    }

    fn sum(&mut self, run: RunIndex, fates: &mut [Fate]) {
        let waiting = self.runs.remove(&run.index()).unwrap();
        let (numbers, mut frames): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
        self.lengths[frames.len()] += 1;
        let len = self.rig.aggregator.gather_mut().sum_run(run, &mut frames);
        for (number, frame) in numbers.into_iter().zip(frames) {
            fates[number] = Ok(alloc::vec![frame[..len].to_vec()]);
        }
    }

    fn sum_all(&mut self, fates: &mut [Fate]) {
        while let Some(run) = self.rig.aggregator.waiting_run() {
            self.sum(run, fates);
        }
        assert!(self.runs.is_empty());
    }

    /// Everything that it has counted and holds, and what it says by itself.
    fn state(&mut self) -> Vec<String> {
        let report = self.rig.report(0);
        let mut lines = alloc::vec![
            format!("{:?}", report.stats()),
            format!("{:?}", self.rig.aggregator.stats()),
            format!("{}", self.rig.aggregator.gather().may_be_in_train()),
        ];
        let job = self.rig.aggregator.gather().jobs().next().unwrap();
        let group = job.groups.find(open()).unwrap();
        for chunk in 0..CHUNKS {
            let mut data = [0; 4 * ELEMENTS as usize];
            if job.arena.slot(group.place(chunk)).state() != State::Empty {
                job.arena.emit(group.place(chunk), &mut data);
            }
            lines.push(format!("{:?} {data:?}", report.slot_and_credit(open(), chunk)));
        }
        while let Some(event) = self.rig.event() {
            lines.push(format!("{event:?}"));
        }
        lines.extend(self.rig.poll().iter().map(|out| format!("{out:?}")));
        lines
    }
}

/// What arrives: a contribution, which may be marked or damaged, or a credit.
#[derive(Clone, Copy, Debug)]
enum Frame {
    Contribution { rank: usize, chunk: u32, value: i32, flags: u8, is_damaged: bool },
    Credit { chunk: u32 },
}

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let contribution = (0..WORKERS, 0..CHUNKS, any::<i32>(), 0u8..4, 0u8..20).prop_map(
        |(rank, chunk, value, flags, damage)| Frame::Contribution {
            rank,
            chunk,
            value,
            flags,
            is_damaged: damage == 0,
        },
    );
    let credit = (0..CHUNKS).prop_map(|chunk| Frame::Credit { chunk });
    prop::collection::vec(prop_oneof![12 => contribution, 1 => credit], 1..80)
}

fn written(rig: &Rig, frame: Frame) -> Vec<u8> {
    match frame {
        Frame::Credit { chunk } => rig.credit(open(), chunk, 0b11_1111),
        Frame::Contribution { rank, chunk, value, flags, is_damaged } => {
            let (element_type, payload) = match rig.jobs[0].config.element_type {
                ElementType::F32 => (ElementType::F32, (value as f32).to_be_bytes()),
                _ => (ElementType::I32, value.to_be_bytes()),
            };
            let flags =
                [Flags::NONE, Flags::CLAMPED, Flags::RETRANSMIT, Flags::NONE][usize::from(flags)];
            let header = Header { flags, ..data_header(open(), chunk, element_type) };
            let payload = payload.repeat(usize::from(ELEMENTS));
            let mut frame = rig.worker_frame(0, rank, &header, &payload);
            if is_damaged {
                *frame.last_mut().unwrap() ^= 1;
            }
            frame
        }
    }
}

fn configs() -> [PushConfig; 5] {
    let of = || push(1, WORKERS);
    [
        of(),
        PushConfig { integrity: Integrity::None, ..of() },
        PushConfig { element_type: ElementType::F32, ..of() },
        PushConfig { overflow: Overflow::Clamp, ..of() },
        PushConfig { rate_bytes_per_sec: Some(90_000), burst_bytes: 2048, ..of() },
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn any_split_into_bursts_is_as_one_by_one(
        frames in frames(),
        config in 0usize..5,
        train_chunks in 0u16..2,
        splits in prop::collection::vec(1usize..33, 1..20),
    ) {
        let config = &configs()[config];
        let (mut runs, mut single) =
            (Box::new(config, train_chunks), Box::new(config, train_chunks));
        let frames: Vec<_> = frames.into_iter().map(|frame| written(&runs.rig, frame)).collect();
        let mut rest = &frames[..];
        for len in splits.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (burst, after) = rest.split_at(rest.len().min(*len));
            rest = after;
            prop_assert_eq!(runs.in_runs(burst), single.one_by_one(burst));
            prop_assert_eq!(runs.state(), single.state());
        }
    }
}

#[test]
fn contributions_to_a_chunk_are_summed_four_at_a_time() {
    let mut runs = Box::new(&push(1, WORKERS), 0);
    let mut single = Box::new(&push(1, WORKERS), 0);
    let of_chunk = |chunk| RANKS.map(|rank| (usize::from(rank), chunk));
    // Those of two chunks take turns.
    let pairs = of_chunk(1).into_iter().zip(of_chunk(2)).flat_map(|(one, two)| [one, two]);
    let burst: Vec<_> =
        pairs.map(|(rank, chunk)| runs.rig.contribution(rank, open(), chunk, 7)).collect();
    assert_eq!(runs.in_runs(&burst), single.one_by_one(&burst));
    assert_eq!(runs.lengths, [0, 0, 2, 0, 2]);
    assert_eq!(runs.state(), single.state());
}

#[test]
fn what_clamps_is_in_a_train_or_was_asked_for_has_no_runs() {
    let contribution = |it: &Box, rank, chunk| it.rig.contribution(rank, open(), chunk, 7);
    let mut clamps = Box::new(&PushConfig { overflow: Overflow::Clamp, ..push(1, WORKERS) }, 0);
    let frame = contribution(&clamps, 0, 0);
    assert_eq!(clamps.rig.aggregator.take(clamps.rig.now, &frame), Taken::Else);
    let mut trains = Box::new(&push(1, WORKERS), 1);
    let (first, second) = (contribution(&trains, 0, 0), contribution(&trains, 0, 1));
    assert_eq!(trains.rig.aggregator.take(trains.rig.now, &first), Taken::Else);
    assert!(matches!(trains.rig.aggregator.take(trains.rig.now, &second), Taken::Wait(_)));
    let mut asked = Box::new(&push(1, WORKERS), 0);
    let credit = asked.rig.credit(open(), 2, 0b11_1111);
    asked.one_by_one(&[credit]);
    let frame = contribution(&asked, 0, 2);
    assert_eq!(asked.rig.aggregator.take(asked.rig.now, &frame), Taken::Else);
}
