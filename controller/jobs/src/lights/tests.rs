use super::*;

#[test]
fn explore() {
    let rounds: u32 = std::env::var("R").ok().and_then(|r| r.parse().ok()).unwrap_or(60);
    let at = |p: &Placement| Setting { rounds, ..Setting::published(p, 1) };
    let scale = 1500.0 / f64::from(rounds);
    let step = at(&PLACEMENTS[7]).fit(1045e9 / scale);
    std::println!("step {step}");
    for p in &PLACEMENTS {
        let s = at(p);
        let f = s.run(BandPolicy::Fifo, step);
        let o = s.run(BandPolicy::One, step);
        let r = s.run(BandPolicy::RoundRobin, step);
        let j = f.mean_jct_s() * scale;
        std::println!(
            "{} fifo {j:.0} {:+.1}% wait {:.3} var {:.4} one {:.2} ({:?}) w {:.3} v {:.4} rr {:.2} ({:?}) w{:.3} v{:.4}",
            p.number, 100.0 * (j / p.fifo_jct_s - 1.0), f.wait_mean_ns / 1e9, f.wait_variance_ns2 / 1e18,
            o.mean_jct_s() * scale / j, p.one, o.wait_mean_ns / 1e9, o.wait_variance_ns2 / 1e18,
            r.mean_jct_s() * scale / j, p.round_robin, r.wait_mean_ns / 1e9, r.wait_variance_ns2 / 1e18
        );
    }
}
