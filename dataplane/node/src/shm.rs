//! Shared memory beside a node's ports: opened if the configuration asks for it.

use weft_io::Port;
use weft_io::shm::{ShmHost, user_id};

use crate::error::NodeError;
use crate::node::Node;

impl Node<'_> {
    /// Puts shared memory beside the port of lane 0, which reads for all lanes.
    pub(crate) fn share<P: Port>(&self, port: P) -> Result<ShmHost<P>, NodeError> {
        let mut hosts = self.share_each(vec![port])?;
        Ok(hosts.remove(0))
    }

    /// Puts shared memory beside the port of each lane.
    pub(crate) fn share_each<P: Port>(&self, ports: Vec<P>) -> Result<Vec<ShmHost<P>>, NodeError> {
        if !self.settings.config.port.shm {
            return Ok(ports.into_iter().map(ShmHost::closed).collect());
        }
        // A worker that is let in by the first lane finds all others.
        let lanes = (0..).zip(ports).collect::<Vec<_>>().into_iter().rev();
        let hosts = lanes.map(|(lane, port)| self.share_lane(port, lane));
        let mut hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        hosts.reverse();
        let is_first = self.shared.shm.set(hosts.iter().map(ShmHost::counts).collect()).is_ok();
        debug_assert!(is_first, "a node opens its ports once");
        Ok(hosts)
    }

    fn share_lane<P: Port>(&self, port: P, lane: u16) -> Result<ShmHost<P>, NodeError> {
        let mut addr = self.settings.table.local.addr;
        addr.set_port(addr.port() + lane);
        // Trains of push jobs go by when their frames arrived, which recycling forgets.
        let users = self.settings.config.port.shm_users.iter().map(|name| {
            user_id(name).ok_or_else(|| {
                let problem = "port.shm_users: this host has no user";
                NodeError::Environment(format!("{problem} `{name}`; correct it, or remove it"))
            })
        });
        Ok(ShmHost::open_for(port, addr, &users.collect::<Result<Vec<_>, _>>()?)?
            .with_multicast(self.settings.config.port.multicast)
            .recycling(self.settings.config.push.is_empty()))
    }
}
