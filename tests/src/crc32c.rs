//! CRC32C bit by bit: the reference that tests hold faster code against.

/// Reflected polynomial of Castagnoli's CRC (RFC 3720, appendix B).
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// CRC32C of `octets`.
#[must_use]
pub fn crc32c(octets: &[u8]) -> u32 {
    !register(octets)
}

/// The four octets that, put behind `octets`, make the CRC32C of the whole 0.
#[must_use]
pub fn tail_for_zero(octets: &[u8]) -> [u8; 4] {
    // A CRC of 0 is a register of all ones; step back through the 32 bits of the tail.
    let mut wanted = u32::MAX;
    for _ in 0..32 {
        let carry = wanted >> 31;
        wanted = ((wanted ^ (POLYNOMIAL * carry)) << 1) | carry;
    }
    (wanted ^ register(octets)).to_le_bytes()
}

fn register(octets: &[u8]) -> u32 {
    let mut register = u32::MAX;
    for octet in octets {
        register ^= u32::from(*octet);
        for _ in 0..8 {
            register = (register >> 1) ^ (POLYNOMIAL * (register & 1));
        }
    }
    register
}

#[cfg(test)]
mod tests {
    use super::{crc32c, tail_for_zero};

    #[test]
    fn agrees_with_published_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn forges_a_zero() {
        let mut octets = b"weft".to_vec();
        octets.extend(tail_for_zero(b"weft"));
        assert_eq!(crc32c(&octets), 0);
    }
}
