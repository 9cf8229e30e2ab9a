//! The trains that transfers begin with, where the world says what its links can do.

use alloc::boxed::Box;

use super::*;

impl World {
    /// The slowest link of a path, as far as the truth is told.
    fn true_rate(&self, (from, to): (&str, &str)) -> Option<u64> {
        let mut links = vec![format!("{from}.up"), format!("{to}.down")];
        let (out, into) = (self.rack_of.get(from), self.rack_of.get(to));
        if out != into {
            links.extend(out.map(|rack| format!("{rack}.up")));
            links.extend(into.map(|rack| format!("{rack}.down")));
        }
        links.iter().filter_map(|link| self.truth.get(link)).min().copied()
    }

    /// The train that a transfer begins with arrives as the path lets it, and is told.
    pub(super) fn begin_train(&mut self, key: TransferKey, path: (&str, &str), job: u16) {
        let Some(rate) = self.true_rate(path) else { return };
        let of_it = |group: &&GroupDescriptor| group.group == key.group();
        let Some(group) = self.servers[&job].groups.values().find(of_it) else { return };
        let config = &self.jobs[usize::from(job)];
        let (rank, name) = match key {
            TransferKey::Member(_, rank) => {
                (Some(rank), &config.aggregators[usize::from(group.via.unwrap().0)])
            }
            _ => (group.via.is_none().then(|| group.members[0].rank), &config.server),
        };
        if group.train_chunks == 0 {
            return;
        }
        let frame_len = (config.update_bytes() / u64::from(group.chunks)) as u32;
        let gap_ns = u64::from(frame_len) * 1_000_000_000 / rate;
        let arrival = |i: u64| weft_control::TrainArrival {
            at_ns: self.now_ns + i * gap_ns,
            rx_bytes: i * u64::from(frame_len),
        };
        let count = u64::from(group.train_chunks);
        let arrivals = (0..count).map(arrival).collect();
        let train = Train { job: group.job, group: group.group, rank, frame_len, arrivals };
        let name = name.clone();
        let at_ns = self.now_ns + count * gap_ns + MESSAGE_NS;
        self.push(at_ns, Event::Train(name, Box::new(train)));
    }
}
