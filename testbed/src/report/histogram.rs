//! Decides how a set of times is condensed: quantiles, and the bins of a histogram. No I/O.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Quantiles of a set of times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// How many times there are.
    pub count: u64,
    /// The smallest.
    pub min: u64,
    /// The arithmetic mean.
    pub mean: f64,
    /// Half are at most this.
    pub p50: u64,
    /// 90 % are at most this.
    pub p90: u64,
    /// 99 % are at most this.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

impl Quantiles {
    /// Computes quantiles with three significant digits; `None` for no times.
    #[must_use]
    pub fn of(values: &[u64]) -> Option<Self> {
        let (min, max) = (*values.iter().min()?, *values.iter().max()?);
        // Three digits is within the library's bounds, and an automatic range takes any value.
        let mut histogram = Histogram::<u64>::new(3).ok()?;
        for value in values {
            histogram.record(*value).ok()?;
        }
        // The histogram rounds up inside its buckets; no quantile may exceed the largest value.
        let at = |quantile| histogram.value_at_quantile(quantile).min(max);
        Some(Self {
            count: values.len() as u64,
            min,
            mean: values.iter().map(|v| *v as f64).sum::<f64>() / values.len() as f64,
            p50: at(0.50),
            p90: at(0.90),
            p99: at(0.99),
            max,
        })
    }
}

/// Values from `low` to below `high`; the last bin has no upper end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bin {
    /// Smallest value in the bin.
    pub low: u64,
    /// Smallest value above the bin; `None` in the last bin.
    pub high: Option<u64>,
    /// Values in the bin.
    pub count: u64,
}

/// Sorts values into at most `BINS_MAX` bins of equal, round width up to the 99th percentile,
/// and one for the tail, so that a few slow rounds do not flatten the picture.
#[must_use]
pub fn bins(values: &[u64]) -> Vec<Bin> {
    let Some(quantiles) = Quantiles::of(values) else { return Vec::new() };
    let width = round_up((quantiles.p99 - quantiles.min) / (BINS_MAX as u64 - 2) + 1);
    let start = quantiles.min / width * width;
    let body = usize::try_from((quantiles.p99 - start) / width + 1).unwrap_or(1);
    let mut counts = vec![0; body + 1];
    for value in values {
        let index = usize::try_from((value - start) / width).unwrap_or(body).min(body);
        counts[index] += 1;
    }
    let bin = |(index, count): (usize, u64)| {
        let low = start + index as u64 * width;
        Bin { low, high: (index < body).then_some(low + width), count }
    };
    counts.into_iter().enumerate().map(bin).filter(|b| b.high.is_some() || b.count > 0).collect()
}

/// The next number of the form 1, 2 or 5 times a power of ten.
fn round_up(value: u64) -> u64 {
    let mut unit = 1_u64;
    loop {
        for factor in [1, 2, 5] {
            let candidate = unit.saturating_mul(factor);
            if candidate >= value {
                return candidate;
            }
        }
        unit = unit.saturating_mul(10);
    }
}

const BINS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_by_hand() {
        let values: Vec<u64> = (1..=1000).rev().collect();
        let found = Quantiles::of(&values).unwrap();
        assert_eq!(
            (found.min, found.p50, found.p90, found.p99, found.max),
            (1, 500, 900, 990, 1000)
        );
        assert_eq!((found.count, found.mean), (1000, 500.5));
        assert_eq!(Quantiles::of(&[]), None);
        let one = Quantiles::of(&[1_234_567_891]).unwrap();
        assert_eq!((one.p50, one.max), (1_234_567_891, 1_234_567_891));
    }

    #[test]
    fn every_value_is_in_one_bin_and_the_tail_is_apart() {
        let mut values: Vec<u64> = (0..990).map(|i| 1_000_000 + i * 1_000).collect();
        values.extend([90_000_000; 5]);
        let bins = bins(&values);
        assert!(bins.len() <= BINS_MAX, "{}", bins.len());
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), 995);
        let tail = bins.last().unwrap();
        assert_eq!(tail.high, None);
        assert!((5..=15).contains(&tail.count), "{tail:?}");
        for bin in &bins {
            let high = bin.high.unwrap_or(u64::MAX);
            let inside = values.iter().filter(|v| (bin.low..high).contains(v)).count();
            assert_eq!(bin.count, inside as u64, "{bin:?}");
        }
    }

    #[test]
    fn odd_inputs_have_bins_too() {
        assert_eq!(bins(&[]), []);
        assert_eq!(bins(&[7, 7]), [Bin { low: 7, high: Some(8), count: 2 }]);
        assert_eq!(bins(&[0, u64::MAX / 2]).iter().map(|b| b.count).sum::<u64>(), 2);
        assert_eq!([1, 3, 6, 11].map(round_up), [1, 5, 10, 20]);
    }
}
