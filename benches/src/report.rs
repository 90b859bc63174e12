//! Tables and plots of the results.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use plotters::prelude::*;

use crate::machine;
use crate::race::{Score, Spread};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) scores: Vec<Score>,
}

pub(crate) struct Report {
    head: String,
    tables: Vec<Table>,
}

impl Table {
    pub(crate) fn markdown(&self) -> String {
        let better = match self.better {
            Better::More => "more is better",
            Better::Less => "less is better",
        };
        let unit = self.unit;
        let mut text =
            format!("### {}\n\n| | {unit}, {better} | ratio |\n|---|--:|--:|\n", self.title);
        for score in &self.scores {
            let (value, ratio) = (Spread::of(&score.values), Spread::of(&score.ratios));
            let value = value.map_or_else(|| "never".to_owned(), |it| number(it.median));
            let ratio = ratio.map_or_else(String::new, |it| {
                format!("{:.2} ({:.2} to {:.2})", it.median, it.low, it.high)
            });
            let failed = match score.failed {
                0 => String::new(),
                failed => format!("; {failed} rounds did not finish"),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {} | {value} | {ratio}{failed} |", score.name);
        }
        text
    }

    /// The bar is the median of a contestant's ratios, and the line shows their quartiles.
    fn plot(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let bars: Vec<_> =
            self.scores.iter().filter_map(|it| Some((it, Spread::of(&it.ratios)?))).collect();
        let height = 60 + 30 * u32::try_from(bars.len())?;
        let most = bars.iter().map(|(_, ratio)| ratio.high).fold(1.0, f64::max) * 1.05;
        let area = SVGBackend::new(path, (760, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let rows = i32::try_from(bars.len())?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(24)
            .y_label_area_size(190)
            .build_cartesian_2d(0.0..most, (0..rows - 1).into_segmented())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .x_desc("ratio to the first")
            .y_label_formatter(&|at| match at {
                SegmentValue::CenterOf(row) => {
                    // The first contestant is at the top.
                    let index = usize::try_from(rows - 1 - row).unwrap_or(usize::MAX);
                    bars.get(index).map_or_else(String::new, |(it, _)| it.name.clone())
                }
                _ => String::new(),
            })
            .draw()?;
        chart.draw_series(bars.iter().zip((0..rows).rev()).map(|((it, ratio), row)| {
            let colour =
                if it.name.starts_with("this library") { BLUE } else { RGBColor(150, 150, 150) };
            let mut bar = Rectangle::new(
                [(0.0, SegmentValue::Exact(row)), (ratio.median, SegmentValue::Exact(row + 1))],
                colour.filled(),
            );
            bar.set_margin(5, 5, 0, 0);
            bar
        }))?;
        chart.draw_series(bars.iter().zip((0..rows).rev()).map(|((_, ratio), row)| {
            let at = SegmentValue::CenterOf(row);
            PathElement::new(vec![(ratio.low, at.clone()), (ratio.high, at)], BLACK.stroke_width(2))
        }))?;
        area.present()?;
        Ok(())
    }
}

impl Report {
    pub(crate) fn new() -> Self {
        let (today, machine) = (machine::today(), machine::described());
        Self { head: format!("{today}, {machine}."), tables: Vec::new() }
    }

    pub(crate) fn head(&self) -> &str {
        &self.head
    }

    pub(crate) fn add(&mut self, table: Table) {
        self.tables.push(table);
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let text = fs::read_to_string(path)?;
        let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(END)?;
            Some((before, after))
        });
        let Some((before, after)) = parts else {
            let missing = format!("{} has no marks {BEGIN} and {END}", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, missing).into());
        };
        let plots = path.with_file_name("plots");
        fs::create_dir_all(&plots)?;
        let mut middle = format!("{BEGIN}\n{}\n\n", self.head);
        for table in &self.tables {
            table.plot(&plots.join(format!("{}.svg", table.name)))?;
            let _ = writeln!(
                middle,
                "{}\n![{}](plots/{}.svg)\n",
                table.markdown(),
                table.title,
                table.name
            );
        }
        fs::write(path, format!("{before}{middle}{END}{after}"))?;
        Ok(())
    }
}

fn number(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

const BEGIN: &str = "<!-- measured -->";
const END: &str = "<!-- end of measured -->";
