//! Drawings: marks with classes, coloured by `plot.css`. The same drawing stands in the page and in a file of its own.

use std::fmt::{Display, Write as _};

use super::escape::escape;

/// Colours and lines of all plots.
pub(crate) const STYLE: &str = include_str!("plot.css");

/// How a series looks everywhere in a report: its hue, and the kind of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// One of eight.
    pub(crate) colour: usize,
    /// One of four.
    pub(crate) dash: usize,
}

impl Look {
    /// Colours first, then kinds of lines.
    pub(crate) fn nth(index: usize) -> Self {
        Self { colour: index % 8, dash: index / 8 % 4 }
    }

    /// Its classes.
    pub(crate) fn classes(self) -> String {
        format!("c{} d{}", self.colour, self.dash)
    }
}

/// Which end of a text is at its place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing.
#[derive(Clone, Debug)]
pub(crate) struct Svg {
    width: f64,
    height: f64,
    /// For those who do not see it.
    description: String,
    body: String,
}

impl Svg {
    /// An empty one.
    pub(crate) fn new(width: f64, height: f64, description: &str) -> Self {
        Self { width, height, description: description.to_owned(), body: String::new() }
    }

    /// A line from one point to another.
    pub(crate) fn line(&mut self, class: impl Display, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = write!(self.body, r#"<path class="{class}" d="M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}"/>"#);
    }

    /// A line through points.
    pub(crate) fn path(&mut self, class: impl Display, points: &[(f64, f64)]) {
        let mut data = String::new();
        for (x, y) in points {
            let _ = write!(data, "{}{x:.1} {y:.1}", if data.is_empty() { "M" } else { "L" });
        }
        let _ = write!(self.body, r#"<path class="{class}" d="{data}"/>"#);
    }

    /// A rectangle.
    pub(crate) fn rectangle(&mut self, class: impl Display, (x, y): (f64, f64), width: f64, height: f64) {
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        );
    }

    /// A mark: its shape goes with the kind of line, so that series are told apart without colours.
    pub(crate) fn mark(&mut self, look: Look, (x, y): (f64, f64)) {
        let class = format!("mark {}", look.classes());
        match look.dash {
            0 => {
                let _ = write!(self.body, r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="3"/>"#);
            }
            1 => self.rectangle(class, (x - 2.7, y - 2.7), 5.4, 5.4),
            _ => self.path(class, &[(x, y - 3.8), (x + 3.6, y + 2.8), (x - 3.6, y + 2.8), (x, y - 3.8)]),
        }
    }

    /// Writes a text.
    pub(crate) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        let _ =
            write!(self.body, r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#);
    }

    /// Words that run upwards, for the label of a vertical axis.
    pub(crate) fn text_upwards(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        let _ = write!(
            self.body,
            r#"<text class="{class}" transform="translate({x:.1} {y:.1}) rotate(-90)" text-anchor="middle">{text}</text>"#
        );
    }

    /// For a page that has [`STYLE`].
    pub(crate) fn inline(&self) -> String {
        format!("<svg {}>{}</svg>", self.attributes(), self.content())
    }

    /// For a file: brings the style along, on white.
    pub(crate) fn file(&self) -> String {
        let (width, height) = (self.width, self.height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" {}><style>{STYLE}</style>{}</svg>\n",
            self.attributes(),
            self.content()
        )
    }

    fn attributes(&self) -> String {
        format!(r#"class="plot" viewBox="0 0 {:.0} {:.0}" role="img""#, self.width, self.height)
    }

    fn content(&self) -> String {
        format!("<title>{}</title>{}", escape(&self.description), self.body)
    }
}

/// How wide a text of 11 px is at most, about: fonts differ.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().map(|character| if "iljt.,:|' \u{202f}".contains(character) { 4.0 } else { 7.0 }).sum()
}

/// As much of a text as there is room for.
pub(crate) fn fitted(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for character in text.chars() {
        if text_width(&kept) + 2.0 * text_width("…") > width {
            break;
        }
        kept.push(character);
    }
    kept.push('…');
    kept
}
