//! Shared memory beside a node's port: opened if the configuration asks for it.

use weft_io::Port;
use weft_io::shm::ShmHost;

use crate::error::NodeError;
use crate::node::Node;

impl Node<'_> {
    /// Puts shared memory beside the port of lane 0.
    pub(crate) fn share<P: Port>(&self, port: P) -> Result<ShmHost<P>, NodeError> {
        if !self.settings.config.port.shm {
            return Ok(ShmHost::closed(port));
        }
        // Trains of push jobs go by when their frames arrived, which recycling forgets.
        let host = ShmHost::open(port, self.settings.table.local.addr)?
            .with_multicast(self.settings.config.port.multicast)
            .recycling(self.settings.config.push.is_empty());
        let is_first = self.shared.shm.set(host.counts()).is_ok();
        debug_assert!(is_first, "a node has one port of lane 0");
        Ok(host)
    }
}
