//! The server of a push run in one process.

use weft_engine::role::server::Server;
use weft_io::Port as _;
use weft_io::memory::MemoryPort;
use weft_kernel::Kernels;
use weft_lane::{RoleLane, Settings};
use weft_node::agent::EventLines;
use weft_wire::JobId;

use super::log::LogLine;
use crate::run::memory::{MemoryError, Serve, Served, breathe_until, port_counters};
use crate::run::monotonic_ns;
use crate::run::plan::BoxPlan;
use crate::scenario::Scenario;
use crate::workload::digits::Trainer;

pub(in crate::run) fn server(
    scenario: &Scenario,
    planned: &BoxPlan,
    seed: u64,
    port: MemoryPort,
) -> Result<Serve, MemoryError> {
    let job = &scenario.job;
    let trainer = Trainer::new(0, usize::from(job.workers), seed, &job.trainer())?;
    let mut lines = EventLines::new(&planned.config);
    let mut config = planned.config.clone();
    // Here is no disk.
    config.server.iter_mut().for_each(|section| section.state_dir = None);
    let mut settings = Settings::new(config)
        .map_err(|problem| MemoryError::Config(format!("the {}", planned.name), problem))?;
    settings.servers.iter_mut().for_each(|job| job.initial = trainer.parameters().to_vec());
    let table = settings.table_at(port.info().mac);
    let (local, mtu) = (table.config().local, table.config().mtu);
    let engine = Server::new(local, mtu, &settings.servers, seed ^ 0xb0c5, Kernels::detect())
        .map_err(|(_, error)| MemoryError::Server(error))?;
    Ok(Box::new(move |stop| {
        let mut lane = RoleLane::new(port, engine);
        let mut log = Vec::new();
        breathe_until(stop, &mut lane, |server| {
            while let Some((job, event)) = server.poll_event() {
                log.push(LogLine::of(lines.event(monotonic_ns(), job, &event, 0)));
            }
        });
        let view = lane.engine().model(JobId(0));
        let model = Some(view.map(|view| view.weights.to_vec()).unwrap_or_default());
        Served { model, log, counters: port_counters(&lane) }
    }))
}
