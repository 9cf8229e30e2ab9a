//! Tables of rows that a node is the home of: what went through it, and who lives.

use std::fmt::{self, Write};

use serde::Serialize;
use weft_engine::figures::{Figure, FigureKind};
use weft_engine::role::keys::{Home, HomeStats};
use weft_process::metrics::label;

use super::LaneSnapshot;
use super::figures::{self, Figures, table};

/// A home's counters at one moment.
#[derive(Clone, Debug)]
pub struct TableSnapshot {
    job: u16,
    table: u16,
    life: u16,
    living: usize,
    stats: HomeStats,
}

impl TableSnapshot {
    /// Copies a home's counters.
    pub(super) fn take(home: &Home) -> Self {
        let table = home.table();
        Self {
            job: table.job.0,
            table: table.table,
            life: home.life(),
            living: home.living().len(),
            stats: home.stats().clone(),
        }
    }
}

/// A table.
#[derive(Clone, Debug, Serialize)]
pub struct TableReport {
    /// Index of its job on the wire.
    pub job: u16,
    /// Which of the job's tables.
    pub table: u16,
    /// What went through its home.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The tables of all lanes.
pub(super) fn reports(lanes: &[LaneSnapshot]) -> Vec<TableReport> {
    let tables = lanes.iter().flat_map(|lane| &lane.tables);
    let report = |it: &TableSnapshot| TableReport {
        job: it.job,
        table: it.table,
        figures: Figures::sum(COUNTERS, [&it.stats].into_iter()).and(GAUGES, [it].into_iter()),
    };
    tables.map(report).collect()
}

/// Writes what is not 0 for people.
pub(super) fn write_text(out: &mut String, tables: &[TableReport]) -> fmt::Result {
    for it in tables {
        writeln!(out, "  table {} of job {}:", it.table, it.job)?;
        figures::write_text(out, &it.figures)?;
    }
    Ok(())
}

/// Writes every figure of every table.
pub(super) fn write_metrics(out: &mut String, tables: &[TableReport]) -> fmt::Result {
    let labels = |it: &TableReport| {
        format!("{{job={},table={}}}", label(&it.job.to_string()), label(&it.table.to_string()))
    };
    let things: Vec<_> = tables.iter().map(|it| (labels(it), &it.figures)).collect();
    figures::write_metrics(out, "table", &things)
}

const COUNTERS: &[Figure<HomeStats>] = table![HomeStats:
    accesses "Accesses that the home sent on, by key",
    localizes "Localizes that the home sent on, by key",
    row_acks "Rows that arrived at their takers",
    waits "Keys that were asked for and are not known, or went round too often",
    claims "Keys that processes claimed",
    taken_back "Copies that were taken back from the dead; repeats count",
    restored "Rows that nobody had and that were to be restored; repeats count",
    lives "Lives that began here",
    deaths "Processes that were declared dead",
];

const GAUGES: &[Figure<TableSnapshot>] = &[
    gauge("life", "The life of the table; 0 while not all have joined", |it| it.life.into()),
    gauge("living", "Processes that live in it", |it| it.living as u64),
];

const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&TableSnapshot) -> u64,
) -> Figure<TableSnapshot> {
    Figure { name, kind: FigureKind::Gauge, help, read }
}
