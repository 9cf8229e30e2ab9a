//! The replay bench on a device of memory: that it measures sums, and that it notices wrong ones.

use std::time::Duration;

use weft_engine::table::Table;
use weft_kernel::Kernels;
use weft_wire::Nanos;

use super::frames::Frames;
use super::memory::MemoryLoop;
use super::replay::{self, Limit, Outside};
use super::run;
use crate::config::{self, LeaseName, Settings};
use crate::node::Options;

fn settings(integrity: &str) -> Settings {
    let text = format!(
        "[port]\nio = \"udp\"\nip = \"10.77.0.100/16\"\n\n[bench]\nmode = \"loop\"\npackets = \
         3000\ncheck_every = 3\n\n[[job]]\nid = 0\n\n[[row]]\nrow = 0\njob = 0\nexponent = 0\n\
         window = 8\nelements = 16\nintegrity = \"{integrity}\"\nmembers = [\"10.77.1.1:7000\", \
         \"10.77.1.2:7000\", \"10.77.1.3:7000\"]\n"
    );
    config::parse("bench.toml", &text).unwrap()
}

#[test]
fn every_replayed_contribution_enters_a_right_sum() {
    for integrity in ["none", "crc32c", "checksum16"] {
        let options = Options::default();
        let measured = run(&settings(integrity), options).unwrap();
        if integrity == "checksum16" {
            // The restamping does not mend UDP checksums, and the bench says so.
            assert_eq!(measured.contributions_added, 0);
            assert!(measured.drops["integrity"] >= 3000);
            continue;
        }
        assert!(measured.packets >= 3000, "{integrity}");
        assert_eq!(measured.contributions_added, measured.packets, "{integrity}");
        assert!(measured.checked > 90 && measured.wrong == 0, "{integrity} {measured:?}");
    }
}

#[test]
fn every_replayed_contribution_enters_a_whole_lease() {
    for integrity in ["none", "crc32c"] {
        let mut settings = settings(integrity);
        let bench = settings.config.bench.as_mut().unwrap();
        // More than a group's, so that groups change and sums are released.
        (bench.lease, bench.packets) = (LeaseName::Whole, 5_000);
        let measured = run(&settings, Options::default()).unwrap();
        assert!(measured.packets >= 5_000, "{integrity}");
        assert_eq!(measured.contributions_added, measured.packets, "{integrity}");
        assert!(measured.checked > 20 && measured.wrong == 0, "{integrity} {measured:?}");
        assert!(measured.answers > 1_000, "{measured:?}");
    }
}

struct Still;

impl Outside for Still {
    fn now(&self) -> Nanos {
        Nanos(0)
    }
    fn cpu(&self) -> Duration {
        Duration::ZERO
    }
    fn is_stopped(&self) -> bool {
        false
    }
    fn mark(&self, _: &str) {}
    fn wait_to_end(&self) {}
}

#[test]
fn sums_of_other_numbers_are_wrong() {
    let table = Table::new(settings("none").table).unwrap();
    let row = &table.config().rows[0];
    let sent = Frames::new(table.config(), row, 256, 1);
    let expected = Frames::new(table.config(), row, 256, 2);
    let run = replay::Settings { limit: Limit::Packets(3000), seed: 7, check_every: 3 };
    let measured =
        replay::run(MemoryLoop::new(&sent), &table, &expected, run, Kernels::detect(), &Still)
            .unwrap();
    assert_eq!(measured.contributions_added, measured.packets);
    assert!(measured.checked > 90);
    assert_eq!(measured.wrong, measured.checked);
}
