//! What a box tells a controller that knows nothing: roles, the next order number, the model's
//! version, open groups, what it holds for jobs. It follows from what the box began as, the
//! commands and the events; no lane is asked. Pure.
//!
//! An aggregator's lease may be freed by its server without an event, so its open groups are those
//! not yet replaced: a controller removes what it does not know.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_control::{BoxIndex, Command, Event, Holding, HoldingCommand, NodeHello, Role, RoleState};
use weft_wire::JobId;

/// What a box is in each of its jobs.
#[derive(Clone, Debug)]
pub struct NodeState {
    name: String,
    life: u64,
    roles: BTreeMap<JobId, RoleState>,
    holdings: BTreeSet<(JobId, Holding)>,
    /// Commands about push jobs that the lanes have not answered, in order: which box of the job
    /// it becomes, if any.
    asked: VecDeque<Option<BoxIndex>>,
    /// The bands that it has given to jobs, if it applies any.
    bands: Option<BTreeMap<JobId, u8>>,
}

impl NodeState {
    /// Of a box that begins in these roles, without open groups, and holds this; `life` is new with
    /// every start.
    #[must_use]
    pub fn new(
        name: String,
        life: u64,
        roles: impl IntoIterator<Item = RoleState>,
        holdings: impl IntoIterator<Item = (JobId, Holding)>,
    ) -> Self {
        Self {
            name,
            life,
            roles: roles.into_iter().map(|state| (state.job, state)).collect(),
            holdings: holdings.into_iter().collect(),
            asked: VecDeque::new(),
            bands: None,
        }
    }

    /// Of a box that applies bands, and has given none.
    #[must_use]
    pub fn with_bands(mut self) -> Self {
        self.bands = Some(BTreeMap::new());
        self
    }

    /// The hello as of now.
    #[must_use]
    pub fn hello(&self) -> NodeHello {
        let roles = self.roles.values().cloned().collect();
        let holdings = self.holdings.iter().copied().collect();
        let bands = self.bands.as_ref().map(|bands| bands.iter().map(|(j, b)| (*j, *b)).collect());
        NodeHello { name: self.name.clone(), life: self.life, roles, holdings, bands }
    }

    /// Notes what the lane is told.
    pub fn note_command(&mut self, command: &Command) {
        if let Some(state) = self.roles.get_mut(&command.job()) {
            state.note_command(command);
        }
        match command {
            Command::Holding(HoldingCommand::InstallPush(push)) => {
                self.asked.push_back(Some(push.box_index));
            }
            Command::Holding(HoldingCommand::RemovePush { .. }) => self.asked.push_back(None),
            _ => {}
        }
    }

    /// Notes what the lane reports.
    pub fn note_event(&mut self, job: JobId, event: &Event) {
        match *event {
            Event::HoldingInstalled { holding } => {
                self.holdings.insert((job, holding));
            }
            Event::HoldingRemoved { holding } => {
                self.holdings.remove(&(job, holding));
            }
            Event::BandSet { band } => {
                if let Some(bands) = &mut self.bands {
                    match band {
                        Some(band) => bands.insert(job, band),
                        None => bands.remove(&job),
                    };
                }
            }
            Event::BandLost { .. } => {
                if let Some(bands) = &mut self.bands {
                    bands.remove(&job);
                }
            }
            _ => {}
        }
        if event.holding() == Some(Holding::Push) {
            self.note_push(job, event);
        } else if let Event::StoodDown { .. } = event {
            // It is nothing in this job any more.
            self.roles.remove(&job);
        } else if let Some(state) = self.roles.get_mut(&job) {
            state.note_event(event);
        }
    }

    /// A box is an aggregator in the jobs whose pushes it gathers.
    fn note_push(&mut self, job: JobId, event: &Event) {
        let asked = self.asked.pop_front().flatten();
        match (event, asked) {
            (Event::HoldingInstalled { .. }, Some(index)) => {
                // Its address is as the controller knows it.
                let state = RoleState::new(job, Role::Aggregator, index, String::new());
                self.roles.insert(job, state);
            }
            (Event::HoldingRemoved { .. }, _) => {
                self.roles.remove(&job);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_control::{
        BoxIndex, Decision, GroupDescriptor, GroupMember, HoldingError, InstallError, OpenGroup,
        OrderNumber, PushConfig, Role, ServerEpoch, Version,
    };
    use weft_wire::frame::Endpoint;
    use weft_wire::header::ElementType;
    use weft_wire::hello::{Integrity, Overflow};
    use weft_wire::{GroupId, MacAddr, Members, Rank};

    use super::*;

    fn state() -> NodeState {
        let role = RoleState {
            next_order: OrderNumber(2),
            version: Version(5),
            ..RoleState::new(JobId(3), Role::Server, BoxIndex(0), "127.0.0.1:22341".into())
        };
        NodeState::new("s0".into(), 9, [role], [])
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
        let mut state = state();
        state.note_command(&install(GroupId::new(0, 1), 2));
        let promoted = Event::Promoted {
            epoch: ServerEpoch(1),
            applied: OrderNumber(2),
            order: OrderNumber(100),
            version: Version(6),
            momentum_norm: 2.5,
        };
        state.note_event(JobId(3), &promoted);
        let role = state.hello().roles[0].clone();
        assert_eq!((role.role, role.epoch), (Role::Server, ServerEpoch(1)));
        assert_eq!((role.next_order.0, role.version.0, role.open_groups.len()), (100, 6, 0));
        let epoch = ServerEpoch(2);
        state.note_event(JobId(3), &Event::StoodDown { epoch });
        assert!(state.hello().roles.is_empty(), "one that stood down is nothing any more");
    }

    #[test]
    fn a_replica_says_whether_it_could_take_over() {
        let mut state = state();
        let is_fit = |state: &NodeState| state.hello().roles[0].is_fit;
        assert!(!is_fit(&state));
        for fit in [true, false, true] {
            state.note_event(JobId(3), &Event::ReplicaFitness { is_fit: fit });
            assert_eq!(is_fit(&state), fit);
        }
    }

    #[test]
    fn a_server_says_whether_its_replica_was_met_and_left() {
        let mut state = state();
        let said = |state: &NodeState| {
            let role = state.hello().roles[0].clone();
            (role.has_met_replica, role.has_left_replica)
        };
        let at =
            |is_held| Event::ReplicaAt { order: OrderNumber(2), divergence_bound: 0.0, is_held };
        state.note_event(JobId(3), &at(false));
        assert_eq!(said(&state), (false, false));
        state.note_event(JobId(3), &at(true));
        assert_eq!(said(&state), (true, false));
        state.note_command(&Command::LeaveReplica { job: JobId(3) });
        state.note_event(JobId(3), &at(true));
        assert_eq!(said(&state), (true, true));
    }

    #[test]
    fn a_band_that_is_lost_is_none_that_the_box_has() {
        let mut state = state().with_bands();
        let (job, band) = (JobId(3), Some(2));
        let has = |state: &NodeState| state.hello().bands.expect("it applies bands");
        state.note_event(job, &Event::BandSet { band });
        assert_eq!(has(&state), [(job, 2)]);
        let error = weft_control::BandError::Foreign;
        state.note_event(job, &Event::BandRefused { band: Some(1), error });
        assert_eq!(has(&state), [(job, 2)], "nothing has changed");
        state.note_event(job, &Event::BandLost { band, error });
        assert_eq!(has(&state), []);
    }

    #[test]
    fn a_hello_tells_what_the_box_holds_of_its_file_and_of_later() {
        let job = JobId(5);
        let mut state = NodeState::new("a0".into(), 9, [], [(job, Holding::Job)]);
        let push = |job| {
            let endpoint = Endpoint { mac: MacAddr::BROADCAST, addr: ([10, 0, 0, 1], 5).into() };
            Command::Holding(HoldingCommand::InstallPush(PushConfig {
                job,
                box_index: BoxIndex(2),
                workers: Vec::new(),
                server: endpoint,
                replica: None,
                quota_bytes: 0,
                pull_cache_bytes: 0,
                chunks: 1,
                elements: 1,
                element_type: ElementType::I32,
                overflow: Overflow::Wrap,
                integrity: Integrity::None,
                exponent: None,
                rate_bytes_per_sec: None,
                burst_bytes: 0,
            }))
        };
        let remove = |job| Command::Holding(HoldingCommand::RemovePush { job });
        let roles = |state: &NodeState| {
            let roles = state.hello().roles;
            let facts = |state: &RoleState| (state.job.0, state.role, state.box_index.0);
            roles.iter().map(facts).collect::<Vec<_>>()
        };
        let holding = Holding::Push;
        // The answers come later than the commands, and in their order.
        [push(job), push(JobId(6)), push(job)].iter().for_each(|it| state.note_command(it));
        let error = HoldingError::Taken;
        state.note_event(job, &Event::HoldingInstalled { holding });
        state.note_event(JobId(6), &Event::HoldingInstalled { holding });
        state.note_event(job, &Event::HoldingRefused { holding, error });
        state.note_event(job, &Event::HoldingInstalled { holding: Holding::Row(7) });
        let aggregator = Role::Aggregator;
        let both = [(5, aggregator, 2), (6, aggregator, 2)];
        assert_eq!(roles(&state), both);
        let pushed = (job, Holding::Push);
        let held = [(job, Holding::Job), (job, Holding::Row(7)), pushed, (JobId(6), pushed.1)];
        assert_eq!(state.hello().holdings, held);
        [remove(job), remove(JobId(9))].iter().for_each(|it| state.note_command(it));
        state.note_event(job, &Event::HoldingRemoved { holding });
        state.note_event(JobId(9), &Event::HoldingRefused { holding, error });
        state.note_event(job, &Event::HoldingRemoved { holding: Holding::Job });
        assert_eq!(roles(&state), both[1..]);
        assert_eq!(state.hello().holdings, [held[1], held[3]]);
    }

    #[test]
    fn a_hello_tells_what_a_new_controller_must_know() {
        let mut state = state();
        let first = state.hello().roles[0].clone();
        assert_eq!((first.next_order.0, first.version.0, first.open_groups.len()), (2, 5, 0));
        let [decided, refused, open] = [0, 1, 2].map(|row| GroupId::new(row, 1));
        for (order, group) in [(2, decided), (3, refused), (4, open)] {
            state.note_command(&install(group, order));
        }
        let event = Event::Refused { group: refused, error: InstallError::Full };
        state.note_event(JobId(3), &event);
        let event = Event::Decided {
            group: decided,
            order: OrderNumber(2),
            decision: Decision::Committed(Version(6)),
            members: Members(1),
            norm: 1.0,
            momentum_norm: 2.5,
        };
        state.note_event(JobId(3), &event);
        let role = state.hello().roles[0].clone();
        assert_eq!((role.next_order.0, role.version.0, role.momentum_norm), (3, 6, 2.5));
        let open = OpenGroup { group: open, order: OrderNumber(4), members: Members(1) };
        assert_eq!(role.open_groups, [open]);
    }
}
