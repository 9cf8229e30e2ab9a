//! What server and relays say of the model: which version there is, what its chunks are. A frame is
//! refused under the first reason that fits, before anything has changed.

use weft_control::Version;
use weft_wire::Nanos;
use weft_wire::frame::Datagram;
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Outcome};
use weft_wire::rows::ROW_MODEL;

use super::pull::model_group;
use super::{Event, Pusher};
use crate::drops::DropReason;

impl Pusher {
    pub(super) fn take_version(&mut self, now: Nanos, header: &Header) -> Result<(), DropReason> {
        let version = extend(header.chunk.0, self.newest);
        if header.outcome != Outcome::None || header.group != model_group(version) {
            return Err(DropReason::StaleGroup);
        }
        // An answer to an earlier question: a worker's models never grow older.
        if version < self.pulled {
            return Err(DropReason::StaleStep);
        }
        // Servers offer the versions that they keep. One without our last update is too old to
        // compute on, so it is asked again; but not for ever, for the server may be busy with
        // others.
        if version < self.newest && self.puller.waited_ns(now) < STALE_PATIENCE_NS {
            return Ok(());
        }
        self.newest = self.newest.max(version);
        if self.puller.take_version(now, version) {
            self.report_model();
        }
        Ok(())
    }

    pub(super) fn take_gone(&mut self, now: Nanos, header: &Header) -> Result<(), DropReason> {
        if self.puller.is_idle() || self.puller.is_asking() || self.puller.group() != header.group {
            return Err(DropReason::Unsolicited);
        }
        self.puller.restart(now, &mut self.stats);
        Ok(())
    }

    pub(super) fn take_model(
        &mut self,
        now: Nanos,
        udp: &Datagram,
        header: &Header,
        frame: &[u8],
    ) -> Result<(), DropReason> {
        if header.group.row() != ROW_MODEL {
            return Err(DropReason::UnknownGroup);
        }
        if self.puller.is_idle() || header.group != self.puller.group() {
            return Err(DropReason::Unsolicited);
        }
        if Some(header.count) != self.terms.map(|terms| terms.job.elements) {
            return Err(DropReason::ElementCount);
        }
        if header.element_type != ElementType::F32 {
            return Err(DropReason::ElementType);
        }
        let is_marked = udp.congestion() || header.flags.contains(Flags::CONGESTION);
        let elements = &frame[udp.payload_range()][HEADER_LEN..];
        let (chunk, stats) = (header.chunk.0, &mut self.stats);
        if self.puller.take_answer(now, self.kernels, chunk, elements, is_marked, stats)? {
            self.report_model();
        }
        Ok(())
    }

    fn report_model(&mut self) {
        self.stats.pulls += 1;
        let version = self.puller.version();
        self.pulled = version;
        self.report(Event::Pulled { version });
    }
}

/// How long a model with our last commit is waited for, before an older one will do.
const STALE_PATIENCE_NS: u64 = 100_000_000;

/// The version with these low 32 bits that is nearest to `near`.
pub(super) fn extend(low: u32, near: Version) -> Version {
    const SPAN: u64 = 1 << 32;
    let same = (near.0 & !(SPAN - 1)) | u64::from(low);
    let lower = same.checked_sub(SPAN).filter(|lower| near.0 - lower < same.abs_diff(near.0));
    let upper = same.checked_add(SPAN).filter(|upper| upper - near.0 < same.abs_diff(near.0));
    Version(upper.or(lower).unwrap_or(same))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_extended_to_the_nearest() {
        assert_eq!(extend(5, Version(0)), Version(5));
        assert_eq!(extend(u32::MAX, Version(0)), Version(u64::from(u32::MAX)));
        assert_eq!(extend(3, Version(0xffff_fffe)), Version(0x1_0000_0003));
        assert_eq!(extend(0xffff_fffe, Version(0x1_0000_0003)), Version(0xffff_fffe));
        assert_eq!(extend(7, Version(0x5_0000_0009)), Version(0x5_0000_0007));
        assert_eq!(extend(0, Version(u64::MAX)), Version(0xffff_ffff_0000_0000));
    }
}
