//! A call of many keys: what of it has entered the engine, and what is still open. The engine says
//! which keys are done by numbers, which name the thread, the call and the key's place in it.

use weft_client::keys::Histogram;
use weft_engine::role::keys::{CallError, Op};
use weft_sim::keys::timed::Site;
use weft_wire::Nanos;

/// What is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wish {
    Pull,
    Push,
    Set,
    Localize,
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) wish: Wish,
    keys: Vec<u64>,
    /// Of all keys: what is pushed or set, or what a pull has brought.
    pub(super) values: Vec<f32>,
    /// Keys that the engine has.
    entered: usize,
    /// Keys that are not done.
    open: usize,
    begun: Nanos,
}

impl Call {
    pub(super) fn new(wish: Wish, keys: Vec<u64>, values: Vec<f32>, begun: Nanos) -> Self {
        let open = keys.len();
        Self { wish, keys, values, entered: 0, open, begun }
    }

    pub(super) fn is_done(&self) -> bool {
        self.open == 0
    }

    /// Keys wait for room in the engine.
    pub(super) fn is_held_up(&self) -> bool {
        self.entered < self.keys.len()
    }

    /// Hands keys to the engine until it is full; says whether any have to wait for a frame.
    pub(super) fn enter(&mut self, number: u64, site: &mut Site<'_>) -> Result<bool, CallError> {
        let row_len = usize::from(site.process.table().row_len);
        while let Some(key) = self.keys.get(self.entered) {
            let place = self.entered;
            let row = || &self.values[place * row_len..][..row_len];
            let name = number | place as u64;
            let entered = match self.wish {
                Wish::Localize => site.process.localize(*key, name, site.heard),
                Wish::Pull => site.process.call(*key, Op::Pull, name, site.heard),
                Wish::Push => site.process.call(*key, Op::Add(row()), name, site.heard),
                Wish::Set => site.process.call(*key, Op::Set(row()), name, site.heard),
            };
            match entered {
                Ok(()) => self.entered += 1,
                Err(CallError::Full) => return Ok(true),
                Err(error) => return Err(error),
            }
            // What is here is done at once.
            if let Some((done, value)) = site.heard.done.pop_if(|(done, _)| *done == name) {
                self.done(done, value, None, site.now);
            }
        }
        Ok(!self.is_done())
    }

    /// A key is done; of those that had to wait the time counts.
    pub(super) fn done(
        &mut self,
        name: u64,
        value: Option<Vec<f32>>,
        times: Option<&mut Histogram>,
        now: Nanos,
    ) {
        self.open -= 1;
        if let Some(value) = value {
            let place = usize::try_from(name & PLACES).unwrap_or(usize::MAX);
            let row_len = value.len();
            self.values[place * row_len..][..row_len].copy_from_slice(&value);
        }
        if let Some(times) = times {
            times.add(now.since(self.begun).0, 1);
        }
    }
}

/// The number of a thread's call, of which there are some at a time.
pub(super) fn number(thread: usize, call: usize) -> u64 {
    (thread as u64) << 48 | (call as u64) << 24
}

/// Thread and call of a number.
pub(super) fn parts(number: u64) -> (usize, usize) {
    let part = |word: u64| usize::try_from(word).unwrap_or(usize::MAX);
    (part(number >> 48), part(number >> 24 & PLACES))
}

/// Places of a call.
const PLACES: u64 = 0xff_ffff;
