use super::*;

/// 30 µs, 10 Gb/s, additions at 8 GB/s.
pub(crate) const TEN_GIGABIT: Network =
    Network { latency_s: 30e-6, transfer_s_per_byte: 1.0 / 1.25e9, reduce_s_per_byte: 1.0 / 8e9 };

/// Seconds of an iteration, computed apart from this code with equations 3 and 4.
#[test]
fn iterations_take_what_the_equations_say() {
    let of_100_mb = [
        (1, 6.4),
        (2, 3.2863),
        (3, 2.421),
        (4, 1.7295),
        (5, 1.5907),
        (6, 1.3831),
        (7, 1.2348),
        (8, 0.9511),
        (9, 1.0372),
        (12, 0.8642),
        (15, 0.7604),
        (16, 0.562),
        (17, 0.7116),
        (32, 0.3674),
    ];
    let of_25_mb = [
        (1, 6.4),
        (2, 3.2216),
        (4, 1.6325),
        (8, 0.8379),
        (9, 0.7928),
        (12, 0.6162),
        (15, 0.5103),
        (16, 0.4407),
        (17, 0.4605),
        (32, 0.2421),
    ];
    for (bytes, expected) in [(100e6, &of_100_mb[..]), (25e6, &of_25_mb[..])] {
        let collective = Collective::HalvingDoubling(TEN_GIGABIT);
        let job = Shared { compute_s: 6.4, bytes, collective };
        for (workers, seconds) in expected {
            let ours = job.iteration_s(*workers);
            assert!((ours - seconds).abs() <= 5e-5 + 1e-12, "{workers}: {ours}, not {seconds}");
        }
    }
}

/// Equation 2, by hand for 4 workers: 6 alpha + 1.5 n beta + 0.75 n gamma.
#[test]
fn a_ring_costs_two_turns() {
    let ours = Collective::Ring(TEN_GIGABIT).seconds(4, 100e6);
    assert!((ours - (6.0 * 30e-6 + 1.5 * 0.08 + 0.75 * 0.0125)).abs() < 1e-12);
}

/// With alpha and gamma 0 and n beta 1. 3 = 2 + 1: the single worker's vector takes 1 to arrive,
/// and 1 to come back. 6 = 4 + 2: half a vector is reduced in the pair, half goes up, half comes
/// back, half is gathered.
#[test]
fn binary_blocks_follow_their_critical_path() {
    let bytes_only = Network { latency_s: 0.0, transfer_s_per_byte: 1.0, reduce_s_per_byte: 0.0 };
    let seconds = |workers| Collective::BinaryBlocks(bytes_only).seconds(workers, 1.0);
    assert_eq!([3, 6].map(seconds), [2.0, 2.0]);
    for workers in [2, 4, 8, 64] {
        let whole = Collective::BinaryBlocks(TEN_GIGABIT).seconds(workers, 1e8);
        let halving = Collective::HalvingDoubling(TEN_GIGABIT).seconds(workers, 1e8);
        assert!((whole - halving).abs() < 1e-12, "{workers}: {whole} and {halving}");
    }
    for workers in [3, 5, 6, 7, 9, 12, 33, 63] {
        let blocks = Collective::BinaryBlocks(TEN_GIGABIT).seconds(workers, 1e8);
        let dropped = Collective::HalvingDoubling(TEN_GIGABIT).seconds(workers, 1e8);
        assert!(blocks < dropped, "{workers}: {blocks} and {dropped}");
    }
}

#[test]
fn one_worker_sums_nothing() {
    let measured = in_network::Measured::committed();
    let weft = InNetwork { measured, rate_bytes_per_s: 1.25e9, lcores: 1, counts_hosts: true };
    let all = [
        Collective::Ring(TEN_GIGABIT),
        Collective::HalvingDoubling(TEN_GIGABIT),
        Collective::BinaryBlocks(TEN_GIGABIT),
        Collective::InNetwork(weft),
    ];
    for collective in all {
        assert_eq!(collective.seconds(1, 1e8), 0.0, "{}", collective.name());
        assert!(collective.seconds(2, 1e8) > 0.0, "{}", collective.name());
    }
}
