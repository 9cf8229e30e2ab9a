//! What the fuzz targets do with their input. They are plain functions, so that `cargo test`
//! replays the corpus on a stable compiler; `tests/fuzz` gives them to libFuzzer.
//!
//! A target fails by panicking: no input may make the wire crate panic, and what it accepts must
//! hold together.

use weft_wire::frame::{ETHERNET_LEN, IPV6_LEN, Udp};
use weft_wire::header::{HEADER_LEN, Header, Kind, Packet};
use weft_wire::hello::{BODY_LEN, Hello};

pub use self::aggregator::aggregator_frames;
pub use self::gather::gather_frames;
pub use self::keys::{key_body, key_frames};
use crate::crc32c::crc32c;

mod aggregator;
mod gather;
mod keys;

/// What a fuzz target does with its input.
pub type Target = fn(&[u8]);

/// Every target with its name, which is also its corpus folder.
pub const TARGETS: &[(&str, Target)] = &[
    ("aggregator_frames", aggregator_frames),
    ("frame_parse", frame_parse),
    ("gather_frames", gather_frames),
    ("header_parse", header_parse),
    ("hello_parse", hello_parse),
    ("key_body", key_body),
    ("key_frames", key_frames),
];

/// An Ethernet frame from the network, down to the handshake body.
pub fn frame_parse(data: &[u8]) {
    let Ok(udp) = Udp::parse(data) else { return };
    let payload = data.get(udp.payload_range()).expect("an accepted datagram lies in the frame");
    assert!(udp.payload_start == 42 || udp.payload_start == 62);
    let _ = udp.checksum_ok(data);
    // The IP packet lies in the frame too, whatever the UDP length says.
    let length_at = if udp.source.is_ipv4() { 16 } else { 18 };
    let ip_len = usize::from(data[length_at]) << 8 | usize::from(data[length_at + 1]);
    let ip_start = if udp.source.is_ipv4() { ETHERNET_LEN } else { ETHERNET_LEN + IPV6_LEN };
    assert!(ip_start + ip_len <= data.len());
    // Padding behind the datagram says nothing.
    assert_eq!(Udp::parse(&[data, &[0xa5; 3]].concat()), Ok(udp));
    header_parse(payload);
}

/// A UDP payload.
pub fn header_parse(data: &[u8]) {
    let mut packet = Packet::new_unchecked(data.to_vec());
    let line = packet.to_string();
    assert!(line.starts_with("WEFT ") && !line.contains('\n'));
    if packet.check_len().is_err() {
        return;
    }
    let _ = packet.verify_crc(crc32c);
    assert_eq!(packet.payload().len(), data.len() - HEADER_LEN);
    if let Ok(header) = Header::parse(&packet) {
        let crc = packet.crc();
        let mut again = Packet::new_unchecked(vec![0xa5; HEADER_LEN]);
        header.emit(&mut again);
        again.set_crc(crc);
        assert_eq!(again.into_inner(), data[..HEADER_LEN]);
        if header.kind == Kind::Hello {
            hello_parse(packet.payload());
        }
    }
    packet.seal(crc32c);
    assert!(packet.verify_crc(crc32c));
}

/// The body of a HELLO datagram.
pub fn hello_parse(data: &[u8]) {
    let Ok((hello, bitmap)) = Hello::parse(data) else { return };
    let len = BODY_LEN + bitmap.len();
    let mut again = vec![0xa5; hello.body_len()];
    hello.emit(bitmap, &mut again);
    assert_eq!(again[..len], data[..len]);
    assert!(again[len..].iter().all(|padding| *padding == 0));
    assert!(hello.to_string().starts_with("phase="));
}
