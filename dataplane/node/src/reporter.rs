//! The reporter's thread: statistics and warnings on stderr, `GET /metrics`, `/healthz`, `/readyz`.
//!
//! It reads the lanes' latest snapshots and never touches a lane. Invariant: it ends soon after the
//! stop flag, whatever scrapers do.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use weft_config::StatsFormat;
use weft_config::node::NodeConfig;
use weft_process::listener::{SCRAPERS_MAX, serve_page};
use weft_process::metrics::Asked;
use weft_process::say;

use crate::control::NodeControl;
use crate::error::NodeError;
use crate::lane::Shared;
use crate::offloads::Offloads;
use crate::stats::{LaneSnapshot, PortReport, Report, metrics, write_text};

/// Where scrapers connect.
#[derive(Debug)]
pub(crate) struct MetricsListener(TcpListener);

impl MetricsListener {
    pub(crate) fn bind(addr: SocketAddr) -> Result<Self, NodeError> {
        let listener = TcpListener::bind(addr).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listener.map(Self).map_err(|source| NodeError::Metrics { addr, source })
    }
}

/// Reports until the stop flag is set.
pub(crate) fn run(config: &NodeConfig, shared: &Shared, metrics: Option<MetricsListener>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(report(config, shared, metrics)),
        Err(error) => say!("weft-node: no statistics and no /metrics: {error}"),
    }
}

async fn report(config: &NodeConfig, shared: &Shared, metrics: Option<MetricsListener>) {
    let (ask, mut asked) = mpsc::channel::<oneshot::Sender<String>>(SCRAPERS_MAX);
    let is_running = Arc::new(AtomicBool::new(false));
    if let Some(MetricsListener(listener)) = metrics {
        let (ask, is_running) = (ask.clone(), Arc::clone(&is_running));
        let control = shared.control.clone().filter(|_| config.controller.is_some());
        let page = move |asked| {
            let (answer, answered) = oneshot::channel();
            let ask = ask.clone();
            let readiness = readiness(is_running.load(Ordering::Relaxed), control.as_deref());
            async move {
                if asked == Asked::Readiness {
                    return readiness.map(|()| "ready\n".to_owned());
                }
                ask.send(answer).await.map_err(|_| ENDING)?;
                answered.await.map_err(|_| ENDING)
            }
        };
        match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => drop(tokio::spawn(serve_page(listener, page))),
            Err(error) => say!("weft-node: no /metrics: {error}"),
        }
    }
    let mut ticks = tokio::time::interval(TICK);
    let period = Duration::from_secs(config.node.stats_period_s);
    let mut lanes: Vec<Option<LaneSnapshot>> = vec![None; shared.snapshots.len()];
    let mut last = (Instant::now(), PortReport::default());
    let mut offloads = Offloads::default();
    while !(shared.stop.load(Ordering::Relaxed) || shared.is_over.load(Ordering::Relaxed)) {
        let is_known = lanes.iter().all(Option::is_some);
        let scraper = tokio::select! {
            _ = ticks.tick() => None,
            scraper = asked.recv(), if is_known => scraper,
        };
        for (latest, queue) in lanes.iter_mut().zip(&shared.snapshots) {
            if let Some(snapshot) = queue.pop() {
                *latest = Some(snapshot);
            }
        }
        let Some(known) = lanes.iter().cloned().collect::<Option<Vec<_>>>() else { continue };
        is_running.store(true, Ordering::Relaxed);
        for line in offloads.look(config, &known) {
            say!("weft-node: warning: {line}");
        }
        let report = || Report::new(config, shared.start.elapsed().as_secs_f64(), &known);
        if !period.is_zero() && last.0.elapsed() >= period {
            let report = report().with_rates_since(&last.1, last.0.elapsed());
            last = (Instant::now(), report.port.clone());
            match config.node.stats_format {
                StatsFormat::Text => say!("{}", write_text(&report).trim_end()),
                StatsFormat::Json => say!("{}", report.to_json()),
            }
        }
        if let Some(scraper) = scraper {
            // One that went away is its own problem.
            let _ = scraper.send(metrics::write_metrics(&report()));
        }
    }
}

/// Whether the node does its work: its lanes run, and the controller that it is to have knows it.
fn readiness(is_running: bool, control: Option<&NodeControl>) -> Result<(), &'static str> {
    match (is_running, control) {
        (false, _) => Err("the lanes do not run yet\n"),
        (true, Some(control)) if !control.has_controller() => {
            Err("the node has no stream to its controller\n")
        }
        (true, _) => Ok(()),
    }
}

/// Why there is no page.
const ENDING: &str = "the node is ending\n";
/// How often it looks for something to do.
const TICK: Duration = Duration::from_millis(50);
