//! Cells of a windowed lease whose box answers itself: one slot, two banks.

use super::Way;

/// A contribution of a rank, which is the rank and one.
fn contribution(rank: u8, chunk: u32) -> String {
    format!("{rank} > CONTRIB chunk {chunk} values {}", rank + 1)
}

fn sum(members: u8) -> i32 {
    (1..=i32::from(members)).sum()
}

/// A step that all contribute to, and its answers.
fn full(members: u8, chunk: u32) -> Vec<String> {
    let sum = sum(members);
    let answers = (0..members).map(|rank| format!("{rank} < ANSWER chunk {chunk} values {sum}"));
    (0..members).map(|rank| contribution(rank, chunk)).chain(answers).collect()
}

pub(super) fn way((event, state, step, when): (&str, &str, &str, &str)) -> Option<Way> {
    if event == "hand_over" {
        return hand_over(state, step);
    }
    let is_virtual = when == "virtual";
    let mut sender = 0;
    let (members, chunk, lead) = match (state, step) {
        (_, "new") if is_virtual => (2, 0, vec![]),
        ("EMPTY", "claimable") => (if when == "fills" { 1 } else { 2 }, 0, vec![]),
        ("ANSWERED", "claimable") => {
            let members = if when == "fills" { 1 } else { 2 };
            (members, 2, [full(members, 0), full(members, 1)].concat())
        }
        ("COLLECTING", "new") => {
            sender = 1;
            let members = if when == "fills" || event == "status" { 2 } else { 3 };
            (members, 0, vec![contribution(0, 0)])
        }
        ("COLLECTING", "in") => (2, 0, vec![contribution(0, 0)]),
        ("ANSWERED", "in") => (2, 0, full(2, 0)),
        ("EMPTY", "foreign") => (2, 1, vec![]),
        ("COLLECTING", "foreign") => (2, 2, vec![contribution(0, 0)]),
        ("ANSWERED", "foreign") => (2, 2, full(2, 0)),
        _ => return None,
    };
    let exponent = match when {
        "other_exponent" => " exponent 1",
        "" | "fills" | "virtual" => "",
        _ => return None,
    };
    let event = match event {
        "contribution" => format!("{}{exponent}", contribution(sender, chunk)),
        "status" => format!("{sender} > STATUS chunk {chunk}"),
        _ => return None,
    };
    let agreed = if exponent.is_empty() { "" } else { " exponent agreed" };
    let ranks: Vec<String> = (0..members).map(|rank| rank.to_string()).collect();
    // All hold step 0, so the slot begins behind it.
    let holding = if is_virtual { " holding 0" } else { "" };
    let ranks = ranks.join(" ");
    Some(Way {
        begin: format!(
            "row job 1 row 0 members {members} window 1{agreed}\njoin {ranks}{holding}\n"
        ),
        lead,
        event,
        sender: if sender == 0 { "0" } else { "1" },
        chunk,
        members,
        have: if step == "claimable" { "none" } else { "0" },
        sum: sum(members),
        row: 0,
        besides: "",
    })
}

/// Both hold step 0, and the first step 1 as well: it hands that over.
fn hand_over(state: &str, step: &str) -> Option<Way> {
    let event = || "0 > ANSWER chunk 1 values 7".to_owned();
    let answers = || ["0 < ANSWER chunk 1 values 7", "1 < ANSWER chunk 1 values 7"];
    let done = || std::iter::once(event()).chain(answers().map(str::to_owned)).collect::<Vec<_>>();
    let lead = match (state, step) {
        ("EMPTY", "claimable") => vec![],
        ("COLLECTING", "new") => vec![contribution(1, 1)],
        ("COLLECTING", "in") => vec![contribution(0, 1)],
        ("ANSWERED", "in") => done(),
        ("COLLECTING", "foreign") => [done(), full(2, 2), vec![contribution(0, 3)]].concat(),
        ("ANSWERED", "foreign") => [done(), full(2, 2), full(2, 3)].concat(),
        _ => return None,
    };
    Some(Way {
        begin: "row job 1 row 0 members 2 window 1\njoin 0 holding 0,1\njoin 1 holding 0\n"
            .to_owned(),
        lead,
        event: event(),
        sender: "0",
        chunk: 1,
        members: 2,
        have: "none",
        sum: 7,
        row: 0,
        besides: "",
    })
}
