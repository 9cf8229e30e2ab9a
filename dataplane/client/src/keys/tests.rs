//! Configurations that cannot be, and what callers are told.

use std::net::SocketAddr;

use weft_engine::role::keys::TableError;

use super::*;
use crate::config::Io;

fn config() -> KeyConfig {
    let addr = |host| SocketAddr::from(([127, 0, 0, host], 4000));
    KeyConfig::new(addr(9), vec![addr(1), addr(2)], 0, 100, 1000)
}

#[test]
fn what_cannot_be_is_said_before_a_port_is_opened() {
    let refused = |change: &dyn Fn(&mut KeyConfig)| {
        let mut config = config();
        change(&mut config);
        KeySession::connect(&config).unwrap_err()
    };
    let table = |error| match error {
        KeyError::Table(error) => error,
        other => panic!("{other}"),
    };
    assert_eq!(table(refused(&|it| it.processes.clear())), TableError::Processes(0));
    assert_eq!(table(refused(&|it| it.row_len = 0)), TableError::NoElements);
    assert_eq!(table(refused(&|it| it.key_count = 0)), TableError::Keys(0));
    assert_eq!(table(refused(&|it| it.table = 4096)), TableError::Table(4096));
    assert!(matches!(table(refused(&|it| it.row_len = 400)), TableError::RowTooLong { .. }));
    let field = |error| match error {
        KeyError::Config { field, .. } => field,
        other => panic!("{other}"),
    };
    assert_eq!(field(refused(&|it| it.me = 2)), "me");
    assert_eq!(field(refused(&|it| it.home = it.processes[1])), "processes");
    assert_eq!(field(refused(&|it| it.processes[1] = it.processes[0])), "processes");
    assert_eq!(field(refused(&|it| it.home = "[::1]:5".parse().unwrap())), "processes");
    assert_eq!(field(refused(&|it| it.dscp = 64)), "dscp");
}

#[test]
fn a_message_shows_a_few_keys_and_counts_the_others() {
    let error = KeyError::RowsLost { keys: (0..11).collect() };
    let expected = "the rows of keys 0, 1, 2, 3, 4, 5, 6, 7 and 3 more are lost with the process \
                    that had them: restart the job";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_port_that_cannot_be_is_refused_by_name() {
    let config = |io, ip: [u8; 4]| {
        let processes = vec![SocketAddr::from((ip, 24_851))];
        KeyConfig { io, ..KeyConfig::new("127.0.0.1:9".parse().unwrap(), processes, 0, 4, 1) }
    };
    let refused = |config: &KeyConfig| KeySession::connect(config).expect_err("it is refused");
    let shared = refused(&config(Io::Shm, [127, 0, 0, 1]));
    assert!(matches!(shared, KeyError::Config { field: "io", .. }), "{shared:?}");
    let loopback = refused(&config(Io::AfPacket, [127, 0, 0, 1]));
    assert!(matches!(loopback, KeyError::Config { field: "local", .. }), "{loopback:?}");
    // 192.0.2.1 is nobody's.
    let nowhere = refused(&config(Io::AfPacket, [192, 0, 2, 1]));
    assert!(nowhere.to_string().contains("no interface"), "{nowhere:?}");
    let nobodys = refused(&config(Io::Udp, [192, 0, 2, 1]));
    let KeyError::Open(error) = &nobodys else { panic!("{nobodys:?}") };
    assert!(matches!(**error, crate::Error::Port(_)), "{nobodys:?}");
}
