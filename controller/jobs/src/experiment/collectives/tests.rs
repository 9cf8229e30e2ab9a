use super::*;

fn rows(rate_bits_per_s: f64, lcores: u32) -> Vec<Row> {
    let measured = Measured::committed();
    let question = Question { rate_bits_per_s, model_bytes: 100e6, lcores, measured, seeds: 2 };
    let rows = question.ask().expect("answers");
    for row in &rows {
        std::println!("{rate_bits_per_s:.0} {lcores}: {row:?}");
    }
    rows
}

/// 100 MB at 10 Gb/s: the +1 greedy stops at 8 where halving and doubling sum, and nowhere where
/// the network does.
#[test]
fn one_more_does_not_stop_short_where_the_network_sums() {
    let rows = rows(10e9, 8);
    let row = |name| rows.iter().find(|row| row.collective == name).expect("a row");
    assert_eq!(row("halving-doubling").one.widths, [8, 8, 8]);
    assert_eq!(row("halving-doubling").doubling.widths, [32, 16, 16]);
    for name in ["weft", "weft, fast hosts"] {
        let Row { one, optimum, .. } = row(name);
        assert_eq!(one.widths.iter().sum::<u32>(), GPUS, "{name} leaves nothing idle");
        assert!(one.total_s < optimum.total_s * 1.001, "{name}: {one:?}, {optimum:?}");
    }
}

/// The iteration grows with the workers once one lcore has more to add than a link carries.
#[test]
fn an_aggregator_of_one_lcore_limits_the_width() {
    let [one, eight] = [1, 8].map(|lcores| rows(10e9, lcores));
    let at_64 = |rows: &[Row]| rows[4].iteration_s[6];
    assert!(at_64(&one) > 2.0 * at_64(&eight));
}
