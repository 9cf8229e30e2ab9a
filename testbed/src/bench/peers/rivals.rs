//! Builds and runs the peers' programs (`testbed/bench/peers`): one for OpenMPI, one for Gloo.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Peer, Place, WARM_UP};
use crate::bench::member::MemberResult;
use crate::bench::network::Network;
use crate::bench::process::{BenchError, Running};

/// The programs that this machine can build.
#[derive(Debug)]
pub struct Rivals {
    directory: PathBuf,
    has_mpi: bool,
    has_gloo: bool,
}

impl Rivals {
    /// Builds them in `directory`. What is not installed is left out, and said so.
    ///
    /// # Errors
    /// When the sources cannot be written.
    pub fn build(directory: &Path) -> Result<Self, BenchError> {
        for (name, text) in SOURCES {
            let path = directory.join(name);
            fs::write(&path, text)
                .map_err(BenchError::system(format!("writing {}", path.display())))?;
        }
        let has_mpi = builds(
            "OpenMPI is left out: apt-get install openmpi-bin libopenmpi-dev",
            Command::new("mpicc").args(["-O2", "-o", "mpi", "mpi_allreduce.c"]),
            directory,
        );
        let has_gloo = builds(
            "Gloo is left out: apt-get install libgloo-dev g++",
            Command::new("g++").args([
                "-O2",
                "-std=c++17",
                "-o",
                "gloo",
                "gloo_allreduce.cc",
                "-lgloo",
                "-lpthread",
            ]),
            directory,
        );
        let agent = directory.join("agent");
        fs::write(&agent, AGENT)
            .and_then(|()| fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)))
            .map_err(BenchError::system("writing mpirun's agent".to_owned()))?;
        Ok(Self { directory: directory.to_owned(), has_mpi, has_gloo })
    }

    /// Whether this machine has it.
    pub(super) fn can_run(&self, peer: Peer) -> bool {
        match peer {
            Peer::OpenMpi | Peer::OpenMpiRing => self.has_mpi,
            Peer::Gloo => self.has_gloo,
            _ => true,
        }
    }

    /// Runs one of them to its end.
    pub(super) fn run(
        &self,
        network: &Network,
        place: Place,
        peer: Peer,
        count: u64,
        iterations: u32,
    ) -> Result<Vec<MemberResult>, BenchError> {
        let sums = [count.max(1).to_string(), WARM_UP.to_string(), iterations.to_string()];
        let ips = (0..place.workers).map(|rank| network.local(rank, 1).ip().to_string());
        let ips: Vec<String> = ips.collect();
        let outputs = match peer {
            Peer::Gloo => self.run_gloo(network, &ips, &sums)?,
            _ => vec![self.run_mpi(network, &ips, &sums, peer == Peer::OpenMpiRing)?],
        };
        let lines = outputs.iter().flat_map(|text| text.lines());
        let lines = lines.filter(|line| line.starts_with('{'));
        let failed = |how: String| BenchError::Process {
            program: peer.words().0.to_owned(),
            how,
            stderr: outputs.concat(),
        };
        let results: Vec<MemberResult> = lines
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .map_err(|error| failed(format!("printed no result: {error}")))?;
        if results.len() == ips.len() {
            Ok(results)
        } else {
            Err(failed(format!("printed {} results of {}", results.len(), ips.len())))
        }
    }

    /// TCP between the namespaces: shared memory would go around them.
    fn run_mpi(
        &self,
        network: &Network,
        ips: &[String],
        sums: &[String],
        is_ring: bool,
    ) -> Result<String, BenchError> {
        let hosts: Vec<String> = ips.iter().map(|ip| format!("{ip}:1")).collect();
        let mut command = network.command("w0", Path::new("mpirun"));
        command
            .args(["--allow-run-as-root", "--host", &hosts.join(","), "-np"])
            .arg(ips.len().to_string())
            .args(["--mca", "plm_rsh_agent"])
            .arg(self.directory.join("agent"))
            .args(["--mca", "btl", "tcp,self", "--mca", "pml", "ob1"])
            .args(["--mca", "btl_tcp_if_include", SUBNET, "--mca", "oob_tcp_if_include", SUBNET])
            .args(["--mca", "plm_rsh_no_tree_spawn", "1"])
            // Ranks share CPUs here; else those that wait would keep them from those that work.
            .args(["--mca", "mpi_yield_when_idle", "1"]);
        if is_ring {
            command.args(["--mca", "coll_tuned_use_dynamic_rules", "1"]);
            command.args(["--mca", "coll_tuned_allreduce_algorithm", "4"]);
        }
        command.arg(self.directory.join("mpi")).args(sums);
        let lab = network.name().map(ToString::to_string).unwrap_or_default();
        let this = std::env::current_exe().map_err(BenchError::system("finding this program"))?;
        command.env("WEFT_BIN", this).env("WEFT_PEERS_LAB", lab);
        Running::start("mpirun", &mut command)?.finish()
    }

    fn run_gloo(
        &self,
        network: &Network,
        ips: &[String],
        sums: &[String],
    ) -> Result<Vec<String>, BenchError> {
        let store = self.directory.join("store");
        // Files of the run before would be taken for this one's.
        let _ = fs::remove_dir_all(&store);
        fs::create_dir_all(&store)
            .map_err(BenchError::system(format!("making {}", store.display())))?;
        let start = |(rank, ip): (usize, &String)| {
            let mut command = network.command(&format!("w{rank}"), &self.directory.join("gloo"));
            command.args(sums).arg(rank.to_string()).arg(ips.len().to_string()).arg(ip).arg(&store);
            Running::start(&format!("gloo {rank}"), &mut command)
        };
        let ranks: Vec<Running> = ips.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        ranks.into_iter().map(Running::finish).collect()
    }
}

/// True when a program was built.
fn builds(hint: &str, command: &mut Command, directory: &Path) -> bool {
    let built = command.current_dir(directory).output().is_ok_and(|output| output.status.success());
    if !built {
        weft_process::say!("weft: {hint}");
    }
    built
}

const SOURCES: [(&str, &str); 3] = [
    ("allreduce.h", include_str!("../../../bench/peers/allreduce.h")),
    ("mpi_allreduce.c", include_str!("../../../bench/peers/mpi_allreduce.c")),
    ("gloo_allreduce.cc", include_str!("../../../bench/peers/gloo_allreduce.cc")),
];

/// What mpirun takes for ssh: runs a command on the host with this address, which is a namespace.
const AGENT: &str = r#"#!/bin/bash
address=$1
shift
exec "$WEFT_BIN" lab exec "$WEFT_PEERS_LAB" "w$((${address##*.} - 1))" -- bash -c "$*"
"#;
/// The network of a lab's star.
const SUBNET: &str = "10.87.0.0/24";
