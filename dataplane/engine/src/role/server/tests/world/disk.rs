//! The server's disk, its crashes, and what its next life begins with.

use alloc::vec::Vec;

use weft_control::Event;
use weft_kernel::Kernels;
use weft_wire::Nanos;

use super::{FRAME_LEN, JOB, World};
use crate::role::model::Replay;
use crate::role::model::journal::{JournalHeader, Records};
use crate::role::server::ModelState;

impl World {
    /// The disk of a durable server: records take their time, in their order.
    pub(super) fn poll_disk(&mut self) {
        if self.successor.is_some() {
            return;
        }
        let mut record = Vec::with_capacity(FRAME_LEN);
        while let Some((_, position)) = self.server.poll_journal(&mut record) {
            let latency_ns = 1 + self.random.next_u64() % DISK_NS_MAX;
            let due = self.now.saturating_add(Nanos(latency_ns));
            let due = self.disk.back().map_or(due, |(last, _, _)| due.max(*last));
            self.disk.push_back((due, position, record.clone()));
        }
        while self.disk.front().is_some_and(|(due, _, _)| *due <= self.now) {
            let (_, position, record) = self.disk.pop_front().unwrap();
            self.journal.extend(record);
            self.server.handle_durable(JOB, position);
        }
    }

    /// The server dies. Of what was on its way to the disk the first `kept` records arrived; nobody
    /// was told. It begins anew from there, and the judge learns what that is.
    pub(crate) fn crash_server(&mut self, seed: u64, kept: usize) {
        self.poll_events();
        let on_the_way = core::mem::take(&mut self.disk);
        for (_, _, record) in on_the_way.into_iter().take(kept) {
            self.journal.extend(record);
        }
        let told = self.rulings.len() as u64;
        let (state, events) = self.replayed();
        assert!(state.next_order.0 >= told, "what was told is gone");
        for event in events {
            let order = match event {
                Event::Decided { order, .. } => order.0,
                _ => unreachable!("a replay decides"),
            };
            if order >= told {
                self.take_event(event);
            }
        }
        self.resume_server(seed, &state);
    }

    /// What the journal says, and what it decided.
    pub(crate) fn replayed(&self) -> (ModelState, Vec<Event>) {
        let model = self.setup.model();
        let workers = usize::from(self.setup.workers);
        let empty = self.setup.server(0).state(JOB).unwrap();
        let mut replay = Replay::new(&model, workers, &empty, Kernels::detect()).unwrap();
        let mut bytes = Vec::new();
        JournalHeader::new(&model, workers).begin_journal(1, &mut bytes);
        bytes.extend(&self.journal);
        let (_, mut records) = Records::new(&bytes).unwrap();
        let mut events = Vec::new();
        while let Some(record) = records.next_record().unwrap() {
            events.extend(replay.apply(&record).unwrap());
        }
        (replay.state(), events)
    }

    /// The server loses everything. So does the judge.
    pub(crate) fn restart_server(&mut self, seed: u64) {
        self.server = self.setup.server(seed);
        self.rulings.clear();
        self.replica_rulings.clear();
        self.history.clear();
        self.told.clear();
    }

    /// The server begins anew with what it kept. It knows no open group yet.
    pub(crate) fn resume_server(&mut self, seed: u64, state: &ModelState) {
        self.server = self.setup.server(seed);
        self.server.restore(JOB, state).unwrap();
    }
}

const DISK_NS_MAX: u64 = 4_000_000;
