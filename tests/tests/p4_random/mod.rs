//! Random and hostile frames, the same ones for the Rust engine and for the compiled P4 program, in
//! the interpreter and in BMv2 where it is: the same frames leave, and the same refusals are
//! counted. Seeds are fixed; a failure prints its
//! seed and the script, which `weft conformance` takes.

mod invariants;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use weft_engine::random::SplitMix64;
use weft_testbed::conformance::target::Kind;
use weft_testbed::conformance::{observe, parse};
use weft_tests::live::skip;

struct Random(SplitMix64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[usize::try_from(self.below(of.len() as u64)).expect("a list is short")]
    }

    fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What makes a frame one that its sender has no right to, or that fits nothing.
const WRONG: &[&str] = &[
    "cookie wrong",
    "cookie stale",
    "cookie 0",
    "from a.0",
    "from port 7001",
    "from 10.99.0.1:7000",
    "members none",
    "members 0,1",
    "members 2",
    "members 63",
    "members 0xffffffffffffffff",
    "generation other",
    "row 7",
    "row 65535",
    "job 77",
    "version 0",
    "version 2",
    "kind 0",
    "kind 8",
    "kind 15",
    "type_op 0x00",
    "type_op 0xff",
    "type f32",
    "operation max",
    "exponent 1",
    "exponent 127",
    "exponent -127",
    "count 0",
    "count 31",
    "count 33",
    "count 65535",
    "chunk 4294967295",
    "chunk 4096",
    "checksum wrong",
    "checksum missing",
    "cut 32",
    "cut 36",
    "cut 159",
    "cut 164",
    "truncate 60",
    "truncate 74",
    "truncate 77",
    "truncate 150",
];

fn script(seed: u64) -> String {
    let mut random = Random(SplitMix64::new(seed));
    let window = random.one(&["1", "2", "4"]);
    let mut text = format!(
        "# Random frames, seed {seed}\nrow a job 1 row 0 members 3 window {window}\n\
         row b job 4 row 2 members 2 window 2 operation max exponent agreed\n{PUSH}\
         join a.0 a.1 a.2\njoin b.0 b.1\n"
    );
    text +=
        if PUSH.is_empty() { "" } else { "join c.0 c.1\ngroup c row 5 generation 3 replicate\n" };
    let senders: &[&str] = if PUSH.is_empty() {
        &["a.0", "a.1", "a.2", "b.0", "b.1"]
    } else {
        &["a.0", "a.1", "a.2", "b.0", "b.1", "c.0", "c.1", "c.server", "c.server"]
    };
    let mut low = [0_u64; 2];
    for line in 0..LINES {
        let sender = random.one(senders);
        let lease = usize::from(sender.starts_with('b'));
        // Steps go on, or nothing would ever be claimed anew.
        if line % 12 == 11 {
            low[lease] += 1;
        }
        let span = if sender.starts_with('c') { 3 } else { 5 };
        let first = if sender.starts_with('c') { 0 } else { low[lease] };
        let chunk = first + random.below(span);
        let kind = match sender {
            "c.server" => "PULL",
            _ if random.is(15) && !sender.starts_with('c') => "STATUS",
            _ => "CONTRIB",
        };
        let _ = write!(text, "{sender} > {kind} chunk {chunk}");
        if kind == "CONTRIB" {
            let _ = write!(text, " values {} {}", random.0.next_u32().cast_signed(), line);
        }
        if kind == "PULL" {
            let _ =
                write!(text, " members {}", random.one(&["0,1", "0,1", "0,1", "0", "1", "none"]));
        }
        if sender.starts_with('b') {
            let _ = write!(text, " exponent {}", random.one(&["0", "0", "0", "-3"]));
        }
        if random.is(20) {
            text += random.one(&[" flags RETRANSMIT", " flags CLAMPED", " congestion"]);
        }
        if random.is(30) {
            let wrong = random.one(WRONG);
            let _ = write!(text, " {wrong}");
        }
        text.push('\n');
    }
    text
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4/build")
}

/// Gives both the same frames; how many left.
fn compare(seed: u64, kind: Kind) -> usize {
    let programs = programs();
    let text = script(seed);
    let script = parse("random", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let seen = |kind| {
        observe(&script, kind, &programs)
            .unwrap_or_else(|refused| panic!("seed {seed}: {refused:?}\n{text}"))
    };
    let (engine, program) = (seen(Kind::Rust), seen(kind));
    let first = (0..engine.len().max(program.len())).find(|at| engine.get(*at) != program.get(*at));
    if let Some(at) = first {
        let name = kind.name();
        let (engine, program) = (engine.get(at), program.get(at));
        panic!("seed {seed}\nrust: {engine:?}\n{name}: {program:?}\n{text}");
    }
    engine.len()
}

#[test]
fn the_p4_program_answers_random_frames_as_the_engine_does() {
    let frames: usize = (0..SEEDS).map(|seed| compare(seed, Kind::Json)).sum();
    assert!(frames > 1000, "the frames were about something: {frames}");
}

#[test]
fn bmv2_answers_random_frames_as_the_engine_does() {
    if let Some(reason) = Kind::Bmv2.absence() {
        assert!(std::env::var_os("WEFT_REQUIRE_P4").is_none(), "{reason}: see docs/switch.md");
        return skip("bmv2_answers_random_frames_as_the_engine_does", &reason);
    }
    // Other seeds than the interpreter's: each of them is cover of its own.
    let frames: usize = (SEEDS..SEEDS + SEEDS_BMV2).map(|seed| compare(seed, Kind::Bmv2)).sum();
    assert!(frames > 200, "the frames were about something: {frames}");
}

const SEEDS: u64 = 24;
const SEEDS_BMV2: u64 = 6;
const LINES: u64 = 150;
const PUSH: &str = "push c job 6 members 2 chunks 3 replica\n";
