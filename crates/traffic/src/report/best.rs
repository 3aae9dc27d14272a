//! The cheapest, the quickest and the smallest door under each profile, and how sure that is.
//!
//! Only rows of equal semantics are compared: the same operation, QoS, payload and link. The best is the one with the
//! lowest median. Another is *as good* if its repetitions do not show that it is worse: Welch's test of logarithms, as
//! of two sets of one session, with all comparisons of the report tested at once (Benjamini and Hochberg).

use super::figure::Figure;
use super::grid::Grid;
use super::label::{self, DOOR, SECURITY, TARGET};
use super::markdown::{self, Align};
use super::number::with_unit;
use super::summary::Summary;
use crate::measure::statistics::{Difference, Interval, false_discovery_rates};

/// The share of "worse" that may be chance.
const CHANCE: f64 = 0.05;

/// The things that a door may be best at.
const PRIZES: [(&str, Figure); 3] =
    [("cheapest", Figure::GatewayCpu), ("quickest", Figure::LatencyP50), ("smallest", Figure::TotalBytes)];

/// The best door of a profile at one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// The profile, and whatever else the doors share.
    pub group: String,
    /// `cheapest`, `quickest` or `smallest`.
    pub at: &'static str,
    /// The door with the lowest median.
    pub door: String,
    /// The figure, with its 95 % interval.
    pub figure: Figure,
    /// Its median and interval.
    pub value: Interval,
    /// Doors that repetitions do not show to be worse.
    pub as_good: Vec<String>,
    /// The next one that is worse, and by which factor, with its 95 % interval.
    pub next: Option<(String, Interval)>,
    /// Doors with too few repetitions to tell.
    pub untested: Vec<String>,
}

/// A door beside the best one.
struct Other {
    door: String,
    /// None: too few repetitions.
    difference: Option<Difference>,
    median: f64,
    of: usize,
}

/// The best of all profiles that several doors have. Runs that the generator limited take part in what is counted, and
/// in nothing that is timed.
#[must_use]
pub fn best(summaries: &[Summary<'_>]) -> Vec<Best> {
    let mut all: Vec<Best> = Vec::new();
    let mut others: Vec<Other> = Vec::new();
    for (group, runs) in groups(summaries) {
        for (at, figure) in PRIZES {
            let is_timed = figure != Figure::TotalBytes;
            let known = runs.iter().filter(|run| !(is_timed && run.is_bound));
            let mut known: Vec<(&Summary<'_>, &Interval)> =
                known.filter_map(|run| Some((*run, run.get(figure)?))).collect();
            known.sort_by(|(_, one), (_, other)| one.median.total_cmp(&other.median));
            let Some(((first, value), rest)) = known.split_first().filter(|(_, rest)| !rest.is_empty()) else {
                continue;
            };
            let best = first.values(figure);
            others.extend(rest.iter().map(|(run, interval)| Other {
                door: door(run),
                difference: Difference::between(&best, &run.values(figure), 0.0),
                median: interval.median,
                of: all.len(),
            }));
            all.push(Best {
                group: group.clone(),
                at,
                door: door(first),
                figure,
                value: **value,
                as_good: Vec::new(),
                next: None,
                untested: Vec::new(),
            });
        }
    }
    judge(&mut all, others);
    all
}

fn judge(all: &mut [Best], others: Vec<Other>) {
    let ps: Vec<f64> = others.iter().filter_map(|other| other.difference.map(|difference| difference.p)).collect();
    let mut rates = false_discovery_rates(&ps).into_iter();
    for other in others {
        let Some(best) = all.get_mut(other.of) else { continue };
        match other.difference {
            // Sizes that do not scatter need no test.
            None if other.median > best.value.median && best.figure == Figure::TotalBytes => {
                let ratio = other.median / best.value.median;
                best.next.get_or_insert((other.door, Interval { median: ratio, low: ratio, high: ratio }));
            }
            None => best.untested.push(other.door),
            Some(difference) => {
                if rates.next().is_some_and(|chance| chance < CHANCE) {
                    best.next.get_or_insert((other.door, difference.ratio));
                } else {
                    best.as_good.push(other.door);
                }
            }
        }
    }
}

fn door(run: &Summary<'_>) -> String {
    label::keys(run.run).remove(DOOR).unwrap_or_default()
}

/// Runs that differ in nothing but their door, by what they share.
fn groups<'s, 'r>(summaries: &'s [Summary<'r>]) -> Vec<(String, Vec<&'s Summary<'r>>)> {
    let mut varying: Vec<(label::Keys, Vec<&'s Summary<'r>>)> = Vec::new();
    // Groups of a fleet do different things, at the same time.
    for summary in summaries.iter().filter(|summary| summary.run.name.is_none()) {
        let mut keys = label::keys(summary.run);
        keys.remove(DOOR);
        match varying.iter_mut().find(|(of, _)| *of == keys) {
            Some((_, runs)) => runs.push(summary),
            None => varying.push((keys, vec![summary])),
        }
    }
    let differs = |key: &String| {
        let mut values = varying.iter().map(|(keys, _)| keys.get(key));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let name = |keys: &label::Keys| {
        let security = keys.get(SECURITY).cloned().unwrap_or_default();
        let rest = keys.iter().filter(|(key, _)| key.as_str() != SECURITY && key.as_str() != TARGET && differs(key));
        let words = rest.map(|(key, value)| label::in_words(key, value));
        std::iter::once(security).chain(words).collect::<Vec<_>>().join(", ")
    };
    let names: Vec<String> = varying.iter().map(|(keys, _)| name(keys)).collect();
    names.into_iter().zip(varying.into_iter().map(|(_, runs)| runs)).filter(|(_, runs)| runs.len() > 1).collect()
}

/// Head and cells.
pub(crate) fn table(all: &[Best]) -> (Vec<String>, Vec<Vec<String>>) {
    let head = ["", "best at", "door", "median", "95 % interval", "as good", "next"].map(str::to_owned).to_vec();
    let row = |best: &Best| {
        let unit = best.figure.meaning().unit;
        let scale = unit.scale([best.value.median]);
        let is_wide = best.value.low < best.value.high;
        let interval = if is_wide { scale.range(&best.value) } else { String::new() };
        let next = best.next.as_ref().map(|(door, ratio)| match ratio.low < ratio.high {
            true => format!("{door} ×{:.2} ({:.2}–{:.2})", ratio.median, ratio.low, ratio.high),
            false => format!("{door} ×{:.2}", ratio.median),
        });
        let untested = best.untested.iter().map(|door| format!("{door}?"));
        let as_good: Vec<String> = best.as_good.iter().cloned().chain(untested).collect();
        let median = format!("{} {}", scale.median(&best.value), scale.name).trim_end().to_owned();
        vec![
            best.group.clone(),
            format!("{} ({})", best.at, best.figure.meaning().title),
            best.door.clone(),
            if is_wide { median } else { with_unit(unit, best.value.median) },
            interval,
            as_good.join(", "),
            next.unwrap_or_default(),
        ]
    };
    (head, all.iter().map(row).collect())
}

/// How to read it.
pub(crate) const CAPTION: &str = "The best door of each profile, by the lowest median. \"As good\" are doors that \
    repetitions do not show to be worse (5 % of what is called worse may be chance); one with a question mark has too few \
    repetitions to tell. \"Next\" is the next that is worse, and by which factor, with its 95 % interval.";

/// For a terminal; nothing where no profile has several doors.
#[must_use]
pub fn terminal(summaries: &[Summary<'_>], width: Option<usize>) -> String {
    let all = best(summaries);
    if all.is_empty() {
        return String::new();
    }
    let (head, rows) = table(&all);
    let mut grid = Grid::default();
    grid.row(head);
    rows.into_iter().for_each(|row| grid.row(row));
    let fitted = grid.fit(width, &[0, 0, 0, 2, 3, 1, 4]);
    format!("\n{}{}", fitted.text, super::grid::wrapped(CAPTION, "", width))
}

/// The same as Markdown.
pub(crate) fn markdown(summaries: &[Summary<'_>]) -> String {
    let all = best(summaries);
    if all.is_empty() {
        return String::new();
    }
    let (head, rows) = table(&all);
    format!("\n{}\n{CAPTION}\n", markdown::grid(&head, &rows, Align::Left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Door, Experiment};
    use crate::outcome::{Bytes, Outcome, ProcessUse, Run};

    /// A run whose repetitions cost so many microseconds a message.
    fn run(door: Door, security: &str, costs: &[f64], bytes: u64) -> Run {
        let outcome = |cost: &f64| {
            let mut outcome = Outcome { delivered: 100, expected: 100, seconds: 1.0, ..Outcome::default() };
            outcome.gateway = Some(ProcessUse { cpu_us: cost * 100.0, ..ProcessUse::default() });
            outcome.bytes = Bytes { protocol_up: bytes * 100, payload_up: 6_400, ..Bytes::default() };
            outcome
        };
        let experiment = Experiment { door, security: security.parse().unwrap(), ..Experiment::default() };
        Run { outcomes: costs.iter().map(outcome).collect(), ..Run::of(experiment, "fogmux".to_owned()) }
    }

    fn found(runs: &[Run]) -> Vec<Best> {
        best(&super::super::summaries(runs))
    }

    #[test]
    fn the_best_of_each_profile_is_named_with_those_that_cannot_be_told_from_it() {
        let runs = [
            run(Door::Mqtt, "none", &[10.0, 10.1, 9.9, 10.2, 9.8], 80),
            run(Door::Mqtt5, "none", &[10.1, 10.0, 10.2, 9.9, 10.0], 82),
            run(Door::Coap, "none", &[20.0, 20.2, 19.8, 20.1, 19.9], 90),
            run(Door::Mqtt, "modern", &[30.0, 30.2, 29.8, 30.1, 29.9], 100),
            run(Door::Http1, "modern", &[12.0, 12.2, 11.8, 12.1, 11.9], 400),
            run(Door::Xmpp, "psk", &[5.0; 5], 10),
        ];
        let all = found(&runs);
        let of = |group: &str, at: &str| all.iter().find(|best| best.group == group && best.at == at).unwrap();
        let cheapest = of("none", "cheapest");
        assert_eq!((cheapest.door.as_str(), cheapest.as_good.as_slice()), ("mqtt", ["mqtt5".to_owned()].as_slice()));
        let (door, ratio) = cheapest.next.clone().unwrap();
        assert!(door == "coap" && ratio.low < 2.0 && 2.0 < ratio.high && ratio.high < 2.1, "{ratio:?}");
        assert!(cheapest.value.low <= 10.0 && cheapest.value.high >= 10.0);
        assert_eq!(of("modern", "cheapest").door, "http1");
        assert_eq!(of("modern", "smallest").door, "mqtt");
        assert_eq!(of("none", "smallest").next.as_ref().map(|(door, _)| door.as_str()), Some("mqtt5"));
        // One door has nobody to be better than, and nothing was timed.
        assert!(all.iter().all(|best| best.group != "psk" && best.at != "quickest"), "{all:?}");
        let text = terminal(&super::super::summaries(&runs), None);
        assert!(text.contains("cheapest (gateway CPU/msg)") && text.contains("coap ×2.00"), "{text}");
    }

    #[test]
    fn two_repetitions_are_too_few_and_those_the_generator_limits_show_no_times() {
        let mut runs = [
            run(Door::Mqtt, "none", &[10.0, 10.0], 80),
            run(Door::Coap, "none", &[20.0, 20.0], 90),
            run(Door::Http1, "none", &[5.0, 5.0], 400),
        ];
        runs[2].outcomes.iter_mut().for_each(|outcome| outcome.limited_by_generator = Some("busy".to_owned()));
        let all = found(&runs);
        let cheapest = all.iter().find(|best| best.at == "cheapest").unwrap();
        assert_eq!((cheapest.door.as_str(), cheapest.untested.as_slice()), ("mqtt", ["coap".to_owned()].as_slice()));
        assert_eq!(cheapest.next, None);
        // Sizes that are counted to the byte need no repetition.
        let smallest = all.iter().find(|best| best.at == "smallest").unwrap();
        assert_eq!(smallest.next.as_ref().map(|(door, _)| door.as_str()), Some("coap"));
    }

    #[test]
    fn payloads_and_levels_of_qos_are_not_compared_with_each_other() {
        let mut large = run(Door::Coap, "none", &[1.0; 5], 10);
        large.experiment.payload_bytes = 2_000;
        assert_eq!(found(&[run(Door::Mqtt, "none", &[10.0; 5], 80), large]), []);
    }
}
