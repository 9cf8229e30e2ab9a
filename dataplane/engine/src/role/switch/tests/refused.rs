//! What a switch cannot do is refused at planning, each with its reason.

use alloc::vec;

use weft_control::{BoxIndex, Command, Event, HoldingCommand, HoldingError, PushConfig, SumOrder};
use weft_wire::frame::Endpoint;
use weft_wire::header::ElementType;
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{JobId, MacAddr, Rank};

use super::world::{agent, boxy, config, row, target};
use crate::table::{ParentConfig, RowConfig};

fn refused(change: impl Fn(&mut RowConfig)) -> &'static str {
    let mut row = row(2);
    change(&mut row);
    target().check_row(&row).unwrap_err().field
}

#[test]
fn a_row_that_a_switch_cannot_serve_is_refused_by_its_field() {
    assert!(target().check_row(&row(2)).is_ok());
    assert_eq!(refused(|row| row.element_type = ElementType::F32), "element_type");
    assert_eq!(refused(|row| row.element_type = ElementType::Bf16), "element_type");
    assert_eq!(refused(|row| row.integrity = Integrity::Crc32c), "integrity");
    assert_eq!(refused(|row| row.integrity = Integrity::None), "integrity");
    assert_eq!(refused(|row| row.overflow = Overflow::Clamp), "overflow");
    assert_eq!(refused(|row| row.sum_order = SumOrder::Rank), "sum_order");
    assert_eq!(refused(|row| row.elements = 8), "elements");
    assert_eq!(refused(|row| row.window = 64), "window");
    assert_eq!(refused(|row| row.members[1].addr = "[fd00::2]:1".parse().unwrap()), "members");
    assert_eq!(refused(|row| row.members[1].addr = "10.9.9.9:1".parse().unwrap()), "members");
    let rank = Rank::new(0).unwrap();
    let parent = ParentConfig { endpoint: boxy(), row: 1, rank, source_port: 5000 };
    assert_eq!(refused(|row| row.parent = Some(parent)), "parent");
}

fn push() -> PushConfig {
    let end = |last: u8| Endpoint {
        mac: MacAddr::BROADCAST,
        addr: alloc::format!("10.0.0.{last}:22341").parse().unwrap(),
    };
    PushConfig {
        job: JobId(9),
        box_index: BoxIndex(0),
        workers: vec!["10.0.0.1:7000".parse().unwrap()],
        server: end(5),
        replica: Some(end(6)),
        quota_bytes: 1 << 16,
        pull_cache_bytes: 1 << 12,
        chunks: 8,
        elements: 4,
        element_type: ElementType::I32,
        overflow: Overflow::Wrap,
        integrity: Integrity::Checksum16,
        exponent: Some(-20),
        rate_bytes_per_sec: None,
        burst_bytes: 0,
    }
}

#[test]
fn a_push_job_that_a_switch_cannot_serve_is_refused_by_its_field() {
    let refused = |change: &dyn Fn(&mut PushConfig)| {
        let mut push = push();
        change(&mut push);
        target().check_push(&push).unwrap_err().field
    };
    assert!(target().check_push(&push()).is_ok());
    assert_eq!(refused(&|push| push.element_type = ElementType::F32), "element_type");
    assert_eq!(refused(&|push| push.integrity = Integrity::Crc32c), "integrity");
    assert_eq!(refused(&|push| push.overflow = Overflow::Clamp), "overflow");
    assert_eq!(refused(&|push| push.elements = 8), "elements");
    assert_eq!(refused(&|push| push.chunks = 65), "chunks");
    assert_eq!(refused(&|push| push.workers[0] = "10.7.7.7:1".parse().unwrap()), "workers");
    assert_eq!(refused(&|push| push.server.addr = "10.7.7.7:1".parse().unwrap()), "server");
    let elsewhere = Endpoint { addr: "10.7.7.7:1".parse().unwrap(), ..push().server };
    assert_eq!(refused(&|push| push.replica = Some(elsewhere)), "replica");
}

#[test]
fn a_box_of_lanes_or_of_ipv6_or_with_too_much_is_no_switch() {
    let field = |change: &dyn Fn(&mut crate::table::BoxConfig)| {
        let mut config = config(vec![row(2)]);
        change(&mut config);
        target().check_box(&config).unwrap_err().field
    };
    assert!(target().check_box(&config(vec![row(2)])).is_ok());
    assert_eq!(field(&|config| config.shards = 2), "shards");
    assert_eq!(field(&|config| config.local.addr = "[fd00::1]:22341".parse().unwrap()), "local");
    assert_eq!(field(&|config| config.rows = vec![row(2); 5]), "rows");
    let wide = RowConfig { window: 32, ..row(2) };
    assert_eq!(field(&|config| config.rows = vec![wide.clone(), row(2)]), "rows");
}

#[test]
fn a_controller_hears_that_a_switch_cannot_do_it() {
    let mut agent = agent(2, 1);
    let lease = RowConfig { row: 8, element_type: ElementType::F32, ..row(2) };
    agent.handle_command(Command::Holding(HoldingCommand::InstallLease(lease)));
    let (_, event) = agent.poll_event().unwrap();
    assert!(
        matches!(event, Event::HoldingRefused { error: HoldingError::Switch, .. }),
        "{event:?}"
    );
}
