//! The vectors that a check refuses, each made from a good one by one edit.

use weft_wire::frame::{ETHERNET_LEN, IPV4_LEN};
use weft_wire::header::{ElementType, HEADER_LEN, Kind, Outcome, Packet};

use super::Family::{Ipv4, Ipv6};
use super::{
    Vector, bare, contrib, datagram, elements_of, fix_ipv4_checksum, frame, frame_fields,
    i32_payload, member_to_box, vector, welcome,
};
use crate::crc32c::crc32c;

/// Frames that are no whole UDP datagram, made from a good one.
pub(super) fn refused_frames() -> Vec<Vector> {
    let whole =
        |family| frame(&member_to_box(family), &datagram(&contrib(), &i32_payload(), true), false);
    let tagged = |tags: &[u8]| [&whole(Ipv4)[..12], tags, &whole(Ipv4)[12..]].concat();
    let ipv4 = |edit: fn(&mut Vec<u8>)| {
        let mut frame = whole(Ipv4);
        edit(&mut frame);
        fix_ipv4_checksum(&mut frame);
        frame
    };
    let extended = |next_header: u8, extension: [u8; 8]| {
        let mut frame = whole(Ipv6);
        frame[19] += 8;
        frame[20] = next_header;
        frame.splice(54..54, extension);
        frame
    };
    let mut bad_checksum = whole(Ipv4);
    bad_checksum[ETHERNET_LEN + 10] ^= 0x40;
    let mut arp = whole(Ipv4);
    arp[12..].fill(0);
    arp[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp.truncate(60);
    let ping = ipv4(|frame| {
        frame[23] = 1;
        frame[34..38].copy_from_slice(&[8, 0, 0, 0]);
    });
    let options = ipv4(|frame| {
        frame[14] = 0x46;
        frame[17] += 4;
        frame.splice(34..34, [1; 4]);
    });
    vec![
        refused("frame-vlan", "802.1Q tag", "frame/vlan", tagged(&[0x81, 0, 0, 7])),
        refused(
            "frame-qinq",
            "802.1ad and 802.1Q tags",
            "frame/vlan",
            tagged(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8]),
        ),
        refused("frame-fragment-first", "MF", "frame/fragment", ipv4(|f| f[20] = 0x20)),
        refused(
            "frame-fragment-later",
            "fragment offset 8",
            "frame/fragment",
            ipv4(|f| f[20..22].copy_from_slice(&[0, 1])),
        ),
        refused(
            "frame-ipv6-fragment",
            "fragment header",
            "frame/fragment",
            extended(44, [17, 0, 0, 1, 0, 0, 0, 7]),
        ),
        refused(
            "frame-ipv6-hop-by-hop",
            "hop-by-hop header",
            "frame/not_udp",
            extended(0, [17, 0, 1, 4, 0, 0, 0, 0]),
        ),
        refused("frame-ip-options", "IPv4 options", "frame/ip_header", options),
        refused("frame-ip-checksum", "wrong IPv4 checksum", "frame/ip_checksum", bad_checksum),
        refused("frame-truncated", "one byte short", "frame/truncated", whole(Ipv4)[..89].to_vec()),
        refused(
            "frame-udp-length",
            "UDP length above the IP length",
            "frame/truncated",
            ipv4(|f| f[39] += 1),
        ),
        refused("frame-arp", "ARP request", "frame/not_ip", arp),
        refused("frame-ping", "ICMP echo request", "frame/not_udp", ping),
    ]
}

/// Whole datagrams that are no valid Weft.
pub(super) fn refused_headers() -> Vec<Vector> {
    let good = || datagram(&contrib(), &i32_payload(), false);
    // Sealed after the edit: the CRC is right and something else is wrong.
    let sealed = |name: &str, what: &str, verdict: &str, datagram: Vec<u8>| {
        let mut packet = Packet::new_unchecked(datagram);
        if packet.check_len().is_ok() {
            packet.seal(crc32c);
        }
        let bytes = frame(&member_to_box(Ipv4), &packet.into_inner(), false);
        let fields = Some(frame_fields(&member_to_box(Ipv4)));
        Vector { frame: fields, ..refused(name, what, verdict, bytes) }
    };
    let edited = |name: &str, what: &str, verdict: &str, byte: usize, value: u8| {
        let mut datagram = good();
        datagram[byte] = value;
        sealed(name, what, verdict, datagram)
    };
    let resized = |name: &str, what: &str, len: usize| {
        let mut datagram = good();
        datagram.resize(len, 0);
        sealed(name, what, "header/length", datagram)
    };
    let status = bare(Kind::Status, Outcome::None);
    let hello = |edit: fn(&mut Vec<u8>)| {
        let mut body = vec![0; welcome().body_len()];
        welcome().emit(&[0x80, 0x40], &mut body);
        edit(&mut body);
        datagram(&bare(Kind::Hello, Outcome::None), &body, false)
    };
    let spoilt = |name: &str, what: &str, verdict: &str, checksum: bool| {
        let mut vector = vector(name, what, Ipv4, &contrib(), &i32_payload(), !checksum);
        let last = vector.bytes.len() - 1;
        vector.bytes[last] ^= 1;
        let header = vector.header.clone();
        let elements = elements_of(ElementType::I32, &vector.bytes[last - 15..]);
        Vector { verdict: verdict.to_owned(), elements, header, ..vector }
    };
    vec![
        edited("header-version", "version 2", "header/version", 0, 0x21),
        edited("header-kind-0", "kind 0", "header/kind", 0, 0x10),
        edited("header-kind-8", "kind 8", "header/kind", 0, 0x18),
        edited("header-element-type", "element type 4", "header/kind", 16, 0x41),
        edited("header-operation", "operation 3", "header/kind", 16, 0x13),
        edited("header-exponent", "exponent -128", "header/exponent", 17, 0x80),
        resized("header-short", "31 bytes of UDP payload", HEADER_LEN - 1),
        resized("header-empty", "no UDP payload", 0),
        resized("payload-short", "four elements, one byte missing", HEADER_LEN + 15),
        resized("payload-long", "four elements, one byte more", HEADER_LEN + 17),
        sealed("status-payload", "STATUS with a payload", "header/length", {
            datagram(&status, &[0; 4], false)
        }),
        sealed("hello-short", "one byte short of the fixed part", "header/length", {
            hello(|body| body.truncate(71))
        }),
        sealed("hello-phase", "phase 11", "hello", hello(|body| body[0] = 11)),
        sealed("hello-reason", "reason 5", "hello", hello(|body| body[1] = 5)),
        sealed("hello-integrity", "integrity 3", "hello", hello(|body| body[46] = 3)),
        sealed("hello-exponent", "exponent 127", "hello", hello(|body| body[62] = 127)),
        sealed("hello-bitmap-short", "10 bits in one byte", "hello", hello(|b| b.truncate(73))),
        sealed("hello-bitmap-long", "8193 bits", "hello", {
            hello(|body| {
                body[60..62].copy_from_slice(&8193_u16.to_be_bytes());
                body.resize(72 + 1025, 0);
            })
        }),
        spoilt("crc-wrong", "last payload bit flipped under a CRC", "crc", false),
        spoilt("checksum-wrong", "last payload bit flipped, no CRC", "checksum", true),
    ]
}

fn refused(name: &str, what: &str, verdict: &str, bytes: Vec<u8>) -> Vector {
    Vector {
        file: format!("{name}.bin"),
        what: what.to_owned(),
        verdict: verdict.to_owned(),
        elements: Vec::new(),
        frame: None,
        header: None,
        hello: None,
        keys: None,
        bytes,
    }
}

const _: () = assert!(ETHERNET_LEN + IPV4_LEN == 34, "the edits above count bytes");
