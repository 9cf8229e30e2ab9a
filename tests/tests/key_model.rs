//! PROTOCOL.md section 13, checked in every state of small tables; and each wrong variant, which
//! must fail with a counterexample. `--nocapture` shows the counts and the counterexamples.
//!
//! `WEFT_MODEL_SCALE=2` lets more happen in some tables, which then take minutes and gigabytes.

use weft_tests::model::keys::tables::Tables;
use weft_tests::model::keys::{Budget, Keys, Rules};
use weft_tests::model::search::{Failure, explore_lossy};

/// A model that grows beyond this has grown by accident.
const STATE_COUNT_MAX: usize = 1_000_000;

/// As above, with `WEFT_MODEL_SCALE`.
const SCALED_STATE_COUNT_MAX: usize = 30_000_000;

const P0: u8 = 1;
const P1: u8 = 2;
const P2: u8 = 4;
const ANY: u8 = P0 | P1 | P2;

/// Three processes, of which p0 has all rows, and nothing that happens.
fn table<const K: usize>() -> Keys<K> {
    let none = Budget { count: 0, by: 0 };
    Keys {
        processes: 3,
        sets: none,
        pushes: none,
        pulls: none,
        localizes: none,
        intents: none,
        clocks: none,
        staleness: 0,
        batches: false,
        directories: 1,
        restart_count_max: 0,
        checkpoint_count_max: 0,
        deaths: none,
        zombies: false,
        caches: false,
        low_frames: false,
        in_flight: 1,
        kept_count_max: 4,
        remote_count_max: 4,
        open_count_max: 15,
        rules: Rules::AsSpecified,
        tables: Tables::default(),
    }
}

/// True if there is time for more.
fn is_scaled() -> bool {
    std::env::var("WEFT_MODEL_SCALE").is_ok_and(|scale| scale != "1")
}

/// Something that happens only if there is time for more.
fn scaled(count: u8, by: u8) -> Budget {
    times(if is_scaled() { count } else { 0 }, by)
}

const fn times(count: u8, by: u8) -> Budget {
    Budget { count, by }
}

/// Visits all states; fails with the counterexample, or if fewer than `floor` states were seen.
#[track_caller]
fn assert_holds<const K: usize>(model: &Keys<K>, floor: usize) {
    let state_count_max = if is_scaled() { SCALED_STATE_COUNT_MAX } else { STATE_COUNT_MAX };
    match explore_lossy(model, state_count_max) {
        Ok(seen) => {
            println!(
                "{model:?}: {} states, {} steps, {} finished",
                seen.state_count, seen.step_count, seen.done_count
            );
            assert!(seen.state_count >= floor, "{model:?}: only {} states", seen.state_count);
            assert!(seen.done_count > 0, "{model:?}: nothing ever finishes");
        }
        Err(counterexample) => panic!("{model:?} fails:\n{counterexample}"),
    }
}

/// Asserts how a wrong variant fails, and that nothing fails without its deviation.
#[track_caller]
fn assert_fails<const K: usize>(model: &Keys<K>, failure: Failure, verdict: &str) {
    let Err(found) = explore_lossy(model, STATE_COUNT_MAX) else {
        panic!("{model:?} is wrong, but no state shows it");
    };
    println!("{model:?} fails, as it must:\n{found}\n");
    assert_eq!((found.failure, found.verdict.as_str()), (failure, verdict));
    let right = Keys { rules: Rules::AsSpecified, ..model.clone() };
    if let Err(found) = explore_lossy(&right, STATE_COUNT_MAX) {
        panic!("{right:?} fails too:\n{found}");
    }
}

mod moves {
    use super::*;

    #[test]
    fn rows_move_under_all_operations() {
        let table = Keys { localizes: times(1, ANY), ..table::<1>() };
        let all = Keys { sets: times(1, P0 | P1), pushes: times(1, ANY), ..table };
        assert_holds(&Keys { pulls: times(1, ANY), ..all }, 600_000);
    }

    #[test]
    fn two_localizes_meet_an_access() {
        let localizers = if is_scaled() { ANY } else { P1 | P2 };
        let table = Keys { localizes: times(2, localizers), ..table::<1>() };
        let table = Keys { pushes: times(1, P1), pulls: times(1, P1), ..table };
        assert_holds(&table, 200_000);
        assert_holds(&Keys { caches: true, ..table }, 200_000);
    }

    #[test]
    fn three_localizes_meet_a_push() {
        let table = Keys { localizes: times(3, P1 | P2), ..table::<1>() };
        assert_holds(&Keys { pushes: times(1, P1), ..table }, 200_000);
    }

    #[test]
    fn other_frames_tell_what_is_open() {
        let table = Keys { localizes: times(1, P2), low_frames: true, ..table::<1>() };
        assert_holds(&Keys { pushes: times(1, P1), pulls: times(1, P1), ..table }, 400_000);
    }

    #[test]
    fn copies_are_limited() {
        let table = Keys { localizes: times(3, P1 | P2), kept_count_max: 1, ..table::<1>() };
        assert_holds(&Keys { pushes: times(1, P1), ..table }, 100_000);
    }

    #[test]
    fn second_access_in_flight_overtakes_the_first() {
        let table = Keys { pushes: times(1, P1), pulls: times(1, P1), ..table::<1>() };
        let verdict = "k0 is not consistent: p1.0 push open, p1.1 pull: nothing";
        let wrong = Keys { rules: Rules::TwoInFlight, ..table };
        assert_fails(&wrong, Failure::Unsafe, verdict);
    }

    #[test]
    fn dedup_that_stays_behind_adds_twice() {
        let table = Keys { pushes: times(1, P1), localizes: times(1, P1), ..table::<1>() };
        let wrong = Keys { rules: Rules::DedupLeftBehind, ..table };
        assert_fails(&wrong, Failure::Unsafe, "the push p1.0 is in k0 twice");
    }

    #[test]
    fn floors_that_stay_behind_add_twice() {
        let table = Keys { pushes: times(1, P1), localizes: times(1, P2), ..table::<1>() };
        let wrong = Keys { rules: Rules::FloorsLeftBehind, low_frames: true, ..table };
        assert_fails(&wrong, Failure::Unsafe, "the push p1.0 is in k0 twice");
    }

    #[test]
    fn localize_without_number_sends_the_row_to_one_who_does_not_wait() {
        let table = Keys { localizes: times(2, P1 | P2), ..table::<1>() };
        let wrong = Keys { rules: Rules::LocalizeWithoutNumber, ..table };
        assert_fails(&wrong, Failure::Unsafe, "k0 is lost");
    }

    #[test]
    fn localize_that_is_given_up_loses_the_row() {
        let table = Keys { localizes: times(1, P1), ..table::<1>() };
        let wrong = Keys { rules: Rules::LocalizeGivenUp, ..table };
        assert_fails(&wrong, Failure::Unsafe, "k0 is lost");
    }

    #[test]
    fn row_that_is_freed_at_sending_is_lost() {
        let table = Keys { localizes: times(1, P1), ..table::<1>() };
        let wrong = Keys { rules: Rules::FreedAtSending, ..table };
        assert_fails(&wrong, Failure::Unsafe, "k0 is lost");
    }

    #[test]
    fn row_that_is_acknowledged_before_it_is_stored_is_lost() {
        let table = Keys { localizes: times(1, P1), ..table::<1>() };
        let wrong = Keys { rules: Rules::AckBeforeStoring, ..table };
        assert_fails(&wrong, Failure::Unsafe, "k0 is lost");
    }

    #[test]
    fn kept_copy_that_serves_gives_a_stale_pull() {
        let table = Keys { pushes: times(1, P1), pulls: times(2, P1), ..table::<1>() };
        let table = Keys { localizes: times(1, P2), ..table };
        let verdict = "k0 is not consistent: p1.0 push, p1.1 pull: nothing";
        let wrong = Keys { rules: Rules::KeptCopyServes, ..table };
        assert_fails(&wrong, Failure::Unsafe, verdict);
    }

    #[test]
    fn queue_before_the_access_in_flight_hides_an_own_push() {
        let table = Keys { pushes: times(1, P1), pulls: times(1, P1), ..table::<1>() };
        let table = Keys { localizes: times(1, P1), ..table };
        let verdict = "k0 is not consistent: p1.0 push, p1.1 pull: nothing";
        let wrong = Keys { rules: Rules::QueueBeforeFlight, ..table };
        assert_fails(&wrong, Failure::Unsafe, verdict);
    }

    #[test]
    fn noted_localize_that_is_forgotten_waits_for_ever() {
        let table = Keys { localizes: times(2, P1 | P2), ..table::<1>() };
        let verdict = "waits for ever: p0 with a copy of k0, p1 for k0, p2 for k0";
        let wrong = Keys { rules: Rules::NotedIsForgotten, ..table };
        assert_fails(&wrong, Failure::Stuck, verdict);
    }

    #[test]
    fn repeats_that_go_to_the_last_localizer_wait_for_ever() {
        let table = Keys { localizes: times(1, P1), ..table::<1>() };
        let wrong = Keys { rules: Rules::RepeatsToNext, ..table };
        assert_fails(&wrong, Failure::Stuck, "waits for ever: p1 for k0");
    }

    #[test]
    fn localize_that_is_forwarded_once_waits_for_ever() {
        let table = Keys { localizes: times(1, P1), ..table::<1>() };
        let wrong = Keys { rules: Rules::LocalizeForwardedOnce, ..table };
        assert_fails(&wrong, Failure::Stuck, "waits for ever: p1 for k0");
    }

    #[test]
    fn last_word_of_an_old_ack_sends_frames_in_a_loop() {
        let table = Keys { localizes: times(3, P1 | P2), ..table::<1>() };
        let wrong = Keys { rules: Rules::LastWord, ..table };
        assert_fails(&wrong, Failure::Stuck, "waits for ever: p1 for k0");
    }
}

mod restarts_of_the_box {
    use super::*;

    fn restarts(count: u8, table: Keys<1>) -> Keys<1> {
        Keys { restart_count_max: count, ..table }
    }

    #[test]
    fn directory_is_learnt_again() {
        let table = Keys { pushes: times(1, ANY), localizes: times(1, ANY), ..table::<1>() };
        assert_holds(&restarts(1, table), 70_000);
    }

    #[test]
    fn directory_is_learnt_again_between_two_moves() {
        let table = Keys { localizes: times(2, P1 | P2), ..table::<1>() };
        assert_holds(&restarts(2, table.clone()), 300_000);
        assert_holds(&restarts(1, Keys { pushes: scaled(1, P1), ..table }), 70_000);
    }

    #[test]
    fn box_restarts_twice() {
        let table = Keys { pushes: times(1, P1), localizes: times(1, P1 | P2), ..table::<1>() };
        assert_holds(&restarts(2, table), 100_000);
    }

    fn one_move(rules: Rules) -> Keys<1> {
        restarts(1, Keys { localizes: times(1, P1), rules, ..table::<1>() })
    }

    #[test]
    fn nobody_owns_that_is_said_early_makes_a_second_owner() {
        let wrong = one_move(Rules::NobodyOwnsEarly);
        assert_fails(&wrong, Failure::Unsafe, "p0 and p1 both hold k0");
    }

    #[test]
    fn claims_without_kept_copies_make_a_second_owner() {
        let wrong = one_move(Rules::ClaimsWithoutKept);
        assert_fails(&wrong, Failure::Unsafe, "p0 and p1 both hold k0");
    }

    #[test]
    fn claims_without_counter_make_a_second_owner() {
        let table = Keys { localizes: times(2, P1 | P2), ..table::<1>() };
        let wrong = Keys { rules: Rules::ClaimsWithoutCounter, ..restarts(1, table) };
        assert_fails(&wrong, Failure::Unsafe, "p0 and p1 both hold k0");
    }

    #[test]
    fn acks_past_the_box_make_a_second_owner() {
        let wrong = one_move(Rules::AckPastBox);
        assert_fails(&wrong, Failure::Unsafe, "p0 and p1 both hold k0");
    }

    #[test]
    fn claims_of_an_old_life_make_a_second_owner() {
        let wrong = restarts(2, one_move(Rules::ClaimsOfAnyLife));
        assert_fails(&wrong, Failure::Unsafe, "p0 and p1 both hold k0");
    }
}

mod deaths {
    use super::*;

    fn of(by: u8, table: Keys<1>) -> Keys<1> {
        Keys { deaths: times(1, by), ..table }
    }

    #[test]
    fn any_process_dies_under_all_operations() {
        let table = Keys { localizes: times(1, P1 | P2), sets: times(1, P1), ..table::<1>() };
        let table = Keys { pushes: times(1, P0), pulls: times(1, P1), ..table };
        assert_holds(&of(ANY, table), 500_000);
    }

    #[test]
    fn any_process_dies_between_two_moves() {
        let table = Keys { localizes: times(2, P1 | P2), pushes: times(1, P1), ..table::<1>() };
        assert_holds(&of(ANY, table), 100_000);
    }

    #[test]
    fn dead_process_that_goes_on_does_no_harm() {
        let table = Keys { localizes: times(1, ANY), pushes: times(1, ANY), ..table::<1>() };
        let table = Keys { zombies: true, ..table };
        assert_holds(&of(ANY, table.clone()), 39_000);
        assert_holds(&of(P2, Keys { pulls: times(1, ANY), ..table }), 300_000);
    }

    #[test]
    fn two_die() {
        let table = Keys { localizes: times(2, ANY), zombies: true, ..table::<1>() };
        assert_holds(&Keys { deaths: times(2, ANY), ..table.clone() }, 39_000);
        let table = Keys { localizes: times(1, P1 | P2), pushes: times(1, P1), ..table };
        assert_holds(&Keys { deaths: times(2, ANY), ..table }, 50_000);
    }

    #[test]
    fn one_dies_and_the_box_restarts() {
        let table = Keys { localizes: times(1, P1 | P2), pushes: times(1, P1), ..table::<1>() };
        assert_holds(&of(ANY, Keys { restart_count_max: 1, ..table }), 90_000);
    }

    #[test]
    fn kept_copy_that_counts_as_ownership_is_lost() {
        let table = Keys { localizes: times(2, P0 | P1), ..table::<1>() };
        let wrong = Keys { rules: Rules::KeptIsOwnership, ..of(P1, table) };
        assert_fails(&wrong, Failure::Unsafe, "k0 is lost");
    }

    #[test]
    fn row_of_a_dead_process_that_is_not_fenced_is_a_second_owner() {
        let table = Keys { localizes: times(1, P2), ..table::<1>() };
        let wrong = Keys { rules: Rules::NotFenced, ..of(P0, table) };
        assert_fails(&wrong, Failure::Unsafe, "p1 and p2 both hold k0");
    }

    #[test]
    fn restored_row_that_takes_old_numbers_is_carried_away() {
        let table = Keys { localizes: times(2, P1 | P2), ..table::<1>() };
        let wrong = Keys { rules: Rules::RestoredTakesAll, ..of(P2, table) };
        assert_fails(&wrong, Failure::Unsafe, "k0 is lost");
    }

    #[test]
    fn row_that_is_restored_again_has_two_owners() {
        let table = Keys { localizes: times(1, P2), ..table::<1>() };
        let wrong = Keys { rules: Rules::RestoredAgain, ..of(P0, table) };
        assert_fails(&wrong, Failure::Unsafe, "p1 and p2 both hold k0");
    }

    #[test]
    fn access_that_is_renumbered_above_its_localize_waits_for_ever() {
        let table = Keys { localizes: times(1, P2), pushes: times(1, P2), ..table::<1>() };
        let wrong = Keys { rules: Rules::RenumberAboveLocalize, ..of(P0, table) };
        assert_fails(&wrong, Failure::Stuck, "waits for ever: p2 for k0");
    }

    #[test]
    fn copy_taken_back_that_takes_old_numbers_brings_back_what_was_lost() {
        let table = Keys { localizes: times(1, P2), pushes: times(1, P1), ..table::<1>() };
        let wrong = Keys { rules: Rules::TakenBackTakesAll, ..of(P2, table) };
        let verdict = "k0 is not consistent: p1.0 push, at last p1.0";
        assert_fails(&wrong, Failure::Unsafe, verdict);
    }

    #[test]
    fn stale_before_the_last_numbers_adds_twice() {
        let table = Keys { localizes: times(1, P2), pushes: times(1, P1), ..table::<1>() };
        let wrong = Keys { rules: Rules::StaleBeforeLast, ..of(P2, table) };
        assert_fails(&wrong, Failure::Unsafe, "the push p1.0 is in k0 twice");
    }

    #[test]
    fn checkpoint_is_written_at_any_time() {
        let table = Keys { checkpoint_count_max: 1, pushes: times(1, P1), ..table::<1>() };
        assert_holds(&of(ANY, Keys { localizes: times(1, P1 | P2), ..table.clone() }), 40_000);
        let table = Keys { localizes: times(1, P2), pulls: times(1, P1), ..table };
        assert_holds(&of(P0 | P2, table), 100_000);
    }

    #[test]
    fn checkpoint_without_numbers_adds_twice() {
        let table = Keys { checkpoint_count_max: 1, pushes: times(1, P1), ..table::<1>() };
        let wrong = Keys { rules: Rules::CheckpointWithoutNumbers, ..of(P0, table) };
        assert_fails(&wrong, Failure::Unsafe, "the push p1.0 is in k0 twice");
    }
}

mod two_keys {
    use super::*;

    #[test]
    fn keys_share_a_box() {
        let table = Keys { localizes: times(1, P2), ..table::<2>() };
        assert_holds(&Keys { pushes: times(2, P1), ..table.clone() }, 11_000);
        assert_holds(&Keys { pushes: times(1, P1), batches: true, ..table }, 60_000);
    }

    #[test]
    fn answer_of_one_key_that_counts_for_all_loses_a_push() {
        let table = Keys { pushes: times(1, P1), batches: true, ..table::<2>() };
        let wrong = Keys { rules: Rules::AnswerIsWhole, ..table };
        let verdict = "k1 is not consistent: p1.0 push, at last nothing";
        assert_fails(&wrong, Failure::Unsafe, verdict);
    }

    #[test]
    fn keys_are_claimed_one_by_one() {
        let table = Keys { localizes: times(1, P1), restart_count_max: 1, ..table::<2>() };
        assert_holds(&Keys { pushes: scaled(1, P1), ..table.clone() }, 14_000);
        let wrong = Keys { rules: Rules::PartIsWhole, ..table };
        assert_fails(&wrong, Failure::Unsafe, "p0 and p1 both hold k0");
    }

    #[test]
    fn each_key_has_a_box() {
        let table = Keys { directories: 2, ..table::<2>() };
        let moves = Keys { localizes: times(1, P1), restart_count_max: 2, ..table.clone() };
        assert_holds(&moves, 80_000);
        let table = Keys { pushes: times(2, P1), restart_count_max: 1, ..table };
        assert_holds(&Keys { localizes: scaled(1, P2), ..table }, 6_000);
    }

    #[test]
    fn one_low_for_two_boxes_drops_an_access_for_ever() {
        let table = Keys { directories: 2, pushes: times(2, P1), ..table::<2>() };
        let wrong = Keys { rules: Rules::OneLow, restart_count_max: 1, ..table };
        assert_fails(&wrong, Failure::Stuck, "waits for ever: p1 for an answer of k1");
    }

    #[test]
    fn floors_that_another_key_taught_travel_too() {
        let table = Keys { pushes: times(2, P1), localizes: times(1, P2), ..table::<2>() };
        let wrong = Keys { rules: Rules::FloorsLeftBehind, ..table };
        assert_fails(&wrong, Failure::Unsafe, "the push p1.0 is in k0 twice");
    }
}

mod intents {
    use super::*;

    /// p1 and p2 may mean to use the row of p0.
    fn meant<const K: usize>() -> Keys<K> {
        Keys { intents: times(2, P1 | P2), ..table() }
    }

    #[test]
    fn rows_go_to_one_who_means_to_use_them_and_copies_to_others() {
        let table = Keys { pushes: times(1, P1), pulls: times(1, P1), ..meant::<1>() };
        assert_holds(&table, 70_000);
        assert_holds(&Keys { intents: times(2, ANY), ..table.clone() }, 150_000);
        assert_holds(&Keys { caches: true, ..table }, 150_000);
    }

    #[test]
    fn copies_are_as_new_as_the_bound() {
        let table = Keys { intents: times(2, P0 | P1), clocks: times(2, P1), ..table::<1>() };
        let table = Keys { pushes: times(1, P0), pulls: times(2, P1), ..table };
        for staleness in [0, 1] {
            assert_holds(&Keys { staleness, ..table.clone() }, 500_000);
        }
    }

    #[test]
    fn intents_meet_localizes() {
        let table = Keys { localizes: times(1, P1 | P2), pushes: times(1, P1), ..table::<1>() };
        let table = Keys { intents: times(1, P1 | P2), ..table };
        assert_holds(&Keys { pulls: times(1, P1), ..table.clone() }, 400_000);
        let table = Keys { pushes: scaled(1, P1), intents: times(2, P1 | P2), ..table };
        assert_holds(&table, 100_000);
    }

    #[test]
    fn box_restarts_while_rows_are_taken() {
        let table = Keys { restart_count_max: 1, pushes: times(1, P1), ..meant::<1>() };
        assert_holds(&Keys { intents: times(1, P1 | P2), ..table }, 35_000);
    }

    #[test]
    fn owner_or_reader_dies() {
        let table = Keys { intents: times(1, P1 | P2), pushes: times(1, P1), ..table::<1>() };
        let table = Keys { deaths: times(1, P0 | P2), ..table };
        for zombies in [false, true] {
            assert_holds(&Keys { zombies, ..table.clone() }, 8_000);
        }
    }

    #[test]
    fn refusal_that_is_not_entered_loses_the_row() {
        let table = Keys { intents: times(2, P0 | P1), ..table::<1>() };
        let wrong = Keys { rules: Rules::RefusalNotEntered, ..table };
        assert_fails(&wrong, Failure::Unsafe, "k0 is lost");
    }

    #[test]
    fn row_that_its_taker_does_not_expect_is_lost() {
        let wrong = Keys { rules: Rules::TakeForgotten, ..meant::<1>() };
        assert_fails(&wrong, Failure::Unsafe, "k0 is lost");
    }

    #[test]
    fn copy_without_the_own_operations_lacks_a_push() {
        let table = Keys { intents: times(2, P0 | P1), ..table::<1>() };
        let table = Keys { pushes: times(1, P1), pulls: times(1, P1), ..table };
        let wrong = Keys { rules: Rules::CopyWithoutOwn, ..table };
        let verdict = "p1.1 pulls a copy of k0 without an own push";
        assert_fails(&wrong, Failure::Unsafe, verdict);
    }

    #[test]
    fn copy_that_is_read_before_earlier_pulls_are_answered_is_older() {
        let table = Keys { intents: times(2, P0 | P1), ..table::<1>() };
        let table = Keys { pushes: times(1, P0), pulls: times(2, P1), ..table };
        let wrong = Keys { rules: Rules::CopyPastPulls, ..table };
        assert_fails(&wrong, Failure::Unsafe, "p1.1 pulls an older k0 than before");
    }

    #[test]
    fn copy_that_is_as_new_as_its_arrival_is_too_old() {
        let table = Keys { intents: times(2, P0 | P1), clocks: times(1, P1), ..table::<1>() };
        let table = Keys { pushes: times(1, P0), pulls: times(1, P1), ..table };
        let wrong = Keys { rules: Rules::CopyOfArrival, ..table };
        assert_fails(&wrong, Failure::Unsafe, "p1.0 pulls a copy of k0 that is too old");
    }

    #[test]
    fn copy_that_outlives_its_intent_is_not_consistent() {
        // p0 has no room for kept copies, so that it grants no take.
        let table = Keys { intents: times(1, P1), kept_count_max: 0, ..table::<1>() };
        let table = Keys { pushes: times(2, P0 | P1), pulls: times(2, P0 | P1), ..table };
        let wrong = Keys { rules: Rules::CopyOutlivesIntent, ..table };
        let verdict =
            "k0 is not consistent: p0.0 push, p0.1 pull: p0.0, p1.0 push open, p1.1 pull: p1.0";
        assert_fails(&wrong, Failure::Unsafe, verdict);
    }
}

#[path = "key_model/lanes.rs"]
mod lanes;

#[path = "key_model/full.rs"]
mod full;

#[path = "key_model/returns.rs"]
mod returns;
