use super::*;
use crate::cluster::Cluster;
use crate::job::Job;

/// Answers the next of its lines, and keeps what it was asked.
#[derive(Debug)]
struct Script {
    answers: Vec<&'static str>,
    asked: std::sync::mpsc::Sender<String>,
}

impl Carrier for Script {
    fn ask(&mut self, question: &str) -> Result<String, PolicyError> {
        self.asked.send(question.into()).unwrap();
        Ok(self.answers.remove(0).into())
    }
}

fn outside(answers: &[&'static str]) -> (Outside, std::sync::mpsc::Receiver<String>) {
    let (asked, questions) = std::sync::mpsc::channel();
    let carrier = Box::new(Script { answers: answers.to_vec(), asked });
    let mut outside = Outside::new("exec:test", &Setting::new(Cluster::of_nodes(2, 4)), carrier);
    let job = Job {
        name: "a".into(),
        gpus: 2,
        submit_ns: 5,
        duration_ns: 7,
        model: "vgg19".into(),
        iterations: 0,
        global_batch: 0,
    };
    outside.handle(5, Delta::Arrived { id: JobId(0), job: &job }).unwrap();
    (outside, questions)
}

#[test]
fn a_program_is_told_deltas_and_the_setting_once() {
    let (mut outside, questions) =
        outside(&[r#"{"changes":[{"job":"a","gpus":2}],"again_at_ns":9}"#, "{}"]);
    let mut decision = Decision::default();
    outside.poll(5, &mut decision).unwrap();
    assert_eq!(decision.changes, [Change { id: JobId(0), gpus: 2 }]);
    assert_eq!(decision.again_at_ns, Some(9));
    assert_eq!(
        questions.recv().unwrap(),
        r#"{"now_ns":5,"setting":{"gpus":8,"nodes":2,"gpus_per_node":4,"restart_ns":0,"seed":0},"#
            .to_string()
            + r#""deltas":[{"arrived":{"job":"a","gpus":2,"duration_ns":7,"model":"vgg19"}}]}"#
    );
    outside.handle(12, Delta::Ended { id: JobId(0) }).unwrap();
    decision.clear();
    outside.poll(12, &mut decision).unwrap();
    assert_eq!(questions.recv().unwrap(), r#"{"now_ns":12,"deltas":[{"ended":{"job":"a"}}]}"#);
    assert_eq!(decision, Decision::default());
}

#[test]
fn what_cannot_be_used_is_refused_by_field() {
    for (answer, word) in [
        ("nonsense", "expected"),
        (r#"{"changes":[{"job":"b","gpus":1}]}"#, "changes[0]: there is no job `b`"),
        (
            r#"{"changes":[{"job":"a","gpus":1},{"job":"a","gpus":2}]}"#,
            "changes[1]: job `a` is named twice",
        ),
        (r#"{"promoted":["x"]}"#, "promoted[0]: there is no job `x`"),
        (r#"{"changed":[]}"#, "unknown field"),
    ] {
        let error = outside(&[answer]).0.poll(5, &mut Decision::default()).unwrap_err();
        assert!(error.to_string().contains(word), "{answer}: {error}");
    }
}
