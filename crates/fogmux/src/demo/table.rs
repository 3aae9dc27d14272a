//! The table of deliveries between doors, with latencies.

use std::collections::HashMap;
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

impl Table {
    /// Returns the table as text that is at most so many columns wide, if the names of two doors fit. Columns are as
    /// wide as they must be: all nine doors fit 80. In fewer, the columns that do not fit follow below.
    pub(crate) fn text(&self, columns: usize) -> String {
        let mut text = wrapped(
            "Milliseconds from the door on the left to the door above: the slowest of a JSON text, bytes with NUL and \
             0xFF, and 5 kB, including connection set-up.",
            columns,
        );
        let named = self.names.iter().map(|name| name.len()).max().unwrap_or_default();
        let mut to_come: &[usize] = &self.widths();
        let mut first = 0;
        while !to_come.is_empty() {
            let mut wide = named;
            let fits = |width: &&usize| {
                wide += 1 + **width;
                wide <= columns
            };
            let count = to_come.iter().take_while(fits).count().max(1);
            let (widths, rest) = to_come.split_at(count);
            text.push('\n');
            self.part(first, widths, named, &mut text);
            (first, to_come) = (first + count, rest);
        }
        text.push('\n');
        for (from, to, cell) in self.pairs() {
            if let Some(problem) = cell.problem() {
                text.push_str(&wrapped(&format!("{from} -> {to}: {problem}"), columns));
            }
        }
        let ending = match self.problems() {
            0 => "Every message arrived at every door with its bytes and content type unchanged.".to_owned(),
            count => format!("{count} of {} ways failed.", self.names.len() * self.names.len()),
        };
        text.push_str(&wrapped(&ending, columns));
        text
    }

    /// The width of each column.
    fn widths(&self) -> Vec<usize> {
        let column = |column: usize| self.cells.iter().filter_map(move |row| row.get(column)).map(shown);
        let width = |(at, name): (usize, &&str)| column(at).map(|cell| cell.len()).chain([name.len()]).max();
        self.names.iter().enumerate().filter_map(width).collect()
    }

    /// Appends the columns of these widths, from the column `first` on.
    fn part(&self, first: usize, widths: &[usize], named: usize, text: &mut String) {
        let mut line = |name: &str, cells: &mut dyn Iterator<Item = String>| {
            text.push_str(&format!("{name:<named$}"));
            cells.zip(widths).for_each(|(cell, width)| text.push_str(&format!(" {cell:>width$}")));
            text.push('\n');
        };
        line("", &mut self.names.iter().skip(first).map(|name| (*name).to_owned()));
        for (name, row) in self.names.iter().zip(&self.cells) {
            line(name, &mut row.iter().skip(first).map(shown));
        }
    }
}

/// Returns lines of whole words, each at most so many columns wide unless a word is wider.
fn wrapped(text: &str, columns: usize) -> String {
    let (mut lines, mut wide) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        let separator = match wide {
            0 => "",
            _ if wide + 1 + length > columns => "\n",
            _ => " ",
        };
        wide = if separator == " " { wide + 1 + length } else { length };
        lines.push_str(separator);
        lines.push_str(word);
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_doors_fit_eighty_columns_and_others_follow_below_in_fewer() {
        let names = ["MQTT 3.1.1", "MQTT 5", "MQTT TLS", "MQTT WS", "CoAP", "HTTP/1.1", "HTTP/2", "HTTP/3", "XMPP"];
        let cell = Cell { took: Duration::from_micros(41_270), ..Cell::default() };
        let cells = vec![vec![cell; names.len()]; names.len()];
        let mut table = Table { names: names.to_vec(), cells, ..Table::default() };
        let text = table.text(80);
        let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest(&text) <= 80, "{text}");
        assert!(text.contains("\nHTTP/1.1         41.3"), "{text}");
        assert_eq!(text.matches("MQTT 3.1.1").count(), 2, "one table: {text}");
        table.cells[0][4].problem = Some("lost".to_owned());
        let text = table.text(80);
        assert!(text.contains(" FAILED") && widest(&text) <= 80, "{text}");
        for columns in [24, 40, 60, 79] {
            let text = table.text(columns);
            assert!(widest(&text) <= columns, "{columns}:\n{text}");
            assert_eq!(text.matches("41.3").count() + text.matches("FAILED").count(), 81, "{columns}:\n{text}");
        }
    }
}
