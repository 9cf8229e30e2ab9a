//! A node that is stopped at any system call, and files that somebody has harmed.

mod disk;
mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use crossbeam_channel::unbounded;
use weft_control::{OrderNumber, Version};
use weft_engine::role::model::ModelConfig;
use weft_engine::role::model::journal::{DecisionRecord, JournalHeader, Lives, Record, Records};
use weft_engine::role::model::{ModelState, Replay};
use weft_engine::role::server::ServerJobConfig;
use weft_kernel::Kernels;
use weft_wire::header::{ElementType, Outcome};
use weft_wire::{GroupId, JobId, Members};

pub(super) use self::disk::FakeDisk;
use self::disk::{Loss, Random};
use super::disk::Disk;
use super::writer::{Compaction, Parcel, Start, Work, Writer, start_thread};
use super::{StoredJob, initial};
use crate::error::NodeError;

const JOB: JobId = JobId(3);

pub(super) fn config() -> ServerJobConfig {
    let model = ModelConfig { momentum: 0.5, ..ModelConfig::new(JOB, 300) };
    let workers = vec!["127.0.0.1:7000".parse().unwrap(), "127.0.0.2:7000".parse().unwrap()];
    ServerJobConfig::new(model, workers)
}

/// The record of this order number: void, of zeros, or of numbers of its own.
fn record(order: u64) -> Vec<u8> {
    let mut random = Random(order);
    let numbers: Vec<u8> = (0..512)
        .flat_map(|_| (i32::try_from(random.below(2001)).unwrap() - 1000).to_be_bytes())
        .collect();
    let zeros = vec![0; 2048];
    let (outcome, sum): (_, &[u8]) = match order % 5 {
        1 => (Outcome::Void, &[]),
        2 => (Outcome::Committed, &zeros),
        _ => (Outcome::Committed, &numbers),
    };
    let is_committed = outcome == Outcome::Committed;
    let decision = DecisionRecord {
        order: OrderNumber(order),
        group: GroupId::new(u16::try_from(order % 1000).unwrap(), 1),
        outcome,
        element_type: ElementType::I32,
        exponent: -4,
        scale: 0.5,
        version: Version(order + 1 - order.div_ceil(5)),
        members: Members(if is_committed { 0b01 } else { 0 }),
        audience: Members(0b11),
        old: Members(0),
        lives: Lives::Numbers(&[5, 6]),
        sum,
    };
    let mut bytes = Vec::new();
    Record::Decision(decision).write(&mut bytes);
    bytes
}

/// What a job is after each order number.
fn states(orders: u64) -> Vec<ModelState> {
    let config = config();
    let mut state = initial(&config);
    let mut states = vec![state.clone()];
    let mut replay = Replay::new(&config.model, 2, &state, Kernels::detect()).unwrap();
    for order in 0..orders {
        let mut journal = Vec::new();
        JournalHeader::new(&config.model, 2).begin_journal(1, &mut journal);
        journal.extend(record(order));
        let (_, mut records) = Records::new(&journal).unwrap();
        replay.apply(&records.next_record().unwrap().unwrap()).unwrap();
        state = replay.state();
        states.push(state.clone());
    }
    states
}

/// A checkpoint that is made at once, so that a crash comes at the same call every time.
fn at_once(work: Work) -> io::Result<Compaction> {
    let thread = start_thread(work)?;
    while !thread.is_finished() {
        std::thread::yield_now();
    }
    Ok(thread)
}

/// No checkpoint: journals stay.
fn never(_work: Work) -> io::Result<Compaction> {
    at_once(Box::new(|| Ok(())))
}

/// What a job's lives must keep.
struct Judge {
    states: Vec<ModelState>,
    /// The first order number that nobody was told of.
    told: u64,
    /// The first that the last life did not find.
    kept: u64,
}

impl Judge {
    fn new(orders: u64) -> Self {
        Self { states: states(orders), told: 0, kept: 0 }
    }

    /// A life of a node: starts, and decides until the end or `orders`.
    fn live(&mut self, disk: &FakeDisk, orders: u64, start: Start) -> Result<(), NodeError> {
        self.live_on(Arc::new(disk.clone()), orders, start)
    }

    fn live_on(&mut self, disk: Arc<dyn Disk>, orders: u64, start: Start) -> Result<(), NodeError> {
        let mut random = Random(self.told);
        let stored = StoredJob::open(config(), 1, disk)?;
        let found = stored.state.clone().unwrap_or_else(|| initial(&config()));
        let next = found.next_order.0;
        assert!(self.told <= next, "told of all below {}, kept all below {next}", self.told);
        self.kept = next;
        assert_eq!(found, self.states[usize::try_from(next).unwrap()]);
        let mut writer = Writer::new(vec![stored], start);
        let (done, told) = unbounded();
        let mut order = next;
        while order < orders {
            let mut batch = Vec::new();
            for _ in 0..=random.below(4) {
                batch.push(Parcel {
                    job: JOB,
                    position: order,
                    record: record(order),
                    is_durable: false,
                });
                order += 1;
            }
            let written = writer.write(&mut batch, &done);
            let durable = told.try_iter().filter(|parcel| parcel.is_durable);
            self.told = durable.map(|parcel| parcel.position + 1).fold(self.told, u64::max);
            written?;
        }
        let (nobody, nothing) = unbounded();
        drop(nobody);
        writer.run(&nothing, &done)
    }
}

/// A checkpoint that takes its time.
fn slowly(work: Work) -> io::Result<Compaction> {
    start_thread(Box::new(|| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        work()
    }))
}

/// However many records come at once, and while a checkpoint is being made.
#[test]
fn a_journal_is_never_longer_than_it_may_be() {
    let disk = FakeDisk::new(1);
    let stored = StoredJob::open(config(), 1, Arc::new(disk.clone())).unwrap();
    let max = stored.journal_bytes_max;
    let mut writer = Writer::new(vec![stored], slowly);
    let (done, told) = unbounded();
    for first in [0, 40] {
        let parcel =
            |order| Parcel { job: JOB, position: order, record: record(order), is_durable: false };
        writer.write(&mut (first..first + 40).map(parcel).collect(), &done).unwrap();
        for (name, bytes) in disk.files() {
            // The marks come on top.
            let is_long = name.starts_with("journal") && bytes.len() as u64 > max + 100;
            assert!(!is_long, "{name} has {} of {max} bytes", bytes.len());
        }
    }
    assert_eq!(told.try_iter().filter(|parcel| parcel.is_durable).count(), 80);
    let (nobody, nothing) = unbounded();
    drop(nobody);
    writer.run(&nothing, &done).unwrap();
    let found = StoredJob::open(config(), 1, Arc::new(disk)).unwrap();
    assert_eq!(found.state.unwrap(), states(80)[80]);
}

#[test]
fn a_job_whose_disk_fails_ends_alone() {
    let other = JobId(4);
    let disks = [FakeDisk::new(1), FakeDisk::new(2)];
    let stored = [JOB, other].into_iter().zip(&disks).map(|(job, disk)| {
        let model = ModelConfig { job, ..config().model };
        let config = ServerJobConfig::new(model, config().workers);
        StoredJob::open(config, 1 << 20, Arc::new(disk.clone())).unwrap()
    });
    let mut writer = Writer::new(stored.collect(), start_thread);
    let (done, told) = unbounded();
    let mut write = |order| {
        let parcel =
            |job| Parcel { job, position: order, record: record(order), is_durable: false };
        let result = writer.write(&mut vec![parcel(JOB), parcel(other)], &done);
        let told = told.try_iter().map(|parcel| (parcel.job, parcel.is_durable));
        (result.map_err(|error| error.to_string()), told.collect::<Vec<_>>())
    };
    assert_eq!(write(0), (Ok(()), vec![(JOB, true), (other, true)]));
    disks[0].end_after(0);
    for order in [1, 2] {
        assert_eq!(write(order), (Ok(()), vec![(JOB, false), (other, true)]));
    }
    disks[1].end_after(0);
    let (ended, told) = write(3);
    assert!(ended.unwrap_err().contains("cannot be written"), "none is left");
    assert_eq!(told, [(JOB, false), (other, false)]);
}

const ORDERS: u64 = 40;

/// PROTOCOL section 4: whatever call is the last of a life, the next one starts by itself, and
/// knows all that anybody was told. Ends come while it starts, writes, begins a journal and makes a
/// checkpoint.
#[test]
fn a_node_that_is_stopped_at_any_system_call_starts_again_with_all_that_was_told() {
    let states = states(ORDERS + 4);
    let mut ends = BTreeSet::new();
    for (loss, start, seed) in [
        (Loss::Process, at_once as Start, 1),
        (Loss::Power, at_once, 2),
        (Loss::Power, never, 3),
        (Loss::Power, at_once, 4),
        (Loss::Power, start_thread, 5),
    ] {
        let mut random = Random(seed);
        let mut calls = 0;
        loop {
            let mut judge = Judge { states: states.clone(), told: 0, kept: 0 };
            let mut disk = FakeDisk::new(seed << 32 | calls as u64);
            disk.end_after(calls);
            let mut lives = 0;
            while let Err(error) = judge.live(&disk, ORDERS, start) {
                assert!(error.to_string().contains("is dead"), "{loss:?} at call {calls}: {error}");
                let (found, end) = disk.after(loss);
                ends.insert(end.replace(|c: char| c.is_ascii_digit(), ""));
                disk = found;
                lives += 1;
                if lives < 4 {
                    disk.end_after(random.below(80));
                }
            }
            let (disk, _) = disk.after(Loss::Process);
            judge.live(&disk, 0, start).unwrap();
            assert!(judge.kept >= ORDERS);
            if lives == 0 {
                break;
            }
            calls += 1;
        }
        assert!(calls > 80, "{calls} calls");
    }
    let expected = [
        "append checkpoint.new",
        "append journal-",
        "append journal-.new",
        "create checkpoint.new",
        "list ",
        "read checkpoint",
        "read journal-",
        "remove journal-",
        "rename checkpoint.new",
        "rename journal-.new",
        "sync checkpoint.new",
        "sync directory",
        "sync journal-",
        "sync journal-.new",
    ];
    for call in expected {
        assert!(ends.contains(call), "no life ended with {call:?}: {ends:?}");
    }
}

/// The files of a job that has a checkpoint and several journals.
fn chain() -> (BTreeMap<String, Vec<u8>>, ModelState) {
    let disk = FakeDisk::new(9);
    let mut judge = Judge::new(ORDERS + 12);
    judge.live(&disk, 12, at_once).unwrap();
    assert_eq!(journals(&disk.files()).len(), 1, "what a checkpoint holds is gone");
    judge.live(&disk, ORDERS + 6, never).unwrap();
    let files = disk.files();
    let (last, others) = journals(&files).split_last().map(|(l, o)| (l.clone(), o.len())).unwrap();
    assert!(others >= 2 && files[&last].len() > 1000, "{last} of {:?}", files.keys());
    (files, judge.states[usize::try_from(judge.told).unwrap()].clone())
}

fn journals(files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    files.keys().filter(|name| name.starts_with("journal")).cloned().collect()
}

/// What a node begins with, or says.
fn open(files: &BTreeMap<String, Vec<u8>>) -> Result<Option<ModelState>, String> {
    let disk = Arc::new(FakeDisk::with(files));
    let stored = StoredJob::open(config(), 1, disk).map_err(|error| error.to_string())?;
    Ok(stored.state)
}

fn refused(files: &BTreeMap<String, Vec<u8>>) -> String {
    open(files).map_or_else(|error| error, |_| "it starts".to_owned())
}

#[test]
fn a_file_that_is_missing_or_has_lost_its_header_is_named_with_what_it_costs() {
    let (files, state) = chain();
    assert_eq!(open(&files).unwrap(), Some(state));
    for name in files.keys() {
        let mut cases = vec![None];
        cases.extend([0, 1, 31, 32, 39].map(|len| Some(files[name][..len].to_vec())));
        for case in cases {
            let mut harmed = files.clone();
            let what = case
                .as_ref()
                .map_or_else(|| "removed".to_owned(), |c| format!("{} bytes", c.len()));
            match case {
                Some(bytes) => harmed.insert(name.clone(), bytes),
                None => harmed.remove(name),
            };
            let error = refused(&harmed);
            assert!(error.contains(&format!("job/{name}: ")), "{name} {what}: {error}");
            let cost = if name == "checkpoint" { "" } else { "and all after it, of which" };
            assert!(error.contains(cost), "{name} {what}: {error}");
            assert!(error.contains("restore it from a copy"), "{name} {what}: {error}");
        }
    }
}

#[test]
fn a_changed_octet_of_any_file_is_an_error_that_names_file_byte_and_order() {
    let (files, _) = chain();
    let last = journals(&files).pop().unwrap();
    for (name, bytes) in &files {
        for at in (0..bytes.len()).filter(|at| at % 7 == 0 || bytes.len() - at < 60) {
            let mut harmed = files.clone();
            harmed.get_mut(name).unwrap()[at] ^= 0x08;
            let error = refused(&harmed);
            assert!(error.contains(&format!("job/{name}: ")), "{name} byte {at}: {error}");
            if name != "checkpoint" {
                let words = ["at byte ", "order ", "of which somebody may have been told"];
                let has_all = words.iter().all(|word| error.contains(word));
                assert!(has_all, "{name} byte {at}: {error}");
                assert_eq!(error.contains("or cut it to"), *name == last && at >= 40, "{error}");
            }
        }
    }
}

/// A journal whose end is gone, the name of the next one with it.
#[test]
fn a_journal_that_is_cut_and_not_the_last_is_an_error() {
    let (files, _) = chain();
    let journals = journals(&files);
    let (last, others) = journals.split_last().unwrap();
    for name in others {
        for cut in [1, 28, 29, 30, 200] {
            let mut harmed = files.clone();
            let bytes = harmed.get_mut(name).unwrap();
            bytes.truncate(bytes.len() - cut);
            let error = refused(&harmed);
            assert!(error.contains(&format!("job/{name}: has lost its end")), "{cut}: {error}");
            assert!(error.contains("order "), "{cut}: {error}");
        }
    }
    // A journal has its header before its name: what follows is none that was being begun.
    let mut harmed = files.clone();
    let before = others.last().unwrap();
    harmed.get_mut(before).unwrap().truncate(files[before].len() - 29);
    harmed.insert(last.clone(), Vec::new());
    assert!(refused(&harmed).contains(&format!("job/{before}: has lost its end")));
    // The last one may end anywhere: a crash does that.
    let mut cut = files.clone();
    let bytes = cut.get_mut(last).unwrap();
    bytes.truncate(bytes.len() - 35);
    assert!(open(&cut).is_ok());
}

#[test]
fn a_journal_of_another_number_is_not_taken_for_the_one_that_is_named() {
    let (files, _) = chain();
    let journals = journals(&files);
    let mut harmed = files.clone();
    harmed.insert(journals[1].clone(), files[&journals[0]].clone());
    let error = refused(&harmed);
    assert!(error.contains(&format!("{}: was written as {}", journals[1], journals[0])), "{error}");
}

#[test]
fn a_job_without_its_checkpoint_never_begins_anew() {
    let disk = FakeDisk::new(9);
    let mut judge = Judge::new(ORDERS + 12);
    judge.live(&disk, 12, at_once).unwrap();
    // A start alone leaves a journal without records.
    judge.live(&disk, 0, at_once).unwrap();
    let mut files = disk.files();
    files.remove("checkpoint");
    let error = refused(&files);
    assert!(error.contains("job/checkpoint: is missing, and journal-"), "{error}");
}
