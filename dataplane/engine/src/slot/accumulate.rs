//! The sum: which kernel runs on which row of memory. Wrong in here would be wrong sums (I2).
//!
//! Slots are 64-byte aligned and in host order; packets are big-endian at any alignment. The
//! first contribution stores (no zeroing), the completing one writes slot and packet at once.

use weft_control::{RowConfig, SumOrder};
use weft_kernel::{Kernels, as_f32, as_f32_mut};
use weft_wire::header::{ElementType, Operation};
use weft_wire::hello::Overflow;

use super::BankIndex;
use super::aligned::{Aligned, LINE_WORDS};

/// The arithmetic of one lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Arithmetic {
    /// What an element is.
    pub element_type: ElementType,
    /// How elements combine.
    pub operation: Operation,
    /// Order of floating-point additions.
    pub sum_order: SumOrder,
    /// What happens when an i32 sum does not fit.
    pub overflow: Overflow,
}

/// The data of a lease's banks.
#[derive(Debug)]
pub struct Store {
    kernels: &'static Kernels,
    arithmetic: Arithmetic,
    elements: usize,
    stride: usize,
    rows: usize,
    words: Aligned,
}

/// One contribution on its way into a bank.
#[derive(Clone, Copy, Debug)]
pub struct Contribution {
    /// Whose.
    pub rank: usize,
    /// Largest magnitude of an element when the row clamps.
    pub limit: i32,
}

impl Store {
    /// Takes the memory of `banks` banks.
    #[must_use]
    pub fn new(
        kernels: &'static Kernels,
        arithmetic: Arithmetic,
        elements: usize,
        members: usize,
        banks: usize,
    ) -> Self {
        let mut store = Self::vacant(kernels, arithmetic.word_count(elements, members, banks));
        assert!(store.lay_out(arithmetic, elements, members, banks), "it was just measured");
        store
    }

    /// Takes the memory of this many words, for banks that are not known yet.
    #[must_use]
    pub fn vacant(kernels: &'static Kernels, words_max: usize) -> Self {
        let arithmetic = Arithmetic {
            element_type: ElementType::I32,
            operation: Operation::Sum,
            sum_order: SumOrder::Arrival,
            overflow: Overflow::Wrap,
        };
        let words = Aligned::new(words_max);
        Self { kernels, arithmetic, elements: 0, stride: 0, rows: 1, words }
    }

    /// Divides the memory anew, into `banks` banks. What is in it belongs to none of them: a step's
    /// first contribution is stored, never added. False, and unchanged, where they do not fit.
    #[must_use]
    pub fn lay_out(
        &mut self,
        arithmetic: Arithmetic,
        elements: usize,
        members: usize,
        banks: usize,
    ) -> bool {
        let len = arithmetic.word_count(elements, members, banks);
        if len > self.words.capacity() {
            return false;
        }
        self.arithmetic = arithmetic;
        self.elements = elements;
        self.stride = stride(elements);
        self.rows = arithmetic.rows(members);
        self.words.set_len(len);
        true
    }

    /// Bytes of memory that its banks take, with what brings them to a cache line.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        (self.words.len() + LINE_WORDS) * 4
    }

    /// Writes to every page, so that the kernel gives the memory now and not to the first packet.
    pub fn touch(&mut self) {
        self.words.touch();
    }

    /// Hints that a bank will be written soon.
    #[inline]
    pub fn prefetch(&self, bank: BankIndex) {
        let start = self.sum_start(bank);
        weft_kernel::prefetch_write(self.words.part(start, self.elements));
    }

    /// Stores or adds a contribution. `first`, `last`: of its step; the last one's packet becomes
    /// the sum. True when an element was clamped.
    #[inline(always)]
    pub(crate) fn put(
        &mut self,
        bank: BankIndex,
        from: Contribution,
        wire: &mut [u8],
        first: bool,
        last: bool,
    ) -> bool {
        match (first, last) {
            (true, false) => self.first(bank, from, wire),
            (true, true) => self.only(bank, from, wire),
            (false, false) => self.add(bank, from, wire),
            (false, true) => self.add_last(bank, from, wire),
        }
    }

    /// Stores a step's first contribution, behind which others come. True when an element was
    /// clamped.
    #[inline]
    pub fn first(&mut self, bank: BankIndex, from: Contribution, wire: &[u8]) -> bool {
        let row = self.arithmetic.row(self.place(bank), from);
        self.store(row, from, wire)
    }

    /// Stores a step's only contribution as its sum, whatever the order, and writes the sum to the
    /// packet too: clamped, and bf16 rounded, like any sum. True when an element was clamped.
    pub fn only(&mut self, bank: BankIndex, from: Contribution, wire: &mut [u8]) -> bool {
        let clamped = self.store(self.sum_start(bank), from, wire);
        self.emit(bank, wire);
        clamped
    }

    /// Writes a contribution over the row that starts there.
    #[inline]
    fn store(&mut self, start: usize, from: Contribution, wire: &[u8]) -> bool {
        let (kernels, arithmetic) = (self.kernels, self.arithmetic);
        let slot = self.words.part_mut(start, self.elements);
        match arithmetic.element_type {
            ElementType::I32 if arithmetic.clamps() => {
                return kernels.store_i32_clamped(slot, wire, from.limit);
            }
            ElementType::I32 => kernels.store_i32(slot, wire),
            ElementType::Bf16 => kernels.store_bf16(as_f32_mut(slot), wire),
            _ => kernels.store_f32(as_f32_mut(slot), wire),
        }
        false
    }

    /// Adds a further contribution. True when an element was clamped.
    #[inline]
    pub fn add(&mut self, bank: BankIndex, from: Contribution, wire: &[u8]) -> bool {
        let place = self.place(bank);
        let (kernels, arithmetic) = (self.kernels, self.arithmetic);
        match arithmetic.element_type {
            ElementType::I32 => {
                let slot = self.words.part_mut(place.sum, place.elements);
                match arithmetic.operation {
                    Operation::Max => kernels.max_i32(slot, wire),
                    _ if arithmetic.clamps() => {
                        return kernels.add_i32_clamped(slot, wire, from.limit);
                    }
                    _ => kernels.add_i32(slot, wire),
                }
            }
            _ => {
                let row = arithmetic.row(place, from);
                let slot = as_f32_mut(self.words.part_mut(row, place.elements));
                match (arithmetic.element_type, arithmetic.sum_order) {
                    (ElementType::Bf16, _) => kernels.add_bf16(slot, wire),
                    (_, SumOrder::Arrival) => kernels.add_f32(slot, wire),
                    (_, SumOrder::Rank) => kernels.store_f32(slot, wire),
                }
            }
        }
        false
    }

    /// Adds the last contribution and writes the sum to both slot and packet. True when an
    /// element was clamped.
    #[inline]
    pub fn add_last(&mut self, bank: BankIndex, from: Contribution, wire: &mut [u8]) -> bool {
        let place = self.place(bank);
        let (kernels, arithmetic) = (self.kernels, self.arithmetic);
        match arithmetic.element_type {
            ElementType::I32 => {
                let slot = self.words.part_mut(place.sum, place.elements);
                match arithmetic.operation {
                    Operation::Max => kernels.max_i32_emit(slot, wire),
                    _ if arithmetic.clamps() => {
                        return kernels.add_i32_clamped_emit(slot, wire, from.limit);
                    }
                    _ => kernels.add_i32_emit(slot, wire),
                }
            }
            _ => {
                let row = arithmetic.row(place, from);
                let slot = as_f32_mut(self.words.part_mut(row, place.elements));
                match (arithmetic.element_type, arithmetic.sum_order) {
                    (ElementType::Bf16, _) => kernels.add_bf16_emit(slot, wire),
                    (_, SumOrder::Arrival) => kernels.add_f32_emit(slot, wire),
                    (_, SumOrder::Rank) => {
                        kernels.store_f32(slot, wire);
                        let len = place.sum - place.rows + place.elements;
                        let all = as_f32_mut(self.words.part_mut(place.rows, len));
                        let (rows, sum) = all.split_at_mut(place.sum - place.rows);
                        kernels.sum_rows_f32_emit(rows, place.stride, sum, wire);
                    }
                }
            }
        }
        false
    }

    /// True when [`Store::add_run`] and [`Store::add_run_emit`] may be called: plain sums of i32,
    /// and of f32 as they arrive. Who clamps has to be told contribution by contribution, and
    /// the rest is rare.
    #[inline]
    #[must_use]
    pub fn adds_runs(&self) -> bool {
        self.arithmetic
            == Arithmetic {
                operation: Operation::Sum,
                sum_order: SumOrder::Arrival,
                overflow: Overflow::Wrap,
                ..self.arithmetic
            }
            && self.arithmetic.element_type != ElementType::Bf16
    }

    /// Adds two to `RUN_MAX` contributions in one pass. `claims`: the first is the step's first.
    #[inline]
    pub fn add_run(&mut self, bank: BankIndex, claims: bool, wires: &[&[u8]]) {
        debug_assert!(self.adds_runs());
        let Place { sum, elements, .. } = self.place(bank);
        let slot = self.words.part_mut(sum, elements);
        match self.arithmetic.element_type {
            ElementType::I32 => self.kernels.add_run_i32(slot, claims, wires),
            _ => self.kernels.add_run_f32(as_f32_mut(slot), claims, wires),
        }
    }

    /// The same where the last completes the step: writes the sum over each of them.
    #[inline]
    pub fn add_run_emit(&mut self, bank: BankIndex, claims: bool, wires: &mut [&mut [u8]]) {
        debug_assert!(self.adds_runs());
        let Place { sum, elements, .. } = self.place(bank);
        let slot = self.words.part_mut(sum, elements);
        match self.arithmetic.element_type {
            ElementType::I32 => self.kernels.add_run_i32_emit(slot, claims, wires),
            _ => self.kernels.add_run_f32_emit(as_f32_mut(slot), claims, wires),
        }
    }

    /// Writes the sum that a bank keeps; bf16 is rounded. In rank order there is none before the
    /// step is complete.
    pub fn emit(&self, bank: BankIndex, wire: &mut [u8]) {
        let slot = self.words.whole_part(self.sum_start(bank), self.elements);
        match self.arithmetic.element_type {
            ElementType::I32 => self.kernels.emit_i32(slot, wire),
            ElementType::Bf16 => self.kernels.emit_bf16(as_f32(slot), wire),
            _ => self.kernels.emit_f32(as_f32(slot), wire),
        }
    }

    /// Keeps an answer that was computed elsewhere: the root's, or one handed over.
    pub fn keep(&mut self, bank: BankIndex, wire: &[u8]) {
        let slot = self.words.part_mut(self.sum_start(bank), self.elements);
        match self.arithmetic.element_type {
            ElementType::I32 => self.kernels.store_i32(slot, wire),
            ElementType::Bf16 => self.kernels.store_bf16(as_f32_mut(slot), wire),
            _ => self.kernels.store_f32(as_f32_mut(slot), wire),
        }
    }

    #[inline]
    fn place(&self, bank: BankIndex) -> Place {
        let rows = bank.0 * self.rows * self.stride;
        let sum = rows + (self.rows - 1) * self.stride;
        Place { rows, sum, stride: self.stride, elements: self.elements }
    }

    fn sum_start(&self, bank: BankIndex) -> usize {
        (bank.0 * self.rows + self.rows - 1) * self.stride
    }
}

/// Where a bank lies, in words.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Its first row.
    rows: usize,
    /// Its sum, which is the last row.
    sum: usize,
    stride: usize,
    elements: usize,
}

/// Words from one row to the next: whole cache lines.
fn stride(elements: usize) -> usize {
    elements.next_multiple_of(LINE_WORDS)
}

impl Arithmetic {
    /// Of a row.
    pub(crate) fn of(row: &RowConfig) -> Self {
        Self {
            element_type: row.element_type,
            operation: row.operation,
            sum_order: row.sum_order,
            overflow: row.overflow,
        }
    }

    /// Words that banks take.
    pub(crate) fn word_count(self, elements: usize, members: usize, banks: usize) -> usize {
        banks * self.rows(members) * stride(elements)
    }

    /// Rows of a bank: rank order keeps one per member and one for the sum.
    fn rows(self, members: usize) -> usize {
        if self.sum_order == SumOrder::Rank { members + 1 } else { 1 }
    }

    /// The row that a contribution goes to: the sum, or in rank order one of its own.
    #[inline]
    fn row(self, place: Place, from: Contribution) -> usize {
        match self.sum_order {
            SumOrder::Arrival => place.sum,
            SumOrder::Rank => place.rows + from.rank * place.stride,
        }
    }

    #[inline]
    fn clamps(self) -> bool {
        self.operation == Operation::Sum && self.overflow == Overflow::Clamp
    }
}
