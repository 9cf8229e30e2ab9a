//! Where the fields of the header lie.

pub(super) mod field {
    use core::ops::Range;

    pub(in crate::header) const VERSION_KIND: usize = 0;
    pub(in crate::header) const FLAGS: usize = 1;
    pub(in crate::header) const JOB: Range<usize> = 2..4;
    pub(in crate::header) const COOKIE: Range<usize> = 4..8;
    pub(in crate::header) const GROUP: Range<usize> = 8..12;
    pub(in crate::header) const CHUNK: Range<usize> = 12..16;
    pub(in crate::header) const ELEMENT: usize = 16;
    pub(in crate::header) const EXPONENT: usize = 17;
    pub(in crate::header) const COUNT: Range<usize> = 18..20;
    pub(in crate::header) const CRC: Range<usize> = 20..24;
    pub(in crate::header) const MEMBERS: Range<usize> = 24..32;
}

/// Every field of the header as (name, first byte, bit within the byte from the top, bits). SPEC,
/// the dissector and this table are held against each other by a test.
pub const LAYOUT: &[(&str, usize, usize, usize)] = &[
    ("version", field::VERSION_KIND, 0, 4),
    ("kind", field::VERSION_KIND, 4, 4),
    ("flags", field::FLAGS, 0, 5),
    ("outcome", field::FLAGS, 5, 3),
    ("job", field::JOB.start, 0, 16),
    ("cookie", field::COOKIE.start, 0, 32),
    ("group", field::GROUP.start, 0, 32),
    ("chunk", field::CHUNK.start, 0, 32),
    ("element_type", field::ELEMENT, 0, 4),
    ("operation", field::ELEMENT, 4, 4),
    ("exponent", field::EXPONENT, 0, 8),
    ("count", field::COUNT.start, 0, 16),
    ("crc", field::CRC.start, 0, 32),
    ("members", field::MEMBERS.start, 0, 64),
];
