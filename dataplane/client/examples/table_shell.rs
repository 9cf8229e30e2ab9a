//! One process of a table of rows, told what to do line by line: to try a table by hand, or to have
//! processes that can be killed.
//!
//! Arguments: the home's address, those of all processes with commas, which of them this is,
//! elements of a row, keys; and a folder, if rows of the dead are to come back from what was kept
//! there. It says `ready`, and answers each line of standard input with one:
//!
//! `push KEY VALUE` adds the value to each element, `set KEY VALUE`, `localize KEY`; `pull KEY`
//! says the first element; `keep FOLDER ROUND` and `load FOLDER` are the checkpoint's; `restored`
//! says how many rows came back. What fails is answered with `error` and why.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use weft_client::keys::{KeyConfig, KeySession, OnLoss};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [home, processes, me, row_len, keys, rest @ ..] = &arguments[..] else {
        anyhow::bail!("see the source for its arguments")
    };
    let processes = processes.split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
    let on_loss = rest.first().map_or(OnLoss::End, |folder| OnLoss::Restore(folder.into()));
    let config =
        KeyConfig::new(home.parse()?, processes, me.parse()?, row_len.parse()?, keys.parse()?);
    let session = KeySession::connect(&config.on_loss(on_loss))?;
    answer("ready")?;
    for line in std::io::stdin().lines() {
        match run(&session, &line?) {
            Ok(said) => answer(&said)?,
            Err(error) => answer(&format!("error {error:#}"))?,
        }
    }
    Ok(())
}

fn answer(said: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{said}")?;
    out.flush()
}

fn run(session: &KeySession, line: &str) -> anyhow::Result<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut row = vec![0.0; session.table().row_len.into()];
    let key = || words.get(1).context("a key is missing")?.parse().context("no key");
    let value = || -> anyhow::Result<Vec<f32>> {
        let value: f32 = words.get(2).context("a value is missing")?.parse()?;
        Ok(vec![value; session.table().row_len.into()])
    };
    let folder = || words.get(1).map(Path::new).context("a folder is missing");
    match words.first() {
        Some(&"push") => session.push(&[key()?], &value()?)?,
        Some(&"set") => session.set(&[key()?], &value()?)?,
        Some(&"localize") => session.localize(&[key()?])?,
        Some(&"pull") => {
            session.pull(&[key()?], &mut row)?;
            return Ok(row[0].to_string());
        }
        Some(&"keep") => {
            let round = words.get(2).context("a round is missing")?.parse()?;
            session.checkpoint(folder()?, round)?;
        }
        Some(&"load") => return Ok(session.load(folder()?)?.to_string()),
        Some(&"restored") => return Ok(session.restored().len().to_string()),
        _ => anyhow::bail!("no such word"),
    }
    Ok("ok".to_owned())
}
