//! Which frame is what, and from whom: the checks of SPEC#keys, in their order.

use weft_wire::frame::UdpAddr;
use weft_wire::header::{Header, Kind, Outcome};
use weft_wire::keys::{Access, Frame, Number, Parts, What, values};
use weft_wire::{Epoch, Nanos};

use super::owner::Asked;
use super::state::{Core, Flight};
use super::{Presence, Process, Sink};
use crate::drops::DropReason;
use crate::role::keys::check;
use crate::role::keys::frames::To;
use crate::role::keys::pool::NONE;
use crate::role::keys::store::{Slot, Store};

impl<S: Store> Process<S> {
    pub(super) fn take(
        &mut self,
        now: Nanos,
        source: UdpAddr,
        datagram: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let header = check::parse(&self.core.table, datagram)?;
        let sender = self.core.sender(source)?;
        check::check_crc(datagram)?;
        if header.kind == Kind::Hello {
            return match sender {
                To::Home => self.take_hello(now, &header, datagram, sink),
                To::Process(_) => Err(DropReason::WrongSource),
            };
        }
        if self.core.is_unknown(sender, &header) {
            self.core.join_again(now);
            return Ok(());
        }
        self.core.check_terms(&header)?;
        let frame = check::body(&self.core.table, &header, datagram)?;
        let about = self.core.check_parties(sender, &header, &frame)?;
        let result = self.take_frame(now, sender, about, &frame, sink);
        if let Some(at) = self.core.answered.take() {
            self.core.rtt.sample(now.since(at));
        }
        result
    }

    fn take_frame(
        &mut self,
        now: Nanos,
        sender: To,
        about: u8,
        frame: &Frame<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let Self { store, core } = self;
        let head = frame.head;
        let asked = Asked { from: about, number: head.number, low: head.low, hops: head.hops };
        let mut is_ours = true;
        match frame.what {
            What::Access => {
                core.learn_low(about, head.low);
                for access in frame.accesses() {
                    let Some(index) = core.table.index(access.key) else { continue };
                    store.with(index, |mut slot| {
                        core.take_access(&mut slot, index, &asked, &access, sink);
                    });
                }
            }
            What::Localize => {
                core.learn_low(about, head.low);
                for key in frame.keys() {
                    let Some(index) = core.table.index(key) else { continue };
                    store.with(index, |mut slot| {
                        core.take_localize(&mut slot, index, &asked, sink);
                    });
                }
            }
            What::Answer => {
                is_ours = false;
                for answer in frame.accesses() {
                    let Some(index) = core.table.index(answer.key) else { continue };
                    is_ours |= store.with(index, |mut slot| {
                        core.take_answer(&mut slot, index, (sender, head.number), &answer, sink)
                    });
                }
            }
            What::Row => {
                let To::Process(giver) = sender else { return Err(DropReason::WrongSource) };
                for (process, floor) in frame.floors() {
                    let process = u8::try_from(process).unwrap_or(0);
                    core.learn_low(process, floor.0);
                }
                for row in frame.rows() {
                    let Some(index) = core.table.index(row.key) else { continue };
                    store.with(index, |mut slot| {
                        core.take_row(&mut slot, index, giver, head.number, &row, sink);
                    });
                }
            }
            What::Stale => {
                let mut count = 0;
                for key in frame.keys() {
                    let Some(index) = core.table.index(key) else { continue };
                    count += u64::from(core.take_stale(index, head.number));
                }
                core.stats.stale += count;
                is_ours = count > 0;
            }
            What::Wait => core.stats.waits += u64::from(head.entries),
            _ => return self.take_word_of_box(now, frame, sink),
        }
        if is_ours { Ok(()) } else { Err(DropReason::Unsolicited) }
    }

    /// What the box alone may say.
    fn take_word_of_box(
        &mut self,
        now: Nanos,
        frame: &Frame<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), DropReason> {
        let Self { store, core } = self;
        let mut count = 0;
        for claim in frame.claims() {
            let Some(index) = core.table.index(claim.key) else { continue };
            count += u32::from(match frame.what {
                What::RowAck => core.take_row_ack(index, claim.epoch),
                What::Void => core.forget_kept(index, claim.epoch).is_some(),
                What::TakeBack => store
                    .with(index, |mut slot| core.take_back(&mut slot, index, claim.epoch, sink)),
                What::Restore => store.with(index, |slot| core.take_loss(&slot, index, sink)),
                _ => false,
            });
        }
        if frame.what == What::Claim {
            let first = core.table.index(frame.head.low).ok_or(DropReason::ChunkOutOfRange)?;
            core.take_claim_answer(now, first, frame.head.peer == 1);
            count += 1;
        }
        if count > 0 { Ok(()) } else { Err(DropReason::Unsolicited) }
    }
}

impl Core {
    fn sender(&self, source: UdpAddr) -> Result<To, DropReason> {
        if source == self.home {
            return Ok(To::Home);
        }
        let place = self.processes.iter().position(|addr| *addr == source);
        let process = place.and_then(|place| u8::try_from(place).ok());
        process.map(To::Process).ok_or(DropReason::WrongSource)
    }

    /// True for the box's word that it does not know this process, in this life: it shows a cookie
    /// that only the box has from it.
    fn is_unknown(&self, sender: To, header: &Header) -> bool {
        sender == To::Home
            && header.kind == Kind::State
            && header.outcome == Outcome::Stale
            && self.life > 0
            && header.cookie == self.cookie_up
    }

    fn check_terms(&self, header: &Header) -> Result<(), DropReason> {
        let epoch = Epoch(self.life.into());
        let is_of_life = header.group.generation() == self.life && header.cookie.is_of(epoch);
        if self.presence() != Presence::Present || !is_of_life {
            return Err(DropReason::StaleEpoch);
        }
        if header.cookie == self.cookie_down { Ok(()) } else { Err(DropReason::BadCookie) }
    }

    /// Checks who speaks to whom, and returns whom the header names.
    fn check_parties(
        &self,
        sender: To,
        header: &Header,
        frame: &Frame<'_>,
    ) -> Result<u8, DropReason> {
        let about = header.members.single().ok_or(DropReason::BadMembers)?.number();
        let lives = |process: u8| process < self.table.processes && self.is_living(process);
        let is_fenced = matches!(sender, To::Process(process) if !lives(process));
        if is_fenced || !lives(about) {
            return Err(DropReason::BadMembers);
        }
        let (may_say, is_for_me) = match frame.what {
            What::Access | What::Localize => (true, true),
            What::Answer => (sender != To::Home, about == self.me),
            What::Wait => (true, about == self.me),
            What::Stale => (sender != To::Home, about == self.me),
            What::Row => (sender == To::Process(about), frame.head.peer == self.me),
            What::RowAck => (sender == To::Home, frame.head.peer == self.me),
            What::Claim | What::Void | What::TakeBack | What::Restore => {
                (sender == To::Home, about == self.me)
            }
            What::Beat => return Err(DropReason::Kind),
        };
        match (may_say, is_for_me) {
            (false, _) => Err(DropReason::WrongSource),
            (_, false) => Err(DropReason::BadMembers),
            _ => Ok(about),
        }
    }

    /// Takes the answer to the access in flight; false when it is none.
    fn take_answer(
        &mut self,
        slot: &mut Slot<'_>,
        index: u32,
        (sender, number): (To, Number),
        answer: &Access<'_>,
        sink: &mut impl Sink,
    ) -> bool {
        let active = self.place(index).active;
        let flight = (active != NONE).then(|| self.flight_of(active, number)).flatten();
        let Some(&Flight { parts, clock, left, .. }) = flight else { return false };
        if parts.contains(Parts::PULL) != answer.value.is_some() {
            return false;
        }
        self.note_answer(left);
        if let To::Process(owner) = sender {
            self.learn_owner(index, owner);
        }
        let mut value = core::mem::take(&mut self.scratch);
        if let Some(octets) = answer.value {
            value.iter_mut().zip(values(octets)).for_each(|(to, from)| *to = from);
        }
        self.complete((active, self.table.lane(number)), answer.value.map(|_| &value[..]), sink);
        if answer.value.is_some() && self.has_copies(index) {
            self.renew_copy(slot, active, clock, &value, sink);
        }
        self.scratch = value;
        self.launch(active);
        self.retire(active);
        true
    }
}
