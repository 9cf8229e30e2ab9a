//! The label of a job's frames, which is the DSCP of their IP header (SPEC#labels-and-bands): by it
//! hosts and switches tell jobs apart, for all of Weft's frames go to few UDP ports.
//!
//! Invariant: nothing but the DSCP changes, and IPv4's header checksum is as right as it was; the
//! bits of ECN stay.

use super::{
    ETHERNET_LEN, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_LEN, IPV6_LEN, PROTOCOL_UDP, UDP_LEN,
};
use crate::header::HEADER_LEN;
use crate::types::JobId;

/// The DSCP and ECN of an IP frame; none of another one.
#[must_use]
pub fn traffic_class(frame: &[u8]) -> Option<u8> {
    let ip = frame.get(ETHERNET_LEN..)?;
    match ethertype(frame)? {
        ETHERTYPE_IPV4 => ip.get(1).copied(),
        ETHERTYPE_IPV6 => Some(ip.first()? << 4 | ip.get(1)? >> 4),
        _ => None,
    }
}

/// Gives an IP frame this DSCP and ECN; another one is left as it is.
pub fn set_traffic_class(frame: &mut [u8], class: u8) {
    let Some(ethertype) = ethertype(frame) else { return };
    let ip = &mut frame[ETHERNET_LEN..];
    match ethertype {
        ETHERTYPE_IPV4 if ip.len() >= IPV4_LEN => {
            // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
            let before = u16::from_be_bytes([ip[0], ip[1]]);
            ip[1] = class;
            let after = u16::from_be_bytes([ip[0], ip[1]]);
            let checksum = u16::from_be_bytes([ip[10], ip[11]]);
            let checksum = !add(add(!checksum, !before), after);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        ETHERTYPE_IPV6 if ip.len() >= IPV6_LEN => {
            ip[0] = ip[0] & 0xf0 | class >> 4;
            ip[1] = ip[1] & 0x0f | class << 4;
        }
        _ => {}
    }
}

/// Gives an IP frame this DSCP, of which the lower 6 bits count; ECN stays.
pub fn set_dscp(frame: &mut [u8], dscp: u8) {
    let Some(class) = traffic_class(frame) else { return };
    let labelled = dscp << 2 | class & 0b11;
    if labelled != class {
        set_traffic_class(frame, labelled);
    }
}

/// The job of a frame that Weft itself made; none of what the host side of a port sends.
#[must_use]
pub fn job_of(frame: &[u8]) -> Option<JobId> {
    let (protocol, header_len) = match ethertype(frame)? {
        ETHERTYPE_IPV4 => (frame.get(ETHERNET_LEN + 9), IPV4_LEN),
        ETHERTYPE_IPV6 => (frame.get(ETHERNET_LEN + 6), IPV6_LEN),
        _ => return None,
    };
    let at = ETHERNET_LEN + header_len + UDP_LEN + JOB_AT;
    let job = frame.get(at..at + 2)?;
    (protocol == Some(&PROTOCOL_UDP)).then(|| JobId(u16::from_be_bytes([job[0], job[1]])))
}

/// Whether an IP frame is so short that it carries no element: it asks, answers or acknowledges.
/// Hosts that give jobs bands tell such frames by the same length.
#[must_use]
pub fn is_bare(frame: &[u8]) -> bool {
    ip_len(frame).is_some_and(|len| len < BARE_LEN)
}

/// Whether an IP frame is longer than a small access to a row: rows in bulk, calls of many keys.
#[must_use]
pub fn is_bulk(frame: &[u8]) -> bool {
    ip_len(frame).is_some_and(|len| len > SMALL_LEN)
}

/// The length in the header of an IP frame.
fn ip_len(frame: &[u8]) -> Option<u16> {
    let len_at = match ethertype(frame)? {
        ETHERTYPE_IPV4 => ETHERNET_LEN + BARE_AT_IPV4,
        ETHERTYPE_IPV6 => ETHERNET_LEN + BARE_AT_IPV6,
        _ => return None,
    };
    let len = frame.get(len_at..len_at + 2)?;
    Some(u16::from_be_bytes([len[0], len[1]]))
}

fn ethertype(frame: &[u8]) -> Option<u16> {
    let bytes = frame.get(ETHERNET_LEN - 2..ETHERNET_LEN)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Ones-complement addition.
const fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u16
}

/// A power of two: the length in the IP header of a frame without elements is below, that of one
/// with elements is not. IPv4 counts its own header, IPv6 does not.
pub const BARE_LEN: u16 = 64;
/// The length in the IP header of a frame of a table that is small, at most: what every host on the
/// Internet takes (RFC 791). A row of 100 elements is, with what belongs to it.
pub const SMALL_LEN: u16 = 576;
/// Where IPv4 has that length, from the start of its header.
pub const BARE_AT_IPV4: usize = 2;
/// Where IPv6 has it.
pub const BARE_AT_IPV6: usize = 4;
const _: () = assert!(IPV4_LEN + UDP_LEN + HEADER_LEN < BARE_LEN as usize);
const _: () = assert!(UDP_LEN + HEADER_LEN < BARE_LEN as usize);
/// Where Weft's header has the job.
const JOB_AT: usize = 2;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::super::{Datagram, Encap, Endpoint, Udp};
    use super::*;
    use crate::types::MacAddr;

    fn frames() -> [Vec<u8>; 2] {
        [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")].map(|(from, to)| {
            let end = |addr: &str| Endpoint { mac: MacAddr([2; 6]), addr: addr.parse().unwrap() };
            let encap = Encap::new(end(from), end(to)).unwrap();
            let mut frame = std::vec![0; 200];
            frame[encap.header_len() + JOB_AT..][..2].copy_from_slice(&[1, 44]);
            let len = encap.emit(&mut frame, 64);
            frame.truncate(len);
            encap.finish(&mut frame);
            frame
        })
    }

    #[test]
    fn a_label_changes_the_dscp_and_nothing_else() {
        for mut frame in frames() {
            let plain = frame.clone();
            assert_eq!((traffic_class(&frame), job_of(&frame)), (Some(0b10), Some(JobId(300))));
            for dscp in 0..64 {
                set_dscp(&mut frame, dscp);
                assert_eq!(traffic_class(&frame), Some(dscp << 2 | 0b10));
                let udp = Udp::parse(&frame).expect("its IPv4 checksum is right");
                assert!(udp.checksum_ok(&frame));
                let ip = ETHERNET_LEN + 12;
                assert_eq!(frame[ip..], plain[ip..], "beyond class and checksum");
            }
            set_dscp(&mut frame, 0);
            assert_eq!(frame, plain);
        }
    }

    #[test]
    fn a_frame_without_elements_is_told_by_its_length() {
        let frame = |elements: usize, (from, to): (&str, &str)| {
            let end = |addr: &str| Endpoint { mac: MacAddr([2; 6]), addr: addr.parse().unwrap() };
            let encap = Encap::new(end(from), end(to)).unwrap();
            let mut frame = std::vec![0; 700];
            let len = encap.emit(&mut frame, HEADER_LEN + 4 * elements);
            frame.truncate(len);
            frame
        };
        for ends in [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
            assert!(is_bare(&frame(0, ends)));
            assert!(!is_bare(&frame(6, ends)));
        }
        assert!(!is_bare(&[]) && !is_bare(&[0; 60]));
        // IPv4 counts its own header: 576 - 20 - 8 - 32 bytes are 129 elements; IPv6 does not.
        for (ends, most) in
            [(("10.0.0.1:1", "10.0.0.2:2"), 129), (("[fd00::1]:1", "[fd00::2]:2"), 134)]
        {
            assert!(!is_bulk(&frame(0, ends)) && !is_bulk(&frame(most, ends)));
            assert!(is_bulk(&frame(most + 1, ends)));
        }
        assert!(!is_bulk(&[]) && !is_bulk(&[0xff; 60]));
    }

    #[test]
    fn a_congestion_mark_stays() {
        for mut frame in frames() {
            set_traffic_class(&mut frame, 0b11);
            set_dscp(&mut frame, 63);
            assert_eq!(traffic_class(&frame), Some(0xff));
            assert!(Datagram::find(&frame).unwrap().congestion());
        }
    }

    #[test]
    fn what_is_no_frame_of_wefts_is_left_alone() {
        let [ipv4, ipv6] = frames();
        let mut arp = ipv4.clone();
        arp[13] = 6;
        let mut ping = ipv4.clone();
        ping[ETHERNET_LEN + 9] = 1;
        for frame in [&arp, &ping, &Vec::from(&ipv4[..40]), &Vec::from(&ipv6[..20]), &Vec::new()] {
            assert_eq!(job_of(frame), None);
        }
        for len in 0..60 {
            for whole in [&ipv4, &ipv6, &arp] {
                let mut cut = Vec::from(&whole[..len]);
                set_dscp(&mut cut, 9);
                let unchanged = cut == whole[..len];
                assert!(unchanged || len >= ETHERNET_LEN + IPV4_LEN, "{len} bytes");
            }
        }
    }
}
