//! Probe trains: whom the engine has send them, and what their receivers tell.

use weft_controller_engine::Reporter;
use weft_rpc::v1;

use super::{Core, convert};

impl Core {
    pub(super) fn probe(&mut self, from: Reporter, probe: v1::Probe) {
        match from {
            // One that does not read is dealt with by the next command.
            Reporter::Box(node) => {
                let command = Some(v1::command::Command::Probe(probe));
                if let Some(peer) = self.nodes.get(&node) {
                    let _ = peer.outbox.try_send(Ok(v1::Command { command }));
                }
            }
            Reporter::Worker(job, rank) => {
                self.reply(job, rank, v1::worker_reply::Message::Probe(probe));
            }
        }
    }

    /// What datagrams of probe trains carry; 0 when there are none.
    pub(super) fn probe_nonce(&self) -> u64 {
        if self.controller.wants_probes() { self.nonce } else { 0 }
    }

    pub(super) fn hear_port(
        &mut self,
        from: Reporter,
        port: &v1::ProbePort,
    ) -> Result<(), v1::Refused> {
        let address = port
            .address
            .parse()
            .map_err(|_| v1::Refused::new("address", "must be \"address:port\""))?;
        let outcome = self.controller.handle_probe_port(from, address);
        outcome.map_err(convert::refused)
    }

    pub(super) fn hear_probe(
        &mut self,
        now_ns: u64,
        from: Reporter,
        train: &v1::ProbeTrain,
    ) -> Result<(), v1::Refused> {
        let train = convert::probe_train(train)?;
        let outcome = self.controller.handle_probe_train(now_ns, from, &train);
        outcome.map_err(convert::refused)
    }
}
