//! Where the answers to all members of a row go as one datagram (SPEC#answers-by-multicast).
//!
//! A box has one multicast address to begin with, and row `r` the one that is `r` above it, so that
//! a host takes only what is for its own rows.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::types::MacAddr;

/// The flag of an IPv6 address that nobody has assigned.
const TRANSIENT: u16 = 0x0010;
/// Rows that a box may have: each needs an address.
const ROWS: u16 = 1024;

/// The multicast address of `row`, where the box's addresses begin with `base`. `None`: that is
/// none, or not all 1024 rows would have one. Addresses that belong to others are none: IPv4's
/// 224.0.0.0/24, which switches always flood, and 232.0.0.0/8, which is asked for by its source
/// (RFC 5771), and IPv6's that are not transient (RFC 4291, 2.7).
#[must_use]
pub fn group_of(base: IpAddr, row: u16) -> Option<IpAddr> {
    let above = |rows: u16| -> Option<IpAddr> {
        match base {
            IpAddr::V4(ip) => Ipv4Addr::to_bits(ip)
                .checked_add(rows.into())
                .map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits))),
            IpAddr::V6(ip) => Ipv6Addr::to_bits(ip)
                .checked_add(rows.into())
                .map(|bits| IpAddr::from(Ipv6Addr::from_bits(bits))),
        }
    };
    let is_group = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => {
            let octets = ip.octets();
            ip.is_multicast() && octets[..3] != [224, 0, 0] && octets[0] != 232
        }
        IpAddr::V6(ip) => ip.is_multicast() && ip.segments()[0] & TRANSIENT != 0,
    };
    above(0).filter(is_group)?;
    above(ROWS - 1).filter(is_group)?;
    above(row).filter(|_| row < ROWS)
}

/// Where a box's multicast addresses begin in the memory that it shares with the workers of its
/// host, unless its configuration says otherwise: of this family, and of a scope that no router
/// forwards (RFC 2365, RFC 7346).
#[must_use]
pub fn memory_base(family: IpAddr) -> IpAddr {
    match family {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(239, 255, 87, 0)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0xff11, 0, 0, 0, 0, 0, 0x5745, 0)),
    }
}

/// The Ethernet address of a multicast address: 01:00:5e and the low 23 bits (RFC 1112, 6.4), or
/// 33:33 and the low 32 bits (RFC 2464, 7).
#[must_use]
pub fn mac_of(group: IpAddr) -> MacAddr {
    match group {
        IpAddr::V4(ip) => {
            let [_, b, c, d] = ip.octets();
            MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(ip) => {
            let [.., a, b, c, d] = ip.octets();
            MacAddr([0x33, 0x33, a, b, c, d])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_row_has_an_address_of_its_own() {
        assert_eq!(group_of(ip("239.87.69.0"), 0), Some(ip("239.87.69.0")));
        assert_eq!(group_of(ip("239.87.69.0"), 300), Some(ip("239.87.70.44")));
        assert_eq!(group_of(ip("ff12::5745:0"), 1023), Some(ip("ff12::5745:3ff")));
    }

    #[test]
    fn addresses_that_are_no_groups_are_none() {
        for base in [
            "10.0.0.1",
            "224.0.0.0",
            "224.0.0.255",
            "231.255.255.0",
            "232.1.1.1",
            "ff02::1",
            "ff05::1",
            "239.255.255.0",
            "255.255.255.255",
            "fe80::1",
            "::",
        ] {
            assert_eq!(group_of(ip(base), 0), None, "{base}");
        }
        assert_eq!(group_of(ip("239.87.69.0"), 1024), None);
    }

    #[test]
    fn memory_has_addresses_for_all_rows() {
        for family in ["10.0.0.1", "fd00::1"] {
            let base = memory_base(ip(family));
            assert_eq!(base.is_ipv4(), ip(family).is_ipv4());
            assert!(group_of(base, 0).is_some() && group_of(base, 1023).is_some(), "{base}");
        }
    }

    #[test]
    fn ethernet_takes_the_low_bits() {
        assert_eq!(mac_of(ip("239.215.69.1")), MacAddr([0x01, 0x00, 0x5e, 0x57, 0x45, 1]));
        assert_eq!(mac_of(ip("ff12::5745:3ff")), MacAddr([0x33, 0x33, 0x57, 0x45, 3, 0xff]));
    }
}
