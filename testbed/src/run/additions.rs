//! Decides what options add to the plan of boxes and workers: a capture of each box. Pure.

use std::path::{Path, PathBuf};

use super::plan::{BoxPlan, Plan};
use super::push::PushPlan;

impl Plan {
    /// Lets each box capture what its port sees, at most so much.
    pub fn capture(&mut self, directory: &Path, size_max_mib: u64) {
        self.boxes.iter_mut().for_each(|planned| planned.capture(directory, size_max_mib));
    }
}

impl PushPlan {
    /// Lets each box capture what its port sees, at most so much.
    pub fn capture(&mut self, directory: &Path, size_max_mib: u64) {
        self.boxes.iter_mut().for_each(|planned| planned.capture(directory, size_max_mib));
    }
}

impl BoxPlan {
    fn capture(&mut self, directory: &Path, size_max_mib: u64) {
        let path = capture_path(directory, &self.name).to_string_lossy().into_owned();
        let size = i64::try_from(size_max_mib).unwrap_or(i64::MAX);
        let fields = [("pcap", path.into()), ("size_max_mib", size.into())];
        self.change("trace", &fields);
    }

    /// Sets fields of a section of its file.
    fn change(&mut self, section: &str, fields: &[(&str, toml::Value)]) {
        let mut table: toml::Table = self.config.parse().expect("it was written here");
        let there = table.entry(section).or_insert_with(|| toml::Table::new().into());
        for (key, value) in fields {
            let there = there.as_table_mut().expect("a section is a table");
            there.insert((*key).to_owned(), value.clone());
        }
        self.config = toml::to_string(&table).expect("a table of plain values");
    }
}

/// Where the capture of a box is in the run directory.
#[must_use]
pub(super) fn capture_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.pcap"))
}

/// Where the capture of a box is kept that was killed and started again: of its first life, 0, and
/// so on.
#[must_use]
pub(super) fn life_path(capture: &Path, life: u32) -> PathBuf {
    capture.with_extension(format!("life{life}.pcap"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::plan::{Io, Place};
    use crate::scenario::Scenario;

    fn plan() -> Plan {
        let text = include_str!("../../scenarios/digits.toml");
        let scenario = Scenario::parse("digits.toml", text).expect("the shipped scenario");
        Plan::new(&scenario, Io::Dpdk, Place::Lab, 1).expect("it fits")
    }

    #[test]
    fn what_is_added_leaves_the_rest_of_a_file_alone() {
        let (before, mut after) = (plan(), plan());
        after.capture(Path::new("out/x"), 7);
        let read = |plan: &Plan| plan.boxes[0].config.parse::<toml::Table>().expect("TOML");
        let (before, mut after) = (read(&before), read(&after));
        let trace = after.remove("trace").expect("a capture");
        assert_eq!(trace["pcap"].as_str(), Some("out/x/a0.pcap"));
        assert_eq!(trace["size_max_mib"].as_integer(), Some(7));
        assert_eq!(before, after);
    }

    #[test]
    fn lives_have_files_of_their_own() {
        let path = capture_path(Path::new("run"), "a0");
        assert_eq!(life_path(&path, 1), Path::new("run/a0.life1.pcap"));
    }
}
