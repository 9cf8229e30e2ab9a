//! Decides which connections may stay: so many at a time, and so many of one peer, whatever a peer
//! is. It has no clock and no socket; the holder of a place is woken when it is to go.
//!
//! Invariant: while a place is idle, a new peer finds one. If its peer has all that a peer may
//! have, the oldest idle one of its own gives way; if all are taken, the oldest idle one of the
//! peer that has most. A place with a call under way never gives way.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// Places; clones are of the same ones.
#[derive(Clone, Debug)]
pub struct Places<K>(Arc<Mutex<Taken<K>>>);

#[derive(Debug)]
struct Taken<K> {
    max: usize,
    of_peer_max: usize,
    next: u64,
    /// Oldest first.
    entries: BTreeMap<u64, Entry<K>>,
}

#[derive(Debug)]
struct Entry<K> {
    peer: K,
    calls: Arc<Calls>,
    /// Wakes the holder of the place when it goes with the entry.
    _stays: oneshot::Sender<()>,
}

impl<K: Ord> Places<K> {
    /// So many in all, and so many of one peer.
    #[must_use]
    pub fn new(max: usize, of_peer_max: usize) -> Self {
        let taken = Taken { max, of_peer_max, next: 0, entries: BTreeMap::new() };
        Self(Arc::new(Mutex::new(taken)))
    }

    /// Takes a place; `None` where all that could give way have calls under way.
    #[must_use]
    pub fn enter(&self, peer: K) -> Option<Place<K>> {
        let mut taken = self.lock();
        taken.make_room(&peer)?;
        let (stays, gone) = oneshot::channel();
        let (number, calls) = (taken.next, Arc::<Calls>::default());
        taken.next += 1;
        taken.entries.insert(number, Entry { peer, calls: Arc::clone(&calls), _stays: stays });
        Some(Place { places: Self(Arc::clone(&self.0)), number, gone, calls, seen: 0 })
    }

    fn lock(&self) -> MutexGuard<'_, Taken<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord> Taken<K> {
    /// `None` where there is no room to be made.
    fn make_room(&mut self, peer: &K) -> Option<()> {
        let mut counts = BTreeMap::new();
        for entry in self.entries.values() {
            *counts.entry(&entry.peer).or_insert(0) += 1;
        }
        let mut idle = self.entries.iter().filter(|(_, entry)| entry.calls.is_none());
        let has_all = counts.get(peer).is_some_and(|count| *count >= self.of_peer_max);
        let oldest = match (has_all, self.entries.len() >= self.max) {
            (true, _) => idle.find(|(_, entry)| entry.peer == *peer)?.0,
            (false, true) => {
                idle.max_by_key(|(number, it)| (counts[&it.peer], Reverse(*number)))?.0
            }
            (false, false) => return Some(()),
        };
        let oldest = *oldest;
        self.entries.remove(&oldest).map(drop)
    }
}

/// One place, until it is dropped.
#[derive(Debug)]
pub struct Place<K: Ord> {
    places: Places<K>,
    number: u64,
    gone: oneshot::Receiver<()>,
    calls: Arc<Calls>,
    /// Calls that had begun when it was asked last whether it is idle.
    seen: u64,
}

impl<K: Ord> Place<K> {
    /// Waits until it is to go.
    pub async fn gone(&mut self) {
        let _ = (&mut self.gone).await;
    }

    /// Ready, once, when it is to go.
    pub fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.gone).poll(context).map(drop)
    }

    /// Its calls.
    #[must_use]
    pub const fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Whether there was no call since this was asked last.
    pub fn was_idle(&mut self) -> bool {
        let begun = self.calls.begun.load(Ordering::Relaxed);
        self.calls.is_none() && begun == std::mem::replace(&mut self.seen, begun)
    }
}

impl<K: Ord> Drop for Place<K> {
    fn drop(&mut self) {
        self.places.lock().entries.remove(&self.number);
    }
}

/// The calls of one place.
#[derive(Debug, Default)]
pub struct Calls {
    open: AtomicUsize,
    begun: AtomicU64,
}

impl Calls {
    /// A call begins.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> Call {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        Call(Arc::clone(self))
    }

    fn is_none(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }
}

/// A call under way, until it is dropped.
#[derive(Debug)]
pub struct Call(Arc<Calls>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_gone(place: &mut Place<char>) -> bool {
        place.gone.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn a_peer_that_has_all_it_may_have_gives_way_to_itself() {
        let places = Places::new(4, 2);
        let [mut first, mut second] = ['a'; 2].map(|peer| places.enter(peer).unwrap());
        let mut other = places.enter('b').unwrap();
        let mut third = places.enter('a').unwrap();
        assert!(is_gone(&mut first), "its oldest");
        let call = third.calls().begin();
        let fourth = places.enter('a').unwrap();
        assert!(is_gone(&mut second) && !is_gone(&mut third));
        let of_fourth = fourth.calls().begin();
        assert!(places.enter('a').is_none(), "both have calls");
        drop(call);
        let _fifth = places.enter('a').unwrap();
        assert!(is_gone(&mut third) && !is_gone(&mut other));
        drop((of_fourth, fourth));
        assert_eq!(places.lock().entries.len(), 2, "who goes leaves nothing behind");
    }

    #[test]
    fn where_all_are_taken_the_greediest_gives_way() {
        let places = Places::new(4, 4);
        let mut one = places.enter('a').unwrap();
        let mut many = ['b'; 3].map(|peer| places.enter(peer).unwrap());
        let mut new = places.enter('c').unwrap();
        assert!(is_gone(&mut many[0]) && !is_gone(&mut one));
        let calls = [&many[1], &many[2]].map(|place| place.calls().begin());
        let mut newer = places.enter('d').unwrap();
        assert!(is_gone(&mut one) && !is_gone(&mut new), "of those that have one, the oldest");
        let more = [&new, &newer].map(|place| place.calls().begin());
        assert!(places.enter('e').is_none(), "none is idle");
        drop((calls, more));
        assert!(!newer.was_idle() && newer.was_idle());
    }
}
