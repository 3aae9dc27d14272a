//! The legend of a plot, in rows below it.

use super::svg::{Anchor, Look, Svg, fitted, text_width};

/// Height of a row.
const ROW: f64 = 16.0;
/// Width of the sample before a name.
const SAMPLE: f64 = 22.0;

/// The look of a sample.
#[derive(Clone, Debug)]
pub(crate) enum Sample {
    /// A line.
    Line(Look),
    /// A box of this class.
    Box(String),
}

/// Names and samples, broken into rows.
pub(crate) struct Legend {
    entries: Vec<(Sample, String, f64, f64)>,
    /// The height of all rows.
    pub(crate) height: f64,
}

impl Legend {
    /// Lays a legend out in this width. A legend of one entry is empty.
    pub(crate) fn new(entries: Vec<(Sample, String)>, width: f64) -> Self {
        if entries.len() < 2 {
            return Self { entries: Vec::new(), height: 0.0 };
        }
        let (mut x, mut y) = (0.0, 0.0);
        let mut placed = Vec::new();
        for (sample, name) in entries {
            let name = fitted(&name, width - SAMPLE - 17.0);
            let needs = SAMPLE + 5.0 + text_width(&name) + 12.0;
            if x > 0.0 && x + needs > width {
                (x, y) = (0.0, y + ROW);
            }
            placed.push((sample, name, x, y));
            x += needs;
        }
        Self { entries: placed, height: y + ROW + 4.0 }
    }

    /// Draws it with this corner.
    pub(crate) fn draw(&self, svg: &mut Svg, (left, top): (f64, f64)) {
        for (sample, name, x, y) in &self.entries {
            let (x, middle) = (left + x, top + y + ROW / 2.0);
            match sample {
                Sample::Line(look) => {
                    svg.line(format!("series {}", look.classes()), (x, middle), (x + SAMPLE, middle));
                }
                Sample::Box(class) => svg.rectangle(class, (x + SAMPLE - 12.0, middle - 5.0), 12.0, 10.0),
            }
            svg.text("", (x + SAMPLE + 5.0, middle + 4.0), Anchor::Start, name);
        }
    }
}
