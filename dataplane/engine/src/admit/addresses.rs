//! The addresses of a table, each with a number, found in O(1) however many there are.
//!
//! Open addressing, at most half full: what comes from the network is looked up and never added, so
//! nobody can make a search longer than the table's own addresses do (I7, I8). A controller's word
//! names them anew, in the memory that was taken at the start.

use alloc::vec;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;
use weft_wire::frame::UdpAddr;

/// Addresses, or keys that begin with one, numbered in the order in which they were first named.
#[derive(Debug)]
pub(crate) struct Addresses<K = UdpAddr> {
    all: Vec<K>,
    /// Numbers, at the place of the key's hash or behind it; the length is a power of two.
    places: Vec<Option<u32>>,
}

impl<K: Copy + Eq + Hash> Addresses<K> {
    /// Takes the memory of so many.
    pub(crate) fn new(len_max: usize) -> Self {
        let places = vec![None; (2 * len_max).next_power_of_two()];
        Self { all: Vec::with_capacity(places.len() / 2), places }
    }

    /// Names all of them anew. Those that find no room are left out.
    pub(crate) fn renew(&mut self, keys: impl Iterator<Item = K>) {
        self.all.clear();
        self.places.fill(None);
        for key in keys {
            let place = self.place(key);
            if self.places[place].is_none() && self.all.len() < self.len_max() {
                self.places[place] = u32::try_from(self.all.len()).ok();
                self.all.push(key);
            }
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many there may be.
    pub(crate) fn len_max(&self) -> usize {
        self.places.len() / 2
    }

    /// The number of one.
    pub(crate) fn find(&self, key: K) -> Option<usize> {
        self.places[self.place(key)].map(|number| number as usize)
    }

    /// All of them, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = K> + '_ {
        self.all.iter().copied()
    }

    /// Where it is, or would be.
    fn place(&self, key: K) -> usize {
        let mut hasher = SipHasher13::new();
        key.hash(&mut hasher);
        let last = self.places.len() - 1;
        #[expect(clippy::cast_possible_truncation, reason = "any bits of the hash will do")]
        let mut place = hasher.finish() as usize & last;
        while let Some(number) = self.places[place]
            && self.all[number as usize] != key
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
            let mut addresses = Addresses::new(count as usize);
            addresses.renew((7..9).map(addr));
            addresses.renew(twice);
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
