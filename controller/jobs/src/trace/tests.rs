use alloc::string::{String, ToString};

use super::*;

const HEADER: &str = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n";

fn read(rows: &str) -> Result<Vec<Job>, String> {
    let text = String::from(HEADER) + rows;
    tiresias::read("t.csv", &text, Some(&Cluster::of_nodes(2, 4)))
        .map(|trace| trace.jobs)
        .map_err(|e| e.to_string())
}

#[test]
fn a_trace_is_read_in_order_of_submission() {
    let jobs = read("7,2,30,5,VGG19,1.5,0\n3,8,10,6,resnet50,20,0\n").unwrap();
    assert_eq!((&*jobs[0].name, jobs[0].submit_ns), ("3", 10_000_000_000));
    assert_eq!((&*jobs[1].model, jobs[1].duration_ns), ("vgg19", 1_500_000_000));
    assert_eq!(jobs[1].gpu_ns(), 3_000_000_000);
}

#[test]
fn bad_lines_are_refused_by_file_line_and_field() {
    for (rows, message) in [
        ("", "t.csv:2: row: there is no job"),
        ("0,1,-5,1,a,1,0", "t.csv:2: submit_time: \"-5\" is negative"),
        ("0,1,5,1,a,1,0\n1,1,5,1,a,NaN,0", "t.csv:3: duration: \"NaN\" is not a number"),
        ("0,1,5,1,a,inf,0", "t.csv:2: duration: \"inf\" is longer than a century"),
        ("0,1,5,1,a,x,0", "t.csv:2: duration: \"x\" is not a number of seconds"),
        ("0,1,5,1,a,0,0", "t.csv:2: duration: is 0; a job takes time"),
        ("0,0,5,1,a,1,0", "t.csv:2: num_gpu: \"0\" is not a whole number of at least 1"),
        ("0,9,5,1,a,1,0", "t.csv:2: num_gpu: 9 GPUs are more than the cluster's 8"),
        ("0,-1,5,1,a,1,0", "t.csv:2: num_gpu: \"-1\" is not a number of at least 0"),
        ("0,1,5,1,a,1,0\n0,1,6,1,a,1,0", "t.csv:3: job_id: there is another job `0`"),
        (",1,5,1,a,1,0", "t.csv:2: job_id: is empty"),
        ("0,1,5", "t.csv:2: row: 3 fields, where the header has 7"),
    ] {
        assert_eq!(read(rows).unwrap_err(), message);
    }
}

#[test]
fn missing_columns_and_empty_files_are_refused() {
    let read = |text: &str| tiresias::read("t.csv", text, None).unwrap_err().to_string();
    assert_eq!(read(""), "t.csv:1: header: the file is empty: its first line names columns");
    assert_eq!(
        read("job_id,num_gpu,submit_time\n0,1,2\n"),
        "t.csv:1: duration: there is no such column, but job_id, num_gpu, submit_time"
    );
}

#[test]
fn a_cluster_has_one_row_and_gpus() {
    let header = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n";
    let read = |rows: &str| {
        cluster("c.csv", &(String::from(header) + rows)).map_err(|error| error.to_string())
    };
    assert_eq!(read("2,8,4,128,256").unwrap().gpus(), 64);
    assert_eq!(
        read("1,15,0,128,256").unwrap_err(),
        "c.csv:2: num_gpu_p_node: is 0: the cluster has no GPUs"
    );
    assert!(read("1,1,4,1,1\n1,1,4,1,1").unwrap_err().starts_with("c.csv:3: num_switch: "));
    assert!(read("9999,9999,9999,1,1").unwrap_err().contains("more than"));
    assert!(cluster("c.csv", "num_switch\n1").unwrap_err().to_string().starts_with("c.csv:1: num"));
}

#[test]
fn a_duration_below_a_second_is_refused_where_seconds_are_whole() {
    let text = String::from(HEADER) + "0,1,9,1,a,1.5,0\n1,1,0.5,1,a,0.5,0\n";
    let trace = tiresias::read("t.csv", &text, None).unwrap();
    assert_eq!(trace.lines, [3, 2], "in order of submission");
    let error = trace.in_seconds("t.csv").unwrap_err().to_string();
    assert!(error.starts_with("t.csv:3: duration: is below 1 s"), "{error}");
    let text = String::from(HEADER) + "0,1,9,1,a,1.5,0\n";
    assert_eq!(tiresias::read("t.csv", &text, None).unwrap().in_seconds("t.csv"), Ok(()));
}

#[test]
fn a_name_that_would_not_be_read_back_is_refused() {
    let philly = |name: &str| {
        let text = include_str!("../../tests/traces/philly.json").replace("two-servers", name);
        philly::read("p.json", &text, None).map_err(|error| error.to_string())
    };
    assert!(philly("a b;c").is_ok());
    for name in ["a,b", "#a", " a", "a\\nb", "a\\\"b"] {
        let error = philly(name).unwrap_err();
        assert!(error.contains(": jobid: ") && error.contains("a job's name has no"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn a_mark_at_the_start_is_skipped_in_every_format_and_jobs_left_out_are_counted() {
    let text = alloc::format!("\u{feff}{HEADER}0,1,9,1,a,1.5,0\n");
    assert_eq!(super::read("t.csv", &text, None).unwrap().jobs.len(), 1);
    let text = alloc::format!("\u{feff}{}", include_str!("../../tests/traces/philly.json"));
    assert_eq!(super::read("p.json", &text, None).unwrap().left_out, 2);
}
