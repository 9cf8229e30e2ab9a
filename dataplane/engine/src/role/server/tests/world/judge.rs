//! The judge: hears every decision, and computes the model by itself.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use weft_control::{CommitMode, Decision, Event};
use weft_wire::GroupId;
use weft_wire::header::ElementType;
use weft_wire::rows::ROW_DIRECT;

use super::{EXPONENT, JOB, World};
use crate::role::model;
use crate::role::server::ServerJobStats;

/// A decision of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ruling {
    pub(crate) group: GroupId,
    pub(crate) order: u64,
    pub(crate) decision: Decision,
    pub(crate) members: u64,
}

impl World {
    pub(super) fn poll_events(&mut self) {
        while let Some(event) = self.poll_server() {
            self.take_event(event);
        }
        let Some(replica) = &mut self.replica else { return };
        while let Some((_, event)) = replica.poll_event() {
            if let Event::Decided { group, order, decision, members, .. } = event {
                let members = members.0;
                self.replica_rulings.push(Ruling { group, order: order.0, decision, members });
            }
        }
    }

    pub(super) fn take_event(&mut self, event: Event) {
        match event {
            Event::Decided { group, order, decision, members, .. } => {
                let members = members.0;
                if let Some(rank) = group.row().checked_sub(ROW_DIRECT) {
                    // A worker has one update under way.
                    let worker = &mut self.workers[usize::from(rank)];
                    let rank = u8::try_from(rank).unwrap();
                    let sent = worker.sent_direct.pop_front().unwrap();
                    self.in_group.insert((group, rank), sent);
                    self.groups.insert(group, vec![rank]);
                }
                self.rulings.push(Ruling { group, order: order.0, decision, members });
                self.note_model();
            }
            Event::ReplicaAt { divergence_bound, is_held, .. } => {
                self.bounds.push((divergence_bound, is_held));
            }
            _ => {}
        }
    }

    pub(super) fn note_model(&mut self) {
        let view = self.model();
        let (version, weights) = (view.version.0, view.weights.to_vec());
        self.history.insert(version, weights);
    }

    /// I1, I2, I3, I4: the decisions are in sequence, each update is committed at most once and
    /// whole, none is too old, its worker knows, and the model is what these sums make of it.
    pub(crate) fn judge(&self) {
        let dimension = self.setup.dimension;
        let rate = self.setup.job().model.learning_rate;
        let (mut h, mut w) = (vec![0f32; dimension], vec![0f32; dimension]);
        let mut version = 0u64;
        let mut committed = BTreeSet::new();
        for (place, ruling) in (0..).zip(&self.rulings) {
            let order = match self.resumed {
                Some((applied, order)) if place >= applied => order + place - applied,
                _ => place,
            };
            assert_eq!(ruling.order, order, "order numbers are decided in sequence");
            let planned = self.orders.get(&ruling.group).copied();
            if self.setup.job().commit == CommitMode::Order {
                assert!(planned.is_none_or(|planned| planned == order), "I3: another's turn");
            }
            let Decision::Committed(after) = ruling.decision else { continue };
            let mut sum = vec![0i32; dimension];
            let ranks = &self.groups[&ruling.group];
            let ranks: Vec<u8> =
                ranks.iter().copied().filter(|rank| ruling.members >> rank & 1 == 1).collect();
            assert_eq!(ranks.len(), ruling.members.count_ones() as usize);
            let mut delay_max = 0;
            for (position, rank) in (0..).zip(&ranks) {
                let (number, own) = self.in_group[&(ruling.group, *rank)];
                let delay = version + position - own.0;
                assert!(delay <= self.setup.tau_max, "I4: delay {delay}");
                delay_max = delay_max.max(delay);
                let origin = self.origin(*rank, number);
                assert!(committed.insert((*rank, origin)), "I1: {rank} {origin} twice");
                let told = self.told.get(&(*rank, number));
                let is_right = told.is_none_or(|told| *told == Decision::Committed(after));
                assert!(is_right, "I1: {rank} was told {told:?} of {number}");
                for (sum, value) in sum.iter_mut().zip(self.values(*rank, origin)) {
                    *sum += value;
                }
            }
            let quantum = match self.setup.element_type {
                ElementType::F32 => 1.0,
                _ => weft_wire::quant::quantum(EXPONENT),
            };
            let scale = quantum * model::scale(rate, version, u16::try_from(delay_max).unwrap());
            for ((h, w), sum) in h.iter_mut().zip(&mut w).zip(sum) {
                *h = 0.5 * *h + f32::from(i16::try_from(sum).unwrap()) * scale;
                *w += *h;
            }
            version += ranks.len() as u64;
            assert_eq!(after.0, version);
        }
        for ((rank, number), decision) in &self.told {
            let origin = self.origin(*rank, *number);
            if matches!(decision, Decision::Committed(_)) {
                assert!(committed.contains(&(*rank, origin)), "I1: {rank} {origin} never came");
            }
        }
        let view = self.model();
        assert_eq!(view.version.0, version);
        if self.setup.is_inexact {
            return self.judge_replica();
        }
        assert_eq!(view.weights, w, "I1: the model is not the sum of what was committed");
        assert_eq!(view.momentum, h);
        self.judge_replica();
    }

    /// I3: the replica has applied a prefix of the same sequence; level, it has the same bits.
    fn judge_replica(&self) {
        let Some(replica) = &self.replica else { return };
        let (own, server) = (replica.model(JOB).unwrap(), self.server.model(JOB).unwrap());
        if own.next_order == server.next_order {
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(own.version, server.version);
            assert_eq!(bits(own.weights), bits(server.weights), "I3: other bits");
            assert_eq!(bits(own.momentum), bits(server.momentum), "I3: other bits");
            assert_eq!(replica.distance(JOB, server.weights), Some(0.0));
        } else {
            assert!(own.next_order < server.next_order);
        }
        for ruling in &self.replica_rulings {
            let known = self.rulings[usize::try_from(ruling.order).unwrap()];
            assert_eq!((known.group, known.members), (ruling.group, ruling.members));
        }
    }

    /// True distance of server and replica.
    pub(crate) fn distance(&self) -> f64 {
        let server = self.server.model(JOB).unwrap();
        self.replica.as_ref().unwrap().distance(JOB, server.weights).unwrap()
    }

    pub(crate) fn stats(&self) -> &ServerJobStats {
        self.server.jobs().next().unwrap().1
    }

    /// Lets everybody finish.
    pub(crate) fn finish(&mut self) {
        self.run(|world| world.all_done() && world.replica_is_level());
        self.judge();
    }
}
