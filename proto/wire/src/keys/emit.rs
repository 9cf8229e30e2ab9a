//! Writes entries. Each function returns the entry's length, or `None` when there is no room; then
//! nothing was written that counts.

use super::{
    ACCESS_LEN, CLAIM_LEN, Claim, ELEMENT_LEN, KEY_LEN, LAST_LEN, Number, Parts, ROW_HEAD_LEN,
    RowEpoch,
};

/// Writes a key alone.
pub fn key(to: &mut [u8], key: u64) -> Option<usize> {
    to.first_chunk_mut::<KEY_LEN>()?.copy_from_slice(&key.to_be_bytes());
    Some(KEY_LEN)
}

/// Writes an access: what it sets and what it adds.
pub fn access(
    to: &mut [u8],
    key: u64,
    parts: Parts,
    set: Option<&[f32]>,
    add: Option<&[f32]>,
) -> Option<usize> {
    let values = [set, add];
    let elements = values.iter().flatten().map(|value| value.len()).sum::<usize>();
    let to = to.get_mut(..ACCESS_LEN + elements * ELEMENT_LEN)?;
    access_head(to, key, parts);
    let mut at = ACCESS_LEN;
    for value in values.into_iter().flatten() {
        at += self::value(&mut to[at..], value);
    }
    Some(at)
}

/// Writes an answer, with the row's value or without.
pub fn answer(to: &mut [u8], key: u64, value: Option<&[f32]>) -> Option<usize> {
    let parts = if value.is_some() { Parts::PULL } else { Parts::NONE };
    access(to, key, parts, None, value)
}

/// Writes an entry of a claim.
pub fn claim(to: &mut [u8], claim: &Claim) -> Option<usize> {
    let to = to.first_chunk_mut::<CLAIM_LEN>()?;
    to[..8].copy_from_slice(&claim.key.to_be_bytes());
    to[8..16].copy_from_slice(&claim.epoch.0.to_be_bytes());
    to[16..].copy_from_slice(&claim.at.word().to_be_bytes());
    Some(CLAIM_LEN)
}

/// Writes a row with the last numbers that it has: by process, so many of each.
pub fn row(
    to: &mut [u8],
    key: u64,
    epoch: RowEpoch,
    (lasts, of_each): (&[Number], u8),
    value: &[f32],
) -> Option<usize> {
    let len = row_len(lasts, value.len());
    let to = to.get_mut(..len)?;
    to[..8].copy_from_slice(&key.to_be_bytes());
    to[8..16].copy_from_slice(&epoch.0.to_be_bytes());
    let count = u16::try_from(present(lasts).count()).ok()?;
    to[16..18].copy_from_slice(&count.to_be_bytes());
    to[18..ROW_HEAD_LEN].fill(0);
    let at = ROW_HEAD_LEN + by_process(&mut to[ROW_HEAD_LEN..], lasts, of_each)?;
    self::value(&mut to[at..], value);
    Some(len)
}

/// Bytes that [`row`] takes for a value of `elements`.
#[must_use]
pub fn row_len(lasts: &[Number], elements: usize) -> usize {
    ROW_HEAD_LEN + present(lasts).count() * LAST_LEN + elements * ELEMENT_LEN
}

/// Writes the numbers that there are, by process: floors.
pub fn numbers(to: &mut [u8], numbers: &[Number]) -> Option<usize> {
    by_process(to, numbers, 1)
}

fn by_process(to: &mut [u8], numbers: &[Number], of_each: u8) -> Option<usize> {
    let mut at = 0;
    for (place, number) in present(numbers) {
        let process = place / u32::from(of_each.max(1));
        let to = to.get_mut(at..at + LAST_LEN)?;
        to[..4].copy_from_slice(&process.to_be_bytes());
        to[4..].copy_from_slice(&number.0.to_be_bytes());
        at += LAST_LEN;
    }
    Some(at)
}

/// How many of the numbers there are.
#[must_use]
pub fn number_count(numbers: &[Number]) -> usize {
    present(numbers).count()
}

fn present(numbers: &[Number]) -> impl Iterator<Item = (u32, Number)> + '_ {
    (0..)
        .zip(numbers)
        .filter(|(_, number)| number.is_some())
        .map(|(place, number)| (place, *number))
}

fn access_head(to: &mut [u8], key: u64, parts: Parts) {
    to[..8].copy_from_slice(&key.to_be_bytes());
    to[8] = parts.0;
    to[9..ACCESS_LEN].fill(0);
}

/// Writes a value into room that it has.
fn value(to: &mut [u8], value: &[f32]) -> usize {
    let (elements, _) = to.as_chunks_mut::<ELEMENT_LEN>();
    for (to, element) in elements.iter_mut().zip(value) {
        *to = element.to_be_bytes();
    }
    value.len() * ELEMENT_LEN
}
