//! The trace format of Microsoft's Philly clusters: a JSON list of jobs with their attempts.
//!
//! Of `cluster_job_log`, a job's `jobid`, `submitted_time` and `attempts` are looked at. Its GPUs
//! are the most that an attempt had; its duration is the time of all attempts together, for each
//! attempt began anew. An attempt without a start or an end counts for nothing, as in the authors'
//! own analysis, and a job without any other is left out and counted: it never ran, or its end is
//! not known. Times are local, and read as if no clock was ever changed, but for an attempt that
//! ends before it starts in the hour that comes twice; they count from the first submission.
//! Source: msr-fiddle/philly-traces, README and analysis.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Collector, Trace};
use crate::cluster::Cluster;
use crate::job::{Job, NS_PER_S};
use crate::text::{SECONDS_MAX, TextError, without_mark};

/// The jobs of a trace; with a cluster, none larger than it.
///
/// # Errors
/// [`TextError`] at the first line that is wrong.
pub fn read(file: &str, text: &str, cluster: Option<&Cluster>) -> Result<Trace, TextError> {
    let text = without_mark(text);
    let reader = Reader { file, text };
    if text.trim().is_empty() {
        return Err(TextError::new(file, 1, "jobs", "the file is empty: it is a list of jobs"));
    }
    let rows: Vec<&RawValue> =
        serde_json::from_str(text).map_err(|error| reader.wrong(0, "jobs", &error))?;
    let mut jobs = Collector::new(file, cluster);
    let mut found = Vec::new();
    for row in &rows {
        let fields: Fields<'_> = reader.parse(row, "job")?;
        let submit_s = reader.time(fields.submitted_time, "submitted_time")?;
        let Some(submit_s) = submit_s else {
            return Err(reader.error(fields.submitted_time, "submitted_time", "is not known"));
        };
        if let Some((gpus, duration_s)) = reader.attempts(fields.attempts)? {
            found.push((fields, submit_s, gpus, duration_s));
        }
    }
    let first_s = found.iter().map(|(_, submit_s, ..)| *submit_s).min().unwrap_or(0);
    let left_out = rows.len() - found.len();
    for (fields, submit_s, gpus, duration_s) in found {
        let since_s = submit_s.abs_diff(first_s);
        if since_s > SECONDS_MAX || duration_s > SECONDS_MAX {
            let problem = "is more than a century from the first";
            return Err(reader.error(fields.submitted_time, "submitted_time", problem));
        }
        let name: String = reader.parse(fields.jobid, "jobid")?;
        let job = Job {
            name: name.into(),
            gpus,
            submit_ns: since_s * NS_PER_S,
            duration_ns: duration_s * NS_PER_S,
            model: jobs.model(""),
            iterations: 0,
            global_batch: 0,
        };
        jobs.push(reader.line(fields.jobid), ["jobid", "gpus"], job)?;
    }
    Ok(Trace { left_out, ..jobs.finish()? })
}

/// A job's fields as the text has them, so that each knows its line.
#[derive(Debug, Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    jobid: &'a RawValue,
    #[serde(borrow)]
    submitted_time: &'a RawValue,
    #[serde(borrow)]
    attempts: &'a RawValue,
}

#[derive(Debug, Deserialize)]
struct Attempt<'a> {
    #[serde(borrow)]
    start_time: &'a RawValue,
    #[serde(borrow)]
    end_time: &'a RawValue,
    #[serde(borrow)]
    detail: &'a RawValue,
}

#[derive(Debug, Deserialize)]
struct Detail {
    gpus: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

impl<'a> Reader<'a> {
    /// The most GPUs of an attempt, and the seconds of all; none when nothing is known of any.
    fn attempts(self, raw: &'a RawValue) -> Result<Option<(u32, u64)>, TextError> {
        let attempts: Vec<&'a RawValue> = self.parse(raw, "attempts")?;
        let (mut most, mut sum_s) = (0, 0_u64);
        for raw in attempts {
            let attempt: Attempt<'a> = self.parse(raw, "attempts")?;
            let start_s = self.time(attempt.start_time, "start_time")?;
            let end_s = self.time(attempt.end_time, "end_time")?;
            let detail: Vec<Detail> = self.parse(attempt.detail, "detail")?;
            let gpus: usize = detail.iter().map(|server| server.gpus.len()).sum();
            let (Some(start_s), Some(end_s)) = (start_s, end_s) else { continue };
            // When clocks go back from 2:00, the hour before comes once more.
            let is_twice = start_s / 3600 == end_s / 3600 && end_s / 3600 % 24 == 1;
            let back_s = if is_twice && end_s < start_s { 3600 } else { 0 };
            let Ok(span_s) = u64::try_from(end_s + back_s - start_s) else {
                return Err(self.error(attempt.end_time, "end_time", "is before start_time"));
            };
            most = most.max(u32::try_from(gpus).unwrap_or(u32::MAX));
            sum_s = sum_s.saturating_add(span_s);
        }
        Ok((most > 0 && sum_s > 0).then_some((most, sum_s)))
    }

    /// `2017-10-07 01:12:09` in seconds; none for `null`, `"None"` and an empty text.
    fn time(self, raw: &'a RawValue, field: &str) -> Result<Option<i64>, TextError> {
        let text: Option<String> = self.parse(raw, field)?;
        let Some(text) = text.filter(|text| !text.is_empty() && text != "None") else {
            return Ok(None);
        };
        let problem = || format!("{text:?} is not a time like 2017-10-07 01:12:09");
        seconds(&text).map(Some).ok_or_else(|| self.error(raw, field, &problem()))
    }

    fn parse<T: Deserialize<'a>>(self, raw: &'a RawValue, field: &str) -> Result<T, TextError> {
        let before = self.line(raw) - 1;
        serde_json::from_str(raw.get()).map_err(|error| self.wrong(before, field, &error))
    }

    /// The line on which a part of the text begins, from 1.
    fn line(self, raw: &RawValue) -> usize {
        let at = (raw.get().as_ptr().addr()).wrapping_sub(self.text.as_ptr().addr());
        let before = self.text.get(..at).unwrap_or(self.text);
        before.bytes().filter(|byte| *byte == b'\n').count() + 1
    }

    fn error(self, raw: &RawValue, field: &str, problem: &str) -> TextError {
        TextError::new(self.file, self.line(raw), field, problem)
    }

    fn wrong(self, lines_before: usize, field: &str, error: &serde_json::Error) -> TextError {
        let problem = error.to_string();
        // Its own place is the error's, not the text's.
        let problem = problem.split(" at line ").next().unwrap_or_default();
        TextError::new(self.file, lines_before + error.line(), field, problem)
    }
}

/// Seconds since 1970 of `YYYY-MM-DD hh:mm:ss`.
fn seconds(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(' ')?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let is_date =
        (1900..3000).contains(&year) && (1..13).contains(&month) && (1..32).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since 1970-01-01: years begin in March, so that a leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(|part| {
        let is_plain = part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| is_plain)
    });
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    const FILE: &str = include_str!("../../tests/traces/philly.json");

    #[test]
    fn attempts_add_up_and_jobs_that_nothing_is_known_of_are_counted() {
        let found = read("philly.json", FILE, None).expect("a trace");
        let short = |job: &Job| {
            (job.name.to_string(), job.gpus, job.submit_ns / NS_PER_S, job.duration_ns / NS_PER_S)
        };
        let jobs: Vec<_> = found.jobs.iter().map(short).collect();
        // 74 s, and 2 days 5:39:42; submitted 1:12:00 after the other.
        let first = ("application_1506638472019_14199".to_string(), 8, 4_320, 74 + 193_182);
        assert_eq!(jobs, [("two-servers".to_string(), 3, 0, 10), first]);
        assert_eq!(found.left_out, 2);
    }

    #[test]
    fn an_attempt_over_the_hour_that_comes_twice_is_as_long_as_it_was() {
        let times = |start: &str, end: &str| {
            let text =
                FILE.replace("2017-10-07 01:12:09", start).replace("2017-10-07 01:13:23", end);
            // Its other attempt took 193,182 s.
            read("p.json", &text, None).map(|found| found.jobs[1].duration_ns / NS_PER_S - 193_182)
        };
        let [before, after] = ["2017-11-05 01:50:00", "2017-11-05 01:10:00"];
        assert_eq!([times(before, after), times(after, before)], [Ok(1200), Ok(2400)]);
        for hour in ["00:", "02:"] {
            let [before, after] = [before, after].map(|time| time.replace("01:", hour));
            times(&before, &after).expect_err("another hour comes once");
        }
    }

    #[test]
    fn bad_lines_are_refused_by_file_line_and_field() {
        let refused = |from: &str, to: &str| {
            assert!(FILE.contains(from), "{from}");
            let text = FILE.replacen(from, to, 1);
            let cluster = Cluster::of_nodes(1, 8);
            read("p.json", &text, Some(&cluster)).expect_err(to).to_string()
        };
        for (from, to, message) in [
            (
                "2017-10-07 01:12:09",
                "yesterday",
                "p.json:8: start_time: \"yesterday\" is not a time",
            ),
            (
                "2017-10-09 06:53:12",
                "2016-10-09 06:53:12",
                "p.json:19: end_time: is before start_time",
            ),
            ("2017-10-07 01:11:39", "None", "p.json:28: submitted_time: is not known"),
            ("\"2017-10-07 01:11:39\"", "-1", "p.json:28: submitted_time: invalid type: integer"),
            (
                "    \"submitted_time\": \"2017-10-07 01:11:39\",\n",
                "",
                "p.json:29: job: missing field `submitted_time`",
            ),
            (
                "application_1506638472019_14199",
                "two-servers",
                "p.json:34: jobid: there is another job `two-servers`",
            ),
            (
                "\"gpu7\"]",
                "\"gpu7\", \"gpu8\"]",
                "p.json:5: gpus: 9 GPUs are more than the cluster's 8",
            ),
            ("\"gpu7\"]", "7]", "p.json:13: detail: invalid type: integer `7`"),
            ("\"vc\": \"ee9e8c\",", "\"vc\" \"ee9e8c\",", "p.json:4: jobs: expected `:`"),
        ] {
            let said = refused(from, to);
            assert!(said.starts_with(message), "{said}\nis not {message}");
            assert_eq!(said.lines().count(), 1);
        }
        let empty = |text| read("p.json", text, None).expect_err("empty").to_string();
        assert_eq!(empty(" \n"), "p.json:1: jobs: the file is empty: it is a list of jobs");
        assert!(empty("[]").ends_with("there is no job"));
    }

    #[test]
    fn days_are_counted_across_leap_years() {
        assert_eq!(seconds("1970-01-01 00:00:00"), Some(0));
        assert_eq!(seconds("2000-03-01 00:00:00"), Some(951_868_800));
        assert_eq!(seconds("2017-10-07 01:12:09"), Some(1_507_338_729));
        assert_eq!(seconds("2017-13-07 01:12:09"), None);
        assert_eq!(seconds("2017-10-07"), None);
        assert_eq!(seconds("2017-+1-07 01:12:09"), None);
    }
}
