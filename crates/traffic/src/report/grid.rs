//! Text in rows and aligned columns, no wider than a terminal: what does not fit is left out by priority, or listed.

/// Between columns.
const GAP: &str = "  ";
/// Before the lines of a list.
const INDENT: &str = "  ";

/// Rows of text. The first row is the head; the first column is aligned to the left, others to the right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    rows: Vec<Vec<String>>,
}

/// A grid as text.
#[derive(Debug)]
pub(crate) struct Fitted {
    pub(crate) text: String,
    /// Columns for which there was no room, in their order.
    pub(crate) left_out: Vec<usize>,
    /// Whether the terminal is too narrow for a table.
    pub(crate) is_list: bool,
}

impl Grid {
    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Returns the rows as a table, with a line below the head.
    pub(crate) fn text(&self) -> String {
        let widths = self.widths();
        let mut out = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width.saturating_sub(columns_of(cell)));
                let (before, after) = if column == 0 { ("", padding.as_str()) } else { (padding.as_str(), "") };
                line.push_str(if column == 0 { "" } else { GAP });
                line.push_str(&format!("{before}{cell}{after}"));
            }
            out.push_str(line.trim_end());
            out.push('\n');
            if index == 0 {
                out.push_str(&"─".repeat(self.width()));
                out.push('\n');
            }
        }
        out
    }

    /// Returns the rows as a list: the first cell of each, and a line for each other cell that is not empty, named by
    /// the head. Lines are wrapped at `width` columns.
    pub(crate) fn list(&self, width: Option<usize>) -> String {
        let Some((head, rows)) = self.rows.split_first() else { return String::new() };
        let named = head.iter().skip(1).map(|name| columns_of(name)).max().unwrap_or_default();
        let mut out = String::new();
        for (index, row) in rows.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            out.push_str(&wrapped(row.first().map_or("", String::as_str), "", width));
            for (name, cell) in head.iter().zip(row).skip(1).filter(|(_, cell)| !cell.is_empty()) {
                let padding = " ".repeat(named.saturating_sub(columns_of(name)));
                let line = format!("{INDENT}{name}{padding}{GAP}{cell}");
                let fits = width.is_none_or(|width| columns_of(&line) <= width);
                out.push_str(&if fits { line + "\n" } else { wrapped(&format!("{name}: {cell}"), INDENT, width) });
            }
        }
        out
    }

    /// Returns the rows as a table that is no wider than `width`. Of the columns whose priority is not 0, those of the
    /// highest number are left out first, the rightmost before others. If even columns of priority 0 do not fit, they
    /// become a list.
    pub(crate) fn fit(&self, width: Option<usize>, priorities: &[u8]) -> Fitted {
        let mut kept: Vec<usize> = (0..self.widths().len()).collect();
        loop {
            let grid = self.only(&kept);
            let left_out = || (0..self.widths().len()).filter(|column| !kept.contains(column)).collect();
            if width.is_none_or(|width| grid.width() <= width) {
                return Fitted { text: grid.text(), left_out: left_out(), is_list: false };
            }
            let priority = |column: &usize| priorities.get(*column).copied().unwrap_or_default();
            let most = kept.iter().map(priority).max().unwrap_or_default();
            let last = kept.iter().rposition(|column| priority(column) == most);
            match last {
                Some(last) if most > 0 => kept.remove(last),
                Some(_) | None => {
                    return Fitted { text: grid.list(width), left_out: left_out(), is_list: true };
                }
            };
        }
    }

    fn only(&self, columns: &[usize]) -> Self {
        let of_row = |row: &Vec<String>| {
            columns.iter().map(|column| row.get(*column).cloned().unwrap_or_default()).collect::<Vec<_>>()
        };
        Self { rows: self.rows.iter().map(of_row).collect() }
    }

    /// Returns the columns of the terminal that the table takes.
    fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
    }

    fn widths(&self) -> Vec<usize> {
        let most = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(String::as_str).map(columns_of).max()
        };
        (0..most).map(|column| width(column).unwrap_or_default()).collect()
    }
}

/// Everything that is printed of these is one column wide.
fn columns_of(text: &str) -> usize {
    text.chars().count()
}

/// Returns the words of `text` in lines of at most `width` columns, each behind `indent`. A longer word keeps a line of
/// its own.
pub(crate) fn wrapped(text: &str, indent: &str, width: Option<usize>) -> String {
    let mut out = String::new();
    let mut used = 0;
    // Not at a no-break space, which groups digits.
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        let wide = columns_of(word);
        if used > 0 && width.is_some_and(|width| used + 1 + wide > width) {
            out.push('\n');
            used = 0;
        }
        out.push_str(if used == 0 { indent } else { " " });
        used += wide + if used == 0 { indent.len() } else { 1 };
        out.push_str(word);
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(rows: &[&[&str]]) -> Grid {
        let mut grid = Grid::default();
        rows.iter().for_each(|row| grid.row(row.iter().map(|cell| (*cell).to_owned()).collect()));
        grid
    }

    fn sample() -> Grid {
        grid(&[&["", "µs", "rate", "lost"], &["coap", "1.5", "12", "0"], &["mqtt5", "10.5", "", "3"]])
    }

    #[test]
    fn names_stand_left_and_numbers_right() {
        let expected = "         µs  rate  lost\n───────────────────────\n\
                        coap    1.5    12     0\nmqtt5  10.5           3\n";
        assert_eq!(sample().text(), expected);
    }

    #[test]
    fn the_highest_priority_number_goes_first_and_of_equal_ones_the_rightmost() {
        let priorities = [0, 0, 2, 2];
        let left_out = |width| sample().fit(Some(width), &priorities).left_out;
        assert_eq!(left_out(23), [0_usize; 0]);
        assert_eq!(left_out(22), [3]);
        assert_eq!(left_out(16), [2, 3]);
        assert_eq!(sample().fit(None, &priorities).left_out, [0_usize; 0]);
        assert_eq!(sample().fit(Some(22), &[0, 3, 1, 2]).left_out, [1]);
    }

    #[test]
    fn a_table_without_room_for_what_must_be_there_is_a_list() {
        let fitted = sample().fit(Some(10), &[0, 0, 2, 2]);
        assert_eq!(fitted.text, "coap\n  µs  1.5\n\nmqtt5\n  µs  10.5\n");
        assert_eq!((fitted.left_out, fitted.is_list), (vec![2, 3], true));
    }

    #[test]
    fn a_list_names_each_cell_leaves_out_empty_ones_and_is_wrapped() {
        assert_eq!(sample().list(None), "coap\n  µs    1.5\n  rate  12\n  lost  0\n\nmqtt5\n  µs    10.5\n  lost  3\n");
        let long = grid(&[&["", "why"], &["a b c", "one two three"]]);
        assert_eq!(long.list(Some(10)), "a b c\n  why: one\n  two\n  three\n");
    }

    #[test]
    fn a_word_longer_than_the_line_has_a_line_of_its_own() {
        assert_eq!(wrapped("a 0123456789 b", "", Some(4)), "a\n0123456789\nb\n");
        assert_eq!(wrapped("a 0123456789 b", "", None), "a 0123456789 b\n");
        assert_eq!(wrapped("", "  ", Some(4)), "\n");
    }
}
