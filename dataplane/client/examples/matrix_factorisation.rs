//! Factorises a matrix over several processes: the rows of one factor stay where their data is, those
//! of the other move to whoever works on them next (parameter blocking, as DSGD does it).
//!
//! `cargo run -p weft-client --example matrix_factorisation -- 3`
//! (processes, each a session of this program, with their box)

use std::net::{SocketAddr, UdpSocket};
use std::sync::Barrier;
use std::thread;

use anyhow::Context;
use weft_client::keys::{KeyConfig, KeyHome, KeyHomeConfig, KeySession};

const ROWS: u64 = 120;
const COLUMNS: u64 = 90;
const RANK: usize = 4;
const EPOCHS: usize = 30;
const RATE: f32 = 0.05;

fn main() -> anyhow::Result<()> {
    let count = std::env::args().nth(1).context("missing argument: how many processes")?;
    let count: u64 = count.parse().context("how many processes is a number")?;
    anyhow::ensure!((1..=8).contains(&count), "1 to 8 processes, not {count}");
    let sockets: Result<Vec<_>, _> = (0..=count).map(|_| UdpSocket::bind("127.0.0.1:0")).collect();
    let addrs: Result<Vec<SocketAddr>, _> = sockets?.iter().map(UdpSocket::local_addr).collect();
    let addrs = addrs.context("no free port on the loopback")?;
    // Keys 0.. are the rows' factors, those behind them the columns'.
    let config = |me| {
        let keys = u32::try_from(ROWS + COLUMNS).unwrap_or(0);
        KeyConfig::new(me, addrs[0], &addrs[1..]).rows(keys, 4)
    };
    let _home = KeyHome::start(&KeyHomeConfig::of(&config(0)))?;
    let barrier = Barrier::new(usize::try_from(count)?);
    let losses = thread::scope(|scope| {
        let processes = (0..u8::try_from(count).unwrap_or(1)).map(|me| {
            let (config, barrier) = (config(me), &barrier);
            scope.spawn(move || work(&config, u64::from(me), count, barrier))
        });
        let processes: Vec<_> = processes.collect();
        let joined = processes.into_iter().map(|process| process.join().expect("no panic"));
        joined.collect::<anyhow::Result<Vec<f32>>>()
    })?;
    let cells = u16::try_from(ROWS * COLUMNS).map_or(1.0, f32::from);
    println!("{count} processes, mean squared error {:.5}", losses.iter().sum::<f32>() / cells);
    Ok(())
}

/// One process: its rows of the matrix, block of columns by block of columns.
fn work(config: &KeyConfig, me: u64, count: u64, barrier: &Barrier) -> anyhow::Result<f32> {
    let session = KeySession::connect(config)?;
    let mine: Vec<u64> = (me * ROWS / count..(me + 1) * ROWS / count).collect();
    session.localize(&mine)?;
    let begin = |key: u64| (0..RANK).map(move |i| 0.1 + noise(key * 31 + i as u64) * 0.2);
    session.set(&mine, &mine.iter().flat_map(|key| begin(*key)).collect::<Vec<_>>())?;
    let block = |turn: u64| {
        let at = (me + turn) % count;
        (ROWS + at * COLUMNS / count..ROWS + (at + 1) * COLUMNS / count).collect::<Vec<u64>>()
    };
    let own = block(0);
    session.set(&own, &own.iter().flat_map(|key| begin(*key)).collect::<Vec<_>>())?;
    let mut loss = 0.0;
    for _ in 0..EPOCHS {
        loss = 0.0;
        for turn in 0..count {
            barrier.wait();
            let columns = block(turn);
            session.localize(&columns)?;
            for row in &mine {
                for column in &columns {
                    loss += step(&session, *row, *column)?;
                }
            }
        }
    }
    barrier.wait();
    Ok(loss)
}

/// Works on one cell; all that it needs is here.
fn step(session: &KeySession, row: u64, column: u64) -> anyhow::Result<f32> {
    let mut factors = [0.0; 2 * RANK];
    session.pull(&[row, column], &mut factors)?;
    let (left, right) = factors.split_at(RANK);
    let product: f32 = left.iter().zip(right).map(|(a, b)| a * b).sum();
    let error = cell(row, column - ROWS) - product;
    let terms: Vec<f32> = right.iter().chain(left).map(|factor| RATE * error * factor).collect();
    session.push(&[row, column], &terms)?;
    Ok(error * error)
}

/// The matrix: a product of two factors that nobody tells.
fn cell(row: u64, column: u64) -> f32 {
    (0..RANK as u64).map(|i| noise(row * 7 + i) * noise(column * 11 + i + 1_000_000)).sum()
}

/// A number from 0 to 1 that its place decides.
fn noise(place: u64) -> f32 {
    let word = (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    u16::try_from(word & 0xffff).map_or(0.0, f32::from) / 65_536.0
}
