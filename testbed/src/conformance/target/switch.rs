//! A switch that runs the P4 program, with the agent at its CPU port.
//!
//! Everything that follows from a frame happens before the next: writes are carried out at once, in
//! the order in which the agent gives them. So a script sees no race that a slow switch could have.
//! The counters are read as the agent reads them, so its reading is judged too.

use std::collections::VecDeque;
use std::fs;
use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;

use weft_control::{Command, Event};
use weft_engine::drops::DropReason;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::gather;
use weft_engine::role::switch::{Agent, CODES, Counter, Rendered, Target as Sizes, Write};
use weft_engine::slot::counter::Transition;
use weft_engine::table::Table;
use weft_kernel::Kernels;
use weft_p4_interpreter::Switch as Interpreter;
use weft_wire::hello::Integrity;
use weft_wire::{GroupId, JobId, Nanos};

use super::rust::{SEED, box_config, drops, frames};
use super::{Counts, FRAME_LEN_MAX, Refused, Setup, Target};

/// Something that runs the program.
pub trait Switch: Sized {
    /// Starts it with `program`, the compiled JSON; `ports` are those of hosts and agent.
    ///
    /// # Errors
    ///
    /// It is not here, or does not take it.
    fn start(program: PathBuf, ports: Vec<u16>) -> Result<Self, Refused>;

    /// Carries out a write of the agent.
    ///
    /// # Errors
    ///
    /// It refuses it.
    fn write(&mut self, write: &Write) -> Result<(), String>;

    /// Gives it a frame at a port; what leaves it, with the ports.
    ///
    /// # Errors
    ///
    /// It did what no switch may do.
    fn pass(&mut self, port: u16, frame: &[u8]) -> Result<Sent, String>;

    /// What cells of a counter stand at.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    fn read(&mut self, counter: Counter, cells: Range<u32>) -> Result<Vec<u64>, String>;

    /// Begins anew, with nothing in it but the program.
    ///
    /// # Errors
    ///
    /// It could not.
    fn restart(&mut self) -> Result<(), String>;
}

/// Frames that left, with their ports.
pub type Sent = Vec<(u16, Vec<u8>)>;

/// A switch and its agent.
#[derive(Debug)]
pub struct SwitchBox<S> {
    setup: Setup,
    sizes: Sizes,
    switch: S,
    agent: Agent,
    lives: u64,
    /// Scopes below this one were written about.
    scopes: u32,
    /// Why counters could not be read.
    problem: Option<String>,
    out: Vec<(usize, Vec<u8>)>,
}

impl<S: Switch> SwitchBox<S> {
    /// Makes the box.
    ///
    /// # Errors
    ///
    /// There is no such program, or it cannot do what is asked for.
    pub fn start(setup: &Setup) -> Result<Self, Refused> {
        let skipped = |reason: String| Refused::Skipped(reason);
        let elements = setup.rows.iter().map(|row| row.elements);
        let mut elements: Vec<u16> =
            elements.chain(setup.pushes.iter().map(|push| push.elements)).collect();
        elements.dedup();
        let [elements] = elements[..] else {
            return Err(skipped("a switch has chunks of one size".to_owned()));
        };
        let file = setup.programs.join(format!("weft-v1model-{elements}.json"));
        let json = fs::read_to_string(&file).map_err(|error| {
            skipped(format!(
                "there is no program for {elements} elements: {}: {error}",
                file.display()
            ))
        })?;
        let program =
            Interpreter::load(&json).map_err(|error| Refused::Failed(error.to_string()))?;
        let sizes = sizes(&program, elements, setup).map_err(Refused::Failed)?;
        sizes.check_box(&checksummed(setup)).map_err(|error| skipped(error.to_string()))?;
        let agent = agent(setup, &sizes, 1)?;
        let ports = sizes.hosts.iter().map(|(_, port)| *port).chain([sizes.cpu_port]);
        let switch = S::start(file, ports.collect())?;
        let mut target = Self {
            setup: setup.clone(),
            sizes,
            switch,
            agent,
            lives: 1,
            scopes: 0,
            problem: None,
            out: Vec::new(),
        };
        target.settle(Nanos(0)).map_err(Refused::Failed)?;
        Ok(target)
    }

    /// Works until nothing is left to do: frames of the CPU port, writes, and frames of the agent.
    fn settle(&mut self, now: Nanos) -> Result<(), String> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        let mut buffer = vec![0; FRAME_LEN_MAX];
        for _ in 0..ROUNDS_MAX {
            let mut is_idle = true;
            while let Some((number, write)) = self.agent.poll_write() {
                self.scopes = self.scopes.max(scopes_of(&write));
                let result = self.switch.write(&write);
                if let Err(problem) = &result {
                    return Err(format!("the switch refuses {write:?}: {problem}"));
                }
                self.agent.handle_written(number, result);
                is_idle = false;
            }
            if let Some(len) = self.agent.poll_transmit(now, &mut buffer) {
                let frame = buffer[..len].to_vec();
                self.pass(now, self.sizes.cpu_port, &frame)?;
                is_idle = false;
            }
            if is_idle {
                let lost = self.agent.lost();
                return lost.map_or(Ok(()), |lost| Err(format!("the agent lost it: {lost:?}")));
            }
        }
        Err("the agent never rests".to_owned())
    }

    /// Gives the switch a frame, and the agent what comes to it.
    fn pass(&mut self, now: Nanos, port: u16, frame: &[u8]) -> Result<(), String> {
        let mut waiting = VecDeque::from([self.switch.pass(port, frame)?]);
        let mut count = 0;
        while let Some(sent) = waiting.pop_front() {
            count += 1;
            if count > ROUNDS_MAX {
                return Err("frames go round between switch and agent".to_owned());
            }
            for (port, frame) in sent {
                if port != self.sizes.cpu_port {
                    self.out.push((usize::from(port) - 1, frame));
                    continue;
                }
                let mut buffer = vec![0; FRAME_LEN_MAX.max(frame.len())];
                buffer[..frame.len()].copy_from_slice(&frame);
                let verdict = self.agent.handle_frame(now, &mut buffer, frame.len());
                for answer in frames(self.agent.aggregator(), verdict, &buffer) {
                    waiting.push_back(self.switch.pass(self.sizes.cpu_port, &answer)?);
                }
            }
        }
        Ok(())
    }

    /// Gives the agent what the switch has counted.
    fn read(&mut self, counter: Counter, cells: Range<u32>) {
        match self.switch.read(counter, cells.clone()) {
            Ok(values) => cells
                .zip(values)
                .for_each(|(cell, value)| self.agent.handle_read(counter, cell, value)),
            Err(problem) => self.problem = Some(problem),
        }
    }
}

/// One more than the highest scope that a write names.
fn scopes_of(write: &Write) -> u32 {
    let Rendered::Table(table) = write.entry().render() else { return 0 };
    let fields = table.keys.iter().chain(&table.params);
    let scope = fields.filter(|field| field.name == "scope").map(|field| field.value).max();
    scope.map_or(0, |scope| u32::try_from(scope + 1).expect("scopes are few"))
}

/// The sizes of a program; the peers are at its ports from 1 on.
fn sizes(switch: &Interpreter, elements: u16, setup: &Setup) -> Result<Sizes, String> {
    let len = |array: &str| {
        switch.array_len(array).ok_or_else(|| format!("the program has no array {array}"))
    };
    let small = |len: usize| u16::try_from(len).map_err(|_| format!("{len} are too many"));
    let hosts = setup.peers.iter().zip(1..).filter_map(|(peer, port)| match peer.addr.ip() {
        IpAddr::V4(ip) => Some((ip, port)),
        IpAddr::V6(_) => None,
    });
    Ok(Sizes {
        elements,
        banks: u32::from(small(len("bank_state")?)?),
        rows: small(len("gone")?)?,
        scopes: small(len("job_meter")?)?,
        cpu_port: CPU_PORT,
        hosts: hosts.collect(),
        cpu_quota: None,
    })
}

fn checksummed(setup: &Setup) -> weft_engine::table::BoxConfig {
    let mut config = box_config(setup);
    config.pushes.iter_mut().for_each(|push| push.integrity = Integrity::Checksum16);
    config
}

fn agent(setup: &Setup, sizes: &Sizes, life: u64) -> Result<Agent, Refused> {
    let table = Table::new(checksummed(setup));
    let table = table.map_err(|error| Refused::Skipped(error.to_string()))?;
    let aggregator = Aggregator::new(&table, 0, SEED + life, Kernels::detect());
    Ok(Agent::new(aggregator, sizes.clone(), SEED ^ life))
}

impl<S: Switch> Target for SwitchBox<S> {
    fn push_integrity(&self) -> Integrity {
        Integrity::Checksum16
    }

    fn handle(&mut self, now: Nanos, port: usize, frame: &[u8]) -> Result<(), String> {
        let port = u16::try_from(port + 1).expect("ports are few");
        self.pass(now, port, frame)?;
        self.settle(now)
    }

    fn poll(&mut self, now: Nanos) -> Result<(), String> {
        self.settle(now)
    }

    fn take(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.out)
    }

    fn command(&mut self, now: Nanos, command: Command) -> Result<(), String> {
        self.agent.handle_command(command);
        self.settle(now)
    }

    fn event(&mut self) -> Option<(JobId, Event)> {
        self.agent.poll_event()
    }

    /// What either has refused.
    fn drops(&mut self) -> Counts {
        let reasons = u32::try_from(DropReason::COUNT).expect("few reasons");
        self.read(Counter::Drops, 0..reasons);
        let own = drops(self.agent.aggregator());
        let both = own.into_iter().zip(DropReason::ALL);
        let counters = self.agent.counters();
        both.map(|((name, own), (reason, _))| (name, own + counters.drops(*reason))).collect()
    }

    /// Of rows, those of all jobs together: a script that counts transitions has one lease.
    fn transitions(&mut self, job: JobId, is_push: bool) -> Option<Counts> {
        let codes = u32::try_from(CODES).expect("few codes");
        self.read(Counter::Transitions, 0..self.scopes * codes);
        let (aggregator, counters) = (self.agent.aggregator(), self.agent.counters());
        if is_push {
            let gather = aggregator.gather();
            let report = gather.reports().find(|report| report.id() == job)?;
            let own = report.stats().transitions().zip(gather::Transition::ALL);
            let both = own.map(|((name, own), (kind, _))| (name, own + counters.whole(job, *kind)));
            return Some(both.collect());
        }
        let mut jobs: Vec<JobId> = self.setup.rows.iter().map(|row| row.job).collect();
        jobs.dedup();
        let of = |kind| jobs.iter().map(|job| counters.windowed(*job, kind)).sum::<u64>();
        let own = aggregator.stats().transitions.iter();
        let both = Transition::ALL.iter().zip(own);
        Some(both.map(|((kind, name), (_, own))| (*name, own + of(*kind))).collect())
    }

    fn bank(&mut self, _job: JobId, _group: GroupId, _chunk: u32) -> Option<&'static str> {
        None
    }

    fn restart(&mut self, now: Nanos) -> Result<(), String> {
        self.lives += 1;
        self.switch.restart()?;
        self.agent = agent(&self.setup, &self.sizes, self.lives)
            .map_err(|refused| format!("it does not start again: {refused:?}"))?;
        self.settle(now)
    }
}

/// The port of the agent, as the program has it.
const CPU_PORT: u16 = 255;
/// Frames and writes that follow from one frame.
const ROUNDS_MAX: usize = 100_000;
