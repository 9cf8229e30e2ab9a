//! Decides what the arrival times of a packet train say about the slowest link of its path.
//!
//! A token bucket (HTB, TBF) lets the head of a train through at line rate until its burst is
//! spent; only then does the spacing show the rate. Cumulated bytes over time are then concave, and
//! the burst ends where they lie farthest above the line from the first to the last arrival. That
//! prefix is cut off, twice, for two buckets may be on the path.
//!
//! What is left is fitted by least squares. Where a sender or shaper was held up in between, the
//! fit and the median of sub-train slopes disagree, and the median is taken.
//!
//! What others put on the receiver's link during the train comes from readings of its NIC counter.
//! Whether the sender's link held the train back comes from the stamps with which it left: a queue
//! keeps a train together, so nothing of others shows between its packets.
//!
//! O(n) per train; called once per train by its receiver.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::capacity::median;
use super::{Refusal, is_positive};

/// One packet's arrival.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Arrival {
    /// When, by the receiver's clock.
    pub at_ns: u64,
    /// Length of its frame, Ethernet header included.
    pub len_bytes: u32,
}

/// A reading of the receiver's NIC counter during a train.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reading {
    /// When, by the clock of the arrivals.
    pub at_ns: u64,
    /// All bytes received by then.
    pub total_bytes: u64,
}

/// What a train shows, its head cut off.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSample {
    /// Arrival of the last packet that was cut off: the train's clock starts here.
    pub first_ns: u64,
    /// Arrival of the last packet.
    pub last_ns: u64,
    /// Packets after the cut.
    pub packets: u32,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Rate of the tail, robust against hold-ups; `bytes` over the time otherwise.
    pub rate_bytes_per_sec: f64,
    /// All that the receiver's link carried meanwhile, by its NIC counter, the train's own bytes
    /// among it; 0 if not known.
    pub received_bytes_per_sec: f64,
    /// How it left its sender, if that is known.
    pub departure: Option<Departure>,
    /// Packets that were cut off.
    pub prefix_packets: u32,
}

impl TrainSample {
    /// Reduces a train's arrivals, in order, and counter readings to a sample.
    ///
    /// # Errors
    /// When too little is left after the shaper's burst, or that is uneven, or time goes backwards.
    pub fn reduce(arrivals: &[Arrival], readings: &[Reading]) -> Result<Self, Refusal> {
        if arrivals.windows(2).any(|pair| pair[1].at_ns < pair[0].at_ns) {
            return Err(Refusal::Backwards);
        }
        let mut tail = arrivals;
        for _ in 0..BUCKETS_MAX {
            let cut = knee(tail);
            if tail.len() < cut + TAIL_PACKETS_MIN {
                return Err(Refusal::Short);
            }
            tail = &tail[cut..];
        }
        let ([first, .., last], [_, counted @ ..]) = (tail, tail) else {
            return Err(Refusal::Short);
        };
        let span_ns = last.at_ns - first.at_ns;
        if counted.len() + 1 < TAIL_PACKETS_MIN || span_ns == 0 {
            return Err(Refusal::Short);
        }
        let rate = tail_rate(tail)?;
        let bytes = counted.iter().map(|arrival| u64::from(arrival.len_bytes)).sum();
        let cut = arrivals.len() - tail.len();
        Ok(Self {
            first_ns: first.at_ns,
            last_ns: last.at_ns,
            packets: u32::try_from(counted.len()).unwrap_or(u32::MAX),
            bytes,
            rate_bytes_per_sec: rate,
            received_bytes_per_sec: received_rate(tail, readings).unwrap_or(0.0),
            departure: None,
            prefix_packets: u32::try_from(cut).unwrap_or(u32::MAX),
        })
    }

    /// Rates of the train and of all that its receiver got meanwhile, 0 if not known.
    ///
    /// # Errors
    /// When the sample is absurd, or too short to outlast a burst.
    pub fn rates(&self) -> Result<(f64, f64), Refusal> {
        let span_ns = self.last_ns.checked_sub(self.first_ns).ok_or(Refusal::Backwards)?;
        let own = self.rate_bytes_per_sec;
        let received = self.received_bytes_per_sec;
        if self.bytes == 0 || span_ns == 0 || !is_positive(own) || own > RATE_MAX {
            return Err(Refusal::Absurd);
        }
        let departed = self.departure.map_or(0.0, |departure| departure.bytes_per_sec);
        if ![received, departed].iter().all(|rate| (0.0..=RATE_MAX).contains(rate)) {
            return Err(Refusal::Absurd);
        }
        let long = span_ns >= TAIL_NS_MIN || self.packets + self.prefix_packets + 1 >= PACKETS_MAX;
        if self.packets < 2 || !long {
            return Err(Refusal::Short);
        }
        Ok((own, received))
    }

    /// From the first to the last arrival that counted.
    #[must_use]
    pub const fn span_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

/// How a train left its sender.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Departure {
    /// How fast.
    pub bytes_per_sec: f64,
    /// The sender's link held it back, so that this is the link's rate; otherwise the train was
    /// through within the link's burst.
    pub held: bool,
}

impl Departure {
    /// Reduces the stamps with which a train left, in order; `None` where they tell nothing.
    #[must_use]
    pub fn reduce(stamps: &[Arrival]) -> Option<Self> {
        let departure = match TrainSample::reduce(stamps, &[]) {
            Ok(sample) if sample.rates().is_ok() => {
                Self { bytes_per_sec: sample.rate_bytes_per_sec, held: true }
            }
            Ok(_) | Err(Refusal::Short) => {
                let ([first, others @ ..], last) = (stamps, stamps.last()?) else { return None };
                let bytes: f64 = others.iter().map(|packet| f64::from(packet.len_bytes)).sum();
                let rate = bytes * 1e9 / (last.at_ns - first.at_ns) as f64;
                Self { bytes_per_sec: rate, held: false }
            }
            Err(_) => return None,
        };
        let rate = departure.bytes_per_sec;
        (is_positive(rate) && rate <= RATE_MAX).then_some(departure)
    }
}

/// Index of the last packet of the burst: where the cumulated bytes are farthest above the line
/// from the first to the last arrival, if that is more than chance: packets of others in between
/// make a train uneven, too, and a cut at the best place of an even train would bias it.
fn knee(tail: &[Arrival]) -> usize {
    let (Some(first), Some(last)) = (tail.first(), tail.last()) else { return 0 };
    let span = last.at_ns.saturating_sub(first.at_ns) as f64;
    let bytes: f64 = tail.iter().skip(1).map(|arrival| f64::from(arrival.len_bytes)).sum();
    if span == 0.0 {
        return 0;
    }
    let mut above = (KNEE_PACKETS_MIN * f64::from(last.len_bytes), 0);
    let mut sum = 0.0;
    for (index, arrival) in tail.iter().enumerate().skip(1) {
        sum += f64::from(arrival.len_bytes);
        let elapsed = (arrival.at_ns - first.at_ns) as f64;
        let line = bytes * elapsed / span;
        // The fewer packets, the clearer they must be ahead.
        let factor = if sum - line < CLEAR_PACKETS * f64::from(last.len_bytes) {
            HEAD_CLEARLY_FASTER
        } else {
            HEAD_FASTER
        };
        let faster = sum * (span - elapsed) >= factor * (bytes - sum) * elapsed;
        if sum - line > above.0 && faster {
            above = (sum - line, index);
        }
    }
    above.1
}

fn tail_rate(tail: &[Arrival]) -> Result<f64, Refusal> {
    let start = tail.first().ok_or(Refusal::Short)?.at_ns;
    let mut sum = 0.0;
    let points: Vec<(f64, f64)> = tail
        .iter()
        .enumerate()
        .map(|(index, arrival)| {
            sum += if index == 0 { 0.0 } else { f64::from(arrival.len_bytes) };
            ((arrival.at_ns - start) as f64, sum)
        })
        .collect();
    let fitted = least_squares(&points).ok_or(Refusal::Absurd)?;
    let stride = (points.len() / SUB_TRAINS).max(2);
    let mut slopes: Vec<f64> = points
        .iter()
        .zip(points.get(stride..).unwrap_or_default())
        .filter(|(early, late)| late.0 > early.0)
        .map(|(early, late)| (late.1 - early.1) / (late.0 - early.0) * 1e9)
        .collect();
    let typical = median(&mut slopes).ok_or(Refusal::Uneven)?;
    let apart = (fitted / typical - 1.0).abs();
    if apart <= HOLD_UP {
        Ok(fitted)
    } else if apart <= UNEVEN {
        Ok(typical)
    } else {
        // A shaper or CPU that slept and caught up: burst after burst, which show no rate.
        Err(Refusal::Uneven)
    }
}

/// Slope of bytes over time, in bytes per second.
fn least_squares(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let (mut xy, mut xx) = (0.0, 0.0);
    for (x, y) in points {
        xy += (x - mean_x) * (y - mean_y);
        xx += (x - mean_x) * (x - mean_x);
    }
    let slope = xy / xx * 1e9;
    is_positive(slope).then_some(slope)
}

/// What the receiver's link carried during the tail: the NIC counter's slope, where readings cover
/// most of the tail.
fn received_rate(tail: &[Arrival], readings: &[Reading]) -> Option<f64> {
    // From the second packet on: the rest of the burst comes at the moment of the first.
    let (first, last) = (tail.get(1)?.at_ns, tail.last()?.at_ns);
    let inside = |reading: &&Reading| (first..=last).contains(&reading.at_ns);
    let from = readings.iter().find(inside)?;
    let to = readings.iter().rev().find(inside)?;
    let span = to.at_ns.checked_sub(from.at_ns)? as f64;
    let total = to.total_bytes.checked_sub(from.total_bytes)? as f64;
    let covered = span > 0.0 && span >= (last - first) as f64 * READINGS_COVER;
    covered.then_some(total * 1e9 / span)
}

/// Most packets of a train; longer ones would fill a receiver's buffer.
pub const PACKETS_MAX: u32 = 256;
/// A tail must last this long, lest it be the burst of a shaper.
pub const TAIL_NS_MIN: u64 = 1_000_000;
const TAIL_PACKETS_MIN: usize = 6;
const BUCKETS_MAX: usize = 2;
/// Bytes above the line, in packets, that make a burst.
const KNEE_PACKETS_MIN: f64 = 0.7;
const CLEAR_PACKETS: f64 = 1.5;
/// A burst is this much faster than what follows it.
const HEAD_FASTER: f64 = 1.4;
/// And one of less than [`CLEAR_PACKETS`] this much.
const HEAD_CLEARLY_FASTER: f64 = 4.0;
/// The tail's sub-trains are this part of it.
const SUB_TRAINS: usize = 4;
/// Fit and median this far apart: something was held up.
const HOLD_UP: f64 = 0.08;
/// And this far: nothing is left of an even train.
const UNEVEN: f64 = 0.2;
const READINGS_COVER: f64 = 0.6;
/// 8 Tbit/s: faster than any link there is.
const RATE_MAX: f64 = 1e12;
