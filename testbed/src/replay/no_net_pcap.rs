//! What a build without DPDK says when a recording is to go through net_pcap.

use std::cell::RefCell;
use std::rc::Rc;

use weft_io::PortInfo;

use super::load::{Recording, ReplayError};
use super::options::Outcome;
use super::port::ScriptPort;
use super::recorded::Recorded;

/// There are none.
#[derive(Debug)]
pub(super) enum Devices {}

impl Devices {
    /// Refuses.
    pub(super) fn open(_recording: &Recording) -> Result<Self, ReplayError> {
        Err(ReplayError::NoDpdk)
    }

    /// Cannot be asked.
    pub(super) fn port(
        &mut self,
        _lane: usize,
        _script: &Rc<RefCell<Recorded>>,
        _info: PortInfo,
        _merges: bool,
    ) -> ScriptPort<Recorded> {
        match *self {}
    }

    /// Cannot be asked.
    pub(super) fn finish(self, _outcome: &mut Outcome) -> Result<(), ReplayError> {
        match self {}
    }
}
