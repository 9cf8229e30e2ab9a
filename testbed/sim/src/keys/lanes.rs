//! What holds of a key where a process may have several accesses to it in flight: an operation
//! happens once, at one moment between its call and its end, and nothing else is said of order.
//!
//! So of a pull's value, for each session:
//!
//! - of the adds since the set that it names, at least those are in it that were called after that
//!   set was done and were done before the pull was called; at most those that were called before
//!   the pull was done, and not done before the set was called;
//! - no other set lies between: one that was called after the named one was done, and done before
//!   the pull was called;
//! - of two values after the same set one is nowhere below the other, and what a pull brought that
//!   was done before another was called is not above what that brought.
//!
//! The row at the end is a pull that is called after all else.

use super::history::{Event, Value};

/// One operation of a session, with when it was called and done; what never was is open.
#[derive(Clone, Debug)]
pub(super) struct Timed {
    pub(super) event: Event,
    pub(super) called_at: u64,
    pub(super) done_at: u64,
}

/// A value that was seen.
struct Seen<'a> {
    value: &'a Value,
    called_at: u64,
    done_at: u64,
}

/// Judges one key by what its sessions saw, and by its row at the end.
pub(super) fn judge(sessions: &[Vec<Timed>], last: &Value) -> Result<(), String> {
    let mut seen = vec![Seen { value: last, called_at: u64::MAX - 1, done_at: u64::MAX }];
    for Timed { event, called_at, done_at } in sessions.iter().flatten() {
        if let Event::Pull(Some(value)) = event {
            seen.push(Seen { value, called_at: *called_at, done_at: *done_at });
        }
    }
    for pull in &seen {
        judge_one(sessions, pull)?;
    }
    for (place, one) in seen.iter().enumerate() {
        for other in &seen[place + 1..] {
            judge_two(sessions, one, other)?;
        }
    }
    Ok(())
}

/// When a set was called and done; 0 is the row of the start.
fn times_of_set(sessions: &[Vec<Timed>], set: u32) -> Option<(u64, u64)> {
    if set == 0 {
        return Some((0, 0));
    }
    let made = sessions.iter().flatten().find(|timed| timed.event == Event::Set(set))?;
    Some((made.called_at, made.done_at))
}

fn judge_one(sessions: &[Vec<Timed>], pull: &Seen<'_>) -> Result<(), String> {
    let Seen { value, called_at, done_at } = *pull;
    let at = format!("pull of {called_at} to {done_at}");
    let set = times_of_set(sessions, value.set).filter(|(set_at, _)| *set_at <= done_at);
    let Some((set_called_at, set_done_at)) = set else {
        return Err(format!("{at}: set {} was not called", value.set));
    };
    let between = sessions.iter().flatten().find(|other| {
        let is_later = value.set == 0 || other.called_at > set_done_at;
        matches!(other.event, Event::Set(_)) && is_later && other.done_at < called_at
    });
    if let Some(other) = between {
        return Err(format!("{at}: set {} instead of {:?}", value.set, other.event));
    }
    for (session, events) in sessions.iter().enumerate() {
        let adds = || events.iter().filter(|timed| timed.event == Event::Add);
        let is_after = |add: &Timed| value.set == 0 || add.called_at > set_done_at;
        let least = adds().filter(|add| is_after(add) && add.done_at < called_at).count();
        let may = |add: &Timed| add.called_at <= done_at && add.done_at >= set_called_at;
        let most = adds().filter(|add| may(add)).count();
        let there = value.adds[session] as usize;
        if there < least || there > most {
            return Err(format!("{at}: {there} adds of session {session}, not {least} to {most}"));
        }
    }
    Ok(())
}

fn judge_two(sessions: &[Vec<Timed>], one: &Seen<'_>, other: &Seen<'_>) -> Result<(), String> {
    let (first, second) = if one.done_at < other.called_at {
        (one, other)
    } else if other.done_at < one.called_at {
        (other, one)
    } else {
        return judge_chain(one, other);
    };
    let (before, after) = (first.value, second.value);
    if before.set == after.set {
        let falls = before.adds.iter().zip(&after.adds).any(|(a, b)| a > b);
        let text = || format!("{:?}, and later {:?}", before.adds, after.adds);
        return if falls { Err(text()) } else { Ok(()) };
    }
    let [old, new] = [before.set, after.set].map(|set| times_of_set(sessions, set));
    let goes_back = after.set == 0 || old.zip(new).is_some_and(|(old, new)| new.1 < old.0);
    if goes_back { Err(format!("set {} after set {}", after.set, before.set)) } else { Ok(()) }
}

/// Two pulls of which neither was done before the other.
fn judge_chain(one: &Seen<'_>, other: &Seen<'_>) -> Result<(), String> {
    let (one, other) = (one.value, other.value);
    let is_below = |a: &Value, b: &Value| a.adds.iter().zip(&b.adds).all(|(a, b)| a <= b);
    if one.set != other.set || is_below(one, other) || is_below(other, one) {
        return Ok(());
    }
    Err(format!("{:?} and {:?}", one.adds, other.adds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(event: Event, called_at: u64, done_at: u64) -> Timed {
        Timed { event, called_at, done_at }
    }

    fn value(set: u32, adds: &[u32]) -> Value {
        Value { set, adds: adds.to_vec() }
    }

    fn pull(set: u32, adds: &[u32], called_at: u64, done_at: u64) -> Timed {
        timed(Event::Pull(Some(value(set, adds))), called_at, done_at)
    }

    fn is_good(sessions: &[Vec<Timed>], last: (u32, &[u32])) -> bool {
        judge(sessions, &value(last.0, last.1)).is_ok()
    }

    #[test]
    fn pull_may_overtake_an_add_that_is_open_and_no_other() {
        let open = [timed(Event::Add, 1, 9), pull(0, &[0], 2, 5)];
        assert!(is_good(&[open.to_vec()], (0, &[1])));
        let done = [timed(Event::Add, 1, 2), pull(0, &[0], 3, 5)];
        assert!(!is_good(&[done.to_vec()], (0, &[1])));
        let later = [pull(0, &[1], 2, 5), timed(Event::Add, 6, 9)];
        assert!(!is_good(&[later.to_vec()], (0, &[1])), "an add that was not called yet");
    }

    #[test]
    fn adds_count_once() {
        let adds = vec![timed(Event::Add, 1, 4), timed(Event::Add, 2, 5)];
        assert!(is_good(std::slice::from_ref(&adds), (0, &[2])));
        for wrong in [1, 3] {
            assert!(!is_good(std::slice::from_ref(&adds), (0, &[wrong])), "{wrong}");
        }
        let open = vec![timed(Event::Add, 1, u64::MAX)];
        assert!([0, 1].iter().all(|count| is_good(std::slice::from_ref(&open), (0, &[*count]))));
    }

    #[test]
    fn set_is_not_lost_and_hides_what_was_done_before() {
        let set = [timed(Event::Add, 1, 2), timed(Event::Set(7), 3, 4), timed(Event::Add, 5, 6)];
        assert!(is_good(&[set.to_vec()], (7, &[1])));
        assert!(!is_good(&[set.to_vec()], (0, &[2])), "the set is lost");
        assert!(!is_good(&[set.to_vec()], (7, &[2])), "an add from before it");
        assert!(!is_good(&[set.to_vec()], (7, &[0])), "an add from after it is lost");
        assert!(!is_good(&[set.to_vec()], (8, &[0])), "nobody made set 8");
        let open = [timed(Event::Add, 1, 6), timed(Event::Set(7), 2, 5)];
        assert!(
            [0, 1].iter().all(|count| is_good(&[open.to_vec()], (7, &[*count]))),
            "in any order"
        );
    }

    #[test]
    fn values_form_a_chain_and_do_not_go_back() {
        let adds = vec![timed(Event::Add, 1, 90)];
        let pulls = |a: Timed, b: Timed| [adds.clone(), vec![timed(Event::Add, 1, 90), a, b]];
        let apart = pulls(pull(0, &[1, 0], 2, 9), pull(0, &[0, 1], 2, 9));
        assert!(!is_good(&apart, (0, &[1, 1])));
        let back = pulls(pull(0, &[1, 0], 2, 3), pull(0, &[0, 0], 4, 5));
        assert!(!is_good(&back, (0, &[1, 1])));
        let on = pulls(pull(0, &[1, 0], 2, 3), pull(0, &[1, 1], 4, 5));
        assert!(is_good(&on, (0, &[1, 1])));
        let sets = vec![timed(Event::Set(1), 1, 2), timed(Event::Set(2), 3, 4)];
        let back = [sets, vec![pull(2, &[0, 0], 3, 5), pull(1, &[0, 0], 6, 7)]];
        assert!(!is_good(&back, (2, &[0, 0])));
    }
}
