//! The Rust engine: an aggregator on memory.

use weft_control::{Command, Event, JobConfig};
use weft_engine::drops::DropReason;
use weft_engine::role::Verdict;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::slot::State;
use weft_engine::slot::counter::Transition;
use weft_engine::table::{BoxConfig, Table};
use weft_kernel::Kernels;
use weft_wire::frame::Udp;
use weft_wire::hello::Integrity;
use weft_wire::{GroupId, JobId, Nanos};

use super::{Counts, FRAME_LEN_MAX, Refused, Setup, Target};

/// An aggregator and the frames that left it.
#[derive(Debug)]
pub struct RustBox {
    setup: Setup,
    aggregator: Aggregator,
    lives: u64,
    out: Vec<(usize, Vec<u8>)>,
}

impl RustBox {
    /// Makes the box.
    ///
    /// # Errors
    ///
    /// It cannot be so.
    pub fn start(setup: &Setup) -> Result<Self, Refused> {
        let aggregator = aggregator(setup, 1)?;
        Ok(Self { setup: setup.clone(), aggregator, lives: 1, out: Vec::new() })
    }

    fn send(&mut self, frame: Vec<u8>) -> Result<(), String> {
        self.out.push((port_of(&self.setup, &frame)?, frame));
        Ok(())
    }

    fn carry_out(&mut self, verdict: Verdict, buffer: &[u8]) -> Result<(), String> {
        for frame in frames(&self.aggregator, verdict, buffer) {
            self.send(frame)?;
        }
        Ok(())
    }
}

/// The box of a setup, in one of its lives.
fn aggregator(setup: &Setup, life: u64) -> Result<Aggregator, Refused> {
    let table =
        Table::new(box_config(setup)).map_err(|error| Refused::Failed(error.to_string()))?;
    Ok(Aggregator::new(&table, 0, SEED + life, Kernels::detect()))
}

pub(super) fn box_config(setup: &Setup) -> BoxConfig {
    let mut jobs: Vec<JobId> = setup.rows.iter().map(|row| row.job).collect();
    jobs.dedup();
    let job =
        |job| JobConfig { job, slots_max: SLOTS_MAX, rate_bytes_per_sec: None, burst_bytes: 0 };
    BoxConfig {
        local: setup.local,
        shards: 1,
        mtu: 1500,
        jobs: jobs.into_iter().map(job).collect(),
        rows: setup.rows.clone(),
        pushes: setup.pushes.clone(),
    }
}

/// The port of whom a frame is for.
pub(super) fn port_of(setup: &Setup, frame: &[u8]) -> Result<usize, String> {
    let target = Udp::parse(frame).map_err(|error| format!("a frame that left: {error}"))?.target;
    let port = setup.peers.iter().position(|peer| peer.addr == target);
    port.ok_or_else(|| format!("a frame to {target}, which is nobody's"))
}

/// The frames that a verdict stands for.
pub(super) fn frames(aggregator: &Aggregator, verdict: Verdict, buffer: &[u8]) -> Vec<Vec<u8>> {
    match verdict {
        Verdict::Drop(_) | Verdict::Hold | Verdict::Host => Vec::new(),
        Verdict::Send { len } => vec![buffer[..len].to_vec()],
        Verdict::Multicast { len, lease } => {
            let head = aggregator.encap_len(lease);
            let copy = |member| {
                let mut copy = buffer[..len].to_vec();
                if member > 0 {
                    aggregator.readdress(lease, member, &mut copy[..head], len);
                }
                copy
            };
            (0..aggregator.fan_out(lease)).map(copy).collect()
        }
        Verdict::Fan { len, push } => {
            let gather = aggregator.gather();
            let frame = buffer[..len].to_vec();
            let head = gather.copy_header_len(push);
            let copies = gather.copies(push, &frame).filter_map(|peer| {
                let mut copy = frame.clone();
                gather.address_copy(push, peer, &mut copy[..head], len).then_some(copy)
            });
            let copies: Vec<_> = copies.collect();
            std::iter::once(frame).chain(copies).collect()
        }
    }
}

pub(super) fn drops(aggregator: &Aggregator) -> Counts {
    let all = aggregator.stats().drops.iter();
    all.map(|(reason, count)| (DropReason::name(reason), count)).collect()
}

impl Target for RustBox {
    fn push_integrity(&self) -> Integrity {
        Integrity::Crc32c
    }

    fn handle(&mut self, now: Nanos, _port: usize, frame: &[u8]) -> Result<(), String> {
        let mut buffer = vec![0xee; FRAME_LEN_MAX.max(frame.len())];
        buffer[..frame.len()].copy_from_slice(frame);
        let verdict = self.aggregator.handle_frame(now, &mut buffer, frame.len());
        self.carry_out(verdict, &buffer)?;
        self.poll(now)
    }

    fn poll(&mut self, now: Nanos) -> Result<(), String> {
        let mut buffer = vec![0; FRAME_LEN_MAX];
        for _ in 0..POLLS_MAX {
            let Some(len) = self.aggregator.poll_transmit(now, &mut buffer) else { return Ok(()) };
            self.send(buffer[..len].to_vec())?;
        }
        Err("poll_transmit never ends".to_owned())
    }

    fn take(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.out)
    }

    fn command(&mut self, _now: Nanos, command: Command) -> Result<(), String> {
        self.aggregator.handle_command(command);
        Ok(())
    }

    fn event(&mut self) -> Option<(JobId, Event)> {
        self.aggregator.gather_mut().poll_event()
    }

    fn drops(&mut self) -> Counts {
        drops(&self.aggregator)
    }

    fn transitions(&mut self, job: JobId, is_push: bool) -> Option<Counts> {
        if is_push {
            let gather = self.aggregator.gather();
            let report = gather.reports().find(|report| report.id() == job)?;
            return Some(report.stats().transitions().collect());
        }
        let counts: Vec<_> = self.aggregator.stats().transitions.iter().collect();
        Some(Transition::ALL.iter().zip(counts).map(|((_, name), (_, n))| (*name, n)).collect())
    }

    fn bank(&mut self, job: JobId, group: GroupId, chunk: u32) -> Option<&'static str> {
        let lease = self.aggregator.leases().find(|lease| {
            let row = lease.row();
            row.job == job && row.row == group.row()
        });
        if let Some(lease) = lease {
            return Some(lease.slots().bank(lease.slots().locate(chunk)).state().name());
        }
        let gather = self.aggregator.gather();
        let report = gather.reports().find(|report| report.id() == job)?;
        let state = report.slot(group, chunk).map(|(state, _)| state);
        Some(state.map_or("NONE", State::name))
    }

    fn restart(&mut self, _now: Nanos) -> Result<(), String> {
        self.lives += 1;
        self.aggregator = aggregator(&self.setup, self.lives)
            .map_err(|refused| format!("it does not start again: {refused:?}"))?;
        Ok(())
    }
}

/// Lives of a box draw other epochs and secrets.
pub(super) const SEED: u64 = 0x5eed;
/// Room for the rows of any script.
const SLOTS_MAX: u32 = 4096;
/// Frames in a row that nobody asked for.
const POLLS_MAX: usize = 4096;
