//! x
use weft_tests::model::identity::{Identity, Rules};
use weft_tests::model::search::explore;
#[test]
fn probe() {
    for (workers, chunks, wr, ar, lossy) in [
        (2,2,0,0,true), (2,2,1,0,true), (2,2,0,1,true), (2,1,1,1,true),(2,2,1,1,false), (2,2,2,0,false),(2,2,1,1,true)
    ] {
        let m = Identity { workers, chunks, worker_restart_count_max: wr, aggregator_restart_count_max: ar, lossy, rules: Rules::AsSpecified };
        let t = std::time::Instant::now();
        match explore(&m, 2_000_000) {
            Ok(e) => println!("{workers} {chunks} {wr} {ar} {lossy}: {e:?} {:?}", t.elapsed()),
            Err(c) => println!("{workers} {chunks} {wr} {ar} {lossy}: {c}\n{:?}", t.elapsed()),
        }
    }
}
#[test]
fn variants() {
    use Rules::*;
    for rules in [ReenterOpenGroup, CookieWithoutLife, EpochFromConfiguration, GroupWithoutGeneration, HelloBinds] {
        let m = Identity { workers: 2, chunks: 2, worker_restart_count_max: 1, aggregator_restart_count_max: u8::from(rules == EpochFromConfiguration), lossy: false, rules };
        match explore(&m, 2_000_000) {
            Ok(e) => println!("{rules:?} NOT FOUND: {e:?}"),
            Err(c) => println!("{rules:?}: {:?}\n{c}", c.failure),
        }
    }
}
