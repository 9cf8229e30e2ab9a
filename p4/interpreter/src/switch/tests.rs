//! A small program after BMv2's `JSON_format.md`: an `op` of two bytes and an `arg` of four, a
//! table by `op`, a register, a vector that may be missing.

use serde_json::{Value as Json, json};

use super::*;
use crate::fault::FaultKind;

fn field(header: &str, name: &str) -> Json {
    json!({ "type": "field", "value": [header, name] })
}

fn hex(value: &str) -> Json {
    json!({ "type": "hexstr", "value": value })
}

fn expr(op: &str, left: Json, right: Json) -> Json {
    let value = json!({ "op": op, "left": left, "right": right });
    json!({ "type": "expression", "value": { "type": "expression", "value": value } })
}

fn named(kind: &str, name: &str) -> Json {
    json!({ "type": kind, "value": name })
}

fn call(op: &str, line: u64, parameters: Vec<Json>) -> Json {
    let info = json!({ "filename": "small.p4", "line": line });
    json!({ "op": op, "parameters": parameters, "source_info": info })
}

/// The program with these primitives in action `act(x)`, which entries of `ops` may name.
fn program(act: Vec<Json>) -> Json {
    let metadata = |name: &str| json!([name, 16, false]);
    let standard = ["ingress_port", "egress_spec", "egress_port", "instance_type", "mcast_grp"];
    let standard = standard.into_iter().chain(["packet_length", "egress_rid", "checksum_error"]);
    let standard: Vec<_> = standard.map(metadata).collect();
    let param = json!([{ "name": "x", "bitwidth": 32 }]);
    let out = call("assign", 2, vec![field("standard_metadata", "egress_spec"), hex("0x02")]);
    let drop = call("mark_to_drop", 3, vec![named("header", "standard_metadata")]);
    let rid = field("standard_metadata", "egress_rid");
    let stamp = call("assign", 4, vec![field("base", "stamp"), rid]);
    let mut act = act;
    act.push(out);
    json!({
        "__meta__": { "version": [2, 23] },
        "header_types": [
            { "name": "standard", "fields": standard },
            { "name": "base", "fields": [["op", 16], ["arg", 32], ["stamp", 8], ["sum", 16]] },
            { "name": "vector", "fields": [["a", 4], ["b", 12], ["wide", 240]] },
            { "name": "large", "fields": [["bits", 2048], ["more", 2048], ["last", 8]] },
        ],
        "headers": [
            { "name": "standard_metadata", "header_type": "standard", "metadata": true },
            { "name": "base", "header_type": "base", "metadata": false },
            { "name": "vector", "header_type": "vector", "metadata": false },
            { "name": "large", "header_type": "large", "metadata": false },
        ],
        "errors": [["NoError", 0], ["PacketTooShort", 1]],
        "parsers": [{ "name": "parser", "init_state": "start", "parse_states": [
            {
                "name": "start",
                "parser_ops": [{ "op": "extract", "parameters": [named("regular", "base")] }],
                "transition_key": [{ "type": "field", "value": ["base", "op"] }],
                "transitions": [
                    { "type": "hexstr", "value": "0x8000", "mask": "0x8000", "next_state": "v" },
                    { "type": "default", "value": null, "mask": null, "next_state": null },
                ],
            },
            {
                "name": "v",
                "parser_ops": [{ "op": "extract", "parameters": [named("regular", "vector")] }],
                "transition_key": [],
                "transitions": [{ "type": "default", "next_state": null }],
            },
        ] }],
        "deparsers": [{ "name": "deparser", "order": ["base", "vector", "large"] }],
        "register_arrays": [
            { "name": "I.narrow", "size": 4, "bitwidth": 32 },
            { "name": "I.wide", "size": 2, "bitwidth": 240 },
        ],
        "counter_arrays": [{ "name": "I.seen", "size": 2 }],
        "meter_arrays": [{ "name": "I.meter", "size": 1 }],
        "calculations": [{ "name": "calc", "algo": "csum16", "input": [
            field("base", "op"), field("base", "arg"), field("vector", "wide"),
            { "type": "payload" },
        ] }],
        "checksums": [{
            "name": "check", "type": "generic", "target": ["base", "sum"], "calculation": "calc",
            "verify": true, "update": true,
        }],
        "actions": [
            { "name": "I.act", "id": 7, "runtime_data": param, "primitives": act },
            { "name": "I.lose", "id": 8, "runtime_data": [], "primitives": [drop] },
            { "name": "E.stamp", "id": 9, "runtime_data": [], "primitives": [stamp] },
        ],
        "pipelines": [
            {
                "name": "ingress", "init_table": "I.ops", "conditionals": [],
                "tables": [{
                    "name": "I.ops", "type": "simple", "match_type": "exact", "max_size": 2,
                    "key": [{ "match_type": "exact", "target": ["base", "op"], "name": "hdr.op" }],
                    "action_ids": [7, 8], "next_tables": { "I.act": null, "I.lose": null },
                    "default_entry": { "action_id": 8, "action_data": [] },
                }],
            },
            {
                "name": "egress", "init_table": "node",
                "conditionals": [{
                    "name": "node", "true_next": "E.tbl", "false_next": null,
                    "expression": expr(">", field("standard_metadata", "egress_rid"), hex("0x00"))
                        ["value"],
                }],
                "tables": [{
                    "name": "E.tbl", "type": "simple", "match_type": "exact", "max_size": 1,
                    "key": [], "action_ids": [9], "next_tables": { "E.stamp": null },
                    "default_entry": { "action_id": 9, "action_data": [] },
                }],
            },
        ],
    })
}

fn switch(act: Vec<Json>) -> Switch {
    let mut switch = Switch::load(&program(act).to_string()).unwrap();
    switch.insert("ops", &[("op", 1)], "act", &[("x", 0xaabb_ccdd)]).unwrap();
    switch.insert("ops", &[("op", 0x8001)], "act", &[("x", 1)]).unwrap();
    switch
}

/// A frame with its checksum, and a vector if the operation has one.
fn frame(op: u16, arg: u32, rest: &[u8]) -> Vec<u8> {
    let mut frame = op.to_be_bytes().to_vec();
    frame.extend(arg.to_be_bytes());
    frame.extend([0, 0, 0]);
    frame.extend(rest);
    frame
}

fn fault(switch: &mut Switch, frame: &[u8]) -> (FaultKind, u64) {
    let fault = switch.process(1, frame).unwrap_err();
    (fault.kind, fault.place.line.map_or(0, |(_, line)| line))
}

const ARG: (&str, &str) = ("base", "arg");

fn arg() -> Json {
    field(ARG.0, ARG.1)
}

fn param() -> Json {
    json!({ "type": "runtime_data", "value": 0 })
}

#[test]
fn a_miss_does_what_the_default_says_and_a_hit_has_its_entrys_data() {
    let mut switch = switch(vec![call("assign", 1, vec![arg(), param()])]);
    assert_eq!(switch.process(1, &frame(5, 0, &[])), Ok(vec![]));
    let out = switch.process(1, &frame(1, 0, &[9, 9])).unwrap();
    assert_eq!(out[0].0, 2);
    assert_eq!(out[0].1[2..6], [0xaa, 0xbb, 0xcc, 0xdd]);
    assert_eq!(out[0].1[9..], [9, 9], "what no header holds follows");
}

#[test]
fn sums_wrap_in_the_width_of_their_field() {
    let add = expr("+", arg(), param());
    let mut switch = switch(vec![call("assign", 1, vec![arg(), add])]);
    let out = switch.process(1, &frame(1, 0x6000_0000, &[])).unwrap();
    assert_eq!(out[0].1[2..6], 0xabb_ccdd_u32.to_be_bytes());
}

#[test]
fn a_checksum_covers_the_rest_and_what_is_invalid_is_no_part_of_it() {
    let wrong = vec![arg(), field("standard_metadata", "checksum_error")];
    let mut switch = switch(vec![call("assign", 1, wrong)]);
    let out = switch.process(1, &frame(1, 7, &[1, 2, 3])).unwrap();
    let words = [1, 0, 1, 0x0102, 0x0300_u32];
    let sum = !u16::try_from(words.iter().sum::<u32>()).unwrap();
    assert_eq!(out[0].1[5], 1, "0 is not its checksum");
    assert_eq!(out[0].1[7..9], sum.to_be_bytes());
    let mut good = frame(1, 1, &[1, 2, 3]);
    good[7..9].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(switch.process(1, &good).unwrap()[0].1[5], 0);
}

#[test]
fn a_field_of_a_header_that_is_not_there_cannot_be_read_or_written() {
    let wide = || field("vector", "b");
    let mut reads = switch(vec![call("assign", 11, vec![arg(), wide()])]);
    assert!(reads.process(1, &frame(0x8001, 0, &[0; 32])).is_ok());
    let kind = FaultKind::InvalidRead("vector.b".to_owned());
    assert_eq!(fault(&mut reads, &frame(1, 0, &[0; 32])), (kind.clone(), 11));
    // Cut inside the vector: the base stays valid, the vector does not.
    assert_eq!(fault(&mut reads, &frame(0x8001, 0, &[0; 31])), (kind, 11));
    let mut writes = switch(vec![call("assign", 12, vec![wide(), arg()])]);
    let kind = FaultKind::InvalidWrite("vector.b".to_owned());
    assert_eq!(fault(&mut writes, &frame(1, 0, &[])), (kind, 12));
}

#[test]
fn and_looks_no_further_than_it_must() {
    let valid = expr("d2b", Json::Null, field("vector", "$valid$"));
    let reads = expr("==", field("vector", "b"), hex("0x00"));
    let both = expr("b2d", Json::Null, expr("and", valid, reads));
    let mut switch = switch(vec![call("assign", 1, vec![arg(), both])]);
    assert_eq!(switch.process(1, &frame(1, 7, &[])).unwrap()[0].1[5], 0);
    assert_eq!(switch.process(1, &frame(0x8001, 7, &[0; 32])).unwrap()[0].1[5], 1);
}

#[test]
fn registers_keep_what_they_are_given_and_have_an_end() {
    let wide = || field("vector", "wide");
    let mut stored = switch(vec![
        call("register_write", 20, vec![named("register_array", "I.wide"), hex("0x01"), wide()]),
        call("register_write", 21, vec![named("register_array", "I.narrow"), arg(), param()]),
        call("register_read", 22, vec![wide(), named("register_array", "I.wide"), hex("0x01")]),
    ]);
    let vector: Vec<u8> = (0..32).collect();
    let out = stored.process(1, &frame(0x8001, 3, &vector)).unwrap();
    assert_eq!(out[0].1[9..], vector);
    assert_eq!(stored.register("narrow", 3), Some(1));
    let kind = FaultKind::Index { array: "I.narrow".to_owned(), index: 4, size: 4 };
    assert_eq!(fault(&mut stored, &frame(0x8001, 4, &vector)), (kind, 21));
    stored.restart();
    assert_eq!(stored.register("narrow", 3), Some(0));
    let mut counted = switch(vec![
        call("count", 23, vec![named("counter_array", "I.seen"), arg()]),
        call("execute_meter", 24, vec![named("meter_array", "I.meter"), hex("0x00"), arg()]),
    ]);
    assert_eq!(counted.process(1, &frame(1, 1, &[])).unwrap()[0].1[5], 0, "green");
    assert!(counted.colour("meter", 0, 2));
    assert_eq!(counted.process(1, &frame(1, 1, &[])).unwrap()[0].1[5], 2, "red");
    assert_eq!(counted.counter("seen", 1), Some(Count { packets: 2, bytes: 18 }));
    assert!(matches!(fault(&mut counted, &frame(1, 2, &[])).0, FaultKind::Index { .. }));
}

#[test]
fn a_group_gets_one_copy_a_node_and_each_its_own_fields() {
    let group = vec![field("standard_metadata", "mcast_grp"), arg()];
    let mut switch = switch(vec![call("assign", 1, group)]);
    switch.group(9, &[(4, 0), (4, 64), (1, 65)]);
    let out = switch.process(1, &frame(1, 9, &[])).unwrap();
    let seen: Vec<_> = out.iter().map(|(port, frame)| (*port, frame[6])).collect();
    assert_eq!(seen, [(4, 0), (4, 64), (1, 65)]);
    assert_eq!(switch.process(1, &frame(1, 8, &[])), Ok(vec![]), "a group that is not there");
}

#[test]
fn a_frame_grows_by_512_bytes_and_no_more() {
    let header = || named("header", "large");
    let mut grows = switch(vec![call("add_header", 1, vec![header()])]);
    let fault = fault(&mut grows, &frame(1, 0, &[])).0;
    assert_eq!(fault, FaultKind::Growth(513), "513 bytes more");
    let remove = call("remove_header", 2, vec![named("header", "base")]);
    let mut swaps = switch(vec![call("add_header", 1, vec![header()]), remove]);
    let out = swaps.process(1, &frame(1, 0, &[])).unwrap();
    assert_eq!(out[0].1.len(), 513);
}

#[test]
fn a_frame_is_cut_where_the_program_says() {
    let mut switch = switch(vec![
        call("remove_header", 1, vec![named("header", "vector")]),
        call("truncate", 2, vec![hex("0x09")]),
    ]);
    let out = switch.process(1, &frame(0x8001, 0, &[1; 40])).unwrap();
    assert_eq!(out[0].1.len(), 9);
}

#[test]
fn jumps_go_where_they_say_and_must_end() {
    let jump = |value: Json| {
        vec![
            call("_jump_if_zero", 1, vec![value, hex("0x02")]),
            call("assign", 2, vec![arg(), hex("0x55")]),
        ]
    };
    let mut both = switch(jump(arg()));
    assert_eq!(both.process(1, &frame(1, 0, &[])).unwrap()[0].1[5], 0);
    assert_eq!(both.process(1, &frame(1, 1, &[])).unwrap()[0].1[5], 0x55);
    let mut endless = switch(vec![call("_jump", 1, vec![hex("0x00")])]);
    assert_eq!(fault(&mut endless, &frame(1, 0, &[])), (FaultKind::Endless, 1));
}

#[test]
fn a_write_must_fit_the_program() {
    let mut switch = switch(vec![]);
    let mut problem = |keys: &[(&str, u128)], action: &str, params: &[(&str, u128)]| {
        switch.insert("ops", keys, action, params).unwrap_err().problem
    };
    assert_eq!(problem(&[("op", 1)], "lose", &[]), "there is an entry [1]");
    assert_eq!(problem(&[("op", 3)], "lose", &[]), "it is full with 2 entries");
    assert_eq!(problem(&[("op", 0x1_0000)], "lose", &[]), "op = 0x10000 has more than 16 bits");
    assert_eq!(problem(&[("job", 3)], "lose", &[]), "op is missing");
    assert_eq!(problem(&[("op", 3)], "gain", &[]), "it has no action gain");
    assert_eq!(problem(&[("op", 3)], "act", &[]), "0 values where 1 are needed");
    switch.modify("ops", &[("op", 1)], "lose", &[]).unwrap();
    switch.delete("ops", &[("op", 1)]).unwrap();
    assert!(switch.delete("ops", &[("op", 1)]).is_err());
    assert!(switch.modify("ops", &[("op", 1)], "lose", &[]).is_err());
    assert_eq!(switch.entry_count("ops"), Ok(1));
    assert!(switch.insert("rows", &[], "lose", &[]).is_err());
}

#[test]
fn what_is_not_supported_is_refused_at_the_start() {
    let problem = |act| Switch::load(&program(act).to_string()).unwrap_err().to_string();
    let text = problem(vec![call("resubmit", 31, vec![hex("0x00")])]);
    assert!(text.contains("I.act (small.p4:31)") && text.contains("\"resubmit\""), "{text}");
    let text = problem(vec![call("assign", 32, vec![arg(), expr("/", arg(), arg())])]);
    assert!(text.contains("small.p4:32") && text.contains("operator \"/\""), "{text}");
    let text = problem(vec![call("assign", 33, vec![arg(), field("base", "none")])]);
    assert!(text.contains("no field [\"base\",\"none\"]"), "{text}");
    assert!(Switch::load("{").is_err());
    assert!(Switch::load("{}").unwrap_err().to_string().contains("__meta__"));
    let mut newer = program(vec![]);
    newer["__meta__"]["version"] = json!([3, 0]);
    assert!(Switch::load(&newer.to_string()).is_err());
}
