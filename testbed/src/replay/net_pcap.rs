//! A recording's frames through DPDK's net_pcap: a device for each lane reads them from a capture
//! and writes what leaves into another. Their sequence and `now` are the recording's; buffers,
//! copies and sending are the device's.
//!
//! Invariant: what the device delivers and what it writes is held against the recording, frame by
//! frame, so a device that loses, alters or reorders one shows.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tempfile::TempDir;
use weft_io::pcap::{Capture, PcapWriter};
use weft_io::record::Direction;
use weft_io::{Burst, Port, PortInfo, PortStats};
use weft_node::dpdk::{CaptureDevice, DpdkQueue, Eal, open_captures};
use weft_wire::Nanos;

use super::load::{Recording, ReplayError};
use super::options::Outcome;
use super::port::Script as _;
use super::recorded::{Recorded, align};

/// The frames that a lane sent.
type Sent = Rc<RefCell<Vec<Vec<u8>>>>;

/// The devices of a recording's lanes, until they have written all.
#[derive(Debug)]
pub(super) struct Devices {
    queues: VecDeque<DpdkQueue>,
    eal: Eal,
    /// What left each lane that has been played.
    sent: Vec<Sent>,
    directory: TempDir,
}

impl Devices {
    /// Writes what the lanes received into captures, and opens a device on each.
    pub(super) fn open(recording: &Recording) -> Result<Self, ReplayError> {
        let failed = |path: &Path, source| ReplayError::File {
            path: path.to_owned(),
            attempt: "write",
            source,
        };
        let directory =
            tempfile::tempdir().map_err(|error| failed(&std::env::temp_dir(), error))?;
        let mut devices = Vec::new();
        for (index, (lane, head)) in recording.lanes.iter().zip(&recording.head.lanes).enumerate() {
            let rx = directory.path().join(format!("lane-{index}-in.pcap"));
            write_received(&rx, &lane.capture).map_err(|error| failed(&rx, error))?;
            devices.push(CaptureDevice {
                rx,
                tx: written(&directory, index),
                mtu: head.mtu,
                frame_len_max: head.buffer_len,
                copied_len_max: head.recycled_len_max.unwrap_or(0),
            });
        }
        let (eal, queues) = open_captures(&devices)?;
        Ok(Self { queues: queues.into(), eal, sent: Vec::new(), directory })
    }

    /// The port of a lane. Lanes are asked for in their order, each once.
    pub(super) fn port(
        &mut self,
        lane: usize,
        script: &Rc<RefCell<Recorded>>,
        info: PortInfo,
        merges: bool,
    ) -> FedPort {
        debug_assert_eq!(lane, self.sent.len(), "in their order");
        let queue = self.queues.pop_front().expect("there is a device for each lane");
        let sent = Sent::default();
        self.sent.push(Rc::clone(&sent));
        let (script, early) = (Rc::clone(script), VecDeque::new());
        FedPort { queue, script, info, merges, early, burst: Burst::new(), sent }
    }

    /// Ends the devices, and compares what they wrote with what was sent.
    pub(super) fn finish(self, outcome: &mut Outcome) -> Result<(), ReplayError> {
        let Self { queues, eal, sent, directory } = self;
        drop(queues);
        drop(eal);
        for (lane, sent) in sent.iter().enumerate() {
            let capture = Capture::load(&written(&directory, lane))?;
            let sent = sent.borrow();
            let expected: Vec<_> = sent.iter().enumerate().collect();
            let got: Vec<_> = capture.packets().map(|packet| (Nanos(0), packet.bytes)).collect();
            let place = (lane, Nanos(0), "written by net_pcap");
            align(outcome, place, &expected, &got, &super::Options::default());
        }
        Ok(())
    }
}

/// Where the device of a lane writes.
fn written(directory: &TempDir, lane: usize) -> PathBuf {
    directory.path().join(format!("lane-{lane}-out.pcap"))
}

/// What a lane received, as a capture of its own.
fn write_received(path: &Path, capture: &Capture) -> io::Result<()> {
    let mut output = PcapWriter::new(BufWriter::new(File::create(path)?))?;
    for packet in capture.packets().filter(|packet| packet.direction == Some(Direction::In)) {
        output.write(packet.at, packet.bytes)?;
    }
    output.finish().map(drop)
}

/// A device's queue that delivers, within a breath, what the recording says.
#[derive(Debug)]
pub(super) struct FedPort {
    queue: DpdkQueue,
    script: Rc<RefCell<Recorded>>,
    info: PortInfo,
    /// Whether the recording's port wanted frames sorted by destination.
    merges: bool,
    /// Delivered by the device, and not due yet.
    early: VecDeque<<DpdkQueue as Port>::Frame>,
    burst: Burst<<DpdkQueue as Port>::Frame>,
    sent: Sent,
}

impl Port for FedPort {
    type Frame = <DpdkQueue as Port>::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<Self::Frame>) -> usize {
        let mut script = self.script.borrow_mut();
        let before = rx.len();
        while !rx.is_full() && script.is_due() {
            if self.early.is_empty() {
                self.queue.rx_burst(now, &mut self.burst);
                self.early.extend(self.burst.drain(..));
            }
            let Some(frame) = self.early.pop_front() else { break };
            script.deliver(frame.as_ref());
            rx.push(frame);
        }
        rx.len() - before
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<Self::Frame>) -> usize {
        let count = tx.len();
        {
            let (mut script, mut sent) = (self.script.borrow_mut(), self.sent.borrow_mut());
            for frame in tx.iter() {
                script.leave(now, frame.as_ref());
                sent.push(frame.as_ref().to_vec());
            }
        }
        while !tx.is_empty() && self.queue.tx_burst(now, tx) > 0 {}
        // What the device refused is missing in its capture, which `finish` sees.
        self.queue.free(tx);
        count
    }

    fn alloc(&mut self) -> Option<Self::Frame> {
        if self.script.borrow_mut().is_empty_pool() { None } else { self.queue.alloc() }
    }

    fn copy(&mut self, frame: &Self::Frame, header_len: usize) -> Option<Self::Frame> {
        if self.script.borrow_mut().is_empty_pool() {
            return None;
        }
        self.queue.copy(frame, header_len)
    }

    fn recycles(&self, frame_len: usize) -> bool {
        self.queue.recycles(frame_len)
    }

    fn merges(&self) -> bool {
        self.merges
    }

    fn free(&mut self, frames: &mut Burst<Self::Frame>) {
        self.queue.free(frames);
    }

    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn stats(&self) -> PortStats {
        self.queue.stats()
    }

    fn wait(&mut self, _timeout_ns: u64) {}
}
