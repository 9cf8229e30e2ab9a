//! Decides what a filter of the kernel matches, by the words of `tc -j filter show`. No I/O.
//!
//! A filter of several keys has several members `match` in one object there, of which a map would
//! keep the last one.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// 32 bits of a packet under a mask.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Key {
    /// From the beginning of the IP header.
    pub(super) at: u64,
    pub(super) value: u32,
    pub(super) mask: u32,
}

/// What each filter of a list matches; none where its words do not say it.
#[must_use]
pub(super) fn listed(text: &str) -> Vec<Option<BTreeSet<Key>>> {
    let listed: Vec<Listed> = serde_json::from_str(text).unwrap_or_default();
    listed.iter().map(|filter| keys(&filter.options.0)).collect()
}

fn keys(matches: &[Value]) -> Option<BTreeSet<Key>> {
    if matches.is_empty() {
        return None;
    }
    let hex = |value: &Value| u32::from_str_radix(value.as_str()?, 16).ok();
    let key = |words: &Value| {
        let at = words["off"].as_u64()?;
        Some(Key { at, value: hex(&words["value"])?, mask: hex(&words["mask"])? })
    };
    matches.iter().map(key).collect()
}

#[derive(serde::Deserialize)]
struct Listed {
    #[serde(default)]
    options: Matches,
}

/// All members `match` of an object.
#[derive(Default)]
struct Matches(Vec<Value>);

impl<'de> Deserialize<'de> for Matches {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Matches;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the options of a filter")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Matches, A::Error> {
                let mut matches = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "match" {
                        matches.push(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Matches(matches))
            }
        }
        deserializer.deserialize_map(Members)
    }
}
