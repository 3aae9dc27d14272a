//! Which experiments a rerun consists of: each once, however many cells show something of it.

use std::collections::{BTreeMap, BTreeSet};

use super::file::{Paper, PaperError};
use crate::experiment::Experiment;

/// Why a cell is not measured that takes long.
pub const LEFT_OUT: &str = "--quick leaves it out";

/// A cell: table, row and column by number.
pub type Place = (usize, usize, usize);

/// The runs of a document.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The document.
    pub paper: &'a Paper,
    /// Whether to send fewer messages and omit slow cells.
    pub quick: bool,
    /// How often each is done.
    pub repetitions: u32,
    /// Different experiments, in the order of the tables.
    pub experiments: Vec<Experiment>,
    /// Tables that are shown.
    pub tables: Vec<usize>,
    /// Which experiment a cell shows, or why none.
    pub cells: BTreeMap<Place, Result<usize, String>>,
}

/// Plans the tables of these names; all, where none is named.
///
/// # Errors
/// There is no table of such a name.
pub fn plan<'a>(paper: &'a Paper, tables: &[String], quick: bool) -> Result<Plan<'a>, PaperError> {
    if let Some(unknown) = tables.iter().find(|name| paper.tables.iter().all(|table| table.id != **name)) {
        let known: Vec<_> = paper.tables.iter().map(|table| table.id.as_str()).collect();
        let name = &paper.head.name;
        return Err(PaperError::Wrong(format!("{name} has no table {unknown:?}, but {}", known.join(", "))));
    }
    let wanted = |id: &String| tables.is_empty() || tables.contains(id);
    let numbered = paper.tables.iter().enumerate().filter(|(_, table)| wanted(&table.id));
    let mut plan = Plan {
        paper,
        quick,
        repetitions: if quick { 1 } else { paper.head.repetitions },
        experiments: Vec::new(),
        tables: numbered.map(|(at, _)| at).collect(),
        cells: BTreeMap::new(),
    };
    for (at, table) in paper.tables.iter().enumerate() {
        for (row, column) in table.places() {
            let planned = if plan.tables.contains(&at) {
                plan.cell(at, row, column)
            } else {
                Err("the table was left out".to_owned())
            };
            plan.cells.insert((at, row, column), planned);
        }
    }
    Ok(plan)
}

impl Plan<'_> {
    /// Experiments of which the generator's own memory is shown: it has to be that of the experiment alone.
    #[must_use]
    pub fn alone(&self) -> Vec<Experiment> {
        let is_memory = |(table, row, column): &Place| {
            let table = self.paper.tables.get(*table);
            let metric = table.and_then(|table| table.spec(*row, *column).metric);
            metric.is_some_and(|metric| metric.starts_with("generator_memory"))
        };
        let shown = self.cells.iter().filter(|(place, _)| is_memory(place)).filter_map(|(_, cell)| cell.as_ref().ok());
        let numbers: BTreeSet<usize> = shown.copied().collect();
        numbers.into_iter().filter_map(|at| self.experiments.get(at).cloned()).collect()
    }

    fn cell(&mut self, table: usize, row: usize, column: usize) -> Result<usize, String> {
        let Some(table) = self.paper.tables.get(table) else { return Err("there is no such table".to_owned()) };
        let spec = table.spec(row, column);
        match (spec.not_here, spec.metric) {
            (Some(why), _) => return Err(why.to_owned()),
            (None, None) => return Err("it is a formula".to_owned()),
            (None, Some(_)) if spec.slow && self.quick => return Err(LEFT_OUT.to_owned()),
            (None, Some(_)) => {}
        }
        let experiment = self.paper.experiment(table, row, column, self.quick)?;
        if let Some(known) = self.experiments.iter().position(|known| *known == experiment) {
            return Ok(known);
        }
        self.experiments.push(experiment);
        Ok(self.experiments.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::claim::{Numbers, Range, Tried};
    use crate::paper::{NAMES, load};

    #[test]
    fn cells_of_one_experiment_share_it() {
        for name in NAMES {
            let paper = load(name).unwrap();
            let plan = plan(&paper, &[], false).unwrap();
            for (at, experiment) in plan.experiments.iter().enumerate() {
                assert!(!plan.experiments[..at].contains(experiment), "{name}: {experiment:?}");
            }
            let shown = plan.cells.values().filter(|cell| cell.is_ok()).count();
            assert!(shown >= plan.experiments.len() && !plan.experiments.is_empty(), "{name}");
        }
    }

    #[test]
    fn quick_is_never_more_than_everything() {
        for name in NAMES {
            let paper = load(name).unwrap();
            let count = |quick| plan(&paper, &[], quick).unwrap().experiments.len();
            assert!(count(true) <= count(false), "{name}");
        }
    }

    /// Each measured number is 1, so that a claim lacks one only where `--quick` leaves it out.
    struct Ones<'a>(Plan<'a>);

    impl Numbers for Ones<'_> {
        fn at(&self, table: usize, row: usize, column: usize) -> Result<Range, String> {
            match &self.0.cells[&(table, row, column)] {
                Err(why) if why == LEFT_OUT => Err(why.clone()),
                _ => Ok(Range::exact(1.0)),
            }
        }
    }

    #[test]
    fn quick_tries_every_claim_that_can_be_tested() {
        let mut open = Vec::new();
        for name in NAMES {
            let paper = load(name).unwrap();
            let ones = Ones(plan(&paper, &[], true).unwrap());
            for claim in &paper.claims {
                if let Tried::Open(why) = claim.check.try_on(&paper, &ones)
                    && why.ends_with(LEFT_OUT)
                {
                    open.push(format!("{name}: {}: {why}", claim.id));
                }
            }
        }
        assert!(open.is_empty(), "{open:#?}");
    }

    #[test]
    fn memory_of_the_generator_is_that_of_one_experiment() {
        let paper = load("cui2017").unwrap();
        let of = |table: &str| plan(&paper, &[table.to_owned()], false).unwrap();
        let (memory, latency) = (of("fig4.3"), of("fig4.1"));
        assert_eq!(memory.alone(), memory.experiments);
        assert!(latency.alone().is_empty() && !latency.experiments.is_empty());
    }

    #[test]
    fn a_table_alone_is_run_alone() {
        let paper = load("seoane2021").unwrap();
        let alone = plan(&paper, &["6".to_owned()], true).unwrap();
        assert_eq!((alone.tables.len(), alone.experiments.len()), (1, 3));
        let error = plan(&paper, &["99".to_owned()], true).unwrap_err().to_string();
        assert!(error.contains("99") && error.contains("13"), "{error}");
    }
}
