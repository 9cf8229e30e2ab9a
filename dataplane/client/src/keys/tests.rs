//! Configurations that cannot be, and what callers are told.

use std::net::SocketAddr;

use weft_engine::role::keys::TableError;

use super::*;

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
