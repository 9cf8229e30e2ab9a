//! The round before a round of block numbers: which exponent each block has.

use weft_io::Port;
use weft_kernel::Kernels;
use weft_wire::quant;

use super::Session;
use crate::error::Error;
use crate::group::Group;
use crate::io::Workers;
use crate::narrow;
use crate::payload::Integers;

impl<P: Port> Session<P> {
    /// One exponent per data chunk, the largest that any worker needs.
    pub(super) fn agree_on_exponents(&mut self, vectors: &[&mut [f32]]) -> Result<Vec<i32>, Error> {
        let kernels = Kernels::detect();
        let Group { exponents, lease, .. } = &self.group;
        let block = usize::from(lease.elements);
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        // An empty vector has a chunk, and so an exponent.
        let blocks = vectors.iter().flat_map(|vector| {
            let empty = vector.is_empty().then_some(&[][..]);
            vector.chunks(block).chain(empty)
        });
        encoded.extend(blocks.map(|block| {
            let exponent = quant::exponent_for(kernels.max_abs_f32(block), lease.fan_in);
            quant::encode_exponent(exponent)
        }));
        if vectors.is_empty() {
            encoded.push(quant::encode_exponent(quant::EXPONENT_MIN));
        }
        let worker = exponents.as_ref().expect("block numbers have a row for exponents");
        let lease = *worker.lease().expect("an open worker has a lease");
        let elements = usize::from(lease.elements);
        let chunks = u32::try_from(encoded.len().div_ceil(elements)).expect("fewer than values");
        self.begin(true, chunks)?;
        let mut payload = Integers {
            kernels,
            elements,
            data: &mut encoded,
            padding: quant::encode_exponent(quant::EXPONENT_MIN),
            exponent: lease.exponent.unwrap_or(0),
            clamped: 0,
        };
        let Group { data, exponents, .. } = &mut self.group;
        let worker = exponents.as_mut().expect("block numbers have a row for exponents");
        let active = Workers { active: worker, other: Some(data) };
        narrow::finish(&mut self.io, &self.config, active, &mut payload).map_err(|error| {
            match error {
                Error::Session(error) => Error::Session(error.in_blocks(block as u64)),
                error => error,
            }
        })?;
        check_offers(&encoded)?;
        Ok(encoded)
    }
}

/// Every worker has the same offers, so all end here together.
fn check_offers(encoded: &[i32]) -> Result<(), Error> {
    let is_legal = |offer: &i32| quant::decode_exponent(*offer).is_some();
    let problem = "a worker of the group offered a block exponent outside -126 to 126";
    if encoded.iter().all(is_legal) { Ok(()) } else { Err(Error::Wrong(problem)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_that_is_no_exponent_ends_the_call() {
        assert!(check_offers(&[-126, 0, 126]).is_ok());
        for offer in [-127, 127, i32::MAX] {
            assert!(matches!(check_offers(&[0, offer]), Err(Error::Wrong(_))), "{offer}");
        }
    }
}
