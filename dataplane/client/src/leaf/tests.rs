use std::net::IpAddr;

use weft_config::node::{JobSection, MemberSection, ParentSection, PortSection, RowSection};

use super::*;

fn good() -> NodeConfig {
    let ip: IpAddr = [127, 0, 0, 1].into();
    let members: Vec<MemberSection> = vec![SocketAddr::from((ip, 24_600)).into()];
    let parent =
        ParentSection { addr: (ip, 24_601).into(), row: 0, rank: 0, source_port: None, mac: None };
    let row =
        RowSection { fan_in: Some(4), parent: Some(parent), ..RowSection::new(0, 0, members) };
    let port = PortSection { udp_port: 24_602, ..PortSection::new(Io::Udp, ip) };
    NodeConfig { job: vec![JobSection::new(0)], row: vec![row], ..NodeConfig::new(port) }
}

fn field_of(shape: impl FnOnce(&mut NodeConfig)) -> Option<String> {
    let mut config = good();
    shape(&mut config);
    problem_of(&config).map(|problem| problem.field)
}

#[test]
fn what_a_leaf_cannot_be_is_named() {
    assert_eq!(field_of(|_| {}), None);
    let parent = field_of(|config| config.row[0].parent = None);
    assert_eq!(parent.as_deref(), Some("row[0].parent"));
    // By default it would be that of this host alone, and sums could overflow.
    let fan_in = field_of(|config| config.row[0].fan_in = None);
    assert_eq!(fan_in.as_deref(), Some("row[0].fan_in"));
    assert_eq!(field_of(|config| config.row.clear()).as_deref(), Some("row"));
    assert_eq!(field_of(|config| config.lcores.shards = 2).as_deref(), Some("lcores.shards"));
    assert_eq!(field_of(|config| config.port.io = Io::AfPacket).as_deref(), Some("port.io"));
    let text = weft_config::to_toml(&good()) + "\n[trace]\npcap = \"leaf.pcap\"\n";
    let traced: NodeConfig = ConfigFile::new("leaf.toml", text).read().unwrap();
    assert_eq!(problem_of(&traced).unwrap().field, "trace");
}

#[test]
fn errors_of_a_file_say_the_line() {
    let directory = std::env::temp_dir().join(format!("weft-leaf-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("leaf.toml");
    let missing = Leaf::read(&path).unwrap_err();
    assert!(matches!(missing, LeafError::File { .. }), "{missing}");
    let mut config = good();
    config.row[0].fan_in = None;
    std::fs::write(&path, weft_config::to_toml(&config)).unwrap();
    let error = Leaf::read(&path).unwrap_err();
    let LeafError::Config(error) = error else { panic!("{error}") };
    assert_eq!(error.field, "row[0].fan_in");
    assert!(error.line > 1, "{error}");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn an_address_that_is_taken_is_said() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:24602").unwrap();
    assert!(matches!(Leaf::open(good()).unwrap_err(), LeafError::Port(_)));
    drop(taken);
    let first = Leaf::open(good()).unwrap();
    assert!(matches!(Leaf::open(good()).unwrap_err(), LeafError::Port(_)));
    // Nobody came, so nobody needs it.
    assert!(first.close(Duration::from_secs(5)));
}
