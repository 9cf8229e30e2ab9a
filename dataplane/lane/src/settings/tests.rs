//! What a configuration means where it says nothing.

use std::net::{IpAddr, SocketAddr};

use weft_config::node::{
    BandsBy, BandsSection, FixedBand, JobSection, KeysSection, PortSection, PushSection,
    ServerSection, StrangersSection, SwitchPortSection, SwitchSection,
};
use weft_control::{Command, Event, Holding, HoldingCommand, HoldingError};
use weft_kernel::Kernels;

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

/// Lane 0 has them; the others refuse what would get in their way.
#[test]
fn push_jobs_stand_beside_several_lanes() {
    let addr = |host, port| SocketAddr::from(([10, 0, 0, host], port));
    let mut config = config();
    config.lcores.shards = 2;
    config.job.push(JobSection::new(1));
    config.row.push(RowSection::new(0, 1, vec![addr(2, 4000).into()]));
    config.push.push(PushSection::new(2, vec![addr(3, 4000)], addr(4, 5000), 10));
    let settings = Settings::new(config.clone()).expect("it is good");
    let table = settings.table_at(MacAddr::BROADCAST);
    let share = JobConfig { job: JobId(2), slots_max: 1, rate_bytes_per_sec: None, burst_bytes: 0 };
    for lane in 0..2 {
        let mut engine = settings.aggregator(&table, lane, 7_u64, Kernels::detect());
        assert_eq!(engine.gather().reports().count(), usize::from(lane == 0));
        engine.handle_command(Command::Holding(HoldingCommand::InstallJob(share)));
        let (holding, error) = (Holding::Job, HoldingError::Both);
        let refused = (JobId(2), Event::HoldingRefused { holding, error });
        assert_eq!(engine.gather_mut().poll_event(), Some(refused), "the same in lane {lane}");
    }
    config.push[0].workers[0].set_port(4001);
    let problem = Settings::new(config).unwrap_err();
    assert_eq!(problem.field, "push[0].workers");
    assert!(problem.problem.contains("4001"), "{problem:?}");
}

#[test]
fn an_arena_has_room_by_default_and_is_judged() {
    let mut config = config();
    config.job.extend((0..252).map(JobSection::new));
    let settings = Settings::new(config.clone()).expect("it is good");
    assert_eq!((settings.arena.jobs, settings.arena.leases), (4, 8));
    assert_eq!(settings.arena.lease_bytes, 1 << 20);
    config.arena.jobs = Some(5);
    assert_eq!(Settings::new(config.clone()).unwrap_err().field, "arena.jobs");
    config.arena.jobs = None;
    config.arena.leases = Some(1025);
    assert_eq!(Settings::new(config.clone()).unwrap_err().field, "arena.leases");
    config.arena.leases = Some(0);
    config.arena.lease_bytes = u64::MAX;
    assert_eq!(Settings::new(config).unwrap_err().field, "arena.lease_bytes");
}

/// A node behind a switch, with a row and a push job that a switch can serve.
fn behind_a_switch() -> NodeConfig {
    let addr = |host| SocketAddr::from(([10, 0, 0, host], 4000));
    let ports =
        (2..6).map(|host| SwitchPortSection { port: host.into(), ip: [10, 0, 0, host].into() });
    let mut config = NodeConfig::new(PortSection::new(Io::Switch, IpAddr::from([10, 0, 0, 1])));
    config.switch = Some(SwitchSection::new(ports.collect()));
    config.job.push(JobSection::new(1));
    config.row.push(RowSection {
        elements: 32.into(),
        integrity: Integrity::Checksum16,
        ..RowSection::new(0, 1, vec![addr(2).into(), addr(3).into()])
    });
    config.push.push(PushSection {
        elements: 32,
        integrity: Integrity::Checksum16,
        ..PushSection::new(2, vec![addr(2), addr(3)], addr(4), 10)
    });
    config
}

#[test]
fn what_a_switch_cannot_do_is_refused_at_its_key() {
    use weft_control::SumOrder;
    use weft_wire::header::ElementType;
    use weft_wire::hello::Overflow;
    let good = Settings::new(behind_a_switch()).expect("it is good");
    assert_eq!(good.switch.expect("it has one").port_of([10, 0, 0, 5].into()), Some(5));
    let refused = |change: &dyn Fn(&mut NodeConfig)| {
        let mut config = behind_a_switch();
        change(&mut config);
        let problem = Settings::new(config).unwrap_err();
        assert!(!problem.problem.is_empty());
        problem.field
    };
    assert_eq!(refused(&|it| it.switch = None), "switch");
    assert_eq!(refused(&|it| it.port.io = Io::Udp), "switch");
    assert_eq!(refused(&|it| it.lcores.shards = 2), "lcores.shards");
    assert_eq!(refused(&|it| it.row[0].element_type = ElementType::F32), "row[0].element_type");
    assert_eq!(refused(&|it| it.row[0].integrity = Integrity::Crc32c), "row[0].integrity");
    assert_eq!(refused(&|it| it.row[0].overflow = Overflow::Clamp), "row[0].overflow");
    assert_eq!(refused(&|it| it.row[0].elements = 64.into()), "row[0].elements");
    assert_eq!(refused(&|it| it.row[0].window = 2048), "row[0].window");
    assert_eq!(refused(&|it| it.push[0].integrity = Integrity::None), "push[0].integrity");
    assert_eq!(refused(&|it| it.push[0].element_type = ElementType::F32), "push[0].element_type");
    assert_eq!(refused(&|it| it.push[0].overflow = Overflow::Clamp), "push[0].overflow");
    assert_eq!(refused(&|it| it.push[0].chunks = 4096), "push[0].chunks");
    let strange = SocketAddr::from(([10, 0, 9, 9], 4000));
    assert_eq!(refused(&|it| it.row[0].members[1] = strange.into()), "row[0].members");
    assert_eq!(refused(&|it| it.push[0].server = strange), "push[0].server");
    assert_eq!(refused(&|it| it.push[0].replica = Some(strange)), "push[0].replica");
    let ranked = |it: &mut NodeConfig| it.row[0].sum_order = SumOrder::Rank;
    assert_eq!(refused(&ranked), "row[0].sum_order");
    let section = |change: &dyn Fn(&mut SwitchSection)| {
        refused(&|it| change(it.switch.as_mut().expect("it has one")))
    };
    assert_eq!(section(&|it| it.elements = 48), "switch.elements");
    assert_eq!(section(&|it| it.election_id = 0), "switch.election_id");
    assert_eq!(section(&|it| it.port[0].port = 511), "switch.port");
    assert_eq!(section(&|it| it.cpu_port = 3), "switch.cpu_port");
    assert_eq!(section(&|it| it.port[1].ip = it.port[0].ip), "switch.port");
    assert_eq!(section(&|it| it.cpu_rate_bytes_per_sec = 0), "switch.cpu_rate_bytes_per_sec");
}

fn with_table() -> NodeConfig {
    let processes = [2, 3].map(|host| SocketAddr::from(([10, 0, 0, host], 4000)));
    let mut config = config();
    config.keys.push(KeysSection::new(1, 100, 1000, processes.into()));
    config
}

#[test]
fn a_table_of_rows_that_cannot_be_is_refused_at_its_key() {
    let settings = Settings::new(with_table()).expect("it is good");
    let [KeyTable { table, death_timeout, .. }] = &settings.tables[..] else { panic!("one") };
    assert_eq!((table.processes, table.payload_max, death_timeout.0), (2, 1472, 2_000_000_000));
    let refused = |change: &dyn Fn(&mut NodeConfig)| {
        let mut config = with_table();
        change(&mut config);
        Settings::new(config).unwrap_err().to_string()
    };
    let section = |change: &dyn Fn(&mut KeysSection)| refused(&|it| change(&mut it.keys[0]));
    let starts = [
        (section(&|it| it.processes.clear()), "keys[0].processes", "1 to 64"),
        (section(&|it| it.processes[1] = it.processes[0]), "keys[0].processes", "twice"),
        (
            section(&|it| it.processes[1] = "[::1]:1".parse().unwrap()),
            "keys[0].processes",
            "family",
        ),
        (section(&|it| it.row_len = 0), "keys[0].row_len", "at least one element"),
        (section(&|it| it.row_len = 400), "keys[0].row_len", "shorter rows"),
        (section(&|it| it.key_count = 0), "keys[0].key_count", "0 keys"),
        (section(&|it| it.first_key = u64::MAX - 5), "keys[0].key_count", "2^64"),
        (section(&|it| it.table = 0x1000), "keys[0].table", "4095"),
        (section(&|it| it.job = 256), "keys[0].job", "below 256"),
        (section(&|it| it.death_timeout_ms = 0), "keys[0].death_timeout_ms", "at least 1"),
        (section(&|it| it.dscp = 64), "keys[0].dscp", "0 to 63"),
        (section(&|it| it.bulk_dscp = Some(64)), "keys[0].bulk_dscp", "0 to 63"),
        (refused(&|it| it.keys.push(it.keys[0].clone())), "keys[1].table", "another"),
        (refused(&|it| it.lcores.shards = 2), "lcores.shards", "[[keys]]"),
    ];
    for (text, key, why) in starts {
        assert!(text.contains(key) && text.contains(why), "{text}: not {key}, {why}");
    }
}

#[test]
fn a_tables_frames_have_its_labels_and_those_have_their_bands_in_the_boxs_own_port() {
    let mut config = with_table();
    config.keys[0].dscp = 46;
    config.keys[0].bulk_dscp = Some(14);
    let fixed = |dscp, band| FixedBand { dscp, band };
    let section = BandsSection { by: BandsBy::Port, ..BandsSection::host(String::new(), None) };
    config.bands = Some(BandsSection {
        device: None,
        rate_bytes_per_sec: Some(1_250_000),
        fixed: vec![fixed(46, 0), fixed(14, 5)],
        ..section
    });
    let marks = Settings::new(config.clone()).expect("it is good").marks;
    let table = JobId(1);
    assert_eq!((marks.label(table), marks.band(table)), (46, 0));
    // A frame of 577 bytes by its header, of the table's job.
    let mut frame = [0; 58];
    frame[12..18].copy_from_slice(&[0x08, 0, 0x45, 0, 577_u16.to_be_bytes()[0], 65]);
    frame[23] = 17;
    frame[45] = 1;
    assert_eq!(marks.band_of(&frame), Some(5));
    // With the host's classes it is they that order.
    config.bands = Some(BandsSection { by: BandsBy::Host, ..config.bands.unwrap() });
    config.bands.as_mut().expect("it has some").device = Some("eth0".to_owned());
    let marks = Settings::new(config.clone()).expect("it is good").marks;
    assert_eq!((marks.label(table), marks.band(table), marks.band_of(&frame)), (46, 7, Some(7)));
    // A job has one label, whatever it has in it.
    config.bands = None;
    let mut another = config.keys[0].clone();
    (another.table, another.bulk_dscp) = (1, None);
    config.keys.push(another);
    let refused = Settings::new(config.clone()).unwrap_err().to_string();
    assert!(refused.contains("keys[1].bulk_dscp"), "{refused}");
    (config.keys[1].bulk_dscp, config.keys[1].dscp) = (Some(14), 4);
    let refused = Settings::new(config.clone()).unwrap_err().to_string();
    assert!(refused.contains("keys[1].dscp"), "{refused}");
    config.keys[1].dscp = 46;
    assert!(Settings::new(config).is_ok());
}

#[test]
fn bands_for_good_need_no_controller_and_are_refused_where_they_cannot_be() {
    let refused = |fixed: &[(u8, u8)]| {
        let mut config = config();
        let fixed = fixed.iter().map(|(dscp, band)| FixedBand { dscp: *dscp, band: *band });
        let fixed = fixed.collect();
        let host = BandsSection::host("eth0".to_owned(), Some(1_250_000));
        config.bands = Some(BandsSection { fixed, ..host });
        Settings::new(config).err().map(|error| error.to_string())
    };
    assert_eq!(refused(&[(46, 0), (1, 6), (63, 0)]), None);
    for (fixed, why) in [
        (&[][..], "a controller or by [[bands.fixed]]"),
        (&[(0, 0)], "1 to 63"),
        (&[(64, 0)], "1 to 63"),
        (&[(46, 7)], "0 to 6"),
        (&[(46, 0), (14, 1), (46, 1)], "twice"),
    ] {
        let text = refused(fixed).expect("it is refused");
        assert!(text.contains("bands") && text.contains(why), "{text}: not {why}");
    }
}
