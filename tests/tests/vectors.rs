//! The golden vectors: what is committed is what the generator makes, and our parsers read each
//! frame as the index says.

use std::collections::BTreeSet;
use std::fs;

use weft_tests::vectors::{
    self, FrameFields, HeaderFields, HelloFields, KeysFields, elements_of, verdict,
};
use weft_wire::frame::Udp;
use weft_wire::header::{Flags, Header, Kind, Outcome, Packet};
use weft_wire::hello::{Hello, Phase, Reason};
use weft_wire::keys::What;
use weft_wire::rows::is_of_keys;

#[test]
fn regenerating_changes_nothing() {
    let files = vectors::files();
    for (name, content) in &files {
        let committed = fs::read(vectors::folder().join(name)).unwrap_or_default();
        assert!(committed == *content, "{name} differs: run `make_vectors` and look at the diff");
    }
    let by_hand = ["slot.toml".to_owned()];
    let made: BTreeSet<_> = files.into_iter().map(|(name, _)| name).chain(by_hand).collect();
    let there: BTreeSet<_> = fs::read_dir(vectors::folder())
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("ASCII names"))
        .collect();
    assert_eq!(there, made, "a file that the generator does not make, or a name used twice");
}

#[test]
fn our_parsers_read_what_the_index_says() {
    for vector in vectors::load().expect("the vectors load") {
        let name = &vector.file;
        assert_eq!(verdict(&vector.bytes), vector.verdict, "{name}");
        let udp = Udp::parse(&vector.bytes).ok();
        assert_eq!(udp.as_ref().map(FrameFields::from), vector.frame, "{name}");
        let Some(udp) = udp else { continue };
        let packet = Packet::new_unchecked(&vector.bytes[udp.payload_range()]);
        let header = Header::parse(&packet).ok();
        if vector.verdict == "hello" {
            assert!(header.is_some_and(|header| header.kind == Kind::Hello), "{name}");
            continue;
        }
        let fields = header.map(|header| HeaderFields::new(&header, packet.crc()));
        assert_eq!(fields, vector.header, "{name}");
        let Some(header) = header else { continue };
        let elements = elements_of(header.element_type, packet.payload());
        assert_eq!(elements, vector.elements, "{name}");
        let hello = (header.kind == Kind::Hello).then(|| {
            let (hello, bitmap) = Hello::parse(packet.payload()).expect(name);
            HelloFields::new(&hello, bitmap)
        });
        assert_eq!(hello, vector.hello, "{name}");
        let is_about_keys = is_of_keys(header.group.row()) && header.kind != Kind::Hello;
        let keys = is_about_keys.then(|| KeysFields::new(&header, packet.payload()));
        assert_eq!(keys.flatten(), vector.keys, "{name}");
    }
}

#[test]
fn every_code_has_a_vector() {
    let vectors = vectors::load().expect("the vectors load");
    let headers = || vectors.iter().filter_map(|vector| vector.header.as_ref());
    let hellos = || vectors.iter().filter_map(|vector| vector.hello.as_ref());
    for (_, name) in Kind::ALL {
        assert!(headers().any(|header| header.kind == *name), "no vector of kind {name}");
    }
    for (_, name) in Outcome::ALL {
        assert!(headers().any(|header| header.outcome == *name), "no vector of outcome {name}");
    }
    for (_, name) in Flags::ALL {
        let has = |header: &HeaderFields| header.flags.iter().any(|flag| flag == name);
        assert!(headers().any(has), "no vector with flag {name}");
    }
    for (_, name) in Phase::ALL {
        assert!(hellos().any(|hello| hello.phase == *name), "no vector of phase {name}");
    }
    for (_, name, ..) in What::ALL {
        let mut keys = vectors.iter().filter_map(|vector| vector.keys.as_ref());
        assert!(keys.any(|keys| keys.what == *name), "no vector of {name} about keys");
    }
    for (_, name) in Reason::ALL {
        assert!(hellos().any(|hello| hello.reason == *name), "no vector of reason {name}");
    }
}
