//! One spelling for each value of an enumeration: what text, files and `--help` call it.
//!
//! [`words!`](macro@crate::words) declares it beside the type. With the feature `serde` the type is
//! read and written by these words.

use core::fmt;
use core::marker::PhantomData;

/// An enumeration whose values have words.
pub trait Word: Copy + PartialEq + Sized + 'static {
    /// What a value is, for errors.
    const WHAT: &'static str;
    /// The values that people may choose, each with its word.
    const WORDS: &'static [(Self, &'static str)];

    /// The value of a word.
    ///
    /// # Errors
    /// No value has it.
    fn from_word(word: &str) -> Result<Self, UnknownWord<Self>> {
        let known = Self::WORDS.iter().find(|(_, known)| *known == word);
        known.map(|(value, _)| *value).ok_or(UnknownWord(PhantomData))
    }
}

/// Error of [`Word::from_word`]: lists the words that there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnknownWord<T>(PhantomData<T>);

impl<T: Word> fmt::Display for UnknownWord<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected one of ")?;
        T::WORDS.iter().enumerate().try_for_each(|(index, (_, word))| {
            f.write_str(if index > 0 { ", " } else { "" })?;
            write!(f, "`{word}`")
        })
    }
}

impl<T: Word + fmt::Debug> core::error::Error for UnknownWord<T> {}

/// The word of a value in a table.
#[must_use]
pub fn word_of<T: PartialEq>(all: &[(T, &'static str)], value: &T) -> &'static str {
    all.iter().find(|(known, _)| known == value).map_or("?", |(_, word)| word)
}

/// Reads a value by its word.
///
/// # Errors
/// Not a text, or no value has this word.
#[cfg(feature = "serde")]
pub fn deserialize<'de, T: Word, D: serde::Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    struct Visitor<T>(PhantomData<T>);

    impl<T: Word> serde::de::Visitor<'_> for Visitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "the word of the {}", T::WHAT)
        }

        fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<T, E> {
            T::from_word(word)
                .map_err(|known| E::custom(format_args!("unknown {} `{word}`, {known}", T::WHAT)))
        }
    }

    from.deserialize_str(Visitor(PhantomData))
}

/// Gives the values of an enumeration their words: `ALL`, [`Word`], `Display`, `FromStr`, and with
/// the feature `serde` of the crate that uses it, `Serialize` and `Deserialize`. A value that
/// people cannot choose comes last, behind `besides`.
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Colour {
///     Red,
///     DeepBlue,
/// }
///
/// weft_wire::words!(Colour, "colour", { Red = "red", DeepBlue = "deep_blue" });
///
/// assert_eq!(Colour::DeepBlue.to_string(), "deep_blue");
/// assert!("green".parse::<Colour>().unwrap_err().to_string().ends_with("`red`, `deep_blue`"));
/// ```
#[macro_export]
macro_rules! words {
    (
        $type:ident, $what:literal,
        { $($variant:ident = $word:literal),+ $(,)? }
        $(, besides { $other:ident = $name:literal })?
    ) => {
        impl $type {
            /// Every value with its word, in text and in files.
            pub const ALL: &'static [(Self, &'static str)] =
                &[$((Self::$other, $name),)? $((Self::$variant, $word)),+];
        }

        impl $crate::words::Word for $type {
            const WHAT: &'static str = $what;
            const WORDS: &'static [(Self, &'static str)] = &[$((Self::$variant, $word)),+];
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad($crate::words::word_of(Self::ALL, self))
            }
        }

        impl core::str::FromStr for $type {
            type Err = $crate::words::UnknownWord<Self>;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                $crate::words::Word::from_word(word)
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str($crate::words::word_of(Self::ALL, self))
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::words::deserialize(from)
            }
        }
    };
}
