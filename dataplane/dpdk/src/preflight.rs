//! What EAL would report in many lines, or not at all: decides from its arguments and what this
//! machine has, before EAL starts once and for all.

use weft_io::nic::has_interface;

/// What this machine lacks for these EAL arguments, and what to do.
#[must_use]
pub fn lacks(args: &[String]) -> Option<String> {
    let needs_huge = !args.iter().any(|arg| arg == "--no-huge");
    if needs_huge && free_hugepages() == Some(0) {
        return Some(
            "no hugepage is free: `echo 512 > /proc/sys/vm/nr_hugepages` as root, or do without \
             them (`--no-huge`, dpdk.no_huge = true: virtual devices only)"
                .to_owned(),
        );
    }
    let may_open = may_open_packet_sockets();
    packet_interfaces(args)
        .find_map(|interface| lacks_of(interface, has_interface(interface), may_open))
}

/// The kernel interfaces that net_af_packet devices among the arguments name.
pub fn packet_interfaces(args: &[String]) -> impl Iterator<Item = &str> {
    args.iter().filter_map(|arg| packet_interface(arg))
}

fn lacks_of(interface: &str, is_there: bool, may_open: bool) -> Option<String> {
    if !is_there {
        return Some(format!(
            "net_af_packet: no interface {interface} in this network namespace; see `ip link`"
        ));
    }
    (!may_open).then(|| {
        format!(
            "net_af_packet on {interface} needs CAP_NET_RAW: run as root, or `setcap \
             cap_net_raw+ep` this binary"
        )
    })
}

fn packet_interface(arg: &str) -> Option<&str> {
    let devargs = arg.strip_prefix("--vdev=").unwrap_or(arg);
    let options = devargs.strip_prefix("net_af_packet")?.split(',');
    options.into_iter().find_map(|option| option.strip_prefix("iface="))
}

/// True unless this process is known to lack CAP_NET_RAW.
fn may_open_packet_sockets() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_none_or(|bits| bits >> CAP_NET_RAW & 1 == 1)
}

/// Free hugepages of any size, if the kernel says.
fn free_hugepages() -> Option<u64> {
    let sizes = std::fs::read_dir("/sys/kernel/mm/hugepages").ok()?;
    let free = sizes.filter_map(|size| {
        let text = std::fs::read_to_string(size.ok()?.path().join("free_hugepages")).ok()?;
        text.trim().parse::<u64>().ok()
    });
    Some(free.sum())
}

const CAP_NET_RAW: u32 = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_an_af_packet_device_is_found() {
        assert_eq!(
            packet_interface("--vdev=net_af_packet0,iface=veth0,blocksz=4096"),
            Some("veth0")
        );
        assert_eq!(packet_interface("net_af_packet1,iface=eth1"), Some("eth1"));
        assert_eq!(packet_interface("--vdev=net_null0,iface=eth1"), None);
    }

    #[test]
    fn what_a_packet_device_lacks_is_said() {
        let args = ["--no-huge", "--vdev=net_af_packet0,iface=weft-nowhere"].map(str::to_owned);
        assert!(lacks(&args).unwrap().contains("no interface weft-nowhere"));
        assert!(lacks_of("lo", true, false).unwrap().contains("CAP_NET_RAW"));
        assert_eq!(lacks_of("lo", true, true), None);
        assert_eq!(lacks(&args[..1]), None);
    }
}
