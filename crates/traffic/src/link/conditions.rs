//! The conditions of a link and their text form: `loopback`, `lossless`, or `loss=5%,delay=20ms,rate=250kbit`.
//!
//! Items are separated by commas. The first may be a preset, which later ones change: `wifi,loss=1%`. `loss`, `delay`,
//! `jitter` and `rate` hold for both directions, `loss_up` (towards the gateway), `delay_down`, … for one. Delays are
//! of one direction: `delay=20ms` makes a round trip of 40 ms. `seeded` has lost frames drawn from the seed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::LinkError;

/// The conditions of both directions of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Towards the gateway.
    pub up: Direction,
    /// Towards the clients.
    pub down: Direction,
    /// Whether there is a link at all.
    pub medium: Medium,
    /// Whether each TCP segment is acknowledged at once (`acks=each`: `quickack 1` on both routes) or, as kernels do on
    /// their own, with the next answer or up to 40 ms later.
    pub acks_each: bool,
    /// Whether the frames that are lost have to be drawn from the seed (`seeded`), whatever that costs.
    pub seeded: bool,
}

/// The medium of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// An emulated link.
    #[default]
    Link,
    /// The loopback device of the machine, without impairment.
    Loopback,
}

/// The conditions of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Direction {
    /// The share of frames that are lost, each independently of the others.
    pub loss: f64,
    /// From the last bit sent to the last bit received.
    pub delay: Duration,
    /// The delay of each frame is drawn evenly from `delay - jitter` to `delay + jitter`; frames stay in order.
    pub jitter: Duration,
    /// Bits of frames in a second, Ethernet headers counted; nothing: as fast as the machine.
    pub rate: Option<u64>,
}

/// A named link. Figures that are not from the source are marked as fogmux's choice.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    /// The conditions, in their text form.
    pub conditions: &'static str,
    /// The source of the figures.
    pub source: &'static str,
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "lan",
        conditions: "rate=100mbit,delay=100us",
        source: "100BASE-TX (IEEE 802.3 clause 25), as in a Raspberry Pi 3; the delay of two switches is our choice",
    },
    Preset {
        name: "wifi",
        conditions: "rate=40mbit,delay=1500us,jitter=1ms,loss=0.1%",
        source: "IEEE 802.11n, 20 MHz, one stream: 65 Mbit/s in the air, of which about 40 are left for frames; delay, \
                 jitter and what is lost in spite of retransmission are our choice (no document gives any)",
    },
    Preset {
        name: "802.15.4",
        conditions: "rate=250kbit,delay=5ms,jitter=3ms,loss=1%",
        source: "IEEE 802.15.4 O-QPSK at 2.4 GHz: 250 kbit/s in the air; no fragmentation to 127 B is done, delay and loss \
                 are our choice",
    },
    Preset {
        name: "nb-iot",
        conditions: "rate_up=62kbit,rate_down=26kbit,delay=400ms,jitter=100ms,loss=1%",
        source: "3GPP Release 13, Cat-NB1, multi-tone: peaks of 62 kbit/s up and 26 kbit/s down; delay and loss are our \
                 choice",
    },
    Preset {
        name: "lte",
        conditions: "rate_up=6mbit,rate_down=13mbit,delay=35ms,jitter=10ms",
        source: "Huang et al., A Close Examination of Performance and Power Characteristics of 4G LTE Networks, MobiSys 2012: \
                 medians of 6 and 13 Mbit/s and of a 70 ms round trip; the jitter is our choice",
    },
    Preset {
        name: "geo",
        conditions: "rate=10mbit,delay=279ms",
        source: "RFC 2488 section 2: 279.0 ms for one hop over a geostationary satellite at the edge of its view; the rate is \
                 our choice",
    },
];

impl Conditions {
    /// Whether nothing has to be laid.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.medium == Medium::Loopback
    }

    /// Whether frames may be lost.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.up.loss > 0.0 || self.down.loss > 0.0
    }

    /// Whether frames only have to be lost.
    #[must_use]
    pub fn is_loss_only(&self) -> bool {
        let untimed = |direction: Direction| Direction { loss: 0.0, ..direction } == Direction::default();
        untimed(self.up) && untimed(self.down)
    }

    /// Whether nothing happens to frames.
    #[must_use]
    pub fn is_lossless(&self) -> bool {
        self.up == Direction::default() && self.down == Direction::default()
    }

    /// Whether frames of either direction come after different times.
    #[must_use]
    pub fn has_jitter(&self) -> bool {
        self.up.jitter > Duration::ZERO || self.down.jitter > Duration::ZERO
    }

    fn set(&mut self, item: &str) -> Result<(), LinkError> {
        let unknown = || LinkError::Conditions(item.to_owned());
        if item == "lossless" {
            return Ok(());
        }
        if let Some(preset) = PRESETS.iter().find(|preset| preset.name == item) {
            let Self { acks_each, seeded, .. } = *self;
            *self = Self { acks_each, seeded, ..preset.conditions.parse()? };
            return Ok(());
        }
        if item == "seeded" {
            self.seeded = true;
            return Ok(());
        }
        let (key, value) = item.split_once('=').ok_or_else(unknown)?;
        if (key, value) == ("acks", "each") {
            self.acks_each = true;
            return Ok(());
        }
        let (key, up, down) = match key.rsplit_once('_') {
            Some((key, "up")) => (key, true, false),
            Some((key, "down")) => (key, false, true),
            _ => (key, true, true),
        };
        let directions = [up.then_some(&mut self.up), down.then_some(&mut self.down)];
        for direction in directions.into_iter().flatten() {
            direction.set(key, value).ok_or_else(unknown)?;
        }
        Ok(())
    }
}

impl Direction {
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "loss" => self.loss = share(value)?,
            "delay" => self.delay = duration(value)?,
            "jitter" => self.jitter = duration(value)?,
            "rate" => self.rate = Some(rate(value)?),
            _ => return None,
        }
        Some(())
    }

    fn write(self, f: &mut fmt::Formatter<'_>, suffix: &str) -> fmt::Result {
        if self.loss > 0.0 {
            // Shares like 0.15 are no binary fractions.
            write!(f, ",loss{suffix}={}%", (self.loss * 1e8).round() / 1e6)?;
        }
        for (name, duration) in [("delay", self.delay), ("jitter", self.jitter)] {
            match duration.as_micros() {
                0 => {}
                micros if micros % 1_000 == 0 => write!(f, ",{name}{suffix}={}ms", micros / 1_000)?,
                micros => write!(f, ",{name}{suffix}={micros}us")?,
            }
        }
        match self.rate {
            Some(rate) if rate % 1_000_000 == 0 => write!(f, ",rate{suffix}={}mbit", rate / 1_000_000),
            Some(rate) if rate % 1_000 == 0 => write!(f, ",rate{suffix}={}kbit", rate / 1_000),
            Some(rate) => write!(f, ",rate{suffix}={rate}bit"),
            None => Ok(()),
        }
    }
}

impl FromStr for Conditions {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        let mut conditions = Self::default();
        if text == "loopback" {
            conditions.medium = Medium::Loopback;
            return Ok(conditions);
        }
        for item in text.split(',').map(str::trim) {
            conditions.set(item)?;
        }
        for direction in [conditions.up, conditions.down] {
            if direction.jitter > direction.delay {
                return Err(LinkError::Conditions(format!("{text}: a jitter greater than the delay")));
            }
        }
        Ok(conditions)
    }
}

impl fmt::Display for Conditions {
    /// As it could be asked for: `lossless,loss=5%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_loopback() {
            return f.write_str("loopback");
        }
        f.write_str("lossless")?;
        if self.up == self.down {
            self.up.write(f, "")?;
        } else {
            self.up.write(f, "_up")?;
            self.down.write(f, "_down")?;
        }
        if self.acks_each {
            f.write_str(",acks=each")?;
        }
        if self.seeded { f.write_str(",seeded") } else { Ok(()) }
    }
}

/// `5%`, up to all.
fn share(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// `1500us`, `20ms`, `1s`; at most a minute.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        _ => return None,
    };
    (0.0..=60.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

/// `250kbit`, `13mbit`, decimal as with `tc`; from 100 bit/s to 100 Gbit/s.
fn rate(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let bits = match unit {
        "bit" => number,
        "kbit" => number * 1e3,
        "mbit" => number * 1e6,
        "gbit" => number * 1e9,
        _ => return None,
    };
    // In these bounds it fits; through a duration, because there is no fallible cast of a float.
    (100.0..=1e11).contains(&bits).then(|| Duration::from_secs_f64(bits).as_secs())
}

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at_checked(unit)?;
    Some((number.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Conditions {
        text.parse().unwrap()
    }

    #[test]
    fn conditions_hold_for_both_directions_or_for_one() {
        let both = parsed("loss=5%,delay=20ms,jitter=1500us,rate=250kbit");
        let direction = Direction {
            loss: 0.05,
            delay: Duration::from_millis(20),
            jitter: Duration::from_micros(1_500),
            rate: Some(250_000),
        };
        assert_eq!(both, Conditions { up: direction, down: direction, ..Conditions::default() });
        let one = parsed("loss_down=25%,acks=each");
        assert_eq!((one.up.loss, one.down.loss, one.acks_each), (0.0, 0.25, true));
    }

    #[test]
    fn lossless_is_nothing_at_all() {
        assert!(parsed("lossless").is_lossless());
        assert!(parsed("lossless,acks=each").is_lossless());
        assert!(parsed("loss=20%").is_loss_only() && !parsed("loss=20%").is_lossless());
        assert!(!parsed("loss=20%,delay=1ms").is_loss_only());
    }

    #[test]
    fn presets_can_be_changed() {
        for preset in PRESETS {
            assert_eq!(parsed(preset.name), parsed(preset.conditions), "{}", preset.name);
        }
        let worse = parsed("wifi,loss=3%");
        assert_eq!((worse.up.loss, worse.up.rate), (0.03, Some(40_000_000)));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let presets = PRESETS.iter().map(|preset| preset.name);
        for text in presets.chain([
            "loopback",
            "lossless",
            "loss=15%",
            "loss_down=25%,acks=each",
            "rate=1234bit,delay=1s",
            "loss=5%,seeded",
        ]) {
            assert_eq!(parsed(&parsed(text).to_string()), parsed(text), "{text}");
        }
        assert_eq!(parsed("loss=15%").to_string(), "lossless,loss=15%");
    }

    #[test]
    fn nonsense_is_refused_with_its_word() {
        for text in [
            "",
            "fast",
            "loss=5",
            "loss=101%",
            "delay=20",
            "rate=1",
            "lag=1ms",
            "loss_left=1%",
            "delay=2h",
            "acks=some",
            "seeded=1",
            "loopback,loss=1%",
        ] {
            let error = text.parse::<Conditions>().unwrap_err();
            let word = text.split(',').next().unwrap();
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!("delay=1ms,jitter=2ms".parse::<Conditions>().is_err());
    }
}
