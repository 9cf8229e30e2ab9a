//! What goes wrong in a table: boxes that restart, processes that die, and the disk in between.

use super::Rules;
use super::message::{Number, PROCESS_COUNT};
use super::process::Local;
use super::tables::{Met, number_of};
use super::world::State;

impl<const K: usize> State<K> {
    /// Writes the row of `key` to the checkpoint, if somebody holds it.
    pub(super) fn write_checkpoint(&mut self, met: &mut Met<K>, rules: Rules, key: usize) {
        let row = self
            .living(met)
            .map(|(_, process)| process.keys[key].row)
            .find(|row| row.epoch.is_some());
        let Some(mut row) = row else {
            return;
        };
        if rules == Rules::CheckpointWithoutNumbers {
            row.last = Default::default();
        }
        let mut directory = met.boxes[self.boxes[key] as usize];
        directory.checkpoint = row;
        self.boxes[key] = number_of(&mut met.boxes, directory);
    }

    /// A step of a wrong variant.
    pub(super) fn take_part_for_whole(&mut self, met: &mut Met<K>, key: u8, from: u8) {
        for (_, number) in (0..).zip(&mut self.boxes).filter(|(other, _)| *other != key) {
            let mut directory = met.boxes[*number as usize];
            directory.claimed_other |= 1 << from;
            *number = number_of(&mut met.boxes, directory);
        }
    }

    pub(super) fn begin_life(&mut self, met: &mut Met<K>, is_meant: impl Fn(u8) -> bool) {
        let dead = self.dead;
        for (_, number) in (0..).zip(&mut self.boxes).filter(|(key, _)| is_meant(*key)) {
            let mut directory = met.boxes[*number as usize];
            directory.restart(directory.living & !dead);
            *number = number_of(&mut met.boxes, directory);
        }
    }

    /// A step of wrong variants: a process that lost its memory is one of the others again.
    pub(super) fn return_empty(&mut self, met: &mut Met<K>, rules: Rules, process: u8) {
        let mut after = *self.process(met, process);
        after.floors = [[Number::NONE; PROCESS_COUNT]; K];
        after.count = 0;
        let life = if rules == Rules::ReturnsAsKnown { after.keys[0].life } else { 0 };
        for local in &mut after.keys {
            let Local { ops, living, .. } = *local;
            *local = Local { ops, life, living, ..Local::default() };
        }
        self.processes[usize::from(process)] = number_of(&mut met.processes, after);
        if rules == Rules::ReturnIsWelcome {
            self.begin_life(met, |_| true);
        }
    }

    pub(super) fn crash(&mut self, met: &mut Met<K>, process: u8) {
        self.crashed |= 1 << process;
        let mut after = *self.process(met, process);
        after.floors = [[Number::NONE; PROCESS_COUNT]; K];
        for local in &mut after.keys {
            *local = Local { ops: local.ops, ..Local::default() };
        }
        self.processes[usize::from(process)] = number_of(&mut met.processes, after);
    }
}
