//! Makes tables and verdicts of what the experiments of a plan came to.

use super::claim::{Claim, Numbers, Range, Side, Tried};
use super::explain::{self, STRAY};
use super::file::{Line, Table};
use super::formula;
use super::metric;
use super::plan::{LEFT_OUT, Place, Plan};
use super::table::{Cell, ClaimResult, PaperResult, Printed, TableResult, Verdict};
use crate::measure::statistics::median_interval;
use crate::outcome::{Outcome, Run};

/// Tables and verdicts of runs that are there, one for each experiment of the plan.
#[must_use]
pub fn tabulate(plan: &Plan<'_>, runs: &[Run]) -> PaperResult {
    let head = &plan.paper.head;
    let filled = Filled { plan, runs };
    let tables = plan.tables.iter().filter_map(|at| filled.table(*at)).filter(|table| !table.rows.is_empty()).collect();
    // A claim about tables that nobody asked for is nobody's question.
    let is_whole = plan.tables.len() == plan.paper.tables.len();
    let asked = plan.paper.claims.iter().filter(|claim| is_whole || claim.is_about(plan.paper, &plan.tables));
    let claims = asked.map(|claim| filled.claim(claim)).collect();
    PaperResult {
        name: head.name.clone(),
        title: head.title.clone(),
        authors: head.authors.clone(),
        year: head.year,
        source: head.source.clone(),
        setup: head.setup.clone(),
        differences: head.differences.clone(),
        quick: plan.quick,
        repetitions: plan.repetitions,
        tables,
        claims,
    }
}

struct Filled<'a> {
    plan: &'a Plan<'a>,
    runs: &'a [Run],
}

/// The document's numbers, for trying its claims on them.
struct OfPaper<'a>(&'a Plan<'a>);

impl Numbers for OfPaper<'_> {
    fn at(&self, table: usize, row: usize, column: usize) -> Result<Range, String> {
        let table = self.0.paper.tables.get(table).ok_or("no such table")?;
        let number = table.printed(row, column).number();
        number.map(Range::exact).ok_or_else(|| "the document prints no number".to_owned())
    }
}

impl Numbers for Filled<'_> {
    fn at(&self, table: usize, row: usize, column: usize) -> Result<Range, String> {
        let place = (table, row, column);
        let values = self.values(place)?;
        let median = median_interval(&values).map(|interval| interval.median).ok_or("nothing was measured")?;
        Ok(self.bound(place).map_or(Range::exact(median), |(side, _)| Range::bound(median, side)))
    }
}

impl Filled<'_> {
    /// The run that a cell shows.
    fn run_of(&self, place: Place) -> Result<(usize, &Run), String> {
        let at = match self.plan.cells.get(&place) {
            Some(Ok(at)) => *at,
            Some(Err(why)) => return Err(why.clone()),
            None => return Err("there is no such cell".to_owned()),
        };
        self.runs.get(at).map(|run| (at, run)).ok_or_else(|| "it was not run".to_owned())
    }

    /// Returns the measured values of a cell, in the document's unit.
    fn values(&self, place: Place) -> Result<Vec<f64>, String> {
        let (_, run) = self.run_of(place)?;
        let table = self.plan.paper.tables.get(place.0).ok_or("no such table")?;
        let spec = table.spec(place.1, place.2);
        let metric = spec.metric.and_then(metric::named).ok_or("no metric")?;
        let read = |outcome| Some(metric.read(&run.experiment, outcome)? * spec.scale);
        // As for every report: repetitions that the generator limited are left out, unless all are.
        let values: Vec<f64> = used(run).filter_map(read).collect();
        match (values.is_empty(), &run.problem) {
            (false, _) => Ok(values),
            (true, Some(problem)) => Err(problem.clone()),
            (true, None) => Err(missing(metric.name, run)),
        }
    }

    /// The side of the number of a cell, and why it is only a bound: the generator set the pace in every repetition,
    /// and the number depends on it.
    fn bound(&self, place: Place) -> Option<(Side, String)> {
        let (_, run) = self.run_of(place).ok()?;
        let spec = self.plan.paper.tables.get(place.0)?.spec(place.1, place.2);
        let metric = spec.metric.and_then(metric::named)?;
        let limits: Option<Vec<&str>> =
            run.outcomes.iter().map(|outcome| outcome.limited_by_generator.as_deref()).collect();
        let (why, side) = (limits?.into_iter().next()?, metric.side()?);
        Some((side, format!("the generator set the pace in every repetition ({why}): the number is a bound")))
    }

    fn table(&self, at: usize) -> Option<TableResult> {
        let table = self.plan.paper.tables.get(at)?;
        let names = |lines: &[Line]| lines.iter().map(|line| line.name.clone()).collect();
        let shown: Vec<usize> = (0..table.rows.len()).filter(|row| !self.is_left_out(table, at, *row)).collect();
        let cells: Vec<Vec<Cell>> = shown
            .iter()
            .map(|row| (0..table.columns.len()).map(|column| self.cell(table, (at, *row, column))).collect())
            .collect();
        let mut notes = notes(table);
        if shown.len() < table.rows.len() {
            notes.push(format!("--quick leaves out {} of {} rows", table.rows.len() - shown.len(), table.rows.len()));
        }
        Some(TableResult {
            id: table.id.clone(),
            title: table.title.clone(),
            place: table.place.clone(),
            unit: table.own.unit.clone().unwrap_or_default(),
            computed: cells.iter().flatten().any(|cell| cell.computed.is_some()),
            rows: shown.iter().filter_map(|row| Some(table.rows.get(*row)?.name.clone())).collect(),
            columns: names(&table.columns),
            cells,
            notes,
        })
    }

    /// Whether a row has nothing to show: neither ours, for it takes long, nor the document's.
    fn is_left_out(&self, table: &Table, at: usize, row: usize) -> bool {
        (0..table.columns.len()).all(|column| {
            let slow = matches!(self.plan.cells.get(&(at, row, column)), Some(Err(why)) if why == LEFT_OUT);
            slow && table.printed(row, column) == Printed::Nothing && table.spec(row, column).computed.is_none()
        })
    }

    fn cell(&self, table: &Table, place: Place) -> Cell {
        let (_, row, column) = place;
        let spec = table.spec(row, column);
        let spread = table.spread.get(row).and_then(|row| row.get(column)).and_then(Printed::number);
        let computed = spec.computed.as_ref().and_then(|(name, input)| formula::compute(name, input).ok());
        let cell =
            Cell { paper: table.printed(row, column), spread, computed, unit: spec.unit.to_owned(), ..Cell::default() };
        let interval = self.values(place).map(|values| median_interval(&values));
        let (interval, run) = match (interval, self.run_of(place)) {
            (Ok(Some(interval)), Ok(run)) => (interval, run),
            // A formula is no measurement that is missing.
            (Err(_), _) if spec.metric.is_none() && spec.not_here.is_none() => return cell,
            (Err(why), _) | (Ok(_), Err(why)) => return Cell { because: Some(why), ..cell },
            (Ok(None), Ok(_)) => return cell,
        };
        let same = |paper: f64| (interval.median - paper).abs() <= STRAY;
        let exact = spec.exact.then(|| cell.paper.number().map(same)).flatten();
        let because = match (exact, used(run.1).last()) {
            (Some(false), Some(outcome)) => {
                explain::difference(&spec, &run.1.experiment, outcome, interval.median, &cell)
            }
            (Some(_) | None, _) => self.bound(place).map(|(_, why)| why),
        };
        Cell {
            measured: Some(interval.median),
            low: Some(interval.low),
            high: Some(interval.high),
            exact,
            because,
            run: Some(run.0),
            ..cell
        }
    }

    fn claim(&self, claim: &Claim) -> ClaimResult {
        let paper = self.plan.paper;
        let paper_agrees = match claim.check.try_on(paper, &OfPaper(self.plan)) {
            Tried::Holds(_) => Some(true),
            Tried::Fails(_) => Some(false),
            Tried::Open(_) => None,
        };
        let (verdict, because) = match claim.check.try_on(paper, self) {
            Tried::Holds(numbers) => (Verdict::Holds, numbers),
            Tried::Fails(numbers) => (Verdict::DoesNotHold, numbers),
            Tried::Open(why) if claim.places(paper).any(|place| self.bound(place).is_some()) => {
                (Verdict::Inconclusive, why)
            }
            Tried::Open(why) => (Verdict::CannotBeTested, why),
        };
        let because = match &claim.note {
            Some(note) => format!("{because} ({note})"),
            None => because,
        };
        ClaimResult {
            id: claim.id.clone(),
            text: claim.text.clone(),
            place: claim.place.clone(),
            verdict,
            because,
            paper_agrees,
        }
    }
}

/// The repetitions that count.
fn used(run: &Run) -> impl Iterator<Item = &Outcome> {
    let is_free = |outcome: &&Outcome| outcome.limited_by_generator.is_none();
    let is_bound = !run.outcomes.iter().any(|outcome| is_free(&outcome));
    run.outcomes.iter().filter(move |outcome| is_bound || is_free(outcome))
}

/// Why an outcome has no such number.
fn missing(metric: &str, run: &Run) -> String {
    let wire = metric.contains("bytes") || metric.contains("packets");
    match run.experiment.link.as_str() {
        "loopback" if wire => "nothing counts on loopback: a link of our own needs root".to_owned(),
        _ if metric.starts_with("gateway") && run.outcomes.iter().all(|outcome| outcome.gateway.is_none()) => {
            "the process that serves is not known".to_owned()
        }
        _ if metric.contains("cycles") => "this machine counts no cycles for us".to_owned(),
        _ if metric.starts_with("cooked") => "the link did not record its frames".to_owned(),
        _ => format!("the outcome has no {metric}"),
    }
}

fn notes(table: &Table) -> Vec<String> {
    let of_lines = |lines: &[Line]| {
        let noted = lines.iter().filter_map(|line| Some(format!("{}: {}", line.name, line.note.as_ref()?)));
        noted.collect::<Vec<_>>()
    };
    table.own.note.iter().cloned().chain(of_lines(&table.rows)).chain(of_lines(&table.columns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::outcome::{Bytes, Wire};
    use crate::paper::{NAMES, Paper, load, plan};

    /// A machine on which every connection costs `packets` packets of 100 bytes.
    fn outcome(experiment: &Experiment, packets: u64) -> Outcome {
        let sent = experiment.count.unwrap_or(1);
        let wire = Wire { packets_up: packets * sent, bytes_up: 100 * packets * sent, ..Wire::default() };
        Outcome {
            sent,
            acknowledged: sent,
            seconds: 1.0,
            connect_bytes: Bytes { wire: Some(wire), ..Bytes::default() },
            ..Outcome::default()
        }
    }

    /// The runs of a plan, each of as many repetitions.
    fn runs(plan: &Plan<'_>, execute: impl Fn(&Experiment, u32) -> Result<Outcome, String>) -> Vec<Run> {
        let run = |experiment: &Experiment| {
            let mut run = Run::of(experiment.clone(), "a test".to_owned());
            for repetition in 0..plan.repetitions {
                match execute(experiment, repetition) {
                    Ok(outcome) => run.outcomes.push(outcome),
                    Err(why) => run.problem = Some(why),
                }
            }
            run
        };
        plan.experiments.iter().map(run).collect()
    }

    #[test]
    fn table_6_is_exact_where_it_should_be_and_claims_are_tried_on_both() {
        let paper = load("seoane2021").unwrap();
        let plan = plan(&paper, &["6".to_owned()], true).unwrap();
        let runs = runs(&plan, |experiment, _| Ok(outcome(experiment, 2)));
        let result = tabulate(&plan, &runs);
        assert_eq!(runs.len(), 3);
        let [table] = result.tables.as_slice() else { panic!("one table was asked for") };
        let packets = |row: usize| (table.cells[row][0].measured, table.cells[row][0].exact);
        assert_eq!(packets(0), (Some(2.0), Some(true)));
        assert_eq!(packets(1), (Some(2.0), Some(false)));
        assert!(table.cells[1][0].because.is_some());
        let claim = |id: &str| result.claims.iter().find(|claim| claim.id == id).unwrap();
        assert_eq!(claim("b-needs-more").verdict, Verdict::DoesNotHold);
        assert_eq!(claim("b-needs-more").paper_agrees, Some(true));
    }

    #[test]
    fn what_cannot_be_run_says_why_and_decides_nothing() {
        for name in NAMES {
            let paper = load(name).unwrap();
            let plan = plan(&paper, &[], true).unwrap();
            let refuse = |_: &Experiment, _| Err("no network namespaces here".to_owned());
            let result = tabulate(&plan, &runs(&plan, refuse));
            assert!(result.claims.iter().all(|claim| claim.verdict == Verdict::CannotBeTested), "{name}");
            for cell in result.tables.iter().flat_map(|table| table.cells.iter().flatten()) {
                assert!(cell.measured.is_none() && (cell.because.is_some() || cell.computed.is_some()), "{name}");
            }
        }
    }

    const FILE: &str = "[paper]\nname='p'\ntitle=''\nauthors=''\nyear=2020\nsource=''\nsetup=''\ndifferences=''\n\
                        repetitions=3\n[[table]]\nid='1'\ntitle=''\nwhere=''\nmetric='delivered_per_s'\n\
                        rows=[{name='r'}]\ncolumns=[{name='slow',set={qos=2}},{name='fast',set={qos=0}},\
                        {name='arrived',metric='delivery_percent'}]\nvalues=[[1,2,100]]\n\
                        [[claim]]\nid='c'\ntext=''\nwhere=''\nascending=['1:r/slow','1:r/fast']\n\
                        [[claim]]\nid='d'\ntext=''\nwhere=''\nvalue={of='1:r/arrived',at_least=100}\n";

    fn limited(delivered: u64, limit: Option<&str>) -> Outcome {
        let limited_by_generator = limit.map(str::to_owned);
        Outcome { expected: delivered, delivered, seconds: 1.0, limited_by_generator, ..Outcome::default() }
    }

    #[test]
    fn repetitions_that_the_generator_limited_are_left_out_as_in_every_report() {
        let paper = Paper::parse(FILE).unwrap();
        let plan = plan(&paper, &[], false).unwrap();
        let runs = runs(&plan, |experiment, repetition| {
            let rate = if experiment.qos.level() == 2 { 100 } else { 200 };
            Ok(if repetition == 1 { limited(rate / 10, Some("busy")) } else { limited(rate, None) })
        });
        let result = tabulate(&plan, &runs);
        assert_eq!(result.tables[0].cells[0][1].measured, Some(200.0));
        assert_eq!(result.claims[0].verdict, Verdict::Holds);
    }

    #[test]
    fn a_bound_decides_nothing_and_says_so() {
        let paper = Paper::parse(FILE).unwrap();
        let plan = plan(&paper, &[], false).unwrap();
        let result = tabulate(&plan, &runs(&plan, |_, _| Ok(limited(100, Some("its core was busy")))));
        let [slow, _, arrived] = result.tables[0].cells[0].as_slice() else { panic!("three cells") };
        assert_eq!(slow.measured, Some(100.0));
        assert!(slow.because.as_deref().is_some_and(|why| why.contains("its core was busy")), "{:?}", slow.because);
        assert_eq!((arrived.measured, arrived.because.as_deref()), (Some(100.0), None));
        let verdicts: Vec<Verdict> = result.claims.iter().map(|claim| claim.verdict).collect();
        assert_eq!(verdicts, [Verdict::Inconclusive, Verdict::Holds]);
    }

    #[test]
    fn a_bound_decides_where_its_side_does() {
        let paper = Paper::parse(FILE).unwrap();
        let plan = plan(&paper, &[], false).unwrap();
        let verdict = |slow: Outcome, fast: Outcome| {
            let of = |experiment: &Experiment, _| Ok(if experiment.qos.level() == 2 { &slow } else { &fast }.clone());
            tabulate(&plan, &runs(&plan, of)).claims[0].verdict
        };
        // The faster one could have been faster still.
        assert_eq!(verdict(limited(100, None), limited(200, Some("busy"))), Verdict::Holds);
        // The slower one is faster already.
        assert_eq!(verdict(limited(200, Some("busy")), limited(100, None)), Verdict::DoesNotHold);
        assert_eq!(verdict(limited(100, Some("busy")), limited(200, None)), Verdict::Inconclusive);
    }
}
