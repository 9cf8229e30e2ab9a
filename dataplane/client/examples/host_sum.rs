//! Sums over the workers of several hosts, those of one host in memory that they share first. Start
//! the box above, `weft-node --config dataplane/node/configs/two-level-root.toml`, and on each host
//! as many of these as its file has members:
//!
//! `cargo run -p weft-client --example host_sum -- dataplane/node/configs/two-level-leaf.toml 0`
//! (the host's file, this worker's rank there, how many rounds)

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use weft_client::Session;
use weft_client::leaf::{self, Leaf};

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = |what| args.next().with_context(|| format!("missing argument: {what}"));
    let file: PathBuf = next("the host's file")?.into();
    let rank: u8 = next("this worker's rank at its host")?.parse()?;
    let rounds: u32 = next("how many rounds").map_or(Ok(3), |rounds| rounds.parse())?;

    let mut config = leaf::worker(&leaf::read(&file)?, rank)?;
    config.member_timeout = Duration::from_secs(5);
    // The first of the host opens its box, which the others wait for.
    let leaf = if rank == 0 { Some(Leaf::read(&file)?) } else { None };
    if let Some(warning) = leaf.as_ref().and_then(Leaf::warning) {
        eprintln!("{warning}");
    }
    let mut session = Session::connect(&config)?;
    let workers = session.lease().fan_in;
    for round in 0..rounds {
        let mut gradient = vec![f32::from(rank) + 1.0; 50_000];
        session.allreduce(&mut gradient)?;
        println!("round {round}: {workers} workers, sum {}", gradient[7]);
    }
    session.close()?;
    if let Some(leaf) = leaf {
        // The others may still be closing.
        let _ = leaf.close(Duration::from_secs(2));
    }
    Ok(())
}
