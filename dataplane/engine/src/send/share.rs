//! Whether what gets lost gets lost for there being too much (SPEC "Member").
//!
//! A queue that overflows loses less when less is sent. A path that loses frames by itself, such as
//! a radio link or a damaged cable, loses the same share of whatever is sent, and a window that
//! halves for each of these losses ends at one. So the losses at which a window is halved are put
//! to the test, as easing is ([`super::delay`]):
//!
//! - **Before.** From the first halving to the one that leaves a quarter of the window, outcomes
//!   are counted: answers and losses.
//! - **After.** Outcomes are counted again, from two round trips later on, and until there are
//!   enough the window is not halved, and grows to that quarter at most. If half as much is lost,
//!   or half as much again arrives, less has helped: it was too much. Else the path loses by
//!   itself: the window is given back.
//! - **Tolerated.** So great a share halves nothing, for a time. Half as much again, and a
//!   sixteenth of all, does. A timeout that passes is most likely a loss too, so it doubles once at
//!   most: what is sent last is lost several times in a row, with nothing after it to show that.
//!
//! Where others fill a queue whatever this window is, less does not help either; but they meet the
//! same losses and halve at the same time. O(1) per call, no memory.

use core::mem;

use weft_wire::Nanos;

/// The losses of one path.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossShare {
    phase: Phase,
    /// Since the phase began.
    counted: Outcomes,
}

#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    lost: u32,
    all: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The next loss halves the window.
    Heeded,
    /// So does the next, of a window that was of this size before the first.
    Before { window: u32 },
    /// Less is tried; outcomes count from then on.
    After { window: u32, before: Outcomes, from: Nanos },
    /// Up to so many lost of [`STRETCH`] are the path's own.
    Tolerated { most: u32, until: Nanos },
}

impl LossShare {
    /// Of a path of which nothing is known.
    pub(super) fn new() -> Self {
        Self { phase: Phase::Heeded, counted: Outcomes::default() }
    }

    /// True when a loss may halve the window.
    pub(super) fn is_heeded(&self) -> bool {
        matches!(self.phase, Phase::Heeded | Phase::Before { .. })
    }

    /// The window grows below this.
    pub(super) fn window_max(&self) -> u32 {
        match self.phase {
            Phase::After { window, .. } => (window / 4).max(NARROW),
            _ => u32::MAX,
        }
    }

    /// How often a timeout is doubled at most.
    pub(super) fn doublings_max(&self) -> u8 {
        if matches!(self.phase, Phase::Tolerated { .. }) { 1 } else { u8::MAX }
    }

    /// So much was lost.
    pub(super) fn on_losses(&mut self, now: Nanos, count: u32) {
        if count > 0 && self.counts(now) {
            self.counted.lost += count;
            self.counted.all += count;
            self.end_stretch(now);
        }
        // Of a path that carries nothing at all no answer comes to judge by.
        if let Phase::After { before, .. } = self.phase
            && self.counted.all >= OUTCOMES_MIN
            && self.counted.is_better_than(before)
        {
            self.begin(Phase::Heeded);
        }
    }

    /// Something was answered. The size to give back to the window, if what was lost until now was
    /// lost whatever that is.
    pub(super) fn on_answer(&mut self, now: Nanos) -> Option<u32> {
        if !self.counts(now) {
            return None;
        }
        self.counted.all += 1;
        self.end_stretch(now);
        let Phase::After { window, before, .. } = self.phase else { return None };
        let after = self.counted;
        if after.all < OUTCOMES_MIN {
            return None;
        }
        if after.is_better_than(before) {
            self.begin(Phase::Heeded);
            return None;
        }
        let share = u64::from(STRETCH) * u64::from(before.lost + after.lost)
            / u64::from(before.all + after.all);
        let share = u32::try_from(share).unwrap_or(STRETCH);
        let most = (share + share / 2 + STRETCH / 16).min(STRETCH / 8 * 7);
        self.begin(Phase::Tolerated { most, until: now.saturating_add(SPAN) });
        Some(window)
    }

    /// A loss has halved the window.
    pub(super) fn on_halved(&mut self, now: Nanos, before: u32, size: u32, round_trip: Nanos) {
        match self.phase {
            Phase::Before { window } if before <= window => {
                let is_enough = self.counted.all >= OUTCOMES_MIN / 2;
                if is_enough && size <= (window / 4).max(1) {
                    let from = now.saturating_add(Nanos(round_trip.0.saturating_mul(2)));
                    let before = self.counted;
                    self.begin(Phase::After { window, before, from });
                }
            }
            _ => self.begin(Phase::Before { window: before }),
        }
    }

    /// What was lost turned out not to be.
    pub(super) fn on_no_loss(&mut self) {
        if !matches!(self.phase, Phase::Tolerated { .. }) {
            self.begin(Phase::Heeded);
        }
    }

    fn counts(&self, now: Nanos) -> bool {
        match self.phase {
            Phase::Heeded => false,
            Phase::After { from, .. } => now >= from,
            Phase::Before { .. } | Phase::Tolerated { .. } => true,
        }
    }

    /// Ends what has lasted long enough, or is not so any more.
    fn end_stretch(&mut self, now: Nanos) {
        let Outcomes { lost, all } = self.counted;
        match self.phase {
            Phase::Tolerated { most, until } if lost > most || now >= until => {
                self.begin(Phase::Heeded);
            }
            Phase::Tolerated { .. } if all >= STRETCH => self.counted = Outcomes::default(),
            // The window grows again, and losses are rare.
            Phase::Before { .. } if all >= BEFORE_MAX => self.begin(Phase::Heeded),
            _ => {}
        }
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        mem::take(&mut self.counted);
    }
}

impl Outcomes {
    /// Half as much is lost, or half as much again is not.
    fn is_better_than(self, before: Self) -> bool {
        let [all, lost] = [self.all, self.lost].map(u64::from);
        let [all_before, lost_before] = [before.all, before.lost].map(u64::from);
        2 * lost * all_before <= lost_before * all
            || 2 * (all - lost) * all_before >= 3 * (all_before - lost_before) * all
    }
}

/// Outcomes that make a share.
const OUTCOMES_MIN: u32 = 32;
/// A window that may always be tried: in a smaller one timeouts alone find what is lost.
const NARROW: u32 = 4;
/// Outcomes among which losses are counted while they are tolerated.
const STRETCH: u32 = 256;
/// Outcomes without a window of a quarter after which losses were too few to tell anything.
const BEFORE_MAX: u32 = 512;
/// How long losses are tolerated before they are put to the test again.
const SPAN: Nanos = Nanos::from_millis(10_000);

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::random::SplitMix64;
    use crate::send::path::{Overdue, Path};
    use crate::send::retransmit::RttEstimator;
    use crate::send::window::CongestionWindow;

    fn path(window: u32) -> Path {
        let ms = Nanos::from_millis;
        Path::new(RttEstimator::new(ms(20), ms(1), ms(1_000)), CongestionWindow::new(window, 256))
    }

    /// A path whose round trips take a millisecond: of what leaves in one, `lost` says how much is.
    /// The window after each round trip.
    fn windows(path: &mut Path, rounds: u64, mut lost: impl FnMut(u32) -> u32) -> Vec<u32> {
        let ms = Nanos::from_millis;
        let round = |number: u64| {
            let (left, now) = (path.send(ms(number)), ms(number + 1));
            let window = path.window();
            let lost = lost(window).min(window);
            for _ in lost..window {
                path.on_answer(now, &left, true, false);
            }
            for _ in 0..lost {
                let mut overdue = Overdue::default();
                overdue.add_lost(&left);
                path.on_timeout(now, &overdue);
            }
            path.window()
        };
        (0..rounds).map(round).collect()
    }

    /// So many of a hundred, by themselves.
    fn random(percent: u64, seed: u64) -> impl FnMut(u32) -> u32 {
        let mut random = SplitMix64::new(seed);
        move |window| (0..window).map(|_| u32::from(random.next_u64() % 100 < percent)).sum()
    }

    fn mean(windows: &[u32]) -> u32 {
        windows.iter().sum::<u32>() / u32::try_from(windows.len()).expect("few")
    }

    #[test]
    fn a_path_that_loses_by_itself_keeps_its_window() {
        for percent in [10, 19, 36, 51] {
            for seed in 0..8 {
                let windows = windows(&mut path(64), 500, random(percent, seed));
                assert!(mean(&windows[100..]) >= 64, "{percent} %, seed {seed}: {windows:?}");
            }
        }
    }

    #[test]
    fn a_window_is_tried_that_is_a_quarter_and_no_narrower_than_four() {
        for (window, most) in [(3, 4), (64, 16)] {
            let mut losses = LossShare::new();
            losses.on_halved(Nanos(0), window, window / 2, Nanos(1));
            (0..16).for_each(|_| _ = losses.on_answer(Nanos(1)));
            assert_eq!(losses.window_max(), u32::MAX);
            losses.on_halved(Nanos(1), window / 2, window / 4, Nanos(1));
            assert_eq!(losses.window_max(), most);
        }
    }

    #[test]
    fn a_timeout_is_doubled_once_while_losses_are_tolerated() {
        for (percent, doublings) in [(0, 3), (51, 1)] {
            let mut path = path(64);
            windows(&mut path, 200, random(percent, 1));
            let now = Nanos::from_millis(200);
            let timeout = path.rtt().timeout(0);
            let mut sent = path.send(now);
            for _ in 0..3 {
                let mut overdue = Overdue::default();
                overdue.add(&sent);
                path.on_timeout(now, &overdue);
                path.repeat(now, &mut sent);
            }
            assert_eq!(path.rtt().doublings(), doublings, "{percent} %");
            assert_eq!(path.deadline(&sent).since(now).0, timeout.0 << doublings, "{percent} %");
        }
    }

    /// A queue that holds so many: what is above is lost.
    #[test]
    fn a_window_that_overflows_a_queue_is_halved_as_ever() {
        for room in [4, 16, 60] {
            let windows = windows(&mut path(64), 500, |window| window.saturating_sub(room));
            let most = windows[20..].iter().max().expect("some");
            assert!(*most <= room + room / 4 + 2, "{room}: {windows:?}");
        }
    }

    #[test]
    fn a_queue_on_a_path_that_loses_by_itself_halves_the_window() {
        for seed in 0..8 {
            let mut own = random(20, seed);
            let lost = |window: u32| window.saturating_sub(60) + own(window.min(60));
            let windows = windows(&mut path(64), 2_000, lost);
            let (mean, most) = (mean(&windows[100..]), windows[100..].iter().max().expect("some"));
            assert!(mean >= 24 && *most <= 128, "seed {seed}: {mean} {most}");
        }
    }

    #[test]
    fn a_path_that_carries_nothing_gives_nothing_back() {
        let windows = windows(&mut path(64), 300, |window| window);
        assert!(windows[200..].iter().all(|window| *window == 1), "{windows:?}");
    }
}
