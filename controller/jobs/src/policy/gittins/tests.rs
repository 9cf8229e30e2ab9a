use super::*;

fn index(sizes_s: &[u64], table: &[(u64, f64)]) -> Index {
    let history_gpu_ns = sizes_s.iter().map(|size_s| size_s * NS_PER_S).collect();
    let table = table.iter().map(|(served_s, index)| (served_s * NS_PER_S, *index));
    Index::new(&Knobs { history_gpu_ns, gittins_table: table.collect(), ..Knobs::default() })
}

/// By hand, on the sizes of the paper's example: G(0) = 1/8, G(4) = 1/6, G(8) = 1/4.
#[test]
fn the_formula_grows_on_the_papers_example() {
    let index = index(&[4, 8, 12], &[]);
    for (served_s, expected) in [(0, 1.0 / 8.0), (4, 1.0 / 6.0), (8, 1.0 / 4.0), (12, 0.0)] {
        let got = index.at(served_s * NS_PER_S) * NS_PER_S as f64;
        assert!((got - expected).abs() < 1e-12, "{served_s}: {got}");
    }
}

/// By hand: with D = 4 and a = 2, sizes 4, 8, 12: one of three ends, after 2; two take 4.
#[test]
fn a_bounded_index_counts_only_what_ends_within() {
    let index = index(&[4, 8, 12], &[]);
    let got = index.within(2 * NS_PER_S, 4 * NS_PER_S) * NS_PER_S as f64;
    assert!((got - 1.0 / (2.0 + 4.0 + 4.0)).abs() < 1e-12, "{got}");
    assert_eq!(index.within(0, 3 * NS_PER_S), 0.0);
}

#[test]
fn the_index_with_the_best_bound_is_that_of_all_bounds_tried() {
    let index = Index::new(&Knobs::default());
    for served_s in [0, 100, 121, 500, 2_227, 10_000, 1_000_000, 60_000_000] {
        let served_ns = served_s * NS_PER_S;
        let bounds = index.sizes_ns.iter().filter(|size_ns| **size_ns > served_ns);
        let tried = bounds.map(|size_ns| index.within(served_ns, size_ns - served_ns));
        assert_eq!(index.at(served_ns), tried.fold(0.0, f64::max), "{served_s}");
    }
}

#[test]
fn a_table_takes_the_place_of_the_formula() {
    let index = index(&[4, 8, 12], &[(0, 0.25), (4, 0.2)]);
    assert_eq!([0, 3, 4, 99].map(|s| index.at(s * NS_PER_S)), [0.25, 0.25, 0.2, 0.2]);
    assert!(index.rank(0.25) < index.rank(0.2));
}

#[test]
fn files_of_samples_and_tables_are_checked() {
    assert_eq!(read_history("h", "duration\n5\n3\n"), Ok(vec![3 * NS_PER_S, 5 * NS_PER_S]));
    assert!(read_history("h", "x\n5\n").is_err());
    assert_eq!(
        read_table("t", "attained,index\n0,.25\n4,.2\n"),
        Ok(vec![(0, 0.25), (4 * NS_PER_S, 0.2)])
    );
    for bad in ["attained,index\n1,1\n", "attained,index\n0,1\n0,2\n", "attained,index\n0,-1\n"] {
        assert!(read_table("t", bad).is_err(), "{bad}");
    }
    assert_eq!(history_s(&[]).len(), 1_001);
}
