//! The text form of conditions: `loopback`, `lossless`, or `loss=5%,delay=20ms,rate=250kbit`.
//!
//! Items are separated by commas. The first may be a preset, which later ones change: `wifi,loss=1%`. `loss`, `delay`,
//! `jitter`, `rate`, `ge`, `corrupt`, `duplicate` and `reorder` hold for both directions, `loss_up` (towards the
//! gateway), `delay_down`, … for one. Delays are of one direction: `delay=20ms` makes a round trip of 40 ms. `air` and
//! what begins with it is a Wi-Fi for both. `seeded` has lost frames drawn from the seed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::super::LinkError;
use super::{Air, Bursts, Conditions, Direction, Medium, PRESETS};

impl Conditions {
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
        if key == "air" || key.starts_with("air_") {
            return self.air.set(key, value).ok_or_else(unknown);
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
            "ge" => self.bursts = Some(bursts(value)?),
            "corrupt" => self.corrupt = share(value)?,
            "duplicate" => self.duplicate = share(value)?,
            "reorder" => self.reorder = share(value)?,
            _ => return None,
        }
        Some(())
    }

    fn write(self, f: &mut fmt::Formatter<'_>, suffix: &str) -> fmt::Result {
        for (name, share) in
            [("loss", self.loss), ("corrupt", self.corrupt), ("duplicate", self.duplicate), ("reorder", self.reorder)]
        {
            if share > 0.0 {
                write!(f, ",{name}{suffix}={}", Percent(share))?;
            }
        }
        if let Some(Bursts { to_bad, to_good, loss_bad, loss_good }) = self.bursts {
            let [to_bad, to_good, loss_bad, loss_good] = [to_bad, to_good, loss_bad, loss_good].map(Percent);
            write!(f, ",ge{suffix}={to_bad}:{to_good}:{loss_bad}:{loss_good}")?;
        }
        for (name, duration) in [("delay", self.delay), ("jitter", self.jitter)] {
            match duration.as_micros() {
                0 => {}
                micros if micros % 1_000 == 0 => write!(f, ",{name}{suffix}={}ms", micros / 1_000)?,
                micros => write!(f, ",{name}{suffix}={micros}us")?,
            }
        }
        match self.rate {
            Some(rate) => write!(f, ",rate{suffix}={}", Rate(rate)),
            None => Ok(()),
        }
    }
}

impl Air {
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "air" => (self.client, self.gateway) = (Some(rate(value)?), Some(rate(value)?)),
            "air_client" => self.client = Some(rate(value)?),
            "air_gateway" => self.gateway = Some(rate(value)?),
            "air_errors" => self.errors = share(value)?,
            "air_frames" => self.frames = value.parse().ok().filter(|frames| (1..=64).contains(frames))?,
            "air_retries" => self.retries = value.parse().ok().filter(|retries| *retries <= 255)?,
            _ => return None,
        }
        Some(())
    }

    fn write(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.client, self.gateway) {
            (None, None) => return Ok(()),
            (Some(client), Some(gateway)) if client == gateway => write!(f, ",air={}", Rate(client))?,
            (client, gateway) => {
                for (name, rate) in [("client", client), ("gateway", gateway)] {
                    if let Some(rate) = rate {
                        write!(f, ",air_{name}={}", Rate(rate))?;
                    }
                }
            }
        }
        let usual = Self::default();
        if self.errors > 0.0 {
            write!(f, ",air_errors={}", Percent(self.errors))?;
        }
        if self.frames != usual.frames {
            write!(f, ",air_frames={}", self.frames)?;
        }
        if self.retries == usual.retries { Ok(()) } else { write!(f, ",air_retries={}", self.retries) }
    }
}

struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Shares like 0.15 are no binary fractions.
        write!(f, "{}%", (self.0 * 1e8).round() / 1e6)
    }
}

struct Rate(u64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate % 1_000_000 == 0 => write!(f, "{}mbit", rate / 1_000_000),
            rate if rate % 1_000 == 0 => write!(f, "{}kbit", rate / 1_000),
            rate => write!(f, "{rate}bit"),
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
            if direction.reorder > 0.0 && direction.delay == Duration::ZERO {
                return Err(LinkError::Conditions(format!("{text}: reordering without a delay to be skipped")));
            }
        }
        if !conditions.air.is_there() && conditions.air != Air::default() {
            return Err(LinkError::Conditions(format!("{text}: of a Wi-Fi that is not there, without air=RATE")));
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
        self.air.write(f)?;
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

/// `1%:25%`, `1%:25%:80%` or `1%:25%:80%:0.1%`: to bad, to good, loss when bad (all) and when good (nothing), the first
/// two more than nothing.
fn bursts(text: &str) -> Option<Bursts> {
    let shares: Option<Vec<f64>> = text.split(':').map(share).collect();
    let (to_bad, to_good, rest) = match shares?.as_slice() {
        [to_bad, to_good, rest @ ..] if rest.len() <= 2 => (*to_bad, *to_good, rest.to_vec()),
        _ => return None,
    };
    let (loss_bad, loss_good) = (rest.first().copied().unwrap_or(1.0), rest.get(1).copied().unwrap_or(0.0));
    (to_bad > 0.0 && to_good > 0.0).then_some(Bursts { to_bad, to_good, loss_bad, loss_good })
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
            ..Direction::default()
        };
        assert_eq!(both, Conditions { up: direction, down: direction, ..Conditions::default() });
        let one = parsed("loss_down=25%,acks=each");
        assert_eq!((one.up.loss, one.down.loss, one.acks_each), (0.0, 0.25, true));
    }

    #[test]
    fn rarer_conditions_are_taken_and_have_their_limits() {
        let up = parsed("ge_up=1%:25%,corrupt=2%,duplicate=3%,reorder=4%,delay=5ms").up;
        let bursts = Bursts { to_bad: 0.01, to_good: 0.25, loss_bad: 1.0, loss_good: 0.0 };
        assert_eq!((up.bursts, up.corrupt, up.duplicate, up.reorder), (Some(bursts), 0.02, 0.03, 0.04));
        let down = parsed("ge_down=1%:25%:80%:0.1%").down;
        assert_eq!(down.bursts, Some(Bursts { loss_bad: 0.8, loss_good: 0.001, ..bursts }));
        for lossy in ["ge=1%:25%", "corrupt=1%", "loss_down=1%"] {
            assert!(parsed(lossy).is_lossy(), "{lossy}");
        }
        for whole in ["duplicate=1%", "reorder=1%,delay=1ms", "air=65mbit,air_errors=5%", "lossless"] {
            assert!(!parsed(whole).is_lossy(), "{whole}");
        }
        for rare in ["ge=1%:25%", "corrupt=1%", "duplicate=1%", "reorder=1%,delay=1ms", "air_gateway=65mbit"] {
            let conditions = parsed(rare);
            assert!(conditions.needs_relay() && !conditions.is_loss_only() && !conditions.is_lossless(), "{rare}");
        }
    }

    #[test]
    fn a_wifi_has_a_rate_for_each_end_on_it() {
        let both = parsed("air=300mbit").air;
        assert_eq!(
            (both.client, both.gateway, both.frames, both.retries),
            (Some(300_000_000), Some(300_000_000), 64, 7)
        );
        let one = parsed("air_client=65mbit,air_errors=10%,air_frames=1,air_retries=0").air;
        assert_eq!(one, Air { client: Some(65_000_000), gateway: None, errors: 0.1, frames: 1, retries: 0 });
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
        assert_eq!((worse.up.loss, worse.air), (0.03, parsed("wifi").air));
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
            "ge_up=1%:25%,corrupt=2%,duplicate_down=3%,reorder=4%,delay=5ms",
            "ge=0.1%:25%:80%:0.01%",
            "air=300mbit,air_errors=5%",
            "air_client=65mbit,air_frames=1,air_retries=0",
            "air_client=65mbit,air_gateway=1500kbit",
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
            "ge=1%",
            "ge=0%:10%",
            "ge=1%:2%:3%:4%:5%",
            "reorder=1%",
            "air=fast",
            "air_left=1mbit",
            "air_frames=65",
            "air_errors=5%",
            "loopback,loss=1%",
        ] {
            let error = text.parse::<Conditions>().unwrap_err();
            let word = text.split(',').next().unwrap();
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!("delay=1ms,jitter=2ms".parse::<Conditions>().is_err());
    }
}
