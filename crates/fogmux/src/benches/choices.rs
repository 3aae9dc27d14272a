//! The measurements that may be asked for. Command lines are built of the names and numbers of these choices, and of
//! nothing else that a request has.

use std::fmt::Display;

use fogmux_http::api::{
    BenchChoices, BenchDocument, BenchDoor, BenchMatrix, BenchMost, BenchPaper, BenchRun, BenchTable, BenchWanted,
};
use fogmux_traffic::experiment::Qos;
use fogmux_traffic::link::conditions::PRESETS;
use fogmux_traffic::paper::{self, NAMES};
use fogmux_traffic::{Door, Experiment, Security};

use super::limits::{
    BESIDES_SECONDS, CLIENTS_MAX, JOB_SECONDS_MAX, RATE_MAX, REPEAT_MAX, REPETITIONS_MAX, SECONDS_MAX, SIZE_MAX,
};

/// Operations, as the command line has them. Connections alone (`connect`, `hold`) take options of their own.
const OPERATIONS: [&str; 4] = ["deliver", "get", "put", "post"];
/// Links without conditions: none at all, and one that only counts.
const PLAIN_LINKS: [&str; 2] = ["loopback", "lossless"];
/// Those of a matrix that does not say.
const MATRIX_SIZE: u32 = 64;
const MATRIX_QOS: u8 = 1;
/// Seconds and repetitions of a request that does not say.
const SECONDS: u32 = 2;
const REPEAT: u32 = 3;

/// The command line of a measurement.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// The words behind the name of the program.
    pub(super) arguments: Vec<String>,
    /// Repetitions of all experiments.
    pub(super) repetitions: u32,
}

/// Checks what is wanted.
///
/// # Errors
/// The choice that is none, with those that there are, or the number that is out of its bounds.
pub(super) fn plan(wanted: &BenchWanted) -> Result<Plan, String> {
    match wanted {
        BenchWanted::Run(wanted) => run(wanted),
        BenchWanted::Matrix(wanted) => matrix(wanted),
        BenchWanted::Paper(wanted) => document(wanted),
    }
}

/// Words of a command line.
struct Words(Vec<String>);

impl Words {
    fn of(words: &[&str]) -> Self {
        Self(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn flag(&mut self, name: &str, value: impl Display) {
        self.0.extend([name.to_owned(), value.to_string()]);
    }

    fn list<T: Display>(&mut self, name: &str, values: &[T]) {
        self.flag(name, values.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    }
}

fn run(wanted: &BenchRun) -> Result<Plan, String> {
    let default = Experiment::default();
    let door = wanted.door.as_deref().map_or(Ok(default.door), door)?;
    let reader_door = wanted.to.as_deref().map(self::door).transpose()?;
    let security = wanted.security.as_deref().map_or(Ok(default.security), security)?;
    let operation = one_of("operation", &OPERATIONS, wanted.operation.as_deref().unwrap_or("deliver"))?;
    let qos = qos(wanted.qos.unwrap_or(1))?;
    for door in [Some(door), reader_door].into_iter().flatten() {
        if !door.securities().contains(&security) {
            return Err(format!("door {door} has no security {security}: {}", names(&door.securities())));
        }
        if !door.has(qos) {
            return Err(format!("door {door} has no QoS {}", qos as u8));
        }
    }
    let link = wanted.link.as_deref().map_or(Ok("loopback"), link)?;
    let size = bounded("size", wanted.size.unwrap_or(64), 1, SIZE_MAX)?;
    let publishers = bounded("pubs", wanted.pubs.unwrap_or(1), 1, CLIENTS_MAX)?;
    let subscribers = bounded("subs", wanted.subs.unwrap_or(1), 0, CLIENTS_MAX)?;
    let rate = wanted.rate.map(|rate| bounded("rate", rate, 1, RATE_MAX)).transpose()?;
    let (seconds, repeat) = times(wanted.seconds, wanted.repeat)?;
    check_time(1, seconds, repeat)?;
    let mut words = Words::of(&["bench", "run"]);
    words.flag("--door", door);
    // Other operations have no subscribers, and a flag without an effect is refused.
    let delivers = operation == "deliver";
    if let Some(reader_door) = reader_door.filter(|_| delivers) {
        words.flag("--to", reader_door);
    }
    words.flag("--security", security);
    words.flag("--operation", operation);
    words.flag("--qos", qos as u8);
    words.flag("--size", size);
    words.flag("--pubs", publishers);
    if delivers {
        words.flag("--subs", subscribers);
    }
    if let Some(rate) = rate {
        words.flag("--rate", rate);
    }
    words.flag("--link", link);
    words.flag("--seconds", seconds);
    words.flag("--repeat", repeat);
    Ok(Plan { arguments: words.0, repetitions: repeat })
}

fn matrix(wanted: &BenchMatrix) -> Result<Plan, String> {
    let mut doors = wanted.doors.iter().map(|word| door(word)).collect::<Result<Vec<_>, _>>()?;
    let mut securities = wanted.securities.iter().map(|word| security(word)).collect::<Result<Vec<_>, _>>()?;
    let mut sizes = wanted.sizes.clone();
    let mut levels = wanted.qos.iter().copied().map(qos).collect::<Result<Vec<_>, _>>()?;
    once("doors", &mut doors)?;
    once("securities", &mut securities)?;
    once("sizes", &mut sizes)?;
    once("qos", &mut levels)?;
    if sizes.is_empty() {
        sizes.push(MATRIX_SIZE);
    }
    if levels.is_empty() {
        levels.push(qos(MATRIX_QOS)?);
    }
    for size in &sizes {
        bounded("sizes", *size, 1, SIZE_MAX)?;
    }
    let link = wanted.link.as_deref().map_or(Ok("loopback"), link)?;
    let (seconds, repeat) = times(wanted.seconds, wanted.repeat)?;
    let all = if doors.is_empty() { &Door::ALL[..] } else { &doors };
    let of = |door: &Door| {
        let has = |security: &&Security| securities.is_empty() || securities.contains(security);
        let profiles = door.securities().iter().filter(has).count();
        profiles * levels.iter().filter(|qos| door.has(**qos)).count()
    };
    let experiments = all.iter().map(of).sum::<usize>() * sizes.len();
    let experiments = u32::try_from(experiments).unwrap_or(u32::MAX);
    if experiments == 0 {
        return Err("no door has one of these profiles and levels of QoS".to_owned());
    }
    let repetitions = check_time(experiments, seconds, repeat)?;
    let mut words = Words::of(&["bench", "matrix"]);
    if !doors.is_empty() {
        words.list("--doors", &doors);
    }
    if !securities.is_empty() {
        words.list("--securities", &securities);
    }
    words.list("--sizes", &sizes);
    words.list("--qos", &levels.iter().map(|qos| *qos as u8).collect::<Vec<_>>());
    words.flag("--link", link);
    words.flag("--seconds", seconds);
    words.flag("--repeat", repeat);
    Ok(Plan { arguments: words.0, repetitions })
}

fn document(wanted: &BenchPaper) -> Result<Plan, String> {
    let name = one_of("paper", &NAMES, &wanted.name)?;
    let paper = paper::load(name).map_err(|error| error.to_string())?;
    // The plan names the tables that there are.
    let table = paper.tables.iter().find(|table| table.id == wanted.table).map(|table| table.id.clone());
    let plan = paper::plan(&paper, &[table.clone().unwrap_or_else(|| wanted.table.clone())], true);
    let plan = plan.map_err(|error| error.to_string())?;
    let repetitions = u32::try_from(plan.experiments.len()).unwrap_or(u32::MAX).saturating_mul(plan.repetitions);
    let repetitions = bounded("repetitions of the table", repetitions, 1, REPETITIONS_MAX)?;
    let mut words = Words::of(&["bench", "paper", "run", name]);
    words.flag("--table", table.unwrap_or_default());
    words.0.push("--quick".to_owned());
    if let Some(wanted) = &wanted.link {
        words.flag("--link", link(wanted)?);
    }
    Ok(Plan { arguments: words.0, repetitions })
}

fn door(word: &str) -> Result<Door, String> {
    word.parse().map_err(|_| format!("door {word:?} is none: {}", names(&Door::ALL)))
}

fn security(word: &str) -> Result<Security, String> {
    word.parse().map_err(|_| format!("security {word:?} is none: {}", securities().join(", ")))
}

fn qos(level: u8) -> Result<Qos, String> {
    Qos::of_level(level).map_err(|error| error.to_string())
}

fn link(word: &str) -> Result<&'static str, String> {
    one_of("link", &links(), word)
}

fn links() -> Vec<&'static str> {
    PLAIN_LINKS.into_iter().chain(PRESETS.iter().map(|preset| preset.name)).collect()
}

/// The profiles of all doors.
fn securities() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for security in Door::ALL.iter().flat_map(|door| door.securities()) {
        let name = security.to_string();
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn names<T: Display>(all: &[T]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn one_of(what: &str, all: &[&'static str], word: &str) -> Result<&'static str, String> {
    let found = all.iter().find(|one| **one == word).copied();
    found.ok_or_else(|| format!("{what} {word:?} is none: {}", all.join(", ")))
}

fn bounded(what: &str, number: u32, least: u32, most: u32) -> Result<u32, String> {
    let fits = (least..=most).contains(&number);
    if fits { Ok(number) } else { Err(format!("{what}: {number}, but {least} to {most} is possible")) }
}

/// Each is named once: a list is no way around the bounds of its parts.
fn once<T: PartialEq>(what: &str, all: &mut Vec<T>) -> Result<(), String> {
    let before = all.len();
    let mut seen: Vec<T> = Vec::with_capacity(before.min(64));
    for one in all.drain(..) {
        if seen.contains(&one) || seen.len() == 64 {
            return Err(format!("{what}: each once, and 64 at most"));
        }
        seen.push(one);
    }
    *all = seen;
    Ok(())
}

fn times(seconds: Option<u32>, repeat: Option<u32>) -> Result<(u32, u32), String> {
    let seconds = bounded("seconds", seconds.unwrap_or(SECONDS), 1, SECONDS_MAX)?;
    Ok((seconds, bounded("repeat", repeat.unwrap_or(REPEAT), 1, REPEAT_MAX)?))
}

/// The repetitions of so many experiments, if there are not too many and they do not take too long.
fn check_time(experiments: u32, seconds: u32, repeat: u32) -> Result<u32, String> {
    let repetitions =
        bounded("repetitions of all experiments", experiments.saturating_mul(repeat), 1, REPETITIONS_MAX)?;
    bounded("seconds of all repetitions", repetitions * (seconds + BESIDES_SECONDS), 1, JOB_SECONDS_MAX)?;
    Ok(repetitions)
}

/// Everything that there is to choose.
pub(super) fn choices() -> BenchChoices {
    let door = |door: Door| BenchDoor {
        door: door.name(),
        securities: door.securities().iter().map(ToString::to_string).collect(),
        qos: (0..=2).filter(|level| Qos::of_level(*level).is_ok_and(|qos| door.has(qos))).collect(),
    };
    let papers = NAMES.iter().filter_map(|name| paper::load(name).ok()).map(|paper| BenchDocument {
        title: format!("{} ({}, {})", paper.head.title, paper.head.authors, paper.head.year),
        tables: paper
            .tables
            .iter()
            .map(|table| BenchTable { table: table.id.clone(), title: table.title.clone() })
            .collect(),
        name: paper.head.name,
    });
    BenchChoices {
        doors: Door::ALL.into_iter().map(door).collect(),
        operations: OPERATIONS.to_vec(),
        links: links(),
        papers: papers.collect(),
        most: BenchMost {
            size: SIZE_MAX,
            clients: CLIENTS_MAX,
            rate: RATE_MAX,
            seconds: SECONDS_MAX,
            repeat: REPEAT_MAX,
            repetitions: REPETITIONS_MAX,
            job_seconds: JOB_SECONDS_MAX,
        },
    }
}

#[cfg(test)]
mod tests;
