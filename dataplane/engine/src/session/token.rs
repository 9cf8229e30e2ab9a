//! Which life of a peer a JOIN is of (SPEC#handshake; PROTOCOL section 6).
//!
//! Decides which JOIN the answering end believes. Nothing orders two lives of a peer: a late
//! datagram of a process that has ended looks like one of a process that begins. So a JOIN carries
//! a token, which only a fresh round trip gives, and each token is good for one *turn*. A life
//! takes the turn when it joins; the next turn is the next life's. While it is present its own
//! JOINs stay good, for its WELCOME may be lost; once it has ended none of them is, ever: turns
//! only grow, and a host that begins anew has another secret. The host keeps three words for each
//! peer of its table and nothing for strangers.
//!
//! Limit: of two lives neither of which has joined, the one whose JOIN comes first is believed. A
//! life that died between its JOIN and the JOIN's arrival is present until the next one joins.
//!
//! Source: the model of rule 6 (`identity` of weft-tests), where a cookie is good for one stay.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;
use weft_wire::JobId;

/// The lives of one peer, as the host of its handshake knows them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Lives {
    /// The life that joined last; 0: none has.
    latest: u64,
    /// The turn that it took.
    latest_turn: u64,
    /// The turn of the life that joins next.
    turn: u64,
    is_present: bool,
}

impl Lives {
    /// Of a peer of a table that was installed for the nth time: no token that was given for its
    /// place before is good again.
    pub(crate) const fn of_installation(installation: u32) -> Self {
        let turn = (installation as u64) << 32;
        Self { latest: 0, latest_turn: turn, turn, is_present: false }
    }

    /// The life that joined last, ended or not; 0 when none has.
    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    /// True when some life has joined and not ended.
    pub(crate) fn has_present(&self) -> bool {
        self.is_present
    }

    /// True when `life` has joined and not ended.
    pub(crate) fn is_present(&self, life: u64) -> bool {
        self.is_present && life == self.latest
    }

    /// `life` has joined with a good token. False when it was present already.
    pub(crate) fn join(&mut self, life: u64) -> bool {
        if self.is_present(life) {
            return false;
        }
        let turn = self.turn;
        *self = Self { latest: life, latest_turn: turn, turn: turn + 1, is_present: true };
        true
    }

    /// The present life, if there is one, has ended: nothing that it has sent lets it join again.
    pub(crate) fn end(&mut self) {
        self.is_present = false;
    }

    /// The turn that a JOIN of `life` must prove.
    fn turn_of(&self, life: u64) -> u64 {
        if self.is_present(life) { self.latest_turn } else { self.turn }
    }
}

/// Whose handshake a token is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenInput {
    pub(crate) job: JobId,
    pub(crate) row: u16,
    pub(crate) lane: u16,
    pub(crate) rank: usize,
    pub(crate) life: u64,
}

/// Proof of a fresh round trip of `input.life`: a keyed hash that only the holder of `secret` can
/// make, for one turn of the rank.
pub(crate) fn token(secret: (u64, u64), input: &TokenInput, lives: &Lives) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(secret.0, secret.1);
    hasher.write_u16(input.job.0);
    hasher.write_u16(input.row);
    hasher.write_u16(input.lane);
    hasher.write_usize(input.rank);
    hasher.write_u64(input.life);
    hasher.write_u64(lives.turn_of(input.life));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const SECRET: (u64, u64) = (7, 9);

    fn token_of(life: u64, lives: &Lives) -> u64 {
        token(SECRET, &TokenInput { job: JobId(1), row: 2, lane: 0, rank: 3, life }, lives)
    }

    #[test]
    fn a_join_is_good_while_its_life_is_present_and_never_after() {
        let mut lives = Lives::default();
        let first = token_of(5, &lives);
        assert!(lives.join(5));
        assert_eq!(token_of(5, &lives), first, "its WELCOME may be lost");
        assert!(!lives.join(5));
        let next = token_of(6, &lives);
        lives.end();
        assert_ne!(token_of(5, &lives), first);
        assert_eq!(token_of(6, &lives), next, "the end of one life costs the next no round trip");
        // The same process may come back by another round trip.
        let second = token_of(5, &lives);
        lives.join(5);
        lives.end();
        assert!(![first, second].contains(&token_of(5, &lives)));
    }

    #[test]
    fn a_token_is_good_for_one_peer_of_one_handshake_alone() {
        let of = |secret, job, row, lane, rank, life| {
            let input = TokenInput { job: JobId(job), row, lane, rank, life };
            token(secret, &input, &Lives::default())
        };
        let mut later = Lives::default();
        later.join(9);
        let tokens = [
            of(SECRET, 1, 2, 0, 3, 5),
            of((8, 9), 1, 2, 0, 3, 5),
            of((7, 8), 1, 2, 0, 3, 5),
            of(SECRET, 2, 2, 0, 3, 5),
            of(SECRET, 1, 3, 0, 3, 5),
            of(SECRET, 1, 2, 1, 3, 5),
            of(SECRET, 1, 2, 0, 4, 5),
            of(SECRET, 1, 2, 0, 3, 6),
            token_of(5, &later),
        ];
        assert_eq!(tokens[0], token_of(5, &Lives::default()));
        for (at, one) in tokens.iter().enumerate() {
            assert!(!tokens[..at].contains(one), "the token of case {at} is another's");
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A life says HELLO and gets a token.
        Hello(u64),
        /// A JOIN arrives with the nth token that was given.
        Join(usize),
        End,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1u64..5).prop_map(Step::Hello),
            (0usize..40).prop_map(Step::Join),
            Just(Step::End),
        ]
    }

    proptest! {
        #[test]
        fn a_life_that_has_ended_joins_by_a_later_round_trip_only(
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let mut lives = Lives::default();
            // Life, token, and whether that life has been present and ended since.
            let mut given: Vec<(u64, u64, bool)> = Vec::new();
            for step in steps {
                let present = lives.has_present().then_some(lives.latest());
                match step {
                    Step::Hello(life) => given.push((life, token_of(life, &lives), false)),
                    Step::Join(index) if index < given.len() => {
                        let (life, token, is_of_ended) = given[index];
                        let is_good = token == token_of(life, &lives);
                        prop_assert!(!(is_good && is_of_ended), "{given:?}");
                        if is_good {
                            lives.join(life);
                        }
                    }
                    Step::Join(_) => {}
                    Step::End => lives.end(),
                }
                if present.is_some_and(|life| !lives.is_present(life)) {
                    for given in given.iter_mut().filter(|given| Some(given.0) == present) {
                        given.2 = true;
                    }
                }
            }
        }
    }
}
