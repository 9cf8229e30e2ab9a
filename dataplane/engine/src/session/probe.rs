//! Whether the path carries datagrams of full length (SPEC#handshake, `probe_len`).
//!
//! Padded HELLOs and short ones take turns until a padded one is answered. Decides when the MTU is
//! to blame: [`PADDED_UNANSWERED_MIN`] padded ones in a row unanswered, each in the time until the
//! next HELLO, while at least [`SHORT_ANSWERED_MIN`] short ones were answered. Losses alone do not
//! look so: by the time that twenty short ones were answered, as many padded ones would have been,
//! and some forty went where half of all are lost. A late answer takes the verdict back.

/// The padded and short HELLOs of one handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// UDP payload bytes of a padded HELLO; 0: none is sent.
    len: u16,
    is_done: bool,
    /// What the last HELLO was, if it is still unanswered.
    is_padded_out: bool,
    padded_next: bool,
    padded_unanswered: u32,
    short_answered: u32,
}

impl Probe {
    /// Begins. With a `len` of 0 there is nothing to find out.
    pub(crate) fn new(len: u16) -> Self {
        Self {
            len,
            is_done: len == 0,
            is_padded_out: false,
            padded_next: true,
            padded_unanswered: 0,
            short_answered: 0,
        }
    }

    /// The `probe_len` of the HELLO that is sent now; 0: not padded.
    pub(crate) fn next_hello(&mut self) -> u16 {
        if self.is_done {
            return 0;
        }
        self.padded_unanswered += u32::from(self.is_padded_out);
        self.is_padded_out = self.padded_next;
        self.padded_next = !self.padded_next;
        if self.is_padded_out { self.len } else { 0 }
    }

    /// Takes a CHALLENGE to a HELLO of `probe_len` that came in a datagram of `datagram_len`. True
    /// when the handshake may go on: long datagrams pass both ways, or nobody asked.
    pub(crate) fn take_answer(&mut self, probe_len: u16, datagram_len: usize) -> bool {
        if !self.is_done {
            self.is_done = probe_len >= self.len && datagram_len >= usize::from(self.len);
            self.short_answered += u32::from(!self.is_done);
        }
        self.is_done
    }

    /// True while it is open whether long datagrams pass although short ones do.
    pub(crate) fn is_in_doubt(&self) -> bool {
        !self.is_done && self.short_answered > 0
    }

    /// True when long datagrams do not pass.
    pub(crate) fn has_failed(&self) -> bool {
        !self.is_done
            && self.padded_unanswered >= PADDED_UNANSWERED_MIN
            && self.short_answered >= SHORT_ANSWERED_MIN
    }
}

/// Padded HELLOs that stay unanswered before the MTU is blamed.
const PADDED_UNANSWERED_MIN: u32 = 20;
/// Short HELLOs that are answered before the MTU is blamed.
const SHORT_ANSWERED_MIN: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A probe after `padded` padded HELLOs without an answer, of which the last was followed by
    /// another HELLO, and `short` answers to short ones.
    fn probe(padded: u32, short: u32) -> Probe {
        let mut probe = Probe::new(500);
        for index in 0..2 * padded {
            assert_eq!(probe.next_hello(), if index % 2 == 0 { 500 } else { 0 });
        }
        for _ in 0..short {
            assert!(!probe.take_answer(0, 100));
        }
        probe
    }

    #[test]
    fn the_mtu_is_blamed_after_twenty_padded_and_twenty_short_ones() {
        assert!(probe(20, 20).has_failed());
        assert!(!probe(19, 1_000).has_failed());
        assert!(!probe(1_000, 19).has_failed());
        let mut last_is_out = probe(19, 20);
        assert_eq!(last_is_out.next_hello(), 500);
        assert!(!last_is_out.has_failed(), "its answer may be on the way");
    }

    #[test]
    fn a_late_answer_takes_the_verdict_back() {
        assert!(!probe(20, 0).is_in_doubt(), "the peer may be away");
        let mut probe = probe(20, 20);
        assert!(probe.is_in_doubt());
        assert!(!probe.take_answer(500, 499), "cut on the way back");
        assert!(probe.take_answer(500, 500));
        assert!(!probe.has_failed() && !probe.is_in_doubt());
        assert_eq!(probe.next_hello(), 0);
    }

    #[test]
    fn without_a_length_there_is_no_probe() {
        let mut probe = Probe::new(0);
        assert_eq!(probe.next_hello(), 0);
        assert!(probe.take_answer(0, 100));
    }
}
