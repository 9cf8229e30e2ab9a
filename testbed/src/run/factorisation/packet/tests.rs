use std::net::Ipv4Addr;

use super::*;
use crate::report::{FactorisationOutcome, Verdict};
use crate::run::Place;
use crate::run::factorisation::judge;
use crate::scenario::{ModeWord, ModelWord};

fn scenario(mode: ModeWord, nodes: u8, threads: u8) -> FactorisationScenario {
    let text = include_str!("../../../../scenarios/factorisation.toml");
    let mut scenario = FactorisationScenario::parse("factorisation.toml", text).unwrap();
    let section = &mut scenario.factorisation;
    (section.mode, section.nodes, section.threads) = (mode, nodes, threads);
    // Of three the median is none that has to fetch all.
    section.epochs = 3;
    scenario
}

fn ran(scenario: &FactorisationScenario) -> (FactorisationOutcome, VirtualClock) {
    let plan = FactorisationPlan::new(scenario, &Place::Lab, Ipv4Addr::LOCALHOST, 1).unwrap();
    let (seen, clock) = run(&plan, &|| false).unwrap();
    (judge(&plan, &seen), clock)
}

fn outcome(mode: ModeWord, nodes: u8, threads: u8) -> FactorisationOutcome {
    let outcome = ran(&scenario(mode, nodes, threads)).0;
    assert_eq!(outcome.verdict, Verdict::Ok, "{outcome:#?}");
    outcome
}

#[test]
fn a_run_is_the_same_again_and_another_with_other_costs() {
    let scenario = scenario(ModeWord::Relocation, 2, 2);
    let [(one, first), (same, again)] = [ran(&scenario), ran(&scenario)];
    assert_eq!(one, same);
    assert_eq!(first.fingerprint, again.fingerprint);
    let mut dearer = scenario;
    dearer.costs.as_mut().unwrap().frame_ns += 1;
    let (other, clock) = ran(&dearer);
    assert_ne!(first.fingerprint, clock.fingerprint);
    assert!(other.epoch_s > one.epoch_s, "{} {}", other.epoch_s, one.epoch_s);
}

#[test]
fn values_are_the_references_in_every_mode_and_times_have_their_order() {
    let of = |mode| outcome(mode, 4, 2);
    let [relocation, fast, classic] =
        [ModeWord::Relocation, ModeWord::ClassicFastLocal, ModeWord::Classic].map(of);
    let [server, client, managed] =
        [ModeWord::StaleServer, ModeWord::StaleClient, ModeWord::Managed].map(of);
    for exact in [&relocation, &fast, &classic] {
        assert_eq!((exact.wrong_values, exact.loss), (0, Some(exact.reference_loss)));
    }
    let shares = [&relocation, &fast, &classic].map(|it| it.local_share);
    assert!(shares[0] > 0.99 && shares[1] < 0.7 && shares[2] == 0.0, "{shares:?}");
    let seconds = [&relocation, &server, &client, &fast, &classic].map(|it| it.epoch_s);
    assert!(seconds.is_sorted() && seconds[4] > 10.0 * seconds[0], "{seconds:?}");
    assert!(managed.epoch_s < seconds[2], "{seconds:?} {}", managed.epoch_s);
    assert!(relocation.relocations > 0 && relocation.relocation_us_p50 > 0.0, "{relocation:?}");
    assert_eq!((fast.relocations, fast.wire_s), (0, None));
}

/// An epoch on one thread is its entries' cost; two of one process share it.
#[test]
fn an_epoch_without_frames_takes_what_its_entries_take() {
    let costs = scenario(ModeWord::Relocation, 1, 1).costs.unwrap();
    let one = outcome(ModeWord::Relocation, 1, 1);
    let entries_s = 6000.0 * costs.entry_ns as f64 / 1e9;
    // And asking whether 240 factors are there.
    assert!((entries_s..entries_s * 1.02).contains(&one.epoch_s), "{} {entries_s}", one.epoch_s);
    let four = outcome(ModeWord::Relocation, 1, 4);
    assert!((0.25..0.4).contains(&(four.epoch_s / one.epoch_s)), "{}", four.epoch_s);
}

/// A link of half the rate lets half as much through.
#[test]
fn a_slow_link_is_what_an_epoch_takes() {
    let of = |rate| {
        let mut scenario = scenario(ModeWord::ClassicFastLocal, 2, 2);
        scenario.lab.rate_mbit = Some(rate);
        ran(&scenario).0
    };
    let [slow, fast] = [2.0, 4.0].map(of);
    for ran in [&slow, &fast] {
        assert_eq!(ran.verdict, Verdict::Ok, "{ran:#?}");
        assert!(ran.epoch_s >= ran.wire_s.unwrap(), "{ran:#?}");
    }
    let gained = slow.epoch_s / fast.epoch_s;
    assert!((1.5..2.2).contains(&gained), "{gained}");
}

#[test]
fn models_that_share_factors_come_to_their_losses() {
    for (model, mode) in [
        (ModelWord::Word2vec, ModeWord::Managed),
        (ModelWord::Complex, ModeWord::Relocation),
        (ModelWord::Rescal, ModeWord::ClassicFastLocal),
    ] {
        let mut scenario = scenario(mode, 2, 2);
        let section = &mut scenario.factorisation;
        (section.model, section.epochs, section.rank) = (model, 12, 8);
        let outcome = ran(&scenario).0;
        assert_eq!(outcome.verdict, Verdict::Ok, "{model:?} {outcome:#?}");
    }
}

#[test]
fn what_virtual_time_has_not_is_refused() {
    let refused = |change: &dyn Fn(&mut FactorisationScenario), key: &str| {
        let mut scenario = scenario(ModeWord::Relocation, 2, 1);
        change(&mut scenario);
        let error = check_virtual_time(&scenario).unwrap_err().to_string();
        assert!(error.starts_with(key), "{error}");
    };
    refused(&|it| it.costs = None, "costs");
    refused(&|it| it.faults.loss = 0.1, "faults");
    let kill = crate::scenario::HomeKillSection { name: "home".into(), in_epoch: 0 };
    refused(&|it| it.kill = vec![kill.clone()], "kill");
}
