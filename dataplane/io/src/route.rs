//! Reads the kernel's routing tables: through whom a packet goes to an address.
//!
//! Source: the kernel's `/proc/net/route` and `/proc/net/ipv6_route`, which follow the network
//! namespace of the calling thread's process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The router that the kernel would send a packet to `target` through on `interface`; `None` when
/// the target is on the link, or no route says otherwise.
#[must_use]
pub fn router_to(target: IpAddr, interface: &str) -> Option<IpAddr> {
    match target {
        IpAddr::V4(target) => {
            let table = std::fs::read_to_string("/proc/thread-self/net/route").ok()?;
            router_v4(&table, target, interface).map(IpAddr::V4)
        }
        IpAddr::V6(target) => {
            let table = std::fs::read_to_string("/proc/thread-self/net/ipv6_route").ok()?;
            router_v6(&table, target, interface).map(IpAddr::V6)
        }
    }
}

/// The longest prefix wins, then the smallest metric.
fn router_v4(table: &str, target: Ipv4Addr, interface: &str) -> Option<Ipv4Addr> {
    let address = |hex: &str| u32::from_str_radix(hex, 16).ok().map(u32::from_be);
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [name, network, router, flags, _, _, metric, mask, ..] = fields[..] else {
            return None;
        };
        let (network, router, mask) = (address(network)?, address(router)?, address(mask)?);
        let is_up = u32::from_str_radix(flags, 16).ok()? & RTF_UP != 0;
        let suits = is_up && name == interface && u32::from(target) & mask == network;
        let metric: u32 = metric.parse().ok()?;
        suits.then_some((mask, u32::MAX - metric, router))
    });
    let (_, _, router) = routes.max()?;
    (router != 0).then(|| Ipv4Addr::from(router))
}

fn router_v6(table: &str, target: Ipv6Addr, interface: &str) -> Option<Ipv6Addr> {
    let address = |hex: &str| u128::from_str_radix(hex, 16).ok();
    let routes = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [network, len, _, _, router, metric, _, _, flags, name] = fields[..] else {
            return None;
        };
        let (network, router) = (address(network)?, address(router)?);
        let len = u32::from_str_radix(len, 16).ok()?;
        let (metric, flags) =
            (u32::from_str_radix(metric, 16).ok()?, u32::from_str_radix(flags, 16).ok()?);
        let differing = (u128::from(target) ^ network).checked_shr(128 - len.min(128)).unwrap_or(0);
        let suits = flags & RTF_UP != 0 && name == interface && differing == 0;
        suits.then_some((len, u32::MAX - metric, router))
    });
    let (_, _, router) = routes.max()?;
    (router != 0).then(|| Ipv6Addr::from(router))
}

/// The route can be used (linux/route.h).
const RTF_UP: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_of_the_interface_decides() {
        // As a little-endian kernel prints it.
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n\
            eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
            eth0\t0000140A\tFE00000A\t0003\t0\t0\t9\t0000FFFF\t0\t0\t0\n\
            eth0\t0000140A\tFD00000A\t0003\t0\t0\t5\t0000FFFF\t0\t0\t0\n\
            eth0\t0000150A\tFC00000A\t0002\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
            eth1\t0000140A\t0100010A\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let router = |target: [u8; 4]| router_v4(table, target.into(), "eth0");
        let host = |last| Some(Ipv4Addr::new(10, 0, 0, last));
        assert_eq!(router([10, 0, 0, 7]), None, "it is on the link");
        assert_eq!(router([10, 20, 0, 7]), host(253), "the smaller metric");
        assert_eq!(router([10, 21, 0, 7]), host(1), "a route that is down is none");
        assert_eq!(router([192, 0, 2, 1]), host(1));
        assert_eq!(router_v4(table, [192, 0, 2, 1].into(), "eth1"), None);
        assert_eq!(router_v4("no table", [192, 0, 2, 1].into(), "eth1"), None);
    }

    #[test]
    fn ipv6_has_a_table_of_its_own() {
        let zero = "0".repeat(32);
        let table = format!(
            "fd00{0} 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001     eth0\n\
             {zero} 00 {zero} 00 fd00{1}fe 00000400 00000001 00000000 00000003     eth0\n\
             {zero} 00 {zero} 00 fd00{1}fd 00000500 00000001 00000000 00000003     eth0\n",
            "0".repeat(28),
            "0".repeat(26)
        );
        let router = |target: &str| router_v6(&table, target.parse().unwrap(), "eth0");
        assert_eq!(router("fd00::7"), None, "it is on the link");
        assert_eq!(router("fd01::7"), Some("fd00::fe".parse().unwrap()));
        assert_eq!(router_v6(&table, "fd01::7".parse().unwrap(), "eth1"), None);
    }
}
