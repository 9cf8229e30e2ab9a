//! What a measurement is asked to do, and how that is written on a command line.

use std::str::FromStr;

use crate::lab::tc::Rate;

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// For how long to probe.
    pub seconds: f64,
    /// Whether all hosts may probe at once.
    pub together: bool,
    /// Traffic of others.
    pub cross: Vec<Cross>,
    /// What makes it.
    pub cross_tool: CrossTool,
    /// Changes of rates on the way.
    pub steps: Vec<Step>,
}

/// What sends cross traffic.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CrossTool {
    /// The agents, a datagram at a time.
    #[default]
    Own,
    /// iperf3 with UDP.
    Iperf3,
}

/// UDP traffic from a host to another, `HOST:MBIT` (to the next host) or `HOST/TARGET:MBIT`, by the
/// rate of its frames.
#[derive(Clone, Debug, PartialEq)]
pub struct Cross {
    pub(super) from: String,
    pub(super) to: Option<String>,
    pub(super) mbit: f64,
}

impl FromStr for Cross {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}`: expected HOST:MBIT or HOST/TARGET:MBIT");
        let (path, mbit) = text.rsplit_once(':').ok_or_else(bad)?;
        let mbit =
            positive(mbit).filter(|mbit| Rate::from_mbit(*mbit).is_some()).ok_or_else(bad)?;
        let (from, to) = path.split_once('/').map_or((path, None), |(from, to)| (from, Some(to)));
        Ok(Self { from: from.to_owned(), to: to.map(str::to_owned), mbit })
    }
}

/// A new rate for both directions of a host's link, `HOST:MBIT@SECONDS`.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub(super) host: String,
    pub(super) rate: Rate,
    pub(super) at_s: f64,
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}`: expected HOST:MBIT@SECONDS");
        let (host, rest) = text.rsplit_once(':').ok_or_else(bad)?;
        let (mbit, at) = rest.split_once('@').ok_or_else(bad)?;
        let rate = positive(mbit).and_then(Rate::from_mbit).ok_or_else(bad)?;
        Ok(Self { host: host.to_owned(), rate, at_s: positive(at).ok_or_else(bad)? })
    }
}

fn positive(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}
