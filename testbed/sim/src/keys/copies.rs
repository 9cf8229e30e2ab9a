//! Whether what a session pulled of one key, from the row or from a copy, is as new as it must be:
//! it has all own adds, all that an earlier pull had, and all that the row had when the clock
//! began that is `staleness` before the one of the call.

use super::history::Event;

/// Judges the pulls of a session; `rows` are what the row had when each clock began, from the
/// second.
pub(super) fn judge(
    session: usize,
    events: &[(u32, Event)],
    rows: &[&[u32]],
    staleness: u32,
) -> Result<(), String> {
    let mut own = 0;
    let mut seen: Vec<u32> = Vec::new();
    for (place, (clock, event)) in events.iter().enumerate() {
        let value = match event {
            Event::Set(_) | Event::Pull(None) => continue,
            Event::Add => {
                own += 1;
                continue;
            }
            Event::Pull(Some(value)) => value,
        };
        let say = |what: String| Err(format!("session {session}, operation {place}: {what}"));
        if value.adds[session] != own {
            return say(format!("{} own adds, not {own}", value.adds[session]));
        }
        let lacks = |old: &[u32]| old.iter().zip(&value.adds).any(|(old, new)| old > new);
        if lacks(&seen) {
            return say(format!("{:?} after {seen:?}", value.adds));
        }
        let owed = clock.checked_sub(staleness + 2).and_then(|at| rows.get(at as usize));
        if let Some(owed) = owed.filter(|owed| lacks(owed)) {
            return say(format!("{:?} in clock {clock}, not {owed:?}", value.adds));
        }
        seen.clone_from(&value.adds);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::history::Value;
    use super::*;

    fn pull(adds: &[u32]) -> Event {
        Event::Pull(Some(Value { set: 0, adds: adds.to_vec() }))
    }

    #[test]
    fn pulls_may_be_as_old_as_the_bound_and_no_older() {
        let rows: [&[u32]; 2] = [&[0, 1], &[0, 3]];
        let is_good = |events: &[(u32, Event)]| judge(0, events, &rows, 1).is_ok();
        assert!(is_good(&[(2, pull(&[0, 0])), (3, pull(&[0, 1])), (4, pull(&[0, 3]))]));
        assert!(!is_good(&[(3, pull(&[0, 0]))]));
        assert!(!is_good(&[(4, pull(&[0, 2]))]));
        assert!(!is_good(&[(1, pull(&[0, 2])), (1, pull(&[0, 1]))]), "older than before");
        assert!(!is_good(&[(1, Event::Add), (1, pull(&[0, 2]))]), "an own add unseen");
    }
}
