#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "numbers of a model are small and positive, and some are exact"
)]

mod model;

use alloc::vec::Vec;

use model::{Bucket, FRAME, Net, Random, Sent};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::budget::{BUCKET_NS, ProbeBudget, SHARE_MAX, WINDOW_NS};
use super::capacity::{Capacity, Judgement};
use super::change::{Cusum, Shift};
use super::probe::{ProbePlan, TrainOrder};
use super::train::{Arrival, Departure, Reading};
use super::*;

const MARK: f64 = 0.05;

fn star(rates: &[f64], together: bool, seed: u64) -> Net {
    let links: Vec<f64> = rates.iter().flat_map(|rate| [*rate, *rate]).collect();
    Net::new(vec![None; rates.len()], &links, together, seed)
}

fn even_train(bytes_per_sec: f64, packets: u32) -> Vec<Arrival> {
    let at = |index: u32| (f64::from(index) * f64::from(FRAME) / bytes_per_sec * 1e9) as u64;
    (0..packets).map(|index| Arrival { at_ns: at(index), len_bytes: FRAME }).collect()
}

fn within(found: f64, truth: f64, share: f64) -> bool {
    (found / truth - 1.0).abs() <= share
}

#[test]
fn the_head_that_a_token_bucket_lets_through_is_cut_off() {
    for mbit in [10.0, 100.0, 500.0] {
        let mut net = star(&[mbit, 10_000.0], false, 1);
        net.jitter_ns = 0.0;
        let Sent { arrivals, readings, .. } = net.send(HostId(0), HostId(1), 128);
        let whole =
            127.0 * f64::from(FRAME) * 1e9 / (arrivals[127].at_ns - arrivals[0].at_ns) as f64;
        let sample = TrainSample::reduce(&arrivals, &readings).unwrap();
        let burst = Bucket::mbit(mbit).burst_bytes / f64::from(FRAME);
        assert!(whole > mbit * 125e3 * 1.01, "the burst shows in the whole train");
        assert!(within(sample.rate_bytes_per_sec, mbit * 125e3, 0.01), "{mbit} {sample:?}");
        assert!((f64::from(sample.prefix_packets) - burst).abs() < 2.0, "{mbit} {sample:?}");
    }
}

#[test]
fn an_even_train_is_not_cut() {
    let sample = TrainSample::reduce(&even_train(12.5e6, 30), &[]).unwrap();
    assert_eq!((sample.prefix_packets, sample.packets), (0, 29));
    assert!(within(sample.rate_bytes_per_sec, 12.5e6, 0.001));
}

#[test]
fn a_hold_up_within_a_train_does_not_count() {
    let mut arrivals = even_train(12.5e6, 40);
    for arrival in &mut arrivals[20..] {
        arrival.at_ns += 500_000;
    }
    let sample = TrainSample::reduce(&arrivals, &[]).unwrap();
    assert!(within(sample.rate_bytes_per_sec, 12.5e6, 0.01), "{sample:?}");
}

#[test]
fn bursts_after_sleeps_show_no_rate() {
    let mut arrivals = even_train(12.5e6, 40);
    for (index, arrival) in arrivals.iter_mut().enumerate() {
        // Ten packets at once, then nothing for as long as they should have taken.
        let block = index as u64 / 10 * 10;
        arrival.at_ns = (block + 10) * 121_120 + index as u64 % 10 * 800;
    }
    assert_eq!(TrainSample::reduce(&arrivals, &[]), Err(Refusal::Uneven));
}

#[test]
fn a_short_train_is_not_believed() {
    // All of it fits the burst, so it came at line rate.
    let burst = even_train(1.25e9, 16);
    let sample = TrainSample::reduce(&burst, &[]).unwrap();
    assert_eq!(sample.rates(), Err(Refusal::Short));
    assert_eq!(TrainSample::reduce(&burst[..4], &[]), Err(Refusal::Short));
    assert_eq!(TrainSample::reduce(&[], &[]), Err(Refusal::Short));
    let mut backwards = even_train(12.5e6, 20);
    backwards.swap(3, 9);
    assert_eq!(TrainSample::reduce(&backwards, &[]), Err(Refusal::Backwards));
}

#[test]
fn what_others_put_on_the_receivers_link_is_counted_in() {
    let arrivals = even_train(10e6, 30);
    let total = |index: usize| (index as u64 + 1) * u64::from(FRAME) * 5 / 4;
    let readings: Vec<Reading> = arrivals
        .iter()
        .enumerate()
        .map(|(index, arrival)| Reading { at_ns: arrival.at_ns, total_bytes: total(index) })
        .collect();
    let sample = TrainSample::reduce(&arrivals, &readings).unwrap();
    assert!(within(sample.received_bytes_per_sec, 12.5e6, 0.01), "{sample:?}");
    let few = &readings[..10];
    assert_eq!(TrainSample::reduce(&arrivals, few).unwrap().received_bytes_per_sec, 0.0);
}

#[test]
fn one_outlier_is_no_change_and_two_are() {
    for outlier in [0.01, 0.5, 2.0, 100.0] {
        let mut cusum = Cusum::default();
        assert_eq!(cusum.handle(1.0, 1.0, 0.03), Shift::None);
        assert_eq!(cusum.handle(outlier, 1.0, 0.03), Shift::Suspected, "{outlier}");
        assert_eq!(cusum.handle(1.0, 1.0, 0.03), Shift::None);
        assert_eq!(cusum.handle(outlier, 1.0, 0.03), Shift::Suspected);
        if outlier > 1.0 {
            assert_eq!(cusum.handle(outlier, 1.0, 0.03), Shift::Suspected, "slower to believe");
        }
        let samples = if outlier > 1.0 { 5 } else { 4 };
        assert_eq!(cusum.handle(outlier, 1.0, 0.03), Shift::Found { samples });
    }
    let mut drift = Cusum::default();
    let found = (1..20).find(|_| matches!(drift.handle(0.94, 1.0, 0.03), Shift::Found { .. }));
    assert_eq!(found, Some(5));
}

#[test]
fn a_level_forgets_what_was_before_a_change() {
    let mut capacity = Capacity::default();
    let mut now = 0;
    let mut feed = |capacity: &mut Capacity, rate: f64, peer: u32| {
        now += 100_000_000;
        capacity.handle(now, HostId(peer), rate, false)
    };
    for index in 0..6 {
        assert_eq!(feed(&mut capacity, 100.0, index % 2), Judgement::InLine);
    }
    assert_eq!(feed(&mut capacity, 1000.0, 0), Judgement::Suspect);
    assert_eq!(capacity.bytes_per_sec(), Some(100.0));
    assert_eq!(feed(&mut capacity, 99.0, 1), Judgement::InLine);
    assert_eq!(feed(&mut capacity, 50.0, 0), Judgement::Suspect);
    assert!(capacity.bytes_per_sec().unwrap() > 95.0);
    assert_eq!(feed(&mut capacity, 51.0, 1), Judgement::Changed);
    assert!(within(capacity.bytes_per_sec().unwrap(), 50.5, 0.02));
}

#[test]
fn a_link_is_as_fast_as_its_fastest_peer_has_shown() {
    let mut capacity = Capacity::default();
    for (index, rate) in [20.0, 100.0, 21.0, 101.0, 20.0, 99.0].into_iter().enumerate() {
        capacity.handle(index as u64, HostId(u32::from(rate > 50.0)), rate, false);
    }
    assert!(within(capacity.bytes_per_sec().unwrap(), 100.0, 0.02));
    let late = capacity.confidence(20_000_000_000);
    assert!(late < capacity.confidence(10) && late > 0.0);
}

#[test]
fn counters_give_the_traffic_of_others() {
    let topology = Topology::from_racks(vec![None; 2]);
    let mut estimator = Estimator::new(topology);
    let link = LinkId(0);
    let second = 1_000_000_000;
    // 3 MB/s of others, 1 MB/s of our own.
    for tenth in 0..=10_u64 {
        let at = tenth * second / 10;
        estimator.handle_counters(at, link, tenth * 400_000, tenth * 100_000).unwrap();
    }
    assert!(within(estimator.links[0].background.bytes_per_sec(), 3e6, 0.001));
    assert_eq!(
        estimator.handle_counters(second / 2, link, 9_000_000, 2_000_000),
        Err(Refusal::Backwards)
    );
    assert_eq!(estimator.handle_counters(second * 2, link, 1, 1), Err(Refusal::Backwards));
    assert_eq!(estimator.handle_counters(0, LinkId(4), 1, 1), Err(Refusal::NoPath));
    assert_eq!(estimator.refused(), Refused { backwards: 2, no_path: 1, ..Refused::default() });
    // From a standing start the smoothed rate is there after a second.
    for tenth in 0..10_u64 {
        estimator
            .handle_counters(second * 3 + tenth * second / 10, link, 1 + tenth * 700_000, 1)
            .unwrap();
    }
    assert!(within(estimator.links[0].background.bytes_per_sec(), 7e6, 0.05));
}

fn probe_of(rate: f64) -> TrainSample {
    TrainSample {
        first_ns: 0,
        last_ns: 3_000_000,
        packets: 20,
        bytes: 30_000,
        rate_bytes_per_sec: rate,
        received_bytes_per_sec: 0.0,
        departure: None,
        prefix_packets: 0,
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_counted() {
    let mut estimator = Estimator::new(Topology::from_racks(vec![None; 3]));
    let pair = (HostId(0), HostId(1));
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
        let outcome = estimator.handle_train(1, pair, &probe_of(rate), Context::Probe);
        assert_eq!(outcome, Err(Refusal::Absurd), "{rate}");
        let outcome = estimator.handle_train(1, pair, &probe_of(rate), Context::Reserved);
        assert_eq!(outcome, Err(Refusal::Absurd), "{rate}");
    }
    for (from, to) in [(0, 0), (0, 9), (9, 0)] {
        let pair = (HostId(from), HostId(to));
        let outcome = estimator.handle_train(1, pair, &probe_of(1e6), Context::Probe);
        assert_eq!(outcome, Err(Refusal::NoPath));
    }
    let backwards = TrainSample { last_ns: 0, first_ns: 5, ..probe_of(1e6) };
    assert_eq!(
        estimator.handle_train(1, pair, &backwards, Context::Probe),
        Err(Refusal::Backwards)
    );
    let nothing = Delivered { bytes: 0, duration_ns: 0, limited_by_grant: false };
    assert_eq!(estimator.handle_delivered(1, pair, &nothing), Err(Refusal::Absurd));
    assert_eq!(estimator.set_line_rate(LinkId(0), f64::NAN), Err(Refusal::Absurd));
    let refused = estimator.refused();
    assert_eq!(refused, Refused { absurd: 12, no_path: 3, backwards: 1, ..Refused::default() });
    assert_eq!(estimator.estimate(1, LinkId(0)), None);
    assert_eq!(estimator.estimate(1, LinkId(99)), None);
}

#[test]
fn a_grant_hides_the_link_until_it_is_not_met() {
    let mut estimator = Estimator::new(Topology::from_racks(vec![None; 2]));
    let pair = (HostId(0), HostId(1));
    let up =
        |estimator: &Estimator| estimator.estimate(9, LinkId(0)).unwrap().capacity_bytes_per_sec;
    estimator.handle_train(1, pair, &probe_of(10e6), Context::Probe).unwrap();
    for now in 2..8 {
        let delivered =
            Delivered { bytes: 4_000_000, duration_ns: 1_000_000_000, limited_by_grant: true };
        estimator.handle_delivered(now, pair, &delivered).unwrap();
    }
    assert!(within(up(&estimator), 10e6, 0.001), "slow because told so");
    for now in 8..11 {
        let delivered =
            Delivered { bytes: 3_000_000, duration_ns: 1_000_000_000, limited_by_grant: false };
        estimator.handle_delivered(now, pair, &delivered).unwrap();
    }
    assert!(up(&estimator) < 10e6, "slower than told: the link's doing");
}

/// The first chunks of a transfer leave at once: what spaces them is the link, whatever was
/// granted. What the box received beside them, by its own count, was on its link too.
#[test]
fn a_train_inside_a_transfer_shows_the_link() {
    let mut estimator = Estimator::new(Topology::from_racks(vec![None; 2]));
    let pair = (HostId(0), HostId(1));
    let rate = |estimator: &Estimator, link| {
        estimator.estimate(9, LinkId(link)).unwrap().capacity_bytes_per_sec
    };
    let sample = TrainSample { received_bytes_per_sec: 9.5e6, ..probe_of(9e6) };
    for now in 1..4 {
        estimator.handle_train(now, pair, &sample, Context::Reserved).unwrap();
    }
    assert!(within(rate(&estimator, 0), 9e6, 0.001));
    assert!(within(rate(&estimator, 3), 9.5e6, 0.001));
    // Of a probe's counter readings so little is an error of theirs.
    let mut probed = Estimator::new(Topology::from_racks(vec![None; 2]));
    probed.handle_train(1, pair, &sample, Context::Probe).unwrap();
    assert!(within(rate(&probed, 3), 9e6, 0.001));
}

/// Links with line rates: a path that is slow speaks ill only of what was not slow before.
#[test]
fn a_link_falls_below_its_line_rate_only_by_its_own_doing() {
    let mut estimator = Estimator::new(Topology::from_racks(vec![None; 4]));
    let [up, down] = [|host: u32| LinkId(host * 2), |host: u32| LinkId(host * 2 + 1)];
    for host in 0..4 {
        estimator.set_line_rate(up(host), if host == 1 { 1e6 } else { 10e6 }).unwrap();
        estimator.set_line_rate(down(host), 10e6).unwrap();
    }
    let train = |estimator: &mut Estimator, now: u64, from: u32, rate: f64| {
        let pair = (HostId(from), HostId(3));
        let _ = estimator.handle_train(now, pair, &probe_of(rate), Context::Reserved);
    };
    for now in 1..9 {
        train(&mut estimator, now, 1, 1e6);
    }
    // A slow sender that was known to be slow says nothing of the receiver.
    assert_eq!(estimator.estimate(9, down(3)), None);
    for now in 10..20 {
        train(&mut estimator, now, 0, 9.9e6);
    }
    let of = |estimator: &Estimator, link| estimator.estimate(30, link).unwrap();
    assert_eq!(of(&estimator, down(3)).bound, Bound::AtLeast);
    // The receiver's link falls to a half. The one path that shows it does not tell which end it
    // is.
    for now in 20..24 {
        train(&mut estimator, now, 0, 5e6);
    }
    let fallen = of(&estimator, down(3));
    assert!(within(fallen.capacity_bytes_per_sec, 5e6, 0.02), "{fallen:?}");
    assert_eq!(fallen.bound, Bound::Fallen);
    assert_eq!(of(&estimator, up(0)).bound, Bound::Fallen);
    // A sender that shows more elsewhere is cleared, and so the receiver's link is the one.
    for now in 24..30 {
        let pair = (HostId(0), HostId(2));
        let _ = estimator.handle_train(now, pair, &probe_of(9.9e6), Context::Reserved);
    }
    assert!(within(of(&estimator, up(0)).capacity_bytes_per_sec, 9.9e6, 0.02));
    assert_eq!(of(&estimator, down(3)).bound, Bound::Measured);
    assert!(within(of(&estimator, down(3)).capacity_bytes_per_sec, 5e6, 0.02));
}

#[test]
fn a_line_rate_and_the_planned_share_bound_what_is_planned() {
    let mut estimator = Estimator::new(Topology::from_racks(vec![None; 2]));
    estimator.set_line_rate(LinkId(0), 8e6).unwrap();
    estimator.handle_train(1, (HostId(0), HostId(1)), &probe_of(10e6), Context::Probe).unwrap();
    let estimate = estimator.estimate(1, LinkId(0)).unwrap();
    assert_eq!(estimate.capacity_bytes_per_sec, 8e6);
    assert!(within(estimate.plannable_bytes_per_sec(), 7.2e6, 1e-9));
}

#[test]
fn a_first_second_of_probes_is_enough() {
    for seed in 0..20 {
        for together in [false, true] {
            let mut net = star(&[100.0; 4], together, seed);
            net.run(1.0);
            assert!(net.worst_error() < MARK, "seed {seed}: {}", net.show());
        }
    }
}

#[test]
fn unequal_links_are_told_apart() {
    for seed in 0..20 {
        let mut net = star(&[20.0, 50.0, 100.0, 200.0], false, seed);
        net.run(1.0);
        assert!(net.worst_error() < MARK, "seed {seed}: {}", net.show());
        let bound = |link| net.estimator.estimate(net.now_ns, LinkId(link)).unwrap().bound;
        assert_eq!(bound(0), Bound::Measured);
        // Nobody can take in as much as the fastest sends.
        assert_eq!(bound(6), Bound::AtLeast);
    }
}

#[test]
fn half_a_link_is_found_within_a_second() {
    for seed in 0..20 {
        let mut net = star(&[100.0, 100.0, 50.0, 100.0], false, seed);
        net.run(5.0);
        let told = |net: &mut Net| core::iter::from_fn(|| net.estimator.poll_event()).count();
        told(&mut net);
        for link in [0, 1] {
            net.links[link] = Bucket::mbit(50.0);
        }
        net.run(1.0);
        assert!(net.worst_error() < MARK, "seed {seed}: {}", net.show());
        assert!(told(&mut net) >= 2, "both directions are worth a new plan");
        net.run(7.0);
        for link in [0, 1] {
            net.links[link] = Bucket::mbit(100.0);
        }
        // More is believed more slowly than less.
        net.run(5.0);
        assert!(net.worst_error() < MARK, "back, seed {seed}: {}", net.show());
    }
}

#[test]
fn cross_traffic_is_not_available() {
    for seed in 0..20 {
        let mut net = star(&[100.0; 4], false, seed);
        net.cross(0, 2, 30.0);
        net.run(1.5);
        assert!(net.worst_error() < MARK, "seed {seed}: {}", net.show());
    }
}

/// Others' packets come between a train's own at its receiver, but a queue keeps it together.
#[test]
fn a_senders_link_shows_in_departures_whatever_is_behind_it() {
    for seed in 0..20 {
        let mut net = star(&[50.0, 50.0, 100.0, 20.0], false, seed);
        net.cross(2, 1, 25.0);
        let (from, to) = (HostId(0), HostId(1));
        net.now_ns += 1_000_000_000;
        let Sent { departures, arrivals, .. } = net.send(from, to, 30);
        let arrived = TrainSample::reduce(&arrivals, &[]);
        let left = Departure::reduce(&departures).unwrap();
        assert!(left.held && within(left.bytes_per_sec, 50.0 * 125e3, 0.04), "{seed}: {left:?}");
        assert!(!arrived.is_ok_and(|sample| sample.rate_bytes_per_sec > 45.0 * 125e3));
        net.now_ns -= 1_000_000_000;
        net.run(1.5);
        assert!(net.worst_error() < MARK, "seed {seed}: {}", net.show());
    }
}

/// A link that no partner can fill: what others have of it is beside what its trains show, not
/// inside. Both ends are tried, and flows that share the best path and that do not.
#[test]
fn cross_traffic_takes_nothing_from_what_a_faster_link_has_shown() {
    let rates = [40.0, 80.0, 160.0, 320.0];
    let flows = [
        (3, 1, 30.0),
        (3, 0, 20.0),
        (3, 0, 35.0),
        (3, 2, 60.0),
        (1, 3, 30.0),
        (2, 3, 50.0),
        (0, 3, 20.0),
        (2, 1, 40.0),
        (2, 0, 20.0),
    ];
    for (from, to, mbit) in flows {
        for seed in 0..10 {
            let mut net = star(&rates, false, seed);
            net.cross(from, to, mbit);
            net.run(1.5);
            let what = format!("{from} to {to}: {mbit}, seed {seed}");
            assert!(net.worst_error() < MARK, "{what}: {}", net.show());
        }
    }
}

/// Two racks of two; the first one's uplink is slower than its hosts.
fn racks(uplink: f64, seed: u64) -> Net {
    let mut links = vec![100.0; 8];
    links.extend([uplink, 400.0, 400.0, 400.0]);
    Net::new(vec![Some(0), Some(0), Some(1), Some(1)], &links, false, seed)
}

#[test]
fn a_racks_uplink_is_told_from_its_hosts_links() {
    for seed in 0..20 {
        let mut net = racks(60.0, seed);
        net.run(2.0);
        assert!(net.worst_error() < MARK, "seed {seed}: {}", net.show());
        let up = net.estimator.estimate(net.now_ns, LinkId(8)).unwrap();
        assert!(within(up.available_bytes_per_sec, 60.0 * 125e3, MARK), "seed {seed}: {up:?}");
        assert_eq!(up.bound, Bound::Measured);
        let down = net.estimator.estimate(net.now_ns, LinkId(9)).unwrap();
        assert_eq!(down.bound, Bound::AtLeast, "{down:?}");
    }
}

#[test]
fn what_a_whole_rack_loses_is_its_uplinks_loss() {
    for seed in 0..20 {
        let mut net = racks(80.0, seed);
        net.run(6.0);
        net.links[8] = Bucket::mbit(40.0);
        // It takes trains of two hosts.
        net.run(2.0);
        assert!(within(net.estimate_mbit(8), 40.0, MARK), "seed {seed}: {}", net.estimate_mbit(8));
        assert!(net.worst_error() < MARK, "the hosts' own links: {}", net.show());
    }
}

#[test]
fn an_idle_network_is_probed_within_its_budget_and_a_busy_one_is_not() {
    let mut net = star(&[100.0, 50.0, 20.0, 200.0], false, 3);
    net.run(30.0);
    for link in 0..8_u32 {
        let topology = net.estimator.topology();
        let crossing: Vec<(u64, f64)> = net
            .trains
            .iter()
            .filter(|(_, order)| {
                topology.path(order.from, order.to).links().contains(&LinkId(link))
            })
            .map(|(at, order)| {
                let bytes = f64::from(order.packets) * f64::from(FRAME);
                (*at, bytes / net.links[link as usize].bytes_per_sec)
            })
            .collect();
        for (start, _) in &crossing {
            let window =
                crossing.iter().filter(|(at, _)| (*start..*start + WINDOW_NS).contains(at));
            let busy_s: f64 = window.map(|(_, seconds)| seconds).sum();
            // Estimates, by which costs are reckoned, may be a few per cent off.
            let allowed = SHARE_MAX * WINDOW_NS as f64 / 1e9 * 1.05;
            assert!(busy_s <= allowed, "link {link}: {busy_s} s of probes in a window");
        }
        assert!(crossing.len() > 10, "link {link} is hardly probed: {}", crossing.len());
    }
    let later = net.now_ns + 10_000_000_000;
    assert_eq!(net.plan.poll_train(later, &net.estimator, |_| false), None);
    let only = net.plan.poll_train(later, &net.estimator, |host| host.0 != 1).unwrap();
    assert!(only.from.0 != 1 && only.to.0 != 1);
}

#[test]
fn trains_at_once_share_no_hosts_link() {
    let topology = Topology::from_racks(vec![None; 5]);
    let estimator = Estimator::new(topology.clone());
    let mut plan = ProbePlan::new(&topology, 5, FRAME);
    let orders: Vec<TrainOrder> =
        core::iter::from_fn(|| plan.poll_train(1, &estimator, |_| true)).collect();
    assert!(orders.len() >= 4, "{orders:?}");
    for (index, order) in orders.iter().enumerate() {
        let others = &orders[..index];
        assert!(others.iter().all(|other| other.from != order.from && other.to != order.to));
    }
    let unknown = plan.handle_outcome(&estimator, 999, 1, None, Err(Refusal::Short));
    assert_eq!(unknown, Err(Refusal::NoPath));
}

#[test]
fn a_budget_saves_up_and_pays_back() {
    let mut budget = ProbeBudget::default();
    assert!(budget.take(0, BUCKET_NS / 2.0, 0.0));
    assert!(!budget.take(0, BUCKET_NS, 0.0));
    assert!(!budget.take(0, BUCKET_NS / 4.0, BUCKET_NS / 2.0), "the reserve stays");
    budget.settle(0.0, BUCKET_NS).unwrap();
    assert!(!budget.take(1_000_000_000, 1.0, 0.0), "overdrawn");
    assert!(budget.take(10_000_000_000, 1.0, 0.0));
    assert_eq!(budget.settle(0.0, f64::NAN), Err(Refusal::Absurd));
    assert!(!budget.take(11_000_000_000, f64::NAN, 0.0));
    assert!((budget.available_ns(u64::MAX) - BUCKET_NS).abs() < 1e-6);
}

proptest! {
    // The same settings every time: in about one of 3,500 two hosts that probe at once with others
    // come to be paired only when it tells nothing, and both stay a lower bound.
    #![proptest_config(ProptestConfig {
        cases: 48,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn shaped_links_are_estimated_within_the_mark(
        rates in prop::collection::vec(50.0_f64..200.0, 4..7),
        burst_ms in 0.2_f64..1.0,
        jitter_us in 0.0_f64..40.0,
        together: bool,
        seed: u64,
    ) {
        let mut net = star(&rates, together, seed);
        net.jitter_ns = jitter_us * 1e3;
        // With many partners of nearly one rate the best one is not found at once.
        net.at_least = 0.8;
        for link in &mut net.links {
            link.burst_bytes = link.bytes_per_sec * burst_ms / 1e3 + 2.0 * f64::from(FRAME);
        }
        net.run(3.0);
        // Partners of nearly one rate are not all tried in time.
        let mark = 3.0 * MARK;
        prop_assert!(net.worst_error() < mark, "{} {:?}", net.show(), net.links);
    }

    #[test]
    fn no_arrivals_or_counters_make_it_panic(
        times in prop::collection::vec(any::<u64>(), 0..40),
        sizes in prop::collection::vec(any::<u32>(), 40),
        rates in prop::collection::vec(any::<f64>(), 8),
        counters in prop::collection::vec(any::<(u64, u64, u64)>(), 8),
    ) {
        let mut estimator = Estimator::new(Topology::from_racks(vec![Some(RackId(0)), None, Some(RackId(1))]));
        let arrivals: Vec<Arrival> = times.iter().zip(&sizes)
            .map(|(at_ns, len_bytes)| Arrival { at_ns: *at_ns, len_bytes: *len_bytes }).collect();
        let mut sorted = arrivals.clone();
        sorted.sort_by_key(|arrival| arrival.at_ns);
        let readings: Vec<Reading> =
            counters.iter().map(|c| Reading { at_ns: c.0, total_bytes: c.1 }).collect();
        for train in [&arrivals, &sorted] {
            if let Ok(sample) = TrainSample::reduce(train, &readings) {
                let _ = estimator.handle_train(times[0], (HostId(0), HostId(2)), &sample, Context::Probe);
            }
        }
        for (index, rate) in rates.iter().enumerate() {
            let pair = (HostId(index as u32 % 3), HostId((index as u32 + 1) % 3));
            let (now, total, own) = counters[index];
            for context in [Context::Probe, Context::Reserved] {
                let sample = TrainSample { last_ns: now, ..probe_of(*rate) };
                let _ = estimator.handle_train(now, pair, &sample, context);
            }
            let delivered = Delivered { bytes: total, duration_ns: own, limited_by_grant: now % 2 == 0 };
            let _ = estimator.handle_delivered(now, pair, &delivered);
            let _ = estimator.handle_counters(now, LinkId(index as u32), total, own);
            for link in 0..10 {
                if let Some(estimate) = estimator.estimate(own, LinkId(link)) {
                    prop_assert!(estimate.available_bytes_per_sec.is_finite());
                    prop_assert!(estimate.available_bytes_per_sec >= 0.0);
                    prop_assert!((0.0..=1.0).contains(&estimate.confidence));
                }
            }
        }
    }
}

#[test]
fn random_numbers_spread() {
    let mut random = Random(7);
    let mean = (0..1000).map(|_| random.unit()).sum::<f64>() / 1000.0;
    assert!((0.45..0.55).contains(&mean));
}
