use super::{Explored, Failure, Model, explore};

/// A counter that may step by one or two, with a hole and a trap where the test wants them.
struct Stairs {
    top: u8,
    hole: Option<u8>,
    trap: Option<u8>,
}

impl Model for Stairs {
    type State = u8;
    type Action = String;

    fn initial(&self) -> u8 {
        0
    }

    fn steps(&self, state: &u8, steps: &mut Vec<(String, u8)>) {
        if Some(*state) == self.trap {
            return;
        }
        for stride in [1, 2] {
            if state + stride <= self.top {
                steps.push((format!("climb {stride}"), state + stride));
            }
        }
    }

    fn broken_property(&self, state: &u8) -> Option<String> {
        (Some(*state) == self.hole).then(|| format!("fell at {state}"))
    }

    fn is_done(&self, state: &u8) -> bool {
        *state == self.top
    }

    fn describe(&self, state: &u8) -> String {
        format!("stands on {state}")
    }
}

#[test]
fn visits_every_state_and_step_once() {
    let seen = explore(&Stairs { top: 4, hole: None, trap: None }, 100);
    assert_eq!(seen, Ok(Explored { state_count: 5, step_count: 7, done_count: 1 }));
}

#[test]
fn finds_the_shortest_way_to_a_bad_state() {
    let found = explore(&Stairs { top: 9, hole: Some(4), trap: None }, 100).unwrap_err();
    assert_eq!(found.failure, Failure::Unsafe);
    assert_eq!(found.trace, ["climb 2", "climb 2"]);
    assert_eq!(found.verdict, "fell at 4");
}

#[test]
fn finds_a_state_that_can_never_finish() {
    let found = explore(&Stairs { top: 9, hole: None, trap: Some(3) }, 100).unwrap_err();
    assert_eq!(found.failure, Failure::Stuck);
    assert_eq!(found.trace, ["climb 1", "climb 2"]);
    assert_eq!(found.verdict, "waits for ever: stands on 3");
}

#[test]
#[should_panic(expected = "more than 3 states")]
fn refuses_a_model_that_grew_too_large() {
    let _ = explore(&Stairs { top: 9, hole: None, trap: None }, 3);
}
