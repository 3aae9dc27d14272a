//! Which runs are drawn together: in panels that share everything but one thing, which tells lines or bars apart.

use crate::experiment::Door;
use crate::report::label::{DOOR, PAYLOAD, SECURITY, TARGET, Varying};
use crate::report::summary::Summary;

use super::svg::Look;

/// The most lines that a reader can tell apart.
const LINES_MAX: usize = 10;

/// Runs of one panel.
pub(crate) struct Panel<'s, 'r> {
    /// The keys that its runs share, of those in which runs differ.
    pub(crate) name: String,
    /// The runs.
    pub(crate) runs: Vec<&'s Summary<'r>>,
}

/// Those of the same `part`, in the order in which they come.
pub(crate) fn by<'s, 'r>(
    runs: impl IntoIterator<Item = &'s Summary<'r>>,
    part: impl Fn(&Summary<'r>) -> String,
) -> Vec<Panel<'s, 'r>> {
    let mut panels: Vec<Panel<'s, 'r>> = Vec::new();
    for summary in runs {
        let name = part(summary);
        match panels.iter_mut().find(|panel| panel.name == name) {
            Some(panel) => panel.runs.push(summary),
            None => panels.push(Panel { name, runs: vec![summary] }),
        }
    }
    panels
}

/// The key that tells the lines of a panel apart: the first in which runs differ and of which panels have a few.
/// Several when runs differ in them together.
pub(crate) fn line_keys(summaries: &[Summary<'_>], varying: &Varying, beside: &[&str]) -> Vec<String> {
    let usual = [DOOR, SECURITY, TARGET].map(|key| vec![key.to_owned()]);
    let others = varying.keys().filter(|key| *key != PAYLOAD).map(|key| vec![key.to_owned()]);
    let together = [vec![DOOR.to_owned(), SECURITY.to_owned()]];
    let all = [varying.keys().map(str::to_owned).collect::<Vec<_>>()];
    let candidates = usual.into_iter().chain(others).chain([vec![PAYLOAD.to_owned()]]).chain(together).chain(all);
    let mut usable =
        candidates.filter(|keys| keys.iter().any(|key| varying.has(key) && !beside.contains(&key.as_str())));
    let has_few = |keys: &Vec<String>| {
        let panels = by(summaries, |summary| {
            varying.part(summary.run, |key| !keys.iter().any(|of| of == key) && !beside.contains(&key))
        });
        let lines =
            |panel: &Panel<'_, '_>| by(panel.runs.iter().copied(), |summary| name(summary, varying, keys)).len();
        let most = panels.iter().map(lines).max().unwrap_or_default();
        (2..=LINES_MAX).contains(&most)
    };
    usable.find(has_few).unwrap_or_else(|| vec![DOOR.to_owned()])
}

/// Returns the name of a line by its keys.
pub(crate) fn name(summary: &Summary<'_>, varying: &Varying, keys: &[String]) -> String {
    let name = varying.part(summary.run, |key| keys.iter().any(|of| of == key));
    if name.is_empty() { summary.label.clone() } else { name }
}

/// How a line looks: doors of one protocol have one colour, and every name looks the same all over a report.
pub(crate) fn look(name: &str, names: &[String]) -> Look {
    let known = |colour, dash| Look { colour, dash };
    if let Ok(door) = name.parse::<Door>() {
        return match door {
            Door::Mqtt => known(0, 0),
            Door::Mqtt5 => known(0, 1),
            Door::MqttWs => known(0, 2),
            Door::Coap => known(1, 0),
            Door::CoapTcp => known(1, 1),
            Door::Http1 => known(2, 0),
            Door::Http2 => known(2, 1),
            Door::Http3 => known(2, 2),
            Door::Xmpp => known(3, 0),
            Door::Xmpps => known(3, 1),
        };
    }
    match name {
        "none" => known(6, 0),
        "low" => known(4, 0),
        "high" => known(0, 0),
        "modern" => known(5, 0),
        "psk" => known(2, 0),
        "pki" => known(3, 0),
        "oscore" => known(1, 0),
        "oscore+psk" => known(1, 1),
        "oscore+pki" => known(1, 2),
        other => Look::nth(names.iter().position(|name| name == other).unwrap_or_default()),
    }
}
