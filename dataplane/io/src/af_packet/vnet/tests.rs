use std::net::SocketAddr;

use weft_wire::MacAddr;
use weft_wire::frame::{Encap, Endpoint};

use super::*;

fn headers(ipv6: bool, payload_len: usize) -> Vec<u8> {
    let end = |last: u8| {
        let addr: SocketAddr = match ipv6 {
            true => format!("[fd00::{last}]:7").parse().unwrap(),
            false => format!("10.0.0.{last}:7").parse().unwrap(),
        };
        Endpoint { mac: MacAddr([2, 0, 0, 0, 0, last]), addr }
    };
    let encap = Encap::new(end(1), end(2)).unwrap();
    let mut headers = vec![0; encap.header_len()];
    encap.emit(&mut headers, payload_len);
    run::leave_checksum(&mut headers);
    headers
}

#[test]
fn what_is_written_of_a_run_is_read_again() {
    for (ipv6, header_len) in [(false, 42), (true, 62)] {
        let vnet = VnetHeader::read(VnetHeader::of_run(header_len, 1000));
        assert!(!vnet.is_one_frame() && vnet.lacks_checksum());
        let cut = Cut::new(vnet, &headers(ipv6, 2500), header_len + 2500);
        let expected = Cut { header_len, segment_len: 1000, payload_len: 2500, has_checksum: true };
        assert_eq!(cut, Some(expected));
        assert_eq!([0, 1000, 2000].map(|taken| expected.len_at(taken)), [1000, 1000, 500]);
    }
    assert!(VnetHeader::read(VnetHeader::PLAIN).is_one_frame());
}

#[test]
fn a_header_that_lies_is_refused() {
    let good = VnetHeader::read(VnetHeader::of_run(42, 1000));
    let head = headers(false, 2500);
    let cut = |vnet: VnetHeader| Cut::new(vnet, &head, 2542);
    assert!(cut(good).is_some());
    // Of another type: TCP, UDP fragments; without a length; a checksum elsewhere.
    assert_eq!(cut(VnetHeader { gso_type: 1, ..good }), None);
    assert_eq!(cut(VnetHeader { gso_type: 3, ..good }), None);
    assert_eq!(cut(VnetHeader { segment_len: 0, ..good }), None);
    assert_eq!(cut(VnetHeader { checksum_start: 26, ..good }), None);
    assert_eq!(cut(VnetHeader { checksum_offset: 4, ..good }), None);
    // A checksum of the whole that nobody has verified says nothing of the frames.
    assert_eq!(cut(VnetHeader { flags: 0, ..good }), None);
    assert!(cut(VnetHeader { flags: IS_VERIFIED, ..good }).is_some_and(|cut| cut.has_checksum));
    let mut bare = head.clone();
    bare[40..42].fill(0);
    let bare = Cut::new(VnetHeader { flags: 0, ..good }, &bare, 2542);
    assert!(bare.is_some_and(|cut| !cut.has_checksum));
    // Lengths that are not those of the packet, and headers that are none.
    for len in [42, 2541, 2543, 0, usize::MAX] {
        assert_eq!(Cut::new(good, &head, len), None, "{len}");
    }
    for len in 0..42 {
        assert_eq!(Cut::new(good, &head[..len], 2542), None, "{len}");
    }
    assert_eq!(Cut::new(good, &headers(false, 0), 42), None, "no payload");
    // Byte by byte: the Ethernet type, version, lengths, fragments, protocol, header checksum.
    for at in [12, 13, 14, 16, 17, 20, 21, 23, 24, 38, 39] {
        let mut head = head.clone();
        head[at] ^= 1;
        assert_eq!(Cut::new(good, &head, 2542), None, "byte {at}");
    }
}
