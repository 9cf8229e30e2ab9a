//! The text of `topology.json`: which fields exist, and the three ways to write a link.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{DELAY_MAX, QUEUE_PACKETS_DEFAULT, Shape, TopologyError};
use crate::lab::tc::{Rate, Shaper};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// Hosts by name: `h1`, `h2` and so on.
    pub(super) hosts: BTreeMap<String, RawHost>,
    /// Switches by name: `s1`, `s2` and so on; learning bridges.
    #[serde(default)]
    pub(super) switches: BTreeMap<String, RawSwitch>,
    /// Links between two nodes: `[a, b]`, `[a, b, options]`,
    /// `[[a, b], options]`, or the tutorials' `[a, b, latency, bandwidth]`. An end is a host's
    /// name, or a switch's with or without a port: `s1`, `s1-p2`. Options are Mininet's: `bw` in
    /// Mbit/s from the first end to the second, `bw_reverse` for the other way (default: `bw`),
    /// `max_queue_size` in packets, `use_htb` or `use_tbf`, `delay` in each direction as in
    /// `"5ms"` (a number: milliseconds), for which the kernel needs netem; `jitter` and `loss` only
    /// as 0.
    #[serde(default)]
    pub(super) links: Vec<RawLink>,
    /// Largest IP packet of every link in bytes. Default 1500.
    #[serde(default)]
    pub(super) mtu: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHost {
    /// Address of its first interface with the prefix length, `10.0.1.1/24`. Default: none.
    #[serde(default)]
    pub(super) ip: Option<String>,
    /// Ethernet address of its first interface. Default: made from the name.
    #[serde(default)]
    pub(super) mac: Option<String>,
    /// Shell commands that run in the host when it is up; a warning names one that fails.
    #[serde(default)]
    pub(super) commands: Vec<String>,
}

/// A switch is a learning bridge here; what programs a P4 switch is accepted and not used. The last
/// link of a circle of switches, in the file's order, is up and no bridge forwards there, as with a
/// spanning tree; a warning names it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSwitch {
    /// Accepted and not used.
    #[serde(default, rename = "runtime_json")]
    _runtime_json: Option<String>,
    /// Accepted and not used.
    #[serde(default, rename = "cli_input")]
    _cli_input: Option<String>,
    /// Accepted and not used.
    #[serde(default, rename = "program")]
    _program: Option<String>,
    /// Accepted and not used.
    #[serde(default, rename = "cpu_port")]
    _cpu_port: Option<Value>,
}

/// A link before its parts are told apart.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct RawLink(Vec<Value>);

impl RawLink {
    /// Accepts `[a, b]`, `[a, b, {…}]`, `[[a, b], {…}]`, and the P4 tutorials'
    /// `[a, b, latency, bandwidth]`.
    pub(super) fn normalise(self) -> Result<([String; 2], LinkOptions), TopologyError> {
        let shape = |reason: &str| TopologyError::LinkShape { reason: reason.to_owned() };
        let mut parts = self.0;
        if let Some(Value::Array(ends)) = parts.first() {
            let mut flat = ends.clone();
            if flat.len() != 2 {
                return Err(shape("the inner list must have two ends"));
            }
            flat.extend(parts.drain(1..));
            parts = flat;
        }
        let ends = match parts.get(..2) {
            Some([Value::String(a), Value::String(b)]) => [a.clone(), b.clone()],
            _ => return Err(shape("two names are missing")),
        };
        let options = match &parts[2..] {
            [] => LinkOptions::default(),
            [options @ Value::Object(_)] => {
                LinkOptions::deserialize(options).map_err(|error| shape(&error.to_string()))?
            }
            [delay] => LinkOptions { delay: Some(delay.clone()), ..LinkOptions::default() },
            [delay, bw] => LinkOptions {
                delay: Some(delay.clone()),
                bw: Some(number(bw).ok_or_else(|| shape("bandwidth must be a number, Mbit/s"))?),
                ..LinkOptions::default()
            },
            _ => return Err(shape("too many parts")),
        };
        Ok((ends, options))
    }
}

/// Options of Mininet's `TCLink`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkOptions {
    /// Mbit/s.
    bw: Option<f64>,
    /// Mbit/s from the second end to the first; `bw` otherwise.
    bw_reverse: Option<f64>,
    delay: Option<Value>,
    jitter: Option<Value>,
    /// Percent.
    loss: Option<Value>,
    /// Packets.
    max_queue_size: Option<u32>,
    use_htb: Option<bool>,
    use_tbf: Option<bool>,
}

impl LinkOptions {
    /// How long a frame takes in each direction.
    pub(super) fn delay(&self) -> Result<Duration, TopologyError> {
        let Some(value) = self.delay.as_ref().filter(|value| !is_zero(value)) else {
            return Ok(Duration::ZERO);
        };
        let found = duration(value).filter(|delay| *delay <= DELAY_MAX);
        found.ok_or_else(|| range("delay", &value.to_string(), "0 to 1s, such as \"5ms\""))
    }

    /// What leaves the first end and the second.
    pub(super) fn shapes(self) -> Result<[Option<Shape>; 2], TopologyError> {
        for (field, value) in [("jitter", &self.jitter), ("loss", &self.loss)] {
            if value.as_ref().is_some_and(|value| !is_zero(value)) {
                return Err(TopologyError::NotOfLabs { field });
            }
        }
        let forward = self.bw.map(|bw| rate("bw", bw)).transpose()?;
        let reverse = self.bw_reverse.map(|bw| rate("bw_reverse", bw)).transpose()?;
        if forward.is_none() && self.max_queue_size.is_some() {
            return Err(range("max_queue_size", "given without bw", "a rate beside it"));
        }
        let tbf = self.use_tbf.unwrap_or(false) || self.use_htb == Some(false);
        let queue_packets = self.max_queue_size.unwrap_or(QUEUE_PACKETS_DEFAULT);
        if queue_packets == 0 {
            return Err(range("max_queue_size", "0", "at least 1 packet"));
        }
        let shaper = if tbf { Shaper::Tbf } else { Shaper::Htb };
        let shape = |rate: Option<Rate>| rate.map(|rate| Shape { rate, shaper, queue_packets });
        Ok([shape(forward), shape(reverse.or(forward))])
    }
}

fn rate(field: &'static str, mbit: f64) -> Result<Rate, TopologyError> {
    let expected = "0.01 to 100000 Mbit/s";
    Rate::from_mbit(mbit).ok_or_else(|| range(field, &mbit.to_string(), expected))
}

fn range(field: &'static str, value: &str, expected: &'static str) -> TopologyError {
    TopologyError::Range { field, value: value.to_owned(), expected }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A time as `tc` reads it; a number is milliseconds, as in the tutorials.
fn duration(value: &Value) -> Option<Duration> {
    let seconds = match value {
        Value::Number(number) => number.as_f64()? / 1e3,
        Value::String(text) => {
            let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
            let (number, unit) = text.split_at(unit);
            let scale = match unit.trim() {
                "s" | "sec" | "secs" => 1.0,
                "ms" | "msec" | "msecs" => 1e-3,
                "us" | "usec" | "usecs" => 1e-6,
                _ => return None,
            };
            number.trim().parse::<f64>().ok()? * scale
        }
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// Whether a delay or loss asks for nothing: 0, "0", "0ms".
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => {
            let digits =
                text.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
            digits.is_empty() || digits.parse() == Ok(0.0)
        }
        Value::Null => true,
        _ => false,
    }
}
