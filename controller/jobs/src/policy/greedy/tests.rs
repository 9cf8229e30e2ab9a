use weft_plan::sample::Numbers;

use super::*;

/// What the module documentation promises: a scan over all jobs.
fn scan(gpus: u32, mut jobs: Vec<(Rank, bool, u64, u32, JobId)>) -> Vec<JobId> {
    jobs.sort_by_key(|(rank, runs, tie, _, id)| (*rank, !runs, *tie, *id));
    let mut free = gpus;
    let mut chosen: Vec<JobId> = Vec::new();
    for (_, _, _, gpus, id) in jobs {
        if gpus <= free {
            free -= gpus;
            chosen.push(id);
        }
    }
    chosen.sort();
    chosen
}

/// Random arrivals, ends and changes of rank; after each the choice is that of the scan.
fn check(seed: u64, drift: fn(u32) -> Rank) {
    const GPUS: u32 = 16;
    let mut numbers = Numbers::new(seed);
    let mut greedy = Greedy::new(GPUS, drift);
    // Rank at a time, and that time where it drifts.
    let mut jobs: BTreeMap<JobId, (u32, Rank, u64, Option<u64>)> = BTreeMap::new();
    let mut now_ns = 0;
    for step in 0..400 {
        now_ns += numbers.within(0, 4);
        let rank_now = |job: &(u32, Rank, u64, Option<u64>)| {
            job.1 + job.3.map_or(0, |from_ns| drift(job.0) * Rank::from(now_ns - from_ns))
        };
        let ids: Vec<JobId> = jobs.keys().copied().collect();
        match numbers.within(0, 4) {
            0 if !ids.is_empty() => {
                let id = ids[numbers.index(ids.len())];
                jobs.remove(&id);
                greedy.remove(id);
            }
            1 if !ids.is_empty() => {
                let id = ids[numbers.index(ids.len())];
                let rank = Rank::from(numbers.within(0, 6));
                let job = jobs.get_mut(&id).unwrap();
                (job.1, job.3) = (rank, job.3.map(|_| now_ns));
                greedy.rank(id, now_ns, rank, job.2);
            }
            _ => {
                let id = (0..).map(JobId).find(|id| !jobs.contains_key(id)).unwrap();
                let gpus = [1, 1, 2, 4, 8, 16][numbers.index(6)];
                let rank = Rank::from(numbers.within(0, 6));
                jobs.insert(id, (gpus, rank, step, None));
                greedy.add(id, gpus, rank, step);
            }
        }
        let all = jobs.iter().map(|(id, job)| (rank_now(job), job.3.is_some(), job.2, job.0, *id));
        let expected = scan(GPUS, all.collect());
        let mut decision = Decision::default();
        greedy.settle(now_ns, true, &mut decision);
        for change in &decision.changes {
            let job = jobs.get_mut(&change.id).unwrap();
            assert_eq!(job.3.is_some(), change.gpus == 0, "seed {seed}: it is a change");
            job.1 += job.3.map_or(0, |from_ns| drift(job.0) * Rank::from(now_ns - from_ns));
            job.3 = (change.gpus > 0).then_some(now_ns);
        }
        let mut got: Vec<JobId> = greedy.running().collect();
        got.sort();
        assert_eq!(got, expected, "seed {seed}, step {step}");
        assert!(got.iter().all(|id| jobs[id].3.is_some()), "seed {seed}: changes say who runs");
    }
}

#[test]
fn the_choice_is_that_of_a_scan_over_all_jobs() {
    for seed in 0..40 {
        check(seed, |_| 0);
        check(seed, |_| -1);
        check(seed, Rank::from);
        check(seed, |gpus| -Rank::from(gpus));
    }
}

#[test]
fn who_found_no_place_waits_until_gpus_are_freed() {
    let mut greedy = Greedy::new(4, |_| 0);
    greedy.add(JobId(0), 1, 0, 0);
    greedy.add(JobId(1), 3, 1, 1);
    let mut decision = Decision::default();
    greedy.settle(0, true, &mut decision);
    assert_eq!(decision.changes.len(), 2);
    greedy.unplaced(JobId(1), 0);
    decision.clear();
    greedy.settle(0, true, &mut decision);
    assert_eq!(decision.changes, []);
    greedy.remove(JobId(0));
    greedy.settle(1, true, &mut decision);
    assert_eq!(decision.changes, [Change { id: JobId(1), gpus: 3 }]);
}

#[test]
fn who_found_no_place_is_not_asked_for_twice_at_one_time() {
    let mut greedy = Greedy::new(4, |_| 0);
    let ids = [JobId(0), JobId(1), JobId(2)];
    let settle = |greedy: &mut Greedy, now_ns| {
        let mut decision = Decision::default();
        greedy.settle(now_ns, true, &mut decision);
        decision.changes.iter().map(|change| (change.id.0, change.gpus)).collect::<Vec<_>>()
    };
    greedy.add(ids[0], 2, 5, 0);
    greedy.add(ids[1], 2, 6, 1);
    assert_eq!(settle(&mut greedy, 0), [(0, 2), (1, 2)]);
    // A job ahead of both has them stopped, and finds no place: they go on, and it waits.
    greedy.add(ids[2], 3, 1, 2);
    assert_eq!(settle(&mut greedy, 7), [(0, 0), (1, 0), (2, 3)]);
    greedy.unplaced(ids[2], 7);
    assert_eq!(settle(&mut greedy, 7), [(0, 2), (1, 2)]);
    assert_eq!(settle(&mut greedy, 7), []);
    // GPUs were given back after it was asked for: it is asked for again, but later.
    greedy.remove(ids[1]);
    assert_eq!(settle(&mut greedy, 7), []);
    assert_eq!(settle(&mut greedy, 8), [(0, 0), (2, 3)]);
    greedy.unplaced(ids[2], 8);
    assert_eq!(settle(&mut greedy, 8), [(0, 2)]);
    assert_eq!(settle(&mut greedy, 9), [], "nothing was given back since");
    // Where nothing runs any more, there is nothing to wait for.
    greedy.remove(ids[0]);
    greedy.remove(ids[2]);
    greedy.add(ids[0], 2, 0, 3);
    greedy.add(ids[1], 3, 1, 4);
    assert_eq!(settle(&mut greedy, 10), [(0, 2)]);
}
