use alloc::string::ToString;

use super::*;

const A100: &str = include_str!("../../../tests/elastic/throughputs/a100.csv");
const T4: &str = include_str!("../../../tests/elastic/throughputs/t4.csv");

fn job(model: &str, global_batch: u32, gpus: u32) -> Job {
    Job {
        name: "0".into(),
        gpus,
        submit_ns: 0,
        duration_ns: 1,
        model: model.into(),
        iterations: 1,
        global_batch,
    }
}

/// What the tables' provenance says of them: curves that are not monotone.
#[test]
fn the_published_tables_are_read() {
    let [a100, t4] = [("a100.csv", A100), ("t4.csv", T4)]
        .map(|(file, text)| Throughputs::read(file, text).expect("a table"));
    let widest = |table: &Throughputs, model, batch| {
        table.curve(model, batch).and_then(|curve| curve.fastest(64)).map(|(width, _)| width)
    };
    assert_eq!(widest(&a100, "bert", 64), Some(8));
    assert_eq!(widest(&a100, "resnet50", 64), Some(32));
    assert_eq!(widest(&t4, "cifar10", 2048), Some(16));
    assert_eq!(widest(&t4, "nothing", 64), None);
    let rows =
        |table: &Throughputs| table.curves().map(|(_, _, c)| c.points().len()).sum::<usize>();
    assert_eq!([rows(&a100), rows(&t4)], [109, 60]);
}

#[test]
fn a_job_is_as_fast_as_the_table_says_over_what_it_asked_for() {
    let table = Throughputs::read("a100.csv", A100).expect("a table");
    let job = job("resnet50", 64, 2);
    assert_eq!(table.speedup(&job, 2), 1.0);
    assert!((table.speedup(&job, 8) - 21.265_358 / 11.838_469).abs() < 1e-12);
    assert_eq!(table.speedup(&job, 65), 0.0);
    assert_eq!(table.gpus_max(&job), 32);
}

#[test]
fn a_job_that_was_not_measured_runs_as_it_asked() {
    let table = Throughputs::read("a100.csv", A100).expect("a table");
    for job in [job("nothing", 64, 4), job("deepspeech2", 32, 64), job("resnet50", 63, 4)] {
        assert_eq!([job.gpus, 1].map(|gpus| table.speedup(&job, gpus)), [1.0, 0.0]);
        assert_eq!(table.gpus_max(&job), job.gpus);
    }
}

#[test]
fn bad_lines_are_refused_by_file_line_and_field() {
    let refused = |rows: &str| {
        let text = alloc::format!("model,global_batch_size,gpus,iterations_per_s\n{rows}");
        Throughputs::read("t.csv", &text).expect_err("a bad table").to_string()
    };
    assert_eq!(refused(""), "t.csv:2: row: there is no measurement");
    assert!(refused("a,64,1,0\n").starts_with("t.csv:2: iterations_per_s: is 0"));
    assert!(refused("a,64,0,1\n").starts_with("t.csv:2: gpus: "));
    assert!(refused("a,64,1,NaN\n").starts_with("t.csv:2: iterations_per_s: "));
    assert!(refused("a,64,1,1\nA,64,1,2\n").starts_with("t.csv:3: gpus: is the second line"));
}
