//! How many elements a chunk has: a number, or `"auto"`.

use alloc::format;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Elements of a chunk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Elements {
    /// As many whole cache lines of them as one packet of the port's MTU holds: 352 of 4 bytes at
    /// an MTU of 1500, 2224 at 9000, 16368 at 65535.
    Auto,
    /// So many.
    Count(u16),
}

impl Elements {
    /// What it means for elements of `element_len` bytes where a packet has room for
    /// `payload_len_max` bytes of them.
    #[must_use]
    pub fn resolve(self, payload_len_max: usize, element_len: usize) -> u16 {
        match self {
            Self::Count(count) => count,
            Self::Auto => {
                let elements = payload_len_max / LINE_BYTES * LINE_BYTES / element_len.max(1);
                u16::try_from(elements).unwrap_or(u16::MAX)
            }
        }
    }
}

impl From<u16> for Elements {
    fn from(count: u16) -> Self {
        Self::Count(count)
    }
}

impl Serialize for Elements {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str(AUTO),
            Self::Count(count) => serializer.serialize_u16(*count),
        }
    }
}

impl<'de> Deserialize<'de> for Elements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

/// Takes both spellings.
struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = Elements;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of elements from 1 to 65535, or \"auto\"")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Elements, E> {
        let count = u16::try_from(number).ok().filter(|count| *count > 0);
        let refused = || E::custom(format!("{number} is no number of elements from 1 to 65535"));
        count.map(Elements::Count).ok_or_else(refused)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Elements, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Elements, E> {
        if text == AUTO {
            Ok(Elements::Auto)
        } else {
            Err(E::custom(format!("expected a number of elements or \"auto\", not \"{text}\"")))
        }
    }
}

const AUTO: &str = "auto";
/// A cache line: slots lie in whole ones, and vector registers divide it.
const LINE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_takes_whole_cache_lines_of_what_a_packet_holds() {
        for (mtu, element_len, elements) in [
            (1500, 4, 352),
            (1500, 2, 704),
            (9000, 4, 2224),
            (9000, 2, 4448),
            (65_535, 4, 16_368),
            (576, 4, 128),
        ] {
            let room = mtu - 20 - 8 - 32;
            assert_eq!(Elements::Auto.resolve(room, element_len), elements, "{mtu} {element_len}");
        }
        assert_eq!(Elements::Count(7).resolve(1440, 4), 7);
    }
}
