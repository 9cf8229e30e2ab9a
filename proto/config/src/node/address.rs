//! Values that a configuration writes as text: addresses.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use weft_wire::frame::is_host;

/// An IP address with the length of its network's prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HostAddr {
    /// The address.
    pub ip: IpAddr,
    /// Leading bits that the hosts of the network share.
    pub prefix_len: u8,
}

impl fmt::Display for HostAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix_len)
    }
}

/// In a network of the usual size.
impl From<IpAddr> for HostAddr {
    fn from(ip: IpAddr) -> Self {
        Self { ip, prefix_len: if ip.is_ipv4() { 24 } else { 64 } }
    }
}

impl FromStr for HostAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("expected an address such as 10.0.0.1/24, not `{text}`");
        let (ip, prefix) = match text.split_once('/') {
            Some((ip, prefix)) => (ip, Some(prefix)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| refused())?;
        let prefix_len = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| refused())?,
            None => Self::from(ip).prefix_len,
        };
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        if prefix_len > longest {
            return Err(format!("a prefix of `{text}` has at most {longest} bits"));
        }
        if !is_host(ip) {
            return Err(format!("`{text}` is no address of one host"));
        }
        Ok(Self { ip, prefix_len })
    }
}

impl Serialize for HostAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostAddr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// `#[serde(with)]` for optional values with `FromStr` and `Display`.
pub(super) mod optional {
    use super::*;

    pub(in crate::node) fn serialize<T: fmt::Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub(in crate::node) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: fmt::Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}
