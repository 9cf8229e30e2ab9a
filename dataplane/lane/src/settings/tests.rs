//! What a configuration means where it says nothing.

use std::net::{IpAddr, SocketAddr};

use weft_config::node::{JobSection, PortSection, ServerSection, StrangersSection};

use super::*;

fn config() -> NodeConfig {
    NodeConfig::new(PortSection::new(Io::Udp, IpAddr::from([10, 0, 0, 1])))
}

#[test]
fn strangers_may_cost_by_default_what_the_engine_says() {
    let settings = Settings::new(config()).expect("a port is enough");
    assert_eq!(settings.strangers, StrangersQuota::default());
    let StrangersSection { rate_bytes_per_sec, burst_bytes } = settings.config.strangers;
    assert_eq!(settings.strangers, StrangersQuota { rate_bytes_per_sec, burst_bytes });
}

#[test]
fn a_row_says_its_defaults_when_it_was_judged() {
    let members = [2, 3].map(|host| SocketAddr::from(([10, 0, 0, host], 4000)).into());
    let mut config = config();
    config.job.push(JobSection::new(1));
    config.row.push(RowSection::new(0, 1, members.into()));
    let settings = Settings::new(config).expect("it is good");
    assert_eq!(settings.config.row[0].fan_in, Some(2));
    assert_eq!(settings.table_at(MacAddr::BROADCAST).config().local.mac, MacAddr::BROADCAST);
}

#[test]
fn a_server_beside_a_row_is_refused_at_its_key() {
    let addr = SocketAddr::from(([10, 0, 0, 2], 4000));
    let mut config = config();
    config.job.push(JobSection::new(1));
    config.row.push(RowSection::new(0, 1, vec![addr.into()]));
    config.server.push(ServerSection::new(2, vec![addr], 10));
    let problem = Settings::new(config.clone()).unwrap_err();
    assert_eq!(problem.field, "server");
    config.row.clear();
    config.server[0].rto_min_us = 0;
    assert_eq!(Settings::new(config).unwrap_err().field, "server[0].rto_min_us");
}
