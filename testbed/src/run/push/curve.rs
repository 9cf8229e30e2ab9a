//! Decides which versions of a run's model are measured, and measures them: loss and accuracy over
//! the held-out images. Pure.
//!
//! The models are the reference's. Invariant: the first, the last and the one that ended the run
//! are among them.

use crate::workload::digits::Trainer;

/// The model at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CurvePoint {
    /// When the server committed it, by the monotonic clock.
    pub t_ns: u64,
    /// Its version.
    pub version: u64,
    /// Mean loss over the held-out images.
    pub loss: f64,
    /// Share of them labelled correctly.
    pub accuracy: f64,
}

/// The models measured so far.
pub(super) struct Curve {
    trainer: Trainer,
    commits: usize,
    seen: usize,
    reached: Option<(u64, f64)>,
    points: Vec<CurvePoint>,
}

impl Curve {
    /// Begins with the trainer's own model, the initial one; `commits` will follow. `reached` is
    /// the version whose loss ended the run, and what worker 0 said of it.
    pub(super) fn new(
        trainer: Trainer,
        t_ns: u64,
        commits: usize,
        reached: Option<(u64, f64)>,
    ) -> Self {
        let mut curve = Self { trainer, commits, seen: 0, reached, points: Vec::new() };
        curve.measure(t_ns, 0);
        curve
    }

    /// Takes in the model after a commit.
    pub(super) fn commit(&mut self, t_ns: u64, version: u64, model: &[f32]) {
        self.seen += 1;
        let stride = self.commits.div_ceil(POINTS_MAX).max(1);
        let is_wanted = self.reached.is_some_and(|(wanted, _)| wanted == version);
        if self.seen.is_multiple_of(stride) || self.seen == self.commits || is_wanted {
            self.trainer.load(model);
            self.measure(t_ns, version);
        }
    }

    /// The points; adds a problem if the model that ended the run is not what worker 0 said.
    pub(super) fn finish(self, problems: &mut Vec<String>) -> Vec<CurvePoint> {
        if let Some((version, said)) = self.reached {
            match self.points.iter().find(|point| point.version == version) {
                Some(point) if (point.loss - said).abs() <= TOLERANCE * said => {}
                Some(point) => problems.push(format!(
                    "worker 0 says that version {version} has a loss of {said}, it is {}",
                    point.loss
                )),
                None => problems
                    .push(format!("worker 0 pulled version {version}, which the server never had")),
            }
        }
        self.points
    }

    fn measure(&mut self, t_ns: u64, version: u64) {
        let (loss, accuracy) = self.trainer.evaluate();
        self.points.push(CurvePoint { t_ns, version, loss, accuracy });
    }
}

/// Points of a curve, so that the proof of a long run takes seconds.
const POINTS_MAX: usize = 200;
/// What a number may lose as text.
const TOLERANCE: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::digits::TrainerConfig;

    fn trainer() -> Trainer {
        let config = TrainerConfig { hidden: vec![4], ..TrainerConfig::default() };
        Trainer::new(0, 1, 1, &config).unwrap()
    }

    fn measured(commits: usize, reached: Option<(u64, f64)>) -> (Vec<CurvePoint>, Vec<String>) {
        let model = trainer().parameters().to_vec();
        let mut curve = Curve::new(trainer(), 7, commits, reached);
        (1..=commits as u64).for_each(|version| curve.commit(version, version, &model));
        let mut problems = Vec::new();
        (curve.finish(&mut problems), problems)
    }

    #[test]
    fn first_last_and_the_one_that_ended_the_run_are_measured() {
        let loss = trainer().evaluate().0;
        let (points, problems) = measured(601, Some((7, loss)));
        assert_eq!(problems, Vec::<String>::new());
        let versions: Vec<u64> = points.iter().map(|point| point.version).collect();
        assert_eq!(versions[..5], [0, 4, 7, 8, 12], "every fourth, and 7");
        assert_eq!(versions.last(), Some(&601));
        assert_eq!((points[0].t_ns, points[2].loss), (7, loss));
    }

    #[test]
    fn a_worker_that_saw_another_model_is_a_problem() {
        let loss = trainer().evaluate().0;
        assert!(measured(3, Some((2, loss * 1.001))).1[0].contains("version 2 has a loss of"));
        assert!(measured(3, Some((9, loss))).1[0].contains("never had"));
    }
}
