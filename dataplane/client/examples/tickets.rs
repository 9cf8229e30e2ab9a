//! Sums the gradients of a model's layers while the next ones are computed. Start an aggregator and
//! as many of these as its row has members:
//!
//! `cargo run -p weft-client --example tickets -- 127.0.0.1:22500 127.0.0.1:22341 0`
//! (this worker's address, the aggregator's, this worker's rank)

use anyhow::Context;
use weft_client::{Background, Config, Session};

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = |what| args.next().with_context(|| format!("missing argument: {what}"));
    let local = next("this worker's address")?.parse()?;
    let aggregator = next("the aggregator's address")?.parse()?;
    let rank = next("this worker's rank")?.parse()?;

    let session = Session::connect(&Config::new(local, aggregator).rank(rank))?;
    println!("over {}", session.port());
    let session = Background::new(session)?;

    // Backpropagation gives the last layer's gradient first. Every worker starts them in one order.
    let mut tickets = Vec::new();
    for layer in (0..20_u16).rev() {
        let gradient = backward(layer);
        tickets.push((layer, session.start(gradient)?));
    }
    for (layer, ticket) in tickets {
        let sum = ticket.wait()?;
        println!("layer {layer}: {} values, the first is {}", sum.values.len(), sum.values[0]);
    }

    session.close()?;
    Ok(())
}

/// Stands for what a training program computes.
fn backward(layer: u16) -> Vec<f32> {
    (0..100 + 50 * layer).map(|at| f32::from(at % 100) / 8.0 + f32::from(layer)).collect()
}
