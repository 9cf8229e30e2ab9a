//! Figures that are declared once: the field of the counters, its text and its kind. Reports and
//! metrics are made of the declaration, so that none of them lacks one (I11).

/// What a figure does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FigureKind {
    /// It grows only.
    Counter,
    /// It goes up and down, or is a greatest value.
    Gauge,
}

/// A figure of the counters `S`.
#[derive(Debug)]
pub struct Figure<S> {
    /// Its name, the field's.
    pub name: &'static str,
    /// What it does.
    pub kind: FigureKind,
    /// What it says, for people.
    pub help: &'static str,
    /// Reads it.
    pub read: fn(&S) -> u64,
}

/// Declares counters as a struct of `u64` with a table of [`Figure`]s, `FIGURES`. Each field is a
/// `counter` or a `gauge`, and its documentation is its help. What follows `besides` is a field
/// like any other, with the value that it begins with, and in no table.
macro_rules! figures {
    (
        $(#[$meta:meta])*
        pub struct $stats:ident {
            $($(#[doc = $help:literal])+ $kind:ident $name:ident,)+
        }
        $(besides { $($(#[$also:meta])* $vis:vis $other:ident: $type:ty = $value:expr,)+ })?
    ) => {
        $(#[$meta])*
        pub struct $stats {
            $($(#[doc = $help])+ pub $name: u64,)+
            $($($(#[$also])* $vis $other: $type,)+)?
        }

        impl Default for $stats {
            fn default() -> Self {
                Self { $($name: 0,)+ $($($other: $value,)+)? }
            }
        }

        impl $stats {
            /// Every counter and gauge that is a whole number.
            pub const FIGURES: &'static [$crate::figures::Figure<Self>] = &[$(
                $crate::figures::Figure {
                    name: stringify!($name),
                    kind: $crate::figures::figures!(@$kind),
                    help: concat!($($help),+),
                    read: |stats| stats.$name,
                },
            )+];
        }
    };
    (@counter) => { $crate::figures::FigureKind::Counter };
    (@gauge) => { $crate::figures::FigureKind::Gauge };
}

pub(crate) use figures;
