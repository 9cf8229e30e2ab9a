//! The updates against an engine whose channel is open; the controller's words are scripted.

use std::net::SocketAddr;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use weft_control::{BoxIndex, Decision, Version};
use weft_engine::role::Verdict;
use weft_engine::role::model::ModelConfig;
use weft_engine::role::push::{Event, Grant, Pusher, Segment};
use weft_engine::role::server::{Server, ServerJobConfig};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::header::ElementType;
use weft_wire::{GroupId, JobId, MacAddr, Nanos};

use super::message::{FromController, Job, Message, Permit, PushOrder, ToController};
use super::updates::{Stage, Updates};
use super::{ControllerConfig, Outcome, PushConfig, PushError, PushSession, norm};
use crate::config::Io;

const PARAMETERS: usize = 600;
const SECOND: Nanos = Nanos(1_000_000_000);

/// The updates of a session, its engine, and the tickets of what was pushed.
struct Fixture {
    updates: Updates,
    engine: Pusher,
    tickets: Vec<Receiver<Result<Outcome, PushError>>>,
}

impl Fixture {
    fn open(shape: impl FnOnce(&mut PushConfig)) -> Self {
        let addr = |host, port| SocketAddr::from(([10, 0, 0, host], port));
        let mut config = PushConfig::new(addr(1, 7000), addr(100, 22341));
        config.controller = Some(ControllerConfig::new("http://nowhere"));
        shape(&mut config);
        let local = Endpoint { mac: MacAddr([4; 6]), addr: config.server };
        let job = ServerJobConfig::new(ModelConfig::new(JobId(0), PARAMETERS), vec![config.local]);
        let mut server = Server::new(local, 1500, &[job], 2, Kernels::detect()).unwrap();
        let mut engine = Pusher::new(config.pusher(MacAddr([2; 6])).unwrap(), 1, Nanos(0)).unwrap();
        let mut updates = Updates::new(&config, true);
        let mut frame = vec![0; 2048];
        while engine.terms().is_none() {
            let len = engine.poll_transmit(Nanos(0), &mut frame).unwrap();
            if let Verdict::Send { len } = server.handle_frame(Nanos(0), &mut frame, len) {
                engine.handle_frame(Nanos(0), &mut frame[..len]).unwrap();
            }
        }
        let connected = engine.poll_event().unwrap();
        updates.take_event(Nanos(0), connected, &mut engine);
        assert!(matches!(updates.stage(), Stage::Opening), "the controller has not answered");
        let mut fixture = Self { updates, engine, tickets: Vec::new() };
        fixture.hear(Nanos(0), FromController::Welcome(fixture.job()));
        assert!(matches!(fixture.updates.stage(), Stage::Open(_)));
        fixture
    }

    fn job(&self) -> Job {
        let terms = self.engine.terms().unwrap();
        Job {
            chunks: terms.job.chunks,
            elements: u32::from(terms.job.elements),
            element_type: Some(ElementType::I32),
            server: None,
            epoch: 0,
            aggregators: Vec::new(),
            replica: None,
            label: 0,
        }
    }

    fn hear(&mut self, now: Nanos, said: FromController) {
        self.updates.take_message(now, Message::Controller(said), &mut self.engine);
    }

    fn push(&mut self, now: Nanos) {
        let (outcome, ticket) = bounded(1);
        let permit = Permit::new(bounded(1).1);
        let update = vec![0.5; PARAMETERS];
        let (version, norm, max_abs) = (Version(0), norm(&update), 0.5);
        let order = PushOrder { update, version, norm, max_abs, outcome, permit };
        self.updates.take_message(now, Message::Push(order), &mut self.engine);
        self.tickets.push(ticket);
    }

    /// The ids that the controller is asked for.
    fn asked(&mut self) -> Vec<u64> {
        let requests = std::iter::from_fn(|| self.updates.poll_request());
        let ids = requests.map(|request| match request {
            ToController::Request { id, .. } => id,
            other => panic!("{other:?}"),
        });
        ids.collect()
    }

    fn take_events(&mut self, now: Nanos) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.engine.poll_event() {
            events.push(event);
            self.updates.take_event(now, event, &mut self.engine);
        }
        events
    }
}

fn grant(via: Option<BoxIndex>) -> Box<Grant> {
    let segment = Segment { is_open: true, rate_bytes_per_sec: 0 };
    Box::new(Grant {
        group: GroupId::new(1, 0),
        via,
        exponent: -20,
        member_count: 1,
        segments: [segment].into_iter().collect(),
        replicate: false,
        train_chunks: 0,
    })
}

#[test]
fn a_void_update_is_asked_for_anew_as_often_as_allowed() {
    let mut fixture = Fixture::open(|config| config.resends_max = 2);
    fixture.push(Nanos(0));
    for id in 0..3 {
        assert_eq!(fixture.asked(), [id], "a fresh id each time");
        assert!(fixture.tickets[0].is_empty());
        fixture.hear(Nanos(0), FromController::Grant { id, grant: grant(None) });
        fixture.hear(Nanos(0), FromController::Delivered { id, decision: Decision::Void });
        fixture.take_events(Nanos(0));
    }
    assert_eq!(fixture.asked(), []);
    assert!(matches!(fixture.tickets[0].try_recv(), Ok(Ok(Outcome::Void))));
}

#[test]
fn what_a_controller_says_of_a_turn_that_went_directly_changes_nothing() {
    let mut fixture = Fixture::open(|config| {
        config.controller.as_mut().unwrap().silence = Duration::from_secs(1);
    });
    fixture.push(Nanos(0));
    assert_eq!(fixture.asked(), [0]);
    fixture.hear(Nanos(0), FromController::Lost);
    fixture.updates.handle_timeout(Nanos(SECOND.0 - 1), &mut fixture.engine);
    assert!(!fixture.engine.is_busy(), "it may come back in time");
    fixture.updates.handle_timeout(SECOND, &mut fixture.engine);
    assert!(fixture.engine.is_busy(), "asked for a turn at the server");
    fixture.hear(SECOND, FromController::Welcome(fixture.job()));
    assert_eq!(fixture.asked(), [], "the server decides it now");
    for id in 0..4 {
        fixture.hear(SECOND, FromController::Drop { id });
        fixture.hear(SECOND, FromController::Release { id, segment: 0 });
    }
    fixture.hear(SECOND, FromController::Delivered { id: 0, decision: Decision::Void });
    fixture.hear(SECOND, FromController::Grant { id: 0, grant: grant(None) });
    assert_eq!(fixture.updates.poll_request(), Some(ToController::Cancel { id: 0 }));
    assert_eq!(fixture.take_events(SECOND), []);
    assert!(fixture.tickets[0].is_empty());
}

/// A server that has a controller refuses what goes without a grant: not at every round trip anew.
#[test]
fn a_direct_update_that_is_refused_waits_before_it_is_tried_again() {
    let mut fixture = Fixture::open(|config| {
        config.controller.as_mut().unwrap().silence = Duration::from_secs(1);
    });
    fixture.push(Nanos(0));
    assert_eq!(fixture.asked(), [0]);
    fixture.hear(Nanos(0), FromController::Lost);
    fixture.updates.handle_timeout(SECOND, &mut fixture.engine);
    assert!(fixture.engine.is_busy());
    for (id, second) in [(1, 1), (3, 2)] {
        let (now, next) = (Nanos(second * SECOND.0), Nanos((second + 1) * SECOND.0));
        fixture.hear(now, FromController::Delivered { id, decision: Decision::Void });
        fixture.take_events(now);
        fixture.updates.handle_timeout(Nanos(next.0 - 1), &mut fixture.engine);
        assert!(!fixture.engine.is_busy(), "its controller may come back");
        fixture.updates.handle_timeout(next, &mut fixture.engine);
        assert!(fixture.engine.is_busy());
    }
    assert!(fixture.tickets[0].is_empty());
}

#[test]
fn a_controller_that_comes_back_in_time_is_asked_again() {
    let mut fixture = Fixture::open(|_| {});
    fixture.push(Nanos(0));
    assert_eq!(fixture.asked(), [0]);
    fixture.hear(Nanos(0), FromController::Lost);
    fixture.push(Nanos(0));
    assert_eq!(fixture.asked(), [], "there is nobody to ask");
    fixture.hear(SECOND, FromController::Welcome(fixture.job()));
    assert_eq!(fixture.asked(), [2, 3]);
}

#[test]
fn a_request_that_is_not_granted_goes_directly_at_the_end_of_its_patience() {
    let mut fixture = Fixture::open(|config| {
        config.controller.as_mut().unwrap().grant_timeout = Duration::from_secs(1);
    });
    assert_eq!(fixture.updates.poll_timeout(), Nanos::MAX);
    fixture.push(Nanos(5));
    assert_eq!(fixture.asked(), [0]);
    let due = fixture.updates.poll_timeout();
    assert_eq!(due, Nanos(SECOND.0 + 5));
    fixture.updates.handle_timeout(Nanos(due.0 - 1), &mut fixture.engine);
    assert!(!fixture.engine.is_busy());
    fixture.updates.handle_timeout(due, &mut fixture.engine);
    assert!(fixture.engine.is_busy());
    assert_eq!(fixture.updates.poll_request(), Some(ToController::Cancel { id: 0 }));
    assert_eq!(fixture.updates.poll_timeout(), Nanos::MAX);
}

#[test]
fn a_grant_that_cannot_be_obeyed_is_taken_back_and_goes_directly() {
    let mut fixture = Fixture::open(|_| {});
    fixture.push(Nanos(0));
    assert_eq!(fixture.asked(), [0]);
    fixture.hear(Nanos(0), FromController::Grant { id: 0, grant: grant(Some(BoxIndex(9))) });
    assert_eq!(fixture.updates.poll_request(), Some(ToController::Cancel { id: 0 }));
    assert!(fixture.engine.is_busy());
}

#[test]
fn another_server_is_followed_and_a_stale_word_of_one_is_not() {
    let mut fixture = Fixture::open(|_| {});
    fixture.push(Nanos(0));
    assert_eq!(fixture.asked(), [0]);
    fixture.hear(Nanos(0), FromController::Grant { id: 0, grant: grant(None) });
    let addr = |host| Some(SocketAddr::from(([10, 0, 0, host], 22341)));
    let moves = |fixture: &Fixture| fixture.engine.stats().servers_moved;
    for (address, epoch, expected) in [
        (addr(100), 0, 0),
        (addr(101), 0, 0),
        (None, 1, 0),
        (addr(101), 1, 1),
        (addr(100), 1, 1),
        (addr(102), 3, 2),
        (addr(101), 2, 2),
    ] {
        fixture.hear(SECOND, FromController::ServerMoved { address, epoch });
        assert_eq!(moves(&fixture), expected, "{address:?} {epoch}");
    }
    // A welcome says the same to a worker that was away.
    let job = Job { server: addr(103), epoch: 4, ..fixture.job() };
    fixture.hear(SECOND, FromController::Welcome(job));
    assert_eq!(moves(&fixture), 3);
    assert!(fixture.engine.is_busy(), "what was granted is asked for at the new server");
    assert!(fixture.tickets[0].is_empty());
}

#[test]
fn a_controller_with_another_model_ends_the_session() {
    let mut fixture = Fixture::open(|_| {});
    let mut job = fixture.job();
    job.element_type = Some(ElementType::F32);
    fixture.hear(SECOND, FromController::Welcome(job));
    assert!(matches!(
        fixture.updates.stage(),
        Stage::Over(PushError::Config { field: "numbers", .. })
    ));
}

#[test]
fn the_norm_is_summed_in_double_precision() {
    // In f32 the ones would vanish beside 2^12 squared.
    let mut values = vec![1.0; 1 << 16];
    values[0] = 4096.0;
    let exact = (4096.0_f64 * 4096.0 + f64::from((1 << 16) - 1)).sqrt();
    assert!((norm(&values) - exact).abs() < 1e-9);
    assert!(norm(&[f32::MAX, f32::MAX]).is_finite());
    assert!(!norm(&[1.0, f32::NAN]).is_finite());
    assert!(!norm(&[f32::INFINITY]).is_finite());
}

#[test]
fn a_port_that_cannot_be_is_refused_by_name() {
    let config = |io, ip: [u8; 4]| {
        let server = "127.0.0.1:9".parse().unwrap();
        PushConfig::new((ip, 24_850).into(), server).io(io)
    };
    let refused = |config: &PushConfig| PushSession::connect(config).expect_err("it is refused");
    let shared = refused(&config(Io::Shm, [127, 0, 0, 1]));
    assert!(matches!(shared, PushError::Config { field: "io", .. }), "{shared:?}");
    let loopback = refused(&config(Io::AfPacket, [127, 0, 0, 1]));
    assert!(matches!(loopback, PushError::Config { field: "local", .. }), "{loopback:?}");
    // 192.0.2.1 is nobody's.
    let nowhere = refused(&config(Io::AfPacket, [192, 0, 2, 1]));
    assert!(nowhere.to_string().contains("no interface"), "{nowhere:?}");
    let nobodys = refused(&config(Io::Udp, [192, 0, 2, 1]));
    let PushError::Open(error) = &nobodys else { panic!("{nobodys:?}") };
    assert!(matches!(**error, crate::Error::Port(_)), "{nobodys:?}");
}
