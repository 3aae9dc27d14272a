//! The conclusions of authors, as checks over cells: evaluated on the document's numbers and on measured ones.

mod keys;
mod range;

pub use range::{Range, Side};

use serde::Deserialize;
use toml::value::Table as Keys;

use super::file::{Line, Paper};
use super::plan::LEFT_OUT;
use range::Truth;

/// A conclusion.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Keys")]
pub struct Claim {
    /// Its name.
    pub id: String,
    /// The conclusion, shortened.
    pub text: String,
    /// The section of the paper.
    pub place: String,
    /// A note for the reader.
    pub note: Option<String>,
    /// The check that supports the conclusion.
    pub check: Check,
}

/// A condition on some cells.
#[derive(Clone, Debug)]
pub enum Check {
    /// Each more than the one before; `tolerance` is the share by which it may be less.
    Ascending(Vec<Selector>, f64),
    /// Each less than the one before; it may be more by that share.
    Descending(Vec<Selector>, f64),
    /// One divided by another lies between two numbers.
    Ratio {
        /// The dividend.
        of: Selector,
        /// The divisor.
        to: Selector,
        /// The lower bound, if there is one.
        at_least: Option<f64>,
        /// The upper bound, if there is one.
        at_most: Option<f64>,
    },
    /// A number lies between two others.
    Value {
        /// The number.
        of: Selector,
        /// The lower bound, if there is one.
        at_least: Option<f64>,
        /// The upper bound, if there is one.
        at_most: Option<f64>,
    },
    /// All are the same but for this share of the greatest.
    Equal(Vec<Selector>, f64),
    /// One is less than all of the others.
    Least(Selector, Vec<Selector>),
    /// One is more than all of the others.
    Greatest(Selector, Vec<Selector>),
    /// Several things.
    All(Vec<Check>),
    /// The conclusion cannot be tested here, for this reason.
    Untestable(String),
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub enum Tried {
    /// The condition holds, with these numbers.
    Holds(String),
    /// It is not.
    Fails(String),
    /// Some number is missing.
    Open(String),
}

/// Numbers of cells: the document's, or ours.
pub trait Numbers {
    /// The number at a place, or its bound, or why there is none.
    ///
    /// # Errors
    /// There is none.
    fn at(&self, table: usize, row: usize, column: usize) -> Result<Range, String>;
}

/// `TABLE:ROW/COLUMN`; a star for row or column is the mean over all that have a number. With `÷` between two of them
/// it is a quotient: how much faster, or heavier, one is than the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(String);

/// The cells that a selector names.
struct Found {
    table: usize,
    rows: Vec<usize>,
    columns: Vec<usize>,
}

impl Selector {
    /// Where it leads.
    pub(super) fn find(&self, paper: &Paper) -> Result<(), String> {
        self.parts().try_for_each(|part| Self::places(part, paper).map(drop))
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split(" ÷ ")
    }

    /// The cells of all its parts.
    fn all(&self, paper: &Paper) -> Vec<Found> {
        self.parts().filter_map(|part| Self::places(part, paper).ok()).collect()
    }

    fn places(part: &str, paper: &Paper) -> Result<Found, String> {
        let unknown = || format!("there is no cell {part:?}");
        let (id, rest) = part.split_once(':').ok_or_else(unknown)?;
        let (index, table) = paper.tables.iter().enumerate().find(|(_, table)| table.id == id).ok_or_else(unknown)?;
        // Names may contain a slash: the cut is where both halves are names.
        let cuts = rest.match_indices('/').filter_map(|(at, _)| Some((rest.get(..at)?, rest.get(at + 1..)?)));
        for (row, column) in cuts {
            let (rows, columns) = (named(&table.rows, row), named(&table.columns, column));
            if !rows.is_empty() && !columns.is_empty() {
                return Ok(Found { table: index, rows, columns });
            }
        }
        Err(unknown())
    }

    /// The number, or the quotient of its parts.
    fn value(&self, paper: &Paper, numbers: &impl Numbers) -> Result<Range, String> {
        let mut values = self.parts().map(|part| Self::mean(part, paper, numbers));
        let first = values.next().ok_or("no cells")??;
        values.try_fold(first, |dividend, divisor| {
            dividend.divided(divisor?).ok_or_else(|| format!("{}: it is divided by nought", self.0))
        })
    }

    /// The number of a part, or the mean of its numbers.
    fn mean(part: &str, paper: &Paper, numbers: &impl Numbers) -> Result<Range, String> {
        let found = Self::places(part, paper)?;
        let (mut sum, mut count, mut missing) = (Range::exact(0.0), 0.0, None);
        for row in &found.rows {
            for column in &found.columns {
                match numbers.at(found.table, *row, *column) {
                    Ok(number) => (sum, count) = (sum.plus(number), count + 1.0),
                    Err(why) => missing = missing.or(Some(why)),
                }
            }
        }
        if count > 0.0 {
            return Ok(sum.over(count));
        }
        Err(format!("{part}: {}", missing.unwrap_or_default()))
    }
}

fn named(lines: &[Line], name: &str) -> Vec<usize> {
    lines.iter().enumerate().filter(|(_, line)| name == "*" || line.name == name).map(|(at, _)| at).collect()
}

impl Claim {
    /// Whether it names a cell of one of these tables.
    pub fn is_about(&self, paper: &Paper, tables: &[usize]) -> bool {
        self.selectors().flat_map(|selector| selector.all(paper)).any(|found| tables.contains(&found.table))
    }

    /// The places of all cells that it names.
    pub fn places(&self, paper: &Paper) -> impl Iterator<Item = (usize, usize, usize)> {
        let found = self.selectors().flat_map(|selector| selector.all(paper));
        found.flat_map(|found| {
            let columns = found.columns;
            let row = move |row: usize| columns.clone().into_iter().map(move |column| (found.table, row, column));
            found.rows.into_iter().flat_map(row)
        })
    }

    /// Every cell that it names.
    pub fn selectors(&self) -> impl Iterator<Item = &Selector> {
        self.check.selectors().into_iter()
    }
}

impl Check {
    fn selectors(&self) -> Vec<&Selector> {
        match self {
            Self::Ascending(cells, _) | Self::Descending(cells, _) | Self::Equal(cells, _) => cells.iter().collect(),
            Self::Ratio { of, to, .. } => vec![of, to],
            Self::Value { of, .. } => vec![of],
            Self::Least(of, among) | Self::Greatest(of, among) => std::iter::once(of).chain(among).collect(),
            Self::All(checks) => checks.iter().flat_map(Self::selectors).collect(),
            Self::Untestable(_) => Vec::new(),
        }
    }

    /// Tries it on some numbers.
    pub fn try_on(&self, paper: &Paper, numbers: &impl Numbers) -> Tried {
        match self {
            Self::All(checks) => all(checks.iter().map(|check| check.try_on(paper, numbers))),
            Self::Untestable(why) => Tried::Open(why.clone()),
            Self::Ascending(..)
            | Self::Descending(..)
            | Self::Ratio { .. }
            | Self::Value { .. }
            | Self::Equal(..)
            | Self::Least(..)
            | Self::Greatest(..) => self.try_simple(paper, numbers).unwrap_or_else(Tried::Open),
        }
    }

    fn try_simple(&self, paper: &Paper, numbers: &impl Numbers) -> Result<Tried, String> {
        let mut values: Vec<_> = self.selectors().iter().map(|selector| selector.value(paper, numbers)).collect();
        if matches!(self, Self::Ascending(..) | Self::Descending(..)) && values.iter().flatten().count() > 1 {
            // An order holds for those of its cells that were run.
            values.retain(|value| value.as_ref().err().is_none_or(|why| !is_left_out(why)));
        }
        let values = values.into_iter().collect::<Result<Vec<_>, _>>()?;
        let listed = |sign: &str| values.iter().map(|value| value.shown()).collect::<Vec<_>>().join(sign);
        let (first, others) = values.split_first().ok_or("no cells")?;
        let steps = || values.iter().zip(values.iter().skip(1));
        let (truth, numbers) = match self {
            Self::Ascending(_, tolerance) => {
                (Truth::all(steps().map(|(a, b)| b.is_more(1.0 - tolerance, *a))), listed(" → "))
            }
            Self::Descending(_, tolerance) => {
                (Truth::all(steps().map(|(a, b)| b.is_less(1.0 + tolerance, *a))), listed(" → "))
            }
            Self::Ratio { at_least, at_most, .. } => {
                let to = others.first().ok_or("no divisor")?;
                let ratio = first.divided(*to).ok_or("it is divided by nought")?;
                let numbers = format!("{} ÷ {} = {}", first.shown(), to.shown(), ratio.shown());
                (ratio.lies(*at_least, *at_most), numbers + &bounds(*at_least, *at_most))
            }
            Self::Value { at_least, at_most, .. } => {
                (first.lies(*at_least, *at_most), first.shown() + &bounds(*at_least, *at_most))
            }
            Self::Equal(_, within) => (Range::are_equal(&values, *within), listed(", ")),
            Self::Least(..) => {
                (Truth::all(others.iter().map(|other| first.is_less(1.0, *other))), others_shown(*first, others))
            }
            Self::Greatest(..) => {
                (Truth::all(others.iter().map(|other| first.is_more(1.0, *other))), others_shown(*first, others))
            }
            Self::All(_) | Self::Untestable(_) => return Err("no simple check".to_owned()),
        };
        Ok(match truth {
            Truth { always: true, .. } => Tried::Holds(numbers),
            Truth { ever: false, .. } => Tried::Fails(numbers),
            Truth { .. } => Tried::Open(format!("{numbers}: the side of a bound does not decide")),
        })
    }
}

/// One that fails decides; else one that is open.
fn all(tried: impl Iterator<Item = Tried>) -> Tried {
    let (mut held, mut failed, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for one in tried {
        match one {
            Tried::Holds(numbers) => held.push(numbers),
            Tried::Fails(numbers) => failed.push(numbers),
            Tried::Open(why) => open.push(why),
        }
    }
    if !failed.is_empty() {
        return Tried::Fails(failed.join("; "));
    }
    // Parts that --quick leaves out decide as little as other numbers that nobody asked for.
    let left_out = open.iter().filter(|why| is_left_out(why)).count();
    if !held.is_empty() && left_out == open.len() {
        if left_out > 0 {
            held.push(format!("{LEFT_OUT}: {left_out} of {} parts", left_out + held.len()));
        }
        return Tried::Holds(held.join("; "));
    }
    Tried::Open(open.join("; "))
}

/// Whether a number is missing because of `--quick` alone.
fn is_left_out(why: &str) -> bool {
    why.ends_with(LEFT_OUT)
}

fn bounds(at_least: Option<f64>, at_most: Option<f64>) -> String {
    match (at_least, at_most) {
        (Some(least), Some(most)) => format!(" ({} to {})", shown(least), shown(most)),
        (Some(least), None) => format!(" (at least {})", shown(least)),
        (None, Some(most)) => format!(" (at most {})", shown(most)),
        (None, None) => String::new(),
    }
}

fn others_shown(first: Range, others: &[Range]) -> String {
    let others: Vec<_> = others.iter().map(|other| other.shown()).collect();
    format!("{} beside {}", first.shown(), others.join(", "))
}

/// A number with four digits that matter.
pub(super) fn shown(number: f64) -> String {
    let size = number.abs();
    let digits = match size {
        _ if number.fract() == 0.0 && size < 1e15 => 0,
        _ if size >= 1000.0 => 0,
        _ if size >= 100.0 => 1,
        _ if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Grid(Vec<Vec<Option<f64>>>);

    impl Numbers for Grid {
        fn at(&self, _: usize, row: usize, column: usize) -> Result<Range, String> {
            self.0[row][column].map(Range::exact).ok_or_else(|| "not measured".to_owned())
        }
    }

    const FILE: &str = "[paper]\nname=''\ntitle=''\nauthors=''\nyear=1\nsource=''\nsetup=''\ndifferences=''\n\
                        [[table]]\nid='1'\ntitle=''\nwhere=''\nmetric='packets_total'\n\
                        rows=[{name='a/b'},{name='c'}]\ncolumns=[{name='x'},{name='y/z'}]\nvalues=[[1,2],[3,4]]";

    fn tried(check: &str, grid: Vec<Vec<Option<f64>>>) -> Tried {
        let paper = Paper::parse(FILE).unwrap();
        let check = Check::try_from(toml::from_str::<Keys>(check).unwrap()).unwrap();
        check.try_on(&paper, &Grid(grid))
    }

    fn holds(check: &str) -> bool {
        match tried(check, vec![vec![Some(1.0), Some(2.0)], vec![Some(3.0), Some(4.0)]]) {
            Tried::Holds(_) => true,
            Tried::Fails(_) => false,
            Tried::Open(why) => panic!("{check}: {why}"),
        }
    }

    #[test]
    fn each_check_holds_where_it_should_and_nowhere_else() {
        assert!(holds("ascending = ['1:a/b/x', '1:a/b/y/z', '1:c/x']"));
        assert!(!holds("ascending = ['1:c/x', '1:c/x']"));
        assert!(holds("ascending = ['1:c/y/z', '1:c/x']\ntolerance = 0.3"));
        assert!(holds("descending = ['1:c/x', '1:a/b/x']"));
        assert!(!holds("descending = ['1:a/b/x', '1:c/x']"));
        assert!(holds("ratio = { of = '1:c/y/z', to = '1:a/b/x', at_least = 4, at_most = 4 }"));
        assert!(!holds("ratio = { of = '1:c/y/z', to = '1:a/b/x', at_most = 3.9 }"));
        assert!(holds("value = { of = '1:c/x', at_least = 3, at_most = 3 }"));
        assert!(!holds("value = { of = '1:c/x', at_most = 2 }"));
        assert!(holds("equal = { cells = ['1:c/x', '1:c/y/z'], within = 0.25 }"));
        assert!(!holds("equal = { cells = ['1:c/x', '1:c/y/z'], within = 0.2 }"));
        assert!(holds("least = { of = '1:a/b/x', among = ['1:*/y/z'] }"));
        assert!(!holds("greatest = { of = '1:a/b/x', among = ['1:*/y/z'] }"));
        assert!(holds("equal = { cells = ['1:c/x ÷ 1:a/b/x', '1:*/* ÷ 1:a/b/x'], within = 0.17 }"), "3 and 2.5");
        assert!(!holds("greatest = { of = '1:c/y/z ÷ 1:a/b/y/z', among = ['1:c/x ÷ 1:a/b/x'] }"), "2 beside 3");
        assert!(!holds("all = [{ ascending = ['1:a/b/x', '1:c/x'] }, { ascending = ['1:c/x', '1:a/b/x'] }]"));
    }

    #[test]
    fn what_quick_leaves_out_decides_nothing_where_the_rest_does() {
        struct Quick(Vec<Result<f64, String>>);
        impl Numbers for Quick {
            fn at(&self, _: usize, row: usize, column: usize) -> Result<Range, String> {
                self.0[2 * row + column].clone().map(Range::exact)
            }
        }
        let tried = |check: &str, numbers: [Result<f64, &str>; 4]| {
            let check = Check::try_from(toml::from_str::<Keys>(check).unwrap()).unwrap();
            check.try_on(
                &Paper::parse(FILE).unwrap(),
                &Quick(numbers.map(|number| number.map_err(str::to_owned)).to_vec()),
            )
        };
        let order = "ascending = ['1:a/b/x', '1:a/b/y/z', '1:c/x']";
        let parts = "all = [{ value = { of = '1:a/b/x', at_least = 1 } }, { value = { of = '1:c/x', at_least = 1 } }]";
        let left = Err(LEFT_OUT);
        assert_eq!(tried(order, [Ok(1.0), left, Ok(3.0), left]), Tried::Holds("1 → 3".to_owned()));
        assert!(matches!(tried(order, [Ok(3.0), left, Ok(1.0), left]), Tried::Fails(_)));
        assert!(matches!(tried(order, [Ok(1.0), left, left, left]), Tried::Open(_)));
        assert!(matches!(tried(order, [Ok(1.0), Err("no root"), Ok(3.0), left]), Tried::Open(_)));
        assert!(matches!(tried(parts, [Ok(1.0), left, left, left]), Tried::Holds(_)));
        assert!(matches!(tried(parts, [Ok(1.0), left, Err("no root"), left]), Tried::Open(_)));
        assert!(matches!(tried(parts, [left; 4]), Tried::Open(_)));
    }

    #[test]
    fn a_star_is_the_mean_of_what_there_is() {
        let grid = || vec![vec![Some(1.0), None], vec![Some(3.0), None]];
        assert_eq!(tried("ascending = ['1:a/b/x', '1:*/x']", grid()), Tried::Holds("1 → 2".to_owned()));
        assert_eq!(tried("ascending = ['1:a/b/x', '1:*/*']", grid()), Tried::Holds("1 → 2".to_owned()));
        let nought = vec![vec![Some(0.0), None], vec![Some(3.0), None]];
        assert!(matches!(tried("value = { of = '1:c/x ÷ 1:a/b/x', at_least = 1 }", nought), Tried::Open(_)));
        assert_eq!(
            tried("ascending = ['1:a/b/x', '1:c/y/z']", grid()),
            Tried::Open("1:c/y/z: not measured".to_owned())
        );
    }
}
