//! How full links get: the real engines in virtual time, on links and with settings as in a rack.
//! A change of windows, pacing, credits, timers or plans shows as a change of a table, the same on
//! every machine. What CPUs add is not modelled; `weft run` and `weft bench` show that.

use std::thread;

use weft_sim::push;
use weft_sim::push::scenario::Scenario;
use weft_sim::push::site::Rack;

const GBIT: u64 = 125_000_000;

/// Percent of the server's downlink between the first eighth of the decisions and the last: frames
/// of any kind while an update was wanted; frames, and parameters, over all of the time.
fn busy_server(rack: Rack, workers: usize, loss: f64) -> [f64; 3] {
    let scenario = Scenario::busy_server(rack, workers, UPDATES, loss);
    let report = push::run(&scenario, false);
    assert_eq!(report.violations, Vec::<String>::new());
    let eighth = report.downlink.len() / 8;
    let last = report.downlink.len() - eighth - 1;
    let (from, to) = (report.downlink[eighth], report.downlink[last]);
    let percent = |bytes: u64, span_ns: u64| {
        bytes as f64 * 100.0 / (span_ns as f64 * 1e-9 * rack.bytes_per_sec as f64)
    };
    let span_ns = to.at.since(from.at).0;
    let parameter_bytes = ((last - eighth) * scenario.dimension() * 4) as u64;
    [
        percent(to.wanted_bytes - from.wanted_bytes, to.wanted.since(from.wanted).0),
        percent(to.carried_bytes - from.carried_bytes, span_ns),
        percent(parameter_bytes, span_ns),
    ]
}

/// A change of this table is no failure by itself: say in its commit what made links fuller, or
/// why they may be emptier.
///
/// Of a full link the server's credits leave 3 % to requests for models, which are 1 % with jumbo
/// frames and 6 % without. Between two decisions lie their updates only where nothing is lost.
#[test]
fn nightly_a_busy_servers_downlink() {
    let rows = [
        (1, 9_000, 4, 0.0),
        (1, 9_000, 8, 0.0),
        (1, 9_000, 8, 0.001),
        (1, 9_000, 8, 0.01),
        (1, 9_000, 16, 0.0),
        (1, 1_500, 8, 0.0),
        (10, 9_000, 16, 0.0),
    ];
    let row = |(gbit, mtu, workers, loss): (u64, u16, usize, f64)| {
        let rack = Rack { bytes_per_sec: gbit * GBIT, mtu };
        let [wanted, all, useful] = busy_server(rack, workers, loss);
        let loss = loss * 100.0;
        format!(
            "{gbit:>2} Gb/s  {mtu}  {workers:>7}  {loss:.1} %  {wanted:>6.0}  {all:>3.0}  \
             {useful:>6.0}\n"
        )
    };
    let lines: String = thread::scope(|scope| {
        let runs = rows.map(|cell| scope.spawn(move || row(cell)));
        runs.into_iter().map(|run| run.join().expect("no run panics")).collect()
    });
    let table = format!("{HEAD}{lines}");
    assert_eq!(table, BUSY_SERVER, "now:\n{table}");
}

/// Per worker.
const UPDATES: u32 = 10;

const HEAD: &str = "link     mtu   workers  loss   wanted  all  useful\n";
const BUSY_SERVER: &str = "\
link     mtu   workers  loss   wanted  all  useful
 1 Gb/s  9000        4  0.0 %      98   98      94
 1 Gb/s  9000        8  0.0 %      98   98      95
 1 Gb/s  9000        8  0.1 %      93   89      97
 1 Gb/s  9000        8  1.0 %      92   89      85
 1 Gb/s  9000       16  0.0 %      98   98      95
 1 Gb/s  1500        8  0.0 %     100  100      90
10 Gb/s  9000       16  0.0 %      98   98      94
";
