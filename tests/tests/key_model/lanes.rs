//! Two accesses to a key in flight, in lanes.

use super::*;

fn two<const K: usize>() -> Keys<K> {
    Keys { in_flight: 2, ..table() }
}

#[test]
fn each_push_and_set_counts_once_and_keeps_the_order_of_those_who_wait() {
    let table = Keys { localizes: times(1, P1 | P2), pushes: times(2, P1), ..two::<1>() };
    assert_holds(&Keys { pulls: times(1, P1), ..table.clone() }, 200_000);
    assert_holds(&Keys { pulls: times(1, P1), caches: true, ..table.clone() }, 200_000);
    let table = Keys { sets: times(1, P1 | P2), pushes: times(1, P1), ..table };
    assert_holds(&table, 20_000);
}

#[test]
fn box_restarts_or_a_process_dies() {
    let table = Keys { localizes: times(1, P1 | P2), pushes: times(2, P1), ..two::<1>() };
    assert_holds(&Keys { restart_count_max: 1, ..table.clone() }, 350_000);
    for zombies in [false, true] {
        let deaths = times(1, ANY);
        assert_holds(&Keys { deaths, zombies, ..table.clone() }, 80_000);
    }
    let table = Keys { checkpoint_count_max: 1, deaths: times(1, P0 | P2), ..table };
    assert_holds(&table, 300_000);
}

#[test]
fn two_keys_share_numbers_of_lanes() {
    let table = Keys { localizes: times(1, P2), pushes: times(2, P1), ..two::<2>() };
    assert_holds(&table, 15_000);
}

/// So a table with lanes does not promise it.
#[test]
fn pull_overtakes_the_push_before_it() {
    let table = Keys { pushes: times(1, P1), pulls: times(1, P1), ..two::<1>() };
    let verdict = "k0 is not consistent: p1.0 push open, p1.1 pull: nothing";
    let wrong = Keys { rules: Rules::LanesInOrder, ..table };
    assert_fails(&wrong, Failure::Unsafe, verdict);
}

#[test]
fn one_last_number_for_two_lanes_drops_an_access_for_ever() {
    let table = Keys { pushes: times(2, P1), ..two::<1>() };
    let wrong = Keys { rules: Rules::OneLastNumber, ..table };
    assert_fails(&wrong, Failure::Stuck, "waits for ever: p1 for an answer of k0");
}
