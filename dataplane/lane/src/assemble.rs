//! Engines and ports of what a configuration means.
//!
//! Decides nothing that the configuration leaves open: what it names is judged by the engines'
//! crate. Servers and replicas are made by [`Server::new`](weft_engine::role::server::Server::new)
//! and [`Replica::new`](weft_engine::role::replica::Replica::new) alone.

use std::sync::Arc;

use weft_config::node::BandsBy;
use weft_engine::random::Seed;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::{ArenaConfig, Table};
use weft_io::Port;
use weft_io::bands::BandsConfig;
use weft_io::record::Recorded;
use weft_kernel::Kernels;
use weft_wire::MacAddr;

use crate::wrap::{Capture, Wrapped, fault_config};
use crate::{Homes, LanePort, Relay, Ring, Settings, SteeredPort, steer};

/// The port of lane 0 and those of the others.
pub type LanePorts<P, S> = (LanePort<P>, Vec<LanePort<S>>);

impl Settings {
    /// The table of a box whose port has this address, unless the configuration gives it another.
    ///
    /// # Panics
    /// If the table was changed since it was judged.
    #[must_use]
    pub fn table_at(&self, mac: MacAddr) -> Table {
        let mut config = self.table.clone();
        config.local.mac = self.config.port.mac.unwrap_or(mac);
        let table = Table::new(config).and_then(|table| table.with_arena(self.arena));
        table.expect(JUDGED)
    }

    /// Makes lane `lane` of an aggregator that reduces the rows of `table`; lane 0 gathers the push
    /// jobs too. Takes all memory that it will ever use. `seed` must differ from start to start.
    #[must_use]
    pub fn aggregator(
        &self,
        table: &Table,
        lane: u16,
        seed: impl Into<Seed>,
        kernels: &'static Kernels,
    ) -> Aggregator {
        let seed = seed.into();
        let lane = Aggregator::of_seed(table, lane, &seed, kernels).with_strangers(self.strangers);
        let port = &self.config.port;
        let lane = lane.with_multicast(port.multicast_base()).with_memory(port.shm);
        match self.is_told() {
            true => lane.unsettled(),
            false => lane,
        }
    }

    /// The homes of the box's tables of rows, at the address that `table` has.
    ///
    /// # Panics
    /// If a table was changed since it was judged.
    #[must_use]
    pub fn homes(&self, table: &Table, seed: &Seed) -> Homes {
        Homes::new(table.config().local, &self.tables, seed)
    }

    /// A controller may have the box hold more than its file says.
    fn is_told(&self) -> bool {
        let ArenaConfig { jobs, leases, pushes, .. } = self.arena;
        self.config.controller.is_some() && (jobs, leases, pushes) != (0, 0, 0)
    }

    /// Puts `[faults]`, and the capture that `[trace]` asks for, around a port.
    ///
    /// # Errors
    /// If the capture cannot be begun.
    pub fn wrap<P: Port>(&self, port: P, capture: Option<Capture>) -> std::io::Result<Wrapped<P>> {
        let faults = self.config.faults.as_ref().map(fault_config);
        let (Some(trace), Some(capture)) = (&self.config.trace, capture) else {
            return Ok(self.marked(Wrapped::without_capture(port, faults.as_ref())));
        };
        let bytes_max = trace.size_max_mib << 20;
        let wrapped = Wrapped::with_capture(port, faults.as_ref(), capture, bytes_max)?;
        Ok(self.marked(wrapped))
    }

    fn marked<P: Port>(&self, port: Wrapped<P>) -> Wrapped<P> {
        let port = port.with_marks(Arc::clone(&self.marks));
        match self.queues() {
            Some(config) => port.with_bands(config),
            None => port,
        }
    }

    /// What `[bands]` with `by = "port"` means.
    fn queues(&self) -> Option<BandsConfig> {
        let section = self.config.bands.as_ref().filter(|section| section.by == BandsBy::Port)?;
        let age_max_ms = section.age_max_ms.unwrap_or(AGE_MAX_MS);
        Some(BandsConfig {
            rate_bytes_per_sec: section.rate_bytes_per_sec?,
            queue_frames_max: section.queue_frames.unwrap_or(self.config.port.frame_count / 16),
            age_max_ns: age_max_ms.saturating_mul(1_000_000),
        })
    }

    /// The ring that lanes without a queue of their own send through.
    #[must_use]
    pub fn relay<F>(&self) -> Relay<F> {
        Arc::new(Ring::new(self.config.lcores.ring_frames))
    }

    /// Lanes that all send through the port of lane 0, by this relay.
    pub fn steer_relayed<P: Port, S: Port<Frame = P::Frame>>(
        &self,
        first: Wrapped<P>,
        senders: Vec<S>,
        relay: Relay<P::Frame>,
    ) -> LanePorts<P, S> {
        let senders =
            senders.into_iter().map(|port| Wrapped::without_capture(port, None)).collect();
        let ring_frames = self.config.lcores.ring_frames;
        recorded(steer(first, senders, false, &self.lanes, ring_frames, Some(relay)))
    }

    /// Lanes on ports that send, and perhaps receive, by themselves.
    pub fn steer_receiving<P: Port>(
        &self,
        first: Wrapped<P>,
        others: Vec<P>,
        others_receive: bool,
    ) -> LanePorts<P, P> {
        let faults = self.config.faults.as_ref().map(fault_config);
        let wrap = |port| self.marked(Wrapped::without_capture(port, faults.as_ref()));
        let others = others.into_iter().map(wrap).collect();
        let ring_frames = self.config.lcores.ring_frames;
        recorded(steer(first, others, others_receive, &self.lanes, ring_frames, None))
    }
}

/// Lanes whose frames may be kept.
fn recorded<P: Port, S: Port>(
    (first, others): (SteeredPort<Wrapped<P>>, Vec<SteeredPort<Wrapped<S>>>),
) -> LanePorts<P, S> {
    (Recorded::new(first), others.into_iter().map(Recorded::new).collect())
}

/// What `[bands]` leaves out.
const AGE_MAX_MS: u64 = 100;
const JUDGED: &str = "it was judged when the configuration was read";
