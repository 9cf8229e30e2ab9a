//! Jobs and leases that come and go while members send (SPEC#handshake, PROTOCOL section 6).

use alloc::vec;
use alloc::vec::Vec;

use weft_control::{Command, Event, Holding, HoldingCommand, HoldingError};
use weft_kernel::Kernels;
use weft_wire::header::{ElementType, Kind, Outcome};
use weft_wire::hello::{Hello, Integrity, Phase as Step, Reason};
use weft_wire::{JobId, Members, Nanos, Rank};

use super::super::{Aggregator, Phase, UNSETTLED_MAX};
use super::leaf::root_endpoint;
use super::rig::*;
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::table::{ArenaConfig, JobConfig, MemberConfig, ParentConfig, RowConfig, Table};

mod world;

/// Places for two leases of at most 4 slots of 16 elements, and one job.
const ARENA: ArenaConfig = ArenaConfig {
    jobs: 1,
    leases: 2,
    lease_bytes: 4 * 2 * 64,
    pushes: 0,
    push_bytes: 0,
    pull_cache_bytes: 0,
    lacks_checksums: false,
    socket_count: None,
};

fn job(job: u16) -> JobConfig {
    JobConfig { job: JobId(job), slots_max: 8, rate_bytes_per_sec: None, burst_bytes: 0 }
}

/// A box whose file has these rows.
fn serving(rows: Vec<RowConfig>, arena: ArenaConfig) -> Aggregator {
    let table = Table::new(config(rows)).unwrap().with_arena(arena).unwrap();
    Aggregator::new(&table, 0, 1, Kernels::detect())
}

/// What the box answers to a command.
fn told(aggregator: &mut Aggregator, command: HoldingCommand) -> Event {
    let job = command.job();
    aggregator.handle_command(Command::Holding(command));
    let (of, event) = aggregator.gather_mut().poll_event().expect("each command has an answer");
    assert_eq!(of, job);
    assert_eq!(aggregator.gather_mut().poll_event(), None, "and one only");
    event
}

fn install(aggregator: &mut Aggregator, row: &RowConfig) -> Event {
    told(aggregator, HoldingCommand::InstallLease(row.clone()))
}

fn remove(aggregator: &mut Aggregator, row: &RowConfig) -> Event {
    told(aggregator, HoldingCommand::RemoveLease { job: row.job, row: row.row })
}

const fn installed(row: u16) -> Event {
    Event::HoldingInstalled { holding: Holding::Row(row) }
}

const fn removed(row: u16) -> Event {
    Event::HoldingRemoved { holding: Holding::Row(row) }
}

fn group_of(row: &RowConfig, life: u64) -> Vec<Member> {
    let ranks = 0..u8::try_from(row.members.len()).unwrap();
    ranks.map(|rank| Member::new(row, rank, life + u64::from(rank))).collect()
}

#[test]
fn a_job_and_a_lease_that_come_late_are_served_like_those_of_the_file() {
    let mut aggregator = serving(vec![row(0, 0, 2)], ARENA);
    let late = row(7, 1, 2);
    assert_eq!(
        install(&mut aggregator, &late),
        Event::HoldingRefused { holding: Holding::Row(7), error: HoldingError::UnknownJob }
    );
    let of_job = Event::HoldingInstalled { holding: Holding::Job };
    assert_eq!(told(&mut aggregator, HoldingCommand::InstallJob(job(1))), of_job);
    assert_eq!(install(&mut aggregator, &late), installed(7));
    let mut group = group_of(&late, 100);
    form(&mut aggregator, &mut group);
    absorb(&mut aggregator, group[0].contribution(0, 1));
    assert_eq!(send(&mut aggregator, group[1].contribution(0, 2)).unwrap().values, [3; 4]);
    assert_eq!(remove(&mut aggregator, &late), removed(7));
    let of_job = Event::HoldingRemoved { holding: Holding::Job };
    assert_eq!(told(&mut aggregator, HoldingCommand::RemoveJob { job: JobId(1) }), of_job);
    assert_eq!(aggregator.jobs().count(), 1);
    assert_eq!(aggregator.leases().count(), 1);
}

#[test]
fn what_cannot_be_is_refused_with_its_reason_and_changes_nothing() {
    use HoldingCommand::{InstallJob, InstallLease, RemoveJob, RemoveLease};
    use HoldingError::*;
    let mut aggregator = serving(vec![row(0, 0, 2), row(1, 1, 2)], ARENA);
    let lease = |change: &dyn Fn(&mut RowConfig)| {
        let mut row = row(5, 0, 2);
        change(&mut row);
        InstallLease(row)
    };
    let own = config(Vec::new()).local.addr;
    let [group, all, none] =
        ["239.1.2.3", "255.255.255.255", "0.0.0.0"].map(|ip| ip.parse().unwrap());
    let cases = [
        ("a job that is there", InstallJob(job(0)), Taken),
        ("a job's index", InstallJob(job(256)), Number),
        ("a rate", InstallJob(JobConfig { rate_bytes_per_sec: Some(0), ..job(2) }), Number),
        ("a row that is there", lease(&|row| row.row = 0), Taken),
        ("the box's own address", lease(&|row| row.members[1].addr = own), Members),
        ("a multicast address", lease(&|row| row.members[1].addr.set_ip(group)), Members),
        ("a broadcast address", lease(&|row| row.members[1].addr.set_ip(all)), Members),
        ("no host's address", lease(&|row| row.members[1].addr.set_ip(none)), Members),
        ("a row of another job", lease(&|row| row.row = 1), OtherJob),
        ("a row's index", lease(&|row| row.row = 1024), Number),
        ("a job that is not there", lease(&|row| row.job = JobId(9)), UnknownJob),
        ("no members", lease(&|row| row.members.clear()), Members),
        ("a member twice", lease(&|row| row.members[0] = row.members[1]), Members),
        ("a weight", lease(&|row| row.fan_in = 1), Members),
        ("a window", lease(&|row| row.window = 3), Window),
        ("elements", lease(&|row| row.elements = 2000), Elements),
        ("more slots than the job may", lease(&|row| row.window = 64), Quota),
        ("a lease larger than a place", lease(&|row| row.window = 8), Full),
        (
            "elements too large for a place",
            lease(&|row| (row.window, row.elements) = (4, 17)),
            Full,
        ),
        ("a job that has leases", RemoveJob { job: JobId(0) }, InUse),
        ("no such job", RemoveJob { job: JobId(2) }, Missing),
        ("an absurd job", RemoveJob { job: JobId(u16::MAX) }, Missing),
        ("no such lease", RemoveLease { job: JobId(0), row: 5 }, Missing),
        ("an absurd lease", RemoveLease { job: JobId(0), row: u16::MAX }, Missing),
        ("another job's lease", RemoveLease { job: JobId(0), row: 1 }, OtherJob),
    ];
    for (what, command, error) in cases {
        let holding = command.holding();
        let event = told(&mut aggregator, command);
        assert_eq!(event, Event::HoldingRefused { holding, error }, "{what}");
    }
    assert_eq!((aggregator.jobs().count(), aggregator.leases().count()), (2, 2));
}

#[test]
fn a_full_arena_is_an_answer_and_a_removal_makes_room() {
    let full = |holding| Event::HoldingRefused { holding, error: HoldingError::Full };
    let mut aggregator = serving(vec![row(0, 0, 2)], ARENA);
    for index in [1, 2] {
        assert_eq!(install(&mut aggregator, &row(index, 0, 2)), installed(index));
    }
    assert_eq!(install(&mut aggregator, &row(3, 0, 2)), full(Holding::Row(3)));
    assert_eq!(remove(&mut aggregator, &row(1, 0, 2)), removed(1));
    assert_eq!(install(&mut aggregator, &row(3, 0, 2)), installed(3));
    // The place of the file's own row serves whatever is no larger, and comes first.
    assert_eq!(remove(&mut aggregator, &row(0, 0, 2)), removed(0));
    assert_eq!(install(&mut aggregator, &row(4, 0, 3)), full(Holding::Row(4)), "one member more");
    assert_eq!(install(&mut aggregator, &row(4, 0, 1)), installed(4));
    let second = HoldingCommand::InstallJob(job(1));
    assert_eq!(told(&mut aggregator, second), Event::HoldingInstalled { holding: Holding::Job });
    assert_eq!(told(&mut aggregator, HoldingCommand::InstallJob(job(2))), full(Holding::Job));
}

#[test]
fn a_lease_that_the_port_cannot_carry_is_refused() {
    let arena = ArenaConfig { lacks_checksums: true, socket_count: Some(3), ..ARENA };
    let mut aggregator = serving(vec![row(0, 0, 2)], arena);
    let summed = RowConfig { integrity: Integrity::Checksum16, ..row(1, 0, 2) };
    let leaf = |above| {
        let rank = Rank::new(0).unwrap();
        let source_port = box_endpoint().addr.port() + above;
        let parent = ParentConfig { endpoint: root_endpoint(), row: 3, rank, source_port };
        RowConfig { parent: Some(parent), ..row(1, 0, 2) }
    };
    let error = HoldingError::Port;
    let refused = Event::HoldingRefused { holding: Holding::Row(1), error };
    for lease in [summed, leaf(3)] {
        assert_eq!(install(&mut aggregator, &lease), refused);
    }
    assert_eq!(install(&mut aggregator, &leaf(2)), installed(1));
}

#[test]
fn a_port_means_one_lane_whoever_comes() {
    let mut two_lanes = config(vec![RowConfig { window: 2, ..row(0, 0, 2) }]);
    two_lanes.shards = 2;
    let table = Table::new(two_lanes).unwrap().with_arena(ARENA).unwrap();
    let error = HoldingError::Members;
    let refused = Event::HoldingRefused { holding: Holding::Row(1), error };
    let mut other = RowConfig { window: 2, ..row(1, 0, 2) };
    for lane in 0..2 {
        let mut aggregator = Aggregator::new(&table, lane, 1, Kernels::detect());
        other.members[1].addr.set_port(7001);
        assert_eq!(install(&mut aggregator, &other), refused, "lane 1 of the others");
        other.members[1].addr.set_port(7002);
        assert_eq!(install(&mut aggregator, &other), installed(1));
    }
}

#[test]
fn a_box_without_an_arena_takes_nothing_more() {
    let mut aggregator = aggregator(config(vec![row(0, 0, 2)]), 1);
    let event = install(&mut aggregator, &row(1, 0, 2));
    let error = HoldingError::Full;
    assert_eq!(event, Event::HoldingRefused { holding: Holding::Row(1), error });
}

#[test]
fn members_of_a_lease_that_was_removed_are_refused_and_told_when_they_ask() {
    let (mut aggregator, group, row) = open(2);
    absorb(&mut aggregator, group[0].contribution(0, 1));
    assert_eq!(remove(&mut aggregator, &row), removed(0));
    for frame in [group[1].contribution(0, 2), group[0].status(0)] {
        assert_eq!(send(&mut aggregator, frame).unwrap_err(), DropReason::UnknownGroup);
    }
    assert_eq!(aggregator.stats().drops.of(DropReason::UnknownGroup), 2);
    let answer = send(&mut aggregator, group[0].hello(Hello::new(Step::Hello), &[])).unwrap();
    let hello = answer.hello.unwrap();
    assert_eq!((hello.phase, hello.reason), (Step::Refused, Reason::UnknownGroup));
}

/// It came back from a crash, and its controller has not said that it has all.
#[test]
fn a_box_that_may_get_a_lease_yet_does_not_say_that_it_has_none() {
    let row = row(0, 0, 2);
    let table = Table::new(config(vec![])).unwrap().with_arena(ARENA).unwrap();
    let new = || Aggregator::new(&table, 0, 1, Kernels::detect()).unsettled();
    let mut aggregator = new();
    let member = Member::new(&row, 0, 7);
    let hello = || member.hello(Hello::new(Step::Hello), &[]);
    // First the job is unknown, then its row; the reason is counted, and that is all.
    assert_eq!(send(&mut aggregator, hello()).unwrap_err(), DropReason::UnknownJob);
    assert_eq!(
        told(&mut aggregator, HoldingCommand::InstallJob(job(0))),
        Event::HoldingInstalled { holding: Holding::Job }
    );
    assert_eq!(send(&mut aggregator, hello()).unwrap_err(), DropReason::UnknownGroup);
    let drops = &aggregator.stats().drops;
    assert_eq!((drops.of(DropReason::UnknownJob), drops.total()), (1, 2));
    assert_eq!(install(&mut aggregator, &row), installed(0));
    let challenge = send(&mut aggregator, hello()).unwrap().hello.unwrap();
    assert_eq!(challenge.phase, Step::Challenge);
    // Once it has all, who asks for anything else is told.
    let mut bare = new();
    bare.handle_settled();
    let refused = send(&mut bare, hello()).unwrap().hello.unwrap();
    assert_eq!((refused.phase, refused.reason), (Step::Refused, Reason::UnknownGroup));
}

#[test]
fn a_box_whose_controller_never_speaks_is_silent_for_a_bounded_time() {
    let table = Table::new(config(vec![])).unwrap().with_arena(ARENA).unwrap();
    let mut aggregator = Aggregator::new(&table, 0, 1, Kernels::detect()).unsettled();
    let member = Member::new(&row(0, 0, 2), 0, 7);
    let mut is_told = |at: Nanos| {
        let hello = member.hello(Hello::new(Step::Hello), &[]);
        deliver(&mut aggregator, hello, at).1.is_some()
    };
    let first = Nanos::from_millis(5_000);
    assert!(!is_told(first), "it counts from the first one");
    assert!(!is_told(Nanos(first.0 + UNSETTLED_MAX.0 - 1)));
    assert!(is_told(Nanos(first.0 + UNSETTLED_MAX.0)));
}

#[test]
fn a_row_that_is_installed_again_at_once_has_nothing_of_its_former_lease() {
    let (mut aggregator, group, row) = open(2);
    absorb(&mut aggregator, group[0].contribution(0, 1));
    let before = (group[0].group, group[0].cookie);
    remove(&mut aggregator, &row);
    assert_eq!(install(&mut aggregator, &row), installed(0));
    assert!(snapshot(&aggregator).is_empty());
    let stale = send(&mut aggregator, group[1].contribution(0, 2)).unwrap();
    assert_eq!((stale.header.kind, stale.header.outcome), (Kind::State, Outcome::Stale));
    // Who was in the former session hears that it is over, and cannot bring its sums along.
    let mut old = group[1].clone();
    let refused = old.join(&mut aggregator, Some((1, &[0])));
    let hello = refused.hello.unwrap();
    assert_eq!((hello.phase, hello.reason), (Step::Refused, Reason::MemberLost));
    let mut next = group_of(&row, 900);
    form(&mut aggregator, &mut next);
    assert_ne!((next[0].group, next[0].cookie), before);
    for frame in [group[0].contribution(0, 1), group[1].contribution(0, 2)] {
        let stale = send(&mut aggregator, frame).unwrap();
        assert_eq!(stale.header.outcome, Outcome::Stale);
    }
    assert!(snapshot(&aggregator).is_empty());
    absorb(&mut aggregator, next[0].contribution(0, 10));
    assert_eq!(send(&mut aggregator, next[1].contribution(0, 20)).unwrap().values, [30; 4]);
}

/// A lease that is half formed may have given tokens that nobody has used.
#[test]
fn a_token_of_a_lease_that_was_removed_joins_no_later_one() {
    let row = row(0, 0, 2);
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let member = Member::new(&row, 0, 7);
    let challenge = send(&mut aggregator, member.hello(Hello::new(Step::Hello), &[])).unwrap();
    let mut join = Hello::new(Step::Join);
    join.token = challenge.hello.unwrap().token;
    remove(&mut aggregator, &row);
    install(&mut aggregator, &row);
    let late = send(&mut aggregator, member.hello(join, &[]));
    assert_eq!(late.unwrap_err(), DropReason::Token);
    assert_eq!(aggregator.leases().next().unwrap().present(), Members::EMPTY);
}

#[test]
fn a_place_serves_leases_of_any_type_one_after_the_other() {
    let mut aggregator = serving(vec![row(0, 0, 2)], ARENA);
    for (life, element_type) in
        [(1, ElementType::I32), (2, ElementType::F32), (3, ElementType::I32)]
    {
        let late = RowConfig { element_type, ..row(1, 0, 2) };
        assert_eq!(install(&mut aggregator, &late), installed(1));
        let mut group = group_of(&late, 10 * life);
        form(&mut aggregator, &mut group);
        let frame = |member: &Member, value: i32| {
            let mut header = member.header(Kind::Contrib, 0);
            header.element_type = element_type;
            let bits = match element_type {
                #[expect(clippy::cast_precision_loss, reason = "small numbers")]
                ElementType::F32 => (value as f32).to_bits().cast_signed(),
                _ => value,
            };
            member.frame(&header, &payload(bits))
        };
        absorb(&mut aggregator, frame(&group[0], 3));
        let sum = send(&mut aggregator, frame(&group[1], 4)).unwrap().values[0];
        let want = if element_type == ElementType::F32 { 7f32.to_bits().cast_signed() } else { 7 };
        assert_eq!(sum, want);
        remove(&mut aggregator, &late);
    }
}

/// A leaf that comes late hears its root, and one that has gone does not.
#[test]
fn the_root_of_a_late_leaf_is_heard_while_the_lease_is_there() {
    let mut aggregator = serving(vec![row(0, 0, 2)], ARENA);
    let parent = ParentConfig {
        endpoint: root_endpoint(),
        row: 3,
        rank: Rank::new(0).unwrap(),
        source_port: 9000,
    };
    let leaf = RowConfig { parent: Some(parent), ..row(1, 0, 1) };
    let mut member = Member::new(&leaf, 0, 5);
    let mut buffer = vec![0; MAX_FRAME];
    for _ in 0..2 {
        assert!(!aggregator.listens(9000));
        assert_eq!(install(&mut aggregator, &leaf), installed(1));
        assert!(aggregator.listens(9000));
        member.life += 1;
        member.session = 0;
        let waiting = member.join(&mut aggregator, None).hello.unwrap();
        assert_eq!(waiting.phase, Step::Waiting, "for the root");
        let len = aggregator.poll_transmit(Nanos(1), &mut buffer).expect("it greets the root");
        assert_eq!(read(&buffer[..len]).target, root_endpoint().addr);
        assert_eq!(remove(&mut aggregator, &leaf), removed(1));
        assert_eq!(aggregator.poll_timeout(), Nanos::MAX, "nothing is owed to the root any more");
        assert_eq!(aggregator.poll_transmit(Nanos(u64::MAX - 1), &mut buffer), None);
    }
}

/// A flood of HELLOs gets no more answers for commands that come meanwhile.
#[test]
fn commands_do_not_fill_the_buckets_of_strangers() {
    let mut answered = [0, 0];
    for (commands, answered) in answered.iter_mut().enumerate() {
        let mut aggregator = serving(vec![row(0, 0, 2)], ARENA);
        let member = Member::new(&row(0, 0, 2), 0, 7);
        let stranger = Member::new(&row(9, 9, 1), 0, 1);
        for turn in 0..200 {
            for _ in 0..commands {
                install(&mut aggregator, &row(1, 0, 2));
                remove(&mut aggregator, &row(1, 0, 2));
            }
            for flooder in [&member, &stranger] {
                for _ in 0..20 {
                    let hello = flooder.hello(Hello::new(Step::Hello), &[]);
                    let sent = deliver(&mut aggregator, hello, Nanos(turn * 1_000));
                    *answered += usize::from(sent.1.is_some());
                }
            }
        }
    }
    assert_eq!(answered[0], answered[1]);
    assert!(answered[0] < 2_000, "there is a bound: {answered:?}");
}

#[test]
fn a_member_of_the_arena_is_an_address_of_the_table() {
    let mut aggregator = serving(Vec::new(), ARENA);
    told(&mut aggregator, HoldingCommand::InstallJob(job(0)));
    let far: Vec<MemberConfig> = row(0, 0, 64).members;
    let wide = RowConfig { members: far, fan_in: 64, ..row(0, 0, 1) };
    assert_eq!(install(&mut aggregator, &wide), installed(0));
    // A stranger's HELLOs cost the members nothing: each address has a bucket of its own.
    let stranger = Member::new(&row(9, 9, 1), 0, 1);
    let probe = || stranger.hello(Hello::new(Step::Hello), &[]);
    let mut answered = 0;
    while deliver(&mut aggregator, probe(), Nanos(0)).1.is_some() {
        answered += 1;
        assert!(answered < 10_000, "strangers have a quota");
    }
    let member = Member::new(&wide, 63, 7);
    let challenge = send(&mut aggregator, member.hello(Hello::new(Step::Hello), &[])).unwrap();
    assert_eq!(challenge.hello.unwrap().phase, Step::Challenge);
}
