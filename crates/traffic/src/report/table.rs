//! The one table that terminal, Markdown and HTML show: which columns there are, and what stands in them.

use super::figure::Figure;
use super::number::Scale;
use super::summary::Summary;
use crate::measure::statistics::Interval;

/// The figures that make columns, by what they are about; those at the end of the list are the first to go where there
/// is no room.
const COLUMNS: [(Figure, u8); 39] = [
    (Figure::Rate, 0),
    (Figure::Offered, 3),
    (Figure::Achieved, 1),
    (Figure::Unsent, 1),
    (Figure::Goodput, 6),
    (Figure::LatencyP50, 0),
    (Figure::LatencyP99, 1),
    (Figure::LatencyP999, 4),
    (Figure::LatencyMax, 5),
    (Figure::ConnectP50, 4),
    (Figure::Lost, 1),
    (Figure::Duplicates, 2),
    (Figure::Reordered, 2),
    (Figure::Errors, 1),
    (Figure::Unanswered, 1),
    (Figure::Foreign, 2),
    (Figure::GatewayCpu, 2),
    (Figure::GeneratorCpu, 6),
    (Figure::Instructions, 6),
    (Figure::Cycles, 6),
    (Figure::GeneratorInstructions, 7),
    (Figure::GeneratorCycles, 7),
    (Figure::Memory, 7),
    (Figure::PeakMemory, 3),
    (Figure::TotalBytes, 3),
    (Figure::Packets, 3),
    (Figure::SecurityBytes, 7),
    (Figure::HandshakeBytes, 5),
    (Figure::HandshakePackets, 6),
    (Figure::HandshakeCpu, 5),
    (Figure::EnergyGateway, 2),
    (Figure::EnergyBoard, 4),
    (Figure::EnergyRadio, 2),
    (Figure::EnergyMeter, 1),
    (Figure::Away, 2),
    (Figure::AllBack, 1),
    (Figure::StormLost, 1),
    (Figure::StormDuplicates, 2),
    (Figure::StormCpu, 2),
];

/// A column and the unit that all of it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) figure: Figure,
    pub(crate) scale: Scale,
    /// 0 is never left out; the higher, the sooner.
    pub(crate) dispensable: u8,
}

impl Column {
    /// Title and unit: `p99 ms`.
    pub(crate) fn head(&self) -> String {
        format!("{} {}", self.figure.meaning().title, self.scale.name).trim_end().to_owned()
    }

    /// Formats the cell of a run: the median, or an empty text. A rate that is only a lower bound is marked with ≥.
    pub(crate) fn cell(&self, summary: &Summary<'_>) -> String {
        let median = summary.get(self.figure).map(|interval| self.scale.median(interval));
        median.map(|text| if self.is_bound(summary) { format!("≥{text}") } else { text }).unwrap_or_default()
    }

    /// The interval below it; nothing where there is no other value than the median.
    pub(crate) fn range(&self, summary: &Summary<'_>) -> Option<String> {
        let interval = summary.get(self.figure).filter(|interval| is_wide(interval))?;
        Some(self.scale.range(interval))
    }

    fn is_bound(&self, summary: &Summary<'_>) -> bool {
        summary.is_bound && [Figure::Rate, Figure::Goodput].contains(&self.figure)
    }
}

/// Whether the ends differ by more than adding up in another order does.
pub(crate) fn is_wide(interval: &Interval) -> bool {
    interval.high - interval.low > interval.median.abs() * 1e-9
}

/// Returns a column for each of these figures, in this order, whether or not there is anything to show.
pub(crate) fn chosen(summaries: &[Summary<'_>], figures: &[Figure]) -> Vec<Column> {
    let column = |figure: &Figure| {
        let known = COLUMNS.iter().find(|(known, _)| known == figure);
        let dispensable = known.map_or(u8::MAX, |(_, dispensable)| *dispensable);
        Column { figure: *figure, scale: figure.meaning().unit.scale(medians(summaries, *figure)), dispensable }
    };
    figures.iter().map(column).collect()
}

fn medians(summaries: &[Summary<'_>], figure: Figure) -> Vec<f64> {
    summaries.iter().filter_map(|summary| summary.get(figure)).map(|interval| interval.median).collect()
}

/// The columns for which there is anything to show. Counts of what should not happen are there only where it did; a
/// rate is there although it is 0.
pub(crate) fn columns(summaries: &[Summary<'_>]) -> Vec<Column> {
    let column = |(figure, dispensable): (Figure, u8)| {
        let all = medians(summaries, figure);
        let highest = |summary: &Summary<'_>| summary.get(figure).is_some_and(|interval| interval.high > 0.0);
        let is_shown =
            summaries.iter().any(highest) || ([Figure::Rate, Figure::Lost].contains(&figure) && !all.is_empty());
        is_shown.then(|| Column { figure, scale: figure.meaning().unit.scale(all), dispensable })
    };
    COLUMNS.into_iter().filter_map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::outcome::{Outcome, Run};

    #[test]
    fn a_rate_of_nothing_is_shown_and_faults_only_where_there_are_any() {
        let shown = |outcome: Outcome| {
            let run = Run { outcomes: vec![outcome], ..Run::of(Experiment::default(), "a test".to_owned()) };
            columns(&[Summary::of(&run, "run".to_owned())]).iter().map(|column| column.figure).collect::<Vec<_>>()
        };
        let nothing = Outcome { sent: 5, expected: 5, seconds: 1.0, ..Outcome::default() };
        assert_eq!(shown(nothing.clone()), [Figure::Rate, Figure::Lost]);
        let faulty = Outcome { unanswered: 2, errors: 3, foreign: 1, ..nothing };
        let faults = [Figure::Rate, Figure::Lost, Figure::Errors, Figure::Unanswered, Figure::Foreign];
        assert_eq!(shown(faulty), faults);
    }
}
