//! Decides what the kernel's own words mean. No I/O.
//!
//! `tc -j` lists queueing disciplines and filters; classes come as text, for iproute2 of Debian 12
//! ignores `-j` there.

use serde_json::Value;
use weft_control::{BandError, REST_BAND};

use super::{
    BARE_MINOR, ClassId, FLOOR_BITS_PER_SEC, Family, Found, OWN_MAJOR, Place, REST_MINOR, Root,
    is_label, split,
};

impl Place {
    /// Arguments of `tc` that list what is there: queueing disciplines, classes, filters.
    #[must_use]
    pub(in crate::bands) fn listings(&self) -> [Vec<String>; 3] {
        let root = format!("{:x}:", self.major());
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        [
            words(&["-j", "qdisc", "show", "dev", &self.device]),
            words(&["class", "show", "dev", &self.device]),
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
    ) -> Result<Found, BandError> {
        let mut found = Found::default();
        match (root_of(qdiscs)?, self.root) {
            (RootQdisc::Default, Root::Own { .. }) => return Ok(found),
            (RootQdisc::Htb(OWN_MAJOR), Root::Own { .. }) => found.has_root = true,
            (RootQdisc::Htb(major), Root::Under(class)) if major == class.major => {}
            _ => return Err(BandError::Foreign),
        }
        for line in classes.lines() {
            self.read_class(line, &mut found)?;
        }
        if let Root::Under(_) = self.root
            && found.ceil.is_none()
        {
            return Err(BandError::Foreign);
        }
        self.read_filters(filters, &mut found)?;
        Ok(found)
    }

    /// Reads `class htb 1:103 parent 1:1 prio 0 rate 100Kbit ceil 100Mbit burst 3028b cburst
    /// 15512b`; classes without a `prio` have others under them.
    fn read_class(&self, line: &str, found: &mut Found) -> Result<(), BandError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["class", "htb", id, ..] = words.as_slice() else { return Ok(()) };
        let Some(id) = ClassId::parse(id).filter(|id| id.major == self.major()) else {
            return Ok(());
        };
        let after = |word: &str| {
            let at = words.iter().position(|other| *other == word)?;
            words.get(at + 1).copied()
        };
        let parent = after("parent").and_then(ClassId::parse);
        if id == self.parent() {
            if let Root::Under(_) = self.root
                && after("prio").is_some()
            {
                return Err(BandError::Foreign);
            }
            found.has_link = true;
            let words = [after("ceil"), after("cburst")].map(|word| word.map(str::to_owned));
            found.ceil = words[0].clone().zip(words[1].clone()).map(|(ceil, burst)| [ceil, burst]);
        } else if parent == Some(self.parent()) {
            let band = match id.minor {
                BARE_MINOR => Some(0),
                REST_MINOR if found.has_root => Some(REST_BAND),
                minor => split(minor).map(|(band, _)| band),
            };
            let Some(band) = band else { return Ok(()) };
            // Whoever has a class of this number that is not as Weft makes them keeps it.
            let floor = format!("{}Kbit", FLOOR_BITS_PER_SEC / 1000);
            let is_ours = after("rate") == Some(floor.as_str())
                && after("prio").and_then(|prio| prio.parse().ok()) == Some(band);
            if !is_ours {
                return Err(BandError::Foreign);
            }
            match id.minor {
                REST_MINOR => found.has_rest = true,
                minor => drop(found.classes.insert(minor)),
            }
        }
        Ok(())
    }

    fn read_filters(&self, text: &str, found: &mut Found) -> Result<(), BandError> {
        let text = if text.trim().is_empty() { "[]" } else { text };
        let listed: Vec<Value> = serde_json::from_str(text).map_err(|_| BandError::Failed)?;
        for filter in &listed {
            let Some(family) = filter["pref"].as_u64().and_then(Family::of) else { continue };
            found.tables.insert(family);
            let options = &filter["options"];
            let (Some(handle), Some(class)) = (options["fh"].as_str(), options["flowid"].as_str())
            else {
                continue;
            };
            let id = handle.rsplit(':').next().and_then(|id| u16::from_str_radix(id, 16).ok());
            let label = id.and_then(|id| u8::try_from(id).ok()).filter(|label| is_label(*label));
            let (Some(label), Some(class)) = (label, ClassId::parse(class)) else {
                // One with Weft's preference that Weft did not make.
                return Err(BandError::Foreign);
            };
            found.filters.insert((family, label), (handle.to_owned(), class));
        }
        Ok(())
    }
}

/// What is at the root of an interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RootQdisc {
    /// What the kernel gives by itself.
    Default,
    Htb(u16),
    Other,
}

fn root_of(qdiscs: &str) -> Result<RootQdisc, BandError> {
    let listed: Vec<Value> = serde_json::from_str(qdiscs).map_err(|_| BandError::Failed)?;
    let Some(root) = listed.iter().find(|qdisc| qdisc["root"] == true) else {
        return Ok(RootQdisc::Default);
    };
    let major = root["handle"].as_str().and_then(ClassId::parse).map_or(0, |id| id.major);
    Ok(match (root["kind"].as_str(), major) {
        (_, 0) => RootQdisc::Default,
        (Some("htb"), major) => RootQdisc::Htb(major),
        _ => RootQdisc::Other,
    })
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

/// Bytes that wait in the classes of jobs, from `tc -s class show`.
#[must_use]
pub(in crate::bands) fn backlog_bytes(place: &Place, text: &str) -> u64 {
    let mut is_ours = false;
    let mut bytes = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["class", "htb", id, ..] => {
                let id = ClassId::parse(id).filter(|id| id.major == place.major());
                is_ours = id.is_some_and(|id| id.minor == BARE_MINOR || split(id.minor).is_some());
            }
            ["backlog", count, ..] if is_ours => {
                let digits = count.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let factor = if count.ends_with("Kb") { 1024 } else { 1 };
                bytes += digits.parse::<u64>().unwrap_or(0) * factor;
            }
            _ => {}
        }
    }
    bytes
}
