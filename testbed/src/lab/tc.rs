//! Decides how a link's rate is enforced: writes the `tc` commands for HTB or TBF and reads back
//! what the kernel says it does. No I/O.
//!
//! Invariant: a rate counts only once [`RateCheck::verify`] has found it in the kernel's own
//! words, for on kernels without a queueing discipline some tools go on with none (Mininet's
//! `TCLink` does, with exit status 0).

use std::fmt;

use serde::Deserialize;

/// A link's rate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rate {
    bits_per_sec: u64,
}

impl Rate {
    /// A rate of `mbit` million bits per second, from 10 kbit/s to 100 Gbit/s.
    #[must_use]
    pub fn from_mbit(mbit: f64) -> Option<Self> {
        if !(RATE_MBIT_MIN..=RATE_MBIT_MAX).contains(&mbit) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        let bits_per_sec = (mbit * 1e6).round() as u64;
        Some(Self { bits_per_sec })
    }

    /// Bits per second, as on the wire (Ethernet header included, preamble and FCS not).
    #[must_use]
    pub const fn bits_per_sec(self) -> u64 {
        self.bits_per_sec
    }

    /// Million bits per second.
    #[must_use]
    pub fn mbit(self) -> f64 {
        self.bits_per_sec as f64 / 1e6
    }

    /// Bytes per second.
    #[must_use]
    pub const fn bytes_per_sec(self) -> u64 {
        self.bits_per_sec / 8
    }

    /// Bucket that lets the kernel wake once a millisecond and still keep the rate.
    const fn burst_bytes(self, mtu: u32) -> u64 {
        self.bytes_per_sec() / 1000 + 2 * (mtu as u64 + ETHERNET_HEADER_LEN)
    }

    /// Whether `reported` is this rate. `tc` prints whole kbit/s, Mbit/s and so on, rounded down.
    fn matches(self, reported: f64) -> bool {
        let expected = self.bits_per_sec as f64;
        (reported - expected).abs() <= expected / 1000.0 + 8.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Mbit/s", self.mbit())
    }
}

/// A queueing discipline that enforces a rate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shaper {
    /// Hierarchical token bucket: a class of the link's rate, and under it one for everything, in
    /// the last band, which leaves room for classes of jobs ([`JOBS_UNDER`]).
    Htb,
    /// Token bucket filter.
    Tbf,
}

impl Shaper {
    /// The kernel's name for it.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Htb => "htb",
            Self::Tbf => "tbf",
        }
    }

    /// Commands for `tc -batch` that shape what leaves through `interface`.
    #[must_use]
    pub fn batch(self, interface: &str, rate: Rate, mtu: u32, queue_packets: u32) -> Vec<String> {
        let bits = rate.bits_per_sec();
        let burst = rate.burst_bytes(mtu);
        let frame = u64::from(mtu) + ETHERNET_HEADER_LEN;
        let floor = bits.min(FLOOR_BITS_PER_SEC);
        match self {
            Self::Htb => vec![
                format!("qdisc add dev {interface} root handle 1: htb default 10"),
                format!(
                    "class add dev {interface} parent 1: classid {JOBS_UNDER} htb rate {bits}bit \
                     ceil {bits}bit burst {burst} cburst {burst} quantum {frame}"
                ),
                format!(
                    "class add dev {interface} parent {JOBS_UNDER} classid 1:10 htb rate {floor}bit \
                     ceil {bits}bit burst {burst} cburst {burst} quantum {frame} prio 7"
                ),
                format!(
                    "qdisc add dev {interface} parent 1:10 handle 10: pfifo limit {queue_packets}"
                ),
            ],
            Self::Tbf => {
                let limit = u64::from(queue_packets) * frame;
                vec![format!(
                    "qdisc add dev {interface} root handle 1: tbf rate {bits}bit burst {burst} \
                     limit {limit}"
                )]
            }
        }
    }
}

impl Shaper {
    /// Commands for `tc -batch` that give what leaves through `interface`, which [`Self::batch`]
    /// shaped, another rate. Waiting packets stay.
    #[must_use]
    pub fn change(self, interface: &str, rate: Rate, mtu: u32, queue_packets: u32) -> Vec<String> {
        let mut lines = self.batch(interface, rate, mtu, queue_packets);
        match self {
            // The classes only: the queue below them is the same.
            Self::Htb => lines
                .drain(1..3)
                .map(|line| line.replacen("class add", "class change", 1))
                .collect(),
            Self::Tbf => vec![lines.swap_remove(0).replacen("qdisc add", "qdisc change", 1)],
        }
    }

    /// The shaper of an interface and its rate, in the kernel's own words (see
    /// [`RateCheck::verify`]); `None` when nothing shapes it.
    #[must_use]
    pub fn read(qdiscs: &str, classes: &str) -> Option<(Self, Rate)> {
        let listed: Vec<Qdisc> = serde_json::from_str(qdiscs).ok()?;
        let root = listed.iter().find(|qdisc| qdisc.root)?;
        let (shaper, bits) = match root.kind.as_str() {
            "htb" => (Self::Htb, class_rate(classes, JOBS_UNDER)?),
            "tbf" => (Self::Tbf, root.options.rate? * 8.0),
            _ => return None,
        };
        Some((shaper, Rate::from_mbit(bits / 1e6)?))
    }
}

/// A rate that an interface must turn out to have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RateCheck {
    /// The interface, inside its namespace.
    pub interface: String,
    /// The discipline asked for.
    pub shaper: Shaper,
    /// The rate asked for.
    pub rate: Rate,
}

impl RateCheck {
    /// Compares the kernel's words with what was asked for: `qdiscs` from
    /// `tc -j qdisc show dev …`, `classes` from `tc class show dev …` (text: iproute2 of Debian 12
    /// ignores `-j` there).
    ///
    /// # Errors
    /// When the discipline is missing or has another rate.
    pub fn verify(&self, qdiscs: &str, classes: &str) -> Result<(), TcError> {
        let missing =
            || TcError::Missing { interface: self.interface.clone(), kind: self.shaper.kind() };
        let listed: Vec<Qdisc> = serde_json::from_str(qdiscs).map_err(|_| missing())?;
        let root = listed.iter().find(|q| q.root && q.kind == self.shaper.kind());
        let root = root.ok_or_else(missing)?;
        let found = match self.shaper {
            Shaper::Htb => class_rate(classes, JOBS_UNDER).ok_or_else(missing)?,
            // JSON carries bytes per second, which whole bits may not divide into.
            Shaper::Tbf => root.options.rate.ok_or_else(missing)? * 8.0,
        };
        if self.rate.matches(found) {
            return Ok(());
        }
        let interface = self.interface.clone();
        Err(TcError::Rate { interface, found_bits_per_sec: found, asked: self.rate })
    }
}

/// Looks for netem in the kernel's own words, as [`RateCheck::verify`] looks for a rate.
///
/// # Errors
/// When it is missing.
pub fn verify_netem(interface: &str, qdiscs: &str) -> Result<(), TcError> {
    let listed: Vec<Qdisc> = serde_json::from_str(qdiscs).unwrap_or_default();
    let is_there = listed.iter().any(|qdisc| qdisc.kind == "netem");
    let missing = || TcError::Missing { interface: interface.to_owned(), kind: "netem" };
    is_there.then_some(()).ok_or_else(missing)
}

/// Finds the queueing discipline that the kernel does not have in the words of a failed `tc`.
#[must_use]
pub fn lacks_discipline(stderr: &str) -> bool {
    let words = ["qdisc kind is unknown", "Unknown qdisc", "Qdisc type", "qdisc not found"];
    words.iter().any(|word| stderr.contains(word))
}

/// What the kernel did not do.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum TcError {
    /// The discipline is not there.
    #[error(
        "{interface} has no `{kind}` after `tc` succeeded; load it with `modprobe sch_{kind}` or \
         use a kernel that has CONFIG_NET_SCH_{}", kind.to_uppercase()
    )]
    Missing {
        /// The interface.
        interface: String,
        /// The discipline.
        kind: &'static str,
    },
    /// The discipline has another rate.
    #[error("{interface} runs at {found_bits_per_sec} bit/s instead of {asked}")]
    Rate {
        /// The interface.
        interface: String,
        /// What the kernel reports.
        found_bits_per_sec: f64,
        /// What was asked for.
        asked: Rate,
    },
}

#[derive(Debug, Deserialize)]
struct Qdisc {
    kind: String,
    #[serde(default)]
    root: bool,
    #[serde(default)]
    options: QdiscOptions,
}

#[derive(Debug, Default, Deserialize)]
struct QdiscOptions {
    /// Bytes per second.
    rate: Option<f64>,
}

/// Reads `class htb 1:1 root … rate 100Mbit ceil …`.
fn class_rate(text: &str, class: &str) -> Option<f64> {
    let line = text.lines().find(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("class") && words.nth(1) == Some(class)
    })?;
    let mut words = line.split_whitespace();
    words.find(|word| *word == "rate")?;
    parse_rate(words.next()?)
}

/// Reads a rate as `tc` prints it, in bits per second.
fn parse_rate(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "bit" => 1.0,
        "Kbit" => 1e3,
        "Mbit" => 1e6,
        "Gbit" => 1e9,
        "Tbit" => 1e12,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

/// The class of the link's rate, whose children classes of jobs may be.
pub const JOBS_UNDER: &str = "1:1";
/// What everything has of its own where jobs have classes; it may borrow the rest.
const FLOOR_BITS_PER_SEC: u64 = 100_000;
const RATE_MBIT_MIN: f64 = 0.01;
const RATE_MBIT_MAX: f64 = 100_000.0;
const ETHERNET_HEADER_LEN: u64 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(shaper: Shaper, mbit: f64) -> RateCheck {
        let rate = Rate::from_mbit(mbit).unwrap();
        RateCheck { interface: "eth0".to_owned(), shaper, rate }
    }

    const HTB: &str = r#"[{"kind":"htb","handle":"1:","root":true,"refcnt":3,"options":{"r2q":10}},
        {"kind":"pfifo","handle":"10:","parent":"1:10","options":{"limit":1000}}]"#;
    const CLASS: &str = "class htb 1:10 parent 1:1 leaf 10: prio 7 rate 100Kbit ceil 100Mbit burst 15514b cburst 15514b \nclass htb 1:1 root rate 100Mbit ceil 100Mbit burst 15514b cburst 15514b \n";

    #[test]
    fn htb_batch_is_the_links_class_and_one_for_everything_under_it() {
        let lines = Shaper::Htb.batch("eth0", Rate::from_mbit(100.0).unwrap(), 1500, 1000);
        assert_eq!(
            lines,
            [
                "qdisc add dev eth0 root handle 1: htb default 10",
                "class add dev eth0 parent 1: classid 1:1 htb rate 100000000bit \
                 ceil 100000000bit burst 15528 cburst 15528 quantum 1514",
                "class add dev eth0 parent 1:1 classid 1:10 htb rate 100000bit \
                 ceil 100000000bit burst 15528 cburst 15528 quantum 1514 prio 7",
                "qdisc add dev eth0 parent 1:10 handle 10: pfifo limit 1000",
            ]
        );
    }

    #[test]
    fn tbf_batch_bounds_the_queue_in_bytes() {
        let lines = Shaper::Tbf.batch("s1-p1", Rate::from_mbit(0.5).unwrap(), 1500, 10);
        assert_eq!(
            lines,
            ["qdisc add dev s1-p1 root handle 1: tbf rate 500000bit burst 3090 limit 15140"]
        );
    }

    #[test]
    fn a_change_leaves_the_queue_alone() {
        let rate = Rate::from_mbit(50.0).unwrap();
        let [link, all] = &Shaper::Htb.change("eth0", rate, 1500, 9)[..] else { panic!("two") };
        let begin = "class change dev eth0 parent 1: classid 1:1 htb rate 50000000bit";
        assert!(link.starts_with(begin), "{link}");
        let begin =
            "class change dev eth0 parent 1:1 classid 1:10 htb rate 100000bit ceil 50000000bit";
        assert!(all.starts_with(begin), "{all}");
        let [tbf] = &Shaper::Tbf.change("eth0", rate, 1500, 9)[..] else { panic!("one line") };
        assert!(tbf.starts_with("qdisc change dev eth0 root handle 1: tbf rate 50000000bit"));
    }

    #[test]
    fn a_rate_is_read_back_without_knowing_it() {
        let mbit = |mbit| Rate::from_mbit(mbit).unwrap();
        assert_eq!(Shaper::read(HTB, CLASS), Some((Shaper::Htb, mbit(100.0))));
        let tbf = r#"[{"kind":"tbf","handle":"1:","root":true,"options":{"rate":12500000}}]"#;
        assert_eq!(Shaper::read(tbf, ""), Some((Shaper::Tbf, mbit(100.0))));
        let none = r#"[{"kind":"noqueue","handle":"0:","root":true,"options":{}}]"#;
        assert_eq!((Shaper::read(none, ""), Shaper::read("", "")), (None, None));
    }

    #[test]
    fn the_kernels_words_decide() {
        assert_eq!(check(Shaper::Htb, 100.0).verify(HTB, CLASS), Ok(()));
        let wrong = check(Shaper::Htb, 200.0).verify(HTB, CLASS);
        assert!(matches!(wrong, Err(TcError::Rate { found_bits_per_sec: 100e6, .. })), "{wrong:?}");
        let tbf = r#"[{"kind":"tbf","handle":"1:","root":true,"options":{"rate":12500000}}]"#;
        assert_eq!(check(Shaper::Tbf, 100.0).verify(tbf, ""), Ok(()));
        assert!(matches!(
            check(Shaper::Tbf, 50.0).verify(tbf, ""),
            Err(TcError::Rate { found_bits_per_sec: 100e6, .. })
        ));
        let none = r#"[{"kind":"noqueue","handle":"0:","root":true,"options":{}}]"#;
        for (qdiscs, classes) in [(none, ""), (HTB, ""), ("", CLASS), ("[]", CLASS), (tbf, CLASS)] {
            let found = check(Shaper::Htb, 100.0).verify(qdiscs, classes);
            assert!(matches!(found, Err(TcError::Missing { kind: "htb", .. })), "{qdiscs}");
        }
    }

    #[test]
    fn a_delay_counts_only_where_netem_is_listed() {
        let listed = HTB.replace("pfifo", "netem");
        assert_eq!(verify_netem("eth0", &listed), Ok(()));
        for text in [HTB, "", "[]"] {
            let found = verify_netem("eth0", text);
            assert!(matches!(found, Err(TcError::Missing { kind: "netem", .. })), "{text}");
        }
    }

    #[test]
    fn printed_rates_are_read_with_their_units() {
        let table = [("1500bit", 1500.0), ("64Kbit", 64e3), ("2500Mbit", 2.5e9), ("1Tbit", 1e12)];
        for (text, expected) in table {
            assert_eq!(parse_rate(text), Some(expected), "{text}");
        }
        for text in ["", "12", "Mbit", "5MBps"] {
            assert_eq!(parse_rate(text), None, "{text}");
        }
        // 1234.567 Mbit/s is printed rounded down to whole Mbit/s.
        assert!(Rate::from_mbit(1_234.567).unwrap().matches(1234e6));
        assert!(!Rate::from_mbit(1_234.567).unwrap().matches(1230e6));
    }

    #[test]
    fn rates_have_bounds() {
        for mbit in [0.0, -1.0, 0.001, 2e5, f64::NAN, f64::INFINITY] {
            assert_eq!(Rate::from_mbit(mbit), None, "{mbit}");
        }
    }

    #[test]
    fn a_missing_discipline_is_told_from_other_failures() {
        assert!(lacks_discipline("Error: Specified qdisc kind is unknown.\nCommand failed -:1"));
        assert!(!lacks_discipline("Cannot find device \"eth0\"\nCommand failed -:1"));
    }
}
