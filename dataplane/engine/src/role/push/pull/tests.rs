use alloc::collections::VecDeque;

use weft_wire::frame::Endpoint;
use weft_wire::{JobId, MacAddr, Rank};

use super::*;

const MS: u64 = 1_000_000;
const CHUNKS: u32 = 400;
const ELEMENTS: u16 = 4;
/// A chunk takes so long on the server's link.
const CHUNK_NS: u64 = 90_000;

/// And a question so long on its way.
const DELAY_NS: u64 = 250_000;

/// A puller, and a server that answers everything it is asked, in order, over a link that others
/// may have for a while.
struct Rig {
    puller: Puller,
    stats: PusherStats,
    now: u64,
    /// Chunks that are asked for and not answered, once for each time they were asked for, and when
    /// the server has the question.
    queue: VecDeque<(u32, u64)>,
    asked: u32,
    answered: u32,
}

impl Rig {
    fn new() -> Self {
        let end = |addr: &str| Endpoint { mac: MacAddr([2; 6]), addr: addr.parse().unwrap() };
        let rank = Rank::new(0).unwrap();
        let config = PusherConfig::new(JobId(0), rank, end("10.0.0.2:2"), end("10.0.0.1:1"));
        let mut puller = Puller::new(&config);
        puller.begin(Nanos(0), (CHUNKS * 4) as usize, ELEMENTS, None, SERVER);
        assert!(!puller.take_version(Nanos(0), Version(1)));
        let (stats, queue) = (PusherStats::default(), VecDeque::new());
        Self { puller, stats, now: 0, queue, asked: 0, answered: 0 }
    }

    fn ask(&mut self) {
        self.puller.handle_timeout(Nanos(self.now), &mut self.stats);
        while let Some(turn) = self.puller.turn() {
            self.puller.sent(turn, Nanos(self.now));
            self.queue.push_back((turn.chunk, self.now + DELAY_NS));
            self.asked += 1;
        }
    }

    /// For so long; `is_free`: the link is the puller's. `lost`: which answers are lost.
    fn run(&mut self, span_ns: u64, is_free: bool, lost: impl Fn(u32, u64) -> bool) {
        let kernels = Kernels::detect();
        let until = self.now + span_ns;
        while self.now < until && !self.puller.is_idle() {
            self.ask();
            self.now += CHUNK_NS;
            let now = self.now;
            if !is_free {
                continue;
            }
            let Some((chunk, _)) = self.queue.pop_front_if(|(_, at)| *at <= now) else {
                continue;
            };
            self.answered += 1;
            if !lost(self.answered, now) {
                let at = Nanos(self.now);
                let elements = [0; ELEMENTS as usize * 4];
                let stats = &mut self.stats;
                let _ = self.puller.take_answer(at, kernels, chunk, &elements, false, stats);
            }
        }
    }
}

#[test]
fn a_wait_behind_others_costs_a_few_questions_and_no_window() {
    let mut rig = Rig::new();
    rig.run(9 * MS, true, |_, _| false);
    let before = rig.puller.path.window();
    rig.run(200 * MS, false, |_, _| false);
    rig.run(1_000 * MS, true, |_, _| false);
    assert!(rig.puller.is_idle(), "{} of {CHUNKS}", rig.answered);
    // What was out when the wait began is asked for twice, and one chunk at each timeout.
    assert!(rig.asked <= CHUNKS + before + 10, "{} questions for {CHUNKS} chunks", rig.asked);
    assert!(rig.puller.path.window() >= before, "{} of {before}", rig.puller.path.window());
    // The link was never idle: all was answered as fast as it goes.
    let least = 200 * MS + u64::from(CHUNKS) * CHUNK_NS;
    assert!(rig.now <= least + 20 * MS, "{} ns, {least} at least", rig.now);
}

#[test]
fn what_is_lost_is_asked_for_again_soon() {
    let cases: [&dyn Fn(u32, u64) -> bool; 3] = [
        &|answer, _| answer.is_multiple_of(10),
        // All of several windows.
        &|_, now| (9 * MS..20 * MS).contains(&now),
        &|answer, _| (CHUNKS - 3..=CHUNKS).contains(&answer),
    ];
    for lost in cases {
        let mut rig = Rig::new();
        rig.run(2_000 * MS, true, lost);
        assert!(rig.puller.is_idle(), "{} answers", rig.answered);
        assert!(rig.now < 300 * MS, "{} ms", rig.now / MS);
    }
}
