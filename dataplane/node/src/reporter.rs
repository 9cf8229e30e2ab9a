//! The reporter's thread: periodic statistics on stderr, and `GET /metrics`.
//!
//! It reads the lanes' latest snapshots and never touches a lane. Invariant: it ends soon after the
//! stop flag, and one slow or silent scraper holds it for at most [`REQUEST_TIMEOUT`].

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weft_config::StatsFormat;
use weft_config::node::NodeConfig;
use weft_process::{metrics as http, say};

use crate::error::NodeError;
use crate::lane::Shared;
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
    let period = Duration::from_secs(config.node.stats_period_s);
    let mut lanes: Vec<Option<LaneSnapshot>> = vec![None; shared.snapshots.len()];
    let mut last = (Instant::now(), PortReport::default());
    while !(shared.stop.load(Ordering::Relaxed) || shared.is_over.load(Ordering::Relaxed)) {
        std::thread::park_timeout(TICK);
        for (latest, queue) in lanes.iter_mut().zip(&shared.snapshots) {
            if let Some(snapshot) = queue.pop() {
                *latest = Some(snapshot);
            }
        }
        let Some(known) = lanes.iter().cloned().collect::<Option<Vec<_>>>() else { continue };
        let report = || Report::new(config, shared.start.elapsed().as_secs_f64(), &known);
        if !period.is_zero() && last.0.elapsed() >= period {
            let report = report().with_rates_since(&last.1, last.0.elapsed());
            last = (Instant::now(), report.port.clone());
            match config.node.stats_format {
                StatsFormat::Text => say!("{}", write_text(&report).trim_end()),
                StatsFormat::Json => say!("{}", report.to_json()),
            }
        }
        if let Some(MetricsListener(listener)) = &metrics {
            // Bounded, so that a flood of connections cannot keep it from the stop flag.
            for (stream, _) in (0..REQUESTS_PER_TICK_MAX).map_while(|_| listener.accept().ok()) {
                // A scraper that went away is its own problem.
                let _ = answer(stream, &report());
            }
        }
    }
}

fn answer(mut stream: TcpStream, report: &Report) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut request = [0; http::REQUEST_LEN_MAX];
    let len = stream.read(&mut request)?;
    let page = http::is_scrape(&request[..len]).then(|| metrics::write_metrics(report));
    stream.write_all(http::response(page.as_deref()).as_bytes())
}

/// How often it looks for something to do.
const TICK: Duration = Duration::from_millis(50);
/// How long a scraper may take to ask, and to take the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(200);
/// Scrapes answered in a row.
const REQUESTS_PER_TICK_MAX: usize = 4;
