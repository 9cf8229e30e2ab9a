//! Compiles the shim with the flags that libdpdk's packager chose, and links libdpdk.
//!
//! Those flags (`-include rte_config.h -march=…`) reach the shim only. DPDK's inline functions
//! need at least the instruction set that the package was built for, and the shim does no
//! arithmetic that a newer one would speed up; weft-kernel picks its own at run time.

use std::process::{Command, exit};

/// All that the shim calls. Drivers are plugins, which EAL loads by itself.
const SHARED: [&str; 5] = ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_ring", "rte_eal"];

/// Drivers register in constructors, which the linker drops unless the archive is taken whole.
const STATIC_WHOLE: [&str; 28] = [
    "rte_net_ring",
    "rte_net_null",
    "rte_net_pcap",
    "rte_net_af_packet",
    "rte_net_memif",
    "rte_net_virtio",
    "rte_net_vhost",
    "rte_net_tap",
    "rte_bus_vdev",
    "rte_bus_pci",
    "rte_mempool_ring",
    "rte_vhost",
    "rte_cryptodev",
    "rte_dmadev",
    "rte_gso",
    "rte_hash",
    "rte_rcu",
    "rte_pci",
    "rte_ethdev",
    "rte_meter",
    "rte_net",
    "rte_security",
    "rte_mbuf",
    "rte_mempool",
    "rte_ring",
    "rte_telemetry",
    "rte_kvargs",
    "rte_eal",
];
const STATIC_SYSTEM: [&str; 5] = ["pcap", "numa", "bsd", "dl", "m"];

fn main() {
    println!("cargo::rerun-if-changed=src/shim");
    let libdpdk = match pkg_config::Config::new()
        .atleast_version("21.11")
        .cargo_metadata(false)
        .probe("libdpdk")
    {
        Ok(library) => library,
        Err(pkg_config::Error::ProbeFailure { .. }) => fail(
            "libdpdk 21.11 or later was not found: apt-get install libdpdk-dev pkg-config, \
             or point PKG_CONFIG_PATH at the folder of libdpdk.pc",
        ),
        Err(error) => fail(&format!("asking pkg-config for libdpdk: {error}")),
    };

    let mut shim = cc::Build::new();
    shim.files(["src/shim/port.c", "src/shim/frame.c"]).opt_level(2).warnings(true);
    // A function that a release lacks must fail here, not when the program is linked.
    shim.flag("-Werror=implicit-function-declaration");
    for path in &libdpdk.include_paths {
        shim.flag("-isystem").flag(path.to_string_lossy().as_ref());
    }
    for flag in packager_flags() {
        shim.flag(&flag);
    }
    shim.compile("weft_dpdk_shim");

    for path in &libdpdk.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    if std::env::var_os("CARGO_FEATURE_DPDK_STATIC").is_some() {
        link_static();
    } else {
        for library in SHARED {
            println!("cargo::rustc-link-lib=dylib={library}");
        }
    }
}

/// `-include rte_config.h` and `-march=…`, which the pkg-config crate does not report.
fn packager_flags() -> Vec<String> {
    let pkg_config = std::env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let output = Command::new(pkg_config).args(["--cflags-only-other", "libdpdk"]).output();
    match output {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
        }
        _ => fail("asking pkg-config for the compiler flags of libdpdk: it failed"),
    }
}

fn link_static() {
    let archives = pkg_config::get_variable("libdpdk", "libdir")
        .unwrap_or_else(|error| fail(&format!("asking pkg-config for libdpdk's libdir: {error}")));
    println!("cargo::rustc-link-search=native={archives}");
    for library in STATIC_WHOLE {
        if !std::path::Path::new(&format!("{archives}/lib{library}.a")).exists() {
            fail(&format!(
                "feature dpdk-static needs {archives}/lib{library}.a: apt-get install libdpdk-dev, \
                 or build DPDK with -Ddefault_library=static"
            ));
        }
        println!("cargo::rustc-link-lib=static:+whole-archive={library}");
    }
    for library in STATIC_SYSTEM {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1);
}
