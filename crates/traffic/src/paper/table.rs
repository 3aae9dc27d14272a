//! The results of a rerun, cell by cell, as reports contain them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A document, rerun.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PaperResult {
    /// The name for `bench paper run`.
    pub name: String,
    /// The title of the document.
    pub title: String,
    /// Its authors.
    pub authors: String,
    /// The year of publication.
    pub year: u32,
    /// The journal or conference.
    pub source: String,
    /// The setup of its measurements.
    pub setup: String,
    /// The differences of the rerun, and their reasons.
    pub differences: String,
    /// Whether fewer messages were sent than the document's.
    pub quick: bool,
    /// The number of repetitions of each experiment.
    pub repetitions: u32,
    /// Its tables, and figures.
    pub tables: Vec<TableResult>,
    /// The conclusions of its authors.
    pub claims: Vec<ClaimResult>,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableResult {
    /// Its number in the document; figures begin with `fig`.
    pub id: String,
    /// Its caption.
    pub title: String,
    /// Page or section.
    #[serde(rename = "where")]
    pub place: String,
    /// The unit of cells that have none of their own.
    pub unit: String,
    /// Whether some cells are computed by a formula of the document.
    pub computed: bool,
    /// Names of rows.
    pub rows: Vec<String>,
    /// Names of columns.
    pub columns: Vec<String>,
    /// Rows of cells.
    pub cells: Vec<Vec<Cell>>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The value that the document prints.
    pub paper: Printed,
    /// The ± that it prints beside the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// The result of the document's formula.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computed: Option<f64>,
    /// The median of what was measured here, in the document's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    /// Lower end of its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// The unit.
    pub unit: String,
    /// Whether the numbers are equal, for cells that must be reproduced exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<bool>,
    /// The explanation of a difference, or the reason why nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Which of the report's runs it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<usize>,
}

impl Cell {
    /// Ours to the document's, where both are numbers and the document's is not nought.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let paper = self.paper.number().filter(|number| *number != 0.0)?;
        Some(self.measured? / paper)
    }
}

/// The content of a cell in a document.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Printed {
    /// A number.
    Number(f64),
    /// `DNF`, `14 + Client_ID`.
    Words(String),
    /// Nothing, or nothing that can be read off.
    #[default]
    Nothing,
}

impl Printed {
    /// If it is one.
    #[must_use]
    pub const fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Words(_) | Self::Nothing => None,
        }
    }
}

impl Serialize for Printed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Words(words) => serializer.serialize_str(words),
            Self::Nothing => serializer.serialize_none(),
        }
    }
}

impl<'de> Deserialize<'de> for Printed {
    /// Also from `"-"`, for TOML has no null.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Number(f64),
            Words(String),
        }
        Ok(match Option::deserialize(deserializer)? {
            Some(Raw::Number(number)) => Self::Number(number),
            Some(Raw::Words(words)) if words != "-" => Self::Words(words),
            Some(Raw::Words(_)) | None => Self::Nothing,
        })
    }
}

/// A conclusion, tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimResult {
    /// The name in the file.
    pub id: String,
    /// The conclusion of the authors.
    pub text: String,
    /// The section of the document.
    #[serde(rename = "where")]
    pub place: String,
    /// The verdict of the rerun.
    pub verdict: Verdict,
    /// The numbers or the reason of the verdict.
    pub because: String,
    /// Whether the paper's own numbers support it; `None` if it prints none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper_agrees: Option<bool>,
}

/// Of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Our numbers say the same.
    Holds,
    /// They do not.
    DoesNotHold,
    /// There are no numbers here that could say it.
    CannotBeTested,
    /// The numbers are bounds, for the generator was the limit: another machine may say it.
    Inconclusive,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_survives_json() {
        for (printed, json) in
            [(Printed::Number(2.5), "2.5"), (Printed::Words("DNF".to_owned()), "\"DNF\""), (Printed::Nothing, "null")]
        {
            assert_eq!(serde_json::to_string(&printed).unwrap(), json);
            assert_eq!(serde_json::from_str::<Printed>(json).unwrap(), printed);
        }
        assert_eq!(serde_json::from_str::<Printed>("\"-\"").unwrap(), Printed::Nothing);
        assert_eq!(serde_json::from_str::<Printed>("3").unwrap(), Printed::Number(3.0));
    }

    #[test]
    fn nothing_is_divided_by_nought() {
        let cell = |paper| Cell { paper: Printed::Number(paper), measured: Some(3.0), ..Cell::default() };
        assert_eq!(cell(2.0).ratio(), Some(1.5));
        assert_eq!(cell(0.0).ratio(), None);
    }
}
