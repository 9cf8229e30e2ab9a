//! Figures as they are declared ([`Figure`]), and their way into JSON, text and metrics: a figure
//! that is declared is in all three.

use std::fmt::{self, Write};

use serde::{Serialize, Serializer};
use weft_engine::figures::{Figure, FigureKind};

/// The figures of one thing, in the order of their declaration. JSON has them as keys.
#[derive(Clone, Debug, Default)]
pub struct Figures(Vec<Reading>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    name: &'static str,
    kind: FigureKind,
    help: &'static str,
    value: u64,
}

impl Figures {
    /// Adds up what several lanes counted; with none of them every figure is 0.
    pub(super) fn sum<'a, S: 'a>(
        table: &'static [Figure<S>],
        stats: impl Iterator<Item = &'a S> + Clone,
    ) -> Self {
        let reading = |figure: &'static Figure<S>| Reading {
            name: figure.name,
            kind: figure.kind,
            help: figure.help.trim(),
            value: stats.clone().map(figure.read).sum(),
        };
        Self(table.iter().map(reading).collect())
    }

    /// The same, and what another table reads.
    pub(super) fn and<'a, S: 'a>(
        mut self,
        table: &'static [Figure<S>],
        stats: impl Iterator<Item = &'a S> + Clone,
    ) -> Self {
        self.0.extend(Self::sum(table, stats).0);
        self
    }

    /// Whether any is not 0.
    pub(super) fn any(&self) -> bool {
        self.0.iter().any(|reading| reading.value > 0)
    }

    /// A figure by its name; 0 if there is none of this name.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        self.0.iter().find(|reading| reading.name == name).map_or(0, |reading| reading.value)
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|reading| (reading.name, reading.value)))
    }
}

/// Writes what is not 0 for people, over as many lines as it takes.
pub(super) fn write_text(out: &mut String, figures: &Figures) -> fmt::Result {
    let seen = figures.0.iter().filter(|reading| reading.value > 0);
    write_list(out, seen.map(|reading| (reading.name, reading.value)))
}

/// Writes names and counts, folded.
pub(super) fn write_list(
    out: &mut String,
    counts: impl Iterator<Item = (&'static str, u64)>,
) -> fmt::Result {
    let mut line = String::new();
    for (name, count) in counts {
        let word = format!("{}: {count}", name.replace('_', " "));
        if !line.is_empty() && line.len() + 2 + word.len() > WIDTH {
            writeln!(out, "    {line}")?;
            line.clear();
        }
        write!(line, "{}{word}", if line.is_empty() { "" } else { "  " })?;
    }
    writeln!(out, "    {}", if line.is_empty() { "none" } else { &line })
}

/// Columns beside the four of the indent.
const WIDTH: usize = 74;

/// Writes the figures of things of one kind, `weft_FAMILY_NAME`, each with its labels. Times are in
/// seconds, the base unit of Prometheus.
pub(super) fn write_metrics(
    out: &mut String,
    family: &str,
    things: &[(String, &Figures)],
) -> fmt::Result {
    let Some((_, first)) = things.first() else { return Ok(()) };
    for (index, Reading { name, kind, help, .. }) in first.0.iter().enumerate() {
        let (suffix, kind) = match kind {
            FigureKind::Counter => ("_total", "counter"),
            FigureKind::Gauge => ("", "gauge"),
        };
        let (name, per_unit) = match name.strip_suffix("_ns") {
            Some(name) => (format!("{name}_seconds"), 1e9),
            None => ((*name).to_owned(), 1.0),
        };
        let name = format!("weft_{family}_{name}{suffix}");
        weft_process::metrics::head(out, &name, kind, help.trim_end_matches('.'))?;
        for (labels, figures) in things {
            writeln!(out, "{name}{labels} {}", figures.0[index].value as f64 / per_unit)?;
        }
    }
    Ok(())
}

/// A table of figures of counters that are declared elsewhere.
macro_rules! table {
    ($stats:ty: $($name:ident $help:literal,)+) => {
        &[$(weft_engine::figures::Figure::<$stats> {
            name: stringify!($name),
            kind: weft_engine::figures::FigureKind::Counter,
            help: $help,
            read: |stats| stats.$name,
        }),+]
    };
}

pub(super) use table;
