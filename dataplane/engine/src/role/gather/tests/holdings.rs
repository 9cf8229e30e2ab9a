//! Push jobs that come and go while workers send (SPEC#push, PROTOCOL sections 2 and 6).

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;
use weft_control::{Event, Holding, HoldingCommand, HoldingError, JobConfig};
use weft_wire::header::{ElementType, Header, Kind, Outcome};
use weft_wire::hello::{Integrity, Phase, Reason};
use weft_wire::{ChunkIndex, GroupId, JobId, Members, Nanos};

use super::super::PushConfig;
use super::rig::*;
use crate::drops::DropReason;
use crate::role::channel::{ChannelError, Peer, Standing};
use crate::send::datagram::plain_header;
use crate::slot::State;
use crate::table::{ArenaConfig, RowConfig};

/// Places for two jobs like [`push`], and one share.
fn arena() -> ArenaConfig {
    ArenaConfig {
        jobs: 1,
        pushes: 2,
        push_bytes: push(0, 1).quota_bytes,
        pull_cache_bytes: 8 * 64,
        ..ArenaConfig::default()
    }
}

fn share(job: u16) -> JobConfig {
    JobConfig { job: JobId(job), slots_max: 8, rate_bytes_per_sec: None, burst_bytes: 0 }
}

fn install(rig: &mut Rig, config: &PushConfig) -> Event {
    rig.told(HoldingCommand::InstallPush(config.clone()))
}

fn remove(rig: &mut Rig, job: u16) -> Event {
    rig.told(HoldingCommand::RemovePush { job: JobId(job) })
}

const INSTALLED: Event = Event::HoldingInstalled { holding: Holding::Push };
const REMOVED: Event = Event::HoldingRemoved { holding: Holding::Push };

const fn refused(error: HoldingError) -> Event {
    Event::HoldingRefused { holding: Holding::Push, error }
}

/// Installs a job and opens all its channels.
fn come(rig: &mut Rig, config: &PushConfig) {
    assert_eq!(install(rig, config), INSTALLED);
    rig.open(config.clone());
    rig.poll();
}

/// A contribution of a job that there ever was.
fn contribution(rig: &Rig, of: usize, rank: usize, id: GroupId, chunk: u32, value: i32) -> Vec<u8> {
    let payload = value.to_be_bytes().repeat(usize::from(ELEMENTS));
    rig.worker_frame(of, rank, &data_header(id, chunk, ElementType::I32), &payload)
}

fn credit(rig: &Rig, of: usize, id: GroupId, chunk: u32, mask: u64) -> Vec<u8> {
    let header = plain_header(Kind::Pull, JobId(0), id, Members(mask));
    rig.server_frame(of, &Header { chunk: ChunkIndex(chunk), ..header }, &[])
}

/// All slots of all groups of all jobs.
fn snapshot(rig: &Rig) -> Vec<(JobId, GroupId, u32, State, Members, bool)> {
    let mut slots = Vec::new();
    for job in rig.aggregator.gather().reports() {
        for (group, _) in job.groups() {
            let seen = |chunk| Some((chunk, job.slot_and_credit(group, chunk)?));
            slots.extend((0..CHUNKS).filter_map(seen).map(|(chunk, (state, members, credit))| {
                (job.id(), group, chunk, state, members, credit)
            }));
        }
    }
    slots
}

#[test]
fn a_push_job_that_comes_late_is_served_like_one_of_the_file() {
    let mut rig = Rig::with_arena(vec![push(1, 2)], arena());
    come(&mut rig, &push(2, 2));
    let id = group(3, 1);
    assert_eq!(rig.install(descriptor(2, id, &[0, 1])), Event::Installed { group: id });
    for (rank, value) in [(0, 5), (1, 7)] {
        let have = rig.ask(&contribution(&rig, 1, rank, id, 0, value));
        assert_eq!(have.header.outcome, Outcome::Have);
    }
    let sum = rig.ask(&credit(&rig, 1, id, 0, 0b11));
    assert_eq!((sum.header.kind, sum.target), (Kind::Contrib, push(2, 2).server.addr));
    assert_eq!(sum.values(), [12; 4]);
    assert_eq!(remove(&mut rig, 2), REMOVED);
    assert_eq!(rig.aggregator.gather().reports().count(), 1);
    assert_eq!(remove(&mut rig, 1), REMOVED, "those of the file go the same way");
    assert!(rig.aggregator.gather().is_empty());
}

#[test]
fn what_cannot_be_is_refused_with_its_reason_and_changes_nothing() {
    use HoldingError::*;
    let mut rig = Rig::with_arena(vec![push(1, 2)], arena());
    let of_job = Event::HoldingInstalled { holding: Holding::Job };
    assert_eq!(rig.told(HoldingCommand::InstallJob(share(5))), of_job);
    let with = |change: &dyn Fn(&mut PushConfig)| {
        let mut config = push(2, 2);
        change(&mut config);
        config
    };
    let cases = [
        ("a job that is there", push(1, 2), Taken),
        ("a job that is reduced", with(&|it| it.job = JobId(5)), Both),
        ("a job's index", with(&|it| it.job = JobId(256)), Number),
        ("a box index", with(&|it| it.box_index.0 = 64), Number),
        ("no workers", with(&|it| it.workers.clear()), Workers),
        ("a worker twice", with(&|it| it.workers[0] = it.workers[1]), Workers),
        ("a server among workers", with(&|it| it.server.addr = it.workers[0]), Workers),
        ("another family", with(&|it| it.workers[1] = "[fd00::1]:7000".parse().unwrap()), Workers),
        ("no elements", with(&|it| it.elements = 0), Updates),
        ("bf16", with(&|it| it.element_type = ElementType::Bf16), Updates),
        ("an exponent", with(&|it| it.exponent = Some(127)), Updates),
        ("no chunks", with(&|it| it.chunks = 0), Number),
        ("no room for an update", with(&|it| it.quota_bytes = 3 * 80 - 1), Memory),
        ("no room for a chunk", with(&|it| it.pull_cache_bytes = 15), Memory),
        ("a rate", with(&|it| it.rate_bytes_per_sec = Some(0)), Number),
        ("a burst", with(&|it| (it.rate_bytes_per_sec, it.burst_bytes) = (Some(1), 1)), Number),
        ("more slots than a place has", with(&|it| it.quota_bytes *= 2), Full),
        ("more of the model than a place has", with(&|it| it.pull_cache_bytes *= 8), Full),
    ];
    for (what, config, error) in cases {
        assert_eq!(install(&mut rig, &config), refused(error), "{what}");
    }
    for job in [2, 5, u16::MAX] {
        assert_eq!(remove(&mut rig, job), refused(Missing), "job {job}");
    }
    let of_pushed = rig.told(HoldingCommand::InstallJob(share(1)));
    assert_eq!(of_pushed, Event::HoldingRefused { holding: Holding::Job, error: Both });
    assert_eq!(rig.aggregator.gather().reports().count(), 1);
}

#[test]
fn a_full_arena_is_an_answer_and_a_removal_makes_room() {
    let mut rig = Rig::with_arena(vec![push(1, 2)], arena());
    for job in [2, 3] {
        assert_eq!(install(&mut rig, &push(job, 64)), INSTALLED);
    }
    assert_eq!(install(&mut rig, &push(4, 1)), refused(HoldingError::Full));
    // The place of the file's own job serves whatever is no larger.
    assert_eq!(remove(&mut rig, 1), REMOVED);
    assert_eq!(install(&mut rig, &push(4, 3)), refused(HoldingError::Full), "one worker more");
    assert_eq!(install(&mut rig, &push(4, 2)), INSTALLED);
    let mut none = Rig::of_two();
    assert_eq!(install(&mut none, &push(2, 1)), refused(HoldingError::Full), "no arena");
}

#[test]
fn who_still_sends_to_a_job_that_was_removed_is_refused_and_told_when_it_asks() {
    let (mut rig, id) = super::installed();
    rig.ask(&rig.contribution(0, id, 0, 5));
    let frames =
        [rig.contribution(1, id, 0, 7), rig.credit(id, 0, 0b11), rig.ack(id, Outcome::Void)];
    assert_eq!(remove(&mut rig, 1), REMOVED);
    let count = frames.len() as u64;
    for frame in frames {
        assert_eq!(rig.send(&frame).unwrap_err(), DropReason::UnknownJob);
    }
    assert_eq!(rig.aggregator.stats().drops.of(DropReason::UnknownJob), count);
    assert_eq!(rig.aggregator.poll_timeout(), Nanos::MAX, "nothing is owed to anybody");
    // A worker that asks why hears it, and gives its channel up.
    rig.jobs[0].workers[0].ask(rig.now);
    let mut frame = vec![0; 1514];
    let len = rig.jobs[0].workers[0].poll_transmit(rig.now, &mut frame).expect("a HELLO");
    let mut answer = rig.raw(&frame[..len]).expect("it is told").remove(0);
    let udp = weft_wire::frame::Datagram::find(&answer).unwrap();
    let packet = weft_wire::header::Packet::new_unchecked(&answer[udp.payload_range()]);
    let header = Header::parse(&packet).unwrap();
    let body = &answer[udp.payload_range()][weft_wire::header::HEADER_LEN..];
    let hello = weft_wire::hello::Hello::parse(body).unwrap().0;
    assert_eq!((hello.phase, hello.reason), (Phase::Refused, Reason::UnknownGroup));
    let worker = &mut rig.jobs[0].workers[0];
    worker.handle_frame(rig.now, &udp, &header, &mut answer).unwrap();
    assert_eq!(worker.error(), Some(ChannelError::UnknownJob { job: JobId(1) }));
}

#[test]
fn what_a_job_owed_is_not_sent_for_the_next_in_its_place() {
    let (mut rig, id) = super::installed();
    rig.ask(&rig.contribution(0, id, 0, 5));
    rig.ask(&rig.credit(id, 0, 0b11));
    // The last contribution becomes the sum, so its acknowledgement is owed.
    let sum = rig.ask(&rig.contribution(1, id, 0, 7));
    assert_eq!(sum.header.kind, Kind::Contrib);
    assert_eq!(remove(&mut rig, 1), REMOVED);
    assert_eq!(install(&mut rig, &push(3, 2)), INSTALLED);
    rig.open(push(3, 2));
    assert!(rig.poll().is_empty(), "the next job owes nobody anything");
    assert_eq!(rig.install(descriptor(3, id, &[0, 1])), Event::Installed { group: id });
    assert!(snapshot(&rig).iter().all(|slot| slot.3 == State::Empty && slot.4 == Members::EMPTY));
}

#[test]
fn a_job_that_is_installed_again_looks_like_a_box_that_begins_anew() {
    let (mut rig, id) = super::installed();
    rig.ask(&rig.contribution(0, id, 0, 5));
    assert_eq!(remove(&mut rig, 1), REMOVED);
    come(&mut rig, &push(1, 2));
    assert_eq!(rig.install(descriptor(1, id, &[0, 1])), Event::Installed { group: id });
    // The same group of the same job: only cookies tell the two apart.
    let stale = rig.ask(&contribution(&rig, 0, 1, id, 0, 1000));
    assert!(stale.is_state(Outcome::Stale, 0), "{stale:?}");
    let of_server = credit(&rig, 0, id, 0, 0b11);
    assert!(rig.send(&of_server).is_err());
    assert!(snapshot(&rig).iter().all(|slot| slot.3 == State::Empty && !slot.5));
    for (rank, value) in [(0, 30), (1, 40)] {
        rig.ask(&contribution(&rig, 1, rank, id, 0, value));
    }
    assert_eq!(rig.ask(&credit(&rig, 1, id, 0, 0b11)).values(), [70; 4]);
}

#[test]
fn a_place_serves_jobs_of_any_shape_one_after_the_other() {
    let mut rig = Rig::with_arena(Vec::new(), ArenaConfig { pushes: 1, ..arena() });
    for (of, job) in (0..6u16).enumerate() {
        let elements = if job % 2 == 0 { ELEMENTS } else { 16 };
        let workers = usize::from(1 + job % 3);
        let quota_bytes = 3 * 80;
        let config = PushConfig { elements, quota_bytes, ..push(job, workers) };
        come(&mut rig, &config);
        let id = group(0, 1);
        let mut group = descriptor(job, id, &[0]);
        group.elements = elements;
        assert_eq!(rig.install(group), Event::Installed { group: id });
        let header = Header { count: elements, ..data_header(id, 1, ElementType::I32) };
        let payload = i32::from(job).to_be_bytes().repeat(usize::from(elements));
        rig.ask(&rig.worker_frame(of, 0, &header, &payload));
        let sum = rig.ask(&credit(&rig, of, id, 1, 0b1));
        assert_eq!(sum.values(), vec![i32::from(job); usize::from(elements)]);
        assert_eq!(rig.report(0).slots(), 3);
        assert_eq!(remove(&mut rig, job), REMOVED);
    }
}

#[test]
fn a_row_and_a_push_job_cannot_take_one_port_for_two_lanes() {
    use crate::role::aggregator::Aggregator;
    use crate::table::{BoxConfig, MemberConfig, Table};
    use weft_control::{Command, SumOrder};
    use weft_wire::header::Operation;
    use weft_wire::hello::Overflow;
    let member = |port| MemberConfig { addr: endpoint(1, 1, port).addr, weight: 1, is_box: false };
    let row = |port| RowConfig {
        row: 1,
        job: JobId(5),
        members: vec![member(port)],
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Wrap,
        integrity: Integrity::Crc32c,
        elements: 4,
        window: 2,
        chunks_max: 1,
        exponent: None,
        fan_in: 1,
        parent: None,
    };
    let config = BoxConfig {
        local: box_endpoint(),
        shards: 2,
        mtu: 1500,
        jobs: vec![share(5)],
        rows: Vec::new(),
        pushes: Vec::new(),
    };
    let arena = ArenaConfig { leases: 1, lease_bytes: 1 << 10, ..arena() };
    let table = Table::new(config).and_then(|table| table.with_arena(arena)).unwrap();
    for lane in 0..2 {
        let mut lane = Aggregator::new(&table, lane, 1, weft_kernel::Kernels::detect());
        let mut told = |command| {
            lane.handle_command(Command::Holding(command));
            lane.gather_mut().poll_event().unwrap().1
        };
        let of_row = |error| Event::HoldingRefused { holding: Holding::Row(1), error };
        // Workers send from 7000, which is a further lane's of who has 6999.
        assert_eq!(told(HoldingCommand::InstallPush(push(1, 1))), INSTALLED);
        let taken = told(HoldingCommand::InstallLease(row(6999)));
        assert_eq!(taken, of_row(HoldingError::Members));
        assert_eq!(told(HoldingCommand::RemovePush { job: JobId(1) }), REMOVED);
        let installed = Event::HoldingInstalled { holding: Holding::Row(1) };
        assert_eq!(told(HoldingCommand::InstallLease(row(6999))), installed);
        let taken = told(HoldingCommand::InstallPush(push(1, 1)));
        assert_eq!(taken, refused(HoldingError::Workers));
    }
}

#[derive(Clone, Debug)]
enum Act {
    Install {
        job: u16,
        workers: usize,
    },
    Remove(u16),
    Share(u16),
    NoShare(u16),
    /// A group of the job, with all its workers.
    Group {
        job: u16,
        row: u16,
    },
    /// A worker of any job that there ever was contributes.
    Contribute {
        of: usize,
        rank: usize,
        row: u16,
        chunk: u32,
    },
    /// A server of any job that there ever was asks for a sum.
    Credit {
        of: usize,
        row: u16,
        chunk: u32,
    },
    /// A frame that was sent comes again.
    Replay(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let row = 0u16..2;
    prop_oneof![
        3 => (0u16..3, 1usize..4).prop_map(|(job, workers)| Act::Install { job, workers }),
        2 => (0u16..3).prop_map(Act::Remove),
        1 => (0u16..3).prop_map(Act::Share),
        1 => (0u16..3).prop_map(Act::NoShare),
        4 => (0u16..3, row.clone()).prop_map(|(job, row)| Act::Group { job, row }),
        14 => (0usize..3, 0usize..3, row.clone(), 0u32..CHUNKS)
            .prop_map(|(of, rank, row, chunk)| Act::Contribute { of, rank, row, chunk }),
        6 => (0usize..3, row, 0u32..CHUNKS)
            .prop_map(|(of, row, chunk)| Act::Credit { of, row, chunk }),
        4 => (0usize..1000).prop_map(Act::Replay),
    ]
}

/// The box beside a model of what it should hold.
struct World {
    rig: Rig,
    /// By job: which of all jobs that there ever were is here.
    live: [Option<usize>; 3],
    shares: Vec<u16>,
    /// Frames that were sent, and of which job.
    sent: Vec<(Vec<u8>, usize)>,
    sums: usize,
}

/// What a worker contributes to a chunk of any group: of this job alone.
fn value(of: usize, rank: usize, row: u16, chunk: u32) -> i32 {
    let of = i32::try_from(of).unwrap() * 10_000;
    1 + of + i32::try_from(rank).unwrap() * 1000 + i32::from(row) * 100 + chunk.cast_signed()
}

impl World {
    fn new() -> Self {
        let rig = Rig::with_arena(Vec::new(), arena());
        Self { rig, live: [None; 3], shares: Vec::new(), sent: Vec::new(), sums: 0 }
    }

    fn is_here(&self, job: u16) -> bool {
        self.live[usize::from(job)].is_some()
    }

    fn install(&mut self, job: u16, workers: usize) {
        let config = PushConfig { replica: Some(endpoint(7, 7, 7)), ..push(job, workers) };
        let expected = if self.is_here(job) {
            refused(HoldingError::Taken)
        } else if self.shares.contains(&job) {
            refused(HoldingError::Both)
        } else if self.live.iter().flatten().count() == 2 {
            refused(HoldingError::Full)
        } else {
            INSTALLED
        };
        assert_eq!(install(&mut self.rig, &config), expected);
        if expected == INSTALLED {
            self.live[usize::from(job)] = Some(self.rig.jobs.len());
            self.rig.open(config);
            self.rig.poll();
        }
    }

    fn remove(&mut self, job: u16) {
        let is_here = self.live[usize::from(job)].take().is_some();
        let expected = if is_here { REMOVED } else { refused(HoldingError::Missing) };
        assert_eq!(remove(&mut self.rig, job), expected);
    }

    fn share(&mut self, job: u16) {
        let refused = |error| Event::HoldingRefused { holding: Holding::Job, error };
        let expected = if self.shares.contains(&job) {
            refused(HoldingError::Taken)
        } else if self.is_here(job) {
            refused(HoldingError::Both)
        } else if self.shares.len() == 1 {
            refused(HoldingError::Full)
        } else {
            self.shares.push(job);
            Event::HoldingInstalled { holding: Holding::Job }
        };
        assert_eq!(self.rig.told(HoldingCommand::InstallJob(share(job))), expected);
    }

    fn deliver(&mut self, frame: &[u8], of: usize) {
        let before = snapshot(&self.rig);
        let job = self.rig.jobs[of].config.job;
        let is_live = self.live[usize::from(job.0)] == Some(of);
        let sent = self.rig.send(frame);
        if !is_live {
            let is_told = |sent: &Vec<Out>| sent.iter().all(|out| out.is_state(Outcome::Stale, 0));
            assert!(sent.as_ref().map_or(true, is_told), "{sent:?}");
            assert_eq!(snapshot(&self.rig), before, "what is gone changes nothing");
        }
        for sum in sent.into_iter().flatten().filter(|out| out.header.kind == Kind::Contrib) {
            let (row, chunk) = (sum.header.group.row(), sum.header.chunk.0);
            let ranks = sum.header.members.iter();
            let of_rank = |rank: weft_wire::Rank| value(of, rank.index(), row, chunk);
            let expected: i32 = ranks.map(of_rank).sum();
            assert_eq!(sum.values(), [expected; 4], "of this job's workers alone");
            assert_eq!(sum.target, self.rig.jobs[of].config.server.addr);
            self.sums += 1;
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Install { job, workers } => self.install(job, workers),
            Act::Remove(job) => self.remove(job),
            Act::Share(job) => self.share(job),
            Act::NoShare(job) => {
                let is_here = self.shares.contains(&job);
                self.shares.retain(|share| *share != job);
                let event = self.rig.told(HoldingCommand::RemoveJob { job: JobId(job) });
                assert_eq!(matches!(event, Event::HoldingRemoved { .. }), is_here);
            }
            Act::Group { job, row } => {
                let of = self.live[usize::from(job)];
                let workers = of.map_or(1, |of| self.rig.jobs[of].config.workers.len());
                let ranks: Vec<u8> = (0..u8::try_from(workers).unwrap()).collect();
                let event = self.rig.install(descriptor(job, group(row, 1), &ranks));
                assert_eq!(matches!(event, Event::Installed { .. }), of.is_some(), "{event:?}");
            }
            Act::Contribute { of, rank, row, chunk } => {
                let Some(of) = self.rig.jobs.len().checked_sub(1 + of) else { return };
                let rank = rank % self.rig.jobs[of].workers.len();
                assert_eq!(self.rig.jobs[of].workers[rank].standing(), Standing::Open);
                let number = value(of, rank, row, chunk);
                let frame = contribution(&self.rig, of, rank, group(row, 1), chunk, number);
                self.sent.push((frame.clone(), of));
                self.deliver(&frame, of);
            }
            Act::Credit { of, row, chunk } => {
                let Some(of) = self.rig.jobs.len().checked_sub(1 + of) else { return };
                let Some(mask) = self.mask(of) else { return };
                let frame = credit(&self.rig, of, group(row, 1), chunk, mask);
                self.sent.push((frame.clone(), of));
                self.deliver(&frame, of);
            }
            Act::Replay(_) if self.sent.is_empty() => {}
            Act::Replay(index) => {
                let (frame, of) = self.sent[index % self.sent.len()].clone();
                self.deliver(&frame, of);
            }
        }
        // Acknowledgements that are owed go to workers of jobs that are here.
        for out in self.rig.poll() {
            assert!(self.is_here(out.header.job.0), "{out:?}");
        }
        while self.rig.event().is_some() {}
        let held: Vec<u16> = self.rig.aggregator.gather().reports().map(|it| it.id().0).collect();
        assert!((0..3).all(|job| held.contains(&job) == self.is_here(job)), "{held:?}");
    }

    /// All workers of a job, if its server has a channel to write on.
    fn mask(&self, of: usize) -> Option<u64> {
        let ends = &self.rig.jobs[of];
        let is_open = ends.server.is_open(Peer::Box(ends.config.box_index));
        is_open.then(|| Members::first(ends.config.workers.len()).0)
    }
}

proptest! {
    /// Whatever comes and goes in whatever order, a sum is of one job's workers and goes to that
    /// job's server, and what a job that is gone still gets changes nothing.
    #[test]
    fn sums_are_of_one_job_whatever_comes_and_goes(acts in prop::collection::vec(act(), 1..100)) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
    }
}

/// Else the test above would show nothing.
#[test]
fn a_random_walk_gets_sums_of_jobs_that_came_again() {
    let mut world = World::new();
    for round in 0..3 {
        for act in [
            Act::Install { job: 1, workers: 2 },
            Act::Group { job: 1, row: 0 },
            Act::Contribute { of: 0, rank: 0, row: 0, chunk: 1 },
            Act::Contribute { of: 1, rank: 1, row: 0, chunk: 1 },
            Act::Contribute { of: 0, rank: 1, row: 0, chunk: 1 },
            Act::Credit { of: 0, row: 0, chunk: 1 },
            Act::Remove(1),
        ] {
            world.act(act);
        }
        assert_eq!(world.sums, round + 1);
    }
}

#[test]
fn the_addresses_of_a_late_job_are_those_of_the_table() {
    let mut rig = Rig::with_arena(Vec::new(), arena());
    // Strangers use up what all others may cost.
    let mut stranger = worker(&push(9, 1), 0, 1);
    let mut frame = vec![0; 1514];
    let len = stranger.poll_transmit(rig.now, &mut frame).unwrap();
    while rig.raw(&frame[..len]).is_ok() {}
    assert_eq!(rig.raw(&frame[..len]).unwrap_err(), DropReason::StrangersQuota);
    assert_eq!(install(&mut rig, &push(1, 64)), INSTALLED);
    rig.now = Nanos(rig.now.0 + 10_000_000);
    assert!(rig.raw(&frame[..len]).is_ok());
    while rig.raw(&frame[..len]).is_ok() {}
    // What strangers do costs its workers nothing.
    let mut late = worker(&push(1, 64), 63, 7);
    let len = late.poll_transmit(rig.now, &mut frame).unwrap();
    assert_eq!(read(&rig.raw(&frame[..len]).unwrap()[0]).header.kind, Kind::Hello);
}
