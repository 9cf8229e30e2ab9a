//! Bands: whose frames leave a host first, where several jobs' servers share its link
//! (TensorLights), and the label by which a host tells the frames of a job.

use core::fmt;

use weft_wire::words;

/// Bands that jobs may have, of which 0 goes first. The rest of the traffic is in the band below.
pub const JOB_BANDS: u8 = 7;
/// The band of all that is no job's.
pub const REST_BAND: u8 = JOB_BANDS;
/// Labels are 6 bits, the DSCP of IP; 0 says nothing.
pub const LABEL_MAX: u8 = 63;

/// The labels that a controller gives to jobs, in this order: the code points that RFC 2474 leaves
/// to local use, first those that nobody else may be given (pool 2, `xxxx11`), then those of pool 3
/// (`xxxx01`) without the two that have a meaning by now, LE (1) and NQB (45).
pub const LABELS: [u8; 30] = [
    3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63, 5, 9, 13, 17, 21, 25, 29, 33, 37,
    41, 49, 53, 57, 61,
];

/// Who goes before whom on a host's link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum BandPolicy {
    /// Nobody: all share.
    #[default]
    Fifo,
    /// Each job keeps the band that it was given.
    One,
    /// The places of jobs of one model move on by one at each rotation.
    RoundRobin,
}

words!(BandPolicy, "band policy", { Fifo = "fifo", One = "one", RoundRobin = "round-robin" });

/// Why a box did not give a job its band. Nothing has changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BandError {
    /// The box's file has no `[bands]`.
    NoBands,
    /// The band is above [`REST_BAND`] - 1, or the label no job's.
    OutOfRange,
    /// The label is another job's here.
    LabelTaken,
    /// There is no `tc`.
    NoTool,
    /// The process may not change queueing disciplines.
    NotPermitted,
    /// The interface is not there.
    NoDevice,
    /// The interface has a queueing discipline of somebody else, or something of somebody else's
    /// with the numbers of Weft's.
    Foreign,
    /// The class that job classes are to live under is not there, or carries traffic itself.
    NoClass,
    /// The kernel has no HTB or no u32 filters.
    NoDiscipline,
    /// The kernel did not do what it was asked for; the box's log has its words.
    Failed,
}

impl fmt::Display for BandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoBands => "its file has no [bands]; add it, and start the box again",
            Self::OutOfRange => "a band is 0 to 6, and a job's label 1 to 63",
            Self::LabelTaken => "the label is another job's there; give each job its own",
            Self::NoTool => "there is no `tc` on its PATH; install iproute2",
            Self::NotPermitted => "it may not change queues; give it CAP_NET_ADMIN",
            Self::NoDevice => "the interface that [bands] names is not there",
            Self::Foreign => {
                "the interface has a queueing discipline of somebody else, or classes or filters of \
                 somebody else with the numbers of Weft's; the box's log names them; remove them, \
                 or name another class with children with bands.under"
            }
            Self::NoClass => {
                "the class that bands.under names is not there, or has no classes under it; the \
                 box's log has what is there; add it, or name another one"
            }
            Self::NoDiscipline => {
                "its kernel has no HTB or no u32 filters; load sch_htb and cls_u32"
            }
            Self::Failed => "the kernel did not do it; the box's log has why",
        })
    }
}

impl core::error::Error for BandError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_code_points_for_local_use_and_each_is_there_once() {
        for (i, label) in LABELS.iter().enumerate() {
            assert!(*label <= LABEL_MAX && label & 1 == 1, "{label}: pools 2 and 3 are odd");
            assert!(![1, 45].contains(label), "{label} has a meaning");
            assert!(!LABELS[..i].contains(label), "{label} twice");
        }
        assert!(LABELS[..16].iter().all(|label| label & 3 == 3), "pool 2 comes first");
    }
}
