//! Rows in columns.

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::{
    screen::{FAINT, styled},
    text::clean,
};

/// Between two columns.
const GAP: usize = 2;
/// A column that is cut keeps so much.
const LEAST: usize = 12;

/// A text in a row, one line, without anything that could deceive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    style: Style,
    right: bool,
}

impl Cell {
    pub(crate) fn new(text: impl AsRef<str>) -> Cell {
        Cell { text: clean(text.as_ref()).into_owned(), ..Cell::default() }
    }

    pub(crate) fn number(number: impl ToString) -> Cell {
        Cell { right: true, ..Cell::new(number.to_string()) }
    }

    pub(crate) fn styled(mut self, style: Style) -> Cell {
        self.style = style;
        self
    }
}

/// Rows under a head.
pub(crate) struct Table {
    head: &'static [&'static str],
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(head: &'static [&'static str]) -> Table {
        Table { head, rows: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        debug_assert_eq!(N, self.head.len());
        self.rows.push(cells.into());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Aligned under a head, the widest columns cut to fit; or, where nobody looks, whole with tabs between.
    pub(crate) fn lines(&self, aligned: bool, width: Option<usize>) -> Vec<String> {
        if !aligned {
            let tabbed = |row: &Vec<Cell>| row.iter().map(|cell| &*cell.text).collect::<Vec<_>>().join("\t");
            return self.rows.iter().map(tabbed).collect();
        }
        let head: Vec<Cell> = self.head.iter().map(|name| Cell::new(name).styled(FAINT)).collect();
        let mut widths: Vec<usize> = head.iter().map(|cell| cell.text.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        if let Some(most) = width {
            narrow(&mut widths, most);
        }
        std::iter::once(&head).chain(&self.rows).map(|row| aligned_row(row, &widths)).collect()
    }
}

/// Takes from the widest columns until all fit.
fn narrow(widths: &mut [usize], most: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    loop {
        let sum = widths.iter().sum::<usize>() + gaps;
        let Some(widest) = widths.iter_mut().max().filter(|width| **width > LEAST && sum > most) else { return };
        *widest -= (sum - most).min(*widest - LEAST).min(8);
    }
}

fn aligned_row(row: &[Cell], widths: &[usize]) -> String {
    let mut line = String::new();
    for (place, (cell, width)) in row.iter().zip(widths).enumerate() {
        let text = cut(&cell.text, *width);
        let room = " ".repeat(width.saturating_sub(text.width()));
        let last = place + 1 == row.len();
        if cell.right {
            line.push_str(&room);
        }
        line.push_str(&styled(cell.style, &text));
        if !cell.right && !last {
            line.push_str(&room);
        }
        if !last {
            line.push_str(&" ".repeat(GAP));
        }
    }
    line
}

/// The beginning of a text that is too wide.
fn cut(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let (mut cut, mut width) = (String::new(), 1);
    for c in text.chars() {
        width += c.width().unwrap_or(0);
        if width > most {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["RUN", "N", "WHAT"]);
        table.row([Cell::new("a"), Cell::number(5), Cell::new("short")]);
        table.row([Cell::new("漢字"), Cell::number(1_000), Cell::new("a rather long text\nof two lines")]);
        table
    }

    fn plain(lines: Vec<String>) -> Vec<String> {
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn columns_are_aligned_by_what_is_seen_of_them() {
        let lines = plain(table().lines(true, None));
        assert_eq!(lines[0], "RUN   N     WHAT");
        assert_eq!(lines[1], "a        5  short");
        assert_eq!(lines[2], "漢字  1000  a rather long text\\nof two lines");
    }

    #[test]
    fn what_does_not_fit_is_cut_where_there_is_most() {
        let lines = plain(table().lines(true, Some(30)));
        assert_eq!(lines[2], "漢字  1000  a rather long tex…");
        assert!(lines.iter().all(|line| line.width() <= 30));
        let lines = plain(table().lines(true, Some(3)));
        assert_eq!(lines[2], "漢字  1000  a rather lo…", "it is not cut to nothing");
    }

    #[test]
    fn a_program_gets_whole_texts_and_no_head() {
        assert_eq!(table().lines(false, Some(30))[1], "漢字\t1000\ta rather long text\\nof two lines");
        assert_eq!(table().lines(false, None).len(), 2);
    }
}
