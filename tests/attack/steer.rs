//! `kill -9` in every step of a pause and of a resize, of the box, the controller and a worker, as
//! the controller's own state file shows the steps: the job goes on, and its model has every bit of
//! the reference that switches width and rate at the same rounds. A worker is not replaced, so its
//! job ends, by name and soon.
//!
//! Over UDP on loopback; needs `weft`, `weft-node` and `weft-controller` beside this test.
//! `WEFT_ATTACK_SCALE=20` goes through the tables twenty times.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_tests::live::durable::scale;
use weft_tests::live::run::{Ended, Run};

/// A word of the scenario, by what it comes to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Word {
    Pause,
    Resize(u8),
}

impl Word {
    fn is_resize(self) -> bool {
        matches!(self, Self::Resize(_))
    }
}

/// Whom to kill, and in which step.
type Cell = (bool, &'static str, &'static str);

const BOXES: [&str; 2] = ["a0", "controller"];
const OF_PAUSE: [&str; 4] = ["hold", "stop", "stand", "resume"];
const OF_RESIZE: [&str; 5] = ["hold", "stop", "checkpoint", "lease", "start"];
/// Rounds between two words: the workers of a new width have begun by then.
const ROUNDS: u32 = 14;

/// A digits job with these words, `ROUNDS` apart, and what is killed after them. So many rounds
/// come after the last word.
fn scenario(words: &[Word], kills: &str, rounds_after: u32) -> String {
    let rounds = ROUNDS * u32::try_from(words.len()).expect("a few words") + rounds_after;
    let mut text = format!(
        "name = \"steer\"\n[job]\nworkers = 2\nrounds = {rounds}\nbatch = 16\nhidden = [64]\n\
         learning_rate = 0.05\nmomentum = 0.9\nelement_type = \"i32\"\nscale_exponent = -20\n\
         [resize]\nplaces = 4\n"
    );
    for (word, round) in words.iter().zip((1u32..).map(|word| word * ROUNDS)) {
        let what = match word {
            Word::Pause => "pause_ms = 50".to_owned(),
            Word::Resize(workers) => format!("workers = {workers}"),
        };
        write!(text, "[[resize.word]]\nafter_round = {round}\n{what}\n").expect("it is memory");
    }
    text + kills
}

fn kill(name: &str, word: usize, when: &str) -> String {
    format!("[[resize.kill]]\nbox = \"{name}\"\nword = {word}\n{when}\n")
}

/// One run at a time: a word that comes late meets a job that ends.
static ALONE: Mutex<()> = Mutex::new(());

fn run(text: &str) -> Ended {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("steer.toml");
    fs::write(&path, text).expect("a file in a temporary directory");
    let none: [&str; 0] = [];
    Run::start(&path, &none).end(Duration::from_secs(100)).0
}

/// Runs it, and looks that nothing is lost; what it told.
fn whole(words: &[Word], kills: &str) -> Value {
    let text = scenario(words, kills, ROUNDS_AFTER);
    let ended = run(&text);
    let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!(ended.code, Some(0), "{text}\n{json:#}\n{}", ended.stderr);
    assert_eq!((&json["verdict"], &json["model_identical"]), (&"ok".into(), &true.into()));
    let asked = words.iter().filter_map(|word| match word {
        Word::Resize(workers) => Some(u64::from(*workers)),
        Word::Pause => None,
    });
    let widths: Vec<u64> = std::iter::once(2).chain(asked).collect();
    assert_eq!(json["widths"], Value::from(widths), "{text}\n{json:#}");
    json
}

/// What was killed, and in which step.
fn killed(words: &[Word], json: &Value) -> Vec<Cell> {
    let name = |list: &[&'static str], value: &Value| {
        list.iter().copied().find(|name| value.as_str() == Some(name))
    };
    let rows = json["kills"].as_array().expect("rows");
    let cell = |row: &Value| {
        let word = usize::try_from(row["word"].as_u64()?).ok()?;
        let is_resize = words.get(word)?.is_resize();
        let steps: &[&str] = if is_resize { &OF_RESIZE } else { &OF_PAUSE };
        Some((is_resize, name(&BOXES, &row["box"])?, name(steps, &row["step"])?))
    };
    rows.iter().filter_map(cell).collect()
}

#[test]
fn a_box_or_a_controller_that_is_killed_in_any_step_of_a_word_costs_no_bit() {
    use Word::{Pause, Resize};
    let words = [Resize(4), Pause, Resize(2), Pause, Resize(4), Pause, Resize(2), Pause];
    let of = |is_resize: bool, steps: &[&'static str]| -> Vec<Cell> {
        let each = |step| BOXES.map(|name| (is_resize, name, step));
        steps.iter().copied().flat_map(each).collect()
    };
    let cells = [of(true, &OF_RESIZE), of(false, &OF_PAUSE)].concat();
    let all: BTreeSet<Cell> = cells.into_iter().collect();
    for _ in 0..scale() {
        let mut left = all.clone();
        // Some steps take a millisecond, so that it may be over when the kill comes: the next one
        // is met then, and this one is tried again.
        for attempt in 0..ATTEMPTS_MAX {
            let mut next: Vec<Cell> = left.iter().copied().collect();
            let first = attempt % next.len();
            next.rotate_left(first);
            let mut kills = String::new();
            for (index, word) in words.iter().enumerate() {
                let place = next.iter().position(|(is_resize, ..)| *is_resize == word.is_resize());
                let Some(place) = place else { continue };
                let (_, name, step) = next.remove(place);
                kills += &kill(name, index, &format!("step = \"{step}\""));
            }
            let json = whole(&words, &kills);
            for cell in killed(&words, &json) {
                left.remove(&cell);
            }
            println!("{} of {} cells are left", left.len(), all.len());
            if left.is_empty() {
                break;
            }
        }
        assert!(left.is_empty(), "never met: {left:?}");
    }
}

/// The workers are within rounds: they ask the box that came back before it has its lease again.
#[test]
fn a_box_that_is_killed_just_after_a_word_has_its_lease_again_before_anybody_hears_it_has_none() {
    let words = [Word::Resize(4), Word::Resize(2)];
    for round in 0..3 * scale() {
        let after_ms = [30, 10, 60][round as usize % 3];
        for word in [1, 0] {
            let json = whole(&words, &kill("a0", word, &format!("after_ms = {after_ms}")));
            assert_eq!(json["killed"], Value::from(vec!["a0"]), "{json:#}");
        }
    }
}

#[test]
fn a_worker_that_is_killed_in_a_step_of_a_word_ends_its_job_by_name_and_soon() {
    let steps =
        [(Word::Resize(4), "hold"), (Word::Resize(4), "checkpoint"), (Word::Pause, "stand")];
    for (word, step) in steps {
        let text = scenario(&[word], &kill("w1", 0, &format!("step = \"{step}\"")), ROUNDS_AFTER);
        let begun = Instant::now();
        let ended = run(&text);
        let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
        assert_eq!((ended.code, &json["verdict"]), (Some(1), &"failed".into()), "{json:#}");
        let problem = json["problems"][0].as_str().unwrap_or_default().to_owned();
        assert!(problem.starts_with("worker 1 of cohort "), "{json:#}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}

/// The last round has ended, or begins just then: no boundary comes after it.
#[test]
fn a_word_to_a_job_that_ends_is_answered_at_once() {
    for (word, rounds_before) in [(Word::Pause, 1), (Word::Resize(4), 1), (Word::Pause, 2)] {
        let text = scenario(&[word], "", ROUNDS);
        let last = 2 * ROUNDS - rounds_before;
        let text =
            text.replace(&format!("after_round = {ROUNDS}"), &format!("after_round = {last}"));
        let begun = Instant::now();
        let ended = run(&text);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}: {:?}", word, begun.elapsed());
        let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
        let problem = json["problems"][0].as_str().unwrap_or_default();
        let is_answered = problem
            == format!(
                "name: the job has begun the last of its {} rounds; it ends by itself",
                2 * ROUNDS
            );
        // With a round left it may be heeded in time.
        let is_heeded = rounds_before > 1 && json["verdict"] == "ok";
        assert!(is_answered || is_heeded, "{json:#}");
    }
}

/// A controller that was killed before it told anybody finds a job that went on meanwhile, and that
/// is not to have ended.
const ROUNDS_AFTER: u32 = 2500;
/// Runs until each cell was met.
const ATTEMPTS_MAX: usize = 12;
