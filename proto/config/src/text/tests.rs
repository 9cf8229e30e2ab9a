//! Mistakes in a file are told with the file, the line and the field.

use alloc::format;
use alloc::string::ToString;

use crate::node::NodeConfig;
use crate::{ConfigFile, Problem};

const GOOD: &str = r#"[port]
io = "udp"
ip = "10.0.0.1/24"
[[row]]
row = 7
job = 3
members = ["10.0.0.2:4000", { addr = "10.0.0.3:4000", weight = 1 }]
parent = { addr = "10.0.0.9:1", row = 0, rank = 64 }
"#;

#[test]
fn mistakes_of_shape_name_line_and_field() {
    for (from, to, expected) in [
        ("row = 7", "row = ", "n.toml:5: "),
        ("job = 3", "jop = 3", "n.toml:6: row[0].jop: unknown field `jop`"),
        ("weight = 1", "wait = 1", "n.toml:7: row[0].members[1].wait: unknown field `wait`"),
        ("row = 7\n", "", "n.toml:4: row[0]: missing field `row`"),
        ("[port]\n", "[nod]\n[port]\n", "n.toml:1: nod: unknown field `nod`"),
    ] {
        let error = ConfigFile::new("n.toml", GOOD.replacen(from, to, 1)).read::<NodeConfig>();
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(expected), "`{to}` gave {error}");
        assert!(!error.contains('\n'), "one line: {error}");
    }
}

#[test]
fn an_integer_that_does_not_fit_is_told_its_range() {
    for (from, to, expected) in [
        (
            "row = 7",
            "row = 70000",
            "n.toml:5: row[0].row: invalid value: integer `70000`, expected an integer from 0 to 65535",
        ),
        (
            "job = 3",
            "job = 3\nexponent = -200",
            "n.toml:7: row[0].exponent: invalid value: integer `-200`, expected an integer from -128 to 127",
        ),
        (
            "job = 3",
            "job = \"x\"",
            "n.toml:6: row[0].job: invalid type: string \"x\", expected an integer from 0 to 65535",
        ),
    ] {
        let error = ConfigFile::new("n.toml", GOOD.replacen(from, to, 1)).read::<NodeConfig>();
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
}

#[test]
fn what_makes_no_sense_is_placed_at_the_deepest_part_that_is_there() {
    let file = ConfigFile::new("n.toml", GOOD);
    for (field, line) in [
        ("row[0].parent.rank", 8),
        ("row[0].members[1].weight", 7),
        ("row[0].window", 4),
        ("row[1].window", 4),
        ("port.mtu", 1),
        ("push[0].job", 1),
    ] {
        let error = file.refuse(&Problem::new(field, "is odd"));
        assert_eq!(error.to_string(), format!("n.toml:{line}: {field}: is odd"));
    }
}
