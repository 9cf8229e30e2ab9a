//! Makes the reference pages of `docs/reference` out of the types that read the files.
//!
//! A key that a type has is on its page, with the type's own documentation, and no other is. The
//! sources are read as text, so that documentation comments are there; nothing is compiled in.

mod page;
mod types;

use std::path::{Path, PathBuf};
use std::{fs, io};

/// A page: which type a file is read into, and what a reader should know before its keys.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// File name under `docs/reference`.
    pub file: &'static str,
    /// The type of the whole file.
    root: &'static str,
    /// Sources, files or folders. A type that two of them have is taken from the first.
    sources: &'static [&'static str],
    /// Title and introduction.
    head: &'static str,
}

/// All pages.
pub const PAGES: &[Page] = &[
    Page {
        file: "node.md",
        root: "NodeConfig",
        sources: &[
            "proto/config/src/node.rs",
            "proto/config/src/node",
            "proto/config/src/format.rs",
            "proto/config/src/tls.rs",
            "proto/control/src/band.rs",
            "proto/control/src/modes.rs",
            "proto/wire/src/header/code.rs",
            "proto/wire/src/hello/code.rs",
        ],
        head: "# Keys of a node's file\n\n\
            What `weft-node --config node.toml` reads. `--check-config` says whether a file is \
            good,\n`--print-config` shows it with every default filled in. Examples are in\n\
            [dataplane/node/configs](../../dataplane/node/configs).\n",
    },
    Page {
        file: "controller.md",
        root: "ControllerConfig",
        sources: &[
            "proto/config/src/controller.rs",
            "proto/config/src/controller",
            "proto/config/src/format.rs",
            "proto/config/src/tls.rs",
            "proto/control/src/band.rs",
            "proto/control/src/modes.rs",
            "proto/wire/src/header/code.rs",
        ],
        head: "# Keys of the controller's file\n\n\
            What `weft-controller --config controller.toml` reads. An example is in\n\
            [controller/daemon/configs](../../controller/daemon/configs).\n",
    },
    Page {
        file: "scenario.md",
        root: "Scenario",
        sources: &[
            "testbed/src/scenario",
            "proto/control/src/band.rs",
            "proto/control/src/modes.rs",
            "proto/wire/src/header/code.rs",
        ],
        head: "# Keys of a scenario\n\n\
            What `weft run` and `weft compare` read. Examples are in\n\
            [testbed/scenarios](../../testbed/scenarios).\n",
    },
    Page {
        file: "jobs.md",
        root: "JobsScenario",
        sources: &[
            "testbed/src/scenario",
            "proto/control/src/modes.rs",
            "proto/wire/src/header/code.rs",
        ],
        head: "# Keys of a scenario of several jobs\n\n\
            What `weft run` reads when the file has a list `[[job]]`. Examples are\n\
            [lights.toml](../../testbed/scenarios/lights.toml) and\n\
            [trace.toml](../../testbed/scenarios/trace.toml).\n",
    },
    Page {
        file: "factorisation.md",
        root: "FactorisationScenario",
        sources: &["testbed/src/scenario"],
        head: "# Keys of a scenario with `[factorisation]`\n\n\
            What `weft run` reads when the file has that section: processes that factor a matrix \
            over a\ntable of rows ([keys.md](../keys.md)). An example is\n\
            [factorisation.toml](../../testbed/scenarios/factorisation.toml).\n",
    },
    Page {
        file: "topology.md",
        root: "File",
        sources: &["testbed/src/lab/topology/file.rs"],
        head: "# Keys of a topology\n\n\
            What `weft lab up topology.json` reads: the format of the P4 tutorials' Mininet \
            topologies, in\nJSON. An example is [topology.json](../examples/topology.json).\n",
    },
];

impl Page {
    /// The page's text, made of the sources below `root`, the repository.
    ///
    /// # Errors
    /// A source that cannot be read or is no Rust, or a type that no source has.
    pub fn render(&self, root: &Path) -> io::Result<String> {
        let mut files = Vec::new();
        for source in self.sources {
            find_sources(&root.join(source), &mut files)?;
        }
        let mut types = types::Types::default();
        for file in files {
            let text = fs::read_to_string(&file)?;
            let syntax = syn::parse_file(&text).map_err(|error| {
                io::Error::other(format!("reading {}: {error}", file.display()))
            })?;
            types.add(&syntax);
        }
        page::render(self.head, self.root, &types).map_err(io::Error::other)
    }
}

fn find_sources(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        if entry.path().extension().is_some_and(|extension| extension == "rs") {
            files.push(entry.path());
        }
    }
    Ok(())
}
