//! The best that fixed orders do, on cases so small that all can be tried.
//!
//! An order says who goes first whenever something changes; the jobs run in this order as far as
//! they fit, those further behind fill what is left, and any may be stopped at no cost. The least
//! mean completion time of all orders is what a policy is held against. It is no bound: a policy
//! that changes its order as jobs go on may be below it.
//!
//! Costs n! x n^2.

use alloc::vec::Vec;

use weft_plan::sample::Numbers;

use crate::job::{Job, NS_PER_S};

/// Jobs of a case that [`best_order_ns`] takes; more are too many to try.
pub const JOBS_MAX: usize = 7;

/// The least mean completion time of all orders, in nanoseconds; none for no jobs, more than
/// [`JOBS_MAX`], or one that is larger than the cluster.
#[must_use]
pub fn best_order_ns(jobs: &[Job], gpus: u32) -> Option<f64> {
    if jobs.is_empty() || jobs.len() > JOBS_MAX || jobs.iter().any(|job| job.gpus > gpus) {
        return None;
    }
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    let mut best_ns = u64::MAX;
    permute(&mut order, 0, &mut |order| best_ns = best_ns.min(sum_ns(jobs, order, gpus)));
    Some(best_ns as f64 / jobs.len() as f64)
}

/// A small case of a seed: two to five jobs of up to 100 minutes for [`SMALL_CASE_GPUS`], which come
/// within the first hour.
#[must_use]
pub fn small_case(seed: u64) -> Vec<Job> {
    let mut numbers = Numbers::new(seed);
    let count = numbers.within(2, 6);
    let mut submit_ns = 0;
    let job = |index: u64| {
        let job = Job {
            name: format!("{index}").into(),
            gpus: 1 << numbers.index(3),
            submit_ns,
            duration_ns: numbers.within(1, 60) * 100 * NS_PER_S,
            model: "".into(),
            iterations: 0,
            global_batch: 0,
        };
        submit_ns += numbers.within(0, 8) * 100 * NS_PER_S;
        job
    };
    (0..count).map(job).collect()
}

/// GPUs of [`small_case`].
pub const SMALL_CASE_GPUS: u32 = 4;

fn permute(order: &mut [usize], from: usize, visit: &mut impl FnMut(&[usize])) {
    if from == order.len() {
        return visit(order);
    }
    for at in from..order.len() {
        order.swap(from, at);
        permute(order, from + 1, visit);
        order.swap(from, at);
    }
}

/// The sum of the completion times under an order.
fn sum_ns(jobs: &[Job], order: &[usize], gpus: u32) -> u64 {
    let mut left_ns: Vec<u64> = jobs.iter().map(|job| job.duration_ns).collect();
    let (mut now_ns, mut sum_ns) = (0, 0);
    while left_ns.iter().any(|left_ns| *left_ns > 0) {
        let mut free = gpus;
        let waits = |at: &usize| jobs[*at].submit_ns <= now_ns && left_ns[*at] > 0;
        let runs: Vec<usize> = order
            .iter()
            .copied()
            .filter(waits)
            .filter(|at| match free.checked_sub(jobs[*at].gpus) {
                Some(rest) => {
                    free = rest;
                    true
                }
                None => false,
            })
            .collect();
        let arrival_ns = jobs.iter().map(|job| job.submit_ns).filter(|ns| *ns > now_ns).min();
        let end_ns = runs.iter().map(|at| now_ns + left_ns[*at]).min();
        let Some(next_ns) = [arrival_ns, end_ns].into_iter().flatten().min() else { break };
        for at in runs {
            left_ns[at] -= next_ns - now_ns;
            if left_ns[at] == 0 {
                sum_ns += next_ns - jobs[at].submit_ns;
            }
        }
        now_ns = next_ns;
    }
    sum_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(gpus: u32, submit_s: u64, duration_s: u64) -> Job {
        Job {
            name: "".into(),
            gpus,
            submit_ns: submit_s * NS_PER_S,
            duration_ns: duration_s * NS_PER_S,
            model: "".into(),
            iterations: 0,
            global_batch: 0,
        }
    }

    #[test]
    fn the_best_order_of_the_example_of_three_jobs_is_better_than_srsf() {
        // Tiresias' slides: SRSF has 2, 10 and 16 s. The third before the second has 2, 16 and 8.
        let jobs = [job(2, 0, 2), job(1, 0, 8), job(2, 0, 6)];
        let best_s = best_order_ns(&jobs, 2).expect("a small case") / NS_PER_S as f64;
        assert!((best_s - 26.0 / 3.0).abs() < 1e-9, "{best_s}");
    }

    #[test]
    fn a_late_short_job_stops_a_long_one() {
        // 10 s and 1 s, the second 2 s later: 11 and 1.
        let jobs = [job(1, 0, 10), job(1, 2, 1)];
        assert_eq!(best_order_ns(&jobs, 1), Some(6.0 * NS_PER_S as f64));
        assert_eq!(best_order_ns(&[], 1), None);
        assert_eq!(best_order_ns(&jobs, 0), None);
    }
}
