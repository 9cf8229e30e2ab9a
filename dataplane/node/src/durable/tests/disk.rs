//! A disk in memory that can stop at any system call, and then forgets what a real one may.
//!
//! Without power a file has what was synchronised, and of the rest nothing, a part, or all but some
//! sectors; a directory has the names that were, and any of the changes since.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use super::super::disk::{Disk, DiskFile};

/// What ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Loss {
    /// The process: what it wrote is there.
    Process,
    /// The machine: what it did not synchronise may not be.
    Power,
}

#[derive(Clone, Debug)]
pub(in super::super) struct FakeDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names that are not durable.
    changes: Vec<Change>,
    files: Vec<Content>,
    /// System calls before the end.
    calls_left: usize,
    /// The call that was the last.
    last: String,
    random: Random,
}

#[derive(Clone, Debug)]
enum Change {
    Put(String, usize),
    Remove(String),
}

#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    durable_len: usize,
}

#[derive(Debug)]
struct FakeFile {
    disk: FakeDisk,
    index: usize,
}

/// A sequence of numbers (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }
}

impl FakeDisk {
    pub(in super::super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changes: Vec::new(),
            files: Vec::new(),
            calls_left: usize::MAX,
            last: String::new(),
            random: Random(seed),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Ends at the call after so many.
    pub(in super::super) fn end_after(&self, calls: usize) {
        self.state().calls_left = calls;
    }

    /// What is found afterwards, and the call at which it ended.
    pub(super) fn after(&self, loss: Loss) -> (Self, String) {
        let state = &mut *self.state();
        let mut next = Self::new(state.random.below(usize::MAX) as u64);
        let found = Arc::get_mut(&mut next.0).unwrap().get_mut().unwrap();
        found.names = match loss {
            Loss::Process => state.names.clone(),
            Loss::Power => state.names_without_power(),
        };
        found.durable_names = found.names.clone();
        for content in &state.files {
            let mut bytes = content.bytes.clone();
            if loss == Loss::Power {
                state.random.tear(&mut bytes, content.durable_len);
            }
            let durable_len = bytes.len();
            found.files.push(Content { bytes, durable_len });
        }
        (next, state.last.clone())
    }

    /// Its files, to harm them.
    pub(super) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        let files = state.names.iter();
        files.map(|(name, index)| (name.clone(), state.files[*index].bytes.clone())).collect()
    }

    /// A disk with these files.
    pub(super) fn with(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let disk = Self::new(0);
        for (name, bytes) in files {
            disk.create(name).unwrap().append(bytes).unwrap();
        }
        disk.after(Loss::Process).0
    }

    /// A system call. The one at which all ends may have had its effect, or a part of it.
    fn call(
        &self,
        what: &str,
        name: &str,
        effect: impl FnOnce(&mut State, IsLast),
    ) -> io::Result<()> {
        let mut state = self.state();
        let dead = || Err(io::Error::other("the node is dead"));
        if !state.last.is_empty() {
            return dead();
        }
        let Some(left) = state.calls_left.checked_sub(1) else {
            state.last = format!("{what} {name}");
            if state.random.below(2) == 0 {
                effect(&mut state, true);
            }
            return dead();
        };
        state.calls_left = left;
        effect(&mut state, false);
        Ok(())
    }
}

type IsLast = bool;

impl State {
    fn change(&mut self, change: Change) {
        apply(&mut self.names, &change);
        self.changes.push(change);
    }

    fn names_without_power(&mut self) -> BTreeMap<String, usize> {
        let mut names = self.durable_names.clone();
        for change in &self.changes {
            if self.random.below(2) == 0 {
                apply(&mut names, change);
            }
        }
        names
    }
}

fn apply(names: &mut BTreeMap<String, usize>, change: &Change) {
    match change {
        Change::Put(name, index) => {
            // A file that gets another name gives up the one that it had.
            names.retain(|_, other| other != index);
            names.insert(name.clone(), *index);
        }
        Change::Remove(name) => {
            names.remove(name);
        }
    }
}

impl Random {
    fn tear(&mut self, bytes: &mut Vec<u8>, durable_len: usize) {
        match self.below(3) {
            0 => bytes.truncate(durable_len),
            1 => bytes.truncate(durable_len + self.below(bytes.len() - durable_len + 1)),
            _ => {
                let first = durable_len / SECTOR_BYTES * SECTOR_BYTES;
                for sector in (first..bytes.len()).step_by(SECTOR_BYTES) {
                    if self.below(2) == 0 {
                        let end = (sector + SECTOR_BYTES).min(bytes.len());
                        bytes[sector.max(durable_len)..end].fill(0);
                    }
                }
            }
        }
    }
}

impl Disk for FakeDisk {
    fn path(&self) -> &Path {
        Path::new("job")
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        self.call("list", "", |state, _| names.extend(state.names.keys().cloned()))?;
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = None;
        self.call("read", name, |state, _| {
            bytes = state.names.get(name).map(|index| state.files[*index].bytes.clone());
        })?;
        bytes.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut index = 0;
        self.call("create", name, |state, _| {
            index = state.files.len();
            state.files.push(Content::default());
            state.change(Change::Put(name.to_owned(), index));
        })?;
        Ok(Box::new(FakeFile { disk: self.clone(), index }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.call("rename", from, |state, _| {
            let index = state.names[from];
            state.change(Change::Put(to.to_owned(), index));
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.call("remove", name, |state, _| state.change(Change::Remove(name.to_owned())))
    }

    fn sync(&self) -> io::Result<()> {
        self.call("sync", "directory", |state, _| {
            state.durable_names = state.names.clone();
            state.changes.clear();
        })
    }
}

impl FakeFile {
    fn name(&self) -> String {
        let state = self.disk.state();
        let name = state.names.iter().find(|(_, index)| **index == self.index);
        name.map_or_else(String::new, |(name, _)| name.clone())
    }
}

impl DiskFile for FakeFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.call("append", &self.name(), |state, is_last| {
            let part = if is_last { state.random.below(bytes.len() + 1) } else { bytes.len() };
            state.files[self.index].bytes.extend(&bytes[..part]);
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.call("sync", &self.name(), |state, _| {
            let content = &mut state.files[self.index];
            content.durable_len = content.bytes.len();
        })
    }
}

const SECTOR_BYTES: usize = 512;
