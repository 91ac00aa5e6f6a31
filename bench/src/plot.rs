//! Line charts as small SVG files.

use std::collections::BTreeMap;
use std::path::Path;

use plotters::prelude::*;
use serde_json::Value;

use crate::measure::Outcome;
use crate::sections::Plot;

/// Points of each curve, by name.
type Curves = BTreeMap<String, Vec<(f64, f64)>>;

const SIZE: (u32, u32) = (640, 360);
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 95, 14),
    RGBColor(44, 140, 44),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(90, 90, 90),
];

/// Draws the lines of a plot's scenario; writes no file if there are none.
pub(crate) fn draw(plot: &Plot, lines: &[&Value], path: &Path) -> Outcome<()> {
    let curves = curves(plot, lines);
    let points = || curves.values().flatten();
    let Some(left) = points().map(|(x, _)| *x).reduce(f64::min) else { return Ok(()) };
    let right = points().map(|(x, _)| *x).fold(left, f64::max);
    let top = points().map(|(_, y)| *y).fold(1.0, f64::max) * 1.08;
    let (left, right) = if plot.base > 1.0 { (left.floor(), right.ceil()) } else { (left, right) };
    let right = if right > left { right } else { left + 1.0 };
    let steps = if plot.base > 1.0 { right - left + 1.0 } else { 6.0 };
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(plot.title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(left..right, 0.0..top)?;
    let base = plot.base;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(count(steps))
        .y_labels(6)
        .x_desc(plot.x.1)
        .x_label_formatter(&move |x| short(if base > 1.0 { base.powf(*x) } else { *x }))
        .y_label_formatter(&|y| short(*y))
        .draw()?;
    for ((name, points), colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(TRANSPARENT)
        .draw()?;
    root.present()?;
    Ok(())
}

fn curves(plot: &Plot, lines: &[&Value]) -> Curves {
    let mut curves = Curves::new();
    for line in lines.iter().filter(|line| line["scenario"] == plot.scenario) {
        let Some(x) = line[plot.x.0].as_f64() else { continue };
        let x = if plot.base > 1.0 { x.max(1.0).log(plot.base) } else { x };
        for (key, name) in plot.ys {
            let Some(y) = line[*key].as_f64() else { continue };
            let mut words: Vec<&str> =
                plot.by.iter().filter_map(|word| line[*word].as_str()).collect();
            words.push(name);
            curves.entry(words.join(", ")).or_default().push((x, y));
        }
    }
    curves
}

/// Formats a number shortly: 2k, 1.5M.
fn short(number: f64) -> String {
    let (value, unit) = match number {
        large if large >= 999_500.0 => (large / 1e6, "M"),
        large if large >= 999.5 => (large / 1e3, "k"),
        small => (small, ""),
    };
    let text = format!("{value:.1}");
    format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few labels on an axis"
)]
fn count(steps: f64) -> usize {
    steps.clamp(2.0, 12.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::SECTIONS;

    #[test]
    fn every_plot_draws_what_its_section_tells_and_stays_small() {
        let folder = tempfile::tempdir().unwrap();
        for plot in SECTIONS.iter().flat_map(|section| section.plots) {
            let line = |x: u64| {
                let mut line = serde_json::json!({"scenario": plot.scenario, "store": "sqlite"});
                line[plot.x.0] = x.into();
                for (key, _) in plot.ys {
                    line[*key] = (x * 3).into();
                }
                line
            };
            let lines: Vec<Value> = (1..100).map(line).collect();
            let path = folder.path().join("plot.svg");
            draw(plot, &lines.iter().collect::<Vec<_>>(), &path).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains("<polyline"), "{} shows no curve", plot.file);
            assert!(text.len() < 30_000, "{} has {} bytes", plot.file, text.len());
        }
    }

    #[test]
    fn numbers_on_axes_are_short() {
        assert_eq!([short(10.0), short(2_000.0), short(1.5e6)], ["10", "2k", "1.5M"]);
    }
}
