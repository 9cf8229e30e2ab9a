//! Whom the aggregator lets into a group, and whose frames it takes (rule 6).
//!
//! Nothing orders two lives of a rank: a late HELLO of a dead process looks like a fresh one. So a
//! HELLO only gets an answer, and a life enters by a JOIN with the cookie from that answer, which a
//! process that died before cannot send. So of two lives that can join, the later one got its
//! cookie later: a JOIN is refused if a later cookie of its rank has joined. So is one of a life
//! that closed, once all others have: a cookie is good for one stay. Of all the lives that ended
//! the aggregator keeps one number per rank.

use super::message::{Data, Message, Sum};
use super::{Identity, Lives, Rules, WORKER_COUNT_MAX};
use crate::model::network::Network;

/// Lives of one rank that the model has room for.
const LIFE_COUNT_MAX: usize = 3;

/// The aggregator's table of lives, and the one group that it forms or serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Aggregator {
    pub(super) epoch: u8,
    /// Of the group that is open, or else forms.
    generation: u8,
    /// True once all ranks have joined.
    is_open: bool,
    /// The lives that joined; 0 for a rank that has not.
    lives: Lives,
    /// The ranks that have closed, as a bitmap.
    closed: u8,
    /// Per rank, the lives that were given a cookie, in that order; then zeros.
    welcomed: [[u8; LIFE_COUNT_MAX]; WORKER_COUNT_MAX],
    /// Per rank, the first place in `welcomed` of which a cookie may join.
    newest: [usize; WORKER_COUNT_MAX],
    /// Per chunk, the contributions so far.
    slots: Vec<Sum>,
    /// Ghost: counts the groups that were opened, over all restarts.
    formation: u8,
    /// Ghost: per rank, the latest life whose end was known here, over all restarts.
    ended: Lives,
}

impl Aggregator {
    pub(super) fn new(chunks: usize) -> Self {
        Self {
            epoch: 1,
            generation: 1,
            is_open: false,
            lives: Lives::default(),
            closed: 0,
            welcomed: Default::default(),
            newest: Default::default(),
            slots: vec![Sum::default(); chunks],
            formation: 0,
            ended: Lives::default(),
        }
    }

    /// Forgets everything, and comes back as somebody else.
    pub(super) fn restart(&mut self, rules: Rules) {
        let epoch =
            if rules == Rules::EpochFromConfiguration { self.epoch } else { self.epoch + 1 };
        let Self { formation, ended, .. } = *self;
        *self = Self { epoch, formation, ended, ..Self::new(self.slots.len()) };
    }

    /// A rank whose life in the open group was known to have ended.
    pub(super) fn ghost(&self) -> Option<(u8, u8)> {
        let lives = (0..).zip(self.lives).zip(self.ended);
        let mut ghosts = lives.filter(|((_, life), ended)| *life != 0 && life <= ended);
        ghosts.next().map(|(ghost, _)| ghost).filter(|_| self.is_open)
    }

    pub(super) fn handle(
        &mut self,
        model: &Identity,
        message: Message,
        network: &mut Network<Message>,
    ) {
        match message {
            Message::Hello { worker, life } => {
                let lives = &mut self.welcomed[usize::from(worker)];
                if let Some(free) = lives.iter_mut().find(|place| **place == 0 || **place == life) {
                    *free = life;
                }
                network.send(Message::Welcome { worker, life, epoch: self.epoch });
                if model.rules == Rules::HelloBinds {
                    self.join(model, worker, life, network);
                }
            }
            Message::Join { worker, life, epoch } if epoch == self.epoch => {
                self.join(model, worker, life, network);
            }
            Message::Contribution { worker, life, epoch, generation, chunk, formation } => {
                let bound = self.lives[usize::from(worker)];
                let life_fits = life == bound || model.rules == Rules::CookieWithoutLife;
                let generation_fits =
                    generation == self.generation || model.rules == Rules::GroupWithoutGeneration;
                if epoch != self.epoch {
                    return;
                }
                if self.is_open && generation_fits && life_fits {
                    self.collect(model, worker, chunk, Data { life, formation }, network);
                } else if generation < self.generation {
                    network.send(Message::GivenUp { epoch, generation });
                }
            }
            Message::Close { worker, life, epoch, generation } => {
                let is_member = self.lives[usize::from(worker)] == life;
                if self.is_open && (epoch, generation) == (self.epoch, self.generation) && is_member
                {
                    self.closed |= 1 << worker;
                    self.end_if_all_closed(model);
                }
            }
            _ => {}
        }
    }

    /// Frees the row for the next lives when all have closed.
    fn end_if_all_closed(&mut self, model: &Identity) {
        if self.closed.count_ones() < u32::from(model.workers) {
            return;
        }
        for rank in 0..usize::from(model.workers) {
            let life = self.lives[rank];
            self.ended[rank] = life;
            if model.rules != Rules::EndedLifeJoins {
                let place = self.welcomed[rank].iter().position(|&welcomed| welcomed == life);
                self.newest[rank] = place.map_or(self.newest[rank], |place| place + 1);
            }
        }
        self.give_up();
    }

    /// No group is open, and the next one has no member yet.
    fn give_up(&mut self) {
        self.is_open = false;
        self.generation += 1;
        self.lives = Lives::default();
        self.closed = 0;
    }

    /// A life of `worker` that can answer takes part in the next group, or is in this one already.
    fn join(&mut self, model: &Identity, worker: u8, life: u8, network: &mut Network<Message>) {
        let rank = usize::from(worker);
        let place = self.welcomed[rank].iter().position(|&welcomed| welcomed == life);
        let Some(place) = place.filter(|&place| place >= self.newest[rank]) else { return };
        self.newest[rank] = place;
        let is_member = match model.rules {
            Rules::CookieWithoutLife => self.lives[rank] != 0,
            _ => self.lives[rank] == life,
        };
        if !is_member {
            if self.is_open && self.closed >> worker & 1 == 1 {
                // The others may still lack sums: let them finish.
                return;
            }
            if self.is_open && model.rules != Rules::ReenterOpenGroup {
                self.give_up();
            }
            self.lives[rank] = life;
            let ranks = usize::from(model.workers);
            if !self.is_open && self.lives[..ranks].iter().all(|&life| life != 0) {
                self.is_open = true;
                self.formation += 1;
                self.slots.fill(Sum::default());
            }
        }
        if self.is_open {
            for (worker, &life) in (0..model.workers).zip(&self.lives) {
                let Self { epoch, generation, formation, .. } = *self;
                network.send(Message::Opened { worker, life, epoch, generation, formation });
            }
        }
    }

    /// The slot of [`crate::model::allreduce`], reduced to its bitmap.
    fn collect(
        &mut self,
        model: &Identity,
        worker: u8,
        chunk: u8,
        data: Data,
        network: &mut Network<Message>,
    ) {
        let sum = &mut self.slots[usize::from(chunk)];
        sum[usize::from(worker)].get_or_insert(data);
        if sum[..usize::from(model.workers)].iter().all(Option::is_some) {
            let (epoch, generation, sum) = (self.epoch, self.generation, *sum);
            network.send(Message::Answer { epoch, generation, chunk, sum });
        }
    }
}
