//! A stream's first message: waited for so long, by so many at a time.
//!
//! Invariant: what a stream costs that never says who it is is bounded, in time and in number.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Status, Streaming};

/// Streams of one service that have not said hello.
#[derive(Clone, Debug)]
pub(crate) struct Silent(Arc<Semaphore>);

/// The place of one of them.
pub(crate) type Place = OwnedSemaphorePermit;

impl Silent {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(SILENT_MAX)))
    }

    /// A place for a stream that begins.
    ///
    /// # Errors
    /// All are taken.
    pub(crate) fn enter(&self) -> Result<Place, Status> {
        let full = "too many streams have not said hello yet; say it, or try again in 10 s";
        self.0.clone().try_acquire_owned().map_err(|_| Status::resource_exhausted(full))
    }
}

/// What a stream says first.
pub(crate) enum First<T> {
    Said(T),
    /// Nothing, for too long.
    Nothing,
    /// It has ended.
    Gone,
}

/// Waits for it. The place is free afterwards.
pub(crate) async fn first<T>(inbound: &mut Streaming<T>, place: Place) -> First<T> {
    let said = tokio::time::timeout(HELLO_TIMEOUT, inbound.message()).await;
    drop(place);
    match said {
        Ok(Ok(Some(message))) => First::Said(message),
        Ok(Ok(None) | Err(_)) => First::Gone,
        Err(_) => First::Nothing,
    }
}

/// Streams of one service that may be without a hello.
pub(crate) const SILENT_MAX: usize = 256;
/// How long a stream may be without one.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
