//! One worker of a run: opens its port and trains over a session. It uses nothing of Weft but
//! `weft-client` and a port.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use weft_client::{Config, WorkerPort};
use weft_io::Port;
use weft_io::fault::{Fault, FaultConfig, FaultRates, member_seed};
use weft_process::say::chain;

use super::additions::FRAMES_WITH_DELAY;
use super::plan::WorkerPlan;
use super::{WorkerMessage, monotonic_ns, push, reduce, resize};
use crate::scenario::FaultSection;

/// Longest that a delayed frame is held, so that reordering stays within a round trip or two.
const DELAY_MAX_NS: u64 = 2_000_000;

/// Runs a worker to its end, over the port that its plan names. A model is pushed to
/// until its version is `end`, which may change on the way.
pub fn run_over_its_port(
    plan: &WorkerPlan,
    directory: &Path,
    end: &AtomicU64,
    say: &mut dyn FnMut(WorkerMessage),
) {
    let is_reduce = plan.scenario.push.is_none();
    let lanes = if is_reduce { plan.scenario.aggregation.lanes } else { 1 };
    let of_job = if is_reduce { plan.client() } else { Config::new(plan.local, plan.target) };
    let mut config = of_job.io(plan.io.of_client());
    config = config.lanes(lanes).mtu(plan.mtu).offload(plan.offload);
    if plan.link_delay_us > 0 {
        config.frame_count = FRAMES_WITH_DELAY;
    }
    // Who pushes sends to several boxes.
    let port =
        if is_reduce { WorkerPort::open(&config) } else { WorkerPort::open_to_many(&config) };
    match port {
        Ok(mut port) => {
            port.set_ipv4_checksum(plan.checksums);
            run(plan, directory, end, port, say);
        }
        Err(error) => say(failed(chain(&error))),
    }
}

/// Runs a worker over any port to its end; the last message is `Done` or `Failed`.
pub fn run<P: Port<Frame: Send> + Send + 'static>(
    plan: &WorkerPlan,
    directory: &Path,
    end: &AtomicU64,
    port: P,
    say: &mut dyn FnMut(WorkerMessage),
) {
    let seed = member_seed(plan.seed, plan.rank).wrapping_add(plan.life.into());
    let faults = fault_config(&plan.scenario.faults, plan.link_delay_us, seed);
    let port = Fault::new(port, &faults);
    let summary = match (&plan.scenario.push, &plan.cohort) {
        (None, Some(cohort)) => resize::worker::train(plan, cohort, port, say),
        (None, None) => reduce::worker::train(plan, directory, port, say),
        (Some(_), _) => push::worker::train(plan, directory, end, port, say),
    };
    say(match summary {
        Ok(summary) => WorkerMessage::Done(Box::new(summary)),
        Err(error) => failed(chain(error.as_ref())),
    });
}

fn failed(error: String) -> WorkerMessage {
    WorkerMessage::Failed { at_ns: monotonic_ns(), error }
}

pub(super) fn fault_config(section: &FaultSection, link_delay_us: u64, seed: u64) -> FaultConfig {
    let rates = FaultRates {
        loss: section.loss,
        duplicate: section.duplicate,
        reorder: section.reorder,
        corrupt: section.corrupt,
        delay: 0.0,
    };
    FaultConfig {
        seed,
        rx: rates,
        tx: rates,
        delay_max_ns: DELAY_MAX_NS,
        link_delay_ns: link_delay_us.saturating_mul(1000),
        ..FaultConfig::default()
    }
}
