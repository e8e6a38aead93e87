//! What is measured, as a table for people and as JSON for the next run to be compared with.

use std::{fs, path::Path};

use anyhow::Result;
use serde::Serialize;

/// One figure beside what bounds it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// What the disk alone gave for the same in the same run, in the same unit.
    pub(crate) raw: Option<f64>,
    /// The value as a part of it.
    pub(crate) ratio: Option<f64>,
    /// As counted by the store.
    pub(crate) syncs_per_step: Option<f64>,
    /// What an acknowledged step survives.
    pub(crate) durability: String,
    pub(crate) note: String,
}

impl Row {
    pub(crate) fn new(workload: impl Into<String>, value: f64, unit: &'static str) -> Row {
        let (workload, durability, note) = (workload.into(), "-".to_owned(), String::new());
        Row { workload, value, unit, raw: None, ratio: None, syncs_per_step: None, durability, note }
    }

    pub(crate) fn durability(mut self, durability: impl ToString) -> Row {
        self.durability = durability.to_string();
        self
    }

    /// Beside the raw figure; the ratio is one of figures that were measured one right after the other.
    pub(crate) fn raw(mut self, raw: f64, ratio: f64) -> Row {
        (self.raw, self.ratio) = (Some(raw), Some(ratio));
        self
    }

    pub(crate) fn syncs(mut self, per_step: f64) -> Row {
        self.syncs_per_step = Some(per_step);
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }

    fn cells(&self) -> [String; 8] {
        let optional = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), figure_text);
        [
            self.workload.clone(),
            figure_text(self.value),
            self.unit.to_owned(),
            optional(self.raw),
            self.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            self.syncs_per_step.map_or_else(|| "-".to_owned(), |syncs| format!("{syncs:.4}")),
            self.durability.clone(),
            self.note.clone(),
        ]
    }
}

fn figure_text(figure: f64) -> String {
    match figure.abs() {
        1_000.0.. => {
            let digits = format!("{figure:.0}");
            let from = digits.len() % 3;
            let groups = digits.as_bytes()[from..].chunks(3).map(String::from_utf8_lossy);
            let first = (from > 0).then(|| digits[..from].into());
            first.into_iter().chain(groups).collect::<Vec<_>>().join(",")
        }
        10.0..1_000.0 => format!("{figure:.1}"),
        _ => format!("{figure:.3}"),
    }
}

pub(crate) fn print(rows: &[Row]) {
    let head = ["workload", "value", "unit", "raw", "ratio", "syncs/step", "durability", "note"].map(str::to_owned);
    let cells: Vec<_> = [head].into_iter().chain(rows.iter().map(Row::cells)).collect();
    let widths: Vec<_> =
        (0..8).map(|column| cells.iter().map(|row| row[column].len()).max().unwrap_or_default()).collect();
    for row in &cells {
        let right = [1, 3, 4, 5];
        let line: Vec<_> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| match right.contains(&column) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
            .collect();
        println!("{}", line.join("  ").trim_end());
    }
}

/// Writes a list of the rows.
pub(crate) fn write(rows: &[Row], to: &Path) -> Result<()> {
    fs::write(to, serde_json::to_string_pretty(rows)? + "\n")?;
    Ok(())
}
