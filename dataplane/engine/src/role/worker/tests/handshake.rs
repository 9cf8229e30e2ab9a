//! The handshake of one lane, cell by cell: what it takes in which phase, and what it asks when.

use weft_wire::header::{ElementType, HEADER_LEN, Kind, Operation, Outcome};
use weft_wire::hello::{Hello, Phase, Reason};
use weft_wire::{ChunkIndex, Cookie, GroupId, Members};

use super::*;
use crate::session::client::Standing;

/// A word of the box to the first lane of the first worker.
fn say(sim: &mut Sim, hello: Hello, members: u64) -> Result<(), Refusal> {
    let hello = Hello { life: sim.workers[0].shared.life, ..hello };
    let header = Header {
        kind: Kind::Hello,
        flags: Flags::NONE,
        outcome: Outcome::None,
        job: JOB,
        cookie: Cookie::default(),
        group: GroupId::new(ROW, 0),
        chunk: ChunkIndex(0),
        element_type: ElementType::None,
        operation: Operation::None,
        exponent: 0,
        count: 0,
        members: Members(members),
    };
    let mut body = vec![0; hello.body_len()];
    hello.emit(&[], &mut body);
    let mut frame = sim.fake.wrap(0, 0, &header, &body);
    sim.workers[0].handle_frame(sim.now, &mut frame, &mut sim.data[0])
}

fn lane(sim: &mut Sim) -> &mut Lane {
    &mut sim.workers[0].lanes[0]
}

fn has_failed(sim: &mut Sim) -> bool {
    let worker = &mut sim.workers[0];
    core::iter::from_fn(|| worker.poll_event()).any(|event| matches!(event, Event::Failed(_)))
}

/// Two workers with an open lane; the first waits for a sum, the second says nothing.
fn waiting() -> Sim {
    let mut sim = Sim::new(2, 4, 1);
    sim.connect();
    sim.begin_all(4);
    sim.asleep_until[1] = Nanos::MAX;
    let sent = |sim: &Sim| sim.workers[0].stats().chunks_sent == 4;
    assert!(sim.run(Nanos::from_millis(1), sent));
    sim
}

/// Copies that were delayed, and words that nobody asked for.
#[test]
fn an_open_lane_takes_no_word_of_a_handshake() {
    let mut sim = waiting();
    let token = lane(&mut sim).session.token();
    let refused = Hello { reason: Reason::OtherSession, ..Hello::new(Phase::Refused) };
    let unknown = Hello { reason: Reason::UnknownGroup, ..refused };
    for hello in [
        Hello { token, ..Hello::new(Phase::Challenge) },
        Hello { token: token ^ 1, ..Hello::new(Phase::Challenge) },
        Hello { mask: Members(3), ..Hello::new(Phase::Waiting) },
        Hello { token, mask: Members(3), ..Hello::new(Phase::Welcome) },
        Hello::new(Phase::Closed),
        refused,
        unknown,
    ] {
        // Nor one that has asked the box who it is, while that answers data.
        for soliciting in [false, true] {
            if soliciting {
                let now = sim.now;
                lane(&mut sim).session.ask(now);
            }
            assert_eq!(say(&mut sim, hello, 3), Err(Refusal::Handshake), "{hello:?}");
            assert_eq!(lane(&mut sim).session.standing(), Standing::Open);
            assert_eq!(lane(&mut sim).waiting_since, None);
            assert!(!has_failed(&mut sim));
        }
    }
}

/// From its JOIN to the WELCOME the lane takes no sums; before the JOIN it takes no WELCOME.
#[test]
fn a_late_welcome_opens_no_lane_that_begins_anew() {
    let mut sim = waiting();
    let (token, now) = (lane(&mut sim).session.token(), sim.now);
    lane(&mut sim).begin_handshake(now);
    for phase in [Phase::Welcome, Phase::Waiting] {
        let hello = Hello { token, mask: Members(3), ..Hello::new(phase) };
        assert_eq!(say(&mut sim, hello, 3), Err(Refusal::Handshake));
        assert_eq!(lane(&mut sim).session.standing(), Standing::Opening);
    }
}

#[test]
fn a_joining_lane_takes_a_challenge_with_another_token_alone() {
    let mut sim = waiting();
    let (token, now) = (lane(&mut sim).session.token(), sim.now);
    lane(&mut sim).begin_handshake(now);
    let hello = Hello { token, ..Hello::new(Phase::Challenge) };
    assert_eq!(say(&mut sim, hello, 0), Ok(()));
    assert_eq!(say(&mut sim, hello, 0), Err(Refusal::Handshake), "a copy");
    let hello = Hello { token: token ^ 1, ..hello };
    assert_eq!(say(&mut sim, hello, 0), Ok(()));
    let session = &lane(&mut sim).session;
    assert_eq!((session.has_token(), session.token()), (true, token ^ 1));
}

/// The others began anew, and this one holds all that it needs.
#[test]
fn a_closing_lane_is_closed_when_the_box_refuses_it() {
    let mut sim = waiting();
    sim.workers[0].shared.closing = true;
    let hello = Hello { reason: Reason::OtherSession, ..Hello::new(Phase::Refused) };
    assert_eq!(say(&mut sim, hello, 0), Ok(()));
    assert_eq!(lane(&mut sim).session.standing(), Standing::Closed);
    assert!(!has_failed(&mut sim));
}

/// The phase of the handshake datagram that is due, if one is, and where it goes.
fn due(sim: &mut Sim, now: Nanos) -> Option<(Phase, [u8; 6])> {
    let worker = &mut sim.workers[0];
    let mut frame = vec![0; 4096];
    let len = worker.lanes[0].poll_handshake(now, &worker.shared, &mut frame, &mut worker.stats)?;
    let udp = Udp::parse(&frame[..len]).unwrap();
    let (hello, _) = Hello::parse(&frame[udp.payload_range()][HEADER_LEN..]).unwrap();
    Some((hello.phase, frame[..6].try_into().unwrap()))
}

#[test]
fn a_lane_that_asks_stops_when_the_box_answers_data() {
    let mut sim = waiting();
    let now = sim.now;
    lane(&mut sim).session.ask(now);
    // A restarted box may have another Ethernet address than the one learnt.
    assert_eq!(due(&mut sim, now), Some((Phase::Hello, [0xff; 6])));
    let next = lane(&mut sim).session.timeout();
    assert_eq!(due(&mut sim, next), None);
    let session = &lane(&mut sim).session;
    assert!(!session.is_asking() && session.timeout() == Nanos::MAX);
    lane(&mut sim).begin_handshake(now);
    say(&mut sim, Hello::new(Phase::Challenge), 0).unwrap();
    assert_eq!(due(&mut sim, now), Some((Phase::Join, boxy().mac.0)));
}

/// It has nothing else to learn from that the box is another one by now.
#[test]
fn an_idle_lane_asks_until_it_is_answered() {
    let mut sim = Sim::new(2, 4, 1);
    sim.connect();
    let now = sim.now;
    lane(&mut sim).session.ask(now);
    for _ in 0..4 {
        let now = lane(&mut sim).session.timeout();
        assert_eq!(due(&mut sim, now).map(|(phase, _)| phase), Some(Phase::Hello));
    }
}

/// A box that was restarted knows no CLOSE of ours, and is asked who it is now and then.
#[test]
fn a_closing_lane_asks_a_silent_box_every_other_time() {
    let mut sim = waiting();
    sim.workers[0].shared.closing = true;
    let now = sim.now;
    lane(&mut sim).session.close(now);
    let mut phases = Vec::new();
    for _ in 0..8 {
        let now = lane(&mut sim).session.timeout();
        phases.push(due(&mut sim, now).unwrap().0);
    }
    let (close, hello) = (Phase::Close, Phase::Hello);
    assert_eq!(phases, [close, close, close, hello, close, hello, close, hello]);
}

#[test]
fn leases_at_the_limits_are_taken() {
    let with = |probe_len: u16, change: fn(&mut FakeBox)| {
        let mut sim = Sim::new(1, 4, 1);
        change(&mut sim.fake);
        sim.replace(0, WorkerConfig { probe_len, ..config(0) }, 5);
        sim.connect();
    };
    // 120 elements fill the probe.
    with(512, |fake| fake.elements = 120);
    with(0, |fake| fake.window = WINDOW_MAX);
    Sim::new(1, 4, LANES_MAX).connect();
}
