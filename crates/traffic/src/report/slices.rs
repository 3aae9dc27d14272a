//! The figures of a ramp by slice: medians over the repetitions, for every format.

use super::grid::Grid;
use super::markdown::{self, Align};
use super::number::{Unit, with_unit};
use super::summary::Summary;
use crate::measure::statistics::median;
use crate::outcome::{Outcome, Slice};

/// The head of the table, without units.
const TITLES: [(&str, Unit); 7] = [
    ("offered", Unit::PerSecond),
    ("achieved", Unit::PerSecond),
    ("unsent", Unit::Count),
    ("lost", Unit::Count),
    ("errors", Unit::Count),
    ("p50", Unit::Microseconds),
    ("p99", Unit::Microseconds),
];

/// A slice of a run: medians over its repetitions.
pub(crate) struct Row {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    /// As [`TITLES`] has them.
    values: [Option<f64>; 7],
}

impl Row {
    /// Operations a second that were due.
    pub(crate) fn offered(&self) -> Option<f64> {
        self.values.first().copied().flatten()
    }

    /// Operations a second that began.
    pub(crate) fn achieved(&self) -> Option<f64> {
        self.values.get(1).copied().flatten()
    }

    /// The 99th percentile of latency.
    pub(crate) fn p99(&self) -> Option<f64> {
        self.values.last().copied().flatten()
    }
}

/// The slices of a run; none where its rate stays.
pub(crate) fn rows(summary: &Summary<'_>) -> Vec<Row> {
    let most = summary.used.iter().map(|outcome| outcome.slices.len()).max().unwrap_or_default();
    let row = |number: usize| {
        let slices: Vec<&Slice> = summary.used.iter().filter_map(|outcome| outcome.slices.get(number)).collect();
        let middle = |of: &dyn Fn(&Slice) -> Option<f64>| {
            median(&slices.iter().filter_map(|slice| of(slice)).collect::<Vec<_>>())
        };
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let count = |count: u64| Some(count as f64);
        let first = slices.first()?;
        let values = [
            middle(&Slice::offered_per_s),
            middle(&Slice::achieved_per_s),
            middle(&|slice| count(slice.unsent)),
            middle(&|slice| count(slice.lost())),
            middle(&|slice| count(slice.errors)),
            middle(&|slice| slice.latency.percentile_us(50.0)),
            middle(&|slice| slice.latency.percentile_us(99.0)),
        ];
        Some(Row { from_s: first.from_s, to_s: first.to_s, values })
    };
    (0..most).filter_map(row).collect()
}

/// The rate up to which a run kept up, in every repetition: in words.
pub(crate) fn kept(summary: &Summary<'_>) -> Option<String> {
    let experiment = &summary.run.experiment;
    let (first, last) = experiment.rate.zip(experiment.rate_to)?;
    let ramps: Vec<&&Outcome> = summary.used.iter().filter(|outcome| !outcome.slices.is_empty()).collect();
    let until = ramps.iter().map(|outcome| outcome.last_kept().map_or(0.0, |slice| slice.to_s));
    let until = until.reduce(f64::min)?;
    let rate = |rate: f64| with_unit(Unit::PerSecond, rate);
    let (from, to) = (rate(first), rate(last));
    Some(match until / experiment.seconds {
        share if share <= 0.0 => format!("from {from} to {to}: behind from the first slice on"),
        share if share > 0.999 => format!("from {from} to {to}: kept up with throughout"),
        share => {
            let reached = rate(first + (last - first) * share);
            format!("from {from} to {to}: kept up with to {reached}, in the slice after that operations began late")
        }
    })
}

/// The head and the cells of each row.
pub(crate) fn cells(rows: &[Row]) -> (Vec<String>, Vec<Vec<String>>) {
    let scale = |(place, (_, unit)): (usize, &(&str, Unit))| {
        unit.scale(rows.iter().filter_map(|row| row.values.get(place).copied().flatten()))
    };
    let scales: Vec<_> = TITLES.iter().enumerate().map(scale).collect();
    let titled = TITLES.iter().zip(&scales).map(|((title, _), scale)| format!("{title} {}", scale.name));
    let head = std::iter::once("slice s".to_owned()).chain(titled.map(|title| title.trim_end().to_owned())).collect();
    let line = |row: &Row| {
        let values = row.values.iter().zip(&scales);
        let cells = values.map(|(value, scale)| value.map(|value| scale.value(value)).unwrap_or_default());
        std::iter::once(format!("{:.2}–{:.2}", row.from_s, row.to_s)).chain(cells).collect()
    };
    (head, rows.iter().map(line).collect())
}

/// Tables for a terminal, of those runs that are ramps.
#[must_use]
pub fn terminal(summaries: &[Summary<'_>], width: Option<usize>) -> String {
    let table = |(title, head, lines): (String, Vec<String>, Vec<Vec<String>>)| {
        let mut grid = Grid::default();
        let priorities: Vec<u8> = head.iter().map(|title| u8::from(is_dispensable(title))).collect();
        grid.row(head);
        lines.into_iter().for_each(|line| grid.row(line));
        format!("\n{}{}", super::grid::wrapped(&title, "", width), grid.fit(width, &priorities).text)
    };
    all(summaries).map(table).collect()
}

fn is_dispensable(title: &str) -> bool {
    ["unsent", "errors", "p50"].iter().any(|name| title.starts_with(name))
}

/// The same as Markdown.
pub(crate) fn markdown(summaries: &[Summary<'_>]) -> String {
    let table = |(title, head, lines): (String, Vec<String>, Vec<Vec<String>>)| {
        format!("\n{}:\n\n{}", markdown::escape(&title), markdown::grid(&head, &lines, Align::Right))
    };
    all(summaries).map(table).collect()
}

/// The title, head and lines of each table.
pub(crate) fn all(summaries: &[Summary<'_>]) -> impl Iterator<Item = (String, Vec<String>, Vec<Vec<String>>)> {
    summaries.iter().filter_map(|summary| {
        let rows = rows(summary);
        let kept = kept(summary).filter(|_| !rows.is_empty())?;
        let (head, lines) = cells(&rows);
        let bound = if summary.is_bound { " (the generator set the pace)" } else { "" };
        Some((format!("{}, {kept}{bound}", summary.label), head, lines))
    })
}
