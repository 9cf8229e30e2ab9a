//! The real programs under an operator's commands, which a busy machine delays past a job's end:
//! one test at a time, beside nothing else.

#[path = "../attack/steer.rs"]
mod attack_steer;
mod live_jobs;
mod live_steer;
