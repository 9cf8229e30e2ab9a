//! Decides what the kernel's own words mean. No I/O.
//!
//! `tc -j` lists queueing disciplines and filters; classes come as text, for iproute2 of Debian 12
//! ignores `-j` there.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use serde_json::Value;
use weft_control::{BandError, REST_BAND};
use weft_io::bands::BandCounts;

use super::{
    BARE_MINOR, ClassId, FLOOR_BITS_PER_SEC, Family, Found, LINK_MINOR, Mark, OWN_MAJOR, Place,
    Problem, REST_MINOR, Root, is_label, keys, queue, split,
};

impl Place {
    /// Arguments of `tc` that list what is there: queueing disciplines, classes, filters.
    #[must_use]
    pub(in crate::bands) fn listings(&self) -> [Vec<String>; 3] {
        let root = format!("{:x}:", self.major());
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        [
            words(&["-j", "qdisc", "show", "dev", &self.device]),
            words(&["-s", "class", "show", "dev", &self.device]),
            words(&["-j", "filter", "show", "dev", &self.device, "parent", &root]),
        ]
    }

    /// Reads what `tc` listed. Filters count only where the root is known.
    ///
    /// # Errors
    /// The root is somebody else's, or the class to live under is not there, or carries traffic
    /// itself.
    pub(in crate::bands) fn read(
        &self,
        qdiscs: &str,
        classes: &str,
        filters: &str,
    ) -> Result<Found, Problem> {
        let mut found = Found::default();
        let qdiscs = list(qdiscs)?;
        let root = root_of(&qdiscs);
        match (&root, self.root) {
            (RootQdisc::Default, Root::Own { .. }) => return Ok(found),
            (RootQdisc::Htb(OWN_MAJOR, Some(r2q)), Root::Own { .. }) if Mark::is_one(*r2q) => {
                found.has_root = true;
            }
            (RootQdisc::Htb(major, _), Root::Under(class)) if *major == class.major => {}
            (_, Root::Under(class)) => {
                let words = format!("under {class}: there is {root} at the root");
                return Err(Problem::bare(BandError::NoClass, words));
            }
            _ => {
                return Err(Problem::bare(
                    BandError::Foreign,
                    format!("there is {root} at the root"),
                ));
            }
        }
        let parents: BTreeSet<ClassId> =
            classes.lines().filter_map(class).filter_map(|class| class.parent).collect();
        let link = classes.lines().filter_map(class).find(|class| class.id == self.parent());
        found.ceil = link.map(|link| [link.ceil.to_owned(), link.cburst.to_owned()]);
        for class in classes.lines().filter_map(class) {
            self.read_class(&class, parents.contains(&class.id), &mut found)?;
        }
        if let Root::Under(class) = self.root
            && found.ceil.is_none()
        {
            let words = format!("under {class}: there is no such class");
            return Err(Problem::bare(BandError::NoClass, words));
        }
        self.read_filters(filters, &mut found)?;
        for qdisc in &qdiscs {
            let parent = qdisc["parent"].as_str().and_then(ClassId::parse);
            if let Some(parent) = parent.filter(|id| self.is_own(*id)) {
                let (kind, handle) = (&qdisc["kind"], &qdisc["handle"]);
                let words = [kind, handle].map(|word| word.as_str().unwrap_or("?"));
                let words = format!("qdisc {} {} at class {parent}", words[0], words[1]);
                found.strangers.push((parent.minor, words));
            }
        }
        Ok(found)
    }

    /// Whether a class is Weft's by its number.
    fn is_own(&self, id: ClassId) -> bool {
        let is_of_tree = match self.root {
            Root::Own { .. } => true,
            Root::Under(_) => {
                id.minor == BARE_MINOR || id.minor == self.mark.minor() || split(id.minor).is_some()
            }
        };
        id.major == self.major() && is_of_tree
    }

    fn read_class(
        &self,
        class: &Class<'_>,
        is_inner: bool,
        found: &mut Found,
    ) -> Result<(), Problem> {
        let Class { id, parent, .. } = *class;
        if id.major != self.major() {
            return Ok(());
        }
        if id == self.parent() {
            if let Root::Under(_) = self.root
                && class.prio.is_some()
            {
                let words = format!("class {id} has no classes under it, but traffic of its own");
                return Err(Problem::bare(BandError::NoClass, words));
            }
            found.has_link = true;
            if let Root::Own { rate_bytes_per_sec } = self.root
                && ![class.rate, class.ceil].iter().all(|words| is_rate(words, rate_bytes_per_sec))
            {
                found.altered.insert(id.minor);
            }
            return Ok(());
        }
        let band = match id.minor {
            BARE_MINOR => Some(0),
            REST_MINOR if found.has_root => Some(REST_BAND),
            minor if !found.has_root && minor == self.mark.minor() => Some(REST_BAND),
            minor => split(minor).map(|(band, _)| band),
        };
        let Some(band) = band else {
            // In Weft's own tree it goes with the tree, and else with the class that it is under.
            let on = parent.filter(|parent| self.is_own(*parent));
            if found.has_root || on.is_some() {
                let on = on.map_or(LINK_MINOR, |parent| parent.minor);
                let under = parent.map_or(String::new(), |parent| format!(" under {parent}"));
                found.strangers.push((on, format!("class {id}{under}")));
            }
            return Ok(());
        };
        // Whoever has a class of this number that is not as Weft makes them keeps it.
        let is_as_made = match is_inner {
            // The kernel says no band of a class that has others under it.
            true => class.prio.is_none() && class.is_floor(),
            false => class.is_of(band),
        };
        if parent != Some(self.parent()) || !is_as_made {
            let words = format!("class {id} has a number of Weft's, and is not as Weft makes them");
            return Err(Problem::new(BandError::Foreign, words));
        }
        let is_ceil = match self.root {
            Root::Own { rate_bytes_per_sec } => is_rate(class.ceil, rate_bytes_per_sec),
            Root::Under(_) => found.ceil.as_ref().is_some_and(|[ceil, _]| ceil == class.ceil),
        };
        if !is_ceil && id.minor != self.mark.minor() {
            found.altered.insert(id.minor);
        }
        if is_inner {
            found.inner.insert(id.minor);
        }
        match id.minor {
            REST_MINOR => found.has_rest = true,
            minor if split(minor).is_none() && minor != BARE_MINOR => found.has_mark = true,
            minor => drop(found.classes.insert(minor)),
        }
        Ok(())
    }

    fn read_filters(&self, text: &str, found: &mut Found) -> Result<(), Problem> {
        let text = if text.trim().is_empty() { "[]" } else { text };
        let keys = keys::listed(text).into_iter().chain(iter::repeat(None));
        for (filter, keys) in list(text)?.iter().zip(keys) {
            let options = &filter["options"];
            let to = ["flowid", "classid"].iter().find_map(|name| options[*name].as_str());
            let class = to.and_then(ClassId::parse);
            let preference = filter["pref"].as_u64().unwrap_or_default();
            let Some(family) = Family::of(preference) else {
                self.read_stranger(filter, preference, class, found);
                continue;
            };
            found.tables.insert(family);
            let (Some(handle), Some(_)) = (options["fh"].as_str(), options["flowid"].as_str())
            else {
                continue;
            };
            let id = handle.rsplit(':').next().and_then(|id| u16::from_str_radix(id, 16).ok());
            let label = id.and_then(|id| u8::try_from(id).ok()).filter(|label| is_label(*label));
            let (Some(label), Some(class)) = (label, class) else {
                let words = format!("a filter of preference {preference}, Weft's, is {handle}");
                return Err(Problem::new(BandError::Foreign, words));
            };
            if keys.is_some_and(|keys| keys != family.keys(label)) {
                found.astray.insert((family, label));
            }
            found.filters.insert((family, label), (handle.to_owned(), class));
        }
        Ok(())
    }

    /// Each filter is listed several times; the one that says what it does counts.
    fn read_stranger(
        &self,
        filter: &Value,
        preference: u64,
        class: Option<ClassId>,
        found: &mut Found,
    ) {
        let options = &filter["options"];
        let says = options.as_object().is_some_and(|options| !options.is_empty());
        let class = class.filter(|class| self.is_own(*class));
        // A filter on a root of Weft's own hangs on that.
        if !says || !options["ht_divisor"].is_null() || class.is_none() && !found.has_root {
            return;
        }
        let to = class.map_or(String::new(), |class| format!(" to class {class}"));
        let words = format!("a filter of preference {preference}{to}");
        let is_of_ip =
            filter["protocol"].as_str().is_none_or(|of| ["all", "ip", "ipv6"].contains(&of));
        if found.has_root && preference < Family::FIRST && is_of_ip {
            found.before.get_or_insert_with(|| format!("{words}, before Weft's"));
        }
        found.strangers.push((class.map_or(LINK_MINOR, |class| class.minor), words));
    }
}

/// A class, as `tc class show` has it: `class htb 1:103 parent 1:1 prio 0 rate 100Kbit ceil 100Mbit
/// burst 3028b cburst 15512b`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class<'a> {
    pub(super) id: ClassId,
    /// None at the root.
    pub(super) parent: Option<ClassId>,
    /// None where it has others under it.
    prio: Option<u8>,
    rate: &'a str,
    ceil: &'a str,
    cburst: &'a str,
}

impl Class<'_> {
    /// Whether it is as Weft makes those of a band.
    pub(super) fn is_of(&self, band: u8) -> bool {
        self.is_floor() && self.prio == Some(band)
    }

    fn is_floor(&self) -> bool {
        self.rate == format!("{}Kbit", FLOOR_BITS_PER_SEC / 1000)
    }
}

/// Whether these are the kernel's words for a rate: whole units of it.
pub(super) fn is_rate(words: &str, bytes_per_sec: u64) -> bool {
    let digits = words.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &words[digits.len()..] {
        "bit" => 1,
        "Kbit" => 1_000,
        "Mbit" => 1_000_000,
        "Gbit" => 1_000_000_000,
        "Tbit" => 1_000_000_000_000,
        _ => return false,
    };
    digits.parse() == Ok(bytes_per_sec.saturating_mul(8) / unit)
}

/// Reads a line; none of it is about a class of HTB.
pub(super) fn class(line: &str) -> Option<Class<'_>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["class", "htb", id, ..] = words.as_slice() else { return None };
    let after = |word: &str| {
        let at = words.iter().position(|other| *other == word)?;
        words.get(at + 1).copied()
    };
    Some(Class {
        id: ClassId::parse(id)?,
        parent: after("parent").and_then(ClassId::parse),
        prio: after("prio").and_then(|prio| prio.parse().ok()),
        rate: after("rate")?,
        ceil: after("ceil")?,
        cburst: after("cburst")?,
    })
}

fn list(text: &str) -> Result<Vec<Value>, Problem> {
    let failed = |error| Problem::new(BandError::Failed, format!("what tc -j lists: {error}"));
    serde_json::from_str(text).map_err(failed)
}

/// What is at the root of an interface.
#[derive(Clone, Debug, Eq, PartialEq)]
enum RootQdisc {
    /// What the kernel gives by itself.
    Default,
    /// Its handle, and its `r2q`.
    Htb(u16, Option<u64>),
    /// Its kind and handle.
    Other(String),
}

impl std::fmt::Display for RootQdisc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("nothing"),
            Self::Htb(OWN_MAJOR, _) => {
                write!(
                    f,
                    "qdisc htb {OWN_MAJOR:x}:, which has Weft's handle, and no mark of Weft's,"
                )
            }
            Self::Htb(major, _) => write!(f, "qdisc htb {major:x}:"),
            Self::Other(words) => write!(f, "qdisc {words}"),
        }
    }
}

fn root_of(qdiscs: &[Value]) -> RootQdisc {
    let Some(root) = qdiscs.iter().find(|qdisc| qdisc["root"] == true) else {
        return RootQdisc::Default;
    };
    let handle = root["handle"].as_str().unwrap_or_default();
    let major = ClassId::parse(handle).map_or(0, |id| id.major);
    match (root["kind"].as_str(), major) {
        (_, 0) => RootQdisc::Default,
        (Some("htb"), major) => RootQdisc::Htb(major, root["options"]["r2q"].as_u64()),
        (kind, _) => RootQdisc::Other(format!("{} {handle}", kind.unwrap_or("?"))),
    }
}

/// What a failed `tc` means by its words.
#[must_use]
pub(in crate::bands) fn failure(stderr: &str) -> BandError {
    let has = |words: &[&str]| words.iter().any(|word| stderr.contains(word));
    if has(&["Operation not permitted"]) {
        BandError::NotPermitted
    } else if has(&["Cannot find device"]) {
        BandError::NoDevice
    } else if has(&["qdisc kind is unknown", "Unknown qdisc", "TC classifier not found"]) {
        BandError::NoDiscipline
    } else {
        BandError::Failed
    }
}

/// What the kernel has counted of Weft's classes by their numbers, from `tc -s class show`.
#[must_use]
pub(in crate::bands) fn counts(place: &Place, text: &str) -> BTreeMap<u16, BandCounts> {
    let mut counts: BTreeMap<u16, BandCounts> = BTreeMap::new();
    let mut of: Option<u16> = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(class) = class(line) {
            let is_counted = queue(class.id.minor).is_some()
                && class.parent == Some(place.parent())
                && (class.id.minor != REST_MINOR || !place.is_under());
            of = Some(class.id.minor).filter(|_| is_counted);
            continue;
        }
        let Some(minor) = of else { continue };
        let count = counts.entry(minor).or_default();
        match words.as_slice() {
            ["Sent", bytes, "bytes", frames, "pkt", "(dropped", lost, ..] => {
                (count.sent, count.sent_bytes) = (number(frames), number(bytes));
                count.full = number(lost.trim_end_matches(','));
            }
            ["backlog", bytes, frames, ..] => {
                (count.waiting, count.waiting_bytes) = (number(frames), number(bytes));
            }
            _ => {}
        }
    }
    counts
}

/// Reads `12Kb`, `15140b`, `10p` or `7`.
fn number(word: &str) -> u64 {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &word[digits.len()..] {
        "Kb" => 1 << 10,
        "Mb" => 1 << 20,
        _ => 1,
    };
    digits.parse::<u64>().unwrap_or(0).saturating_mul(factor)
}
