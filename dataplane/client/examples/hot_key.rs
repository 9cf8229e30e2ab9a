//! One process of a table of one row that everybody wants: its threads add to the row, pull it and
//! have it come, and tell what they saw. Whoever has started all processes can judge from that
//! whether the key was sequentially consistent (`weft_sim::keys::history`).
//!
//! Arguments: the home's address, those of all processes with commas, which of them this is,
//! threads, rounds, rounds between two localizes, rounds between two sets (0: none). A thread has
//! an element of the row; the last one is of sets. On standard output: `joined`; then, in the order
//! of each thread's calls, `THREAD A` (added 1), `THREAD S NUMBER`, `THREAD P ELEMENTS`; then
//! `done`. Each line on standard input is answered with `L ELEMENTS`, the row of now; at its end
//! the process ends, and a row that is here with it.

use std::io::{BufWriter, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use weft_client::keys::{KeyConfig, KeyError, KeySession};

/// Between two rounds of a thread.
const PAUSE: Duration = Duration::from_micros(20);

struct Plan {
    first: usize,
    row_len: usize,
    rounds: u32,
    localize_every: u32,
    set_every: u32,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [home, processes, numbers @ ..] = &arguments[..] else { anyhow::bail!("see the source") };
    let processes = processes.split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
    let numbers = numbers.iter().map(|it| it.parse()).collect::<Result<Vec<u32>, _>>()?;
    let [me, threads, rounds, localize_every, set_every] = numbers[..] else {
        anyhow::bail!("five numbers are needed")
    };
    let row_len = usize::try_from(threads)? * processes.len() + 1;
    let (me, elements) = (u8::try_from(me)?, u16::try_from(row_len)?);
    let keys = KeySession::connect(&KeyConfig::new(home.parse()?, processes, me, elements, 1))?;
    println!("joined");
    let first = usize::from(me) * usize::try_from(threads)?;
    let plan = &Plan { first, row_len, rounds, localize_every, set_every };
    let seen = std::thread::scope(|scope| {
        let of = |thread| {
            let keys = &keys;
            scope.spawn(move || work(keys, plan, thread))
        };
        let all: Vec<_> = (0..threads).map(of).collect();
        let joined = all.into_iter().map(|thread| thread.join().expect("none panics"));
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    let mut out = BufWriter::new(std::io::stdout());
    seen.iter().try_for_each(|lines| out.write_all(lines.as_bytes()))?;
    writeln!(out, "done")?;
    out.flush()?;
    for line in std::io::stdin().lines() {
        line.context("standard input")?;
        let mut row = vec![0.0; row_len];
        keys.pull(&[0], &mut row)?;
        writeln!(out, "L {}", words(&row))?;
        out.flush()?;
    }
    Ok(())
}

/// What a thread calls, and what it saw.
fn work(keys: &KeySession, plan: &Plan, thread: u32) -> Result<String, KeyError> {
    let session = plan.first + thread as usize;
    let mut one = vec![0.0; plan.row_len];
    one[session] = 1.0;
    let mut seen = String::new();
    for round in 0..plan.rounds {
        if round % plan.localize_every == 0 {
            keys.localize(&[0])?;
        }
        if plan.set_every > 0 && (round + thread * 7) % plan.set_every == plan.set_every - 1 {
            // A number of its own for each set.
            let number = 1 + u32::try_from(session).unwrap_or(0) * plan.rounds + round;
            let mut row = vec![0.0; plan.row_len];
            row[plan.row_len - 1] = number as f32;
            keys.set(&[0], &row)?;
            seen += &format!("{session} S {number}\n");
        }
        let mut row = vec![0.0; plan.row_len];
        if thread.is_multiple_of(2) {
            keys.push(&[0], &one)?;
            keys.pull(&[0], &mut row)?;
        } else {
            // Both at once: the pull comes after the push all the same.
            let (push, pull) = (keys.start_push(&[0], &one)?, keys.start_pull(&[0])?);
            row = pull.wait()?;
            push.wait()?;
        }
        seen += &format!("{session} A\n{session} P {}\n", words(&row));
        // Or the row's process would be through before the row could leave it.
        std::thread::sleep(PAUSE);
    }
    Ok(seen)
}

fn words(row: &[f32]) -> String {
    row.iter().map(f32::to_string).collect::<Vec<_>>().join(" ")
}
