//! Energy: a model that multiplies processor time and frames by constants, and the file of an external meter.
//!
//! A model is no measurement. Its constants were measured by others on other software, each source is beside its
//! constant, and all can be replaced. What it leaves out is listed in docs/benchmarks.md.

mod meter;

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::meter::{Meter, MeterError};

/// A board: the power that it draws idle, and with all of its cores busy.
struct Board {
    name: &'static str,
    idle_watts: f64,
    busy_watts: f64,
    cores: f64,
}

/// Raspberry Pi 3 B, 3 B+ and 4 B, idle and with `stress --cpu 4`, without peripherals: J. Geerling, Raspberry Pi
/// Dramble, "Power Consumption Benchmarks", pidramble.com/wiki/benchmarks/power-consumption. No pair of values is there
/// for a Raspberry Pi 5.
const BOARDS: [Board; 3] = [
    Board { name: "pi3", idle_watts: 1.4, busy_watts: 3.7, cores: 4.0 },
    Board { name: "pi3bplus", idle_watts: 1.9, busy_watts: 5.1, cores: 4.0 },
    Board { name: "pi4", idle_watts: 2.7, busy_watts: 6.4, cores: 4.0 },
];

/// IEEE 802.11, point to point: 1.9 µJ a byte and 420 µJ a frame sent, 0.42 µJ and 330 µJ received, beyond what an idle
/// interface draws. L. M. Feeney, "An Energy Consumption Model for Performance Analysis of Routing Protocols for Mobile
/// Ad Hoc Networks", Mobile Networks and Applications 6 (2001). A card of 2 Mbit/s: an upper bound for today's.
const WIFI: Radio = Radio {
    sent_nj_per_bit: 1_900.0 / 8.0,
    received_nj_per_bit: 420.0 / 8.0,
    sent_uj_per_frame: 420.0,
    received_uj_per_frame: 330.0,
};

/// Of the CC2420, an IEEE 802.15.4 transceiver: 17.4 mA sending at 0 dBm, 18.8 mA receiving, 250 kbit/s (Texas
/// Instruments, SWRS041); at 3.0 V, which is our choice of the 2.1 to 3.6 V that it takes.
const IEEE_802_15_4: Radio = Radio {
    sent_nj_per_bit: 17.4e-3 * 3.0 / 250e3 * 1e9,
    received_nj_per_bit: 18.8e-3 * 3.0 / 250e3 * 1e9,
    sent_uj_per_frame: 0.0,
    received_uj_per_frame: 0.0,
};

const RADIOS: [(&str, Radio); 2] = [("wifi", WIFI), ("802.15.4", IEEE_802_15_4)];

/// The constants of a radio's two ends, of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Radio {
    sent_nj_per_bit: f64,
    received_nj_per_bit: f64,
    sent_uj_per_frame: f64,
    received_uj_per_frame: f64,
}

/// The constants of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Its name, in reports.
    pub name: String,
    /// The power of the board when it does nothing, in watts.
    pub idle_watts: f64,
    /// The energy that a busy core adds to that, in joules for each second of processor time.
    pub joules_per_processor_second: f64,
    /// Seconds of processor time that the board takes for one of the machine that was measured: 1 on the board itself.
    pub processor_scale: f64,
    /// Nanojoules for each bit of a frame that is sent.
    pub sent_nj_per_bit: f64,
    /// The same, received.
    pub received_nj_per_bit: f64,
    /// Microjoules for each frame that is sent, whatever its length.
    pub sent_uj_per_frame: f64,
    /// The same, received.
    pub received_uj_per_frame: f64,
}

/// A file of constants: those that it lacks are those of the model that it is based on.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Constants {
    based_on: Option<String>,
    idle_watts: Option<f64>,
    joules_per_processor_second: Option<f64>,
    processor_scale: Option<f64>,
    sent_nj_per_bit: Option<f64>,
    received_nj_per_bit: Option<f64>,
    sent_uj_per_frame: Option<f64>,
    received_uj_per_frame: Option<f64>,
}

/// Why there is no such model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// It is neither a name nor a file.
    #[error("energy model {0:?} is neither a file FILE.toml nor one of {1}")]
    Unknown(String, String),
    /// The file cannot be read.
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    /// The file is no table of constants.
    #[error("{0}: {1}")]
    Content(String, String),
    /// A constant is no amount.
    #[error("{file}: {key} is {value}: a number from 0 to {CONSTANT_MAX} is accepted")]
    Bounds {
        /// The file.
        file: String,
        /// The key.
        key: &'static str,
        /// Its value.
        value: f64,
    },
    /// A constant is missing, and no model is named that has it.
    #[error("{0}: {1} is missing; based_on = \"pi4-wifi\", or another, takes it from there")]
    Missing(String, &'static str),
}

/// No constant is larger in any of its units.
const CONSTANT_MAX: f64 = 1e9;

impl Model {
    /// The names of the models that are there: a board and a radio each.
    #[must_use]
    pub fn names() -> Vec<String> {
        let of = |board: &Board| RADIOS.map(|(radio, _)| format!("{}-{radio}", board.name));
        BOARDS.iter().flat_map(of).collect()
    }

    /// The model of that name, or of the constants in that file.
    ///
    /// # Errors
    /// There is neither, or a constant is missing, unknown or no amount.
    pub fn load(word: &str) -> Result<Self, ModelError> {
        if Path::new(word).extension().is_some_and(|extension| extension == "toml") {
            let text = fs::read_to_string(word).map_err(|error| ModelError::File(word.to_owned(), error))?;
            return Self::parse(word, &text);
        }
        Self::named(word).ok_or_else(|| ModelError::Unknown(word.to_owned(), Self::names().join(", ")))
    }

    fn named(name: &str) -> Option<Self> {
        let is_it = |board: &&Board| name.strip_prefix(board.name).is_some_and(|rest| rest.starts_with('-'));
        let board = BOARDS.iter().find(is_it)?;
        let radio = name.strip_prefix(board.name)?.strip_prefix('-')?;
        let (_, radio) = RADIOS.into_iter().find(|(known, _)| *known == radio)?;
        Some(Self {
            name: name.to_owned(),
            idle_watts: board.idle_watts,
            joules_per_processor_second: (board.busy_watts - board.idle_watts) / board.cores,
            processor_scale: 1.0,
            sent_nj_per_bit: radio.sent_nj_per_bit,
            received_nj_per_bit: radio.received_nj_per_bit,
            sent_uj_per_frame: radio.sent_uj_per_frame,
            received_uj_per_frame: radio.received_uj_per_frame,
        })
    }

    fn parse(file: &str, text: &str) -> Result<Self, ModelError> {
        let content = |error: toml::de::Error| ModelError::Content(file.to_owned(), error.message().to_owned());
        let given: Constants = toml::from_str(text).map_err(content)?;
        let base = match &given.based_on {
            Some(name) => {
                Some(Self::named(name).ok_or_else(|| ModelError::Unknown(name.clone(), Self::names().join(", ")))?)
            }
            None => None,
        };
        let of = |key: &'static str, given: Option<f64>, base: Option<f64>| {
            let value = given.or(base).ok_or_else(|| ModelError::Missing(file.to_owned(), key))?;
            if (0.0..=CONSTANT_MAX).contains(&value) {
                Ok(value)
            } else {
                Err(ModelError::Bounds { file: file.to_owned(), key, value })
            }
        };
        let base = base.as_ref();
        let from = |of: fn(&Self) -> f64| base.map(of);
        Ok(Self {
            name: file.to_owned(),
            idle_watts: of("idle_watts", given.idle_watts, from(|base| base.idle_watts))?,
            joules_per_processor_second: of(
                "joules_per_processor_second",
                given.joules_per_processor_second,
                from(|base| base.joules_per_processor_second),
            )?,
            processor_scale: of("processor_scale", given.processor_scale, from(|base| base.processor_scale))?,
            sent_nj_per_bit: of("sent_nj_per_bit", given.sent_nj_per_bit, from(|base| base.sent_nj_per_bit))?,
            received_nj_per_bit: of(
                "received_nj_per_bit",
                given.received_nj_per_bit,
                from(|base| base.received_nj_per_bit),
            )?,
            sent_uj_per_frame: of("sent_uj_per_frame", given.sent_uj_per_frame, from(|base| base.sent_uj_per_frame))?,
            received_uj_per_frame: of(
                "received_uj_per_frame",
                given.received_uj_per_frame,
                from(|base| base.received_uj_per_frame),
            )?,
        })
    }

    /// The joules that so much processor time adds, in microseconds of the machine that was measured.
    #[must_use]
    pub fn processor_joules(&self, processor_us: f64) -> f64 {
        processor_us / 1e6 * self.processor_scale * self.joules_per_processor_second
    }

    /// The joules that the radios of both ends take: each of these frames is sent by one and received by the other.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    pub fn radio_joules(&self, frames: u64, bytes: u64) -> f64 {
        let each_frame = (self.sent_uj_per_frame + self.received_uj_per_frame) / 1e6;
        let each_bit = (self.sent_nj_per_bit + self.received_nj_per_bit) / 1e9;
        frames as f64 * each_frame + bytes as f64 * 8.0 * each_bit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Model::parse("m.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn every_name_is_a_model_and_no_other_is() {
        let names = Model::names();
        assert_eq!(names.len(), 6);
        names.iter().for_each(|name| assert_eq!(&Model::load(name).unwrap().name, name));
        for name in ["", "pi4", "pi4-", "pi5-wifi", "pi3-wifi-", "pi3b-wifi"] {
            assert!(Model::load(name).unwrap_err().to_string().contains("pi4-802.15.4"), "{name}");
        }
    }

    #[test]
    fn joules_are_those_of_a_sum_by_hand() {
        let model = Model::load("pi4-wifi").unwrap();
        // (6.4 − 2.7) W over four cores are 0.925 J a second of one; 2 s of it are 1.85 J.
        assert!((model.processor_joules(2e6) - 1.85).abs() < 1e-12);
        // Ten frames of 100 bytes: 10 × 750 µJ, and 8 000 bits × (237.5 + 52.5) nJ = 2 320 µJ.
        assert!((model.radio_joules(10, 1_000) - 9.82e-3).abs() < 1e-12);
        // 8 000 bits × (208.8 + 225.6) nJ.
        let model = Model::load("pi3-802.15.4").unwrap();
        assert!((model.radio_joules(10, 1_000) - 3.4752e-3).abs() < 1e-12);
        assert!((model.processor_joules(1e6) - 0.575).abs() < 1e-12);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        for model in Model::names().iter().map(|name| Model::load(name).unwrap()) {
            let whole = model.processor_joules(1e6) + model.radio_joules(1_000, 123_456);
            for part in (0..=1_000u64).step_by(9) {
                let [part_us, rest_us] = [part, 1_000 - part].map(|share| share as f64 * 1e3);
                let processor = model.processor_joules(part_us) + model.processor_joules(rest_us);
                let radio =
                    model.radio_joules(part, part * 120) + model.radio_joules(1_000 - part, 123_456 - part * 120);
                assert!((whole - processor - radio).abs() < 1e-9, "{}: {part}", model.name);
            }
        }
    }

    #[test]
    fn a_file_replaces_constants() {
        let model = Model::parse("m.toml", "based_on='pi3-wifi'\nprocessor_scale=4.0\nidle_watts=2").unwrap();
        assert_eq!((model.idle_watts, model.sent_uj_per_frame), (2.0, 420.0));
        assert!((model.processor_joules(1e6) - 2.3).abs() < 1e-12);
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_its_name_and_key() {
        assert!(refused("idle_watts=1").contains("m.toml: joules_per_processor_second is missing"));
        for value in ["nan", "inf", "-1.0", "1e300"] {
            let why = refused(&format!("based_on='pi3-wifi'\nsent_nj_per_bit={value}"));
            assert!(why.contains("sent_nj_per_bit is ") && why.contains("from 0 to"), "{why}");
        }
        assert!(refused("based_on='pi9-wifi'").contains("pi9-wifi"));
        assert!(refused("joules=1").contains("joules"));
        assert!(refused("idle_watts='much'").contains("m.toml"));
        assert!(Model::load("/nowhere/m.toml").unwrap_err().to_string().contains("/nowhere/m.toml"));
    }
}
