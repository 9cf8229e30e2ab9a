//! One worker of an allreduce bench: sums vectors of known numbers over a session, measures how
//! long it takes, and compares every element of every sum.
//!
//! The numbers are small integers, so that their sums are exact in every element type and the
//! expected sum is one multiplication away. A sum of one chunk before each measured one makes all
//! workers begin together, and one behind it makes nobody compare its sum on a core that another
//! worker still needs for its own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_client::{Config, Error, Numbers, Session};
use weft_io::Port;
use weft_wire::header::ElementType;

use super::usage::Process;
use crate::run::WorkerIo;

/// What a worker is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct MemberPlan {
    /// Its rank.
    pub rank: u8,
    /// How many there are.
    pub workers: u8,
    /// Where it sends from.
    pub local: SocketAddr,
    /// Where the aggregator listens.
    pub aggregator: SocketAddr,
    /// Its port.
    pub io: WorkerIo,
    /// Elements on the wire.
    pub element_type: ElementType,
    /// Bytes of the vectors, one after the other.
    pub sizes: Vec<u64>,
    /// Sums of each size before the measured ones.
    pub warm_up: u32,
    /// Measured sums of each size.
    pub iterations: u32,
    /// Lanes of the aggregator.
    pub lanes: u16,
    /// Largest IP packet of the path.
    pub mtu: u16,
    /// Whether runs of frames cross the kernel as one message each.
    pub offload: bool,
    /// The aggregator's process, whose CPU time and bytes rank 0 reads.
    #[serde(default)]
    pub aggregator_pid: Option<u32>,
}

/// What a worker measured for one size.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct MemberResult {
    /// Bytes of the vector.
    pub bytes: u64,
    /// How long each measured sum took, in nanoseconds.
    pub times_ns: Vec<u64>,
    /// Elements that were wrong, over all sums.
    pub wrong: u64,
    /// Bytes of Ethernet frames that this worker sent during the measured sums.
    pub tx_bytes: u64,
    /// Frames sent again during the measured sums.
    pub retransmissions: u64,
    /// Chunks of the measured sums that came once for all workers.
    pub chunks_by_multicast: u64,
    /// CPU time of the measured sums, of this process.
    pub cpu_ns: u64,
    /// The same of the aggregator; rank 0 alone knows.
    pub aggregator_cpu_ns: u64,
    /// Bytes that the interfaces of this host sent, and with rank 0 the aggregator's.
    pub wire_bytes: u64,
    /// Elements of a chunk on the wire.
    pub elements: u64,
}

/// Runs a worker to its end in the session that `connect` makes; `report` is told of every size.
///
/// # Errors
/// The session's.
pub fn run<P: Port>(
    plan: &MemberPlan,
    connect: impl FnOnce(&Config) -> Result<Session<P>, Error>,
    mut report: impl FnMut(MemberResult),
) -> Result<(), Error> {
    let numbers = match plan.element_type {
        ElementType::I32 => Numbers::Fixed,
        ElementType::F32 => Numbers::F32,
        ElementType::Bf16 | ElementType::None => Numbers::Bf16,
    };
    let mut config = Config::new(plan.local, plan.aggregator).rank(plan.rank).numbers(numbers);
    config.connect_timeout = CONNECT_TIMEOUT;
    config.io = plan.io.of_client();
    (config.mtu, config.offload, config.lanes) = (plan.mtu, plan.offload, plan.lanes);
    config.multicast = plan.io.multicast();
    let mut session = connect(&config)?;
    let elements = u64::from(session.lease().elements);
    let own = Process::own();
    let aggregator = plan.aggregator_pid.filter(|_| plan.rank == 0).map(Process::of);
    for bytes in &plan.sizes {
        let mut result = MemberResult { bytes: *bytes, elements, ..MemberResult::default() };
        for turn in 0..plan.warm_up + plan.iterations {
            let measured = turn >= plan.warm_up;
            let mut vector = Vector::new(plan, *bytes, turn);
            // Reading counters takes some time, so the workers meet again behind it.
            let sent = session.port().stats().tx_bytes;
            let before = session.statistics().data;
            let used = (own.used(), aggregator.as_ref().map(Process::used).unwrap_or_default());
            meet(plan, &mut session)?;
            let begun = Instant::now();
            vector.sum(&mut session)?;
            let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let now = (own.used(), aggregator.as_ref().map(Process::used).unwrap_or_default());
            if measured {
                let (ours, theirs) = (now.0.since(used.0), now.1.since(used.1));
                result.cpu_ns += ours.cpu_ns;
                result.aggregator_cpu_ns += theirs.cpu_ns;
                result.wire_bytes += ours.sent_bytes + theirs.sent_bytes;
                result.times_ns.push(took);
                result.tx_bytes += session.port().stats().tx_bytes - sent;
                let data = session.statistics().data;
                result.retransmissions += data.retransmissions - before.retransmissions;
                result.chunks_by_multicast +=
                    data.answers_by_multicast - before.answers_by_multicast;
            }
            meet(plan, &mut session)?;
            result.wrong += vector.wrong(plan, turn);
        }
        report(result);
    }
    session.close()?;
    Ok(())
}

/// Waits until all workers are here.
fn meet<P: Port>(plan: &MemberPlan, session: &mut Session<P>) -> Result<(), Error> {
    Vector::new(plan, plan.element_type.len_bytes() as u64, 0).sum(session)
}

/// Numbers of one worker in one sum.
enum Vector {
    Integers(Vec<i32>),
    Floats(Vec<f32>),
}

impl Vector {
    fn new(plan: &MemberPlan, bytes: u64, turn: u32) -> Self {
        let count =
            usize::try_from(bytes / plan.element_type.len_bytes() as u64).unwrap_or(0).max(1);
        let numbers = (0..count).map(|index| number(index, turn) * (1 + i16::from(plan.rank)));
        match plan.element_type {
            ElementType::I32 => Self::Integers(numbers.map(i32::from).collect()),
            ElementType::F32 | ElementType::Bf16 | ElementType::None => {
                Self::Floats(numbers.map(f32::from).collect())
            }
        }
    }

    fn sum<P: Port>(&mut self, session: &mut Session<P>) -> Result<(), Error> {
        match self {
            Self::Integers(values) => session.allreduce_i32(values),
            Self::Floats(values) => session.allreduce(values),
        }
        .map(drop)
    }

    /// Elements that differ from the sum over all ranks: `number * (1 + 2 + … + workers)`.
    fn wrong(&self, plan: &MemberPlan, turn: u32) -> u64 {
        let workers = i16::from(plan.workers);
        let factor = workers * (workers + 1) / 2;
        let expected = (0..).map(|index| number(index, turn) * factor);
        let count = match self {
            Self::Integers(values) => values
                .iter()
                .zip(expected)
                .filter(|(sum, right)| **sum != i32::from(*right))
                .count(),
            // Small integers are exact in every type: a bit of difference is an error.
            Self::Floats(values) => values
                .iter()
                .zip(expected)
                .filter(|(sum, right)| sum.to_bits() != f32::from(*right).to_bits())
                .count(),
        };
        count as u64
    }
}

/// Changes from element to element and from sum to sum. Sums over 16 ranks are a small integer
/// times a power of two or fit 8 bits, as far as bfloat16 needs it.
fn number(index: usize, turn: u32) -> i16 {
    const POWERS: [i16; 5] = [1, 2, 0, 4, 8];
    POWERS[(index.wrapping_mul(7) + turn as usize) % POWERS.len()]
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(element_type: ElementType) -> MemberPlan {
        MemberPlan {
            rank: 2,
            workers: 4,
            local: "127.0.0.1:7000".parse().unwrap(),
            aggregator: "127.0.0.1:7001".parse().unwrap(),
            io: WorkerIo::Udp,
            element_type,
            sizes: vec![],
            warm_up: 0,
            iterations: 1,
            lanes: 1,
            mtu: 1500,
            offload: false,
            aggregator_pid: None,
        }
    }

    #[test]
    fn every_element_is_compared() {
        let plan = plan(ElementType::I32);
        let mut right = Vector::new(&MemberPlan { rank: 9, ..plan.clone() }, 400, 3);
        assert_eq!(right.wrong(&plan, 3), 0, "rank 9 holds ten times the number, as 1+2+3+4 do");
        let Vector::Integers(values) = &mut right else { unreachable!() };
        values[99] += 1;
        assert_eq!(right.wrong(&plan, 3), 1);
        assert!(right.wrong(&plan, 4) > 50, "another turn has other numbers");
    }

    #[test]
    fn floats_are_compared_bit_by_bit() {
        let plan = plan(ElementType::Bf16);
        let mut right = Vector::new(&MemberPlan { rank: 9, ..plan.clone() }, 200, 0);
        assert_eq!(right.wrong(&plan, 0), 0);
        let Vector::Floats(values) = &mut right else { unreachable!() };
        values[2] = -0.0;
        assert_eq!(right.wrong(&plan, 0), 1);
    }
}
