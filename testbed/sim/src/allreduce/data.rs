//! What the members sum, and what must come out: plain loops that share nothing with the engine.

use weft_control::SumOrder;
use weft_engine::role::worker::{ChunkMeta, Payload};
use weft_wire::header::{ElementType, Flags, Operation};
use weft_wire::hello::Overflow;

use crate::hash;

/// What an element is and how elements combine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Numbers {
    /// i32 that wraps around.
    Wrap,
    /// i32, each contribution clamped.
    Clamp,
    /// Block exponents.
    Max,
    /// f32 summed by rank: bit-reproducible.
    RankOrder,
    /// f32 summed as it comes: every member gets the same bits, whatever they are.
    ArrivalOrder,
    /// Small integers as bf16: exact.
    Bf16,
}

impl Numbers {
    /// Every kind, for a seed to choose from.
    pub const ALL: [Self; 6] =
        [Self::Wrap, Self::Clamp, Self::Max, Self::RankOrder, Self::ArrivalOrder, Self::Bf16];

    /// The element type on the wire.
    #[must_use]
    pub const fn element_type(self) -> ElementType {
        match self {
            Self::Wrap | Self::Clamp | Self::Max => ElementType::I32,
            Self::RankOrder | Self::ArrivalOrder => ElementType::F32,
            Self::Bf16 => ElementType::Bf16,
        }
    }

    /// The operation on the wire.
    #[must_use]
    pub const fn operation(self) -> Operation {
        if matches!(self, Self::Max) { Operation::Max } else { Operation::Sum }
    }

    /// The order of additions at the box.
    #[must_use]
    pub const fn sum_order(self) -> SumOrder {
        if matches!(self, Self::RankOrder) { SumOrder::Rank } else { SumOrder::Arrival }
    }

    /// What happens to sums that do not fit.
    #[must_use]
    pub const fn overflow(self) -> Overflow {
        if matches!(self, Self::Clamp) { Overflow::Clamp } else { Overflow::Wrap }
    }
}

/// Which worker's contribution, and of which attempt: how often it has begun anew.
type Source = (usize, u32);

/// What one job sums: everything that a contribution or a sum is a function of.
#[derive(Clone, Debug)]
pub struct Job {
    /// Seed of the values.
    pub seed: u64,
    /// What is summed.
    pub numbers: Numbers,
    /// Elements of a chunk.
    pub elements: u16,
    /// True when the row fixes the exponent at 0.
    pub exponent_fixed: bool,
    /// Workers below each box that sums workers' contributions: the aggregation tree.
    pub tree: Vec<Vec<usize>>,
}

/// Which chunk: the round, the chunk of the round.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Place {
    /// Round within the attempt.
    pub round: u32,
    /// Chunk within the round.
    pub chunk: u32,
}

impl Job {
    fn word(&self, source: Source, place: Place, element: usize) -> u64 {
        let lower = u64::from(place.chunk) << 16 | element as u64;
        let upper = u64::from(source.1) << 32 | u64::from(place.round) << 8 | source.0 as u64;
        hash(&[self.seed, upper, lower])
    }

    fn integer(&self, source: Source, place: Place, element: usize) -> i32 {
        let word = self.word(source, place, element);
        let any = low_half(word).cast_signed();
        match self.numbers {
            Numbers::Max => any % 127,
            // Half of the elements fit whatever the fan-in, half are at the edges.
            Numbers::Clamp if word >> 63 == 0 => any >> 8,
            Numbers::Clamp if word >> 62 & 1 == 0 => i32::MIN,
            _ => any,
        }
    }

    fn float(&self, source: Source, place: Place, element: usize) -> f32 {
        let word = self.word(source, place, element);
        if self.numbers == Numbers::Bf16 {
            return (word % 17) as f32 - 8.0;
        }
        // Sign, a mantissa of 23 bits, and exponents far enough apart that order matters.
        let exponent = 110 + low_half(word >> 32) % 30;
        f32::from_bits((low_half(word) & 0x807f_ffff) | exponent << 23)
    }

    fn exponent(&self, place: Place) -> i8 {
        if self.exponent_fixed { 0 } else { [-4, -3, -1, 0, 1, 2, 5][place.chunk as usize % 7] }
    }

    /// Largest magnitude that a clamped contribution keeps.
    fn limit(&self) -> i32 {
        let workers: usize = self.tree.iter().map(Vec::len).sum();
        i32::MAX / i32::try_from(workers).expect("a small number")
    }

    fn contribution(&self, source: Source, place: Place, out: &mut [u8]) {
        let size = self.numbers.element_type().len_bytes();
        for (element, bytes) in out.chunks_exact_mut(size).enumerate() {
            match self.numbers {
                Numbers::Wrap | Numbers::Clamp | Numbers::Max => {
                    bytes.copy_from_slice(&self.integer(source, place, element).to_be_bytes());
                }
                Numbers::RankOrder | Numbers::ArrivalOrder => {
                    bytes.copy_from_slice(&self.float(source, place, element).to_be_bytes());
                }
                Numbers::Bf16 => {
                    let [high, low, ..] = self.float(source, place, element).to_be_bytes();
                    bytes.copy_from_slice(&[high, low]);
                }
            }
        }
    }

    /// Judges a sum of the workers' attempts; what is wrong with it, if something is.
    #[must_use]
    pub fn judge(&self, sum: &Taken, attempts: &[u32]) -> Option<String> {
        let Taken { place, exponent, flags, ref bytes } = *sum;
        if exponent != self.exponent(place) {
            return Some(format!("{place:?}: exponent {exponent}"));
        }
        let size = self.numbers.element_type().len_bytes();
        let mut clamped = false;
        for (element, bytes) in bytes.chunks_exact(size).enumerate() {
            let want = self.sum(attempts, place, element, &mut clamped);
            let right = match want {
                Sum::Integer(want) => bytes == want.to_be_bytes(),
                Sum::Float(want) if size == 2 => bytes == &want.to_be_bytes()[..2],
                Sum::Float(want) => bytes == want.to_be_bytes(),
                Sum::About(want, slack) => {
                    let got = f32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                    (f64::from(got) - want).abs() <= slack
                }
            };
            if !right {
                return Some(format!("{place:?} element {element}: {bytes:02x?}, not {want:?}"));
            }
        }
        if flags.contains(Flags::CLAMPED) != clamped {
            return Some(format!("{place:?}: CLAMPED should be {clamped}"));
        }
        None
    }

    fn sum(&self, attempts: &[u32], place: Place, element: usize, clamped: &mut bool) -> Sum {
        let source = |worker: &usize| (*worker, attempts[*worker]);
        let sources = || self.tree.iter().flatten().map(source);
        match self.numbers {
            Numbers::Wrap => {
                let values = sources().map(|source| self.integer(source, place, element));
                Sum::Integer(values.fold(0, i32::wrapping_add))
            }
            Numbers::Clamp => {
                let limit = self.limit();
                let mut sum = 0;
                for source in sources() {
                    let value = self.integer(source, place, element);
                    *clamped |= value > limit || value < -limit;
                    sum += value.clamp(-limit, limit);
                }
                Sum::Integer(sum)
            }
            Numbers::Max => {
                let values = sources().map(|source| self.integer(source, place, element));
                Sum::Integer(values.max().unwrap_or(0))
            }
            Numbers::RankOrder | Numbers::Bf16 => {
                // Bits are defined over the tree: each box adds by rank, then the one above it.
                let mut boxes = self.tree.iter().map(|ranks| {
                    let mut values =
                        ranks.iter().map(|worker| self.float(source(worker), place, element));
                    let first = values.next().unwrap_or(0.0);
                    values.fold(first, |sum, value| sum + value)
                });
                let first = boxes.next().unwrap_or(0.0);
                Sum::Float(boxes.fold(first, |sum, value| sum + value))
            }
            Numbers::ArrivalOrder => {
                let values = sources().map(|source| f64::from(self.float(source, place, element)));
                let (sum, size) = values
                    .fold((0.0, 0.0), |(sum, size), value: f64| (sum + value, size + value.abs()));
                Sum::About(sum, size * 1e-6)
            }
        }
    }
}

fn low_half(word: u64) -> u32 {
    let [.., a, b, c, d] = word.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

#[derive(Clone, Copy, Debug)]
enum Sum {
    Integer(i32),
    Float(f32),
    About(f64, f64),
}

/// A sum that a worker took.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Of which chunk.
    pub place: Place,
    /// Its exponent.
    pub exponent: i8,
    /// Its flags.
    pub flags: Flags,
    /// Its elements, in network byte order.
    pub bytes: Vec<u8>,
}

/// One worker's side of its job: gives contributions, judges sums.
#[derive(Clone, Debug)]
pub struct Data {
    job: Job,
    worker: usize,
    attempt: u32,
    round: u32,
    /// Chunks of the round whose sum has come.
    done: Vec<bool>,
    /// Every sum of the present attempt, for the comparison between members.
    pub sums: Vec<Taken>,
    /// Contributions of several attempts are about, so sums are judged when the run has ended.
    judges_later: bool,
    /// Sums taken, over all attempts.
    pub sum_count: u32,
    /// What was wrong first.
    pub wrong: Option<String>,
}

impl Data {
    /// A worker that has not begun.
    #[must_use]
    pub fn new(job: Job, worker: usize, judges_later: bool) -> Self {
        Self {
            job,
            worker,
            attempt: 0,
            round: 0,
            done: Vec::new(),
            sums: Vec::new(),
            judges_later,
            sum_count: 0,
            wrong: None,
        }
    }

    /// Begins a round.
    pub fn begin(&mut self, attempt: u32, round: u32, chunk_count: u32) {
        if attempt != self.attempt {
            self.sums.clear();
        }
        self.attempt = attempt;
        self.round = round;
        self.done = vec![false; chunk_count as usize];
    }

    /// True when every sum of the round has come.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.done.iter().all(|done| *done)
    }

    /// What is wrong with the rounds of the present attempt, if no choice of one attempt per worker
    /// explains every sum of a round: then it is torn between lives.
    #[must_use]
    pub fn torn(&self, attempts_max: &[u32]) -> Option<String> {
        (0..=self.round).find_map(|round| {
            let sums: Vec<_> = self.sums.iter().filter(|sum| sum.place.round == round).collect();
            let mut choice = vec![0; attempts_max.len()];
            loop {
                if sums.iter().all(|sum| self.job.judge(sum, &choice).is_none()) {
                    return None;
                }
                // The next choice, as an odometer counts.
                let Some(digit) = (0..choice.len()).find(|at| choice[*at] < attempts_max[*at])
                else {
                    return Some(format!("round {round} is of no choice of lives"));
                };
                choice[digit] += 1;
                choice[..digit].fill(0);
            }
        })
    }

    fn place(&self, chunk: u32) -> Place {
        Place { round: self.round, chunk }
    }
}

impl Payload for Data {
    fn write_chunk(&self, chunk: u32, out: &mut [u8]) -> ChunkMeta {
        assert!(!self.done[chunk as usize], "a contribution was asked for after its sum");
        let place = self.place(chunk);
        self.job.contribution((self.worker, self.attempt), place, out);
        ChunkMeta { exponent: self.job.exponent(place), ..ChunkMeta::default() }
    }

    fn read_chunk(&mut self, chunk: u32, exponent: i8, flags: Flags, sum: &[u8]) {
        let place = self.place(chunk);
        let twice = std::mem::replace(&mut self.done[chunk as usize], true);
        let taken = Taken { place, exponent, flags, bytes: sum.to_vec() };
        let wrong = if twice {
            Some(format!("{place:?}: a sum came twice"))
        } else if self.judges_later {
            None
        } else {
            self.job.judge(&taken, &[0; WORKERS_MAX])
        };
        self.wrong = self.wrong.take().or(wrong);
        self.sum_count += 1;
        self.sums.push(taken);
    }

    /// Sums of both kinds: in their places, and with the worker.
    fn keeps_sum(&self, chunk: u32) -> bool {
        !chunk.is_multiple_of(3)
    }

    fn write_sum(&self, chunk: u32, out: &mut [u8]) {
        let place = self.place(chunk);
        let sum = self.sums.iter().rev().find(|sum| sum.place == place);
        out.copy_from_slice(&sum.expect("the place has its sum").bytes);
    }
}

/// Workers of a job.
const WORKERS_MAX: usize = 16;
