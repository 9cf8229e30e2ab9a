//! Everything that a search has met, by number, and what follows from it.
//!
//! States hold numbers, and so are small; what a frame does to a process is found out once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use super::directory::Directory;
use super::history::History;
use super::message::{Frame, Message, Value};
use super::process::{Local, Process};
use super::turn::Turn;
use super::world::State;
use super::{Keys, Rules};

/// Everything that a search has met, by number, and what follows from it.
pub struct Tables<const K: usize>(pub(super) RefCell<Met<K>>);

pub(super) type Met1<T> = IndexSet<T, FxBuildHasher>;
type Known<Q, A> = HashMap<Q, A, FxBuildHasher>;

#[derive(Default)]
pub(super) struct Met<const K: usize> {
    pub(super) processes: Met1<Process<K>>,
    pub(super) boxes: Met1<Directory>,
    pub(super) messages: Met1<Message>,
    pub(super) receivers: Vec<Receiver>,
    /// What a message does to a process, by rank, process and message.
    at_process: Known<(u8, u32, u32), Effect>,
    /// What a message does to a box.
    at_box: Known<(u32, u32), Effect>,
    /// What a process, or a box, sends at any time.
    of_process: Known<(u8, u32), Vec<u32>>,
    of_box: Known<(u8, u32), Vec<u32>>,
    pub(super) judged: Known<History, bool>,
}

/// Whom a message changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receiver {
    Process(u8),
    /// The box, in what it knows of this key.
    Box(u8),
}

#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) after: u32,
    pub(super) sent: Vec<u32>,
    pub(super) restored: Option<(u8, Value)>,
}

impl<const K: usize> Default for Tables<K> {
    fn default() -> Self {
        Self(RefCell::new(Met::default()))
    }
}

/// A copy of a model begins with empty tables: its rules may differ.
impl<const K: usize> Clone for Tables<K> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<const K: usize> fmt::Debug for Tables<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} histories", self.0.borrow().judged.len())
    }
}

impl<const K: usize> Met<K> {
    /// Returns what `message` does to its receiver.
    pub(super) fn effect(&mut self, model: &Keys<K>, state: &State<K>, message: u32) -> &Effect {
        let Message { key, frame } = self.messages[message as usize];
        let Some(rank) = frame.receiver() else {
            let number = state.boxes[usize::from(key)];
            if !self.at_box.contains_key(&(number, message)) {
                let mut directory = self.boxes[number as usize];
                let sent = directory.arrive(model.rules, frame);
                let after = number_of(&mut self.boxes, directory);
                let sent = sent.into_iter().map(|frame| self.message(key, frame)).collect();
                let effect = Effect { after, sent, restored: None };
                self.at_box.insert((number, message), effect);
            }
            return &self.at_box[&(number, message)];
        };
        let number = state.processes[usize::from(rank)];
        let question = (rank, number, message);
        if !self.at_process.contains_key(&question) {
            let mut turn = Turn::new(model, self.processes[number as usize], rank, key);
            turn.arrive(frame);
            let effect = self.effect_of(turn);
            self.at_process.insert(question, effect);
        }
        &self.at_process[&question]
    }

    pub(super) fn effect_of(&mut self, mut turn: Turn<'_, K>) -> Effect {
        turn.process.keys.iter_mut().for_each(Local::renew_claim);
        let after = number_of(&mut self.processes, turn.process);
        let sent = turn.sent.into_iter().map(|message| self.message(message.key, message.frame));
        Effect { after, sent: sent.collect(), restored: turn.restored }
    }

    fn message(&mut self, key: u8, frame: Frame) -> u32 {
        let number = number_of(&mut self.messages, Message { key, frame });
        if self.receivers.len() < self.messages.len() {
            self.receivers.push(match frame.receiver() {
                Some(process) => Receiver::Process(process),
                None => Receiver::Box(key),
            });
        }
        number
    }

    pub(super) fn sent_by_process(&mut self, model: &Keys<K>, rank: u8, number: u32) -> &[u32] {
        if !self.of_process.contains_key(&(rank, number)) {
            let process = self.processes[number as usize];
            let mut sent = Vec::new();
            for key in (0..).take(K) {
                let frames = process.frames(model, rank, key).into_iter();
                sent.extend(frames.map(|frame| self.message(key, frame)));
            }
            self.of_process.insert((rank, number), sent);
        }
        &self.of_process[&(rank, number)]
    }

    pub(super) fn sent_by_box(&mut self, rules: Rules, key: u8, number: u32) -> &[u32] {
        if !self.of_box.contains_key(&(key, number)) {
            let frame = self.boxes[number as usize].frame(rules).into_iter();
            let sent = frame.map(|frame| self.message(key, frame)).collect();
            self.of_box.insert((key, number), sent);
        }
        &self.of_box[&(key, number)]
    }
}

/// Returns the number of `item`, which it may get now.
pub(super) fn number_of<T: Hash + Eq>(met: &mut Met1<T>, item: T) -> u32 {
    u32::try_from(met.insert_full(item).0).expect("fewer than 2^32 items fit into memory")
}
