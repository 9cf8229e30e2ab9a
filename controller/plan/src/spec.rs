//! Decides how a planning problem is written in JSON. Nothing is checked here beyond types; see
//! [`crate::case::Case::new`].
//!
//! Invariants: an unknown key and a name given twice are refused. Whole numbers may be written as
//! floats without a fraction (`1e9`), as many JSON writers do. A rate may have a fraction where
//! leaving it out changes less than a millionth: rates are often computed.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use weft_config::controller::Options;

use crate::float;

/// One planning problem: what asks to be sent, over what, to whom.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CaseSpec {
    /// Version of this format; 1.
    #[serde(default = "schema", deserialize_with = "whole")]
    pub schema: u64,
    /// The instant that the plan starts at; every `_ns` instant is on the same clock.
    #[serde(deserialize_with = "whole")]
    pub now_ns: u64,
    /// Bandwidth of every host, by name.
    #[serde(deserialize_with = "unique_map")]
    pub hosts: BTreeMap<String, HostSpec>,
    /// Links inside the network. Without them only hosts' own links limit.
    #[serde(default, skip_serializing_if = "LinksSpec::is_empty")]
    pub links: LinksSpec,
    /// Parameter servers.
    pub servers: Vec<ServerSpec>,
    /// Names of hosts that may sum groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregators: Vec<String>,
    /// Updates that ask to be sent.
    pub updates: Vec<UpdateSpec>,
    /// Bandwidth that is already promised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<ReservationSpec>,
    /// How to plan.
    #[serde(default, skip_serializing_if = "Options::is_default")]
    pub options: Options,
}

/// A host's own links, full duplex.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// From the host into the network.
    #[serde(deserialize_with = "rate")]
    pub up_bytes_per_sec: u64,
    /// From the network to the host.
    #[serde(deserialize_with = "rate")]
    pub down_bytes_per_sec: u64,
    /// Name of its rack in [`LinksSpec::racks`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
}

/// Links inside the network.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LinksSpec {
    /// Racks, by name: traffic that leaves or enters one crosses its two links.
    #[serde(default, deserialize_with = "unique_map")]
    pub racks: BTreeMap<String, RackSpec>,
}

impl LinksSpec {
    fn is_empty(&self) -> bool {
        self.racks.is_empty()
    }
}

/// A rack's links to the rest of the network.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RackSpec {
    /// Out of the rack.
    #[serde(deserialize_with = "rate")]
    pub up_bytes_per_sec: u64,
    /// Into the rack.
    #[serde(deserialize_with = "rate")]
    pub down_bytes_per_sec: u64,
    /// Its hosts; a host may name its rack instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

/// A parameter server, or one shard's host of it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// Its name; updates are addressed to it.
    pub name: String,
    /// The host that it runs on.
    pub host: String,
    /// Updates committed so far.
    #[serde(deserialize_with = "whole")]
    pub version: u64,
    /// The largest delay that a commit may have. Missing: twice the number of workers.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    pub tau_max: Option<u64>,
    /// Share of the previous step that is kept, 0 to below 1.
    #[serde(default)]
    pub momentum: f64,
    /// The largest allowed norm of server minus replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub div_max: Option<f64>,
    /// The host that keeps the second copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    /// The job that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The replica's norm of the last step, as the server reported it. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub h_norm: f64,
    /// Norms of groups that the server committed and the replica misses, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lag_norms: Vec<f64>,
    /// Updates granted earlier and not committed yet. They go first.
    #[serde(default, deserialize_with = "whole", skip_serializing_if = "is_zero_count")]
    pub in_flight: u64,
    /// When the last of those is expected to commit.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    pub in_flight_until_ns: Option<u64>,
    /// Workers of the job, where known: a `tau_max` below `workers - 1` is refused.
    #[serde(default, deserialize_with = "maybe_whole", skip_serializing_if = "Option::is_none")]
    pub workers: Option<u64>,
}

/// An update that asks to be sent.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateSpec {
    /// Its name, unique in the case.
    pub id: String,
    /// The server that it is for.
    pub server: String,
    /// The worker's host.
    pub host: String,
    /// Bytes to be sent.
    #[serde(deserialize_with = "whole")]
    pub size_bytes: u64,
    /// The model version that it was computed on.
    #[serde(deserialize_with = "whole")]
    pub version: u64,
    /// Its 2-norm; needed where the server bounds divergence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<f64>,
    /// The job; must be the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The worker's previous update was dropped; this one is spared by the drop rule.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dropped_before: bool,
}

/// Bandwidth already promised to somebody, on the path between two hosts or on one end of it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReservationSpec {
    /// Sending host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Receiving host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// First instant.
    #[serde(deserialize_with = "whole")]
    pub from_ns: u64,
    /// First instant after it.
    #[serde(deserialize_with = "whole")]
    pub to_ns: u64,
    /// How much.
    #[serde(deserialize_with = "rate")]
    pub bytes_per_sec: u64,
}

const fn schema() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero_count(value: &u64) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The smallest rate whose fraction is left out, in bytes per second. A smaller one that has a
/// fraction is refused, for a plan on other rates than those given would mislead.
const RATE_FRACTION_MIN: f64 = 1e6;

/// A whole number, also when it was written as `1e9` or `10.0`.
struct Whole(u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeVisitor).map(Self)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0")
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<u64, E> {
        Ok(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<u64, E> {
        u64::try_from(value).map_err(|_| E::custom(format_args!("is negative ({value})")))
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range checked")]
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<u64, E> {
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        if value < 0.0 {
            return Err(E::custom(format_args!("is negative ({value})")));
        }
        if !value.is_finite() || value > EXACT_MAX || float::floor(value) != value {
            return Err(E::custom(format_args!("is not a whole number ({value})")));
        }
        Ok(value as u64)
    }
}

/// As [`WholeVisitor`], but for the fraction of a rate.
struct RateVisitor;

impl Visitor<'_> for RateVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate in bytes per second")
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<u64, E> {
        WholeVisitor.visit_u64(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<u64, E> {
        WholeVisitor.visit_i64(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<u64, E> {
        WholeVisitor.visit_f64(if value >= RATE_FRACTION_MIN { float::floor(value) } else { value })
    }
}

fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Whole::deserialize(deserializer).map(|w| w.0)
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(RateVisitor)
}

fn maybe_whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Whole>::deserialize(deserializer)?.map(|w| w.0))
}

/// A map that refuses a key given twice, which JSON readers otherwise resolve silently.
pub(crate) fn unique_map<'de, D, V>(deserializer: D) -> Result<BTreeMap<String, V>, D::Error>
where
    D: Deserializer<'de>,
    V: Deserialize<'de>,
{
    struct UniqueMap<V>(PhantomData<V>);
    impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueMap<V> {
        type Value = BTreeMap<String, V>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some((key, value)) = access.next_entry::<String, V>()? {
                if map.contains_key(&key) {
                    return Err(A::Error::custom(format_args!("`{key}` is given twice")));
                }
                map.insert(key, value);
            }
            Ok(map)
        }
    }
    deserializer.deserialize_map(UniqueMap(PhantomData))
}
