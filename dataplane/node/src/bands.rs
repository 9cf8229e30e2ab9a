//! Gives jobs their bands on the host's link: a thread that runs `tc` (TensorLights; ARCHITECTURE,
//! "Bands").
//!
//! `tree` decides which classes and filters there are to be, `jobs` what is asked for, `counts`
//! what the kernel's counts come to; `applier` does it. One node of a host does this for an
//! interface: it holds a name that the network namespace has once, and whoever has it may remove
//! what a former life left.

mod applier;
mod counts;
mod former;
mod jobs;
mod port;
mod tc;
mod tree;

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_config::node::{BandsBy, BandsSection, NodeConfig};
use weft_control::BandError;

use crate::control::NodeControl;
use crate::error::NodeError;
use applier::Applier;
pub use jobs::Asked;
use jobs::Jobs;
pub use port::{PortBands, none};
use tree::{ClassId, Mark, Place, Root};

/// The way to the thread. Dropping it ends the thread, which removes what it installed.
#[derive(Debug)]
pub struct Bands {
    asked: Option<SyncSender<Asked>>,
    thread: Option<JoinHandle<()>>,
    control: Arc<NodeControl>,
}

impl Bands {
    /// Starts the thread of the node of this name, which first removes what a former life left;
    /// none where the node does not apply bands to its host's link.
    ///
    /// # Errors
    /// Another process applies bands on the interface, or no thread can be had.
    pub fn start(
        config: &NodeConfig,
        name: &str,
        control: Arc<NodeControl>,
    ) -> Result<Option<Self>, NodeError> {
        let section = config.bands.as_ref().filter(|section| section.by == BandsBy::Host);
        let Some(section) = section else { return Ok(None) };
        control.marks().keep_apart();
        let place = place(section, config.port.mtu, name);
        let failed = |source| NodeError::Bands { device: place.device.clone(), source };
        let only = only(&place.device).map_err(failed)?;
        let (asked, asks) = sync_channel(ASKED_MAX);
        let jobs = Jobs::new(&section.fixed);
        let applier = Applier::new(place.clone(), jobs, Arc::clone(&control));
        let work = move || {
            applier.run(&asks);
            drop(only);
        };
        let thread = std::thread::Builder::new().name("weft-bands".to_owned()).spawn(work);
        Ok(Some(Self { asked: Some(asked), thread: Some(thread.map_err(failed)?), control }))
    }

    /// Asks for a change; it is answered by an event.
    ///
    /// # Errors
    /// What came in, when too much waits: try again later.
    pub fn ask(&self, asked: Asked) -> Result<(), Asked> {
        match self.asked.as_ref().map(|way| way.try_send(asked)) {
            Some(Err(TrySendError::Full(asked))) => Err(asked),
            Some(Err(TrySendError::Disconnected(asked))) => {
                // The thread has panicked, and said so.
                self.control.tell(asked.job, jobs::answer(&asked, Some(BandError::Failed)));
                Ok(())
            }
            Some(Ok(())) | None => Ok(()),
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

/// The name by which a node knows what it installed.
#[must_use]
pub fn name(config: &NodeConfig) -> String {
    let section = config.controller.as_ref().and_then(|section| section.name.as_ref());
    section.unwrap_or(&config.node.name).clone()
}

/// Removes what an earlier life of the node installed, if this one applies no bands to its host's
/// link: its file did then. Nothing is waited for, and nothing said where nothing is.
pub fn forget(config: &NodeConfig) {
    if config.bands.as_ref().is_some_and(|section| section.by == BandsBy::Host) {
        return;
    }
    let mark = Mark::of(&name(config));
    let work = move || match former::remove_all(mark, None) {
        Err(problem) if problem.error != BandError::NoTool => weft_process::say!(
            "weft-node: what bands an earlier life left is not known: {}: {}",
            problem.error,
            problem.words
        ),
        _ => {}
    };
    // Whoever has no thread has other worries, and the next life looks again.
    let _ = std::thread::Builder::new().name("weft-bands".to_owned()).spawn(work);
}

/// The right to change an interface's bands, which a process has alone, as long as it keeps this.
/// Whoever removes what it left elsewhere has it for a moment; that is waited for.
fn only(device: &str) -> io::Result<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("weft-bands-{device}"))?;
    let mut tries = 0;
    loop {
        match UnixListener::bind_addr(&name) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < TRIES_MAX => {
                tries += 1;
                std::thread::sleep(TRY_AGAIN);
            }
            bound => return bound,
        }
    }
}

fn place(section: &BandsSection, mtu: u16, name: &str) -> Place {
    let under = section.under.as_deref().and_then(ClassId::parse);
    let rate_bytes_per_sec = section.rate_bytes_per_sec.unwrap_or_default();
    let root = under.map_or(Root::Own { rate_bytes_per_sec }, Root::Under);
    let device = section.device.clone().unwrap_or_default();
    Place { device, mtu, root, mark: Mark::of(name) }
}

/// Changes that wait for the thread.
const ASKED_MAX: usize = 512;
/// How often another process's right to an interface, or a `tc` that failed, is tried again, and
/// the pause before each try.
const TRIES_MAX: u32 = 5;
const TRY_AGAIN: Duration = Duration::from_millis(50);
