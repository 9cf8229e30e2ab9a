//! Where the box sends frames on to, and what follows from claims.

use arrayvec::ArrayVec;
use weft_wire::Members;
use weft_wire::header::{Flags, Header};
use weft_wire::keys::{At, Claim, Frame, Number, RowEpoch, What};

use super::Home;
use super::directory::{Finding, Told};
use crate::drops::DropReason;
use crate::role::keys::config::{BLOCK_LEN, HOPS_MAX, KEPT_PER_KEY_MAX};
use crate::role::keys::frames::{Kinship, Outbox, To};

/// What one process says of one key.
#[derive(Default)]
struct ClaimOfKey {
    told: Told,
    /// Copies that it keeps for the dead.
    lost: ArrayVec<RowEpoch, KEPT_PER_KEY_MAX>,
}

impl ClaimOfKey {
    /// Takes in an entry about this key.
    fn take(&mut self, claim: &Claim, living: Members) {
        match claim.at {
            At::This => {}
            At::Here => self.told.held = claim.epoch,
            At::Process(to) if living.contains(Members(1 << (to % 64))) => {
                self.told.is_giving = true;
            }
            At::Process(_) => {
                self.told.lost = claim.epoch.max(self.told.lost);
                let _full = self.lost.try_push(claim.epoch);
            }
        }
    }
}

impl Home {
    /// Takes a frame about or from a living process.
    pub(super) fn take_frame(
        &mut self,
        from: u8,
        header: &Header,
        frame: &Frame<'_>,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let is_repeat = header.flags.contains(Flags::RETRANSMIT);
        match frame.what {
            What::Access => self.send_accesses_on(from, is_repeat, frame, out),
            What::Localize => self.send_localizes_on(from, is_repeat, frame, out),
            What::RowAck => self.take_row_acks(from, frame, out),
            What::Claim => self.take_claim(from, frame, out)?,
            What::Beat => {}
            _ => return Err(DropReason::Kind),
        }
        Ok(())
    }

    fn send_accesses_on(
        &mut self,
        from: u8,
        is_repeat: bool,
        frame: &Frame<'_>,
        out: &mut impl Outbox,
    ) {
        for access in frame.accesses() {
            let Some(index) = self.table.index(access.key) else { continue };
            match self.directory.route(index, is_repeat) {
                Some(to) if frame.head.hops < HOPS_MAX => {
                    self.stats.accesses += 1;
                    let kinship = sent_on(from, frame);
                    self.frames.put_octets(To::Process(to), kinship, access.octets, out);
                }
                _ => self.tell_to_wait(from, frame.head.number, access.key, out),
            }
        }
    }

    fn send_localizes_on(
        &mut self,
        from: u8,
        is_repeat: bool,
        frame: &Frame<'_>,
        out: &mut impl Outbox,
    ) {
        for key in frame.keys() {
            let Some(index) = self.table.index(key) else { continue };
            if frame.head.hops >= HOPS_MAX {
                self.tell_to_wait(from, frame.head.number, key, out);
                continue;
            }
            match self.directory.route_localize(index, is_repeat, from) {
                Some(to) => {
                    self.stats.localizes += 1;
                    self.frames.put_key(To::Process(to), sent_on(from, frame), key, out);
                }
                None => self.tell_to_wait(from, frame.head.number, key, out),
            }
        }
    }

    fn tell_to_wait(&mut self, to: u8, number: Number, key: u64, out: &mut impl Outbox) {
        self.stats.waits += 1;
        let wait = Kinship::new(What::Wait, to, number);
        self.frames.put_key(To::Process(to), wait, key, out);
    }

    /// Rows have arrived at `from`: their giver is told, and what `from` has of them now is a
    /// claim. Entries about one key are adjacent.
    fn take_row_acks(&mut self, from: u8, frame: &Frame<'_>, out: &mut impl Outbox) {
        let giver = frame.head.peer;
        let is_new = self.is_new_claim(from, frame.head.number);
        let mut claims = frame.claims().peekable();
        while let Some(key) = claims.peek().map(|claim| claim.key) {
            let mut of_key = ClaimOfKey::default();
            let mut acks = ArrayVec::<Claim, ACKS_PER_KEY_MAX>::new();
            while let Some(claim) = claims.next_if(|claim| claim.key == key) {
                of_key.take(&claim, self.living);
                if claim.at == At::This {
                    // What has no room is said again by who does not hear of it.
                    let _full = acks.try_push(claim);
                }
            }
            let Some(index) = self.table.index(key) else { continue };
            for ack in &acks {
                self.stats.row_acks += 1;
                self.directory.learn(index, from, ack.epoch);
            }
            if is_new && !acks.is_empty() {
                self.take_claim_of(from, index, &of_key, out);
            }
            if self.living.contains(Members(1 << giver)) {
                let kinship =
                    Kinship { peer: giver, ..Kinship::new(What::RowAck, from, Number::NONE) };
                for ack in acks {
                    self.frames.put_claims(To::Process(giver), kinship, &[ack], out);
                }
            }
        }
    }

    fn take_claim(
        &mut self,
        from: u8,
        frame: &Frame<'_>,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let count = u32::from(frame.head.peer);
        let first = self.table.index(frame.head.low).ok_or(DropReason::ChunkOutOfRange)?;
        let end = first + count;
        if count == 0 || count > BLOCK_LEN || end > self.table.key_count {
            return Err(DropReason::ChunkOutOfRange);
        }
        if !self.is_new_claim(from, frame.head.number) {
            return Err(DropReason::Duplicate);
        }
        let mut is_settled = true;
        for index in first..end {
            self.stats.claims += 1;
            let claim = self.claim_of(self.table.key(index), frame);
            self.take_claim_of(from, index, &claim, out);
            is_settled &= self.directory.is_settled(index);
        }
        let kinship = Kinship {
            peer: u8::from(is_settled),
            low: frame.head.low,
            ..Kinship::new(What::Claim, from, frame.head.number)
        };
        let cookie = self.cookie_down;
        self.frames.send_lone(To::Process(from), &kinship, cookie, out);
        Ok(())
    }

    /// The newest claim of a process wins: one that is not above the last is old.
    fn is_new_claim(&mut self, from: u8, count: Number) -> bool {
        let known = &mut self.member(from).claim_count;
        let is_new = count.0 > *known;
        *known = count.0.max(*known);
        is_new
    }

    /// What a frame of few says of one key.
    fn claim_of(&self, key: u64, frame: &Frame<'_>) -> ClaimOfKey {
        let mut of_key = ClaimOfKey::default();
        for claim in frame.claims().filter(|claim| claim.key == key) {
            of_key.take(&claim, self.living);
        }
        of_key
    }

    fn take_claim_of(&mut self, from: u8, index: u32, claim: &ClaimOfKey, out: &mut impl Outbox) {
        let key = self.table.key(index);
        let finding = self.directory.claim(index, from, claim.told);
        match finding {
            Finding::Open => {}
            Finding::Settled => {
                let newest = self.directory.epoch(index);
                for epoch in claim.lost.iter().filter(|epoch| **epoch <= newest) {
                    self.say(from, What::Void, key, *epoch, out);
                }
            }
            Finding::TakeBack(keeper, epoch) => {
                self.stats.taken_back += 1;
                self.say(keeper, What::TakeBack, key, epoch, out);
            }
            Finding::Nobody => {
                self.stats.restored += 1;
                let home = self.living.iter().next().map_or(from, |rank| rank.number());
                self.say(home, What::Restore, key, RowEpoch::NONE, out);
            }
        }
    }

    fn say(&mut self, to: u8, what: What, key: u64, epoch: RowEpoch, out: &mut impl Outbox) {
        let claim = Claim { key, epoch, at: At::This };
        let kinship = Kinship::new(what, to, Number::NONE);
        self.frames.put_claims(To::Process(to), kinship, &[claim], out);
    }
}

/// What a frame of `from` is when it is sent on.
fn sent_on(from: u8, frame: &Frame<'_>) -> Kinship {
    let (number, low) = (frame.head.number, frame.head.low);
    Kinship { hops: frame.head.hops + 1, low, ..Kinship::new(frame.what, from, number) }
}

/// Rows of one key that arrive at one process in one turn, and are acknowledged in one frame.
const ACKS_PER_KEY_MAX: usize = 8;
