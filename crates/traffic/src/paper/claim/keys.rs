//! Claims and checks as files write them.

use serde::Deserialize;
use toml::value::Table as Keys;

use super::{Check, Claim, Selector};

/// The keys of a check, as files have them.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawCheck {
    ascending: Option<Vec<String>>,
    descending: Option<Vec<String>>,
    tolerance: Option<f64>,
    ratio: Option<RawRatio>,
    value: Option<RawValue>,
    equal: Option<RawEqual>,
    least: Option<RawExtreme>,
    greatest: Option<RawExtreme>,
    all: Option<Vec<Keys>>,
    untestable: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRatio {
    of: String,
    to: String,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawValue {
    of: String,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEqual {
    cells: Vec<String>,
    within: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExtreme {
    of: String,
    among: Vec<String>,
}

fn selectors(names: Vec<String>) -> Vec<Selector> {
    names.into_iter().map(Selector).collect()
}

impl TryFrom<Keys> for Check {
    type Error = String;

    fn try_from(keys: Keys) -> Result<Self, String> {
        let raw: RawCheck = keys.try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
        let tolerance = raw.tolerance.unwrap_or(0.0);
        let extreme = |raw: RawExtreme| (Selector(raw.of), selectors(raw.among));
        let inner =
            raw.all.map(|all| all.into_iter().map(Self::try_from).collect::<Result<Vec<_>, _>>()).transpose()?;
        let mut checks = [
            raw.ascending.map(|cells| Self::Ascending(selectors(cells), tolerance)),
            raw.descending.map(|cells| Self::Descending(selectors(cells), tolerance)),
            raw.ratio.map(|RawRatio { of, to, at_least, at_most }| Self::Ratio {
                of: Selector(of),
                to: Selector(to),
                at_least,
                at_most,
            }),
            raw.value.map(|RawValue { of, at_least, at_most }| Self::Value { of: Selector(of), at_least, at_most }),
            raw.equal.map(|equal| Self::Equal(selectors(equal.cells), equal.within)),
            raw.least.map(extreme).map(|(of, among)| Self::Least(of, among)),
            raw.greatest.map(extreme).map(|(of, among)| Self::Greatest(of, among)),
            inner.map(Self::All),
            raw.untestable.map(Self::Untestable),
        ]
        .into_iter()
        .flatten();
        match (checks.next(), checks.next()) {
            (Some(check), None) => Ok(check),
            (None, _) => Err("there is no check".to_owned()),
            (Some(_), Some(_)) => Err("there are several checks; put them under `all`".to_owned()),
        }
    }
}

impl TryFrom<Keys> for Claim {
    type Error = String;

    fn try_from(mut keys: Keys) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Words {
            id: String,
            text: String,
            #[serde(rename = "where")]
            place: String,
            note: Option<String>,
        }
        let mut words = Keys::new();
        for key in ["id", "text", "where", "note"] {
            words.extend(keys.remove(key).map(|value| (key.to_owned(), value)));
        }
        let Words { id, text, place, note } =
            words.try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
        let check = Check::try_from(keys).map_err(|problem| format!("claim {id}: {problem}"))?;
        Ok(Self { id, text, place, note, check })
    }
}
