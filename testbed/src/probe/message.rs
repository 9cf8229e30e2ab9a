//! What `weft probe` and its agents tell each other: one JSON object a line, commands on an agent's
//! standard input, messages on its standard output.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use weft_plan::net::estimate::TrainSample;
use weft_plan::net::estimate::train::Departure;

/// What an agent is told when it starts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct AgentPlan {
    /// Where it sends from and receives.
    pub local: SocketAddr,
    /// The interface whose counters it reads.
    pub interface: String,
    /// Largest IP packet.
    pub mtu: usize,
    /// Of this measurement.
    pub nonce: u64,
}

/// What an agent is told to do.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Send a train.
    Train {
        /// Its number.
        id: u32,
        /// Its receiver.
        target: SocketAddr,
        /// Its length.
        packets: u16,
    },
    /// Send UDP of others' at a steady rate until the end.
    Cross {
        /// Its receiver.
        target: SocketAddr,
        /// Rate of the frames.
        bits_per_sec: f64,
    },
}

/// What an agent says.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// Sockets are open.
    Ready,
    /// A train has left.
    Departed {
        /// Its number.
        id: u32,
        /// How, if that is known.
        departure: Option<Departure>,
    },
    /// A train has come.
    Train {
        /// Its number.
        id: u32,
        /// From the first to the last arrival.
        span_ns: u64,
        /// Datagrams that arrived.
        received: u32,
        /// What it shows, if it shows anything.
        sample: Option<TrainSample>,
        /// It showed nothing for it came in bursts.
        uneven: bool,
    },
    /// The counters now.
    Counters {
        /// When, by the monotonic clock.
        at_ns: u64,
        /// All bytes received.
        rx_total: u64,
        /// Bytes of probes received.
        rx_own: u64,
        /// All bytes sent.
        tx_total: u64,
        /// Bytes of probes sent.
        tx_own: u64,
    },
    /// The agent gave up.
    Failed {
        /// Why.
        error: String,
    },
}
