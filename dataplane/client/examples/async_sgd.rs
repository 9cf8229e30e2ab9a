//! Linear regression by asynchronous SGD. Start a server with a model of 256 parameters or more,
//! and as many of these as its job has workers:
//!
//! `cargo run -p weft-client --example async_sgd -- 127.0.0.1:22500 127.0.0.1:22341 0`
//! (this worker's address, the server's, this worker's rank)

use anyhow::Context;
use weft_client::push::{Outcome, PushConfig, PushSession};

const PARAMETERS: usize = 8;
const STEPS: usize = 200;
const LEARNING_RATE: f32 = 0.05;

/// A sequence of numbers in -1..1, the same in every run.
fn next(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let [high, low, ..] = state.to_be_bytes();
    f32::from(i16::from_be_bytes([high, low])) / 32_768.0
}

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut arg = |what| args.next().with_context(|| format!("missing argument: {what}"));
    let local = arg("this worker's address")?.parse()?;
    let server = arg("the server's address")?.parse()?;
    let rank = arg("this worker's rank")?.parse()?;

    let mut session = PushSession::connect(&PushConfig::new(local, server).rank(rank))?;
    let step = LEARNING_RATE / session.worker_count() as f32;
    let truth: Vec<f32> = (1..=PARAMETERS).map(|index| index as f32 / 4.0).collect();
    let mut random = u64::from(rank) + 1;
    let mut model = [0.0; PARAMETERS];
    for round in 0..STEPS {
        let version = session.pull(&mut model)?;
        let mut update = [0.0; PARAMETERS];
        let mut loss = 0.0;
        for _ in 0..16 {
            let x: [f32; PARAMETERS] = std::array::from_fn(|_| next(&mut random));
            let error: f32 = x.iter().zip(&model).zip(&truth).map(|((x, w), t)| x * (w - t)).sum();
            update.iter_mut().zip(x).for_each(|(u, x)| *u -= step * error * x);
            loss += error * error / 16.0;
        }
        let outcome = session.push(&update, version)?.wait()?;
        if round % 20 == 0 || outcome == Outcome::Dropped {
            println!("step {round}: loss {loss:.6} on version {}, {outcome:?}", version.0);
        }
    }
    let version = session.pull(&mut model)?;
    println!("version {}: {model:.3?}", version.0);
    session.close()?;
    Ok(())
}
