//! The scripted controller: groups what is requested by seed, installs and grants it, and promotes
//! the replica.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use weft_control::{
    Command, Event, GroupDescriptor, GroupMember, OrderNumber, ServerEpoch, Version,
};
use weft_wire::rows::ROW_DIRECT;
use weft_wire::{GroupId, Nanos, Rank};

use super::judge::Ruling;
use super::{BOX, ELEMENTS, EXPONENT, JOB, REPLICA, World, addr, learnt};
use crate::role::push::{Grant, Segment};

/// What a granted update is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) rank: u8,
    pub(super) number: u64,
    pub(super) version: Version,
}

impl World {
    /// The controller: groups of what is requested, in the order of the requests.
    pub(super) fn plan(&mut self) {
        if self.now < self.plan_at {
            return;
        }
        self.plan_at = Nanos::MAX;
        while !self.requests.is_empty() {
            let most = if self.aggregator.is_some() { self.setup.group_max as u64 } else { 1 };
            let size = 1 + self.random.next_u64() % most;
            let mut taken = BTreeSet::new();
            let mut group: Vec<Request> = Vec::new();
            while group.len() < usize::try_from(size).unwrap()
                && let Some(request) = self.requests.front().copied()
                && taken.insert(request.rank)
            {
                self.requests.pop_front();
                group.push(request);
            }
            self.install(&group);
        }
    }

    fn install(&mut self, requests: &[Request]) {
        let row = u16::try_from(self.next_group % 64).unwrap();
        let id = GroupId::new(row, u16::try_from(self.next_group / 64).unwrap());
        self.next_group += 1;
        let alone = requests.len() == 1 && self.random.next_u64().is_multiple_of(2);
        let via = (!alone && self.aggregator.is_some()).then_some(BOX);
        let member = |request: &Request| GroupMember {
            rank: Rank::new(request.rank).unwrap(),
            version: request.version,
        };
        let descriptor = GroupDescriptor {
            job: JOB,
            group: id,
            order: OrderNumber(self.next_order),
            members: requests.iter().map(member).collect(),
            chunks: self.setup.model().chunks(),
            element_type: self.setup.element_type,
            elements: ELEMENTS,
            exponent: EXPONENT,
            via,
            replicate: true,
            rate_bytes_per_sec: None,
            after: None,
            train_chunks: 8,
            lateness_ns: 3_000_000_000,
        };
        self.orders.insert(id, self.next_order);
        self.descriptors.insert(self.next_order, descriptor.clone());
        self.next_order += 1;
        let now = self.now;
        let install = Command::Install(descriptor.clone());
        match &mut self.successor {
            Some(successor) => successor.handle_command(now, install),
            None => self.server.handle_command(now, install),
        }
        let event = self.poll_server().expect("a command is answered");
        // What is queued before the answer is the judge's too.
        let mut event = event;
        while !matches!(event, Event::Installed { .. } | Event::Refused { .. }) {
            if let Event::Decided { group, order, decision, members, .. } = event {
                let members = members.0;
                self.rulings.push(Ruling { group, order: order.0, decision, members });
            }
            event = self.poll_server().expect("a command is answered");
        }
        assert!(matches!(event, Event::Installed { .. }), "{event:?}");
        if let Some(replica) = &mut self.replica {
            replica.handle_command(now, Command::Install(descriptor.clone()));
        }
        if let (Some(aggregator), Some(_)) = (&mut self.aggregator, via) {
            aggregator.gather_mut().handle_command(&Command::Install(descriptor));
        }
        self.groups.insert(id, requests.iter().map(|request| request.rank).collect());
        let segment = Segment { is_open: true, rate_bytes_per_sec: 0 };
        for request in requests {
            let grant = Grant {
                group: id,
                via,
                exponent: EXPONENT,
                member_count: u32::try_from(requests.len()).unwrap(),
                segments: ArrayVec::from_iter([segment]),
                replicate: true,
                train_chunks: 8,
            };
            self.in_group.insert((id, request.rank), (request.number, request.version));
            let worker = &mut self.workers[usize::from(request.rank)];
            worker.pusher.handle_grant(now, request.number, &grant).unwrap();
        }
    }

    /// The controller gives the server the groups again that it has not decided.
    pub(crate) fn install_open(&mut self) {
        let next = self.server.model(JOB).unwrap().next_order.0;
        let open: Vec<GroupDescriptor> =
            self.descriptors.range(next..).map(|(_, open)| open.clone()).collect();
        for descriptor in open {
            self.server.handle_command(self.now, Command::Install(descriptor));
        }
        self.poll_events();
    }

    /// The server is dead for good, and the replica takes over: the judge forgets what only the
    /// server knew. What of it was told is found at the end.
    pub(crate) fn promote(&mut self) {
        self.poll_events();
        let order = self.next_order + 100;
        let mut successor = self.replica.take().unwrap();
        let epoch = ServerEpoch(1);
        let promote = Command::Promote { job: JOB, epoch, order: OrderNumber(order) };
        successor.handle_command(self.now, promote.clone());
        let mut last = None;
        while let Some((_, event)) = successor.poll_event() {
            last = Some(event);
        }
        let Some(Event::Promoted { applied, version, .. }) = last else { panic!("{last:?}") };
        assert_eq!(successor.model(JOB).unwrap().next_order, OrderNumber(order));
        // The answer may be lost: it is given again.
        successor.handle_command(self.now, promote);
        assert_eq!(successor.poll_event(), last.map(|event| (JOB, event)));
        for ruling in self.rulings.split_off(usize::try_from(applied.0).unwrap()) {
            if let Some(rank) = ruling.group.row().checked_sub(ROW_DIRECT) {
                // Its worker will announce it again.
                let sent = self.in_group[&(ruling.group, u8::try_from(rank).unwrap())];
                self.workers[usize::from(rank)].sent_direct.push_front(sent);
            }
        }
        self.resumed = Some((applied.0, order));
        self.history.retain(|known, _| *known <= version.0);
        self.descriptors.clear();
        self.next_order = order;
        self.successor = Some(successor);
        self.disk.clear();
        if let Some(aggregator) = &mut self.aggregator {
            let server = addr(REPLICA);
            aggregator.gather_mut().handle_command(&Command::MoveServer { job: JOB, server });
        }
        for worker in &mut self.workers {
            worker.pusher.move_server(self.now, learnt(REPLICA)).unwrap();
        }
    }
}

/// How long the controller waits for further requests.
pub(super) const GATHER_NS: u64 = 15_000_000;
