use super::*;

const ALL_CAPABILITIES: u64 = u64::MAX;

/// A machine on which everything is as it should be.
fn good() -> Facts {
    Facts {
        hugepages: Hugepages { total: 1024, free: 1000, size_kib: 2048 },
        iommu_groups: 30,
        vfio_pci_loaded: true,
        vfio_pci_devices: vec!["0000:3b:00.0".to_owned()],
        numa_nodes: 1,
        cpus: 8,
        capabilities: ALL_CAPABILITIES,
        user_namespaces: UserNamespaces::Allowed,
        qdiscs: Qdisc::ALL.map(|qdisc| (qdisc, QdiscState::Works)).to_vec(),
        offloaded: Vec::new(),
        dpdk_version: Some("22.11.5".to_owned()),
        weft_version: "0.1.0".to_owned(),
        weft_node: Some(NodeBinary {
            path: "/usr/bin/weft-node".into(),
            version: Some("0.1.0".to_owned()),
            dpdk: true,
        }),
        tools: TOOLS.map(|tool| tool.0).to_vec(),
    }
}

fn without_dpdk(facts: &mut Facts) {
    facts.weft_node.as_mut().unwrap().dpdk = false;
}

fn forbidden() -> UserNamespaces {
    UserNamespaces::Forbidden { fix: "sysctl".to_owned() }
}

#[test]
fn a_good_machine_has_nothing_to_fix() {
    let diagnosis = Diagnosis::new(&good());
    for finding in &diagnosis.findings {
        assert_eq!((finding.level, &finding.fix), (Level::Ok, &None), "{finding}");
    }
    assert_eq!(diagnosis.modes, [Mode::DpdkVeth, Mode::DpdkMemif, Mode::UdpLoopback]);
}

#[test]
fn every_flaw_has_its_level_and_its_fix() {
    type Flaw = fn(&mut Facts);
    let table: [(Flaw, &str, Level, &str); 22] = [
        (|f| f.hugepages = Hugepages::default(), "hugepages", Level::Warn, "vm.nr_hugepages"),
        (|f| f.hugepages.free = 0, "hugepages", Level::Warn, "vm.nr_hugepages"),
        (|f| f.iommu_groups = 0, "iommu", Level::Warn, "intel_iommu=on"),
        (|f| f.vfio_pci_devices.clear(), "driver", Level::Warn, "dpdk-devbind.py"),
        (|f| f.numa_nodes = 2, "numa", Level::Warn, "numa_node"),
        (|f| f.cpus = 2, "numa", Level::Warn, "at least 3"),
        (|f| f.capabilities = 0, "capabilities", Level::Warn, "run as root"),
        (|f| f.user_namespaces = forbidden(), "user namespaces", Level::Warn, "sysctl"),
        (|f| f.qdiscs[0].1 = QdiscState::Missing, "qdisc htb", Level::Warn, "modprobe sch_htb"),
        (|f| f.qdiscs[1].1 = QdiscState::Unknown, "qdisc tbf", Level::Warn, "as root"),
        (|f| f.qdiscs[2].1 = QdiscState::Missing, "qdisc netem", Level::Warn, "[faults]"),
        (
            |f| f.offloaded = vec!["w0".to_owned(), "w1".to_owned()],
            "offloads",
            Level::Warn,
            "`ethtool -K DEV tx off gso off tso off gro off`",
        ),
        (|f| f.dpdk_version = None, "libdpdk", Level::Warn, "apt install libdpdk-dev"),
        (
            |f| (f.dpdk_version, f.weft_node) = (None, None),
            "libdpdk",
            Level::Fail,
            "apt install libdpdk-dev",
        ),
        (without_dpdk, "weft-node", Level::Warn, "--features dpdk"),
        (|f| f.weft_node = None, "weft-node", Level::Fail, "cargo build"),
        (|f| f.weft_version = "0.2.0".to_owned(), "weft-node", Level::Fail, "one commit"),
        (|f| f.tools.retain(|t| *t != "tc"), "tc", Level::Fail, "apt install iproute2"),
        (|f| f.tools.retain(|t| *t != "tshark"), "tshark", Level::Warn, "apt install tshark"),
        (|f| f.tools.retain(|t| *t != "mn"), "mn", Level::Warn, "apt install mininet"),
        (
            |f| f.tools.retain(|t| *t != "simple_switch_grpc"),
            "simple_switch_grpc",
            Level::Warn,
            "docs/switch.md",
        ),
        (without_dpdk, "demo", Level::Warn, "install DPDK"),
    ];
    for (flaw, name, level, fix) in table {
        let mut facts = good();
        flaw(&mut facts);
        let diagnosis = Diagnosis::new(&facts);
        let finding = diagnosis.findings.iter().find(|f| f.name == name).unwrap();
        assert_eq!(finding.level, level, "{finding}");
        assert!(finding.fix.as_deref().unwrap_or("").contains(fix), "{finding}");
        let flawed = diagnosis.findings.iter().all(|f| (f.level == Level::Ok) == f.fix.is_none());
        assert!(flawed, "a finding without a fix, or a fix without a flaw");
    }
}

#[test]
fn the_demo_falls_back_in_the_designs_order() {
    let modes_with = |change: fn(&mut Facts)| {
        let mut facts = good();
        change(&mut facts);
        Diagnosis::new(&facts).modes
    };
    let (veth, memif, udp) = (Mode::DpdkVeth, Mode::DpdkMemif, Mode::UdpLoopback);
    assert_eq!(modes_with(|f| f.capabilities = 0), [veth, memif, udp]);
    assert_eq!(modes_with(|f| f.user_namespaces = forbidden()), [veth, memif, udp]);
    let neither = |f: &mut Facts| (f.capabilities, f.user_namespaces) = (0, forbidden());
    assert_eq!(modes_with(neither), [memif, udp]);
    assert_eq!(modes_with(|f| f.tools.clear()), [memif, udp]);
    assert_eq!(modes_with(without_dpdk), [udp]);
    assert_eq!(modes_with(|f| f.weft_node = None), []);
    assert_eq!(modes_with(|f| f.weft_version.clear()), []);
    let mut facts = good();
    neither(&mut facts);
    let findings = Diagnosis::new(&facts).findings;
    let finding = findings.iter().find(|f| f.name == "user namespaces").unwrap();
    assert_eq!(finding.level, Level::Fail);
}

#[test]
fn a_finding_is_one_line() {
    let mut facts = good();
    facts.iommu_groups = 0;
    let findings = Diagnosis::new(&facts).findings;
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.iter().all(|line| line.lines().count() == 1));
    assert_eq!(lines[0], "ok hugepages: 1000 of 1024 pages of 2048 KiB are free");
    assert!(lines[1].starts_with("warn iommu: no IOMMU groups — only real NICs"), "{}", lines[1]);
}
