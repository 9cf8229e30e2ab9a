//! Which datagrams about keys are read at all: the checks of SPEC#keys that both ends make.
//!
//! Invariant: what passes names keys of the table and processes of the job alone, and its entries
//! are whole. Whose it is, each end checks itself.

use weft_wire::header::{CRC_AT, ElementType, HEADER_LEN, Header, HeaderError, Operation, Packet};
use weft_wire::keys::{At, Claim, Frame, Head, KeysError, What};

use super::config::TableConfig;
use crate::drops::DropReason;

/// Checks that a datagram is about this table, and whole; returns its header.
pub(super) fn parse(table: &TableConfig, datagram: &[u8]) -> Result<Header, DropReason> {
    let packet = Packet::new_checked(datagram).map_err(|_| DropReason::Length)?;
    let header = Header::parse(&packet).map_err(|error| match error {
        HeaderError::Length => DropReason::Length,
        HeaderError::Version => DropReason::Version,
        HeaderError::Kind => DropReason::Kind,
        HeaderError::Exponent => DropReason::Exponent,
    })?;
    if header.job != table.job {
        return Err(DropReason::UnknownJob);
    }
    if header.group.row() != table.row() {
        return Err(DropReason::UnknownGroup);
    }
    Ok(header)
}

/// Checks that a datagram is as it was sent.
pub(super) fn check_crc(datagram: &[u8]) -> Result<(), DropReason> {
    let computed = weft_kernel::crc32c_blank::<CRC_AT>(datagram);
    let is_intact = Packet::new_unchecked(datagram).has_crc(computed);
    if is_intact { Ok(()) } else { Err(DropReason::Integrity) }
}

/// Reads the body of a datagram about keys, and checks what any receiver can.
pub(super) fn body<'a>(
    table: &TableConfig,
    header: &Header,
    datagram: &'a [u8],
) -> Result<Frame<'a>, DropReason> {
    if header.element_type != ElementType::I32 {
        return Err(DropReason::ElementType);
    }
    if header.operation != Operation::None {
        return Err(DropReason::Operation);
    }
    let octets = datagram.get(HEADER_LEN..).unwrap_or_default();
    let row_len = Head::parse(octets).ok_or(DropReason::Length)?.row_len;
    if row_len != table.row_len {
        return Err(DropReason::ElementCount);
    }
    let frame = Frame::parse(header, octets).map_err(|error| match error {
        KeysError::What => DropReason::Kind,
        KeysError::Length => DropReason::Length,
        KeysError::Parts => DropReason::Operation,
    })?;
    check_entries(table, &frame)?;
    Ok(frame)
}

/// Checks that each key is one of the table's, and each process one of the job's.
fn check_entries(table: &TableConfig, frame: &Frame<'_>) -> Result<(), DropReason> {
    let is_key = |key: u64| table.index(key).is_some();
    let is_process = |process: u32| process < u32::from(table.processes);
    let (keys_are, processes_are) = match frame.what {
        What::Access | What::Answer => (frame.accesses().all(|entry| is_key(entry.key)), true),
        What::Localize | What::Wait | What::Stale => (frame.keys().all(is_key), true),
        What::Row => {
            let mut rows = frame.rows();
            let lasts = rows.all(|row| row.lasts().all(|(process, _)| is_process(process)));
            (
                frame.rows().all(|row| is_key(row.key)),
                lasts && frame.floors().all(|(process, _)| is_process(process)),
            )
        }
        What::RowAck | What::Claim | What::Void | What::TakeBack | What::Restore => {
            let is_place = |claim: Claim| match claim.at {
                At::Process(process) => is_process(process),
                At::Here | At::This => true,
            };
            (frame.claims().all(|claim| is_key(claim.key)), frame.claims().all(is_place))
        }
        What::Beat => (true, true),
    };
    let names_peer = matches!(frame.what, What::Row | What::RowAck);
    if !keys_are {
        return Err(DropReason::ChunkOutOfRange);
    }
    if !processes_are || names_peer && !is_process(frame.head.peer.into()) {
        return Err(DropReason::BadMembers);
    }
    let says_nothing = match frame.what {
        What::Stale | What::Claim | What::Beat => false,
        // An acknowledgement is of rows that have come, whatever it says besides.
        What::RowAck => !frame.claims().any(|claim| claim.at == At::This),
        _ => frame.head.entries == 0,
    };
    if says_nothing {
        return Err(DropReason::Length);
    }
    Ok(())
}
