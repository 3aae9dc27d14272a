//! Load averages over 1, 5 and 15 minutes, as exponentially weighted moving averages of a rate per minute (Mosquitto's
//! `calc_load`).

use std::time::Duration;

/// The rates with averages, below `$SYS/broker/load/`.
pub(super) const RATES: [&str; 9] = [
    "messages/received",
    "messages/sent",
    "publish/dropped",
    "publish/received",
    "publish/sent",
    "bytes/received",
    "bytes/sent",
    "sockets",
    "connections",
];

/// The name and the seconds of each window.
const WINDOWS: [(&str, f64); 3] = [("1min", 60.0), ("5min", 300.0), ("15min", 900.0)];

/// The averages, in the order of [`RATES`] and [`WINDOWS`].
#[derive(Debug, Default)]
pub(super) struct Loads {
    totals: [u64; RATES.len()],
    averages: [[f64; WINDOWS.len()]; RATES.len()],
}

impl Loads {
    /// Adds the growth of the totals in `elapsed`. The first call, with no time elapsed, only notes the totals.
    pub(super) fn update(&mut self, totals: [u64; RATES.len()], elapsed: Duration) {
        let elapsed = elapsed.as_secs_f64();
        if elapsed > 0.0 {
            let grown = totals.iter().zip(&self.totals).map(|(now, before)| now.saturating_sub(*before));
            for (averages, grown) in self.averages.iter_mut().zip(grown) {
                #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
                let per_minute = grown as f64 * 60.0 / elapsed;
                for (average, (_, window)) in averages.iter_mut().zip(WINDOWS) {
                    *average = per_minute + (-elapsed / window).exp() * (*average - per_minute);
                }
            }
        }
        self.totals = totals;
    }

    /// Each topic below `$SYS/` with its text.
    pub(super) fn texts(&self) -> impl Iterator<Item = (String, String)> {
        let rows = RATES.iter().zip(&self.averages);
        rows.flat_map(|(rate, averages)| {
            let cells = WINDOWS.iter().zip(averages);
            cells.map(move |((window, _), average)| (format!("broker/load/{rate}/{window}"), format!("{average:.2}")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_reached_within_each_window() {
        let mut loads = Loads::default();
        let mut totals = [0; RATES.len()];
        loads.update(totals, Duration::ZERO);
        // One a second is sixty a minute.
        for tick in 1..=600 {
            totals = [tick * 10; RATES.len()];
            loads.update(totals, Duration::from_secs(10));
            let texts: Vec<(String, String)> = loads.texts().collect();
            let text = |name: &str| texts.iter().find(|(topic, _)| topic == name).unwrap().1.clone();
            match tick {
                // 60 · (1 − e^(−1/6)), and so on.
                1 => assert_eq!(
                    (&*text("broker/load/sockets/1min"), &*text("broker/load/sockets/15min")),
                    ("9.21", "0.66")
                ),
                6 => assert_eq!(text("broker/load/bytes/sent/1min"), "37.93"),
                600 => assert_eq!(text("broker/load/messages/received/15min"), "59.92"),
                _ => {}
            }
        }
        loads.update(totals, Duration::from_secs(3600));
        assert!(loads.texts().all(|(topic, text)| !topic.ends_with("1min") || text == "0.00"));
    }
}
