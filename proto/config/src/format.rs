//! How statistics are written.

use serde::{Deserialize, Serialize};

/// How statistics are written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StatsFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

// By hand: what clap derives needs `std`.
#[cfg(feature = "clap")]
impl clap::ValueEnum for StatsFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Text, Self::Json]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        let (word, help) = match self {
            Self::Text => ("text", "For people"),
            Self::Json => ("json", "For programs"),
        };
        Some(clap::builder::PossibleValue::new(word).help(help))
    }
}
