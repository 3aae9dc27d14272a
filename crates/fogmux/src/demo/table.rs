//! The table of deliveries between doors, with latencies.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use fogmux_client::{Arrived, ClientError, Outgoing};
use serde_json::{Value, json};

use super::doors::DemoDoor;

/// A row for each publishing door, a column for each reading one.
#[derive(Default)]
pub(crate) struct Table {
    names: Vec<&'static str>,
    /// Whether the column's door supports content types.
    says_type: Vec<bool>,
    sent: HashMap<String, Sent>,
    /// By row, then column.
    cells: Vec<Vec<Cell>>,
}

struct Sent {
    row: usize,
    message: Outgoing,
    at: Instant,
}

/// The outcome of one door's messages at another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    arrived: usize,
    expected: usize,
    /// Latency of the slowest.
    took: Duration,
    problem: Option<String>,
}

impl Cell {
    fn problem(&self) -> Option<String> {
        match &self.problem {
            Some(problem) => Some(problem.clone()),
            None if self.arrived < self.expected => Some("lost".to_owned()),
            None if self.arrived > self.expected => Some("twice".to_owned()),
            None => None,
        }
    }
}

impl Table {
    /// Creates an empty table.
    pub(crate) fn new(doors: &[DemoDoor]) -> Self {
        Self {
            names: doors.iter().map(|door| door.name).collect(),
            says_type: doors.iter().map(|door| door.carries_type).collect(),
            sent: HashMap::new(),
            cells: vec![vec![Cell::default(); doors.len()]; doors.len()],
        }
    }

    /// Records that a message is about to be published.
    pub(crate) fn sent(&mut self, topic: &str, row: usize, message: Outgoing, at: Instant) {
        self.sent.insert(topic.to_owned(), Sent { row, message, at });
        for cell in self.cells.get_mut(row).into_iter().flatten() {
            cell.expected += 1;
        }
    }

    /// Records a delivery.
    pub(crate) fn arrived(&mut self, column: usize, message: &Arrived, now: Instant) {
        let Some(sent) = self.sent.get(&message.topic) else { return };
        let says_type = self.says_type.get(column).copied().unwrap_or_default();
        let Some(cell) = self.cells.get_mut(sent.row).and_then(|row| row.get_mut(column)) else { return };
        cell.arrived += 1;
        cell.took = cell.took.max(now.saturating_duration_since(sent.at));
        if message.payload != sent.message.payload {
            cell.problem = Some("bytes differ".to_owned());
        } else if says_type && message.content_type != sent.message.content_type {
            let shown = message.content_type.as_deref().unwrap_or("no type");
            cell.problem = Some(format!("type is {shown}"));
        }
    }

    /// Records that a subscriber has failed.
    pub(crate) fn reader_failed(&mut self, column: usize, error: &ClientError) {
        for cell in self.cells.iter_mut().filter_map(|row| row.get_mut(column)) {
            cell.problem.get_or_insert_with(|| error.to_string());
        }
    }

    /// Returns the number of failed cells.
    pub(crate) fn problems(&self) -> usize {
        self.cells.iter().flatten().filter(|cell| cell.problem().is_some()).count()
    }

    /// Returns the table as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let shown = |(from, to, cell): (&str, &str, &Cell)| json!({"from": from, "to": to, "ms": cell.took.as_secs_f64() * 1e3, "problem": cell.problem()});
        json!({"ok": self.problems() == 0, "cells": self.pairs().map(shown).collect::<Vec<_>>()})
    }

    fn pairs(&self) -> impl Iterator<Item = (&'static str, &'static str, &Cell)> {
        self.names
            .iter()
            .zip(&self.cells)
            .flat_map(|(from, row)| self.names.iter().zip(row).map(|(to, cell)| (*from, *to, cell)))
    }
}

/// The text of a cell: the latency in milliseconds.
fn shown(cell: &Cell) -> String {
    match cell.problem() {
        None => format!("{:.1}", cell.took.as_secs_f64() * 1e3),
        Some(_) => "FAILED".to_owned(),
    }
}

/// Columns are as wide as they must be: all nine doors fit 80 columns.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Milliseconds from the door on the left to the door above: the slower of a JSON text and bytes with"
        )?;
        writeln!(f, "NUL and 0xFF, including connection set-up.\n")?;
        let named = self.names.iter().map(|name| name.len()).max().unwrap_or_default();
        let column = |column: usize| self.cells.iter().filter_map(move |row| row.get(column)).map(shown);
        let width = |(at, name): (usize, &&str)| column(at).map(|cell| cell.len()).chain([name.len()]).max();
        let widths: Vec<usize> = self.names.iter().enumerate().filter_map(width).collect();
        write!(f, "{:named$}", "")?;
        for (name, width) in self.names.iter().zip(&widths) {
            write!(f, " {name:>width$}")?;
        }
        writeln!(f)?;
        for (name, row) in self.names.iter().zip(&self.cells) {
            write!(f, "{name:<named$}")?;
            for (cell, width) in row.iter().zip(&widths) {
                write!(f, " {:>width$}", shown(cell))?;
            }
            writeln!(f)?;
        }
        writeln!(f)?;
        for (from, to, cell) in self.pairs() {
            if let Some(problem) = cell.problem() {
                writeln!(f, "{from} -> {to}: {problem}")?;
            }
        }
        match self.problems() {
            0 => writeln!(f, "Every message arrived at every door with its bytes and content type unchanged."),
            count => writeln!(f, "{count} of {} ways failed.", self.names.len() * self.names.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_doors_fit_eighty_columns() {
        let names = ["MQTT 3.1.1", "MQTT 5", "MQTT TLS", "MQTT WS", "CoAP", "HTTP/1.1", "HTTP/2", "HTTP/3", "XMPP"];
        let cell = Cell { took: Duration::from_micros(41_270), ..Cell::default() };
        let cells = vec![vec![cell; names.len()]; names.len()];
        let mut table = Table { names: names.to_vec(), cells, ..Table::default() };
        let text = table.to_string();
        let widest = |text: &str| text.lines().skip(3).map(str::len).take_while(|wide| *wide > 0).max().unwrap();
        assert!(widest(&text) <= 80, "{text}");
        assert!(text.contains("\nHTTP/1.1         41.3"), "{text}");
        table.cells[0][4].problem = Some("lost".to_owned());
        let text = table.to_string();
        assert!(text.contains(" FAILED") && widest(&text) <= 80, "{text}");
    }
}
