//! The table that is printed, in Markdown.

use crate::figures::Figures;
use crate::loads::{Figure, Load};

/// A load and what each server needs for it, the gateway first.
pub(crate) struct Row {
    pub(crate) load: &'static Load,
    pub(crate) each: Vec<(&'static str, Figures)>,
}

impl Row {
    /// A line while the rest is still being measured.
    pub(crate) fn line(&self) -> String {
        let each = self.each.iter().map(|(name, figures)| format!("{name} {}", self.cell(figures)));
        format!("{}: {}", self.load.name, each.collect::<Vec<_>>().join("; "))
    }

    fn cell(&self, figures: &Figures) -> String {
        let mark = if figures.is_limited { ">" } else { "" };
        match self.load.figure {
            Figure::Cost => format!("{:.3} ({mark}{:.1} k/s)", figures.cost_us, figures.rate / 1000.0),
            Figure::Latency => format!("{:.1} (p99 {:.0} us)", figures.cost_us, figures.p99_us),
            Figure::Memory => format!("{:.2} KiB", figures.connection_kib),
        }
    }

    /// Of the figure that is compared, the gateway's by the best of the others.
    fn ratio(&self) -> Option<f64> {
        let figure = |figures: &Figures| match self.load.figure {
            Figure::Cost | Figure::Latency => figures.cost_us,
            Figure::Memory => figures.connection_kib,
        };
        let mut all = self.each.iter().map(|(_, figures)| figure(figures));
        let ours = all.next()?;
        all.min_by(f64::total_cmp).map(|best| ours / best)
    }
}

/// All rows, and how to read them.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut text = String::from("| load | fogmux | ratio to the best peer | peers |\n|---|---|---|---|\n");
    for row in rows {
        let mut cells = row.each.iter().map(|(name, figures)| (*name, row.cell(figures)));
        let ours = cells.next().map(|(_, cell)| cell).unwrap_or_default();
        let peers: Vec<String> = cells.map(|(name, cell)| format!("{name} {cell}")).collect();
        let ratio = row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        text.push_str(&format!("| {} | {ours} | {ratio} | {} |\n", row.load.name, peers.join(", ")));
    }
    text.push_str(
        "\nProcessor time of the server in microseconds a message, request, handshake or notification; in brackets\n",
    );
    text.push_str(
        "thousands a second (`>`: more, the generator was the limit) or the latency; W8 is memory a connection.\n",
    );
    text
}
