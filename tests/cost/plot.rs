//! A plot as SVG: a logarithmic axis of counts, and an axis of instructions that begins at zero.

use std::fmt::Write as _;

use anyhow::Result;

/// A line of a plot.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// Ascending counts, each with the instructions of a message.
    pub(crate) points: Vec<(usize, u64)>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
/// Room for the labels of the axes.
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 44.0;
const TOP: f64 = 28.0;
const RIGHT: f64 = 28.0;
/// Colours that can be told apart on white and on black, also by people who do not see red or green.
const COLOURS: [&str; 4] = ["#3b82f6", "#e69f00", "#009e73", "#cc79a7"];
const GREY: &str = "#808080";

/// The plot of some lines.
pub(crate) fn svg(lines: &[Line]) -> Result<String> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let decades = points().map(|(count, _)| decade(*count)).fold(1.0, f64::max);
    let top = nice(points().map(|(_, instructions)| *instructions).max().unwrap_or(1));
    let x = |count: usize| LEFT + decade(count) / decades * (WIDTH - LEFT - RIGHT);
    let y = |value: u64| HEIGHT - BOTTOM - value as f64 / top as f64 * (HEIGHT - BOTTOM - TOP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\" fill=\"{GREY}\">\n<title>Instructions of a message beside more of each</title>\n"
    );
    for step in 0..=4 {
        let value = top * step / 4;
        let at = y(value);
        writeln!(out, "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"{GREY}\" stroke-opacity=\".3\"/>", WIDTH - RIGHT)?;
        writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>", LEFT - 6.0, at + 4.0)?;
    }
    let mut count = 1;
    while decade(count) <= decades {
        writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{count}</text>",
            x(count),
            HEIGHT - BOTTOM + 16.0
        )?;
        count *= 10;
    }
    writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">subscriptions, topics or connections</text>",
        (WIDTH + LEFT) / 2.0,
        HEIGHT - 8.0
    )?;
    writeln!(out, "<text x=\"4\" y=\"14\">instructions a message</text>")?;
    for (number, (line, colour)) in lines.iter().zip(COLOURS).enumerate() {
        let places: Vec<String> =
            line.points.iter().map(|(count, value)| format!("{:.1},{:.1}", x(*count), y(*value))).collect();
        writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            places.join(" ")
        )?;
        for (count, value) in &line.points {
            writeln!(out, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>", x(*count), y(*value))?;
        }
        let at = 200.0 + number as f64 * 110.0;
        writeln!(out, "<text x=\"{at}\" y=\"14\" fill=\"{colour}\">{}</text>", line.name)?;
    }
    out.push_str("</svg>\n");
    Ok(out)
}

fn decade(count: usize) -> f64 {
    (count.max(1) as f64).log10()
}

/// The next number that is not less, and of which a quarter is round, too.
fn nice(value: u64) -> u64 {
    let mut ten = 1;
    loop {
        if let Some(found) = [4, 8, 12, 16, 20, 32].into_iter().map(|many| many * ten).find(|found| *found >= value) {
            return found;
        }
        ten *= 10;
    }
}
