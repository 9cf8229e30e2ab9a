//! What a worker does next, when, and how its patience ends.

use weft_wire::Nanos;

use super::config::Payload;
use super::data::Sent;
use super::event::{Event, WorkerError};
use super::steps::Steps;
use super::{Worker, WorkerState};

impl Worker {
    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.state == WorkerState::Stopped {
            return;
        }
        self.forgive(now);
        if self.paced_until <= now {
            self.paced_until = Nanos::MAX;
        }
        let ctx = &self.shared;
        for lane in &mut self.lanes {
            lane.handle_timeout(now, ctx, &mut self.stats);
        }
        if self.state == WorkerState::InRound && now >= self.question_at() {
            let interval = self.question_interval();
            self.questioned_at = now;
            self.lanes.iter_mut().for_each(|lane| lane.question(now, interval));
        }
        if let Some(event) = self.overdue(now) {
            self.stop(event);
        }
    }

    /// A program that stood still sent no question and took no answer meanwhile, so that time does
    /// not count against box and members.
    fn forgive(&mut self, now: Nanos) {
        let still = now.since(self.poll_timeout());
        if still.0 < self.shared.config.member_timeout_ns / STILL_SHARE {
            return;
        }
        let seen_at = self.lanes.iter_mut().filter_map(|lane| lane.word_at.as_mut());
        for at in seen_at.chain([&mut self.progress_at]) {
            *at = at.saturating_add(still).min(now);
        }
    }

    /// How the worker ends now, if its patience is over.
    fn overdue(&self, now: Nanos) -> Option<Event> {
        match self.state {
            WorkerState::Connecting => {
                let mut lanes = self.lanes.iter().filter(|lane| !lane.is_open());
                lanes
                    .find_map(|lane| lane.connect_error(now, &self.shared.config))
                    .map(Event::Failed)
            }
            WorkerState::InRound if now >= self.member_deadline() => {
                Some(Event::Failed(self.round_error(now)))
            }
            WorkerState::Closing if now >= self.close_at => Some(Event::Closed { by_all: false }),
            _ => None,
        }
    }

    fn member_deadline(&self) -> Nanos {
        self.progress_at.saturating_add(Nanos(self.shared.config.member_timeout_ns))
    }

    /// How long before its end a round looks whether the box still speaks.
    fn last_words(&self) -> Nanos {
        let lanes = self.lanes.iter().map(|lane| lane.last_words(&self.shared.config));
        lanes.max().unwrap_or(Nanos(0))
    }

    fn question_interval(&self) -> Nanos {
        Nanos((self.last_words().0 / QUESTIONS).max(1))
    }

    /// When the round next asks for nothing but a word, whatever its timers say: they back off.
    fn question_at(&self) -> Nanos {
        let begin = Nanos(self.member_deadline().0.saturating_sub(self.last_words().0));
        begin.max(self.questioned_at.saturating_add(self.question_interval()))
    }

    /// Names whom the round waits for: the box where it has left questions unanswered, else the
    /// members missing where the box last said so.
    fn round_error(&self, now: Nanos) -> WorkerError {
        let mut stuck =
            self.lanes.iter().filter(|lane| lane.steps.as_ref().is_some_and(Steps::unfinished));
        match stuck.clone().find(|lane| lane.is_silent(now, &self.shared.config)) {
            Some(_) => WorkerError::BoxSilent,
            None => stuck
                .find_map(|lane| lane.missing)
                .map_or(WorkerError::Stuck, |missing| WorkerError::MembersMissing { missing }),
        }
    }

    /// Writes the next Ethernet frame to `frame` and returns its length; `None` when there is
    /// nothing to send now. `frame` holds at least [`Worker::frame_len_max`] bytes.
    ///
    /// # Panics
    /// If `frame` is shorter than the frame to be written.
    #[must_use]
    pub fn poll_transmit(
        &mut self,
        now: Nanos,
        payload: &dyn Payload,
        frame: &mut [u8],
    ) -> Option<usize> {
        if self.state == WorkerState::Stopped {
            return None;
        }
        (self.paced_until, self.run_lane) = (Nanos::MAX, None);
        let ctx = &self.shared;
        let lane_count = self.lanes.len();
        for index in (self.turn..lane_count).chain(0..self.turn) {
            let lane = &mut self.lanes[index];
            if let Some(len) = lane.poll_handshake(now, ctx, frame, &mut self.stats) {
                return Some(len);
            }
            let stats = &mut self.stats;
            match lane.poll_data(now, ctx, payload, &mut self.pacer, frame, stats) {
                Sent::Frame(len) => {
                    self.turn = if index + 1 < lane_count { index + 1 } else { 0 };
                    // What is paced asks for leave frame by frame.
                    self.run_lane = self.pacer.is_none().then_some(index);
                    return Some(len);
                }
                Sent::PacedUntil(at) => self.paced_until = self.paced_until.min(at),
                Sent::Nothing => {}
            }
        }
        None
    }

    /// When [`Worker::handle_timeout`] and [`Worker::poll_transmit`] must be called next, if
    /// nothing else happens. Valid once `poll_transmit` has given nothing.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        let patience = match self.state {
            WorkerState::Stopped => return Nanos::MAX,
            WorkerState::Connecting => self
                .lanes
                .iter()
                .filter(|lane| !lane.is_open())
                .map(|lane| lane.connect_deadline(&self.shared.config))
                .min()
                .unwrap_or(Nanos::MAX),
            WorkerState::InRound => self.member_deadline().min(self.question_at()),
            WorkerState::Closing => self.close_at,
            WorkerState::Ready => Nanos::MAX,
        };
        let lanes = self.lanes.iter().map(|lane| lane.next_deadline(&self.shared.config)).min();
        patience.min(lanes.unwrap_or(Nanos::MAX)).min(self.paced_until)
    }
}

/// Share of its patience by which a timer comes late to a program that stood still.
const STILL_SHARE: u64 = 8;
/// Questions of a lane in that time; they are headers alone.
const QUESTIONS: u64 = 16;
