//! Cells of a whole lease: chunk 0 of a group, or beside it.

use super::Way;

fn contribution(rank: u8) -> String {
    format!("{rank} > CONTRIB chunk 0 values {}", rank + 1)
}

/// A contribution and its acknowledgement.
fn entered(rank: u8, have: &str) -> Vec<String> {
    vec![contribution(rank), format!("{rank} < HAVE chunk 0 members {have}")]
}

fn credit(have: &str) -> Vec<String> {
    vec!["server > PULL chunk 0".to_owned(), format!("server < HAVE chunk 0 members {have}")]
}

/// The server has begun anew, and does not know this box: it has no way up.
fn lost() -> Vec<String> {
    vec!["deaf server".to_owned(), "server > STALE cookie got".to_owned()]
}

/// Both are in, and the sum has left.
fn sent() -> Vec<String> {
    let sum = ["server > PULL chunk 0", "server < CONTRIB chunk 0 members 0,1 values 3"];
    let sum = sum.map(str::to_owned).to_vec();
    [entered(0, "0"), entered(1, "0,1"), sum].concat()
}

pub(super) fn way((event, state, step, when): (&str, &str, &str, &str)) -> Option<Way> {
    let way = Way {
        begin: String::new(),
        lead: vec![],
        event: String::new(),
        sender: "server",
        chunk: 0,
        members: 2,
        have: "none",
        sum: 3,
        row: 5,
        besides: "",
    };
    let mut way = match event {
        "contribution" => of_contribution(way, state, step, when)?,
        "credit" => of_credit(way, state, when)?,
        _ => return None,
    };
    // The one member of a group of one is the second: then the first is no member.
    let group = if way.members == 1 { " members 1" } else { "" };
    let workers = way.members.max(2);
    let ranks: Vec<String> = (0..workers).map(|rank| rank.to_string()).collect();
    way.begin = format!(
        "push job 1 members {workers} chunks 3\njoin {}\ngroup row 5 generation 2{group}\n",
        ranks.join(" ")
    );
    Some(way)
}

fn of_contribution(way: Way, state: &str, step: &str, when: &str) -> Option<Way> {
    let one =
        |way| Way { sender: "1", members: 1, have: "1", sum: 2, event: contribution(1), ..way };
    let second = |way| Way { sender: "1", have: "0,1", event: contribution(1), ..way };
    let first = |way, event: &str| Way { sender: "0", event: event.to_owned(), ..way };
    Some(match (state, step, when) {
        ("EMPTY", "claimable", "") => Way { have: "0", ..first(way, &contribution(0)) },
        ("EMPTY", "claimable", "fills") => one(way),
        ("EMPTY", "claimable", "credited fills") => Way { lead: credit("none"), ..one(way) },
        ("EMPTY", "claimable", "credited fills no_way_up") => {
            Way { lead: [credit("none"), lost()].concat(), ..one(way) }
        }
        ("COLLECTING", "new", "") => Way { lead: entered(0, "0"), members: 3, ..second(way) },
        ("COLLECTING", "new", "fills") => Way { lead: entered(0, "0"), ..second(way) },
        ("COLLECTING", "new", "credited fills") => {
            Way { lead: [entered(0, "0"), credit("0")].concat(), ..second(way) }
        }
        ("COLLECTING", "new", "credited fills no_way_up") => {
            Way { lead: [entered(0, "0"), credit("0"), lost()].concat(), ..second(way) }
        }
        ("COLLECTING", "in", "") => {
            Way { lead: entered(0, "0"), have: "0", ..first(way, &contribution(0)) }
        }
        ("SENT", "in", "") => Way { lead: sent(), have: "0,1", ..first(way, &contribution(0)) },
        ("NONE", "foreign", "no_group") => {
            Way { besides: " row 6", ..first(way, "0 > CONTRIB chunk 0 row 6") }
        }
        ("NONE", "foreign", "other_group") => {
            Way { besides: " generation 1", ..first(way, "0 > CONTRIB chunk 0 generation 1") }
        }
        ("NONE", "foreign", "no_member") => Way { members: 1, ..first(way, &contribution(0)) },
        _ => return None,
    })
}

fn of_credit(way: Way, state: &str, when: &str) -> Option<Way> {
    let credit = |way, fields: &str| Way { event: format!("server > PULL chunk 0{fields}"), ..way };
    let with = |lead, have, way| Way { lead, have, ..way };
    Some(match (state, when) {
        ("EMPTY", "") => credit(way, ""),
        ("EMPTY", "no_member") => credit(way, " members none"),
        ("COLLECTING", "") => with(entered(0, "0"), "0", credit(way, "")),
        ("COLLECTING", "full") => {
            with([entered(0, "0"), entered(1, "0,1")].concat(), "0,1", credit(way, ""))
        }
        ("COLLECTING", "no_member") => with(entered(0, "0"), "0", credit(way, " members none")),
        ("COLLECTING", "outside") => with(entered(0, "0"), "0", credit(way, " members 1")),
        ("SENT", "full") => with(sent(), "0,1", credit(way, "")),
        ("SENT", "no_member") => with(sent(), "0,1", credit(way, " members none")),
        ("SENT", "outside") => with(sent(), "0,1", credit(way, " members 1")),
        ("NONE", "no_chunk") => Way { chunk: 3, event: "server > PULL chunk 3".to_owned(), ..way },
        ("NONE", "no_group") => Way { besides: " row 6", ..credit(way, " row 6") },
        ("NONE", "other_group") => Way { besides: " generation 1", ..credit(way, " generation 1") },
        _ => return None,
    })
}
