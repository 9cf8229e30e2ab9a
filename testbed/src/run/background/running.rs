//! The traffic of others while a run lasts: for each flow a socket and a thread at either end, in
//! the namespaces of its hosts.
//!
//! Invariant: what was started here has ended when its owner is gone, within a few waits of
//! [`traffic::WAIT_MAX`]; there are no processes, so nothing outlives this one.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{FlowPlan, FlowSeen};
use crate::lab::{LabName, netns};
use crate::run::monotonic_ns;
use crate::run::processes::ProcessError;
use crate::traffic::{self, Count};

/// How long the receivers wait at the end for what is still on the way.
const DRAIN_MAX: Duration = Duration::from_millis(200);

/// All flows of a run; they end with it.
#[derive(Debug, Default)]
pub(in crate::run) struct Background {
    flows: Vec<Flow>,
    ready_ns: u64,
}

#[derive(Debug)]
struct Flow {
    plan: FlowPlan,
    shared: Arc<Shared>,
    sender: Option<JoinHandle<()>>,
    receiver: Option<JoinHandle<()>>,
}

/// What both ends of a flow and its owner know.
#[derive(Debug, Default)]
struct Shared {
    /// Set to end the sender, then the receiver.
    stop_sending: AtomicBool,
    stop_receiving: AtomicBool,
    /// 0 until it began.
    began_ns: AtomicU64,
    /// 0 until it ended.
    ended_ns: AtomicU64,
    sent: Count,
    received: Count,
}

impl Background {
    /// Starts the flows in the lab that is up. Their times count from now.
    pub(in crate::run) fn start(
        lab: Option<&LabName>,
        plans: &[FlowPlan],
    ) -> Result<Self, ProcessError> {
        let mut background = Self { flows: Vec::new(), ready_ns: monotonic_ns() };
        let ready = Instant::now();
        for plan in plans {
            let Some(lab) = lab else { break };
            background.flows.push(Flow::start(lab, plan, ready)?);
        }
        Ok(background)
    }

    /// Ends the flows and says what became of them.
    pub(in crate::run) fn stop(mut self) -> Vec<FlowSeen> {
        for flow in &self.flows {
            flow.shared.stop_sending.store(true, Ordering::Relaxed);
        }
        self.flows.iter_mut().for_each(|flow| join(&mut flow.sender));
        let received = |flows: &[Flow]| -> u64 {
            flows.iter().map(|flow| flow.shared.received.frames()).sum()
        };
        let begun = Instant::now();
        let mut before = u64::MAX;
        while begun.elapsed() < DRAIN_MAX && received(&self.flows) != before {
            before = received(&self.flows);
            thread::sleep(traffic::WAIT_MAX);
        }
        let ready_ns = self.ready_ns;
        self.flows.iter().map(|flow| flow.seen(ready_ns)).collect()
    }
}

impl Flow {
    fn start(lab: &LabName, plan: &FlowPlan, ready: Instant) -> Result<Self, ProcessError> {
        let (from, to) = (&plan.section.from, &plan.section.to);
        let failed = |source| ProcessError::Io {
            what: format!("starting the background flow from {from} to {to}"),
            source,
        };
        let inside = |host: &str, open: &(dyn Fn() -> std::io::Result<UdpSocket> + Sync)| {
            netns::within(&lab.namespace(host), open).and_then(|opened| opened).map_err(failed)
        };
        let sink = inside(to, &|| UdpSocket::bind(plan.target))?;
        let socket = inside(from, &|| {
            let socket = UdpSocket::bind((plan.source, 0))?;
            socket.connect(plan.target)?;
            Ok(socket)
        })?;
        let shared = Arc::new(Shared::default());
        let here = Arc::clone(&shared);
        let receiver = thread::spawn(move || {
            let is_on = || !here.stop_receiving.load(Ordering::Relaxed);
            // A socket that takes no timeout is never seen; then nothing arrives.
            let _ = traffic::receive(&sink, &here.received, is_on);
        });
        let (here, planned) = (Arc::clone(&shared), plan.clone());
        let sender = thread::spawn(move || here.send(&socket, &planned, ready));
        Ok(Self { plan: plan.clone(), shared, sender: Some(sender), receiver: Some(receiver) })
    }

    fn seen(&self, ready_ns: u64) -> FlowSeen {
        let (began_ns, ended_ns) = (&self.shared.began_ns, &self.shared.ended_ns);
        let (began_ns, ended_ns) =
            (began_ns.load(Ordering::Relaxed), ended_ns.load(Ordering::Relaxed));
        FlowSeen {
            section: self.plan.section.clone(),
            ready_ns,
            span_ns: (began_ns > 0).then_some((began_ns, ended_ns)),
            sent_bytes: self.shared.sent.bytes(),
            received_bytes: self.shared.received.bytes(),
        }
    }
}

impl Shared {
    fn send(&self, socket: &UdpSocket, plan: &FlowPlan, ready: Instant) {
        let (begin, end) = plan.section.times();
        let is_told = || self.stop_sending.load(Ordering::Relaxed);
        while ready.elapsed() < begin {
            if is_told() {
                return;
            }
            thread::sleep((begin.saturating_sub(ready.elapsed())).min(traffic::WAIT_MAX));
        }
        self.began_ns.store(monotonic_ns(), Ordering::Relaxed);
        let is_on = || !is_told() && end.is_none_or(|end| ready.elapsed() < end);
        let (rate, len) = (plan.section.rate(), plan.payload_len);
        // As for the receiver.
        let _ = traffic::send_steadily(socket, rate, len, &self.sent, is_on);
        self.ended_ns.store(monotonic_ns(), Ordering::Relaxed);
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.shared.stop_sending.store(true, Ordering::Relaxed);
        self.shared.stop_receiving.store(true, Ordering::Relaxed);
        join(&mut self.sender);
        join(&mut self.receiver);
    }
}

fn join(thread: &mut Option<JoinHandle<()>>) {
    if let Some(thread) = thread.take() {
        // A thread that panicked has said so.
        let _ = thread.join();
    }
}
