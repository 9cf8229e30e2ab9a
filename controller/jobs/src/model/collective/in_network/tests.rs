use alloc::string::ToString;

use super::*;

const ALLREDUCE: &str = "\
bytes,workers,time_us,wrong,io,rate_mbit,bound_us,failure
1024,2,90,0,dpdk,,,
1024,4,110,0,dpdk,,,
4096,4,700,0,dpdk,,,
1024,2,1100,0,dpdk,100,500,
1024,2,2100,0,dpdk,100,1000,
1024,2,999,5,dpdk,100,1000,
1024,2,,0,dpdk,100,1000,\"gone, and not back\"
4000,1,2,0,memory,,,
4000,2,9,0,memory,,,
";

const AGGREGATOR: &str = "\
packets_per_cpu_second,valid,failure
8000000,true,
1,false,
9000000,true,
7000000,true,
";

fn measured() -> Measured {
    Measured::from_bench(&[("a.csv", ALLREDUCE), ("b.csv", AGGREGATOR)]).expect("constants")
}

/// 90 and 110 µs for one chunk; 1,100 µs at a bound of 500, 2,100 at 1,000: 100 µs and twice the
/// bound. Rows that failed or were wrong change nothing.
#[test]
fn constants_are_those_of_valid_rows() {
    let measured = measured();
    assert!((measured.latency_s - 100e-6).abs() < 1e-12, "{measured:?}");
    assert!((measured.stretch - 2.0).abs() < 1e-9 && measured.residual_rms_s < 1e-9);
    assert!((measured.host_bytes_per_s - 2e9).abs() < 1.0);
    assert!((measured.contributions_per_s - 8e6).abs() < 1e-6);
}

/// 100 chunks are 109,800 bytes of frames.
#[test]
fn the_slowest_of_link_host_and_aggregator_counts() {
    let weft = |rate_bytes_per_s, lcores| InNetwork {
        measured: measured(),
        rate_bytes_per_s,
        lcores,
        counts_hosts: true,
    };
    let seconds = |weft: InNetwork, workers| weft.seconds(workers, 102_400.0) - 100e-6;
    let near = |ours: f64, expected: f64| assert!((ours / expected - 1.0).abs() < 1e-9, "{ours}");
    near(seconds(weft(1e6, 1), 4), 2.0 * 109_800.0 / 1e6);
    near(seconds(weft(1e12, 1), 2), 102_400.0 / 2e9);
    near(seconds(weft(1e12, 1), 64), 64.0 * 100.0 / 8e6);
    near(seconds(weft(1e12, 4), 64), 16.0 * 100.0 / 8e6);
    let apart = InNetwork { counts_hosts: false, ..weft(1e12, 1) };
    near(seconds(apart, 2), 2.0 * 100.0 / 8e6);
}

#[test]
fn the_committed_rows_are_whole_and_their_frames_are_ours() {
    let measured = Measured::committed();
    std::println!("{measured:?}");
    assert!(measured.latency_s > 0.0 && measured.stretch >= 1.0 && measured.residual_rms_s < 0.01);
    let (file, text) = MEASURED[0];
    let table = Table::new(file, text).expect("a table");
    let [bytes, rate, bound] =
        ["bytes", "rate_mbit", "bound_us"].map(|name| table.column(name).expect("a column"));
    let mut count = 0;
    for row in table.rows().map(|row| row.expect("a row")).filter(|row| !row.text(bound).is_empty())
    {
        let number = |column| row.number(column).expect("a number");
        let frames = ceil(number(bytes) / CHUNK_BYTES) * FRAME_BYTES;
        let expected_us = frames * 8.0 / number(rate);
        assert!((number(bound) - expected_us).abs() < 1e-6 * expected_us, "{row:?}");
        count += 1;
    }
    assert_eq!(count, 12);
}

#[test]
fn tables_that_lack_a_constant_are_refused() {
    let refused =
        |tables: &[(&str, &str)]| Measured::from_bench(tables).expect_err("not enough").to_string();
    assert_eq!(refused(&[("a", ALLREDUCE)]), "a:1: rows: no valid row of `weft bench aggregator`");
    assert!(refused(&[("b", AGGREGATOR)]).contains("weft bench allreduce --lab"));
    assert!(refused(&[("c", "x,y\n1,2\n")]).starts_with("c:1: failure: there is no such column"));
}
