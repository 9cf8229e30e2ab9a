//! One direction of a port with faults: the frames that are held, on the link, and ready, in order.
//!
//! Invariant: a frame is in one of the three places, each of which is bounded; those on the link
//! and those that are ready leave in the order in which they came there.

use std::collections::VecDeque;

use weft_wire::Nanos;

use super::{FaultCounts, FaultRates};
use crate::port::BURST_MAX;

/// One direction: its faults, and the frames whose fate is decided.
#[derive(Debug)]
pub(super) struct Lane<F> {
    pub(super) rates: FaultRates,
    /// How long the link takes.
    link_delay: Nanos,
    /// Frames on the link, with when they arrive, in order.
    pub(super) link: VecDeque<(Nanos, F)>,
    /// Frames to pass on now, in order.
    pub(super) ready: VecDeque<F>,
    pub(super) held: Vec<Held<F>>,
    /// Weft frames not lost so far: the clock of reordering.
    pub(super) passed: u64,
    pub(super) counts: FaultCounts,
}

#[derive(Debug)]
pub(super) struct Held<F> {
    pub(super) frame: F,
    pub(super) due: Nanos,
    /// Leaves once this many frames have passed.
    pub(super) due_passed: u64,
}

impl<F> Lane<F> {
    pub(super) fn new(rates: FaultRates, holding_max: usize, link_delay_ns: u64) -> Self {
        let link_max = if link_delay_ns > 0 { LINK_FRAMES_MAX } else { 0 };
        Self {
            rates,
            link_delay: Nanos(link_delay_ns),
            link: VecDeque::with_capacity(link_max),
            // Released frames, a leftover burst, and a burst with its copies.
            ready: VecDeque::with_capacity(link_max + holding_max + 3 * BURST_MAX),
            held: Vec::with_capacity(holding_max),
            passed: 0,
            counts: FaultCounts::default(),
        }
    }

    /// Lets a frame go that nothing holds any more: onto the link, or at once where it is short.
    pub(super) fn pass(&mut self, now: Nanos, frame: F) {
        if self.link_delay == Nanos(0) {
            self.ready.push_back(frame);
        } else if self.link.len() < LINK_FRAMES_MAX {
            self.link.push_back((now.saturating_add(self.link_delay), frame));
        } else {
            self.counts.link_full += 1;
        }
    }

    /// Moves held frames that are due to those that pass now, in the order they were held, and what
    /// has come to the end of the link to those that are ready.
    pub(super) fn release(&mut self, now: Nanos, held_count: &mut usize) {
        let passed = self.passed;
        let due = |held: &mut Held<F>| held.due <= now || held.due_passed <= passed;
        let mut held = std::mem::take(&mut self.held);
        for held in held.extract_if(.., due) {
            *held_count -= 1;
            self.pass(now, held.frame);
        }
        self.held = held;
        while let Some((_, frame)) = self.link.pop_front_if(|(due, _)| *due <= now) {
            self.ready.push_back(frame);
        }
    }

    pub(super) fn next_due(&self) -> Nanos {
        let held = self.held.iter().map(|held| held.due).min().unwrap_or(Nanos::MAX);
        held.min(self.link.front().map_or(Nanos::MAX, |(due, _)| *due))
    }
}

/// Frames on a link in one direction: 10 ms of full packets at 10 Gb/s.
pub const LINK_FRAMES_MAX: usize = 8192;
