//! What the node tells a controller that knows nothing: roles, the next order number, the model's
//! version, open groups. It follows from the configuration, the commands and the events; no lane is
//! asked. Pure.
//!
//! An aggregator's lease may be freed by its server without an event, so its open groups are those
//! not yet replaced: a controller removes what it does not know.

use std::collections::BTreeMap;

use weft_config::node::NodeConfig;
use weft_control::{Command, Decision, Event};
use weft_rpc::v1;
use weft_wire::JobId;

use crate::durable::Resumed;

/// The node's word on itself.
#[derive(Clone, Debug)]
pub struct Book {
    name: String,
    life: u64,
    roles: BTreeMap<JobId, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    state: v1::JobRole,
    /// By row: a row has one group at a time.
    open: BTreeMap<u16, v1::OpenGroup>,
}

impl Book {
    /// From a configuration; `life` is new with every start.
    #[must_use]
    pub fn new(config: &NodeConfig, name: String, life: u64) -> Self {
        let address =
            std::net::SocketAddr::new(config.port.ip.ip, config.port.udp_port).to_string();
        let role = |job: u16, role: v1::Role, box_index: u8, next_order: u64, version: u64| {
            let state = v1::JobRole {
                job: job.into(),
                role: role.into(),
                box_index: box_index.into(),
                address: address.clone(),
                next_order,
                version,
                momentum_norm: 0.0,
                open_groups: Vec::new(),
                epoch: 0,
                is_fit: false,
                has_met_replica: false,
                has_left_replica: false,
            };
            (JobId(job), Known { state, open: BTreeMap::new() })
        };
        let servers = config
            .server
            .iter()
            .map(|job| role(job.job, v1::Role::Server, 0, job.initial_order, job.initial_version));
        let replicas = config.replica.iter().map(|job| {
            let order = job.initial_order;
            role(job.job, v1::Role::Replica, job.box_index, order, job.initial_version)
        });
        let aggregators = (config.push.iter())
            .map(|job| role(job.job, v1::Role::Aggregator, job.box_index, 0, 0));
        Self { name, life, roles: servers.chain(replicas).chain(aggregators).collect() }
    }

    /// Goes on where former lives stopped.
    #[must_use]
    pub fn resume(mut self, resumed: &[Resumed]) -> Self {
        for job in resumed {
            if let Some(known) = self.roles.get_mut(&job.job) {
                known.state.next_order = job.next_order.0;
                known.state.version = job.version.0;
                known.state.momentum_norm = job.momentum_norm;
            }
        }
        self
    }

    /// The hello as of now.
    #[must_use]
    pub fn hello(&self, events_lost: u64) -> v1::NodeHello {
        let roles = self.roles.values().map(|known| v1::JobRole {
            open_groups: known.open.values().copied().collect(),
            ..known.state.clone()
        });
        v1::NodeHello {
            name: self.name.clone(),
            version: crate::cli::VERSION.to_owned(),
            roles: roles.collect(),
            life: self.life,
            events_lost,
        }
    }

    /// Notes what the lane is told.
    pub fn note_command(&mut self, command: &Command) {
        match command {
            Command::Install(group) => {
                let open = v1::OpenGroup {
                    group: group.group.0,
                    order: group.order.0,
                    members: group.mask().0,
                };
                if let Some(known) = self.roles.get_mut(&group.job) {
                    known.open.insert(group.group.row(), open);
                }
            }
            Command::Remove { job, group } => {
                // A server still has to decide it; the event tells.
                if let Some(known) = self.roles.get_mut(job)
                    && known.state.role() == v1::Role::Aggregator
                    && known.open.get(&group.row()).is_some_and(|open| open.group == group.0)
                {
                    known.open.remove(&group.row());
                }
            }
            // Its groups end with the old server.
            Command::MoveServer { job, .. } => {
                if let Some(known) = self.roles.get_mut(job) {
                    known.open.clear();
                }
            }
            Command::CloseMember { .. }
            | Command::SetRate { .. }
            | Command::Skip { .. }
            | Command::Promote { .. }
            | Command::StandDown { .. } => {}
            // Whoever asks later must know: nobody may take this server's place.
            Command::LeaveReplica { job } => {
                if let Some(known) = self.roles.get_mut(job)
                    && known.state.role() == v1::Role::Server
                {
                    known.state.has_left_replica = true;
                }
            }
        }
    }

    /// Notes what the lane reports.
    pub fn note_event(&mut self, job: JobId, event: &Event) {
        if let Event::StoodDown { .. } = event {
            // It is nothing in this job any more.
            self.roles.remove(&job);
        }
        let Some(known) = self.roles.get_mut(&job) else { return };
        let ended = match *event {
            Event::Heir { is_fit } => {
                known.state.is_fit = is_fit;
                return;
            }
            // Held is a distance to a replica that was met.
            Event::ReplicaAt { is_held, .. } => {
                known.state.has_met_replica |= is_held;
                return;
            }
            Event::Promoted { epoch, order, version, momentum_norm, .. } => {
                known.state.set_role(v1::Role::Server);
                (known.state.box_index, known.state.epoch) = (0, epoch.0);
                known.state.is_fit = false;
                (known.state.next_order, known.state.version) = (order.0, version.0);
                known.state.momentum_norm = momentum_norm;
                known.open.clear();
                return;
            }
            Event::Refused { group, .. } => group,
            Event::Decided { group, order, decision, momentum_norm, .. } => {
                // One that is told again says nothing new.
                if order.0 >= known.state.next_order {
                    known.state.next_order = order.0.saturating_add(1);
                    known.state.momentum_norm = momentum_norm;
                    if let Decision::Committed(version) = decision {
                        known.state.version = version.0;
                    }
                }
                group
            }
            _ => return,
        };
        if known.open.get(&ended.row()).is_some_and(|open| open.group == ended.0) {
            known.open.remove(&ended.row());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use weft_config::node::{Io, PortSection, ServerSection};
    use weft_control::{GroupDescriptor, GroupMember, InstallError, OrderNumber, Version};
    use weft_wire::header::ElementType;
    use weft_wire::{GroupId, Members, Rank};

    use super::*;

    fn book() -> Book {
        let workers = vec!["127.0.0.2:7000".parse().unwrap()];
        let server = ServerSection {
            initial_version: 5,
            initial_order: 2,
            ..ServerSection::new(3, workers, 10)
        };
        let port = PortSection::new(Io::Udp, IpAddr::from([127, 0, 0, 1]));
        let config = NodeConfig { server: vec![server], ..NodeConfig::new(port) };
        Book::new(&config, "s0".into(), 9)
    }

    fn install(group: GroupId, order: u64) -> Command {
        let member = GroupMember { rank: Rank::new(0).unwrap(), version: Version(5) };
        Command::Install(GroupDescriptor {
            job: JobId(3),
            group,
            order: OrderNumber(order),
            members: vec![member],
            chunks: 1,
            element_type: ElementType::I32,
            elements: 256,
            exponent: 0,
            via: None,
            replicate: false,
            rate_bytes_per_sec: None,
            after: None,
            train_chunks: 0,
            lateness_ns: 0,
        })
    }

    #[test]
    fn a_promoted_replica_says_that_it_is_the_server() {
        let mut book = book();
        book.note_command(&install(GroupId::new(0, 1), 2));
        let promoted = Event::Promoted {
            epoch: weft_control::ServerEpoch(1),
            applied: OrderNumber(2),
            order: OrderNumber(100),
            version: Version(6),
            momentum_norm: 2.5,
        };
        book.note_event(JobId(3), &promoted);
        let role = book.hello(0).roles[0].clone();
        assert_eq!((role.role(), role.epoch), (v1::Role::Server, 1));
        assert_eq!((role.next_order, role.version, role.open_groups.len()), (100, 6, 0));
        let epoch = weft_control::ServerEpoch(2);
        book.note_event(JobId(3), &Event::StoodDown { epoch });
        assert!(book.hello(0).roles.is_empty(), "one that stood down is nothing any more");
    }

    #[test]
    fn a_replica_says_whether_it_could_take_over() {
        let mut book = book();
        let is_fit = |book: &Book| book.hello(0).roles[0].is_fit;
        assert!(!is_fit(&book));
        for fit in [true, false, true] {
            book.note_event(JobId(3), &Event::Heir { is_fit: fit });
            assert_eq!(is_fit(&book), fit);
        }
    }

    #[test]
    fn a_server_says_whether_its_replica_was_met_and_left() {
        let mut book = book();
        let said = |book: &Book| {
            let role = book.hello(0).roles[0].clone();
            (role.has_met_replica, role.has_left_replica)
        };
        let at =
            |is_held| Event::ReplicaAt { order: OrderNumber(2), divergence_bound: 0.0, is_held };
        book.note_event(JobId(3), &at(false));
        assert_eq!(said(&book), (false, false));
        book.note_event(JobId(3), &at(true));
        assert_eq!(said(&book), (true, false));
        book.note_command(&Command::LeaveReplica { job: JobId(3) });
        book.note_event(JobId(3), &at(true));
        assert_eq!(said(&book), (true, true));
    }

    #[test]
    fn a_hello_tells_what_a_new_controller_must_know() {
        let mut book = book();
        let first = book.hello(0).roles[0].clone();
        assert_eq!((first.next_order, first.version, first.open_groups.len()), (2, 5, 0));
        let [decided, refused, open] = [0, 1, 2].map(|row| GroupId::new(row, 1));
        for (order, group) in [(2, decided), (3, refused), (4, open)] {
            book.note_command(&install(group, order));
        }
        let event = Event::Refused { group: refused, error: InstallError::Full };
        book.note_event(JobId(3), &event);
        let event = Event::Decided {
            group: decided,
            order: OrderNumber(2),
            decision: Decision::Committed(Version(6)),
            members: Members(1),
            norm: 1.0,
            momentum_norm: 2.5,
        };
        book.note_event(JobId(3), &event);
        let role = book.hello(0).roles[0].clone();
        assert_eq!((role.next_order, role.version, role.momentum_norm), (3, 6, 2.5));
        let open = v1::OpenGroup { group: open.0, order: 4, members: 1 };
        assert_eq!(role.open_groups, [open]);
    }
}
