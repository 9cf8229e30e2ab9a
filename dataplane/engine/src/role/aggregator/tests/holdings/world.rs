//! Jobs and leases that come and go at random while members send, beside a model of what the box
//! should hold.

use proptest::prelude::*;

use super::*;

/// A formation of a lease: its members, and what each contributes to a chunk.
struct Formation {
    row: u16,
    number: i32,
    group: Vec<Member>,
}

impl Formation {
    fn value(&self, rank: usize, chunk: u32) -> i32 {
        1 + self.number * 1000 + i32::try_from(rank).unwrap() * 100 + i32::try_from(chunk).unwrap()
    }

    fn contribution(&self, rank: usize, chunk: u32) -> Vec<u8> {
        self.group[rank].contribution(chunk, self.value(rank, chunk))
    }

    fn sum(&self, chunk: u32) -> i32 {
        (0..self.group.len()).map(|rank| self.value(rank, chunk)).sum()
    }
}

#[derive(Clone, Debug)]
enum Act {
    InstallJob(u16),
    RemoveJob(u16),
    Install {
        row: u16,
        job: u16,
        members: u8,
        window: u16,
    },
    Remove {
        row: u16,
        job: u16,
    },
    /// All members of the row's lease begin anew.
    Form(u16),
    /// A member of any formation that there ever was contributes.
    Contribute {
        formation: usize,
        rank: usize,
        chunk: u32,
    },
    /// A frame that was sent comes again.
    Replay(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        1 => (0u16..3).prop_map(Act::InstallJob),
        1 => (0u16..3).prop_map(Act::RemoveJob),
        3 => (0u16..3, 0u16..3, 1u8..4, 0u32..3).prop_map(|(row, job, members, log)| {
            Act::Install { row, job, members, window: 1 << log }
        }),
        2 => (0u16..3, 0u16..3).prop_map(|(row, job)| Act::Remove { row, job }),
        4 => (0u16..3).prop_map(Act::Form),
        14 => (0usize..4, 0usize..3, 0u32..4)
            .prop_map(|(formation, rank, chunk)| Act::Contribute { formation, rank, chunk }),
        3 => (0usize..1000).prop_map(Act::Replay),
    ]
}

/// The box beside a model of what it should hold.
struct World {
    aggregator: Aggregator,
    now: Nanos,
    jobs: Vec<u16>,
    leases: Vec<RowConfig>,
    /// All formations, the newest last.
    formations: Vec<Formation>,
    /// By row: the formation that is there.
    live: [Option<usize>; 3],
    /// Frames that were sent, and the formation of each.
    sent: Vec<(Vec<u8>, usize)>,
}

impl World {
    fn new() -> Self {
        let arena = ArenaConfig { jobs: 2, ..ARENA };
        Self {
            aggregator: serving(Vec::new(), arena),
            now: Nanos(0),
            jobs: Vec::new(),
            leases: Vec::new(),
            formations: Vec::new(),
            live: [None; 3],
            sent: Vec::new(),
        }
    }

    fn expected(&self, command: &HoldingCommand) -> Result<(), HoldingError> {
        let of_row = |row: u16| self.leases.iter().find(|lease| lease.row == row);
        let of_job = |job: JobId| self.leases.iter().filter(move |lease| lease.job == job);
        match command {
            HoldingCommand::InstallJob(config) if self.jobs.contains(&config.job.0) => {
                Err(HoldingError::Taken)
            }
            HoldingCommand::InstallJob(_) if self.jobs.len() == 2 => Err(HoldingError::Full),
            HoldingCommand::InstallLease(row) if !self.jobs.contains(&row.job.0) => {
                Err(HoldingError::UnknownJob)
            }
            HoldingCommand::InstallLease(row) => match of_row(row.row) {
                Some(other) if other.job == row.job => Err(HoldingError::Taken),
                Some(_) => Err(HoldingError::OtherJob),
                None if of_job(row.job).map(|lease| lease.window).sum::<u16>() + row.window > 6 => {
                    Err(HoldingError::Quota)
                }
                None if self.leases.len() == 2 => Err(HoldingError::Full),
                None => Ok(()),
            },
            HoldingCommand::RemoveJob { job } if !self.jobs.contains(&job.0) => {
                Err(HoldingError::Missing)
            }
            HoldingCommand::RemoveJob { job } if of_job(*job).next().is_some() => {
                Err(HoldingError::InUse)
            }
            HoldingCommand::RemoveLease { job, row } => match of_row(*row) {
                None => Err(HoldingError::Missing),
                Some(lease) if lease.job != *job => Err(HoldingError::OtherJob),
                Some(_) => Ok(()),
            },
            HoldingCommand::InstallJob(_) | HoldingCommand::RemoveJob { .. } => Ok(()),
            // gather/tests/holdings.rs has them.
            HoldingCommand::InstallPush(_) => Err(HoldingError::Full),
            HoldingCommand::RemovePush { .. } => Err(HoldingError::Missing),
        }
    }

    fn command(&mut self, command: HoldingCommand) {
        let holding = command.holding();
        let expected = self.expected(&command);
        let event = told(&mut self.aggregator, command.clone());
        if let Err(error) = expected {
            assert_eq!(event, Event::HoldingRefused { holding, error }, "{command:?}");
            return;
        }
        assert!(!matches!(event, Event::HoldingRefused { .. }), "{command:?}: {event:?}");
        match command {
            HoldingCommand::InstallJob(config) => self.jobs.push(config.job.0),
            HoldingCommand::InstallLease(row) => self.leases.push(row),
            HoldingCommand::RemoveJob { job } => self.jobs.retain(|other| *other != job.0),
            HoldingCommand::RemoveLease { row, .. } => {
                self.leases.retain(|lease| lease.row != row);
                self.live[usize::from(row)] = None;
            }
            HoldingCommand::InstallPush(_) | HoldingCommand::RemovePush { .. } => unreachable!(),
        }
    }

    fn form(&mut self, row: u16) {
        let Some(config) = self.leases.iter().find(|lease| lease.row == row) else { return };
        let number = self.formations.len();
        let mut group = group_of(config, 1 + 10 * number as u64);
        for _ in 0..2 {
            for member in &mut group {
                member.session = 0;
                member.join_at(&mut self.aggregator, None, self.now);
                let hello = member.hello(Hello::new(Step::Hello), &[]);
                self.sent.push((hello, number));
            }
        }
        let number = i32::try_from(number).unwrap();
        assert!(group.iter().all(|member| member.session != 0), "all are welcome");
        self.live[usize::from(row)] = Some(self.formations.len());
        self.formations.push(Formation { row, number, group });
    }

    fn deliver(&mut self, frame: Vec<u8>, formation: usize) {
        let before = snapshot(&self.aggregator);
        let is_hello = read(&frame).hello.is_some();
        let (verdict, out) = deliver(&mut self.aggregator, frame, self.now);
        let of = &self.formations[formation];
        let is_live = self.live[usize::from(of.row)] == Some(formation);
        if !is_live || is_hello {
            assert!(matches!(verdict, Verdict::Drop(_) | Verdict::Send { .. }), "{verdict:?}");
            assert_eq!(snapshot(&self.aggregator), before, "what is gone changes nothing");
        }
        if let Some(out) = out.filter(|out| out.header.kind == Kind::Answer) {
            assert!(is_live, "a lease that is gone has no answers");
            let chunk = out.header.chunk.0;
            assert_eq!(out.values, [of.sum(chunk); 4], "chunk {chunk} of its members alone");
        }
    }

    fn act(&mut self, act: Act) {
        self.now = self.now.saturating_add(Nanos(1_000_000_000));
        match act {
            Act::InstallJob(index) => {
                let config = JobConfig { slots_max: 6, ..job(index) };
                self.command(HoldingCommand::InstallJob(config));
            }
            Act::RemoveJob(job) => self.command(HoldingCommand::RemoveJob { job: JobId(job) }),
            Act::Install { row: index, job, members, window } => {
                let row = RowConfig { window, ..row(index, job, members) };
                self.command(HoldingCommand::InstallLease(row));
            }
            Act::Remove { row, job } => {
                self.command(HoldingCommand::RemoveLease { job: JobId(job), row });
            }
            Act::Form(row) => self.form(row),
            Act::Contribute { formation, rank, chunk } => {
                let Some(index) = self.formations.len().checked_sub(1 + formation) else { return };
                let formation = &self.formations[index];
                let frame = formation.contribution(rank % formation.group.len(), chunk);
                self.sent.push((frame.clone(), index));
                self.deliver(frame, index);
            }
            Act::Replay(_) if self.sent.is_empty() => {}
            Act::Replay(index) => {
                let (frame, formation) = self.sent[index % self.sent.len()].clone();
                self.deliver(frame, formation);
            }
        }
        let held: Vec<u16> = self.aggregator.leases().map(|lease| lease.row().row).collect();
        assert_eq!(held.len(), self.leases.len());
        assert!(self.leases.iter().all(|lease| held.contains(&lease.row)));
        let is_open = |row: u16| {
            let mut leases = self.aggregator.leases();
            leases.any(|lease| lease.row().row == row && lease.phase() == Phase::Open)
        };
        for (live, row) in self.live.iter().zip(0..) {
            assert_eq!(live.is_some(), is_open(row), "nobody but its members forms row {row}");
        }
    }
}

proptest! {
    /// Whatever comes and goes in whatever order, an answer is the sum of one formation's members,
    /// and what a lease that is gone still gets changes nothing.
    #[test]
    fn sums_are_of_one_lease_whatever_comes_and_goes(acts in prop::collection::vec(act(), 1..120)) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
    }
}

/// Else the test above would show nothing.
#[test]
fn a_random_walk_gets_sums_of_leases_that_came_again() {
    let mut world = World::new();
    for round in 0..3 {
        for act in [
            Act::InstallJob(0),
            Act::Install { row: 0, job: 0, members: 2, window: 1 },
            Act::Form(0),
            Act::Contribute { formation: 0, rank: 0, chunk: 0 },
            Act::Contribute { formation: 1, rank: 1, chunk: 0 },
            Act::Contribute { formation: 0, rank: 1, chunk: 0 },
            Act::Contribute { formation: 0, rank: 0, chunk: 1 },
            Act::Remove { row: 0, job: 0 },
        ] {
            world.act(act);
        }
        let completed = world.aggregator.jobs().next().unwrap().1.chunks_completed;
        assert_eq!(completed, round + 1);
    }
}
