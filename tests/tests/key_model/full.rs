//! What is full, and numbers that run out.

use super::*;

#[test]
fn what_finds_no_room_is_as_lost() {
    let table = Keys { localizes: times(2, P1 | P2), remote_count_max: 0, ..table::<1>() };
    let table = Keys { pushes: times(1, P0), pulls: times(1, P0), ..table };
    assert_holds(&table, 250_000);
}

#[test]
fn number_that_is_queued_without_its_access_loses_a_push() {
    let table = Keys { localizes: times(1, P1), pushes: times(1, P0 | P2), ..table::<1>() };
    let table = Keys { remote_count_max: 0, ..table };
    let wrong = Keys { rules: Rules::FullIsEntered, ..table };
    let verdict = "k0 is not consistent: p0.0 push, at last nothing";
    assert_fails(&wrong, Failure::Unsafe, verdict);
}

#[test]
fn who_has_no_number_tries_again() {
    let table = Keys { open_count_max: 1, pushes: times(2, P1), ..table::<2>() };
    assert_holds(&Keys { localizes: times(1, P1 | P2), ..table.clone() }, 10_000);
    let table = Keys { restart_count_max: 1, pushes: times(1, P1), ..table };
    assert_holds(&Keys { localizes: times(1, P1), ..table }, 100_000);
}

#[test]
fn number_that_is_given_again_while_it_is_open_waits_for_ever() {
    let table = Keys { open_count_max: 1, pushes: times(1, P1), ..table::<1>() };
    let table = Keys { localizes: times(1, P1), ..table };
    let wrong = Keys { rules: Rules::OpenNumberReused, ..table };
    assert_fails(&wrong, Failure::Stuck, "waits for ever: p1 for k0");
}

#[test]
fn numbers_that_begin_anew_drop_an_access() {
    let table = Keys { pushes: times(3, P1), ..table::<1>() };
    let wrong = Keys { rules: Rules::NumbersWrap, ..table };
    let verdict = "waits for ever: p1 for an answer of k0";
    assert_fails(&wrong, Failure::Stuck, verdict);
}
