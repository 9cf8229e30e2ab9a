//! What a box tells a controller that knows nothing: roles, the next order number, the model's
//! version, open groups. It follows from what the box began as, the commands and the events; no
//! lane is asked. Pure.
//!
//! An aggregator's lease may be freed by its server without an event, so its open groups are those
//! not yet replaced: a controller removes what it does not know.

use std::collections::BTreeMap;

use weft_control::{Command, Decision, Event, NodeHello, OpenGroup, OrderNumber, Role, RoleState};
use weft_wire::{GroupId, JobId};

/// The box's word on itself.
#[derive(Clone, Debug)]
pub struct Book {
    name: String,
    life: u64,
    roles: BTreeMap<JobId, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    state: RoleState,
    /// By row: a row has one group at a time.
    open: BTreeMap<u16, OpenGroup>,
}

impl Known {
    fn end(&mut self, group: GroupId) {
        if self.open.get(&group.row()).is_some_and(|open| open.group == group) {
            self.open.remove(&group.row());
        }
    }
}

impl Book {
    /// Of a box that begins in these roles, without open groups; `life` is new with every start.
    #[must_use]
    pub fn new(name: String, life: u64, roles: impl IntoIterator<Item = RoleState>) -> Self {
        let known = |state: RoleState| (state.job, Known { state, open: BTreeMap::new() });
        Self { name, life, roles: roles.into_iter().map(known).collect() }
    }

    /// The hello as of now.
    #[must_use]
    pub fn hello(&self) -> NodeHello {
        let roles = self.roles.values().map(|known| RoleState {
            open_groups: known.open.values().copied().collect(),
            ..known.state.clone()
        });
        NodeHello { name: self.name.clone(), life: self.life, roles: roles.collect() }
    }

    /// Notes what the lane is told.
    pub fn note_command(&mut self, command: &Command) {
        let Some(known) = self.roles.get_mut(&command.job()) else { return };
        match command {
            Command::Install(group) => {
                let (id, order) = (group.group, group.order);
                let open = OpenGroup { group: id, order, members: group.mask() };
                known.open.insert(id.row(), open);
            }
            // A server still has to decide it; the event tells.
            Command::Remove { group, .. } if known.state.role == Role::Aggregator => {
                known.end(*group);
            }
            // Its groups end with the old server.
            Command::MoveServer { .. } => known.open.clear(),
            // Whoever asks later must know: nobody may take this server's place.
            Command::LeaveReplica { .. } if known.state.role == Role::Server => {
                known.state.has_left_replica = true;
            }
            Command::Remove { .. }
            | Command::LeaveReplica { .. }
            | Command::CloseMember { .. }
            | Command::SetRate { .. }
            | Command::Skip { .. }
            | Command::Promote { .. }
            | Command::StandDown { .. }
            | Command::Holding(_) => {}
        }
    }

    /// Notes what the lane reports.
    pub fn note_event(&mut self, job: JobId, event: &Event) {
        if let Event::StoodDown { .. } = event {
            // It is nothing in this job any more.
            self.roles.remove(&job);
        }
        let Some(known) = self.roles.get_mut(&job) else { return };
        let state = &mut known.state;
        match *event {
            Event::Heir { is_fit } => state.is_fit = is_fit,
            // Held is a distance to a replica that was met.
            Event::ReplicaAt { is_held, .. } => state.has_met_replica |= is_held,
            Event::Promoted { epoch, order, version, momentum_norm, .. } => {
                (state.role, state.box_index.0, state.epoch) = (Role::Server, 0, epoch);
                state.is_fit = false;
                (state.next_order, state.version) = (order, version);
                state.momentum_norm = momentum_norm;
                known.open.clear();
            }
            Event::Refused { group, .. } => known.end(group),
            Event::Decided { group, order, decision, momentum_norm, .. } => {
                // One that is told again says nothing new.
                if order >= state.next_order {
                    state.next_order = OrderNumber(order.0.saturating_add(1));
                    state.momentum_norm = momentum_norm;
                    if let Decision::Committed(version) = decision {
                        state.version = version;
                    }
                }
                known.end(group);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_control::{
        BoxIndex, GroupDescriptor, GroupMember, InstallError, ServerEpoch, Version,
    };
    use weft_wire::header::ElementType;
    use weft_wire::{Members, Rank};

    use super::*;

    fn book() -> Book {
        let state = RoleState {
            next_order: OrderNumber(2),
            version: Version(5),
            ..RoleState::new(JobId(3), Role::Server, BoxIndex(0), "127.0.0.1:22341".into())
        };
        Book::new("s0".into(), 9, [state])
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
            epoch: ServerEpoch(1),
            applied: OrderNumber(2),
            order: OrderNumber(100),
            version: Version(6),
            momentum_norm: 2.5,
        };
        book.note_event(JobId(3), &promoted);
        let role = book.hello().roles[0].clone();
        assert_eq!((role.role, role.epoch), (Role::Server, ServerEpoch(1)));
        assert_eq!((role.next_order.0, role.version.0, role.open_groups.len()), (100, 6, 0));
        let epoch = ServerEpoch(2);
        book.note_event(JobId(3), &Event::StoodDown { epoch });
        assert!(book.hello().roles.is_empty(), "one that stood down is nothing any more");
    }

    #[test]
    fn a_replica_says_whether_it_could_take_over() {
        let mut book = book();
        let is_fit = |book: &Book| book.hello().roles[0].is_fit;
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
            let role = book.hello().roles[0].clone();
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
        let first = book.hello().roles[0].clone();
        assert_eq!((first.next_order.0, first.version.0, first.open_groups.len()), (2, 5, 0));
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
        let role = book.hello().roles[0].clone();
        assert_eq!((role.next_order.0, role.version.0, role.momentum_norm), (3, 6, 2.5));
        let open = OpenGroup { group: open, order: OrderNumber(4), members: Members(1) };
        assert_eq!(role.open_groups, [open]);
    }
}
