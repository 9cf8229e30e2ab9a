//! One host of `weft probe`: sends the trains that it is told to, reports those that arrive, and its
//! NIC's counters every 100 ms. Runs in the host's network namespace until its standard input ends.

use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_io::nic::NicCounters;
use weft_io::probe::{ProbeArrival, ProbeError, ProbeSocket, realtime_ns};
use weft_plan::net::estimate::train::{Arrival, PACKETS_MAX, Reading};
use weft_plan::net::estimate::{Refusal, TrainSample};

use super::message::{AgentPlan, Command, Message};
use crate::run::monotonic_ns;

/// Between two readings of the counters.
pub const COUNTERS_EVERY: Duration = Duration::from_millis(100);
/// A train of which nothing came for so long is over.
const SILENCE_NS: u64 = 50_000_000;
const READING_NS_MAX: u64 = 50_000;
const POLL: Duration = Duration::from_millis(20);
/// Trains that may be under way to one host.
const TRAINS_MAX: usize = 8;
const CROSS_PAYLOAD_LEN: usize = 1400;
const CROSS_FRAME_BITS: f64 = (CROSS_PAYLOAD_LEN as f64 + 42.0) * 8.0;
/// A sender of cross traffic that is later than this does not catch up.
const CROSS_LATE_MAX: Duration = Duration::from_millis(20);

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
    let mut sender = socket.try_clone()?;
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
                    let frame = u64::from(sender.frame_len());
                    match sender.send_train(target, id, packets) {
                        Ok(sent) => {
                            shared.tx_own.fetch_add(frame * u64::from(sent), Ordering::Relaxed);
                        }
                        Err(error) => say(&Message::Failed { error: error.to_string() }),
                    }
                }
                Ok(Command::Cross { target, bits_per_sec }) => {
                    let shared = &shared;
                    scope.spawn(move || cross(plan.local, target, bits_per_sec, shared));
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

/// A train under way.
#[derive(Debug)]
struct Train {
    id: u32,
    source: SocketAddr,
    packets: u16,
    last_index: u16,
    last_ns: u64,
    arrivals: Vec<Arrival>,
    readings: Vec<Reading>,
}

impl Train {
    fn is_over(&self, now_ns: u64) -> bool {
        self.last_index + 1 == self.packets || now_ns.saturating_sub(self.last_ns) > SILENCE_NS
    }

    fn report(&self) -> Message {
        let (first, last) = (self.arrivals.first(), self.arrivals.last());
        let span_ns = first.zip(last).map_or(0, |(first, last)| last.at_ns - first.at_ns);
        let sample = TrainSample::reduce(&self.arrivals, &self.readings);
        Message::Train {
            id: self.id,
            span_ns,
            received: u32::try_from(self.arrivals.len()).unwrap_or(u32::MAX),
            sample: sample.ok(),
            uneven: sample == Err(Refusal::Uneven),
        }
    }
}

fn receive(
    socket: &mut ProbeSocket,
    counters: &NicCounters,
    shared: &Shared,
) -> Result<(), ProbeError> {
    let mut trains: Vec<Train> = Vec::with_capacity(TRAINS_MAX);
    while !shared.ended.load(Ordering::Relaxed) {
        let came = socket.receive(POLL, |arrival| {
            shared.rx_own.fetch_add(u64::from(arrival.frame_len), Ordering::Relaxed);
            note(&mut trains, arrival);
        })?;
        let before_ns = realtime_ns();
        let total = counters.rx_bytes();
        let now_ns = realtime_ns();
        // A reading that was interrupted is of no known moment.
        let prompt = now_ns.saturating_sub(before_ns) < READING_NS_MAX;
        if came
            && prompt
            && let Ok(total_bytes) = total
        {
            for train in &mut trains {
                if train.readings.len() < train.readings.capacity() {
                    train.readings.push(Reading { at_ns: now_ns, total_bytes });
                }
            }
        }
        trains.retain(|train| {
            let over = train.is_over(now_ns);
            if over {
                say(&train.report());
            }
            !over
        });
    }
    Ok(())
}

fn note(trains: &mut Vec<Train>, arrival: ProbeArrival) {
    let ProbeArrival { probe, source, at_ns, frame_len } = arrival;
    let room = PACKETS_MAX as usize;
    let known = trains.iter().position(|train| (train.id, train.source) == (probe.train, source));
    let index = known.unwrap_or_else(|| {
        if trains.len() == TRAINS_MAX {
            trains.remove(0);
        }
        trains.push(Train {
            id: probe.train,
            source,
            packets: probe.packets,
            last_index: 0,
            last_ns: at_ns,
            arrivals: Vec::with_capacity(room),
            readings: Vec::with_capacity(room),
        });
        trains.len() - 1
    });
    let train = &mut trains[index];
    train.last_index = train.last_index.max(probe.index);
    train.last_ns = train.last_ns.max(at_ns);
    if train.arrivals.len() < room {
        train.arrivals.push(Arrival { at_ns: train.last_ns, len_bytes: frame_len });
    }
}

/// Sends datagrams at a steady rate, each at its time.
fn cross(local: SocketAddr, target: SocketAddr, bits_per_sec: f64, shared: &Shared) {
    let Ok(socket) = UdpSocket::bind((local.ip(), 0)) else {
        say(&Message::Failed { error: "cannot open a socket for cross traffic".to_owned() });
        return;
    };
    let payload = [0; CROSS_PAYLOAD_LEN];
    let gap = Duration::from_secs_f64(CROSS_FRAME_BITS / bits_per_sec);
    let mut next = Instant::now();
    while !shared.ended.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now < next {
            thread::sleep(next - now);
        } else if now - next > CROSS_LATE_MAX {
            next = now;
        }
        // A full queue is what cross traffic is for.
        let _ = socket.send_to(&payload, target);
        next += gap;
    }
}
