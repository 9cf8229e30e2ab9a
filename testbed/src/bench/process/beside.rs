//! Waits for a process that needs another one, so that the death of that one is told as what it is.

use std::time::Instant;

use super::{BenchError, Line, Running};

impl Running {
    /// Waits for the end and returns the standard output, while `other` is to go on.
    ///
    /// # Errors
    /// This one's, or that of `other` when it has ended.
    pub(in crate::bench) fn finish_beside(
        mut self,
        other: &mut Self,
    ) -> Result<String, BenchError> {
        let begun = Instant::now();
        loop {
            match self.poll_line(begun)? {
                Some(None) => break,
                Some(Some(_)) => {}
                None => other.go_on()?,
            }
        }
        // Whoever lost its peer says so of itself.
        self.end().or_else(|error| other.go_on().and(Err(error)))
    }

    /// Fails when the process has ended, with its last words.
    fn go_on(&mut self) -> Result<(), BenchError> {
        let ended = self.child.try_wait();
        let ended = ended.map_err(BenchError::system(format!("waiting for {}", self.program)))?;
        let Some(status) = ended else { return Ok(()) };
        while let Ok(line) = self.lines.try_recv() {
            if let Line::Stderr(line) = line {
                self.note_said(&line);
            }
        }
        Err(self.failed(&format!("ended during the sums: {status}")))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn shell(script: &str) -> Running {
        Running::start("sh", Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn a_process_that_dies_under_another_is_named_at_once() {
        let begun = Instant::now();
        let mut other = shell("echo no memory >&2; kill -9 $$");
        let error = shell("sleep 60").finish_beside(&mut other).unwrap_err().to_string();
        assert!(error.contains("ended during the sums") && error.contains("signal: 9"), "{error}");
        assert!(error.contains("no memory"), "{error}");
        assert!(begun.elapsed().as_secs() < 30, "nobody waits for the other");
    }

    #[test]
    fn who_fails_because_the_other_is_gone_is_not_blamed() {
        let mut other = shell("exit 3");
        while other.is_running() {}
        let error = shell("echo lost >&2; exit 1").finish_beside(&mut other).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        let mut other = shell("sleep 60");
        let error = shell("echo lost >&2; exit 1").finish_beside(&mut other).unwrap_err();
        assert!(error.to_string().contains("lost"), "{error}");
    }

    #[test]
    fn what_it_wrote_is_kept() {
        let mut other = shell("sleep 60");
        assert_eq!(
            shell("echo first; echo last").finish_beside(&mut other).unwrap(),
            "first\nlast\n"
        );
    }
}
