//! Sums a vector over all workers. Start an aggregator and as many of these as its row has members:
//!
//! `cargo run -p weft-client --example allreduce -- 127.0.0.1:22500 127.0.0.1:22341 0`
//! (this worker's address, the aggregator's, this worker's rank)

use anyhow::Context;
use weft_client::{Config, Session};

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = |what| args.next().with_context(|| format!("missing argument: {what}"));
    let local = next("this worker's address")?.parse()?;
    let aggregator = next("the aggregator's address")?.parse()?;
    let rank = next("this worker's rank")?.parse()?;

    let mut session = Session::connect(&Config::new(local, aggregator).rank(rank))?;
    let workers = session.lease().fan_in;

    let mut gradient: Vec<f32> = (0..50_000_u16).map(|i| f32::from(i % 100) / 8.0).collect();
    let report = session.allreduce(&mut gradient)?;
    println!("{workers} workers, {} chunks in {} us", report.chunks, report.duration_ns / 1000);
    println!("gradient[7] is now {}", gradient[7]);

    session.close()?;
    Ok(())
}
