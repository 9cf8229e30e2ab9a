//! The files of one job: which there must be, and in which sequence they come and go. Does I/O;
//! what they say is the engine's.
//!
//! The checkpoint names the journal that follows it, and a journal that is finished the next one.
//! A name is given only to a journal that is durable with its header, and a file only gets its name
//! when it is whole and durable. So the chain from the checkpoint never lacks a link, whatever
//! moment the node or its machine dies at; one that is missing was taken away by somebody, with
//! what people were told of, and that is an error. A journal that nobody names yet holds no record.
//! What a durable checkpoint holds is removed.

use std::io;
use std::sync::Arc;

use weft_control::Event;
use weft_engine::role::model::journal::{
    Checkpoint, Damage, End, JournalHeader, Records, read_checkpoint, write_checkpoint,
};
use weft_engine::role::model::{ModelState, Replay};

use super::disk::{Disk, DiskFile};
use crate::error::{NodeError, remedy};

/// A job's directory.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    disk: Arc<dyn Disk>,
    header: JournalHeader,
}

/// A journal that records are appended to.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) file: Box<dyn DiskFile>,
    pub(super) number: u64,
    /// Octets that it has.
    pub(super) len: u64,
}

impl Directory {
    pub(super) fn new(disk: Arc<dyn Disk>, header: JournalHeader) -> Self {
        Self { disk, header }
    }

    /// The checkpoint; `None` for a job that begins.
    pub(super) fn checkpoint(&self) -> Result<Option<Checkpoint>, NodeError> {
        let bytes = match self.disk.read(CHECKPOINT) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let journals = self.journals()?;
                // A first start that did not come to its end.
                let is_new = match journals[..] {
                    [] => true,
                    [first] => first == FIRST && !self.has_records(first)?,
                    _ => false,
                };
                return if is_new { Ok(None) } else { Err(self.no_checkpoint(&journals)) };
            }
            Err(error) => return Err(self.failed(CHECKPOINT, "reading it", &error)),
        };
        let checkpoint = read_checkpoint(&bytes)
            .map_err(|damage| self.problem(CHECKPOINT, &format!("{damage}; {LOST}")))?;
        self.check(CHECKPOINT, &checkpoint.header)?;
        Ok(Some(checkpoint))
    }

    /// The first journal after a checkpoint of version 1, which does not say which it is.
    pub(super) fn first_journal(&self) -> Result<u64, NodeError> {
        for number in self.journals()? {
            let (name, bytes) = self.read_journal(number)?;
            // One with a number was begun by this version, and holds nothing yet.
            if !self.records(&name, &bytes).is_ok_and(|records| records.number().is_some()) {
                return Ok(number);
            }
        }
        let problem = format!(
            "is of an older Weft, which always left a journal beside it, and there is none: what \
             was decided since then is lost; {LOST}"
        );
        Err(self.problem(CHECKPOINT, &problem))
    }

    /// Applies the journals from this one on to a model; `told` hears what they decided. Returns
    /// the number of the last.
    pub(super) fn replay(
        &self,
        first: u64,
        replay: &mut Replay,
        told: &mut dyn FnMut(Event),
    ) -> Result<u64, NodeError> {
        let mut number = first;
        loop {
            let (end, names_next) = self.replay_journal(number, replay, told)?;
            if let End::Finished(next) = end {
                number = next;
                continue;
            }
            let mut follower = None;
            for later in self.journals()?.into_iter().filter(|later| number < *later) {
                if follower.is_none() && self.has_records(later)? {
                    follower = Some(later);
                }
            }
            match follower {
                None => return Ok(number),
                // Its end is there, and all that an older Weft wrote.
                Some(_) if !names_next && end == End::Open => number += 1,
                Some(follower) => {
                    let problem = format!(
                        "has lost its end, for {} has records; {}; {LOST}",
                        journal_name(follower),
                        cost(replay)
                    );
                    return Err(self.problem(&journal_name(number), &problem));
                }
            }
        }
    }

    /// Applies one journal; how it ends, and whether it would name the next.
    fn replay_journal(
        &self,
        number: u64,
        replay: &mut Replay,
        told: &mut dyn FnMut(Event),
    ) -> Result<(End, bool), NodeError> {
        let name = journal_name(number);
        let lost = |what: &str, replay: &Replay| {
            self.problem(&name, &format!("{what}; {}; {LOST}", cost(replay)))
        };
        let bytes = self.disk.read(&name).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => lost("is missing", replay),
            _ => self.failed(&name, "reading it", &error),
        })?;
        let mut records = self.records(&name, &bytes).map_err(|error| match error {
            Unreadable::Damaged(damage) => lost(&damage.to_string(), replay),
            Unreadable::Foreign(error) => error,
        })?;
        loop {
            let at = records.offset();
            match records.next_record() {
                Err(damage) if self.journals()?.last() == Some(&number) => {
                    let problem = format!(
                        "{damage}; {}; restore it from a copy, or cut it to {at} bytes to go on \
                         without them",
                        cost(replay)
                    );
                    return Err(self.problem(&name, &problem));
                }
                Err(damage) => return Err(lost(&damage.to_string(), replay)),
                Ok(None) => break,
                Ok(Some(record)) => match replay.apply(&record) {
                    Err(error) => return Err(lost(&format!("at byte {at}: {error}"), replay)),
                    Ok(event) => event.into_iter().for_each(&mut *told),
                },
            }
        }
        let end = records.end().expect("it was read to its end");
        Ok((end, records.number().is_some()))
    }

    /// The records of a journal that is this job's, and is where it belongs.
    fn records<'a>(&self, name: &str, bytes: &'a [u8]) -> Result<Records<'a>, Unreadable> {
        let (header, records) = Records::new(bytes).map_err(Unreadable::Damaged)?;
        self.check(name, &header).map_err(Unreadable::Foreign)?;
        match records.number().map(journal_name) {
            Some(own) if own != name => {
                let problem = format!("was written as {own}; {LOST}");
                Err(Unreadable::Foreign(self.problem(name, &problem)))
            }
            _ => Ok(records),
        }
    }

    /// False for a journal that nobody was told of anything in: one that nobody names yet.
    fn has_records(&self, number: u64) -> Result<bool, NodeError> {
        let (name, bytes) = self.read_journal(number)?;
        match self.records(&name, &bytes) {
            // An older Weft names none.
            Ok(records) if records.number().is_none() => Ok(true),
            Ok(records) => Ok(records.offset() < bytes.len() as u64),
            // A journal gets its name with its header: this one has lost it.
            Err(Unreadable::Damaged(_)) => Ok(true),
            Err(Unreadable::Foreign(error)) => Err(error),
        }
    }

    fn read_journal(&self, number: u64) -> Result<(String, Vec<u8>), NodeError> {
        let name = journal_name(number);
        match self.disk.read(&name) {
            Ok(bytes) => Ok((name, bytes)),
            Err(error) => Err(self.failed(&name, "reading it", &error)),
        }
    }

    fn check(&self, name: &str, header: &JournalHeader) -> Result<(), NodeError> {
        if *header == self.header {
            return Ok(());
        }
        let words = |header: &JournalHeader| {
            format!(
                "job {} with {} parameters in chunks of {}, {} workers, momentum {}",
                header.job.0,
                header.dimension,
                header.elements,
                header.workers,
                f32::from_bits(header.momentum_bits)
            )
        };
        let problem = format!(
            "is of {}, the configuration has {}; choose another server.state_dir, or remove the \
             directory to begin anew",
            words(header),
            words(&self.header)
        );
        Err(self.problem(name, &problem))
    }

    /// Makes this state the checkpoint, with a new journal behind it; `last` is the last one that
    /// the state holds, 0 for none. All others go.
    pub(super) fn begin(&self, state: &ModelState, last: u64) -> Result<Journal, NodeError> {
        let journal = self.next_journal(last)?;
        self.write_checkpoint(state, journal.number)?;
        for number in self.journals()?.into_iter().filter(|number| *number != journal.number) {
            self.remove(&journal_name(number))?;
        }
        Ok(journal)
    }

    /// Begins the journal after the one with this number.
    pub(super) fn next_journal(&self, last: u64) -> Result<Journal, NodeError> {
        let number = last + 1;
        let mut header = Vec::new();
        self.header.begin_journal(number, &mut header);
        let file = self.put(&journal_name(number), &header)?;
        Ok(Journal { file, number, len: header.len() as u64 })
    }

    /// Applies a journal that is finished to the checkpoint, and removes it.
    pub(super) fn compact(
        &self,
        number: u64,
        begin: impl FnOnce(&ModelState) -> Result<Replay, String>,
    ) -> Result<(), NodeError> {
        let failed = |problem: String| self.problem(CHECKPOINT, &problem);
        let checkpoint = self.checkpoint()?.filter(|found| found.journal == Some(number));
        let checkpoint = checkpoint
            .ok_or_else(|| failed(format!("is not the one before {}", journal_name(number))))?;
        let mut replay = begin(&checkpoint.state).map_err(failed)?;
        let (End::Finished(next), _) = self.replay_journal(number, &mut replay, &mut |_| {})?
        else {
            return Err(self.problem(&journal_name(number), &format!("has lost its end; {LOST}")));
        };
        self.write_checkpoint(&replay.state(), next)?;
        self.remove(&journal_name(number))
    }

    fn write_checkpoint(&self, state: &ModelState, journal: u64) -> Result<(), NodeError> {
        let mut bytes = Vec::new();
        write_checkpoint(&self.header, journal, state, &mut bytes);
        self.put(CHECKPOINT, &bytes).map(drop)
    }

    /// Writes a file that gets its name when it is durable.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<Box<dyn DiskFile>, NodeError> {
        let new = format!("{name}{NEW}");
        let put = || {
            let mut file = self.disk.create(&new)?;
            file.append(bytes)?;
            file.sync()?;
            self.disk.rename(&new, name)?;
            self.disk.sync()?;
            Ok(file)
        };
        put().map_err(|error: io::Error| {
            let remedy = remedy(&error).unwrap_or("see to that");
            let problem =
                format!("cannot be written: {error}; {remedy}, or choose another state_dir");
            self.problem(name, &problem)
        })
    }

    fn remove(&self, name: &str) -> Result<(), NodeError> {
        self.disk.remove(name).map_err(|error| self.failed(name, "removing it", &error))
    }

    /// Numbers of the journals that are there, in their sequence.
    fn journals(&self) -> Result<Vec<u64>, NodeError> {
        let names = self.disk.list().map_err(|error| self.failed("", "listing it", &error))?;
        let number = |name: &String| name.strip_prefix(JOURNAL)?.parse().ok();
        let mut found: Vec<u64> = names.iter().filter_map(number).collect();
        found.sort_unstable();
        Ok(found)
    }

    fn no_checkpoint(&self, journals: &[u64]) -> NodeError {
        let names: Vec<String> = journals.iter().map(|number| journal_name(*number)).collect();
        let problem = format!(
            "is missing, and {} is of no use without it: the whole model is lost; {LOST}",
            names.join(", ")
        );
        self.problem(CHECKPOINT, &problem)
    }

    fn failed(&self, file: &str, doing: &str, error: &io::Error) -> NodeError {
        self.problem(file, &format!("{doing}: {error}"))
    }

    pub(super) fn problem(&self, file: &str, problem: &str) -> NodeError {
        NodeError::State { path: self.disk.path().join(file), problem: problem.to_owned() }
    }
}

/// Why a journal's records cannot be read.
enum Unreadable {
    Damaged(Damage),
    Foreign(NodeError),
}

/// What is lost where a replay cannot go on.
fn cost(replay: &Replay) -> String {
    let order = replay.next_order().0;
    format!("order {order} and all after it, of which somebody may have been told, are lost")
}

pub(super) fn journal_name(number: u64) -> String {
    format!("{JOURNAL}{number}")
}

/// The number of a job's first journal.
const FIRST: u64 = 1;
const CHECKPOINT: &str = "checkpoint";
const JOURNAL: &str = "journal-";
const NEW: &str = ".new";
const LOST: &str = "restore it from a copy, or remove the directory to begin anew";
