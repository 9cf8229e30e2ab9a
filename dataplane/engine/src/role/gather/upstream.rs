//! Another server in the place of one that died (SPEC#promotion).

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_wire::frame::Endpoint;
use weft_wire::{GroupId, MacAddr};

use super::channels::channel;
use super::job::Job;
use super::stats::Transition;

impl Job {
    /// Turns to another server, which was the replica (SPEC#promotion). What was gathered for the
    /// old one has no place in its order.
    pub(super) fn move_server(&mut self, server: SocketAddr) {
        if self.config.server.addr == server {
            return;
        }
        let target = Endpoint { mac: MacAddr::BROADCAST, addr: server };
        let opened = channel(&self.config, self.local, target, self.life);
        // An address of another family reaches nobody here: better the old server than none.
        let Ok(opened) = opened else { return };
        self.server = opened;
        self.replica = None;
        self.config.server = target;
        self.config.replica = None;
        self.renew_expected();
        self.relay.forget();
        let open: Vec<GroupId> = self.groups.iter().map(|group| group.id).collect();
        for group in open {
            self.groups.remove(&mut self.arena, group);
            self.stats.count(Transition::FreeByController);
        }
    }
}
