//! What `weft run` is told, and the scenario that comes of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use weft_config::Problem;
use weft_control::BandPolicy;
use weft_testbed::lab::LabName;
use weft_testbed::run::{Io, WorkerIo};
use weft_testbed::scenario::{
    CONTROLLER, FactorisationScenario, FaultSection, JobsScenario, Replication, Scenario,
    has_factorisation, has_jobs,
};
use weft_wire::words::Word as _;

use super::{Exit, Failure, input};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The scenario (TOML).
    #[arg(value_parser = input())]
    pub(super) scenario: PathBuf,
    /// Port that carries the frames: DPDK on veth when it can, else UDP on loopback, which is
    /// reported as degraded [default: dpdk].
    #[arg(long, value_enum)]
    pub(super) io: Option<IoName>,
    /// Port of the workers in a lab [default: udp; shm with --io shm].
    #[arg(long, value_enum, conflicts_with = "no_lab")]
    pub(super) worker_io: Option<WorkerIoName>,
    /// The switch of the lab sums, a P4 switch: BMv2's simple_switch_grpc, which must be on PATH
    /// (docs/switch.md). Restarts may name it: s0.
    #[arg(long, value_enum, conflicts_with_all = ["io", "no_lab", "leaves"])]
    pub(super) switch: Option<SwitchName>,
    /// Seed of data, model and faults.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Name of the run in its directory, its report and run.json: letters, digits, `-` and `_`
    /// [default: the scenario's].
    #[arg(long, value_parser = run_name)]
    pub(super) name: Option<String>,
    /// Run directory, which must be empty or not exist [default: out/NAME-TIME].
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Keep a capture of what each box received and sent in the run directory, BOX.pcap. That of a
    /// box which is restarted is BOX.life0.pcap and so on. With several lanes: --io udp or shm.
    #[arg(long)]
    pub(super) pcap: bool,
    /// Largest size of each capture; how many frames came after it is reported.
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = PCAP_MIB_DEFAULT,
        value_parser = clap::value_parser!(u64).range(1..=PCAP_MIB_MAX),
        requires = "pcap"
    )]
    pub(super) pcap_size: u64,
    /// Keep a recording of what each box's engines met in the run directory, BOX.recording, for
    /// `weft replay`. That of a box which is restarted is BOX.life0.recording and so on.
    #[arg(long)]
    pub(super) record: bool,
    /// Largest size of each recording in bytes; it ends there, and the run goes on.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = RECORD_BYTES_DEFAULT,
        value_parser = clap::value_parser!(u64).range(65_536..),
        requires = "record"
    )]
    pub(super) record_max_bytes: u64,
    /// Do without network namespaces: DPDK over a memif between two processes, UDP on loopback.
    #[arg(long)]
    pub(super) no_lab: bool,
    /// Run in this lab, which is up and stays up, instead of one of the run's own: its nodes have
    /// the names and addresses of the scenario's (`weft lab topology`). Needs --io udp.
    #[arg(long, value_name = "NAME", conflicts_with = "no_lab")]
    pub(super) lab: Option<LabName>,
    /// Fail instead of falling back to another port or to transfers that nobody planned.
    #[arg(long)]
    pub(super) strict: bool,
    /// Print each box's configuration and each worker's plan, and exit.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Keep the recorded gradients and sums in the run directory.
    #[arg(long)]
    pub(super) keep_recordings: bool,
    /// How the run is carried out: `live` on this machine's network stack and clock, or `packet` by
    /// the same engines in virtual time, on links without a machine behind them (docs/run.md).
    #[arg(long, value_enum, default_value_t)]
    pub(super) level: Level,
    /// Overrides push.policy: how transfers are planned. Of several jobs bands.policy: `fifo`,
    /// `one` or `round-robin`.
    #[arg(long, help_heading = "Overrides")]
    policy: Option<String>,
    /// Overrides push.replication: `none`, `network`, `worker` or `chain`.
    #[arg(long, value_enum, help_heading = "Overrides")]
    replication: Option<ReplicationName>,
    /// Does without a controller and aggregators: updates go straight to the server and are
    /// committed in the order of their arrival. Where several jobs have bands, the controller stays
    /// for these, and grants every update at once.
    #[arg(long, help_heading = "Overrides")]
    direct: bool,
    /// Short for --replication network.
    #[arg(long, conflicts_with = "replication", help_heading = "Overrides")]
    replica: bool,
    /// Overrides job.rounds.
    #[arg(long, help_heading = "Overrides")]
    rounds: Option<u32>,
    /// Ends the run at a held-out loss, and after its rounds at the latest: overrides
    /// push.target_loss and push.until_loss.
    #[arg(long, value_name = "LOSS", help_heading = "Overrides")]
    until_loss: Option<f64>,
    /// Overrides aggregation.leaves.
    #[arg(long, help_heading = "Overrides")]
    leaves: Option<u8>,
    /// Overrides faults.loss.
    #[arg(long, help_heading = "Overrides")]
    loss: Option<f64>,
    /// Overrides faults.duplicate.
    #[arg(long, help_heading = "Overrides")]
    duplicate: Option<f64>,
    /// Overrides faults.reorder.
    #[arg(long, help_heading = "Overrides")]
    reorder: Option<f64>,
    /// Overrides faults.corrupt.
    #[arg(long, help_heading = "Overrides")]
    corrupt: Option<f64>,
    /// Kills a box after a round of rank 0 and starts it again, such as a1@40; may be repeated.
    #[arg(long, value_name = "BOX@ROUND", help_heading = "Overrides")]
    restart: Vec<String>,
    /// As --restart, but the box stays dead: such as server@40, whose replica takes its place
    /// (needs a replica and `push.ack = "replica"`).
    #[arg(long, value_name = "BOX@ROUND", help_heading = "Overrides")]
    crash: Vec<String>,
}

/// Largest size of a capture, unless another is asked for, and the largest that may be.
const PCAP_MIB_DEFAULT: u64 = 256;
const RECORD_BYTES_DEFAULT: u64 = 256 << 20;
const PCAP_MIB_MAX: u64 = 1 << 20;
const NAME_LEN_MAX: usize = 64;

fn run_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=NAME_LEN_MAX).contains(&text.len()) && text.chars().all(is_plain) {
        Ok(text.to_owned())
    } else {
        Err(format!("use 1 to {NAME_LEN_MAX} letters, digits, `-` and `_`"))
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum IoName {
    Memory,
    Udp,
    /// Memory that box and workers share on this host; for an allreduce.
    Shm,
    AfPacket,
    Dpdk,
}

/// A worker's port.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum WorkerIoName {
    Udp,
    /// UDP, and a sum leaves the box once for all workers.
    UdpMulticast,
    /// Packet sockets on the worker's interface, beside its kernel.
    AfPacket,
}

impl WorkerIoName {
    pub(crate) fn io(self) -> WorkerIo {
        match self {
            Self::Udp => WorkerIo::Udp,
            Self::UdpMulticast => WorkerIo::UdpMulticast,
            Self::AfPacket => WorkerIo::AfPacket,
        }
    }
}

/// A P4 switch.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum SwitchName {
    /// p4.org's behavioural model.
    Bmv2,
}

impl IoName {
    pub(super) fn io(self) -> Io {
        match self {
            Self::Memory => Io::Memory,
            Self::Udp => Io::Udp,
            Self::Shm => Io::Shm,
            Self::AfPacket => Io::AfPacket,
            Self::Dpdk => Io::Dpdk,
        }
    }
}

/// How a run is carried out.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Level {
    /// Processes, in real time.
    #[default]
    Live,
    /// One process, in virtual time, the same for the same seed.
    Packet,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum ReplicationName {
    None,
    Network,
    Worker,
    Chain,
}

impl ReplicationName {
    fn replication(self) -> Replication {
        match self {
            Self::None => Replication::None,
            Self::Network => Replication::Network,
            Self::Worker => Replication::Worker,
            Self::Chain => Replication::Chain,
        }
    }
}

/// Reads the scenario's file; whether it has several jobs.
pub(super) fn read(scenario: &Path) -> Result<(String, bool), Failure> {
    let name = scenario.display().to_string();
    let text = fs::read_to_string(scenario)
        .with_context(|| format!("reading {name}"))
        .map_err(|error| Exit::Usage.because(error))?;
    let is_list = has_jobs(&name, &text).map_err(|error| Exit::Usage.because(error))?;
    Ok((text, is_list))
}

/// Whether the scenario is of a matrix that is factored over a table of rows.
pub(super) fn is_factorisation(scenario: &Path, text: &str) -> Result<bool, Failure> {
    let name = scenario.display().to_string();
    has_factorisation(&name, text).map_err(|error| Exit::Usage.because(error))
}

pub(super) fn load(arguments: &RunArgs, text: &str) -> Result<Scenario, Failure> {
    let name = arguments.scenario.display().to_string();
    let mut scenario = Scenario::parse(&name, text).map_err(|error| Exit::Usage.because(error))?;
    arguments.change_faults(&mut scenario.faults);
    scenario.job.rounds = arguments.rounds.unwrap_or(scenario.job.rounds);
    scenario.aggregation.leaves = arguments.leaves.unwrap_or(scenario.aggregation.leaves);
    let for_push = arguments.policy.is_some()
        || arguments.replication.is_some()
        || arguments.until_loss.is_some();
    match &mut scenario.push {
        Some(push) => {
            if let Some(policy) = &arguments.policy {
                push.policy.clone_from(policy);
            }
            if let Some(loss) = arguments.until_loss {
                push.target_loss = Some(loss);
                push.until_loss = true;
            }
            if arguments.direct {
                push.controller = false;
                push.aggregators = 0;
                scenario.lab.links.remove(CONTROLLER);
            }
            if arguments.replica {
                push.replication = Replication::Network;
            }
            if let Some(name) = arguments.replication {
                push.replication = name.replication();
                if push.replication == Replication::Worker {
                    // The lab's links of the aggregators go with them.
                    push.aggregators = 0;
                }
                if push.replication == Replication::None {
                    push.div_max = None;
                }
            }
        }
        None if for_push || arguments.replica || arguments.direct => {
            let error = anyhow!(
                "--policy, --direct, --replica, --replication and --until-loss belong to a \
                 scenario with [push]"
            );
            return Err(Exit::Usage.because(error));
        }
        None => {}
    }
    for restart in &arguments.restart {
        let section = Scenario::restart("--restart", restart);
        scenario.restart.push(section.map_err(|error| Exit::Usage.because(error))?);
    }
    for crash in &arguments.crash {
        let section = Scenario::restart("--crash", crash);
        scenario.crash.push(section.map_err(|error| Exit::Usage.because(error))?);
    }
    // The overrides obey the same rules as the file.
    match scenario.check() {
        Ok(()) => Ok(scenario),
        Err(problem) => Err(Exit::Usage.because(arguments.overridden(&problem))),
    }
}

impl RunArgs {
    /// A mistake of the overrides: the option that brings it, or all where none is alone at fault.
    pub(super) fn overridden(&self, Problem { field, problem }: &Problem) -> anyhow::Error {
        let given = self.overrides();
        let section = field.split(['.', '[']).next().unwrap_or_default();
        let named = given.iter().find(|(_, of)| of == field || *of == section);
        let options: Vec<&str> = match named {
            Some((option, _)) => vec![option],
            None => given.iter().map(|(option, _)| *option).collect(),
        };
        anyhow!("{}: {field} {problem}", options.join(", "))
    }

    /// The first option that a scenario of several jobs cannot be given, and why.
    pub(super) fn not_for_several(&self) -> Option<(&'static str, &'static str)> {
        let shared = "several share their boxes";
        let options = [
            (self.io.is_some_and(|io| io != IoName::Udp), "--io", "several have --io udp"),
            (self.switch.is_some(), "--switch", shared),
            (self.pcap, "--pcap", shared),
            (self.record, "--record", shared),
            (self.level != Level::Live, "--level packet", "several run live"),
            (self.replication.is_some(), "--replication", "several have no replica"),
            (self.replica, "--replica", "several have no replica"),
            (self.until_loss.is_some(), "--until-loss", "each of several has its own rounds"),
            (self.leaves.is_some(), "--leaves", shared),
            (!self.restart.is_empty(), "--restart", shared),
            (!self.crash.is_empty(), "--crash", shared),
        ];
        let given = options.into_iter().find(|(is_given, ..)| *is_given);
        given.map(|(_, option, why)| (option, why))
    }

    /// The first option that a scenario with `[factorisation]` cannot be given.
    pub(super) fn not_for_factorisation(&self) -> Option<&'static str> {
        let options = [
            (self.io.is_some_and(|io| io != IoName::Udp), "--io"),
            (self.switch.is_some(), "--switch"),
            (self.pcap, "--pcap"),
            (self.record, "--record"),
        ];
        let given = options.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option);
        let changed = self.overrides().into_iter().find(|(_, of)| !of.starts_with("faults."));
        given.or_else(|| changed.map(|(option, _)| option))
    }

    /// Changes the faults of a scenario with `[factorisation]` as the overrides say.
    pub(super) fn change_factorisation(&self, scenario: &mut FactorisationScenario) {
        self.change_faults(&mut scenario.faults);
    }

    /// Changes every job as the overrides say; the policy of several jobs is that of bands.
    pub(super) fn change_jobs(&self, scenario: &mut JobsScenario) -> Result<(), Failure> {
        self.change_faults(&mut scenario.faults);
        if let Some(policy) = &self.policy {
            let wrong = |error| Exit::Usage.because(anyhow!("--policy: {error}"));
            let policy = BandPolicy::from_word(policy).map_err(wrong)?;
            scenario.bands.get_or_insert_default().policy = policy;
        }
        let has_bands = scenario.bands.is_some();
        for job in &mut scenario.jobs {
            job.rounds = self.rounds.unwrap_or(job.rounds);
            if let Some(push) = job.push.as_mut().filter(|_| self.direct) {
                push.aggregators = 0;
                // Bands are the controller's; the server calls all senders in turn all the same.
                push.controller = has_bands;
                "fair".clone_into(&mut push.policy);
            }
        }
        if self.direct && !has_bands {
            scenario.lab.links.remove(CONTROLLER);
        }
        Ok(())
    }

    fn change_faults(&self, faults: &mut FaultSection) {
        for (place, option) in [
            (&mut faults.loss, self.loss),
            (&mut faults.duplicate, self.duplicate),
            (&mut faults.reorder, self.reorder),
            (&mut faults.corrupt, self.corrupt),
        ] {
            *place = option.unwrap_or(*place);
        }
    }

    /// The overrides that were given, each with the field or section that it changes.
    fn overrides(&self) -> Vec<(&'static str, &'static str)> {
        let all = [
            (self.policy.is_some(), "--policy", "push.policy"),
            (self.replication.is_some(), "--replication", "push.replication"),
            (self.direct, "--direct", "push.controller"),
            (self.replica, "--replica", "push.replication"),
            (self.rounds.is_some(), "--rounds", "job.rounds"),
            (self.leaves.is_some(), "--leaves", "aggregation.leaves"),
            (self.loss.is_some(), "--loss", "faults.loss"),
            (self.duplicate.is_some(), "--duplicate", "faults.duplicate"),
            (self.reorder.is_some(), "--reorder", "faults.reorder"),
            (self.corrupt.is_some(), "--corrupt", "faults.corrupt"),
            (!self.restart.is_empty(), "--restart", "restart"),
            (!self.crash.is_empty(), "--crash", "crash"),
        ];
        let given = all.into_iter().filter(|(is_given, ..)| *is_given);
        given.map(|(_, option, field)| (option, field)).collect()
    }
}
