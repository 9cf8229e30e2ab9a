//! Strict-priority queues behind a pacer, in virtual time: who leaves first, where frames wait, for
//! how long at most.

use std::sync::Arc;

use crate::common::{contribution, datagram, route};
use weft_io::bands::{BARE, BURST_NS, Banded, BandsConfig, QUEUES};
use weft_io::marks::JobMarks;
use weft_io::memory::{MemoryPort, link};
use weft_io::{Burst, Frame, Port};
use weft_wire::frame::label::{job_of, traffic_class};
use weft_wire::header::HEADER_LEN;
use weft_wire::{JobId, Nanos};

const US: u64 = 1000;
const MS: u64 = 1000 * US;
/// 100 Mb/s.
const RATE: u64 = 12_500_000;
/// A contribution of 16 elements.
const FRAME_BYTES: u64 = 14 + 20 + 8 + HEADER_LEN as u64 + 64;
/// A frame without elements.
const BARE_BYTES: u64 = 14 + 20 + 8 + HEADER_LEN as u64;
const FRAME_NS: u64 = FRAME_BYTES * 1_000_000_000 / RATE;
/// How often the lane breathes.
const STEP_NS: u64 = 50 * US;
const QUEUE: usize = 256;

struct Rig {
    port: Banded<MemoryPort>,
    peer: MemoryPort,
    marks: Arc<JobMarks>,
    now: u64,
    /// Jobs of frames as they came to the peer, with the time.
    arrived: Vec<(u16, u64)>,
}

impl Rig {
    /// Jobs 0 and 1 in bands 0 and 1.
    fn new(age_max_ns: u64) -> Self {
        let (port, peer) = link(4096, 1500, ["a", "b"]);
        let marks = Arc::new(JobMarks::default());
        for (job, band) in [(0, 0), (1, 1)] {
            assert!(marks.set_band(JobId(job), band));
        }
        let config = BandsConfig { rate_bytes_per_sec: RATE, queue_frames_max: QUEUE, age_max_ns };
        let port = Banded::new(port, config, Arc::clone(&marks));
        Self { port, peer, marks, now: 0, arrived: Vec::new() }
    }

    fn offer(&mut self, job: u16, count: usize) {
        self.offer_some(job, count, contribution(1, 1).to_vec());
    }

    /// Frames without elements.
    fn ask(&mut self, job: u16, count: usize) {
        self.offer_some(job, count, contribution(1, 1)[..HEADER_LEN].to_vec());
    }

    fn offer_some(&mut self, job: u16, count: usize, mut payload: Vec<u8>) {
        payload[2..4].copy_from_slice(&job.to_be_bytes());
        for _ in 0..count {
            let mut tx = Burst::new();
            tx.push(datagram(&mut self.port, &route(), &payload));
            assert_eq!(self.port.tx_burst(Nanos(self.now), &mut tx), 1, "all are taken");
        }
    }

    /// Fills a band's queue.
    fn fill(&mut self, job: u16) {
        let band = usize::from(self.marks.band(JobId(job)));
        self.offer(job, QUEUE - self.port.backlog()[band]);
    }

    fn step(&mut self) {
        self.now += STEP_NS;
        let mut rx = Burst::new();
        self.port.rx_burst(Nanos(self.now), &mut rx);
        loop {
            let mut rx = Burst::new();
            if self.peer.rx_burst(Nanos(self.now), &mut rx) == 0 {
                break;
            }
            let jobs = rx.iter().map(|frame| (job_of(frame.as_ref()).unwrap().0, self.now));
            self.arrived.extend(jobs);
        }
    }

    fn count(&self, job: u16) -> usize {
        self.arrived.iter().filter(|(other, _)| *other == job).count()
    }

    /// The time until job 0 has sent so many, with job 1 always wanting to or not.
    fn time_of(&mut self, frames: usize, is_contended: bool) -> u64 {
        if is_contended {
            self.fill(1);
            for _ in 0..20 {
                self.step();
                self.fill(1);
            }
        }
        let (start, before) = (self.now, self.count(0));
        let mut offered = 0;
        while self.count(0) - before < frames {
            let room = QUEUE - self.port.backlog()[0];
            let more = room.min(frames - offered);
            self.offer(0, more);
            offered += more;
            if is_contended {
                self.fill(1);
            }
            self.step();
            let backlog = self.port.backlog();
            if is_contended && backlog[0] > 0 {
                assert_eq!(backlog[1], QUEUE, "what waits is here, and not below");
            }
        }
        self.now - start
    }
}

#[test]
fn band_0_takes_the_time_that_it_takes_alone_and_the_others_wait_inside() {
    let frames = 4000;
    let alone = Rig::new(u64::MAX).time_of(frames, false);
    let mut rig = Rig::new(u64::MAX);
    let beside = rig.time_of(frames, true);
    let least = frames as u64 * FRAME_NS;
    println!(
        "band 0: {} us alone, {} us beside band 1, {} us on the link",
        alone / US,
        beside / US,
        least / US
    );
    assert!(alone + BURST_NS >= least, "the pacer keeps the rate");
    assert!(beside as f64 <= alone as f64 * 1.05, "{beside} instead of {alone}");
    // Band 1 has had the link before, and no more than the pacer's burst since.
    let first = rig.arrived.iter().position(|(job, _)| *job == 0).unwrap();
    let since = rig.arrived[first..].iter().filter(|(job, _)| *job == 1).count();
    assert!(since as u64 <= BURST_NS / FRAME_NS + 1, "{since} of band 1 went between");
}

#[test]
fn the_rest_goes_last_and_a_band_keeps_its_order() {
    let mut rig = Rig::new(u64::MAX);
    rig.offer(9, 100);
    rig.offer(1, 50);
    rig.offer(0, 50);
    while rig.arrived.len() < 200 {
        rig.step();
    }
    let burst = usize::try_from(BURST_NS / FRAME_NS + 1).unwrap();
    let later: Vec<u16> = rig.arrived[burst..].iter().map(|(job, _)| *job).collect();
    let mut sorted = later.clone();
    sorted.sort_unstable();
    assert_eq!(later, sorted);
}

/// They ask for what the other direction is free for.
#[test]
fn frames_without_elements_wait_for_no_band() {
    let mut rig = Rig::new(u64::MAX);
    rig.fill(0);
    rig.step();
    rig.fill(0);
    rig.ask(1, 30);
    let asked = rig.now;
    while rig.count(1) < 30 {
        rig.fill(0);
        rig.step();
        assert!(rig.now - asked < 2 * MS, "{} of 30 came", rig.count(1));
    }
    let bare = rig.port.counts()[BARE];
    assert_eq!((bare.sent, bare.sent_bytes, bare.full), (30, 30 * BARE_BYTES, 0));
    // Those of nobody's have no such right.
    rig.ask(9, 30);
    for _ in 0..20 {
        rig.fill(0);
        rig.step();
    }
    assert_eq!(rig.count(9), 0);
}

#[test]
fn nobody_waits_longer_than_the_age_limit_and_its_elders() {
    let age = 20 * MS;
    let mut rig = Rig::new(age);
    let ten = 10;
    rig.fill(0);
    rig.offer(1, ten);
    while rig.count(1) < ten {
        rig.fill(0);
        rig.step();
        assert!(rig.now < 10 * age, "band 1 starves");
    }
    let counts = rig.port.counts()[1];
    println!("band 1 waited {} us at most, of {} us", counts.wait_max_ns / US, age / US);
    assert_eq!(counts.aged, ten as u64);
    // Frames of band 0 that are as old go first by then; each takes its time of the link.
    let bound = age + QUEUE as u64 * FRAME_NS + BURST_NS + STEP_NS;
    assert!(counts.wait_max_ns <= bound, "{} ns, more than {bound}", counts.wait_max_ns);
    // And rotation bounds it too: the one that was last is first from the next frame on.
    let mut rig = Rig::new(u64::MAX);
    rig.fill(0);
    rig.fill(1);
    for _ in 0..20 {
        rig.step();
        rig.fill(0);
    }
    assert_eq!(rig.count(1), 0, "without either it starves");
    rig.marks.set_band(JobId(0), 1);
    rig.marks.set_band(JobId(1), 0);
    let turned = rig.now;
    rig.offer(1, 1);
    while rig.count(1) == 0 {
        rig.step();
    }
    let bound = QUEUE as u64 * FRAME_NS + BURST_NS + 2 * STEP_NS;
    assert!(rig.now - turned <= bound, "{} after the turn", rig.now - turned);
}

#[test]
fn a_full_queue_is_counted_and_holds_up_no_other() {
    let mut rig = Rig::new(u64::MAX);
    rig.offer(1, QUEUE + 100);
    rig.offer(0, 10);
    while rig.count(0) < 10 {
        rig.step();
    }
    let counts = rig.port.counts();
    let waits = counts[1];
    assert_eq!(waits.waiting, rig.port.backlog()[1] as u64);
    assert_eq!(waits.waiting_bytes, waits.waiting * FRAME_BYTES);
    assert!((1..=rig.now).contains(&waits.oldest_ns), "{waits:?}");
    assert!((1..=100).contains(&counts[1].full), "{counts:?}");
    assert_eq!(counts[0].full, 0);
    while rig.port.backlog() != [0; QUEUES] {
        rig.step();
    }
    let counts = rig.port.counts();
    assert_eq!(counts[1].sent + counts[1].full, QUEUE as u64 + 100, "each once");
    assert_eq!(rig.count(1) as u64, counts[1].sent);
    assert_eq!((counts[1].waiting, counts[1].waiting_bytes, counts[1].oldest_ns), (0, 0, 0));
}

#[test]
fn a_wait_ends_when_the_link_is_free() {
    let mut rig = Rig::new(u64::MAX);
    rig.offer(0, QUEUE);
    let begun = std::time::Instant::now();
    rig.port.wait(10_000 * MS);
    assert!(begun.elapsed().as_secs() < 5, "there is something to send soon");
}

#[test]
fn labels_are_written_where_jobs_have_them() {
    let marks = JobMarks::default();
    let (mut port, _peer) = link(8, 1500, ["a", "b"]);
    let mut frames = vec![datagram(&mut port, &route(), &contribution(1, 1))];
    let plain = frames[0].as_ref().to_vec();
    marks.label_all(&mut frames);
    assert_eq!(frames[0].as_ref(), plain, "a box without labels changes nothing");
    marks.set_label(JobId(4), 5);
    marks.label_all(&mut frames);
    assert_eq!(frames[0].as_ref(), plain, "nor does another job's");
    marks.set_label(JobId(3), 63);
    marks.label_all(&mut frames);
    assert_eq!(traffic_class(frames[0].as_ref()), Some(63 << 2 | 0b10));
    let _: &mut [u8] = frames[0].buffer_mut();
}
