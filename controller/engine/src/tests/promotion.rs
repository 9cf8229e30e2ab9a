//! Servers that die for good, replicas that take over or are left (SPEC#promotion, DESIGN I9).

mod left;
mod lost;
mod restart;
mod takeover;

use alloc::string::String;
use alloc::vec::Vec;

use weft_control::{AckMode, Decision, OrderNumber, Role, ServerEpoch, Version};
use weft_wire::Rank;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A server, a replica, an aggregator and two workers, who say what the test says. Boxes that are
/// alive send telemetry.
struct Rig {
    controller: Controller,
    now_ns: u64,
    alive: Vec<&'static str>,
    commands: Vec<(String, Command)>,
    notices: Vec<Notice>,
    moved: Vec<(usize, String, u32)>,
    granted: Vec<Grant>,
    delivered: Vec<u64>,
}

const BOXES: [&str; 3] = ["s0", "r0", "a0"];

fn config(ack: AckMode) -> Config {
    let mut config = network(2, 100, 100);
    for name in ["r0", "a0"] {
        config.hosts.push(world::host(name, 100, 100));
    }
    let mut job = job(2);
    job.ack = ack;
    job.replica = Some("r0".into());
    job.aggregators = vec!["a0".into()];
    config.jobs = vec![job];
    config
}

fn role(name: &str, next_order: u64, version: u64, epoch: u32) -> RoleState {
    let (role, index) = match name {
        "s0" => (Role::Server, 0),
        "r0" if epoch > 0 => (Role::Server, 0),
        "r0" => (Role::Replica, 1),
        _ => (Role::Aggregator, 0),
    };
    let address = format!("10.0.0.{}:22341", name.as_bytes()[0]);
    RoleState {
        next_order: OrderNumber(next_order),
        version: Version(version),
        epoch: ServerEpoch(epoch),
        has_met_replica: name == "s0",
        ..RoleState::new(JobId(0), role, weft_control::BoxIndex(index), address)
    }
}

/// The replica's, once it was level with its server.
fn successor(next_order: u64, version: u64) -> RoleState {
    RoleState { is_fit: true, ..role("r0", next_order, version, 0) }
}

impl Rig {
    fn new(ack: AckMode) -> Self {
        Self::with_saved(ack, &Saved::fresh(7))
    }

    fn with_saved(ack: AckMode, saved: &Saved) -> Self {
        Self::of(config(ack), saved)
    }

    fn of(config: Config, saved: &Saved) -> Self {
        let controller = Controller::new(config, saved, built_in_policies()).unwrap();
        Self {
            controller,
            now_ns: 0,
            alive: Vec::new(),
            commands: Vec::new(),
            notices: Vec::new(),
            moved: Vec::new(),
            granted: Vec::new(),
            delivered: Vec::new(),
        }
    }

    fn attached(ack: AckMode) -> Self {
        let mut rig = Self::new(ack);
        rig.attach_all();
        rig
    }

    fn attach_all(&mut self) {
        for name in BOXES {
            self.attach(name, 1, role(name, 0, 0, 0));
        }
        self.attach_workers();
        self.event("r0", Event::ReplicaFitness { is_fit: true }).unwrap();
    }

    fn attach_workers(&mut self) {
        for rank in 0..2 {
            let rank = Rank::new(rank).unwrap();
            self.controller.handle_worker(JobId(0), rank, 1, None).unwrap();
        }
    }

    fn attach(&mut self, name: &'static str, life: u64, role: RoleState) {
        let hello = NodeHello {
            name: name.into(),
            life,
            roles: vec![role],
            holdings: Vec::new(),
            bands: None,
        };
        self.controller.handle_node(self.now_ns, &hello).unwrap();
        self.alive.retain(|alive| *alive != name);
        self.alive.push(name);
        self.settle();
    }

    /// It says nothing any more.
    fn dies(&mut self, name: &str) {
        self.alive.retain(|alive| *alive != name);
    }

    fn id(&self, name: &str) -> NodeId {
        let at = self.controller.nodes.iter().position(|node| node.name() == name).unwrap();
        NodeId(u16::try_from(at).unwrap())
    }

    fn event(&mut self, name: &str, event: Event) -> Result<(), Refusal> {
        let node = self.id(name);
        let taken = self.controller.handle_event(self.now_ns, node, JobId(0), &event);
        self.settle();
        taken
    }

    fn settle(&mut self) {
        self.controller.handle_timeout(self.now_ns);
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Command { node, command } => {
                    let name: String = self.controller.nodes[node.index()].name().into();
                    self.commands.push((name, command));
                }
                Action::Notice { notice, .. } => self.notices.push(notice),
                Action::Probe { .. }
                | Action::Held { .. }
                | Action::State { .. }
                | Action::Rounds { .. }
                | Action::Resized { .. }
                | Action::Settled { .. }
                | Action::Unpaused { .. } => {}
                Action::Reply { rank, reply, .. } => match reply {
                    Reply::ServerMoved { address, epoch } => {
                        self.moved.push((rank.index(), address, epoch.0));
                    }
                    Reply::Grant(grant) => self.granted.push(grant),
                    Reply::Delivered { update_id, .. } => self.delivered.push(update_id),
                    Reply::Drop { .. } | Reply::Release { .. } => {}
                },
            }
        }
    }

    /// Time passes; boxes that are alive speak every 100 ms, and take groups.
    fn run_for(&mut self, span_ns: u64) {
        for _ in 0..span_ns / (SECOND / 10) {
            self.now_ns += SECOND / 10;
            for name in self.alive.clone() {
                let node = self.id(name);
                let telemetry = Telemetry { at_ns: self.now_ns, ..Telemetry::default() };
                self.controller.handle_telemetry(self.now_ns, node, &telemetry).unwrap();
            }
            self.settle();
        }
    }

    fn ask(&mut self, rank: u8, update_id: u64, version: u64) {
        let request = TransferRequest {
            update_id,
            size_bytes: 0,
            version: Version(version),
            norm: 1.0,
            max_abs: 1.0,
        };
        let rank = Rank::new(rank).unwrap();
        self.controller.handle_request(self.now_ns, JobId(0), rank, &request).unwrap();
        self.settle();
    }

    /// Every box that was told of a group takes it.
    fn install(&mut self) {
        for (name, command) in self.commands.clone() {
            if let Command::Install(group) = command {
                let _ = self.event(&name, Event::Installed { group: group.group });
            }
        }
    }

    fn promote_command(&self) -> Option<(ServerEpoch, OrderNumber)> {
        self.commands.iter().rev().find_map(|(name, command)| match command {
            Command::Promote { epoch, order, .. } if name == "r0" => Some((*epoch, *order)),
            _ => None,
        })
    }

    fn promoted(&mut self, applied: u64, version: u64) {
        let (epoch, order) = self.promote_command().unwrap();
        let event = Event::Promoted {
            epoch,
            applied: OrderNumber(applied),
            order,
            version: Version(version),
            momentum_norm: 0.5,
        };
        self.event("r0", event).unwrap();
    }

    fn status(&self) -> JobStatus {
        self.controller.status(self.now_ns).jobs[0].clone()
    }
}

fn decided(rig: &Rig, group: GroupId, order: u64, version: u64) -> Event {
    let members = rig.controller.groups[&group].mask();
    Event::Decided {
        group,
        order: OrderNumber(order),
        decision: Decision::Committed(Version(version)),
        members,
        norm: 1.0,
        momentum_norm: 1.0,
    }
}
