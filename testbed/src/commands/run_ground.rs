//! What a run asks for and the ground that it got cannot do, found before anything is made.

use anyhow::anyhow;
use weft_testbed::doctor::{Qdisc, QdiscState, try_qdisc};
use weft_testbed::lab;
use weft_testbed::run::{DelayedBy, Ground, Io, Place, WorkerIo};
use weft_testbed::scenario::Scenario;

use super::run_args::{Level, RunArgs, WorkerIoName};
use super::{Exit, Failure};

/// Refuses a run that needs links of a lab and has none, instead of leaving out what needs them.
pub(super) fn check(
    scenario: &Scenario,
    ground: &Ground,
    arguments: &RunArgs,
) -> Result<(), Failure> {
    if arguments.pcap {
        check_captures(scenario, ground)?;
    }
    if arguments.record && ground.io == Io::Memory {
        let problem = "--record: --io memory has no boxes of their own: use udp, af_packet or dpdk";
        return Err(Exit::Usage.because(anyhow!("{problem}")));
    }
    if ground.place == Place::Lab {
        return Ok(());
    }
    if arguments.worker_io.is_some() {
        return Err(refuse_worker_io(ground));
    }
    let wanted = if !scenario.background.is_empty() {
        "[[background]] flows cross links of a lab"
    } else if !scenario.rate_step.is_empty() && ground.io != Io::Memory {
        "[[rate_step]] changes links of a lab"
    } else if !scenario.delays().is_empty() && ground.io == Io::Memory {
        "delays are of links"
    } else {
        return Ok(());
    };
    let refused = |exit: Exit, why: &str| Err(exit.because(anyhow!("{wanted}, and {why}")));
    if ground.io == Io::Memory {
        return refused(Exit::Usage, "--io memory has none: use udp, af_packet or dpdk");
    }
    if arguments.no_lab {
        return refused(Exit::Usage, "--no-lab does without: leave it out");
    }
    match &ground.degraded {
        Some(reason) => {
            refused(Exit::CannotRun, &format!("there is none ({reason}); try --io udp"))
        }
        None => refused(
            Exit::CannotRun,
            "there is none: run as root, or where user namespaces are allowed",
        ),
    }
}

/// The port that the workers are to have, where they can have one of their own.
pub(super) fn worker_io(ground: &Ground, arguments: &RunArgs) -> Result<Option<WorkerIo>, Failure> {
    match arguments.worker_io {
        Some(_) if ground.place != Place::Lab => Err(refuse_worker_io(ground)),
        io => Ok(io.map(WorkerIoName::io)),
    }
}

/// Why workers cannot have a port of their own where there is no lab.
fn refuse_worker_io(ground: &Ground) -> Failure {
    let (exit, why) = match (&ground.degraded, ground.io) {
        (_, Io::Memory | Io::Shm) => {
            let why = format!(
                "workers of --io {} have its memory: leave it out, or use --io udp, af_packet or \
                 dpdk",
                ground.io.name()
            );
            (Exit::Usage, why)
        }
        (Some(reason), _) => (
            Exit::CannotRun,
            format!("there is none ({reason}); try --io udp or --io af_packet for the boxes"),
        ),
        (None, _) => (
            Exit::CannotRun,
            "there is none: run as root, or where user namespaces are allowed".to_owned(),
        ),
    };
    exit.because(anyhow!("--worker-io is for a lab, where each worker has an interface, and {why}"))
}

/// Who makes the delays of links, if there are any.
pub(super) fn delayed_by(
    scenario: &Scenario,
    ground: &Ground,
    arguments: &RunArgs,
) -> Result<Option<DelayedBy>, Failure> {
    let delays = scenario.delays();
    if delays.is_empty() {
        return Ok(None);
    }
    if arguments.level == Level::Packet {
        return Ok(Some(DelayedBy::Packet));
    }
    let has_netem = match &arguments.lab {
        // Who made that lab may have asked for delays in vain, as Mininet does without netem.
        Some(name) => lab::have_netem(name, delays.keys().map(String::as_str))
            .map_err(|error| Exit::CannotRun.because(error))?,
        None => ground.place == Place::Lab && try_qdisc(Qdisc::Netem) == QdiscState::Works,
    };
    Ok(Some(if has_netem { DelayedBy::Netem } else { DelayedBy::FaultPorts }))
}

fn check_captures(scenario: &Scenario, ground: &Ground) -> Result<(), Failure> {
    let lanes = scenario.aggregation.lanes;
    let reason = match ground.io {
        Io::Memory => {
            "--io memory has no boxes of their own: use udp, af_packet or dpdk".to_owned()
        }
        // A push has boxes of one lane.
        Io::AfPacket | Io::Dpdk if lanes > 1 && scenario.push.is_none() => format!(
            "each of the {lanes} lanes (aggregation.lanes) sends by itself there: use one lane, or \
             --io udp or shm"
        ),
        Io::AfPacket | Io::Dpdk | Io::Udp | Io::Shm | Io::Bmv2 => return Ok(()),
    };
    Err(Exit::Usage.because(anyhow!("--pcap captures at one place in each box, and {reason}")))
}
