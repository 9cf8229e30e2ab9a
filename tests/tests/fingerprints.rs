//! 200 seeds of each simulation do what they did: every frame, event and message, at the same time.
//!
//! A change that is to change nothing on the wire passes as it is. One that does change something
//! is blessed, and its commit says why: `WEFT_BLESS=1 cargo test -p weft-tests --test
//! fingerprints`.

use std::fmt::{Debug, Write as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use weft_sim::transcript::Fingerprint;
use weft_sim::{allreduce, push};
use weft_wire::Nanos;

/// One run of one seed.
type Run<K> = fn(K, u64) -> (Fingerprint, Nanos);

const ALLREDUCE: [allreduce::scenario::Kind; 7] = {
    use allreduce::scenario::Kind::{Death, Faults, Greedy, Killed, Late, Restart, Return};
    [Faults, Restart, Death, Return, Late, Greedy, Killed]
};

fn run_allreduce(kind: allreduce::scenario::Kind, seed: u64) -> (Fingerprint, Nanos) {
    let report = allreduce::run(&allreduce::scenario::Scenario::new(kind, seed), false);
    (report.fingerprint, report.ended_at)
}

fn run_push(kind: push::scenario::Kind, seed: u64) -> (Fingerprint, Nanos) {
    let report = push::run(&push::scenario::Scenario::new(kind, seed), false);
    (report.fingerprint, report.ended_at)
}

/// A line for each of 200 seeds or a few more, as many of every kind.
fn lines<K: Copy + Debug + Sync>(kinds: &[K], run: Run<K>) -> Vec<String> {
    let per_kind = SEEDS.div_ceil(kinds.len());
    let next = AtomicUsize::new(0);
    let lines = Mutex::new(vec![String::new(); per_kind * kinds.len()]);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let work = || loop {
        let place = next.fetch_add(1, Ordering::Relaxed);
        let Some(kind) = kinds.get(place / per_kind) else { return };
        let seed = (place % per_kind) as u64;
        let (Fingerprint { frames, events }, ended_at) = run(*kind, seed);
        let line = format!("{kind:?},{seed},{frames:016x},{events:016x},{}", ended_at.0);
        lines.lock().expect("a run panicked")[place] = line;
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    lines.into_inner().expect("a run panicked")
}

/// Holds the lines against the file, or writes it where that is asked for.
fn compare(file: &str, lines: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fingerprints").join(file);
    let text = lines.iter().fold(format!("{HEAD}\n"), |mut text, line| {
        writeln!(text, "{line}").expect("a string takes everything");
        text
    });
    if env::var_os("WEFT_BLESS").is_some() {
        return fs::write(&path, text).expect("the file can be written");
    }
    let there = fs::read_to_string(&path).expect("the fingerprints are there");
    let changed: Vec<_> = text.lines().zip(there.lines()).filter(|(new, old)| new != old).collect();
    assert!(
        changed.is_empty() && text.len() == there.len(),
        "{} of {} seeds do something else (now, before): {:#?}",
        changed.len(),
        lines.len(),
        &changed[..changed.len().min(5)]
    );
}

#[test]
fn allreduce_does_what_it_did() {
    compare("allreduce.csv", &lines(&ALLREDUCE, run_allreduce));
}

#[test]
fn push_does_what_it_did() {
    compare("push.csv", &lines(&push::scenario::Kind::ALL, run_push));
}

/// Of each simulation, at least.
const SEEDS: usize = 200;
const HEAD: &str = "kind,seed,frames,events,ended_ns";
