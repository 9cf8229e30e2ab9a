//! The addresses of a table, each with a number, found in O(1) however many there are.
//!
//! Open addressing, at most half full, and fixed when it is made: what comes from the network is
//! looked up and never added, so nobody can make a search longer than the table's own addresses do
//! (I7, I8).

use alloc::vec;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;
use weft_wire::frame::UdpAddr;

/// Addresses, numbered in the order in which they were first named.
#[derive(Debug)]
pub(crate) struct Addresses {
    all: Vec<UdpAddr>,
    /// Numbers, at the place of the address's hash or behind it; the length is a power of two.
    places: Vec<Option<u32>>,
}

impl Addresses {
    pub(crate) fn new(addresses: impl Iterator<Item = UdpAddr>) -> Self {
        let named: Vec<UdpAddr> = addresses.collect();
        let places = vec![None; (2 * named.len()).next_power_of_two()];
        let mut addresses = Self { all: Vec::new(), places };
        for address in named {
            let place = addresses.place(address);
            if addresses.places[place].is_none() {
                addresses.places[place] = u32::try_from(addresses.all.len()).ok();
                addresses.all.push(address);
            }
        }
        addresses
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The address's number.
    pub(crate) fn find(&self, address: UdpAddr) -> Option<usize> {
        self.places[self.place(address)].map(|number| number as usize)
    }

    /// Every address, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = UdpAddr> + '_ {
        self.all.iter().copied()
    }

    /// Where the address is, or would be.
    fn place(&self, address: UdpAddr) -> usize {
        let mut hasher = SipHasher13::new();
        address.hash(&mut hasher);
        let last = self.places.len() - 1;
        #[expect(clippy::cast_possible_truncation, reason = "any bits of the hash will do")]
        let mut place = hasher.finish() as usize & last;
        while let Some(number) = self.places[place]
            && self.all[number as usize] != address
        {
            place = (place + 1) & last;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;

    fn addr(number: u32) -> UdpAddr {
        let [a, b, c, d] = number.to_be_bytes();
        SocketAddr::from(([10, a, b, c], 7000 + u16::from(d))).into()
    }

    #[test]
    fn each_address_has_its_number_and_others_have_none() {
        for count in [0, 1, 2, 3, 64, 5000] {
            let twice = (0..count).chain(0..count).map(addr);
            let addresses = Addresses::new(twice);
            assert_eq!(addresses.len(), count as usize);
            assert!(addresses.iter().eq((0..count).map(addr)));
            for number in 0..count {
                assert_eq!(addresses.find(addr(number)), Some(number as usize));
            }
            for number in count..count + 1000 {
                assert_eq!(addresses.find(addr(number)), None);
            }
        }
    }
}
