//! Tables as files write them: rows and columns, what each says of its cells, and the numbers.

use serde::{Deserialize, Deserializer};
use toml::value::Table as Keys;

use crate::paper::table::Printed;

/// A table: a grid of numbers, each of an experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Keys")]
pub struct Table {
    /// As the document numbers it.
    pub id: String,
    /// Its caption.
    pub title: String,
    /// Page or section.
    pub place: String,
    /// The properties of all cells.
    pub own: Line,
    /// Rows.
    pub rows: Vec<Line>,
    /// Columns.
    pub columns: Vec<Line>,
    /// The values that the document prints.
    pub values: Vec<Vec<Printed>>,
    /// The ± that it prints beside them; empty, or of the same shape as `values`.
    pub spread: Vec<Vec<Printed>>,
}

/// The properties that a row, a column or a table gives its cells. The column takes precedence, then the row.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Line {
    /// The name; empty for a table.
    pub name: String,
    /// Keys of the experiment.
    pub set: Keys,
    /// The metric of the outcome.
    pub metric: Option<String>,
    /// The unit of the document's numbers.
    pub unit: Option<String>,
    /// The factor that converts the metric to that unit.
    pub scale: Option<f64>,
    /// Whether the number must be reproduced exactly, because it does not depend on the machine.
    pub exact: Option<bool>,
    /// A formula of the document that gives the number.
    pub computed: Option<String>,
    /// The input of the formula.
    pub input: Keys,
    /// The keys that `--quick` changes, or the fact that it omits the cells.
    pub quick: Option<Quick>,
    /// The reason why the cells cannot be run.
    pub not_here: Option<String>,
    /// The cause of a difference, where the number should be the document's.
    pub differs: Option<String>,
    /// A note for the reader.
    pub note: Option<String>,
}

/// The effect of `--quick` on some cells.
#[derive(Clone, Debug)]
pub enum Quick {
    /// Changes keys of their experiments.
    Changed(Keys),
    /// Leaves them out.
    LeftOut,
}

impl<'de> Deserialize<'de> for Quick {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Run(bool),
            Changed(Keys),
        }
        match Raw::deserialize(deserializer)? {
            Raw::Changed(keys) => Ok(Self::Changed(keys)),
            Raw::Run(false) => Ok(Self::LeftOut),
            Raw::Run(true) => Err(serde::de::Error::custom("quick is false or a table of keys")),
        }
    }
}

impl TryFrom<Keys> for Table {
    type Error = String;

    fn try_from(mut keys: Keys) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Grid {
            id: String,
            title: String,
            #[serde(rename = "where")]
            place: String,
            #[serde(default)]
            base: Keys,
            rows: Vec<Line>,
            columns: Vec<Line>,
            values: Vec<Vec<Printed>>,
            #[serde(default)]
            spread: Vec<Vec<Printed>>,
        }
        let mut grid = Keys::new();
        for key in ["id", "title", "where", "base", "rows", "columns", "values", "spread"] {
            grid.extend(keys.remove(key).map(|value| (key.to_owned(), value)));
        }
        let Grid { id, title, place, base, rows, columns, values, spread } =
            grid.try_into().map_err(|error| error.to_string())?;
        let said: Line = keys.try_into().map_err(|error| format!("table {id}: {error}"))?;
        Ok(Self { id, title, place, own: Line { set: base, ..said }, rows, columns, values, spread })
    }
}

/// Everything about one cell.
#[derive(Clone, Debug)]
pub struct Spec<'a> {
    /// The metric of the outcome, if the cell is measured.
    pub metric: Option<&'a str>,
    /// The unit of the number.
    pub unit: &'a str,
    /// The factor of the metric.
    pub scale: f64,
    /// Whether the number must be reproduced exactly.
    pub exact: bool,
    /// The formula and what is put into it.
    pub computed: Option<(&'a str, Keys)>,
    /// The reason why the cells cannot be run.
    pub not_here: Option<&'a str>,
    /// The cause of a difference, where the number should be the document's.
    pub differs: Option<&'a str>,
    /// Whether `--quick` leaves it out.
    pub slow: bool,
}

impl Table {
    /// Table, row and column; the nearest last.
    pub(super) fn lines(&self, row: usize, column: usize) -> [Option<&Line>; 3] {
        [Some(&self.own), self.rows.get(row), self.columns.get(column)]
    }

    fn nearest<'a, T>(&'a self, (row, column): (usize, usize), of: impl Fn(&'a Line) -> Option<T>) -> Option<T> {
        self.lines(row, column).into_iter().rev().flatten().find_map(of)
    }

    /// Returns the properties of a cell.
    #[must_use]
    pub fn spec(&self, row: usize, column: usize) -> Spec<'_> {
        let at = (row, column);
        let mut input = Keys::new();
        for line in self.lines(row, column).into_iter().flatten() {
            input.extend(line.input.clone());
        }
        let computed = self.nearest(at, |line| line.computed.as_deref());
        Spec {
            metric: self.nearest(at, |line| line.metric.as_deref()),
            unit: self.nearest(at, |line| line.unit.as_deref()).unwrap_or_default(),
            scale: self.nearest(at, |line| line.scale).unwrap_or(1.0),
            exact: self.nearest(at, |line| line.exact).unwrap_or(false),
            computed: computed.map(|name| (name, input)),
            not_here: self.nearest(at, |line| line.not_here.as_deref()),
            differs: self.nearest(at, |line| line.differs.as_deref()),
            slow: self.nearest(at, |line| matches!(line.quick, Some(Quick::LeftOut)).then_some(())).is_some(),
        }
    }

    /// Returns the value that the document prints in a cell.
    #[must_use]
    pub fn printed(&self, row: usize, column: usize) -> Printed {
        self.values.get(row).and_then(|row| row.get(column)).cloned().unwrap_or_default()
    }

    /// Every place of it.
    pub fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let columns = self.columns.len();
        (0..self.rows.len()).flat_map(move |row| (0..columns).map(move |column| (row, column)))
    }
}

/// Returns the contradictions in the shape of a table.
pub(super) fn shape_problems(table: &Table) -> Vec<String> {
    let mut problems = Vec::new();
    for (what, lines) in [("row", &table.rows), ("column", &table.columns)] {
        for (at, line) in lines.iter().enumerate() {
            if line.name.is_empty() || lines.iter().take(at).any(|other| other.name == line.name) {
                problems.push(format!("table {}: {what} {:?} is there twice or has no name", table.id, line.name));
            }
        }
    }
    let fits = |values: &[Vec<Printed>]| {
        values.len() == table.rows.len() && values.iter().all(|row| row.len() == table.columns.len())
    };
    if !fits(&table.values) {
        problems.push(format!("table {}: its values are not rows × columns", table.id));
    }
    if !table.spread.is_empty() && !fits(&table.spread) {
        problems.push(format!("table {}: its spread is not rows × columns", table.id));
    }
    problems
}
