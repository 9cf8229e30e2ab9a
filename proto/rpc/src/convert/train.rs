//! Trains (SPEC#transfer-trains): how the chunks that a transfer began with arrived.

use weft_control::{TRAIN_CHUNKS_MAX, Train, TrainArrival};
use weft_wire::GroupId;

use super::{Invalid, invalid, job, rank, rank_to_proto};
use crate::v1;

/// Writes a train.
#[must_use]
pub fn train_to_proto(train: &Train) -> v1::Train {
    v1::Train {
        job: train.job.0.into(),
        group: train.group.0,
        rank: train.rank.map(rank_to_proto),
        frame_bytes: train.frame_len,
        at_ns: train.arrivals.iter().map(|arrival| arrival.at_ns).collect(),
        rx_bytes: train.arrivals.iter().map(|arrival| arrival.rx_bytes).collect(),
    }
}

/// Reads a train.
///
/// # Errors
/// The first field that is out of range; lists that are not of one length, or too long.
pub fn train(train: &v1::Train) -> Result<Train, Invalid> {
    if train.at_ns.len() > usize::from(TRAIN_CHUNKS_MAX) {
        return Err(invalid("at_ns", "must be at most 128"));
    }
    if train.rx_bytes.len() != train.at_ns.len() {
        return Err(invalid("rx_bytes", "must be as many as at_ns"));
    }
    let arrivals = train.at_ns.iter().zip(&train.rx_bytes);
    let arrival =
        |(at_ns, rx_bytes): (&u64, &u64)| TrainArrival { at_ns: *at_ns, rx_bytes: *rx_bytes };
    Ok(Train {
        job: job(train.job)?,
        group: GroupId(train.group),
        rank: train.rank.map(rank).transpose()?,
        frame_len: train.frame_bytes,
        arrivals: arrivals.map(arrival).collect(),
    })
}

#[cfg(test)]
mod tests {
    use weft_wire::{JobId, Rank};

    use super::*;

    fn sample() -> Train {
        let arrival = |i: u64| TrainArrival { at_ns: i * 1000, rx_bytes: i * 1100 };
        Train {
            job: JobId(3),
            group: GroupId::new(4, 5),
            rank: Rank::new(7),
            frame_len: 1098,
            arrivals: (0..16).map(arrival).collect(),
        }
    }

    #[test]
    fn a_train_survives_its_journey() {
        let proto = train_to_proto(&sample());
        assert_eq!(train(&proto), Ok(sample()));
        let sum = Train { rank: None, ..sample() };
        assert_eq!(train(&train_to_proto(&sum)), Ok(sum));
    }

    #[test]
    fn a_wrong_train_is_refused_by_its_field() {
        let good = train_to_proto(&sample());
        let field = |change: &dyn Fn(&mut v1::Train)| {
            let mut wrong = good.clone();
            change(&mut wrong);
            train(&wrong).map_err(|invalid| invalid.field)
        };
        assert_eq!(field(&|t| t.job = 1 << 16), Err("job"));
        assert_eq!(field(&|t| t.rank = Some(64)), Err("rank"));
        assert_eq!(field(&|t| t.rx_bytes.truncate(1)), Err("rx_bytes"));
        assert_eq!(field(&|t| t.at_ns = vec![0; 129]), Err("at_ns"));
    }
}
