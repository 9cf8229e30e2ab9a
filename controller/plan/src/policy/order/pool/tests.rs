use alloc::vec::Vec;

use super::*;
use crate::sample::{Shape, THOUSAND};

/// What was looked up is sent by as long as it holds, and no longer: whoever sends by an old look
/// promises what somebody else has by now.
#[test]
fn rates_of_a_path_that_has_changed_since_are_not_given() {
    let shape = Shape { updates: 60, hosts: 30, servers: 2, reservations: 20, ..THOUSAND };
    let case = Case::new(&shape.spec(3)).expect("a sample case");
    let mut ledger = Ledger::new(&case);
    let mut by_rank = vec![UpdateId(0); case.updates.len()];
    for id in case.update_ids() {
        by_rank[case.ranks[id.index()] as usize] = id;
    }
    let places = Places::new(&case, &by_rank);
    let servers: Vec<_> = case.server_ids().collect();
    let of = |server| {
        let is_its = |id: &UpdateId| {
            let update = case.update(*id);
            update.server == server && update.host != case.server(server).host
        };
        case.update_ids().filter(is_its).collect::<Vec<_>>()
    };
    let first = of(servers[0]);
    macro_rules! facts {
        () => {
            Facts { case: &case, ledger: &ledger, places: &places }
        };
    }
    let mut pool = Pool::new(facts!(), &first);
    let best = pool.best(facts!(), None).expect("there are updates");
    let update = case.update(by_rank[best.1 as usize]);
    let path = ledger.path(update.host, case.server(servers[0]).host);
    let (mut sent, mut probed) = (Vec::new(), Vec::new());
    let size_bytes = update.size_bytes;
    assert_eq!(pool.send(facts!(), best, size_bytes, &mut sent), Some(best.0));
    ledger.probe_segments(&path, case.now_ns, size_bytes, &mut probed).expect("it ends");
    assert_eq!(sent, probed);
    // Another server's transfer from another host shares no link with it.
    let elsewhere = of(servers[1]).into_iter().map(|id| case.update(id));
    let elsewhere = elsewhere.map(|other| ledger.path(other.host, case.server(servers[1]).host));
    let is_apart = |other: &Path| other.links().iter().all(|link| !path.links().contains(link));
    let elsewhere = elsewhere.into_iter().find(is_apart).expect("most of them");
    let mut other = Vec::new();
    ledger.probe_segments(&elsewhere, case.now_ns, 1_000_000, &mut other).expect("it ends");
    ledger.reserve(&elsewhere, &other);
    assert_eq!(pool.send(facts!(), best, size_bytes, &mut Vec::new()), Some(best.0));
    // Its own links are given away.
    ledger.reserve(&path, &sent);
    assert_eq!(pool.send(facts!(), best, size_bytes, &mut Vec::new()), None);
    assert_eq!(pool.send(facts!(), (best.0 + 1, best.1), size_bytes, &mut sent), None);
}
