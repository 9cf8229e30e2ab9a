//! Boxes' streams: who may attach, what its messages tell the engine.

use tokio::sync::oneshot;
use weft_controller_engine::{NodeId, Reporter};
use weft_rpc::convert::{event, figures, hello as read_hello, train};
use weft_rpc::v1;

use super::{Core, Ended, NodeKey, Outbox, Peer, convert};

impl Core {
    pub(super) fn attach_node(
        &mut self,
        hello: &v1::NodeHello,
        outbox: Outbox<v1::Command>,
    ) -> Result<(NodeKey, Ended), v1::Refused> {
        let read = read_hello(hello)?;
        let attached = self.controller.handle_node(self.now_ns(), &read);
        let node = attached.map_err(convert::refused)?;
        self.streams += 1;
        let welcome = v1::NodeWelcome {
            telemetry_period_ns: self.telemetry_period_ns,
            probe_nonce: self.probe_nonce(),
        };
        let command = Some(v1::command::Command::Welcome(welcome));
        // The queue is new and empty.
        let _ = outbox.try_send(Ok(v1::Command { command }));
        let (end, ended) = oneshot::channel();
        self.nodes.insert(node, Peer { stream: self.streams, outbox, _end: end });
        weft_process::say!("weft-controller: box `{}` attached", hello.name);
        Ok((NodeKey { node, stream: self.streams }, ended))
    }

    pub(super) fn hear_node(&mut self, key: NodeKey, message: v1::node_message::Message) {
        use v1::node_message::Message;
        if self.nodes.get(&key.node).is_none_or(|peer| peer.stream != key.stream) {
            return;
        }
        let now_ns = self.now_ns();
        let outcome = match &message {
            Message::Hello(_) => Err(v1::Refused::new("hello", "was said already on this stream")),
            Message::Event(said) => match event(said) {
                Ok((job, event)) => {
                    let outcome = self.controller.handle_event(now_ns, key.node, job, &event);
                    outcome.map_err(convert::refused)
                }
                Err(invalid) => Err(invalid.into()),
            },
            Message::Train(said) => match train(said) {
                Ok(train) => {
                    let outcome = self.controller.handle_train(now_ns, key.node, &train);
                    outcome.map_err(convert::refused)
                }
                Err(invalid) => Err(invalid.into()),
            },
            Message::Telemetry(telemetry) => {
                // Whoever tells nonsense is heard all the same.
                let counters = convert::telemetry(telemetry);
                let of_link = self.controller.handle_telemetry(now_ns, key.node, &counters);
                let of_box = self.hear_figures(key.node, telemetry);
                of_link.map_err(convert::refused).and(of_box)
            }
            Message::ProbePort(port) => self.hear_port(Reporter::Box(key.node), port),
            Message::ProbeTrain(train) => self.hear_probe(now_ns, Reporter::Box(key.node), train),
        };
        if let Err(refused) = outcome
            && let Some(peer) = self.nodes.get(&key.node)
        {
            let command = Some(v1::command::Command::Refused(refused));
            // A box that reads nothing is dealt with by the next command.
            let _ = peer.outbox.try_send(Ok(v1::Command { command }));
        }
    }

    fn hear_figures(&mut self, node: NodeId, said: &v1::Telemetry) -> Result<(), v1::Refused> {
        let outcome = self.controller.handle_figures(node, &figures(said)?);
        outcome.map_err(convert::refused)
    }

    /// Tells a box; one that does not read is gone.
    pub(super) fn tell_node(&mut self, node: NodeId, command: v1::Command) {
        let Some(peer) = self.nodes.get(&node) else { return };
        if peer.outbox.try_send(Ok(command)).is_err() {
            self.snapshot.slow_peers += 1;
            self.nodes.remove(&node);
            self.controller.handle_node_gone(self.now_ns(), node);
        }
    }

    pub(super) fn node_gone(&mut self, key: NodeKey) {
        if self.nodes.get(&key.node).is_some_and(|peer| peer.stream == key.stream) {
            self.nodes.remove(&key.node);
            self.controller.handle_node_gone(self.now_ns(), key.node);
            weft_process::say!("weft-controller: the stream of box {} ended", key.node.0);
        }
    }
}
