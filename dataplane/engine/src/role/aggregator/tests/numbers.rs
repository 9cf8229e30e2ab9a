//! Every number mode, with one to four members, at one box and at a root over one to four leaves,
//! against a scalar loop that shares nothing with slots or kernels (I2).
//!
//! Contributions come in another order at each step, frame by frame and in bursts; the loop follows
//! the order that was played. Each bank is used again and again, so that an old sum would show, and
//! every member asks for each answer once more.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_control::SumOrder;
use weft_kernel::crc32c;
use weft_wire::frame::{Endpoint, Udp};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Packet};
use weft_wire::hello::{Hello, Overflow, Phase as Step};
use weft_wire::{JobId, Nanos, Rank};

use super::super::Aggregator;
use super::rig::*;
use super::run::{Fate, in_runs, one_by_one};
use crate::random::SplitMix64;
use crate::role::Verdict;
use crate::table::{MemberConfig, ParentConfig, RowConfig, Table};

/// What an element is and how elements combine.
#[derive(Clone, Copy, Debug)]
struct Mode {
    element_type: ElementType,
    operation: Operation,
    sum_order: SumOrder,
    overflow: Overflow,
    exponent: Option<i8>,
}

impl Mode {
    /// All combinations, also those that a table refuses.
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for element_type in
            [ElementType::None, ElementType::I32, ElementType::F32, ElementType::Bf16]
        {
            for operation in [Operation::None, Operation::Sum, Operation::Max] {
                for sum_order in [SumOrder::Arrival, SumOrder::Rank] {
                    for overflow in [Overflow::Wrap, Overflow::Clamp] {
                        for exponent in [Some(-3), None] {
                            let mode =
                                Self { element_type, operation, sum_order, overflow, exponent };
                            all.push(mode);
                        }
                    }
                }
            }
        }
        all
    }

    /// What a table admits: MAX of i32 only, rank order of f32 only.
    fn has_meaning(self) -> bool {
        match (self.element_type, self.operation) {
            (ElementType::I32, Operation::Sum | Operation::Max) => {
                self.sum_order == SumOrder::Arrival
            }
            (ElementType::F32, Operation::Sum) => true,
            (ElementType::Bf16, Operation::Sum) => self.sum_order == SumOrder::Arrival,
            _ => false,
        }
    }

    fn row(self, row: RowConfig) -> RowConfig {
        let Self { element_type, operation, sum_order, overflow, exponent } = self;
        RowConfig { element_type, operation, sum_order, overflow, exponent, ..row }
    }

    /// Exponent of a step's contributions.
    fn exponent(self, step: u32) -> i8 {
        self.exponent.unwrap_or_else(|| if step.is_multiple_of(2) { 5 } else { -7 })
    }
}

// ---- the reference -----------------------------------------------------------------------------

/// A contribution to one element: rank, workers that it stands for, and the element's bits.
type Part = (u8, u32, u32);

/// What one box makes of one element's contributions, in the order in which they came.
fn sum(mode: Mode, fan_in: u32, parts: &[Part]) -> (u32, bool) {
    let mut parts = parts.to_vec();
    if mode.sum_order == SumOrder::Rank {
        parts.sort_unstable_by_key(|(rank, ..)| *rank);
    }
    let mut clamped = false;
    let mut total: Option<u32> = None;
    for (_, weight, bits) in parts {
        let next = match (mode.element_type, mode.operation) {
            (ElementType::I32, Operation::Sum) if mode.overflow == Overflow::Clamp => {
                let limit = i64::from(i32::MAX) / i64::from(fan_in) * i64::from(weight);
                let value = i64::from(bits.cast_signed());
                let kept = value.max(-limit).min(limit);
                clamped |= kept != value;
                let sum = total.map_or(0, |sum| i64::from(sum.cast_signed())) + kept;
                i32::try_from(sum).expect("clamped sums fit").cast_unsigned()
            }
            (ElementType::I32, Operation::Sum) => total.unwrap_or(0).wrapping_add(bits),
            (ElementType::I32, _) => match total {
                Some(most) if most.cast_signed() > bits.cast_signed() => most,
                _ => bits,
            },
            // bf16 is the upper half of an f32.
            _ => match total.map(|sum| f32::from_bits(sum) + f32::from_bits(bits)) {
                Some(sum) if sum.is_nan() => 0x7fc0_0000,
                Some(sum) => sum.to_bits(),
                None => bits,
            },
        };
        total = Some(next);
    }
    let total = total.expect("somebody contributes");
    let is_half = mode.element_type == ElementType::Bf16;
    (if is_half { nearest_half(total) } else { total }, clamped)
}

/// The f32 with only its upper half used that is nearest, ties to even.
fn nearest_half(bits: u32) -> u32 {
    let (upper, lower) = (bits & 0xffff_0000, bits & 0xffff);
    let is_odd = upper & 0x1_0000 != 0;
    if lower > 0x8000 || (lower == 0x8000 && is_odd) { upper + 0x1_0000 } else { upper }
}

/// An element's bits: the edges of its type, numbers whose sum depends on order, and any.
fn value(mode: Mode, worker: u8, step: u32, element: u32) -> u32 {
    let seed = u64::from(worker) << 40 | u64::from(step) << 8 | u64::from(element);
    let word = SplitMix64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next_u64();
    let (any, pick) = (u32::try_from(word >> 32).expect("32 bits"), word % 8);
    if mode.element_type == ElementType::I32 {
        let edges = [i32::MAX, i32::MIN, -1, 0, 1];
        let edge = usize::try_from(pick).ok().and_then(|at| edges.get(at));
        return edge.map_or(any, |edge| edge.cast_unsigned());
    }
    let edges = [-0.0_f32, 1.0e8, 1.0, -1.0e8, 0.5, 3.0e-39];
    let edge = usize::try_from(pick).ok().and_then(|at| edges.get(at));
    // One chunk in a few has an infinity or a NaN with a payload.
    let specials = [0x7f80_0000, 0xff80_0000, 0x7fe5_0000, 0xffc1_0000];
    if word.is_multiple_of(64) {
        return specials[usize::from(worker) % specials.len()];
    }
    let bits = edge.map_or(any & 0x807f_ffff | (120 + any % 16) << 23, |edge| edge.to_bits());
    if mode.element_type == ElementType::Bf16 { bits & 0xffff_0000 } else { bits }
}

fn bytes(mode: Mode, words: &[u32]) -> Vec<u8> {
    let len = mode.element_type.len_bytes();
    words.iter().flat_map(|word| word.to_be_bytes()[..len].to_vec()).collect()
}

// ---- the boxes ---------------------------------------------------------------------------------

fn root_endpoint() -> Endpoint {
    let mut endpoint = box_endpoint();
    endpoint.addr = "10.0.0.200:22341".parse().unwrap();
    endpoint
}

/// Where leaf `leaf` speaks to the root from.
fn upstream(leaf: u8) -> SocketAddr {
    SocketAddr::new(box_endpoint().addr.ip(), 9_000 + u16::from(leaf))
}

/// One box, or a root over leaves; and the workers, leaf by leaf.
struct Tree {
    mode: Mode,
    root: Option<Aggregator>,
    boxes: Vec<Aggregator>,
    workers: Vec<Vec<Member>>,
    /// Frames to workers.
    down: Vec<Vec<u8>>,
    in_bursts: bool,
    now: Nanos,
}

impl Tree {
    /// One box with `sizes[0]` workers, or with `levels` 2 a leaf for each of the sizes.
    fn new(mode: Mode, levels: u8, sizes: &[u8], in_bursts: bool) -> Self {
        let fan_in: u32 = sizes.iter().map(|size| u32::from(*size)).sum();
        let mut boxes = Vec::new();
        let mut workers = Vec::new();
        for (leaf, size) in (0..).zip(sizes) {
            let mut leaf_row = RowConfig { fan_in, ..mode.row(row(0, leaf.into(), *size)) };
            leaf_row.parent = (levels == 2).then(|| ParentConfig {
                endpoint: root_endpoint(),
                row: 3,
                rank: Rank::new(leaf).unwrap(),
                source_port: upstream(leaf).port(),
            });
            // A job per leaf would be another job at the root.
            leaf_row.job = JobId(0);
            let lives = (0..*size).map(|rank| Member::new(&leaf_row, rank, 100 + u64::from(rank)));
            workers.push(lives.collect());
            boxes.push(aggregator(config(vec![leaf_row]), 1 + u64::from(leaf)));
        }
        let root = (levels == 2).then(|| {
            let members = (0..).zip(sizes).map(|(leaf, size)| MemberConfig {
                addr: upstream(leaf),
                weight: (*size).into(),
                is_box: true,
            });
            let members = members.collect();
            let root_row = RowConfig { members, fan_in, ..mode.row(row(3, 0, 1)) };
            let mut root = config(vec![root_row]);
            root.local = root_endpoint();
            aggregator(root, 99)
        });
        let now = Nanos(0);
        let mut tree = Self { mode, root, boxes, workers, down: Vec::new(), in_bursts, now };
        // The first pass registers everybody, the second gives everybody the WELCOME.
        for pass in 0..2 {
            for leaf in 0..sizes.len() {
                // Longer than a leaf waits before it asks the root again.
                tree.now = tree.now.saturating_add(Nanos::from_millis(200));
                tree.at_box(leaf, &[]);
                for rank in 0..tree.workers[leaf].len() {
                    let phase = tree.join(leaf, rank);
                    assert!(pass == 0 || phase == Step::Welcome, "{mode:?} {sizes:?}: {phase:?}");
                }
            }
        }
        tree
    }

    fn join(&mut self, leaf: usize, rank: usize) -> Step {
        let mut member = self.workers[leaf][rank].clone();
        self.at_box(leaf, &[member.hello(Hello::new(Step::Hello), &[])]);
        let mut body = Hello::new(Step::Join);
        body.token = read(self.down.last().unwrap()).hello.unwrap().token;
        self.at_box(leaf, &[member.hello(body, &[])]);
        let answer = read(self.down.last().unwrap());
        let hello = answer.hello.unwrap();
        if hello.phase == Step::Welcome {
            (member.cookie, member.group) = (hello.cookie_up, answer.header.group);
            self.workers[leaf][rank] = member;
        }
        self.down.clear();
        hello.phase
    }

    /// Gives a burst to a box; what the boxes say to each other goes on until they are silent.
    fn at_box(&mut self, leaf: usize, burst: &[Vec<u8>]) {
        let (now, in_bursts) = (self.now, self.in_bursts);
        let fates = burst_at(&mut self.boxes[leaf], now, burst, in_bursts);
        let mut frames = fanned(&self.boxes[leaf], fates);
        let mut buffer = vec![0; MAX_FRAME];
        while let Some(len) = self.boxes[leaf].poll_transmit(now, &mut buffer) {
            frames.push(buffer[..len].to_vec());
        }
        for frame in frames {
            if Udp::parse(&frame).unwrap().target != root_endpoint().addr {
                self.down.push(frame);
                continue;
            }
            let root = self.root.as_mut().expect("only a leaf speaks to a root");
            let fates = burst_at(root, now, &[frame], in_bursts);
            for answer in fanned(root, fates) {
                let target = Udp::parse(&answer).unwrap().target;
                let leaf = usize::from(target.port() - upstream(0).port());
                self.at_box(leaf, &[answer]);
            }
        }
    }

    fn contribution(&self, leaf: usize, rank: usize, step: u32) -> Vec<u8> {
        let Mode { element_type, operation, .. } = self.mode;
        let member = &self.workers[leaf][rank];
        let words = self.words(leaf, rank, step);
        let exponent = self.mode.exponent(step);
        let header = member.header(Kind::Contrib, step);
        let header = Header { element_type, operation, exponent, ..header };
        member.frame(&header, &bytes(self.mode, &words))
    }

    fn words(&self, leaf: usize, rank: usize, step: u32) -> Vec<u32> {
        let worker = u8::try_from(leaf * 8 + rank).unwrap();
        (0..u32::from(ELEMENTS)).map(|at| value(self.mode, worker, step, at)).collect()
    }

    /// Plays a step in the given order: leaves, and the workers of each. Says what is wrong.
    fn play(&mut self, step: u32, leaves: &[usize], ranks: &[Vec<usize>]) -> Option<String> {
        for leaf in leaves {
            let ranks = ranks[*leaf].iter();
            let burst: Vec<_> = ranks.map(|rank| self.contribution(*leaf, *rank, step)).collect();
            self.at_box(*leaf, &burst);
        }
        let (words, clamped) = self.expected(step, leaves, ranks);
        let want = bytes(self.mode, &words);
        let fan_in = self.workers.iter().flatten().count();
        let answers = core::mem::take(&mut self.down);
        if answers.len() != fan_in {
            return Some(format!("{} answers for {fan_in} workers", answers.len()));
        }
        let wrong = answers.iter().find_map(|frame| self.judge(frame, step, &want, clamped));
        wrong.or_else(|| {
            // The kept answer is the answer.
            let all = ranks.iter().enumerate();
            let all = all.flat_map(|(leaf, ranks)| ranks.iter().map(move |rank| (leaf, *rank)));
            all.into_iter().find_map(|(leaf, rank)| {
                self.at_box(leaf, &[self.contribution(leaf, rank, step)]);
                let kept = self.down.pop().expect("a repeat is answered");
                self.judge(&kept, step, &want, clamped).map(|wrong| format!("kept: {wrong}"))
            })
        })
    }

    fn judge(&self, frame: &[u8], step: u32, want: &[u8], clamped: bool) -> Option<String> {
        let mut datagram = frame[Udp::parse(frame).unwrap().payload_range()].to_vec();
        let mut packet = Packet::new_unchecked(&mut datagram[..]);
        assert!(packet.verify_crc(crc32c), "the box seals what it sends");
        let header = Header::parse(&packet).unwrap();
        let is_right = header.kind == Kind::Answer
            && header.chunk.0 == step
            && header.exponent == self.mode.exponent(step)
            && header.flags.contains(Flags::CLAMPED) == clamped
            && &datagram[HEADER_LEN..] == want;
        let payload = &datagram[HEADER_LEN..];
        (!is_right).then(|| format!("{header:?} {payload:02x?}, not {want:02x?} {clamped}"))
    }

    fn expected(&self, step: u32, leaves: &[usize], ranks: &[Vec<usize>]) -> (Vec<u32>, bool) {
        let fan_in = u32::try_from(self.workers.iter().flatten().count()).unwrap();
        let mut clamped = false;
        let mut words = Vec::new();
        for element in 0..usize::from(ELEMENTS) {
            let at_leaf = |leaf: usize| -> (u32, bool) {
                let part = |rank: &usize| {
                    let word = self.words(leaf, *rank, step)[element];
                    (u8::try_from(*rank).unwrap(), 1, word)
                };
                sum(self.mode, fan_in, &ranks[leaf].iter().map(part).collect::<Vec<_>>())
            };
            let sums: Vec<(u32, bool)> = leaves.iter().map(|leaf| at_leaf(*leaf)).collect();
            clamped |= sums.iter().any(|(_, clamped)| *clamped);
            words.push(if self.root.is_none() {
                sums[0].0
            } else {
                let part = |(leaf, (word, _)): (&usize, &(u32, bool))| {
                    let weight = u32::try_from(ranks[*leaf].len()).unwrap();
                    (u8::try_from(*leaf).unwrap(), weight, *word)
                };
                let parts: Vec<Part> = leaves.iter().zip(&sums).map(part).collect();
                let (word, again) = sum(self.mode, fan_in, &parts);
                assert!(!again, "a leaf's sum needs no clamping");
                word
            });
        }
        (words, clamped)
    }
}

fn burst_at(
    aggregator: &mut Aggregator,
    now: Nanos,
    burst: &[Vec<u8>],
    in_bursts: bool,
) -> Vec<Fate> {
    let way = if in_bursts { in_runs } else { one_by_one };
    way(aggregator, now, burst)
}

/// The frames that leave, with a multicast's copies.
fn fanned(aggregator: &Aggregator, fates: Vec<Fate>) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (verdict, frame) in fates {
        if let Verdict::Multicast { len, lease } = verdict {
            for member in 1..aggregator.fan_out(lease) {
                let mut copy = frame.clone();
                aggregator.readdress(lease, member, &mut copy, len);
                frames.push(copy);
            }
        }
        assert!(!matches!(verdict, Verdict::Drop(_)), "{verdict:?}");
        if !frame.is_empty() {
            frames.push(frame);
        }
    }
    frames
}

/// Another order for each seed.
fn shuffled(count: usize, random: &mut SplitMix64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        order.swap(at, random.next_u32() as usize % (at + 1));
    }
    order
}

/// Five times through both banks of both slots.
const STEPS: u32 = 20;

fn hold(mode: Mode, levels: u8, sizes: &[u8]) {
    for in_bursts in [false, true] {
        let mut tree = Tree::new(mode, levels, sizes, in_bursts);
        let mut random = SplitMix64::new(u64::from(levels) << 8 | sizes.len() as u64);
        for step in 0..STEPS {
            let leaves = shuffled(sizes.len(), &mut random);
            let ranks: Vec<_> =
                sizes.iter().map(|size| shuffled((*size).into(), &mut random)).collect();
            let wrong = tree.play(step, &leaves, &ranks);
            assert_eq!(
                wrong, None,
                "{mode:?}, {levels} levels of {sizes:?}, step {step}, bursts {in_bursts}"
            );
        }
    }
}

fn modes() -> impl Iterator<Item = Mode> {
    Mode::all().into_iter().filter(|mode| mode.has_meaning())
}

#[test]
fn a_table_admits_the_modes_that_mean_something_and_no_other() {
    for mode in Mode::all() {
        let admitted = Table::new(config(vec![mode.row(row(0, 0, 2))])).is_ok();
        assert_eq!(admitted, mode.has_meaning(), "{mode:?}");
    }
    assert_eq!(modes().count(), 20);
}

#[test]
fn every_mode_sums_as_plain_loops_at_one_box() {
    for mode in modes() {
        for members in 1..=4 {
            hold(mode, 1, &[members]);
        }
    }
}

#[test]
fn every_mode_sums_as_plain_loops_over_leaves() {
    for mode in modes() {
        for leaves in 1..=4 {
            for members in 1..=4 {
                hold(mode, 2, &vec![members; leaves]);
            }
        }
        hold(mode, 2, &[1, 4, 2]);
    }
}
