//! Decides what HTB classes and filters give jobs their bands: which lines `tc` is to run, and what
//! the kernel's own words mean. No I/O.
//!
//! The tree: a class for the link's rate, under it one class for all that is no job's, in the last
//! band, and for each job one class in each band that it has had; a label that the node's file
//! gives a band is as a job that never changes it. All may borrow up to the link's
//! rate, in the order of their bands, and have next to nothing of their own; so bands are strict,
//! and nobody starves wholly. A filter sends a job's label to the class of its band; one before it
//! sends the job's frames without elements to a class of all such frames in the first band, for
//! they ask for what the other direction of the link is free for. A job changes
//! its band by `tc filter replace`: what waits stays where it is and leaves in its turn
//! (TensorLights deletes the tree instead, and what waits with it).
//!
//! Invariants: what is not Weft's is never changed or removed, nor is what of Weft's it hangs on:
//! Weft's is known by the root's handle, or, under another's class, by the numbers of classes and
//! filters; a tree that has exactly what is wanted needs no line; the lines for any tree that was
//! begun lead to the wanted one.

use std::collections::BTreeMap;
use std::fmt;

use weft_control::{JOB_BANDS, LABEL_MAX, REST_BAND};

use family::Family;
pub(super) use found::Found;
pub(super) use mark::{Mark, Trace, traces};
pub(super) use problem::Problem;
pub(super) use read::{counts, failure};

mod family;
mod found;
mod keys;
mod mark;
mod problem;
mod read;

/// Where the classes of jobs live.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Place {
    /// The interface.
    pub(super) device: String,
    /// Largest IP packet.
    pub(super) mtu: u16,
    /// What they live under.
    pub(super) root: Root,
    /// Whose they are.
    pub(super) mark: Mark,
}

/// What the classes of jobs live under.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Root {
    /// A root of Weft's own, at this rate.
    Own {
        /// The link's.
        rate_bytes_per_sec: u64,
    },
    /// A class of somebody else, whose rate is the link's.
    Under(ClassId),
}

/// `major:minor`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct ClassId {
    major: u16,
    minor: u16,
}

impl ClassId {
    /// Reads `1:1`, as `tc` writes it (hexadecimal).
    #[must_use]
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        let hex = |part: &str| u16::from_str_radix(part, 16).ok();
        let minor = if minor.is_empty() { 0 } else { hex(minor)? };
        Some(Self { major: hex(major)?, minor })
    }
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}", self.major, self.minor)
    }
}

/// A job's label and band.
pub(super) type Wanted = BTreeMap<u8, u8>;

impl Place {
    /// Whether the same classes would be in the same place.
    #[must_use]
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.device == other.device && self.parent() == other.parent()
    }

    const fn major(&self) -> u16 {
        match self.root {
            Root::Own { .. } => OWN_MAJOR,
            Root::Under(class) => class.major,
        }
    }

    /// What job classes are children of.
    const fn parent(&self) -> ClassId {
        match self.root {
            Root::Own { .. } => ClassId { major: OWN_MAJOR, minor: LINK_MINOR },
            Root::Under(class) => class,
        }
    }

    fn burst_bytes(&self, rate_bytes_per_sec: u64) -> u64 {
        // The kernel wakes once a millisecond and still keeps the rate.
        rate_bytes_per_sec / 1000 + 2 * self.frame_bytes()
    }

    fn frame_bytes(&self) -> u64 {
        u64::from(self.mtu) + ETHERNET_LEN
    }

    /// The lines for `tc -batch` that lead from what is there to what is wanted; none where it is
    /// there. With nothing wanted, filters go and classes stay: what waits in them leaves.
    #[must_use]
    pub(super) fn lines(&self, found: &Found, wanted: &Wanted) -> Vec<String> {
        let mut lines = Vec::new();
        // Also what a change that was cut off left without its rest.
        if !wanted.is_empty() || found.has_root {
            self.base(found, &mut lines);
        }
        if !wanted.is_empty() && self.is_under() && !found.has_mark {
            lines.push(self.class_line("add", self.mark.minor(), REST_BAND, found));
        }
        let bare = (!wanted.is_empty()).then_some((BARE_MINOR, 0));
        let of_jobs = wanted.iter().map(|(label, band)| (minor(*band, *label), *band));
        for (minor, band) in bare.into_iter().chain(of_jobs) {
            if let Some(verb) = verb(found.classes.contains(&minor), minor, found) {
                lines.push(self.class_line(verb, minor, band, found));
            }
        }
        for (label, band) in in_order(found, wanted) {
            for family in Family::ALL {
                let class = ClassId { major: self.major(), minor: family.minor(band, label) };
                let handle_of_new = format!("::{label:x}");
                match found.filters.get(&(family, label)) {
                    // The kernel never changes what a filter matches.
                    Some((handle, _)) if found.astray.contains(&(family, label)) => {
                        lines.push(self.without_filter(family, handle));
                        lines.push(self.filter_line("add", family, &handle_of_new, label, class));
                    }
                    Some((_, has)) if *has == class => {}
                    Some((handle, _)) => {
                        lines.push(self.filter_line("replace", family, handle, label, class));
                    }
                    None => {
                        lines.push(self.filter_line("add", family, &handle_of_new, label, class));
                    }
                }
            }
        }
        let gone = found.filters.iter().filter(|((_, label), _)| !wanted.contains_key(label));
        lines.extend(gone.map(|((family, _), (handle, _))| self.without_filter(*family, handle)));
        lines
    }

    /// The lines that remove all that is Weft's, and nothing else: a class on which others have
    /// hung something stays, and with it what it hangs on itself.
    #[must_use]
    pub(super) fn removal(&self, found: &Found) -> Vec<String> {
        let device = &self.device;
        if found.has_root && found.strangers.is_empty() {
            return vec![format!("qdisc del dev {device} root handle {OWN_MAJOR:x}:")];
        }
        // With their tables, which the kernel keeps when filters go one by one.
        let tables = found.tables.iter().map(|family| {
            format!(
                "filter del dev {device} parent {:x}: protocol {} pref {}",
                self.major(),
                family.protocol(),
                family.preference()
            )
        });
        let mut lines: Vec<String> = tables.collect();
        // The mark goes last: what a removal that is cut off leaves is still known by it.
        let mark = (found.has_mark && found.strangers.is_empty()).then(|| self.mark.minor());
        let classes = found.classes.iter().copied().filter(|minor| !found.is_held(*minor));
        let class = |minor: u16| ClassId { major: self.major(), minor };
        let classes = classes.chain(mark);
        lines.extend(classes.map(|id| format!("class del dev {device} classid {}", class(id))));
        lines
    }

    const fn is_under(&self) -> bool {
        matches!(self.root, Root::Under(_))
    }

    fn base(&self, found: &Found, lines: &mut Vec<String>) {
        let Root::Own { rate_bytes_per_sec } = self.root else { return };
        let device = &self.device;
        let (link, bits) = (self.parent(), rate_bytes_per_sec.saturating_mul(8));
        let (burst, quantum) = (self.burst_bytes(rate_bytes_per_sec), self.frame_bytes());
        if !found.has_root {
            lines.push(format!(
                "qdisc add dev {device} root handle {OWN_MAJOR:x}: htb default {REST_MINOR:x} r2q {}",
                self.mark.r2q()
            ));
        }
        if let Some(verb) = verb(found.has_link, LINK_MINOR, found) {
            lines.push(format!(
                "class {verb} dev {device} parent {OWN_MAJOR:x}: classid {link} htb rate {bits}bit \
                 ceil {bits}bit burst {burst} cburst {burst} quantum {quantum}"
            ));
        }
        if let Some(verb) = verb(found.has_rest, REST_MINOR, found) {
            lines.push(self.class_line(verb, REST_MINOR, REST_BAND, found));
        }
    }

    fn class_line(&self, verb: &str, minor: u16, band: u8, found: &Found) -> String {
        let (device, parent) = (&self.device, self.parent());
        let id = ClassId { major: self.major(), minor };
        let [ceil, cburst] = match (self.root, &found.ceil) {
            (Root::Own { rate_bytes_per_sec }, _) => [
                format!("{}bit", rate_bytes_per_sec.saturating_mul(8)),
                self.burst_bytes(rate_bytes_per_sec).to_string(),
            ],
            // The kernel's own words.
            (Root::Under(_), Some(words)) => words.clone(),
            (Root::Under(_), None) => [format!("{FLOOR_BITS_PER_SEC}bit"), "0".to_owned()],
        };
        let frame = self.frame_bytes();
        format!(
            "class {verb} dev {device} parent {parent} classid {id} htb rate \
             {FLOOR_BITS_PER_SEC}bit ceil {ceil} burst {} cburst {cburst} quantum {frame} prio \
             {band}",
            2 * frame
        )
    }

    fn filter_line(
        &self,
        verb: &str,
        family: Family,
        handle: &str,
        label: u8,
        class: ClassId,
    ) -> String {
        format!(
            "filter {verb} dev {} parent {:x}: protocol {} pref {} handle {handle} u32 {} flowid \
             {class}",
            self.device,
            self.major(),
            family.protocol(),
            family.preference(),
            family.matches(label)
        )
    }

    fn without_filter(&self, family: Family, handle: &str) -> String {
        format!(
            "filter del dev {} parent {:x}: protocol {} pref {} handle {handle} u32",
            self.device,
            self.major(),
            family.protocol(),
            family.preference()
        )
    }
}

/// What brings a class to what it is to be; none where it is.
fn verb(is_there: bool, minor: u16, found: &Found) -> Option<&'static str> {
    match is_there {
        false => Some("add"),
        true => found.altered.contains(&minor).then_some("change"),
    }
}

/// Labels in an order in which no job is behind another one that it is before in the end, and was
/// before: first those that move up, the best first, then those that move down, the worst first.
fn in_order(found: &Found, wanted: &Wanted) -> Vec<(u8, u8)> {
    let from = |label: u8| {
        let filter = found.filters.get(&(Family::V4, label));
        filter.and_then(|(_, class)| split(class.minor)).map_or(REST_BAND, |(band, _)| band)
    };
    let mut order: Vec<(u8, u8)> = wanted.iter().map(|(label, band)| (*label, *band)).collect();
    order.sort_by_key(|(label, to)| {
        let (from, to) = (i16::from(from(*label)), i16::from(*to));
        if to < from { (0, to, from, *label) } else { (1, -to, -from, *label) }
    });
    order
}

/// Whether a band is a job's.
#[must_use]
pub(super) const fn is_band(band: u8) -> bool {
    band < JOB_BANDS
}

/// Whether a label is a job's.
#[must_use]
pub(super) const fn is_label(label: u8) -> bool {
    label >= 1 && label <= LABEL_MAX
}

/// The class of a job in a band.
const fn minor(band: u8, label: u8) -> u16 {
    ((band as u16 + 1) << 8) | label as u16
}

/// And back.
fn split(minor: u16) -> Option<(u8, u8)> {
    let [band, label] = minor.to_be_bytes();
    let band = band.checked_sub(1)?;
    (is_band(band) && is_label(label)).then_some((band, label))
}

/// In which queue of [`weft_control::figures::QUEUES`] a class's frames are counted, by its number.
#[must_use]
pub(super) fn queue(minor: u16) -> Option<usize> {
    match minor {
        BARE_MINOR => Some(usize::from(JOB_BANDS) + 1),
        REST_MINOR => Some(usize::from(REST_BAND)),
        minor => split(minor).map(|(band, _)| usize::from(band)),
    }
}

/// Handle of Weft's own root; "WE".
const OWN_MAJOR: u16 = 0x5745;
/// In its tree: the class of all that is no job's, and of the link.
const REST_MINOR: u16 = 1;
const LINK_MINOR: u16 = 2;
/// Of frames without elements, where no job can have its own: the label is none.
const BARE_MINOR: u16 = minor(0, 0);
/// Preference of the filters for IPv4; of those for IPv6 it is one more, and of those that are
/// asked before them up to two less.
const PREFERENCE: u16 = 0x5745;
/// What each class has of its own.
const FLOOR_BITS_PER_SEC: u64 = 100_000;
const ETHERNET_LEN: u64 = 14;

#[cfg(test)]
mod tests;
