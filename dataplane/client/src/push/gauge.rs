//! What the controller is told of this host's link: how much this worker and all others have put on
//! it, as often as it wants to know. Reads counters; what they say of others is the controller's to
//! decide.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weft_io::nic::{Carried, NicCounters};
use weft_rpc::{convert, v1};

use super::PushConfig;

/// The counters, and when they are due.
pub(super) struct Gauge {
    origin: Instant,
    carried: Arc<Carried>,
    nic: Option<NicCounters>,
    period: Option<Duration>,
    due: Instant,
}

impl Gauge {
    /// Of the interface with the worker's address. Nothing is due before [`Gauge::begin`].
    pub(super) fn new(config: &PushConfig, carried: Arc<Carried>) -> Self {
        let origin = Instant::now();
        let nic = NicCounters::of_link(config.local.ip(), None);
        Self { origin, carried, nic, period: None, due: origin }
    }

    /// A controller wants to know every `period_ns`; 0: never.
    pub(super) fn begin(&mut self, period_ns: u64) {
        self.period = convert::telemetry_period(period_ns);
        self.due = Instant::now();
    }

    /// Nobody wants to know.
    pub(super) fn end(&mut self) {
        self.period = None;
    }

    /// Waits until the next report is due, which it is.
    pub(super) async fn report(&mut self) -> v1::Telemetry {
        let Some(period) = self.period else { return std::future::pending().await };
        tokio::time::sleep_until(self.due).await;
        self.due = (self.due + period).max(Instant::now());
        let at_ns = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let nic = self.nic.as_ref().map_or((None, None), NicCounters::read);
        convert::telemetry_to_proto(at_ns, self.carried.read(), nic)
    }
}
