//! What a controller and the workers of an allreduce say of rounds.

use weft_control::{Cohort, CohortId, Messages, RoundOrder, RoundPosition};

use super::codes::code;
use super::{Invalid, invalid};
use crate::v1;

/// Writes a position, and whose it is.
#[must_use]
pub fn position_to_proto(cohort: CohortId, position: RoundPosition) -> v1::RoundPosition {
    v1::RoundPosition {
        turn: position.turn,
        next: position.next,
        halt: v1::Halt::from(position.halt).into(),
        cohort: cohort.0,
    }
}

/// Reads a position.
///
/// # Errors
/// A halt that is not listed.
pub fn position(said: &v1::RoundPosition) -> Result<(CohortId, RoundPosition), Invalid> {
    let position = RoundPosition { turn: said.turn, next: said.next, halt: code(said.halt)? };
    Ok((CohortId(said.cohort), position))
}

/// Writes a cohort.
#[must_use]
pub fn cohort_to_proto(cohort: Cohort) -> v1::Cohort {
    v1::Cohort {
        cohort: cohort.id.0,
        workers: cohort.workers.into(),
        workers_first: cohort.workers_first.into(),
        from_round: cohort.from_round,
    }
}

/// Reads a cohort.
///
/// # Errors
/// A number of workers that is none.
pub fn cohort(said: &v1::Cohort) -> Result<Cohort, Invalid> {
    let count = |count: u32| {
        let count = u16::try_from(count).ok().filter(|count| *count > 0);
        count.ok_or(invalid("workers", "must be 1 to 65535"))
    };
    Ok(Cohort {
        id: CohortId(said.cohort),
        workers: count(said.workers)?,
        workers_first: count(said.workers_first)?,
        from_round: said.from_round,
    })
}

/// Writes an order with its number.
#[must_use]
pub fn round_order_to_proto(turn: u32, order: RoundOrder) -> v1::RoundOrder {
    use v1::RoundOrderKind as Kind;
    let (kind, boundary) = match order {
        RoundOrder::Go => (Kind::Go, 0),
        RoundOrder::Hold => (Kind::Hold, 0),
        RoundOrder::Stop(boundary) => (Kind::Stop, boundary),
        RoundOrder::Leave(boundary) => (Kind::Leave, boundary),
        RoundOrder::Bye => (Kind::Bye, 0),
    };
    v1::RoundOrder { turn, kind: kind.into(), boundary }
}

/// Reads an order with its number.
///
/// # Errors
/// A kind that is not listed.
pub fn round_order(said: &v1::RoundOrder) -> Result<(u32, RoundOrder), Invalid> {
    use v1::RoundOrderKind as Kind;
    let order = match Kind::try_from(said.kind) {
        Ok(Kind::Go) => RoundOrder::Go,
        Ok(Kind::Hold) => RoundOrder::Hold,
        Ok(Kind::Stop) => RoundOrder::Stop(said.boundary),
        Ok(Kind::Leave) => RoundOrder::Leave(said.boundary),
        Ok(Kind::Bye) => RoundOrder::Bye,
        Ok(Kind::Unspecified) | Err(_) => {
            return Err(invalid("kind", "must be GO, HOLD, STOP, LEAVE or BYE"));
        }
    };
    Ok((said.turn, order))
}

/// Writes what was summed.
#[must_use]
pub fn messages_to_proto(messages: Messages) -> v1::Messages {
    let Messages { count, bytes, largest_bytes } = messages;
    v1::Messages { count, bytes, largest_bytes }
}

/// Reads what was summed.
///
/// # Errors
/// Messages that cannot be: none, or one that is larger than all.
pub fn messages(said: &v1::Messages) -> Result<Messages, Invalid> {
    let v1::Messages { count, bytes, largest_bytes } = *said;
    let read = Messages { count, bytes, largest_bytes };
    match read.is_sound() {
        true => Ok(read),
        false => Err(invalid("messages", "must be some, the largest among them")),
    }
}

#[cfg(test)]
mod tests {
    use weft_control::Halt;

    use super::*;

    #[test]
    fn what_is_said_of_rounds_comes_back() {
        let orders = [
            RoundOrder::Go,
            RoundOrder::Hold,
            RoundOrder::Stop(7),
            RoundOrder::Leave(u64::MAX),
            RoundOrder::Bye,
        ];
        for (order, turn) in orders.into_iter().zip(1..) {
            assert_eq!(round_order(&round_order_to_proto(turn, order)), Ok((turn, order)));
        }
        for halt in [Halt::None, Halt::Held, Halt::Stopped, Halt::Left] {
            let at = RoundPosition { turn: 3, next: 40, halt };
            let said = position_to_proto(CohortId(2), at);
            assert_eq!(position(&said), Ok((CohortId(2), at)));
        }
        let of = Cohort { id: CohortId(1), workers: 4, workers_first: 2, from_round: 9 };
        assert_eq!(cohort(&cohort_to_proto(of)), Ok(of));
        let summed = Messages { count: 3, bytes: 90, largest_bytes: 50 };
        assert_eq!(messages(&messages_to_proto(summed)), Ok(summed));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_field() {
        let field = |invalid: Invalid| invalid.field;
        assert_eq!(round_order(&v1::RoundOrder::default()).map_err(field), Err("kind"));
        let unheard = v1::RoundOrder { kind: 77, ..v1::RoundOrder::default() };
        assert_eq!(round_order(&unheard).map_err(field), Err("kind"));
        assert_eq!(position(&v1::RoundPosition::default()).map_err(field), Err("halt"));
        assert_eq!(cohort(&v1::Cohort::default()).map_err(field), Err("workers"));
        assert_eq!(messages(&v1::Messages::default()).map_err(field), Err("messages"));
        let many = v1::Cohort { workers: 1 << 16, workers_first: 1, ..v1::Cohort::default() };
        assert_eq!(cohort(&many).map_err(field), Err("workers"));
    }
}
