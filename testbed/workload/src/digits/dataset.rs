//! Decides which images train the model and which judge it.
//!
//! The data set is compiled in, so a run needs no path. Invariant: the held-out fifth is never
//! seen by a gradient, and the split is a function of the seed alone.

use super::{STREAM_SPLIT, SplitMix64};

/// All images, in the order of the file.
#[derive(Clone, Debug)]
pub struct Dataset {
    images: Vec<Image>,
}

/// One image with its label.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Grey values, 0 to 1, row by row. Multiples of 1/16, so exact.
    pub pixels: [f32; PIXELS],
    /// The digit that was written.
    pub label: usize,
}

/// The images of one run.
#[derive(Clone, Debug)]
pub struct Split {
    /// Images that workers share out among themselves, in shuffled order.
    pub train: Vec<Image>,
    /// Images that only [`accuracy`](super::Trainer::accuracy) reads.
    pub held_out: Vec<Image>,
}

impl Dataset {
    /// The data set that Weft ships.
    ///
    /// # Errors
    /// When the file in the source tree was damaged before the build.
    pub fn embedded() -> Result<Self, DatasetError> {
        Self::parse(include_str!("../../../data/digits.csv"))
    }

    /// Reads lines of 64 grey values 0..16 and a label 0..9.
    fn parse(text: &str) -> Result<Self, DatasetError> {
        let images = text
            .lines()
            .enumerate()
            .map(|(index, line)| Image::parse(line).ok_or(DatasetError::Line { line: index + 1 }))
            .collect::<Result<Vec<_>, _>>()?;
        if images.len() != IMAGE_COUNT {
            return Err(DatasetError::Count { count: images.len() });
        }
        Ok(Self { images })
    }

    /// Shuffles by `seed`; the first fifth is held out.
    #[must_use]
    pub fn split(mut self, seed: u64) -> Split {
        SplitMix64::keyed(seed, STREAM_SPLIT, 0).shuffle(&mut self.images);
        let train = self.images.split_off(Split::HELD_OUT_COUNT);
        Split { train, held_out: self.images }
    }
}

impl Split {
    /// Images that judge the model.
    pub const HELD_OUT_COUNT: usize = IMAGE_COUNT / 5;
    /// Images that train it.
    pub const TRAIN_COUNT: usize = IMAGE_COUNT - Self::HELD_OUT_COUNT;
}

impl Image {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(',').map(|f| f.trim().parse::<u8>().ok());
        let mut pixels = [0.0; PIXELS];
        for pixel in &mut pixels {
            let grey = fields.next()??;
            if grey > GREY_MAX {
                return None;
            }
            *pixel = f32::from(grey) / f32::from(GREY_MAX);
        }
        let label = usize::from(fields.next()??);
        (label < CLASSES && fields.next().is_none()).then_some(Self { pixels, label })
    }
}

/// What is wrong with a data file.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum DatasetError {
    /// A line is not an image.
    #[error("line {line}: expected 64 values 0..16 and a label 0..9; restore the file from git")]
    Line {
        /// Line number, from 1.
        line: usize,
    },
    /// The file is not the whole data set.
    #[error("{count} images instead of {IMAGE_COUNT}; restore the file from git")]
    Count {
        /// Images found.
        count: usize,
    },
}

/// Pixels of an image, 8 rows of 8.
pub const PIXELS: usize = 64;
/// Digits that there are.
pub const CLASSES: usize = 10;
const GREY_MAX: u8 = 16;
const IMAGE_COUNT: usize = 1797;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_is_disjoint_complete_and_seeded() {
        let ids = |seed| {
            let mut numbered = Dataset::embedded().unwrap();
            // The first pixel is free to carry an identity through the shuffle.
            for (index, image) in numbered.images.iter_mut().enumerate() {
                image.pixels[0] = index as f32;
            }
            let split = numbered.split(seed);
            let of = |images: &[Image]| images.iter().map(|i| i.pixels[0]).collect::<Vec<_>>();
            (of(&split.train), of(&split.held_out))
        };
        let (train, held_out) = ids(7);
        assert_eq!((train.len(), held_out.len()), (1438, 359));
        assert_eq!((Split::TRAIN_COUNT, Split::HELD_OUT_COUNT), (1438, 359));
        let mut all: Vec<f32> = train.iter().chain(&held_out).copied().collect();
        all.sort_by(f32::total_cmp);
        assert_eq!(all, (0..1797_u16).map(f32::from).collect::<Vec<_>>());
        assert_eq!(ids(7).1, held_out);
        assert_ne!(ids(8).1, held_out);
    }

    #[test]
    fn damaged_lines_are_named() {
        let good = "1,".repeat(64) + "9";
        assert!(Image::parse(&good).is_some());
        let bad = ["1,".repeat(63) + "9", "17,".repeat(64) + "9", "1,".repeat(64) + "10"];
        for line in bad.iter().chain([&(good.clone() + ",0")]) {
            let text = format!("{good}\n{line}");
            assert_eq!(Dataset::parse(&text).unwrap_err(), DatasetError::Line { line: 2 });
        }
        assert_eq!(Dataset::parse(&good).unwrap_err(), DatasetError::Count { count: 1 });
    }
}
