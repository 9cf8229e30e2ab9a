//! What a worker's acknowledgements are made of, where only group, chunk and members differ.

use weft_wire::frame::Encap;
use weft_wire::header::{HEADER_LEN, Header, Template};
use weft_wire::{ChunkIndex, GroupId, Members};

/// Addresses and header of one worker's acknowledgements.
#[derive(Clone, Copy, Debug)]
pub(super) struct HaveTemplate {
    encap: Encap,
    header: Template,
}

impl HaveTemplate {
    pub(super) fn new(encap: &Encap, header: &Header) -> Self {
        Self { encap: encap.with_payload_len(HEADER_LEN), header: Template::of(header) }
    }

    /// Writes one into a frame's buffer.
    #[inline]
    pub(super) fn emit(
        &self,
        buffer: &mut [u8],
        group: GroupId,
        chunk: ChunkIndex,
        members: Members,
        crc32c: Option<fn(&[u8]) -> u32>,
    ) {
        let header = self.header.with_target(group, chunk, members, crc32c);
        header.emit(self.encap.payload_mut(buffer));
        self.encap.emit(buffer, HEADER_LEN);
    }
}
