//! Gives jobs their bands on the host's link: a thread that runs `tc` (TensorLights; ARCHITECTURE,
//! "Bands").
//!
//! `tree` decides which classes and filters there are to be, `jobs` what is asked for; here it
//! is done. All that has been asked for by the time that the thread looks is one change: read what
//! is there, run the lines that are missing, read again, and answer. A change that fails is taken
//! back. One node of a host does this for an interface: it holds a name that the network namespace
//! has once, and whoever has it may remove what a former life left.

mod jobs;
mod tc;
mod tree;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_config::node::BandsSection;
use weft_control::BandError;

use crate::control::NodeControl;
use crate::error::NodeError;
pub use jobs::Asked;
use jobs::{Jobs, answer};
use tree::{ClassId, Place, Root};

/// The way to the thread. Dropping it ends the thread, which removes what it installed.
#[derive(Debug)]
pub struct Bands {
    asked: Option<SyncSender<Asked>>,
    thread: Option<JoinHandle<()>>,
}

impl Bands {
    /// Starts the thread, which first removes what a former life left.
    ///
    /// # Errors
    /// Another process applies bands on the interface, or no thread can be had.
    pub fn start(
        section: &BandsSection,
        mtu: u16,
        control: Arc<NodeControl>,
    ) -> Result<Self, NodeError> {
        let place = place(section, mtu);
        let failed = |source| NodeError::Bands { device: place.device.clone(), source };
        let name = SocketAddr::from_abstract_name(format!("weft-bands-{}", place.device));
        let only = name.and_then(|name| UnixListener::bind_addr(&name)).map_err(failed)?;
        let (asked, asks) = sync_channel(ASKED_MAX);
        let applied = place.clone();
        let work = move || {
            Applier { place: applied, jobs: Jobs::default(), control, drained_by: None }.run(&asks);
            drop(only);
        };
        let thread = std::thread::Builder::new().name("weft-bands".to_owned()).spawn(work);
        Ok(Self { asked: Some(asked), thread: Some(thread.map_err(failed)?) })
    }

    /// Asks for a change; it is answered by an event.
    ///
    /// # Errors
    /// What came in, when too much waits: try again later.
    pub fn ask(&self, asked: Asked) -> Result<(), Asked> {
        match self.asked.as_ref().map(|way| way.try_send(asked)) {
            Some(Err(TrySendError::Full(asked))) => Err(asked),
            _ => Ok(()),
        }
    }
}

impl Drop for Bands {
    fn drop(&mut self) {
        self.asked = None;
        // One that has panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn place(section: &BandsSection, mtu: u16) -> Place {
    let under = section.under.as_deref().and_then(ClassId::parse);
    let rate_bytes_per_sec = section.rate_bytes_per_sec.unwrap_or_default();
    let root = under.map_or(Root::Own { rate_bytes_per_sec }, Root::Under);
    Place { device: section.device.clone().unwrap_or_default(), mtu, root }
}

struct Applier {
    place: Place,
    jobs: Jobs,
    control: Arc<NodeControl>,
    /// Nothing is wanted any more: all is removed as soon as nothing waits in it, or then.
    drained_by: Option<Instant>,
}

impl Applier {
    fn run(mut self, asks: &Receiver<Asked>) {
        if let Err(error) = self.remove() {
            let device = &self.place.device;
            weft_process::say!("weft-node: bands on {device} cannot be applied as it is: {error}");
        }
        loop {
            let patience = self.drained_by.map_or(Duration::MAX, |_| DRAIN_LOOK);
            match asks.recv_timeout(patience) {
                Ok(first) => {
                    let mut all = vec![first];
                    all.extend(asks.try_iter().take(ASKED_MAX));
                    self.change(&all);
                }
                Err(RecvTimeoutError::Timeout) => self.look_whether_drained(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Err(error) = self.remove() {
            let device = &self.place.device;
            weft_process::say!("weft-node: bands on {device} are left as they are: {error}");
        }
    }

    fn change(&mut self, asked: &[Asked]) {
        let (next, judged) = self.jobs.after(asked);
        let outcome = self.apply(&next);
        for (asked, refused) in asked.iter().zip(judged) {
            let error = refused.or_else(|| outcome.err());
            self.control.tell(asked.job, answer(asked, error));
        }
        match outcome {
            Ok(()) => self.jobs = next,
            Err(_) => self.take_back(),
        }
        let is_over = self.jobs.wanted().is_empty();
        self.drained_by = is_over.then(|| Instant::now() + DRAIN_MAX);
    }

    /// Brings the kernel to these bands, and sees that it has them.
    fn apply(&self, next: &Jobs) -> Result<(), BandError> {
        let wanted = next.wanted();
        let found = tc::read(&self.place)?;
        let lines = self.place.lines(&found, &wanted);
        if lines.is_empty() {
            return Ok(());
        }
        tc::batch(&lines)?;
        let found = tc::read(&self.place)?;
        match found.bands(&self.place) {
            Some(bands) if bands == wanted => Ok(()),
            _ => Err(BandError::Failed),
        }
    }

    /// Takes a change back that failed in the middle.
    fn take_back(&self) {
        let taken = match self.jobs.wanted().is_empty() {
            true => self.remove(),
            false => self.apply(&self.jobs),
        };
        // What failed in the first place may be why; that was answered.
        if let Err(error @ BandError::Failed) = taken {
            let device = &self.place.device;
            weft_process::say!("weft-node: bands on {device} are not as they were: {error}");
        }
    }

    /// Removes all that is Weft's, and nothing else.
    fn remove(&self) -> Result<(), BandError> {
        let found = tc::read(&self.place)?;
        if found.is_clean() {
            return Ok(());
        }
        tc::batch(&self.place.removal(&found))
    }

    fn look_whether_drained(&mut self) {
        let listing = ["-s", "class", "show", "dev", &self.place.device].map(str::to_owned);
        let waits = tc::run(&listing, "").map(|text| tree::backlog_bytes(&self.place, &text) > 0);
        let is_late = self.drained_by.is_none_or(|by| by <= Instant::now());
        if waits == Ok(true) && !is_late {
            return;
        }
        self.drained_by = None;
        if let Err(error) = self.remove() {
            let device = &self.place.device;
            weft_process::say!("weft-node: bands on {device} are left as they are: {error}");
        }
    }
}

/// Changes that wait for the thread.
const ASKED_MAX: usize = 512;
/// How often it is looked whether the classes of jobs are empty, once nobody wants them.
const DRAIN_LOOK: Duration = Duration::from_millis(20);
/// How long that is waited for.
const DRAIN_MAX: Duration = Duration::from_secs(1);
