//! Has our members say whether they hear the multicast address, where members of the capture did
//! (SPEC#answers-by-multicast). Without it a box answers each of them alone.

use weft_wire::header::Packet;
use weft_wire::hello::{Hello, Phase};
use weft_wire::{GroupId, Nanos, Rank};

use super::Foreign;

impl Foreign<'_> {
    /// A member of the capture says that it hears the row's address, or does not. The box there
    /// took the word in the life and the epoch that it had welcomed the member to, and so does this
    /// one; where the capture begins later than the WELCOMEs, all words are of the last lease.
    pub(super) fn pass_on(&mut self, now: Nanos, weft: &Packet<&[u8]>, hello: &Hello, rank: Rank) {
        let (job, number) = (weft.job(), weft.group().row());
        let said = self.survey.lives.get(&(job, hello.life, hello.epoch.0)).copied();
        if said.is_none() && self.survey.has_handshake(job, number) {
            return;
        }
        let Some(row) = self.row(weft) else { return };
        // Who was welcome may say so before anybody contributes.
        if let Some(group) = said
            && self.rows[row].formed.iter().all(|formed| formed.theirs != group)
        {
            self.form(now, row, group);
        }
        let last = self.rows[row].formed.last().map(|formed| formed.theirs);
        if last.is_some() && (said.is_none() || said == last) {
            self.say(now, row, rank.index(), hello.phase);
        }
    }

    /// The members of a lease that is older than the capture have said before that they hear, if
    /// its sums left once for all.
    pub(super) fn listen_of_old(&mut self, now: Nanos, row: usize, theirs: GroupId) {
        let (job, count) = (self.rows[row].job, self.rows[row].members.len());
        let is_older = !self.survey.welcomed.contains_key(&(job, theirs.0));
        if is_older && self.survey.cast(job, theirs).is_some() {
            (0..count).for_each(|rank| self.say(now, row, rank, Phase::Listen));
        }
    }

    fn say(&mut self, now: Nanos, row: usize, rank: usize, phase: Phase) {
        if let Some(member) = self.rows[row].members.get(rank) {
            let word = member.word(phase);
            self.shake(now, row, word);
        }
    }
}
