use super::*;

fn error(text: &str) -> String {
    parse("x.script", text).unwrap_err().to_string()
}

const ROW: &str = "row job 1 row 0 members 2\n";

#[test]
fn an_error_names_file_line_and_column() {
    let at = |rest: &str| error(&format!("{ROW}{rest}"));
    assert_eq!(at("0 > CONTRIB chank 1"), "x.script:2:13: there is no field chank");
    assert_eq!(at("0 > CONTRIB chunk x"), "x.script:2:19: x is no chunk");
    assert_eq!(at("0 > CONTRIB chunk"), "x.script:2:18: chunk is missing");
    assert_eq!(at("2 > CONTRIB"), "x.script:2:1: 2 is neither a peer nor a step");
    assert_eq!(at("0 = CONTRIB"), "x.script:2:3: = is neither > nor <");
    assert_eq!(at("0 < SUM"), "x.script:2:5: SUM is no kind of frame");
    assert_eq!(at("+5m silent"), "x.script:2:1: +5m is no time");
    assert_eq!(at("silent now"), "x.script:2:8: now is not known here");
    assert_eq!(at("0 > raw 0g"), "x.script:2:9: 0g is no hexadecimal bytes");
    assert_eq!(at("0 > CONTRIB flags LOUD"), "x.script:2:19: LOUD is no flag");
    assert_eq!(at("silent\nrow a job 2"), "x.script:3:1: what a box has is said before all else");
    assert_eq!(at("row job 2"), "x.script:2:5: only one row or push job has no name");
    assert_eq!(error("# nothing"), "x.script:1:1: there is no row and no push job");
    assert_eq!(error("row job 1 members 65"), "x.script:1:19: 1 to 64 members");
}

#[test]
fn times_add_up_and_comments_say_nothing() {
    let text = format!("# A title\n{ROW}+5ms 0 > STATUS # why\n\n+20us silent\nsilent\n");
    let script = parse("x.script", &text).unwrap();
    assert_eq!(script.title, "A title");
    let times: Vec<u64> = script.lines.iter().map(|line| line.at.0).collect();
    assert_eq!(times, [5_000_000, 5_020_000, 5_020_000]);
}
