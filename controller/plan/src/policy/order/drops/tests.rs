use alloc::vec::Vec;

use super::*;
use crate::policy::order::direct_path;
use crate::sample::{Numbers, Shape};

/// The look-ahead as it is written down: everybody is asked before every pick.
fn plain(
    case: &Case,
    ledger: &mut Ledger,
    others: &[(u64, UpdateId)],
    first_slot: i64,
    mut last_ns: u64,
) -> u128 {
    let mut waiting: Vec<UpdateId> = others.iter().map(|(_, id)| *id).collect();
    waiting.sort_by_key(|id| (case.deadline(*id), case.ranks[id.index()]));
    let mut sum = 0;
    for slot in first_slot.. {
        let deadline = |n: &usize| case.deadline(waiting[*n]);
        let tight = (0..waiting.len()).find(|n| deadline(n) - slot <= *n as i64);
        let choice = &waiting[..tight.map_or(waiting.len(), |n| n + 1)];
        let finish = |id: UpdateId| {
            let update = case.update(id);
            let path = direct_path(case, ledger, update);
            ledger.probe(&path, case.now_ns, update.size_bytes).unwrap_or(u64::MAX)
        };
        let keyed =
            choice.iter().enumerate().map(|(at, id)| (finish(*id), case.ranks[id.index()], at));
        let Some((_, _, at)) = keyed.min() else { return sum };
        let id = waiting.remove(at);
        last_ns = last_ns.max(send(case, ledger, id));
        sum += u128::from(last_ns);
    }
    sum
}

#[test]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
fn the_look_ahead_is_that_of_asking_everybody() {
    let mut numbers = Numbers::new(11);
    let (mut stopped, mut forced) = (0, 0);
    for seed in 0..3_000 {
        let workers = 1 + numbers.within(0, 12) as u32;
        let shape = Shape {
            updates: 4 + numbers.within(0, 60) as u32,
            hosts: workers + 2,
            servers: 2,
            replicas: false,
            aggregators: 0,
            reservations: numbers.within(0, 40) as u32,
            racks: numbers.within(0, 3) as u32,
            equal: numbers.within(0, 4) == 0,
            deadlines: true,
        };
        let mut spec = shape.spec(seed);
        let tau_max = 1 + numbers.within(0, 60);
        for server in &mut spec.servers {
            server.tau_max = Some(tau_max);
        }
        let case = Case::new(&spec).expect("a sample case");
        let mut by_rank = vec![UpdateId(0); case.updates.len()];
        for id in case.update_ids() {
            by_rank[case.ranks[id.index()] as usize] = id;
        }
        let mut ledger = Ledger::new(&case);
        let some = case.update(UpdateId(0)).server;
        let others = Brief::new(&case, some).others(&by_rank, UpdateId(0), |_| true);
        if others.is_empty() {
            continue;
        }
        let (slot, last_ns) = (numbers.within(0, 8) as i64, case.now_ns);
        forced += usize::from(others.iter().any(|(_, id)| case.deadline(*id) - slot < 16));
        let mark = ledger.mark();
        let expected = plain(&case, &mut ledger, &others, slot, last_ns);
        ledger.rollback(mark);
        let mut ahead = Ahead::new(&case, &ledger, &others);
        let sum = ahead.commits(&mut ledger, slot, last_ns, u128::MAX);
        ledger.rollback(mark);
        assert_eq!(sum, expected, "seed {seed}");
        // Stopped early, it is right about being over.
        for most in [expected - 1, expected, expected / 2, expected * 2] {
            let sum = ahead.commits(&mut ledger, slot, last_ns, most);
            ledger.rollback(mark);
            assert_eq!(sum > most, expected > most, "seed {seed}");
            stopped += usize::from(sum > most && sum < expected);
        }
    }
    assert!(stopped > 1_000 && forced > 1_000, "{stopped} {forced}");
}
