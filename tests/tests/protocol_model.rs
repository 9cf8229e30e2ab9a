//! PROTOCOL.md rules 1 to 4 and 6, checked in every state of small models; and each wrong variant,
//! which must fail with a counterexample. `--nocapture` shows the counts and the counterexamples.
//!
//! Every search of the rules as specified asserts a floor for its states: a model in which nothing
//! happens would pass any property.

use std::fmt::Debug;

use weft_tests::model::search::{Failure, Model, explore};
use weft_tests::model::{allreduce, commit, identity};

/// A model that grows beyond this has grown by accident.
const STATE_COUNT_MAX: usize = 3_000_000;

/// Visits all states; fails with the counterexample, or if fewer than `floor` states were seen.
#[track_caller]
fn assert_holds<M: Model + Debug>(model: &M, floor: usize) {
    match explore(model, STATE_COUNT_MAX) {
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

/// Asserts how a wrong variant fails, prints the counterexample and returns its steps.
#[track_caller]
fn assert_fails<M: Model + Debug>(model: &M, failure: Failure, verdict: &str) -> Vec<String> {
    let Err(found) = explore(model, STATE_COUNT_MAX) else {
        panic!("{model:?} is wrong, but no state shows it");
    };
    println!("{model:?} fails, as it must:\n{found}\n");
    assert_eq!((found.failure, found.verdict.as_str()), (failure, verdict));
    found.trace
}

mod allreduce_group {
    use super::allreduce::message::Layout;
    use super::allreduce::{Allreduce, Rules};
    use super::*;

    const fn group(workers: u8, window: u8, steps: u8, restart_count_max: u8) -> Allreduce {
        let layout = Layout { workers, window, steps };
        let rules = Rules::AsSpecified;
        Allreduce { layout, restart_count_max, lossy: true, rules, vectors: &[] }
    }

    /// Two workers, one slot, three steps show every wrong variant.
    const fn wrong(rules: Rules, restart_count_max: u8) -> Allreduce {
        Allreduce { rules, ..group(2, 1, 3, restart_count_max) }
    }

    #[test]
    fn two_workers_use_each_bank_three_times() {
        assert_holds(&group(2, 1, 6, 0), 600);
        assert_holds(&group(2, 1, 6, 1), 20_000);
    }

    #[test]
    fn two_workers_with_two_slots_survive_a_restart() {
        assert_holds(&group(2, 2, 3, 1), 950_000);
    }

    #[test]
    fn two_workers_survive_two_restarts() {
        assert_holds(&group(2, 1, 3, 2), 85_000);
    }

    #[test]
    fn three_workers_survive_a_restart() {
        assert_holds(&group(3, 1, 4, 1), 100_000);
    }

    #[test]
    fn three_workers_with_two_slots_finish() {
        assert_holds(&group(3, 2, 2, 0), 60_000);
        assert_holds(&Allreduce { lossy: false, ..group(3, 2, 2, 1) }, 130_000);
    }

    #[test]
    fn bitmap_without_tag_adds_a_contribution_twice() {
        let trace = assert_fails(
            &wrong(Rules::BitmapWithoutTag, 0),
            Failure::Unsafe,
            "w0 accepts 2 x w0:c1 as the sum of c1",
        );
        let expected = [
            "aggregator gets contribution w0:c0 of epoch 1",
            "aggregator gets contribution w1:c0 of epoch 1",
            "w0 gets answer c0 of epoch 1, computation 1",
            "aggregator gets contribution w0:c1 of epoch 1",
            "aggregator gets contribution w0:c0 of epoch 1",
            "aggregator gets contribution w0:c1 of epoch 1",
            "w0 gets answer c1 of epoch 1, computation 1",
        ];
        assert_eq!(trace, expected, "the counterexample of PROTOCOL.md rule 1");
    }

    #[test]
    fn claim_without_successor_rule_loses_a_kept_answer() {
        let verdict = "w1 and w0 hold different computations of c2";
        assert_fails(&wrong(Rules::ClaimWithoutSuccessor, 0), Failure::Unsafe, verdict);
    }

    #[test]
    fn restart_without_hand_over_leaves_a_worker_waiting() {
        let verdict = "waits for ever: w0 c1, w1 c0";
        assert_fails(&wrong(Rules::RestartWithoutHandOver, 1), Failure::Stuck, verdict);
    }

    #[test]
    fn restart_that_sums_again_gives_other_bits() {
        let verdict = "w1 and w0 hold different computations of c0";
        assert_fails(&wrong(Rules::RestartSumsAgain, 1), Failure::Unsafe, verdict);
    }

    #[test]
    fn epoch_that_opens_early_leaves_a_worker_waiting() {
        let verdict = "waits for ever: w0 c1, w1 c0";
        assert_fails(&wrong(Rules::OpenBeforeAllJoined, 1), Failure::Stuck, verdict);
    }

    #[test]
    fn answers_of_an_old_epoch_give_other_bits() {
        let verdict = "w1 and w0 hold different computations of c0";
        assert_fails(&wrong(Rules::AnswersOfAnyEpoch, 1), Failure::Unsafe, verdict);
    }

    #[test]
    fn worker_that_leaves_without_close_takes_the_last_sum_with_it() {
        let verdict = "waits for ever: w1 c2";
        assert_fails(&wrong(Rules::LeaveWithoutClose, 1), Failure::Stuck, verdict);
    }

    /// A chunk has two elements.
    fn of_lengths(rules: Rules, vectors: &'static [&'static [u8]]) -> Allreduce {
        let workers = u8::try_from(vectors.len()).expect("few workers");
        Allreduce { rules, vectors, ..group(workers, 2, 2, 0) }
    }

    #[test]
    fn vectors_of_other_lengths_are_never_summed() {
        let cases: [&[&[u8]]; 9] = [
            &[&[2, 1, 3], &[2, 1, 3]],
            &[&[1], &[2]],
            &[&[3], &[5]],
            &[&[2, 2], &[4]],
            &[&[4, 2], &[2, 4]],
            &[&[0, 2], &[2]],
            &[&[2, 2], &[2]],
            &[&[3], &[3], &[2]],
            &[&[2, 1], &[4], &[3]],
        ];
        for vectors in cases {
            assert_holds(&of_lengths(Rules::AsSpecified, vectors), 10);
        }
    }

    #[test]
    fn counts_alone_sum_over_the_end_of_a_vector() {
        let verdict = "w0 returns a sum of c0, which is another part of w1's";
        let model = of_lengths(Rules::CountWithoutLast, &[&[2, 2], &[4]]);
        assert_fails(&model, Failure::Unsafe, verdict);
    }

    #[test]
    fn ends_alone_sum_padding() {
        let verdict = "w0 returns a sum of c0, which is another part of w1's";
        let model = of_lengths(Rules::LastWithoutCount, &[&[1], &[2]]);
        assert_fails(&model, Failure::Unsafe, verdict);
    }

    #[test]
    fn a_slot_that_goes_on_leaves_its_first_member_waiting() {
        let model = of_lengths(Rules::TellOddOneAlone, &[&[1], &[2]]);
        assert_fails(&model, Failure::Stuck, "waits for ever: w0 c0");
    }

    #[test]
    fn a_later_sum_that_is_returned_first_may_be_of_other_parts() {
        let verdict = "w0 returns a sum of c1, which is another part of w1's";
        let model = of_lengths(Rules::CallsEndOutOfOrder, &[&[2, 2], &[4]]);
        assert_fails(&model, Failure::Unsafe, verdict);
    }

    #[test]
    fn a_close_that_is_told_before_the_hand_over_ends_a_round_in_vain() {
        let verdict = "w1 is told that c2 has no sum, and all vectors are alike";
        assert_fails(&wrong(Rules::CloseBeforeHandOver, 1), Failure::Unsafe, verdict);
    }

    #[test]
    fn a_close_that_is_not_told_leaves_the_others_waiting() {
        let model = of_lengths(Rules::CloseIsSilent, &[&[2, 2], &[2]]);
        assert_fails(&model, Failure::Stuck, "waits for ever: w0 c1, w1 for the close");
    }
}

mod push_group {
    use super::commit::{Commit, Rules};
    use super::*;

    const fn group(members: u8, chunks: u8, death: bool) -> Commit {
        Commit { members, chunks, death, lossy: true, rules: Rules::AsSpecified }
    }

    /// Two members with two chunks show every wrong variant.
    const fn wrong(rules: Rules) -> Commit {
        Commit { rules, ..group(2, 2, true) }
    }

    #[test]
    fn group_of_two_commits_whole_or_not_at_all() {
        assert_holds(&group(2, 2, true), 45_000);
        assert_holds(&group(2, 3, false), 10_000);
    }

    #[test]
    fn group_of_three_commits_whole_or_not_at_all() {
        assert_holds(&group(3, 2, true), 1_100_000);
    }

    #[test]
    fn dedup_by_subset_alone_counts_twice() {
        let verdict = "c0 of w0's update is in the model twice";
        assert_fails(&wrong(Rules::DedupBySubsetAlone), Failure::Unsafe, verdict);
    }

    #[test]
    fn dedup_by_group_and_chunk_counts_twice() {
        let verdict = "c0 of w0's update is in the model twice";
        assert_fails(&wrong(Rules::DedupByGroupAndChunk), Failure::Unsafe, verdict);
    }

    #[test]
    fn commit_of_each_chunk_tears_an_update() {
        let verdict = "torn update: the group is decided with members 0b1, \
                       but c0 of the model has 1 x w0 + 1 x w1";
        assert_fails(&wrong(Rules::CommitEachChunk), Failure::Unsafe, verdict);
    }

    #[test]
    fn close_that_keeps_what_is_staged_never_ends() {
        let verdict = "waits for ever: w1 for a decision";
        assert_fails(&wrong(Rules::CloseKeepsStaged), Failure::Stuck, verdict);
    }

    #[test]
    fn forgotten_decision_commits_twice() {
        let verdict = "c0 of w0's update is in the model twice";
        assert_fails(&wrong(Rules::ForgetDecided), Failure::Unsafe, verdict);
    }
}

mod lives_of_a_rank {
    use super::identity::{Identity, Rules};
    use super::*;

    /// Two ranks, two chunks, no loss.
    const fn ranks(worker_restart_count_max: u8, aggregator_restart_count_max: u8) -> Identity {
        Identity {
            workers: 2,
            chunks: 2,
            runs: 1,
            worker_restart_count_max,
            aggregator_restart_count_max,
            lossy: false,
            rules: Rules::AsSpecified,
        }
    }

    const fn wrong(rules: Rules, worker_restarts: u8, aggregator_restarts: u8) -> Identity {
        Identity { rules, ..ranks(worker_restarts, aggregator_restarts) }
    }

    #[test]
    fn one_box_restarts_under_loss() {
        assert_holds(&Identity { lossy: true, ..ranks(1, 0) }, 60_000);
        assert_holds(&Identity { lossy: true, ..ranks(0, 1) }, 20_000);
    }

    #[test]
    fn worker_and_aggregator_restart() {
        assert_holds(&ranks(1, 1), 220_000);
        assert_holds(&Identity { lossy: true, chunks: 1, ..ranks(1, 1) }, 250_000);
    }

    #[test]
    fn workers_restart_twice() {
        assert_holds(&ranks(2, 0), 150_000);
    }

    #[test]
    fn three_ranks_form_again_after_a_restart() {
        assert_holds(&Identity { workers: 3, chunks: 1, ..ranks(1, 0) }, 5_000);
    }

    #[test]
    fn runs_follow_one_another() {
        let two_runs = Identity { chunks: 1, runs: 2, ..ranks(0, 0) };
        assert_holds(&Identity { lossy: true, ..two_runs }, 5_000);
        assert_holds(&Identity { worker_restart_count_max: 1, ..two_runs }, 20_000);
        assert_holds(&Identity { aggregator_restart_count_max: 1, ..two_runs }, 60_000);
    }

    #[test]
    fn delayed_join_of_an_ended_life_forms_a_group_with_a_ghost() {
        let rules = Rules::EndedLifeJoins;
        let ended = Identity { chunks: 1, runs: 2, ..wrong(rules, 0, 0) };
        let verdict = "a group opens with w0's life 1, which has closed";
        assert_fails(&ended, Failure::Unsafe, verdict);
    }

    #[test]
    fn new_life_in_an_open_group_tears_an_update() {
        let verdict = "torn update: w0 accepts c1 from the lives [1, 2], \
                       another chunk of the same group came from [1, 1]";
        assert_fails(&wrong(Rules::ReenterOpenGroup, 1, 0), Failure::Unsafe, verdict);
    }

    #[test]
    fn cookie_without_life_tears_an_update() {
        let verdict = "torn update: w0 accepts c1 from the lives [1, 2], \
                       another chunk of the same group came from [1, 1]";
        assert_fails(&wrong(Rules::CookieWithoutLife, 1, 0), Failure::Unsafe, verdict);
    }

    #[test]
    fn epoch_from_configuration_mixes_two_formations() {
        let verdict = "w0 in formation 1 accepts for c0 a sum with \
                       w0's of formation 1 and w1's of formation 2";
        assert_fails(&wrong(Rules::EpochFromConfiguration, 0, 1), Failure::Unsafe, verdict);
    }

    #[test]
    fn group_without_generation_mixes_two_formations() {
        let verdict = "w0 in formation 1 accepts for c0 a sum with \
                       w0's of formation 1 and w1's of formation 2";
        assert_fails(&wrong(Rules::GroupWithoutGeneration, 1, 0), Failure::Unsafe, verdict);
    }

    #[test]
    fn hello_of_a_dead_life_that_binds_keeps_the_new_one_out() {
        let verdict = "waits for ever: w0 (life 2) for a group, \
                       w1 (life 1) for sums of generation 1";
        assert_fails(&wrong(Rules::HelloBinds, 1, 0), Failure::Stuck, verdict);
    }
}
