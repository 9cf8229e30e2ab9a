//! Workers on links of a rate, with queues of a length: how far a round is from the bound S/B.

use alloc::string::ToString;

use super::*;

/// Links to and from each worker: first in, first out, and what finds the queue full is lost.
struct Links {
    frame_ns: u64,
    queue_frames: u64,
    /// When each link is idle again, up and down.
    free_at: Vec<[Nanos; 2]>,
}

impl Links {
    /// When a frame that is sent now has passed its link.
    fn pass(&mut self, p: Passing<'_>, len: usize, full_len: usize) -> Fate {
        let free_at = &mut self.free_at[p.rank][usize::from(p.up)];
        let waiting_ns = free_at.since(p.now).0;
        if waiting_ns > self.queue_frames * self.frame_ns {
            return Fate::Drop;
        }
        let own_ns = self.frame_ns * len as u64 / full_len as u64;
        *free_at = (*free_at).max(p.now).saturating_add(Nanos(own_ns));
        Fate::Delay(free_at.since(p.now))
    }
}

/// What a round on such links takes over the bound, in thousandths, and repeats in a thousand.
fn round(members: usize, frame_us: u64, queue_frames: u64, chunks: usize) -> (u64, u64) {
    let mut sim = Sim::new(members, 256, 1);
    let (frame_ns, full_len) = (1_000 * frame_us, 42 + 32 + 16);
    let free_at = vec![[Nanos(0); 2]; members];
    let mut links = Links { frame_ns, queue_frames, free_at };
    sim.connect();
    sim.hook = Box::new(move |p| {
        let has_elements = p.header.count > 0;
        links.pass(p, if has_elements { full_len } else { 60 }, full_len)
    });
    let start = sim.now;
    sim.begin_all(chunks);
    sim.finish_round(Nanos::from_millis(60_000));
    let bound_ns = frame_ns * chunks as u64;
    let sent = (members * chunks) as u64;
    let repeats = sim.total(|s| s.retransmissions);
    (sim.now.since(start).0 * 1_000 / bound_ns, repeats * 1_000 / sent)
}

/// A change of this table is no failure by itself: say in its commit what made links fuller, or why
/// they may be emptier. 88 us are a frame of 1.1 kB at 100 Mb/s, 44 at 200, 17 at 500.
#[test]
fn a_round_on_shaped_links_takes_little_more_than_its_bound() {
    let mut table = "\n".to_string();
    for frame_us in [88, 44, 17] {
        for queue_frames in [1_000, 100, 20] {
            let (took, repeats) = round(4, frame_us, queue_frames, 4_096);
            table += &format!("{frame_us} us  {queue_frames:>4}  {took:>4}  {repeats:>2}\n");
        }
    }
    assert_eq!(table, TABLE, "now:\n{table}");
}

/// Time of a frame, frames in a queue, time over the bound and repeats in thousandths.
const TABLE: &str = "
88 us  1000  1000   0
88 us   100  1000   0
88 us    20  1000  16
44 us  1000  1000   0
44 us   100  1000   0
44 us    20  1000  15
17 us  1000  1001   0
17 us   100  1001   0
17 us    20  1001  17
";
