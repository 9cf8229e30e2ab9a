//! Removes what an earlier life of the node installed, also where its file names another place now,
//! or none any more.

use std::collections::BTreeMap;

use weft_control::BandError;

use super::counts::Counts;
use super::tree::{Mark, Place, Problem, Root, Trace, traces};
use super::{only, tc};

/// Removes what has this mark, and says so; but for what is at `here`, and what somebody looks
/// after.
///
/// # Errors
/// It is not known what there is.
pub(super) fn remove_all(mark: Mark, here: Option<&Place>) -> Result<(), Problem> {
    let all = tc::run(&["-j", "qdisc", "show"].map(str::to_owned), "")?;
    for trace in traces(&all, mark)?.into_iter().take(TRACES_MAX) {
        let Some(place) = place_of(trace, mark) else { continue };
        if here.is_some_and(|here| place.is_same_as(here)) {
            continue;
        }
        let is_there = here.is_some_and(|here| place.device == here.device);
        let only = (!is_there).then(|| only(&place.device)).transpose();
        // Whoever else is there looks after it.
        let Ok(_only) = only else { continue };
        let device = &place.device;
        match remove(&place, &mut Counts::default()) {
            Ok(()) => weft_process::say!(
                "weft-node: bands on {device}: removed what an earlier life of this node had \
                 installed there, for another [bands]"
            ),
            Err(problem) => weft_process::say!(
                "weft-node: bands on {device}: what an earlier life of this node had installed \
                 there is left as it is: {}: {}",
                problem.error,
                problem.words
            ),
        }
    }
    Ok(())
}

fn place_of(trace: Trace, mark: Mark) -> Option<Place> {
    let (device, root) = match trace {
        Trace::Own(device) => (device, Root::Own { rate_bytes_per_sec: 0 }),
        Trace::Perhaps(device, major) => {
            let listing = ["class", "show", "dev", &device].map(str::to_owned);
            let classes = tc::run(&listing, "").ok()?;
            (device, Root::Under(mark.parent(&classes, major)?))
        }
    };
    // Nothing is installed there, so no size of packets matters.
    Some(Place { device, mtu: 0, root, mark })
}

/// Removes all that is Weft's in a place, and nothing else.
///
/// # Errors
/// Something is left.
pub(super) fn remove(place: &Place, counts: &mut Counts) -> Result<(), Problem> {
    let found = tc::read(place, counts)?;
    if found.is_clean() {
        return Ok(());
    }
    tc::batch(&place.removal(&found))?;
    match found.stranger() {
        None => {
            counts.note(BTreeMap::new());
            Ok(())
        }
        Some(stranger) => Err(Problem::new(
            BandError::Foreign,
            format!("{stranger} is somebody else's and hangs on Weft's, which stays with it"),
        )),
    }
}

/// HTB roots of a host that are looked at for what an earlier life left.
const TRACES_MAX: usize = 256;
