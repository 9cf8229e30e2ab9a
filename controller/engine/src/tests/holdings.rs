//! What boxes are told to hold: told once, answered once.

mod restarts;

use alloc::string::ToString;
use alloc::vec;

use weft_control::{
    BoxIndex, Command, Event, Holding, HoldingCommand, HoldingError, JobConfig as Share, PushConfig,
};
use weft_wire::MacAddr;
use weft_wire::frame::Endpoint;
use weft_wire::header::ElementType;
use weft_wire::hello::{Integrity, Overflow};

use super::*;

struct Rig {
    controller: Controller,
    node: NodeId,
}

impl Rig {
    /// A controller of two boxes, of which the aggregator is there.
    fn new() -> Self {
        let mut config = network(1, 100, 100);
        config.nodes.push(world::node("a0", "s0"));
        config.jobs = vec![job(1)];
        let saved = Saved::fresh(7);
        let mut controller = Controller::new(config, &saved, policies()).unwrap();
        let node = attach(&mut controller, 1);
        Self { controller, node }
    }

    /// What it wants done about holdings.
    fn actions(&mut self) -> Vec<Action> {
        let all = core::iter::from_fn(|| self.controller.poll_action());
        let is_it = |action: &Action| match action {
            Action::Command { command, .. } => matches!(command, Command::Holding(_)),
            Action::Held { .. } => true,
            _ => false,
        };
        all.filter(is_it).collect()
    }

    fn report(&mut self, event: Event) {
        self.controller.handle_event(2, self.node, JobId(9), &event).unwrap();
    }
}

fn attach(controller: &mut Controller, life: u64) -> NodeId {
    let hello =
        NodeHello { name: "a0".into(), life, roles: Vec::new(), holdings: Vec::new(), bands: None };
    controller.handle_node(1, &hello).unwrap()
}

/// Of a job that the controller does not have: nobody pushes in it.
fn share() -> HoldingCommand {
    let job = JobId(9);
    HoldingCommand::InstallJob(Share {
        job,
        slots_max: 4,
        rate_bytes_per_sec: None,
        burst_bytes: 0,
    })
}

fn lease() -> HoldingCommand {
    HoldingCommand::RemoveLease { job: JobId(9), row: 5 }
}

#[test]
fn a_box_is_told_once_and_its_answer_is_passed_on_once() {
    let mut rig = Rig::new();
    rig.controller.hold("a0", share()).unwrap();
    rig.controller.hold("a0", lease()).unwrap();
    let node = rig.node;
    let told = [share(), lease()].map(Command::Holding);
    assert_eq!(rig.actions(), told.map(|command| Action::Command { node, command }));
    let twice = rig.controller.hold("a0", lease()).unwrap_err();
    assert_eq!(twice.field, "holding");
    let (job, holding, error) = (JobId(9), Holding::Row(5), HoldingError::Missing);
    for _ in 0..2 {
        rig.report(Event::HoldingRefused { holding, error });
    }
    let outcome = Err(NotHeld::Refused(error));
    assert_eq!(rig.actions(), [Action::Held { node, job, holding, outcome }]);
    rig.report(Event::HoldingInstalled { holding: Holding::Job });
    let (holding, outcome) = (Holding::Job, Ok(()));
    assert_eq!(rig.actions(), [Action::Held { node, job, holding, outcome }]);
    rig.controller.hold("a0", lease()).unwrap();
}

#[test]
fn a_box_that_is_not_there_is_told_nothing() {
    let mut rig = Rig::new();
    let unknown = rig.controller.hold("a9", share()).unwrap_err();
    assert_eq!(unknown.to_string(), "node: there is no node `a9`");
    let absent = rig.controller.hold("s0", share()).unwrap_err();
    assert_eq!(absent.field, "node");
    assert_eq!(rig.actions(), []);
}

#[test]
fn a_push_job_is_only_for_a_box_that_is_the_jobs_aggregator() {
    let mut rig = Rig::new();
    let addr = |port| ([10, 0, 0, 1], port).into();
    let push = |job| {
        HoldingCommand::InstallPush(PushConfig {
            job: JobId(job),
            box_index: BoxIndex(0),
            workers: vec![addr(1)],
            server: Endpoint { mac: MacAddr::BROADCAST, addr: addr(2) },
            replica: None,
            quota_bytes: 1 << 20,
            pull_cache_bytes: 1 << 20,
            chunks: 1,
            elements: 256,
            element_type: ElementType::I32,
            overflow: Overflow::Wrap,
            integrity: Integrity::Crc32c,
            exponent: None,
            rate_bytes_per_sec: None,
            burst_bytes: 0,
        })
    };
    // Its next hello would say so, and be refused.
    let refused = rig.controller.hold("a0", push(0)).unwrap_err();
    assert_eq!(refused.field, "roles");
    assert_eq!(rig.actions(), []);
    rig.controller.hold("a0", push(9)).unwrap();
    assert_eq!(rig.actions().len(), 1, "what job 9 is, this controller does not know");
}

#[test]
fn what_a_box_holds_is_known_from_its_hello_and_its_events() {
    let mut rig = Rig::new();
    let held = |rig: &Rig| {
        let status = rig.controller.status(3);
        status.nodes.into_iter().find(|node| node.name == "a0").unwrap().holdings
    };
    let job = JobId(9);
    let (share, row, push) = (Holding::Job, Holding::Row(5), Holding::Push);
    for holding in [share, row, push] {
        rig.report(Event::HoldingInstalled { holding });
    }
    rig.report(Event::HoldingRemoved { holding: share });
    rig.report(Event::HoldingRefused { holding: row, error: HoldingError::Taken });
    assert_eq!(held(&rig), [(job, row), (job, push)]);
    // A controller that begins anew hears it all from the box.
    let mut anew = Rig::new();
    assert_eq!(held(&anew), []);
    let holdings = vec![(job, row), (job, push)];
    let mut hello = NodeHello {
        name: "a0".into(),
        life: 1,
        roles: Vec::new(),
        holdings: holdings.clone(),
        bands: None,
    };
    anew.controller.handle_node(4, &hello).unwrap();
    assert_eq!(held(&anew), holdings);
    hello.holdings = vec![(job, row); 4097];
    assert_eq!(anew.controller.handle_node(4, &hello).unwrap_err().field, "holdings");
}

#[test]
fn a_box_that_goes_or_begins_anew_has_its_answers_given_for_it() {
    let mut rig = Rig::new();
    let (node, job, holding) = (rig.node, JobId(9), Holding::Job);
    let gone = Action::Held { node, job, holding, outcome: Err(NotHeld::Gone) };
    rig.controller.hold("a0", share()).unwrap();
    rig.actions();
    rig.controller.handle_node_gone(3, node);
    assert_eq!(rig.actions(), core::slice::from_ref(&gone));
    attach(&mut rig.controller, 1);
    rig.controller.hold("a0", share()).unwrap();
    rig.actions();
    attach(&mut rig.controller, 2);
    assert_eq!(rig.actions(), [gone]);
}
