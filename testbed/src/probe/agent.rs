//! One host of `weft probe`: sends the trains that it is told to, reports those that arrive, and
//! its NIC's counters every 100 ms. Runs in the host's network namespace until its standard input
//! ends.

use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_io::nic::NicCounters;
use weft_io::probe::{
    ArrivedTrain, Collector, ProbeError, ProbeSocket, StampedSocket, read_promptly, realtime_ns,
};
use weft_plan::net::estimate::train::{Arrival, Departure, Reading};
use weft_plan::net::estimate::{Refusal, TrainSample};

use super::message::{AgentPlan, Command, Message};
use crate::lab::tc::Rate;
use crate::run::monotonic_ns;
use crate::traffic::{self, Count};

/// Between two readings of the counters.
pub const COUNTERS_EVERY: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_millis(20);

/// What the threads of an agent share.
#[derive(Debug, Default)]
struct Shared {
    rx_own: AtomicU64,
    tx_own: AtomicU64,
    ended: AtomicBool,
}

/// Runs an agent to its end.
pub fn run(plan: &AgentPlan) {
    if let Err(error) = work(plan) {
        say(&Message::Failed { error: error.to_string() });
    }
}

fn work(plan: &AgentPlan) -> anyhow::Result<()> {
    let mut socket = ProbeSocket::bind(plan.local, plan.mtu, plan.nonce)?;
    let mut sender = StampedSocket::bind((plan.local.ip(), 0).into(), plan.mtu, plan.nonce)?;
    let counters = NicCounters::open(&plan.interface)?;
    let readings = NicCounters::open(&plan.interface)?;
    // Cross traffic of others ends here unread, instead of in an ICMP message for each datagram.
    let mut sink = plan.local;
    sink.set_port(plan.local.port() + 1);
    let _sink = UdpSocket::bind(sink).map_err(|source| ProbeError::Open { addr: sink, source })?;
    let shared = Shared::default();
    say(&Message::Ready);
    thread::scope(|scope| {
        scope.spawn(|| report_counters(&counters, &shared));
        scope.spawn(|| {
            if let Err(error) = receive(&mut socket, &readings, &shared) {
                say(&Message::Failed { error: error.to_string() });
            }
        });
        for line in std::io::stdin().lines() {
            // What the owner writes is what it serialised; a broken pipe is the end.
            let Ok(line) = line else { break };
            match serde_json::from_str(&line) {
                Ok(Command::Train { id, target, packets }) => {
                    if let Err(error) = send(&mut sender, (target, id, packets), &shared) {
                        say(&Message::Failed { error: error.to_string() });
                    }
                }
                Ok(Command::Cross { target, bits_per_sec }) => {
                    let shared = &shared;
                    scope.spawn(move || cross(plan.local, plan.mtu, target, bits_per_sec, shared));
                }
                Err(error) => say(&Message::Failed { error: error.to_string() }),
            }
        }
        shared.ended.store(true, Ordering::Relaxed);
    });
    Ok(())
}

fn say(message: &Message) {
    let line = serde_json::to_string(message).expect("a message is a JSON object");
    // Whoever started this has gone when standard output has; there is nobody left to tell.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn send(
    sender: &mut StampedSocket,
    (target, id, packets): (SocketAddr, u32, u16),
    shared: &Shared,
) -> Result<(), ProbeError> {
    let len_bytes = sender.frame_len();
    let sent = sender.send_train(target, id, packets)?;
    shared.tx_own.fetch_add(u64::from(len_bytes) * u64::from(sent), Ordering::Relaxed);
    let departed_ns = sender.departures()?;
    let departures: Vec<_> =
        departed_ns.iter().map(|at_ns| Arrival { at_ns: *at_ns, len_bytes }).collect();
    say(&Message::Departed { id, departure: Departure::reduce(&departures) });
    Ok(())
}

fn report_counters(counters: &NicCounters, shared: &Shared) {
    let mut next = Instant::now();
    while !shared.ended.load(Ordering::Relaxed) {
        if let (Ok(rx_total), Ok(tx_total)) = (counters.rx_bytes(), counters.tx_bytes()) {
            say(&Message::Counters {
                at_ns: monotonic_ns(),
                rx_total,
                rx_own: shared.rx_own.load(Ordering::Relaxed),
                tx_total,
                tx_own: shared.tx_own.load(Ordering::Relaxed),
            });
        }
        next += COUNTERS_EVERY;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn report(train: &ArrivedTrain) -> Message {
    let (first, last) = (train.at_ns.first(), train.at_ns.last());
    let span_ns = first.zip(last).map_or(0, |(first, last)| last - first);
    let arrival = |at_ns: &u64| Arrival { at_ns: *at_ns, len_bytes: train.frame_len };
    let arrivals: Vec<_> = train.at_ns.iter().map(arrival).collect();
    let reading =
        |(at_ns, total_bytes): &(u64, u64)| Reading { at_ns: *at_ns, total_bytes: *total_bytes };
    let readings: Vec<_> = train.readings.iter().map(reading).collect();
    let sample = TrainSample::reduce(&arrivals, &readings);
    Message::Train {
        id: train.train,
        span_ns,
        received: u32::try_from(train.at_ns.len()).unwrap_or(u32::MAX),
        sample: sample.ok(),
        uneven: sample == Err(Refusal::Uneven),
    }
}

fn receive(
    socket: &mut ProbeSocket,
    counters: &NicCounters,
    shared: &Shared,
) -> Result<(), ProbeError> {
    let mut collector = Collector::default();
    while !shared.ended.load(Ordering::Relaxed) {
        let came = socket.receive(POLL, |arrival| {
            shared.rx_own.fetch_add(u64::from(arrival.frame_len), Ordering::Relaxed);
            collector.handle(&arrival);
        })?;
        if came && let Some((at_ns, total_bytes)) = read_promptly(counters) {
            collector.handle_reading(at_ns, total_bytes);
        }
        while let Some(train) = collector.poll(realtime_ns()) {
            say(&report(&train));
        }
    }
    Ok(())
}

/// Sends traffic of others until the agent ends.
fn cross(local: SocketAddr, mtu: usize, target: SocketAddr, bits_per_sec: f64, shared: &Shared) {
    let flow = || {
        let socket = UdpSocket::bind((local.ip(), 0))?;
        socket.connect(target)?;
        let rate = Rate::from_mbit(bits_per_sec / 1e6).ok_or(std::io::ErrorKind::InvalidInput)?;
        let is_on = || !shared.ended.load(Ordering::Relaxed);
        let len = traffic::payload_len(mtu);
        traffic::send_steadily(&socket, rate, len, &Count::default(), is_on)
    };
    if let Err(error) = flow() {
        say(&Message::Failed { error: format!("sending cross traffic: {error}") });
    }
}
