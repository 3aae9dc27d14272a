//! `[store]`, and profiles of disks (ADR 0074).

use std::path::PathBuf;
use std::time::Duration;

use fogmux_store::{Durability, StoreConfig};

use super::reader::{Reader, Section};

/// The delay of [`StoreProfile::Sd`]: five commits a second, of a block of 4 KiB each, are 1.8 GB a day.
const SD_DELAY: Duration = Duration::from_millis(200);

/// The store, which survives a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) profile: StoreProfile,
    /// That of the profile when absent.
    durability: Option<Durability>,
    /// Between commits of `none` and `interval`.
    pub(crate) interval: Duration,
    /// Between commits of `group`, at least; that of the profile when absent.
    group_delay: Option<Duration>,
    /// Bytes that may wait for the disk.
    pub(crate) queue_bytes_max: usize,
    /// `store` in the data directory when absent.
    pub(crate) path: Option<PathBuf>,
}

impl Default for Store {
    fn default() -> Self {
        let StoreConfig { interval, queue_bytes_max, .. } = StoreConfig::new("");
        let profile = StoreProfile::default();
        Self { profile, durability: None, interval, group_delay: None, queue_bytes_max, path: None }
    }
}

impl Store {
    pub(crate) fn durability(&self) -> Durability {
        self.durability.unwrap_or_else(|| self.profile.durability())
    }

    /// Between commits of `group`, at least.
    pub(crate) fn group_delay(&self) -> Duration {
        self.group_delay.unwrap_or_else(|| self.profile.group_delay())
    }
}

impl Section for Store {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.choice("profile", &mut self.profile, &StoreProfile::ALL.map(|profile| (profile.name(), profile)));
        let choices = [Durability::None, Durability::Interval, Durability::Group, Durability::Always];
        let [none, interval, group, always] = choices.map(|choice| (choice.name(), Some(choice)));
        reader.choice("durability", &mut self.durability, &[none, interval, group, always, ("", None)]);
        reader.duration("interval", &mut self.interval, Duration::from_millis(10)..=Duration::from_secs(600));
        reader.duration_unless_empty("group_delay", &mut self.group_delay, Duration::ZERO..=Duration::from_secs(10));
        reader.size("queue_bytes_max", &mut self.queue_bytes_max, 64 << 10..=4 << 30);
        reader.path("path", &mut self.path);
    }
}

/// A kind of disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StoreProfile {
    /// Flash without wear levelling to speak of: SD cards, eMMC, USB sticks.
    Sd,
    /// Everything that lasts for years of commits.
    #[default]
    Ssd,
    /// A file system in memory, which loses everything with the machine.
    Ram,
}

impl StoreProfile {
    pub(crate) const ALL: [Self; 3] = [Self::Sd, Self::Ssd, Self::Ram];

    /// Its name in the configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sd => "sd",
            Self::Ssd => "ssd",
            Self::Ram => "ram",
        }
    }

    pub(crate) fn durability(self) -> Durability {
        match self {
            Self::Sd => Durability::Group,
            Self::Ssd => StoreConfig::new("").durability,
            Self::Ram => Durability::None,
        }
    }

    pub(crate) fn group_delay(self) -> Duration {
        match self {
            Self::Sd => SD_DELAY,
            Self::Ssd | Self::Ram => StoreConfig::new("").group_delay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Problems, Source, load};
    use super::*;

    /// The settings of the store by these files, read in this order.
    fn effective(texts: &[&str]) -> Result<(Durability, Duration), Problems> {
        let sources: Vec<_> = texts.iter().map(|text| Source::new("f.toml", *text)).collect();
        load(&sources).map(|config| (config.store.durability(), config.store.group_delay()))
    }

    #[test]
    fn a_profile_sets_what_no_key_beside_it_says() {
        let (short, long) = (Duration::from_millis(20), Duration::from_millis(200));
        let table = [
            (&[""][..], (Durability::Group, short)),
            (&["profile = 'ssd'"], (Durability::Group, short)),
            (&["profile = 'sd'"], (Durability::Group, long)),
            (&["profile = 'ram'"], (Durability::None, short)),
            (&["profile = 'sd'\ndurability = 'interval'"], (Durability::Interval, long)),
            (&["profile = 'sd'\ngroup_delay = '1s'"], (Durability::Group, Duration::from_secs(1))),
            (&["profile = 'ram'\ndurability = 'group'"], (Durability::Group, short)),
            // Wherever the key stands, before the profile or behind it.
            (&["durability = 'always'", "profile = 'sd'"], (Durability::Always, long)),
            (&["profile = 'sd'", "group_delay = '0s'"], (Durability::Group, Duration::ZERO)),
            (
                &["group_delay = '0s'\ndurability = 'always'", "profile = 'sd'\ngroup_delay = ''\ndurability = ''"],
                (Durability::Group, long),
            ),
        ];
        for (texts, expected) in table {
            let texts: Vec<_> = texts.iter().map(|text| format!("[store]\n{text}")).collect();
            let texts: Vec<_> = texts.iter().map(String::as_str).collect();
            assert_eq!(effective(&texts).unwrap(), expected, "{texts:?}");
        }
    }

    #[test]
    fn an_unknown_profile_is_told_the_three() {
        let problems = effective(&["[store]\nprofile = \"emmc\""]).unwrap_err().0;
        let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let expected = "f.toml:2: store.profile: \"emmc\" is not accepted; accepted: one of \"sd\", \"ssd\", \"ram\"";
        assert_eq!(said, [expected]);
    }
}
