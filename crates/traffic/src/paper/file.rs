//! Files of `papers/`: a document's numbers, and how each was obtained, as data.
//!
//! An experiment is put together key by key: the paper's `defaults`, the table's `base`, the `set` of the row and of
//! the column, and with `--quick` what they have under `quick`; the nearest wins. What a file gets wrong is found when
//! it is loaded, and a test loads all of them.

mod grid;

use serde::Deserialize;
use toml::value::Table as Keys;

use self::grid::shape_problems;
pub use self::grid::{Line, Quick, Spec, Table};
use super::claim::Claim;
use super::{formula, metric};
use crate::experiment::Experiment;

const TEXTS: [(&str, &str); 5] = [
    ("karamina2024", include_str!("../../papers/karamina2024.toml")),
    ("mladek2022", include_str!("../../papers/mladek2022.toml")),
    ("seoane2021", include_str!("../../papers/seoane2021.toml")),
    ("cui2017", include_str!("../../papers/cui2017.toml")),
    ("wiss2016", include_str!("../../papers/wiss2016.toml")),
];

/// Every paper there is.
pub const NAMES: [&str; TEXTS.len()] = {
    let mut names = [""; TEXTS.len()];
    let mut at = 0;
    while at < TEXTS.len() {
        #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks it")]
        {
            names[at] = TEXTS[at].0;
        }
        at += 1;
    }
    names
};

/// Reads and checks the paper of that name.
///
/// # Errors
/// There is none, or its file contradicts itself.
pub fn load(name: &str) -> Result<Paper, PaperError> {
    let found = TEXTS.into_iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| PaperError::Unknown(name.to_owned()))?;
    let paper = Paper::parse(text)?;
    if paper.head.name != name {
        return Err(PaperError::Wrong(format!("{name}.toml calls itself {:?}", paper.head.name)));
    }
    Ok(paper)
}

/// A document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// The bibliographic data.
    #[serde(rename = "paper")]
    pub head: Head,
    /// Its tables, and figures whose numbers are known.
    #[serde(default, rename = "table")]
    pub tables: Vec<Table>,
    /// The conclusions of its authors.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

/// The bibliographic data of a document, and the keys that all of its experiments share.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The name, which is also the file's.
    pub name: String,
    /// Its title.
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
    /// The keys of all experiments.
    #[serde(default)]
    pub defaults: Keys,
    /// The keys that `--quick` changes.
    #[serde(default)]
    pub quick: Keys,
    /// The number of repetitions of each experiment, unless quick.
    #[serde(default = "five")]
    pub repetitions: u32,
    /// Anything else.
    pub note: Option<String>,
}

const fn five() -> u32 {
    5
}

impl Paper {
    /// Reads a file and checks it.
    ///
    /// # Errors
    /// It is no TOML, has unknown keys, or contradicts itself.
    pub fn parse(text: &str) -> Result<Self, PaperError> {
        let paper: Self = toml::from_str(text).map_err(|error| PaperError::Wrong(error.to_string()))?;
        let problems = paper.problems();
        if problems.is_empty() { Ok(paper) } else { Err(PaperError::Wrong(problems.join("\n"))) }
    }

    /// The experiment of a cell.
    ///
    /// # Errors
    /// Some key is unknown or has a value that makes no sense.
    pub fn experiment(&self, table: &Table, row: usize, column: usize, quick: bool) -> Result<Experiment, String> {
        let mut keys = self.head.defaults.clone();
        let lines = table.lines(row, column);
        keys.extend(lines.into_iter().flatten().flat_map(|line| line.set.clone()));
        if quick {
            keys.extend(self.head.quick.clone());
            for line in lines.into_iter().flatten() {
                if let Some(Quick::Changed(changed)) = &line.quick {
                    keys.extend(changed.clone());
                }
            }
        }
        toml::Value::Table(keys).try_into().map_err(|error: toml::de::Error| error.message().to_owned())
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (at, table) in self.tables.iter().enumerate() {
            if self.tables.iter().take(at).any(|other| other.id == table.id) {
                problems.push(format!("there are two tables {}", table.id));
            }
            problems.extend(shape_problems(table));
            for (row, column) in table.places() {
                if let Err(problem) = self.check_cell(table, row, column) {
                    let name = |lines: &[Line], at: usize| lines.get(at).map_or("", |line| &line.name).to_owned();
                    let (row, column) = (name(&table.rows, row), name(&table.columns, column));
                    problems.push(format!("{}:{row}/{column}: {problem}", table.id));
                }
            }
        }
        for claim in &self.claims {
            let unknown = claim.selectors().filter_map(|selector| selector.find(self).err());
            problems.extend(unknown.map(|problem| format!("claim {}: {problem}", claim.id)));
        }
        problems
    }

    fn check_cell(&self, table: &Table, row: usize, column: usize) -> Result<(), String> {
        let spec = table.spec(row, column);
        if let Some((name, input)) = &spec.computed {
            formula::compute(name, input).map_err(|error| error.to_string())?;
        }
        match spec.metric {
            Some(name) => {
                metric::named(name).ok_or_else(|| format!("there is no metric {name:?}"))?;
            }
            None if spec.computed.is_none() && spec.not_here.is_none() => {
                return Err("neither a metric, nor computed, nor not_here".to_owned());
            }
            None => {}
        }
        if spec.metric.is_some() && spec.not_here.is_none() {
            self.experiment(table, row, column, false)?;
            self.experiment(table, row, column, true)?;
        }
        Ok(())
    }
}

/// An error in a paper's file or name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PaperError {
    /// There is no such file.
    #[error("there is no paper {0:?}; `fogmux bench paper list` names them")]
    Unknown(String),
    /// The file contradicts itself.
    #[error("{0}")]
    Wrong(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{CoapAnswer, CoapServer, Door};
    use crate::paper::claim::Check;

    #[test]
    fn every_paper_is_sound() {
        for name in NAMES {
            load(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    /// Figures, tables and sections of each document that print values of a measurement or a capture, by the tables
    /// that have them.
    const PRINTED: [(&str, &str); 5] = [
        (
            "karamina2024",
            "7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 fig6 fig7 fig9 fig10 \
             fig10-frames fig11 fig13 fig14 fig15 fig17-36 text4.3-loss text4.3.1-size text4.3.2-size text4.3.3-parallel",
        ),
        ("mladek2022", "4.1 4.2 4.3 4.4 text4.2.1.2 text4.2.1 text4.2.1-connect text4.2.2 text4.3.2 text4.3.2-rate"),
        (
            "seoane2021",
            "5 5w 6 7 8 9 10 11 12 13 fig12 fig13 fig14 fig15 fig16 fig17 fig18 fig19 fig20 fig21 fig24 text5-rtt text6.3",
        ),
        ("cui2017", "2.2 2.3 3.1 4.1 fig3.6 fig4.1 fig4.2 fig4.3 fig4.4 fig4.5 fig4.6 fig4.7 fig4.8"),
        ("wiss2016", "I fig2 fig3 fig4"),
    ];

    #[test]
    fn every_figure_with_printed_values_is_there() {
        for (name, printed) in PRINTED {
            let paper = load(name).unwrap();
            for id in printed.split_whitespace() {
                assert!(paper.tables.iter().any(|table| table.id == id), "{name} has no {id}");
            }
        }
    }

    /// Conclusions that are easily overlooked in the text of their documents, or taken for ones that nobody can test.
    const CLAIMED: [(&str, &str); 5] = [
        (
            "karamina2024",
            "mqtt-safe mqtt-large-loss mqtt-qos-loss mqtt-low-drops coap-clients-machines clients-mqtt wifi-most \
             parallel-heavy http2-drops mqtt-encrypted oscore-exposes",
        ),
        ("mladek2022", "better-than-http packets-dtls bytes-minimum bytes-tls-amqp"),
        ("seoane2021", "equation-3 mqtt-loss-costs-bytes loss-hits-secured-mqtt timers-adjusted timers-default"),
        ("cui2017", "coap-best header-shortest"),
        ("wiss2016", "dtls-no-session"),
    ];

    #[test]
    fn every_conclusion_that_can_be_tested_is_there_and_has_a_check() {
        for (name, ids) in CLAIMED {
            let paper = load(name).unwrap();
            for id in ids.split_whitespace() {
                let claim = paper.claims.iter().find(|claim| claim.id == id);
                let claim = claim.unwrap_or_else(|| panic!("{name} has no claim {id}"));
                assert!(!matches!(claim.check, Check::Untestable(_)), "{name}: {id} has no check");
            }
        }
    }

    #[test]
    fn the_page_has_the_numbers_of_claims_and_of_tables() {
        let page = include_str!("../../../../docs/papers.md");
        let (mut all, mut before) = ([0; 3], [0; 3]);
        let row = |name: &str| -> Vec<usize> {
            let line =
                page.lines().find(|line| line.starts_with(&format!("| {name} |")) && line.matches('|').count() == 8);
            line.unwrap_or_else(|| panic!("no row of {name}"))
                .split('|')
                .filter_map(|cell| cell.trim().parse().ok())
                .collect()
        };
        for name in NAMES {
            let paper = load(name).unwrap();
            let open = paper.claims.iter().filter(|claim| matches!(claim.check, Check::Untestable(_))).count();
            let today = [paper.claims.len(), open, paper.tables.len()];
            let printed = row(name);
            assert_eq!(printed[3..], today, "{name}");
            (0..3).for_each(|at| (all[at], before[at]) = (all[at] + today[at], before[at] + printed[at]));
        }
        assert_eq!(row("all"), [before, all].concat());
    }

    /// Tables of seoane2021 that set its scenarios A, B and C beside each other.
    const SCENARIOS: [&str; 7] = ["6", "10", "fig12", "fig13", "fig14", "fig15", "fig16"];

    #[test]
    fn the_scenarios_of_seoane2021_are_answered_by_one_server() {
        let paper = load("seoane2021").unwrap();
        for id in SCENARIOS {
            let table = paper.tables.iter().find(|table| table.id == id).unwrap();
            let mut answers = Vec::new();
            for (row, column) in table.places() {
                for quick in [false, true] {
                    let experiment = paper.experiment(table, row, column, quick).unwrap();
                    let name = &table.rows[row].name;
                    assert_eq!(experiment.door, Door::Coap, "{id}: {name}");
                    assert_eq!(experiment.coap_server, CoapServer::Origin, "{id}: {name}");
                    answers.push(experiment.coap_answer);
                }
            }
            for answer in [CoapAnswer::Piggybacked, CoapAnswer::Separate, CoapAnswer::NonConfirmable] {
                assert!(answers.contains(&answer), "{id} lacks {answer:?}");
            }
        }
    }

    /// Of a table: what is printed, row by row, in its first column of numbers.
    fn column(name: &str, id: &str) -> Vec<f64> {
        let paper = load(name).unwrap();
        let table = paper.tables.iter().find(|table| table.id == id).unwrap();
        (0..table.rows.len()).filter_map(|row| table.printed(row, 0).number()).collect()
    }

    #[test]
    fn a_listing_adds_up_to_what_is_said_of_it() {
        let frames = column("karamina2024", "fig10-frames");
        let handshake = frames.get(..10).unwrap();
        let paper = load("karamina2024").unwrap();
        let sums = paper.tables.iter().find(|table| table.id == "fig10").unwrap();
        let printed = |column| sums.printed(0, column).number();
        assert_eq!((printed(0), printed(1)), (Some(10.0), Some(handshake.iter().sum())));
    }

    const HEAD: &str = "[paper]\nname='p'\ntitle=''\nauthors=''\nyear=2020\nsource=''\nsetup=''\ndifferences=''\n\
                        defaults={qos=1,count=100}\nquick={count=10}\n";
    const TABLE: &str = "[[table]]\nid='1'\ntitle=''\nwhere=''\nmetric='packets_total'\nbase={payload_bytes=7}\n\
                         rows=[{name='r'}]\ncolumns=[{name='a',set={qos=2}},{name='b',quick={count=5}}]\n";

    fn problem(text: &str) -> String {
        Paper::parse(text).expect_err("it should not be taken").to_string()
    }

    #[test]
    fn keys_are_merged_and_the_nearest_wins() {
        let paper = Paper::parse(&format!("{HEAD}{TABLE}values=[[1,'-']]")).unwrap();
        let table = &paper.tables[0];
        let (a, b) = (paper.experiment(table, 0, 0, false).unwrap(), paper.experiment(table, 0, 1, false).unwrap());
        assert_eq!((a.qos.level(), b.qos.level(), a.payload_bytes, a.count), (2, 1, 7, Some(100)));
        let quick = |column| paper.experiment(table, 0, column, true).unwrap().count;
        assert_eq!((quick(0), quick(1)), (Some(10), Some(5)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (change, expected) in [
            ("values=[[1]]", "rows × columns"),
            ("values=[[1,2]]\nunknown=1", "unknown"),
            ("values=[[1,2]]\nquick=true", "quick"),
            ("values=[[1,2]]\n[[claim]]\nid='c'\ntext=''\nwhere=''\nascending=['1:r/a','1:r/c']", "1:r/c"),
            ("values=[[1,2]]\n[[claim]]\nid='c'\ntext=''\nwhere=''\nrising=['1:r/a']", "rising"),
            ("values=[[1,2]]\n[[claim]]\nid='c'\ntext=''\nwhere=''", "no check"),
            ("values=[[1,2]]\ncomputed='magic'", "magic"),
        ] {
            let found = problem(&format!("{HEAD}{TABLE}{change}"));
            assert!(found.contains(expected), "{change}: {found}");
        }
        assert!(problem(&format!("{HEAD}{}values=[[1,2]]", TABLE.replace("qos=2", "qos=3"))).contains("qos"));
        assert!(problem(&format!("{HEAD}{}values=[[1,2]]", TABLE.replace("packets_total", "luck"))).contains("luck"));
    }
}
