//! Files of the system, of an older Weft, and of another job.

use std::fs;
use std::path::PathBuf;

use weft_control::{Decision, Event};
use weft_kernel::crc32c;
use weft_wire::Members;

use super::super::disk::LockedDirectory;
use super::super::{LAST_MAX, Resumed};
use super::*;

#[test]
fn a_directory_keeps_a_job_from_life_to_life_and_serves_one_node_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("of/a/job-3");
    let open = || LockedDirectory::open(path.clone());
    let mut judge = Judge::new(ORDERS + 8);
    judge.live_on(Arc::new(open().unwrap()), 12, at_once).unwrap();
    judge.live_on(Arc::new(open().unwrap()), ORDERS, start_thread).unwrap();
    judge.live_on(Arc::new(open().unwrap()), 0, at_once).unwrap();
    assert!(judge.kept >= ORDERS);
    let held = open().unwrap();
    let mut names = held.list().unwrap();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[0] == "checkpoint" && names[1].starts_with("journal-") && names[2] == "lock");
    let error = open().unwrap_err().to_string();
    assert!(error.contains("another weft-node serves from it"), "{error}");
}

/// What cannot be read is not what is not there.
#[test]
fn a_checkpoint_that_cannot_be_read_is_no_new_job() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("checkpoint")).unwrap();
    let disk = Arc::new(LockedDirectory::open(directory.path().to_owned()).unwrap());
    let error = StoredJob::open(config(), 1, disk).unwrap_err().to_string();
    assert!(error.contains("checkpoint: reading it"), "{error}");
}

#[test]
fn the_files_of_another_job_are_refused() {
    let (files, _) = chain();
    let change = |change: fn(&mut ServerJobConfig)| {
        let mut other = config();
        change(&mut other);
        let disk = Arc::new(FakeDisk::with(&files));
        StoredJob::open(other, 1, disk).unwrap_err().to_string()
    };
    for error in [
        change(|other| other.model.job.0 += 1),
        change(|other| other.model.dimension -= 1),
        change(|other| other.model.momentum = 0.25),
        change(|other| other.workers.truncate(1)),
    ] {
        let is = "job/checkpoint: is of job 3 with 300 parameters in chunks of 256, 2 workers, \
                  momentum 0.5, the configuration has job ";
        assert!(error.contains(is), "{error}");
    }
}

/// The error of a checkpoint is the node's, at the latest when it ends.
#[test]
fn a_checkpoint_that_cannot_be_made_ends_the_node() {
    let refused = |_: Work| at_once(Box::new(|| Err(NodeError::Environment("no room".to_owned()))));
    for orders in [14, ORDERS] {
        let error = Judge::new(ORDERS + 8).live(&FakeDisk::new(1), orders, refused).unwrap_err();
        assert!(error.to_string().contains("no room"), "{error}");
    }
}

/// Files as Weft wrote them before they had numbers and marks.
struct Older {
    files: BTreeMap<String, Vec<u8>>,
}

impl Older {
    /// A new job's checkpoint, and journals of these order numbers.
    fn new(journals: &[(u64, std::ops::Range<u64>)]) -> Self {
        let disk = FakeDisk::new(1);
        StoredJob::open(config(), 1, Arc::new(disk.clone())).unwrap();
        let files = disk.files();
        let header = |file: &str, word: &[u8; 7]| {
            let mut header = [&word[..], b"1", &files[file][8..28]].concat();
            header.extend(crc32c(&header).to_le_bytes());
            header
        };
        let checkpoint = [&header("checkpoint", b"WEFTCKP"), &files["checkpoint"][40..]].concat();
        let mut older = Self { files: BTreeMap::from([("checkpoint".to_owned(), checkpoint)]) };
        for (number, orders) in journals {
            let mut journal = header("journal-1", b"WEFTJNL");
            orders.clone().for_each(|order| journal.extend(record(order)));
            older.files.insert(format!("journal-{number}"), journal);
        }
        older
    }

    /// A start of this version had come to its first journal when it ended.
    fn with_begun(mut self, number: u64) -> Self {
        let mut journal = Vec::new();
        JournalHeader::new(&config().model, 2).begin_journal(number, &mut journal);
        self.files.insert(format!("journal-{number}"), journal);
        self
    }
}

#[test]
fn the_files_of_an_older_weft_are_taken_over() {
    let states = states(20);
    for begun in [None, Some(1), Some(6)] {
        let mut older = Older::new(&[(4, 0..7), (5, 7..12)]);
        if let Some(number) = begun {
            older = older.with_begun(number);
        }
        assert_eq!(open(&older.files).unwrap().as_ref(), Some(&states[12]), "{begun:?}");
    }
    // A crash may leave a part of the last record, and only there.
    let mut torn = Older::new(&[(4, 0..7), (5, 7..12)]).files;
    let len = torn["journal-5"].len();
    torn.get_mut("journal-5").unwrap().truncate(len - 3);
    assert_eq!(open(&torn).unwrap().as_ref(), Some(&states[11]));
    let mut torn = Older::new(&[(4, 0..7), (5, 7..12)]).files;
    let len = torn["journal-4"].len();
    torn.get_mut("journal-4").unwrap().truncate(len - 3);
    let error = refused(&torn);
    assert!(
        error.contains("job/journal-4: has lost its end, for journal-5 has records"),
        "{error}"
    );
    let missing = refused(&Older::new(&[(4, 0..7), (6, 7..12)]).files);
    assert!(missing.contains("job/journal-5: is missing"), "{missing}");
    let alone = refused(&Older::new(&[]).with_begun(1).files);
    assert!(alone.contains("job/checkpoint: is of an older Weft"), "{alone}");
}

#[test]
fn the_newest_decisions_are_told_again_and_the_version_before_them_is_known() {
    let mut resumed = Resumed {
        job: JOB,
        version: Version(0),
        next_order: OrderNumber(0),
        momentum_norm: 0.0,
        last: std::collections::VecDeque::new(),
        version_before: Version(0),
    };
    // Every second one is committed: 1, 3 and so on.
    let mut note = |order: u64| {
        let decision = match order % 2 {
            0 => Decision::Void,
            _ => Decision::Committed(Version(order.div_ceil(2))),
        };
        resumed.note(Event::Decided {
            group: GroupId::new(1, 1),
            order: OrderNumber(order),
            decision,
            members: Members::EMPTY,
            norm: 0.0,
            momentum_norm: 0.0,
        });
        let Some(Event::Decided { order: first, .. }) = resumed.last.front() else { panic!() };
        (resumed.last.len(), first.0, resumed.version_before.0)
    };
    let most = LAST_MAX as u64;
    for order in 0..most - 1 {
        assert_eq!(note(order).1, 0);
    }
    assert_eq!(note(most - 1), (LAST_MAX, 0, 0));
    assert_eq!(note(most), (LAST_MAX, 1, 0));
    assert_eq!(note(most + 1), (LAST_MAX, 2, 1));
    assert_eq!(note(most + 2), (LAST_MAX, 3, 1));
    assert_eq!(note(most + 3), (LAST_MAX, 4, 2));
}
