use std::borrow::ToOwned;
use std::collections::BTreeSet;
use std::string::String;
use std::vec::Vec;

use proptest::prelude::*;
use weft_plan::sample::Numbers;

use super::*;

/// `tests/tensorlights/bands.json`, whose values are words, numbers and lists of these.
fn cases() -> Vec<(BandPolicy, Vec<String>, u64, Vec<u8>)> {
    let text = include_str!("../../tests/tensorlights/bands.json");
    let cases: serde_json::Value = serde_json::from_str(text).unwrap();
    let case = |case: &serde_json::Value| {
        let policy = match case["policy"].as_str().unwrap() {
            "TLsOne" => BandPolicy::One,
            "TLsRR" => BandPolicy::RoundRobin,
            other => panic!("unknown policy {other}"),
        };
        let jobs = usize::try_from(case["jobs"].as_u64().unwrap()).unwrap();
        let models = case["models"].as_array().unwrap();
        let models = (0..jobs).map(|job| models[job % models.len()].as_str().unwrap().to_owned());
        let bands = case["band_by_job_index"].as_array().unwrap();
        let bands = bands.iter().map(|band| u8::try_from(band.as_u64().unwrap()).unwrap());
        (policy, models.collect(), case["rotate_count"].as_u64().unwrap(), bands.collect())
    };
    cases.as_array().unwrap().iter().map(case).collect()
}

fn names(models: &[String]) -> Vec<&str> {
    models.iter().map(String::as_str).collect()
}

#[test]
fn the_agents_own_bands_come_out() {
    let cases = cases();
    assert_eq!(cases.len(), 28);
    for (policy, models, rotations, expected) in &cases {
        let models = names(models);
        let ours = bands(*policy, &models, *rotations, Grouping::Neighbours);
        assert_eq!(ours.as_ref(), Some(expected), "{policy:?} {models:?} {rotations}");
        let are_alike = models.iter().all(|model| *model == models[0]);
        if are_alike {
            assert_eq!(bands(*policy, &models, *rotations, Grouping::Models), ours);
        }
    }
}

#[test]
fn jobs_of_a_model_rotate_wherever_they_stand() {
    let models: Vec<&str> = (0..21).map(|job| ["resnet32", "vgg16"][job % 2]).collect();
    let at = |rotations| {
        let all = bands(BandPolicy::RoundRobin, &models, rotations, Grouping::Models).unwrap();
        let of = |name| models.iter().zip(&all).filter(move |(m, _)| **m == name).map(|(_, b)| *b);
        [of("resnet32").collect::<Vec<_>>(), of("vgg16").collect()]
    };
    // 3 bands for 11 jobs, 3 for 10: at most 4 jobs a band.
    assert_eq!(at(0), [vec![0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2], vec![3, 3, 3, 3, 4, 4, 4, 4, 5, 5]]);
    assert_eq!(at(1), [vec![0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 0], vec![3, 3, 3, 4, 4, 4, 4, 5, 5, 3]]);
    assert_eq!(at(1), at(111), "a cycle is as long as the model has jobs");
    // The agent lets none of them move.
    let agent = |n| bands(BandPolicy::RoundRobin, &models, n, Grouping::Neighbours);
    assert_eq!(agent(0), agent(1));
}

#[test]
fn fifo_has_no_bands_and_one_never_rotates() {
    let models = ["resnet32"; 9];
    assert_eq!(bands(BandPolicy::Fifo, &models, 3, Grouping::Models), None);
    let one = |rotations| bands(BandPolicy::One, &models, rotations, Grouping::Models);
    assert_eq!(one(0), Some(vec![0, 0, 1, 1, 2, 2, 3, 3, 4]));
    assert_eq!(one(5), one(0));
    assert_eq!(bands(BandPolicy::RoundRobin, &[], 3, Grouping::Models), Some(vec![]));
}

#[test]
fn a_hundred_jobs_of_many_models_still_have_seven_bands() {
    let mut models = vec!["vgg16"; 100];
    models.extend(MODELS.iter().filter(|model| **model != "vgg16"));
    let all = bands(BandPolicy::One, &models, 0, Grouping::Models).unwrap();
    let used: BTreeSet<u8> = all.iter().copied().collect();
    assert_eq!(used, (0..BANDS).collect());
    let of_vgg: BTreeSet<u8> = all[..100].iter().copied().collect();
    assert!(of_vgg.len() >= 5, "{of_vgg:?}: most bands are for the model of most jobs");
}

proptest! {
    #[test]
    fn bands_are_balanced(seed: u64, jobs in 1_usize..80, kinds in 1_usize..=18, rotations in 0_u64..1_000) {
        let mut numbers = Numbers::new(seed);
        let name = |at: usize| MODELS.get(at).copied().unwrap_or("another");
        let models: Vec<&str> = (0..jobs).map(|_| name(numbers.index(kinds))).collect();
        for policy in [BandPolicy::One, BandPolicy::RoundRobin] {
            for grouping in [Grouping::Models, Grouping::Neighbours] {
                let all = bands(policy, &models, rotations, grouping).unwrap();
                prop_assert!(all.iter().all(|band| *band < BANDS));
            }
            let all = bands(policy, &models, rotations, Grouping::Models).unwrap();
            let are_alike = models.iter().all(|model| *model == models[0]);
            let most = if are_alike { jobs.div_ceil(7) } else { (2 * jobs).div_ceil(7) };
            for band in 0..BANDS {
                let of_band = all.iter().filter(|other| **other == band).count();
                prop_assert!(of_band <= most, "{of_band} of {jobs} jobs are in band {band}");
            }
            for (a, of_a) in models.iter().zip(&all) {
                for (b, of_b) in models.iter().zip(&all) {
                    prop_assert!(size_rank(a) >= size_rank(b) || of_a <= of_b, "{a} below {b}");
                }
            }
        }
    }

    #[test]
    fn each_job_of_a_model_has_each_place_once_a_cycle(jobs in 1_usize..60, of_vgg in 0_usize..20) {
        let mut models = vec!["vgg11"; of_vgg];
        models.extend(vec!["resnet32"; jobs]);
        let turn = |n: usize| bands(BandPolicy::RoundRobin, &models, n as u64, Grouping::Models);
        let turns: Vec<Vec<u8>> = (0..jobs).map(|n| turn(n).unwrap()).collect();
        let history = |job: usize| {
            let mut had: Vec<u8> = turns.iter().map(|turn| turn[of_vgg + job]).collect();
            had.sort_unstable();
            had
        };
        for job in 1..jobs {
            prop_assert_eq!(history(job), history(0));
        }
    }
}
