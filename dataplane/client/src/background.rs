//! Sums that go on while the program computes: a thread that owns a session, and tickets for what
//! it was given.
//!
//! Vectors are summed in the order in which they were started, which must be the same at every
//! worker, as it must for calls. What waits is summed in one round, each vector in chunks of its
//! own; where one worker's round ends is nobody else's affair, for chunks are numbered on across
//! rounds. So a worker that is quick and one that is slow form different rounds of the same chunks
//! and get the same bits, which are those of separate calls.
//!
//! Invariants: at most [`TICKETS_MAX`] vectors wait; one more waits for room. After an error the
//! session is over, and every ticket says so: none hangs.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use weft_io::Port;

use crate::error::Error;
use crate::session::{RoundReport, Session, Statistics};

/// Most vectors that wait to be summed.
pub const TICKETS_MAX: usize = 256;

/// A vector that waits, and who waits for it.
struct Job {
    values: Vec<f32>,
    done: Sender<Result<Sum, Error>>,
}

/// What a ticket is worth in the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum {
    /// The sum over all workers, in the vector that was started.
    pub values: Vec<f32>,
    /// What the round did that it was in, with other vectors perhaps.
    pub report: RoundReport,
}

/// A session at work in a thread of its own. Dropping it without [`Background::close`] leaves the
/// other workers to find out by their timeouts.
#[derive(Debug)]
pub struct Background {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<Result<Ended, Error>>>,
}

/// How a session in the background ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// All workers had closed by then.
    pub by_all: bool,
    /// Its counters.
    pub statistics: Statistics,
}

/// A sum under way.
#[derive(Debug)]
pub struct Ticket {
    done: Receiver<Result<Sum, Error>>,
    /// What was found when somebody asked.
    found: Option<Result<Sum, Error>>,
}

impl Ticket {
    /// True when [`Ticket::wait`] will not wait.
    #[must_use]
    pub fn is_finished(&mut self) -> bool {
        if self.found.is_none() {
            self.found = match self.done.try_recv() {
                Ok(found) => Some(found),
                Err(TryRecvError::Disconnected) => Some(Err(Error::Over)),
                Err(TryRecvError::Empty) => None,
            };
        }
        self.found.is_some()
    }

    /// Waits for the sum.
    ///
    /// # Errors
    /// As [`Session::allreduce`]; [`Error::Over`] when an earlier sum had failed.
    pub fn wait(self) -> Result<Sum, Error> {
        self.found.unwrap_or_else(|| self.done.recv().unwrap_or(Err(Error::Over)))
    }
}

impl Background {
    /// Hands a session to a thread of its own.
    ///
    /// # Errors
    /// [`Error::Thread`] when there is none to be had.
    pub fn new<P: Port + Send + 'static>(session: Session<P>) -> Result<Self, Error>
    where
        P::Frame: Send,
    {
        let (jobs, queue) = bounded(TICKETS_MAX);
        let run = move || work(session, &queue);
        let thread = thread::Builder::new().name("weft-session".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Error::Thread(Arc::new(error)))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Starts to sum a vector; waits while [`TICKETS_MAX`] others do.
    ///
    /// # Errors
    /// [`Error::Over`] when an earlier sum has failed: its ticket says why.
    pub fn start(&self, values: Vec<f32>) -> Result<Ticket, Error> {
        let (done, ticket) = bounded(1);
        let jobs = self.jobs.as_ref().ok_or(Error::Over)?;
        jobs.send(Job { values, done }).map_err(|_| Error::Over)?;
        Ok(Ticket { done: ticket, found: None })
    }

    /// Leaves the group when all that was started is summed, as [`Session::close`].
    ///
    /// # Errors
    /// As [`Session::close`]; [`Error::Over`] when a sum had failed.
    pub fn close(mut self) -> Result<Ended, Error> {
        drop(self.jobs.take());
        let thread = self.thread.take().ok_or(Error::Over)?;
        thread.join().unwrap_or(Err(Error::Over))
    }
}

/// Sums what comes until nobody can start anything any more.
fn work<P: Port>(mut session: Session<P>, queue: &Receiver<Job>) -> Result<Ended, Error> {
    let mut waiting: Vec<Job> = Vec::with_capacity(TICKETS_MAX);
    loop {
        if waiting.is_empty() {
            let Ok(job) = queue.recv() else { break };
            waiting.push(job);
        }
        waiting.extend(queue.try_iter().take(TICKETS_MAX - waiting.len()));
        let mut vectors: Vec<&mut [f32]> = waiting.iter_mut().map(|job| &mut *job.values).collect();
        match session.sum_first(&mut vectors) {
            Ok((count, report)) => {
                for Job { values, done } in waiting.drain(..count) {
                    // Who has dropped the ticket does not want the sum.
                    let _ = done.send(Ok(Sum { values, report }));
                }
            }
            Err(error) => {
                // The first says why; the others find that their thread has ended.
                let _ = waiting.remove(0).done.send(Err(error));
                return Err(Error::Over);
            }
        }
    }
    let statistics = session.statistics();
    let by_all = session.close()?;
    Ok(Ended { by_all, statistics })
}
