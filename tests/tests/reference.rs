//! The pages of `docs/reference` have every key that the types have, and the example topology is
//! one.

use std::fs;
use std::path::{Path, PathBuf};

use weft_testbed::lab::topology::Topology;
use weft_tests::reference::PAGES;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_pages_are_what_the_types_say() {
    for page in PAGES {
        let path = root().join("docs/reference").join(page.file);
        let there = fs::read_to_string(&path).unwrap_or_default();
        let made = page.render(&root()).expect("the sources can be read");
        assert!(
            there == made,
            "{} is not what its types say; cargo run -p weft-tests --example make_reference",
            path.display()
        );
    }
}

/// The sections that a user writes first are where they are looked for.
#[test]
fn sections_and_words_are_found() {
    let page = |file: &str| {
        let page = PAGES.iter().find(|page| page.file == file).expect("a page");
        page.render(&root()).expect("the sources can be read")
    };
    let node = page("node.md");
    for expected in [
        "## `[port]`",
        "## `[[row]]`",
        "## `[row.parent]`",
        "| `io` | `udp`, `af_packet`, `dpdk`, `switch`, required |",
    ] {
        assert!(node.contains(expected), "{expected} is not in\n{node}");
    }
    assert!(page("controller.md").contains("| `mode` | `async`, `sync`, `partial` |"));
    assert!(page("scenario.md").contains("## `[[lab.rack]]`"));
    assert!(page("topology.md").contains("## `[hosts.NAME]`"));
}

#[test]
fn the_example_topology_can_be_built() {
    let path = root().join("docs/examples/topology.json");
    let text = fs::read_to_string(&path).expect("the example is there");
    let topology = Topology::from_json(&text).expect("the example is a topology");
    assert!(topology.host("h1").is_some());
}
