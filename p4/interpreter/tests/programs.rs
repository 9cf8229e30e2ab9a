//! The project's programs, as they were compiled.

use std::time::Instant;

use weft_p4_interpreter::Switch;

const PROGRAMS: [(u16, &str); 4] = [
    (32, include_str!("../../build/weft-v1model-32.json")),
    (64, include_str!("../../build/weft-v1model-64.json")),
    (128, include_str!("../../build/weft-v1model-128.json")),
    (256, include_str!("../../build/weft-v1model-256.json")),
];

#[test]
fn each_loads_and_bridges_a_frame_of_nobody() {
    for (elements, json) in PROGRAMS {
        let mut switch = Switch::load(json).unwrap_or_else(|error| panic!("{elements}: {error}"));
        switch.group(1, &[(1, 1), (2, 2), (255, 3)]);
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xcc]);
        frame.extend([7; 50]);
        let out = switch.process(1, &frame).unwrap_or_else(|fault| panic!("{elements}: {fault}"));
        assert_eq!(out, [(2, frame.clone()), (255, frame.clone())], "flooded, but not back");
        for len in 0..frame.len() {
            switch.process(1, &frame[..len]).unwrap_or_else(|fault| panic!("{len} bytes: {fault}"));
        }
        let tables: Vec<String> = switch.tables().map(|table| table.name).collect();
        for table in ["local", "bridge", "rows", "jobs", "members", "servers", "copies"] {
            assert!(tables.iter().any(|name| name == table), "{elements}: {table} of {tables:?}");
        }
        let start = Instant::now();
        for _ in 0..1000 {
            let _ = switch.process(1, &frame);
        }
        println!("{elements} elements: {:?} a frame that is bridged", start.elapsed() / 1000);
    }
}
