//! Whether what sessions saw of one key is sequentially consistent, in time that grows with the
//! history alone.
//!
//! A row has an element for each session, and one more. An add of session `i` adds 1 to element
//! `i`; a set makes all of these 0 and writes a number of its own to the last. So what a pull
//! brings says which set was the last before it, and how many adds of each session came between:
//! the row is its own witness, and no order has to be searched for.
//!
//! There is an order of all operations that keeps each session's own, and in which each pull brings
//! what the sets and adds before it make, only if:
//!
//! - a session's pull counts of its own adds exactly those since the set that it names: since the
//!   session's own set, or since some place after what it did when it last saw another set;
//! - values that name the same set form a chain: of two, one is nowhere below the other;
//! - along a session values that name the same set only grow, and what it has left behind for
//!   another set does not come back;
//! - the order of sets that all sessions together saw has no circle.
//!
//! Without sets (all values name set 0) these are also enough: the pulls stand in the order of the
//! chain, each add before the first pull that counts it.

use std::collections::{BTreeMap, BTreeSet};

/// One operation of a session on the key, in the order of its calls.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Set the row; its number.
    Set(u32),
    /// Added to it.
    Add,
    /// Pulled it; the value, or nothing if it was never answered.
    Pull(Option<Value>),
}

/// A row, as a pull brought it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Value {
    /// The last set; 0 is the row of the start.
    pub set: u32,
    /// The adds since, by session.
    pub adds: Vec<u32>,
}

/// Judges the history of one key. `dead` sessions may have an add or a set more than they heard of;
/// `last` is the row at the end.
///
/// # Errors
/// What is wrong.
pub fn judge(
    sessions: &[Vec<Event>],
    is_dead: impl Fn(usize) -> bool,
    last: Option<&Value>,
) -> Result<(), String> {
    let mut chains: BTreeMap<u32, Vec<&Value>> = BTreeMap::new();
    let mut before: BTreeSet<(u32, u32)> = BTreeSet::new();
    for (session, events) in sessions.iter().enumerate() {
        let seen = follow(session, events)?;
        for value in seen.values {
            chains.entry(value.set).or_default().push(value);
        }
        before.extend(seen.order);
        let total = events.iter().filter(|event| **event == Event::Add).count();
        let has_sets = sessions.iter().flatten().any(|event| matches!(event, Event::Set(_)));
        if let (Some(last), false) = (last, has_sets || is_dead(session))
            && last.adds[session] as usize != total
        {
            let there = last.adds[session];
            return Err(format!("session {session} added {total} times, {there} are in the row"));
        }
    }
    if let Some(last) = last {
        chains.entry(last.set).or_default().push(last);
        let named = sessions.iter().flatten().any(|event| *event == Event::Set(last.set));
        if last.set != 0 && !named {
            return Err(format!("nobody made set {}", last.set));
        }
    }
    for (set, values) in &mut chains {
        values.sort_by_key(|value| value.adds.iter().map(|count| u64::from(*count)).sum::<u64>());
        for pair in values.windows(2) {
            if pair[0].adds.iter().zip(&pair[1].adds).any(|(low, high)| low > high) {
                return Err(format!("after set {set}, {:?} and {:?}", pair[0].adds, pair[1].adds));
            }
        }
    }
    circle(&before).map_or(Ok(()), |set| Err(format!("set {set} came before itself")))
}

/// What a session saw.
struct Seen<'a> {
    values: Vec<&'a Value>,
    /// Sets of which the first was seen, or made, before the second.
    order: BTreeSet<(u32, u32)>,
}

fn follow(session: usize, events: &[Event]) -> Result<Seen<'_>, String> {
    let mut seen = Seen { values: Vec::new(), order: BTreeSet::new() };
    // The set that the row had when the session last knew, its own adds since it was seen first,
    // how many of these came before that, at least and at most.
    let mut set = 0;
    let (mut least, mut most) = (0, 0);
    let mut newest: Option<&Value> = None;
    for (place, event) in events.iter().enumerate() {
        match event {
            Event::Set(number) => {
                seen.order.insert((set, *number));
                (set, least, most, newest) = (*number, 0, 0, None);
            }
            Event::Add => (least, most) = (least + 1, most + 1),
            Event::Pull(None) => {}
            Event::Pull(Some(value)) => {
                let own = value.adds[session];
                if value.set == set {
                    if own < least || own > most {
                        let range = if least == most {
                            format!("{least}")
                        } else {
                            format!("{least} to {most}")
                        };
                        return Err(format!(
                            "session {session}, operation {place}: {own} own adds, not {range}"
                        ));
                    }
                    let falls = |old: &Value| old.adds.iter().zip(&value.adds).any(|(a, b)| a > b);
                    if newest.is_some_and(falls) {
                        return Err(format!("session {session}, operation {place}: an older row"));
                    }
                } else {
                    // Somebody's set came after what this session knew, between two of its
                    // operations: it has seen all of its adds since at most.
                    if own > most {
                        return Err(format!(
                            "session {session}, operation {place}: {own} own adds, at most {most}"
                        ));
                    }
                    seen.order.insert((set, value.set));
                }
                (set, least, most, newest) = (value.set, own, own, Some(value));
                seen.values.push(value);
            }
        }
    }
    Ok(seen)
}

/// A set that comes before itself.
fn circle(before: &BTreeSet<(u32, u32)>) -> Option<u32> {
    let mut left: BTreeSet<u32> = before.iter().flat_map(|(a, b)| [*a, *b]).collect();
    let mut edges: BTreeSet<(u32, u32)> = before.clone();
    loop {
        let targets: BTreeSet<u32> = edges.iter().map(|(_, to)| *to).collect();
        let first = left.iter().find(|set| !targets.contains(set)).copied();
        match first {
            Some(set) => {
                left.remove(&set);
                edges.retain(|(from, _)| *from != set);
            }
            None => return left.first().copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pull(set: u32, adds: &[u32]) -> Event {
        Event::Pull(Some(Value { set, adds: adds.to_vec() }))
    }

    fn is_good(sessions: &[Vec<Event>], last: Option<(u32, &[u32])>) -> bool {
        let last = last.map(|(set, adds)| Value { set, adds: adds.to_vec() });
        judge(sessions, |_| false, last.as_ref()).is_ok()
    }

    #[test]
    fn good_histories_are_good() {
        let one = vec![Event::Add, pull(0, &[1, 0]), Event::Add, pull(0, &[2, 1])];
        let two = vec![pull(0, &[1, 0]), Event::Add, pull(0, &[1, 1])];
        assert!(is_good(&[one, two], Some((0, &[2, 1]))));
        let one = vec![Event::Add, Event::Set(7), Event::Add, pull(7, &[1, 1])];
        let two = vec![Event::Add, pull(0, &[1, 1]), Event::Add, pull(7, &[0, 1])];
        assert!(is_good(&[one, two], Some((7, &[1, 1]))));
    }

    #[test]
    fn an_own_add_unseen_is_found() {
        assert!(!is_good(&[vec![Event::Add, pull(0, &[0])]], None));
        assert!(!is_good(&[vec![Event::Set(3), Event::Add, pull(0, &[0])], vec![]], None));
    }

    #[test]
    fn an_add_that_counts_twice_or_not_at_all_is_found() {
        assert!(!is_good(&[vec![Event::Add, pull(0, &[2])]], None));
        assert!(!is_good(&[vec![Event::Add]], Some((0, &[2]))));
        assert!(!is_good(&[vec![Event::Add]], Some((0, &[0]))));
    }

    #[test]
    fn values_that_cannot_stand_in_one_order_are_found() {
        let one = vec![pull(0, &[0, 0, 1, 0])];
        let two = vec![pull(0, &[0, 0, 0, 1])];
        let adds = [vec![Event::Add], vec![Event::Add]];
        let [three, four] = adds;
        assert!(!is_good(&[one, two, three, four], None));
    }

    #[test]
    fn a_row_that_grows_younger_is_found() {
        let one = vec![pull(0, &[0, 1]), pull(0, &[0, 0])];
        assert!(!is_good(&[one, vec![Event::Add]], None));
    }

    #[test]
    fn sets_that_sessions_saw_in_different_orders_are_found() {
        let one = vec![Event::Set(1), pull(2, &[0, 0, 0])];
        let two = vec![Event::Set(2), pull(1, &[0, 0, 0])];
        assert!(!is_good(&[one.clone(), two, vec![]], None));
        assert!(is_good(&[one, vec![Event::Set(2)], vec![]], None));
    }

    #[test]
    fn a_set_that_comes_back_is_found() {
        let one = vec![pull(1, &[0, 0]), pull(2, &[0, 0]), pull(1, &[0, 0])];
        assert!(!is_good(&[one, vec![Event::Set(1), Event::Set(2)]], None));
    }

    #[test]
    fn what_the_dead_added_may_be_there() {
        let last = Value { set: 0, adds: vec![1] };
        let events = [vec![Event::Add, Event::Add]];
        assert!(judge(&events, |_| true, Some(&last)).is_ok());
        assert!(judge(&events, |_| false, Some(&last)).is_err());
    }
}
