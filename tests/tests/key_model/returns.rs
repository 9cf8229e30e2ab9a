//! A process that has died comes back without memory.

use super::*;

fn of(by: u8) -> Keys<1> {
    Keys { deaths: times(1, by), ..table() }
}

#[test]
fn process_that_goes_on_without_memory_loses_what_it_had() {
    let table = Keys { pushes: times(1, P1), ..of(P0) };
    let wrong = Keys { rules: Rules::ReturnsAsKnown, ..table };
    assert_fails(&wrong, Failure::Unsafe, "k0 is lost");
    let table = Keys { pushes: times(2, P1), ..of(P1) };
    let wrong = Keys { rules: Rules::ReturnsAsKnown, ..table };
    let verdict = "k0 is not consistent: p1.0 push, p1.1 push, at last p1.0";
    assert_fails(&wrong, Failure::Unsafe, verdict);
}

#[test]
fn process_that_returns_among_the_others_is_sent_what_it_does_not_wait_for() {
    let table = Keys { localizes: times(1, P1), ..of(P1) };
    let wrong = Keys { rules: Rules::ReturnIsWelcome, ..table };
    assert_fails(&wrong, Failure::Unsafe, "k0 is lost");
}
