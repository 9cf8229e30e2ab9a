use super::*;
use crate::scenario::CONTROLLER;

const TWO: &str = r#"
name = "two"

[[job]]
name = "ps0"
workers = 3
rounds = 12
batch = 32
hidden = [128]
learning_rate = 0.02
momentum = 0.5
element_type = "i32"
scale_exponent = -24
server = "ps"

[job.push]
mode = "sync"
aggregators = 0

[[job]]
name = "ps1"
workers = 3
rounds = 12
batch = 32
hidden = [128]
learning_rate = 0.02
momentum = 0.5
element_type = "i32"
scale_exponent = -24
server = "ps"

[job.push]
mode = "sync"
aggregators = 0

[lab]
rate_mbit = 100
"#;

fn two() -> JobsScenario {
    JobsScenario::parse("two.toml", TWO).expect("it makes sense")
}

/// What is said of the file with one piece in another's place.
fn refused(piece: &str, other: &str) -> String {
    assert!(TWO.contains(piece), "{piece}");
    let text = TWO.replacen(piece, other, 1);
    JobsScenario::parse("two.toml", &text).expect_err("it makes no sense").to_string()
}

#[test]
fn a_list_of_jobs_is_told_from_one_job() {
    let digits = include_str!("../../../scenarios/digits.toml");
    let of = |text: &str| has_jobs("some.toml", text).expect("TOML");
    assert_eq!([of(TWO), of(digits), of("name = \"nothing\"")], [true, false, false]);
    assert!(has_jobs("some.toml", "name = ").is_err());
    let alone = Scenario::parse("some.toml", TWO).expect_err("it has several");
    assert!(alone.to_string().starts_with("some.toml:"), "{alone}");
}

#[test]
fn servers_share_a_host_and_workers_have_their_own() {
    let scenario = two();
    let hosts = scenario.hosts();
    assert_eq!(scenario.boxes(), ["ps"]);
    let workers = usize::from(scenario.jobs[0].workers);
    assert_eq!(hosts[..3], ["ps", CONTROLLER, "w0"]);
    let (first, second) = (scenario.site(0), scenario.site(1));
    assert_eq!((first.host("server"), second.host("server")), ("ps", "ps"));
    assert_eq!((first.host("w0"), second.host("w0")), ("w0", format!("w{workers}").as_str()));
    assert_eq!((first.job, second.job, usize::from(second.workers_before)), (0, 1, workers));
    assert!(first.is_shared() && !Site::default().is_shared());
}

#[test]
fn a_job_has_the_links_of_its_hosts_under_its_own_names() {
    let text = TWO.replacen("[lab]\n", "[lab]\nlinks = { ps = 50, w3 = 20 }\n", 1);
    let scenario = JobsScenario::parse("two.toml", &text).expect("it makes sense");
    let second = scenario.job(1);
    assert_eq!(second.name, "ps1");
    let mbit = |host: &str| second.lab.rates(host).map(|rate| rate.map(|rate| rate.mbit()));
    assert_eq!(mbit("server"), [Some(50.0); 2]);
    assert_eq!((mbit("w0"), mbit("w1")), ([Some(20.0); 2], [scenario.lab.rate_mbit; 2]));
    assert!(second.check().is_ok());
}

#[test]
fn what_makes_no_sense_is_refused_with_line_and_field() {
    let cases = [
        ("name = \"ps1\"", "name = \"ps0\"", "job[1].name: is `ps0`, as another job's"),
        ("name = \"ps0\"", "name = \"a/b\"", "job[0].name: is `a/b`"),
        ("workers = 3", "workers = 0", "job[0].workers: is 0"),
        ("workers = 3", "workers = 3\nhosts = [\"x\"]", "job[0].hosts: are 1, for 3"),
        ("workers = 3", "workers = 3\nstart_s = -1.0", "job[0].start_s: is -1"),
        ("workers = 3", "workers = 3\nstart = 1", "unknown field"),
        ("server = \"ps\"", "server = \"controller\"", "job[0].server: is controller"),
        ("mode = \"sync\"", "mode = \"partial\"", "job[0].push.best: is missing"),
        ("mode = \"sync\"", "mode = \"sync\"\nreplication = \"chain\"", "job[0].push.replication"),
        ("[lab]\n", "[lab]\nlinks = { s9 = 5 }\n", "lab.links.s9: names no host"),
        ("[lab]\n", "[cluster]\nslots = 2\n[lab]\n", "cluster.slots: is 2; a job has 3"),
        (
            "[lab]\n",
            "[cluster]\nslots = 3\npolicy = \"dlas\"\n[lab]\n",
            "cluster.policy: is `dlas`",
        ),
        ("[lab]\nrate_mbit = 100\n", "[bands]\n", "bands.policy: are of links with a rate"),
        ("[lab]\n", "[bands]\ninterval_s = 0\n[lab]\n", "bands.interval_s: must be 1 to"),
        ("[lab]\n", "[aggregation]\nlanes = 2\n[lab]\n", "aggregation.lanes: is 2"),
        ("[lab]\n", "[job_policy]\npolicy = \"best\"\nslots = 8\n[lab]\n", "job_policy.policy: "),
        (
            "[lab]\n",
            "[job_policy]\npolicy = \"doubling\"\nslots = 2\n[lab]\n",
            "job_policy.slots: is 2; a job has more workers",
        ),
    ];
    for (piece, other, expected) in cases {
        let problem = refused(piece, other);
        assert!(problem.contains(expected), "{other}: {problem}");
        let line = problem.strip_prefix("two.toml:").and_then(|rest| rest.split_once(':'));
        assert!(line.is_some_and(|(line, _)| line.parse::<usize>().is_ok()), "{problem}");
    }
    let one = "name = \"x\"\n[[job]]\n".to_owned() + TWO.split("[[job]]").nth(1).expect("one");
    let problem = JobsScenario::parse("x.toml", &one).expect_err("one job").to_string();
    assert!(problem.contains("is a list of 1; expected 2 to 16, or one [job]"), "{problem}");
}

#[test]
fn a_word_that_nobody_could_heed_is_refused() {
    let steering = include_str!("../../../scenarios/steering.toml");
    let cases = [
        ("pause = \"ps0\"", "pause = \"ps7\"", "word[1].pause: is `ps7`, which is no job"),
        ("pause = \"ps0\"", "at = 1", "unknown field"),
        ("pause = \"ps0\"", "pause = \"ps0\"\nresume = \"ps0\"", "word[1].at_s: has 2 words"),
        ("at_s = 3.0", "at_s = -1.0", "word[1].at_s: is -1"),
        ("resize = \"sums\"", "resize = \"ps1\"", "word[3].resize: is `ps1`"),
        ("workers = 4\n\n[lab]", "workers = 9\n\n[lab]", "word[3].workers: must be 1 to the 4"),
        ("[bands]\npolicy = \"fifo\"\n", "", "word[0].bands: is for a scenario with [bands]"),
        ("places = 4", "places = 1", "places: is 1; expected 2"),
    ];
    for (piece, other, expected) in cases {
        assert!(steering.contains(piece), "{piece}");
        let text = steering.replacen(piece, other, 1);
        let problem = JobsScenario::parse("s.toml", &text).expect_err(other).to_string();
        assert!(problem.contains(expected), "{other}: {problem}");
    }
}

#[test]
fn the_shipped_scenarios_make_sense() {
    for (name, text) in [
        ("lights.toml", include_str!("../../../scenarios/lights.toml")),
        ("trace.toml", include_str!("../../../scenarios/trace.toml")),
        ("steering.toml", include_str!("../../../scenarios/steering.toml")),
    ] {
        JobsScenario::parse(name, text).unwrap_or_else(|problem| panic!("{problem}"));
    }
}

#[test]
fn what_is_for_several_jobs_is_refused_in_a_file_of_one() {
    let digits = include_str!("../../../scenarios/digits.toml");
    for line in
        ["name = \"x\"", "start_s = 1.0", "priority = 3", "server = \"x\"", "hosts = [\"x\"]"]
    {
        let text = digits.replacen("[job]\n", &format!("[job]\n{line}\n"), 1);
        let problem = Scenario::parse("digits.toml", &text).expect_err(line).to_string();
        assert!(problem.contains("belongs to one of several jobs"), "{line}: {problem}");
    }
}
