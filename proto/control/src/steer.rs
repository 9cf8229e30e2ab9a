//! What a job is doing, as people and policies steer it.

use weft_wire::words;

/// What a job is doing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum JobState {
    /// Its updates are granted, or its rounds begin.
    #[default]
    Running,
    /// It was told to pause: what it was granted finishes, and nothing new begins.
    Pausing,
    /// Nothing of it moves.
    Paused,
    /// It stops, or begins again, with another number of workers.
    Resizing,
}

words!(JobState, "state of a job", {
    Running = "running",
    Pausing = "pausing",
    Paused = "paused",
    Resizing = "resizing",
});
