//! Plots as SVG: lines with marks, stacked bars in panels side by side, and goals with what was
//! reached of each.
//!
//! Just what the project's experiments draw, written directly: axes from zero, round ticks, a
//! legend. All text is escaped; figures that are not finite are left out. The output is the same
//! for the same input, so that it can be kept under version control and compared.

use std::fmt::Write;

/// Size of the drawing, pixels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
/// Room around the axes: for titles, tick marks, legend.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 54.0;
/// Between panels.
const GAP: f64 = 30.0;
/// Colours that also differ for the colour-blind (Okabe and Ito).
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999"];
/// Ticks wanted on an axis.
const TICKS: f64 = 6.0;

/// Curves over a common axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// Above the plot.
    pub title: String,
    /// Below the horizontal axis.
    pub x_label: String,
    /// Beside the vertical axis.
    pub y_label: String,
    pub series: Vec<Series>,
}

/// One curve of a plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// From left to right, not negative.
    pub points: Vec<(f64, f64)>,
}

/// Stacked bars, in panels that share the vertical axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// Above the plot.
    pub title: String,
    /// Below the horizontal axis.
    pub x_label: String,
    /// Beside the vertical axis.
    pub y_label: String,
    /// Names of the parts of a bar, from the bottom up.
    pub parts: Vec<String>,
    /// From left to right.
    pub panels: Vec<Panel>,
}

/// A row of bars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// Above the panel.
    pub title: String,
    /// The parts of each bar, not negative.
    pub bars: Vec<Vec<f64>>,
}

/// How far goals were reached: a bar each, and a line that they are to reach.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    /// Above the plot.
    pub title: String,
    /// From the top down.
    pub rows: Vec<Share>,
}

/// One goal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Share {
    /// To the left of the bar.
    pub name: String,
    /// What was measured over what was wanted.
    pub share: f64,
    /// Decides the colour.
    pub is_reached: bool,
}

/// Of [`Shares`]: where bars begin, how high a row is, and where bars are cut off.
const SHARES_LEFT: f64 = 380.0;
const SHARES_ROW: f64 = 18.0;
const SHARES_MAX: f64 = 3.0;

impl Shares {
    pub fn svg(&self) -> String {
        let bottom = TOP + SHARES_ROW * self.rows.len() as f64;
        let mut page = Page::blank(&self.title, bottom + 30.0);
        let frame = Frame { left: SHARES_LEFT, right: WIDTH - RIGHT - 40.0 };
        for (at, row) in self.rows.iter().enumerate() {
            let y = TOP + SHARES_ROW * at as f64;
            page.text(SHARES_LEFT - 8.0, y + 13.0, "end", 12, &row.name);
            if !is_size(row.share) {
                continue;
            }
            let end = frame.x(row.share.min(SHARES_MAX) / SHARES_MAX);
            let shade = if row.is_reached { COLOURS[2] } else { COLOURS[1] };
            page.rect(frame.left, y + 2.0, end - frame.left, SHARES_ROW - 4.0, shade);
            page.text(end + 5.0, y + 13.0, "start", 11, &format!("{:.2}", row.share));
        }
        let goal = frame.x(1.0 / SHARES_MAX);
        page.line(goal, TOP - 4.0, goal, bottom + 4.0, "#000000");
        page.text(goal, bottom + 19.0, "middle", 12, "goal");
        page.end()
    }
}

impl Lines {
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points).filter(is_drawable);
        let x_axis = Axis::up_to(points().map(|point| point.0).fold(0.0, f64::max));
        let y_axis = Axis::up_to(points().map(|point| point.1).fold(0.0, f64::max));
        let mut page = Page::new(&self.title, &self.x_label, &self.y_label);
        let frame = Frame { left: LEFT, right: WIDTH - RIGHT };
        page.horizontal_lines(&y_axis, frame, true);
        for tick in x_axis.ticks() {
            let x = frame.x(tick / x_axis.end);
            page.line(x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 5.0, "#000000");
            page.text(x, HEIGHT - BOTTOM + 19.0, "middle", 12, &x_axis.label(tick));
        }
        for (at, series) in self.series.iter().enumerate() {
            let place = |point: &(f64, f64)| (frame.x(point.0 / x_axis.end), y_axis.y(point.1));
            let places: Vec<_> = series.points.iter().filter(is_drawable).map(place).collect();
            page.curve(&places, colour(at));
        }
        page.legend(self.series.iter().map(|series| series.name.as_str()));
        page.end()
    }
}

impl Bars {
    pub fn svg(&self) -> String {
        let heights = self.panels.iter().flat_map(|panel| &panel.bars).map(|bar| total(bar));
        let y_axis = Axis::up_to(heights.fold(0.0, f64::max));
        let mut page = Page::new(&self.title, &self.x_label, &self.y_label);
        let count = self.panels.len().max(1) as f64;
        let width = (WIDTH - LEFT - RIGHT - GAP * (count - 1.0)) / count;
        for (at, panel) in self.panels.iter().enumerate() {
            let left = LEFT + at as f64 * (width + GAP);
            let frame = Frame { left, right: left + width };
            page.horizontal_lines(&y_axis, frame, at == 0);
            page.text(left + width / 2.0, HEIGHT - BOTTOM + 19.0, "middle", 12, &panel.title);
            let step = width / panel.bars.len().max(1) as f64;
            for (column, bar) in panel.bars.iter().enumerate() {
                let x = left + (column as f64 + 0.1) * step;
                let mut below = 0.0;
                for (part, &value) in bar.iter().enumerate().filter(|(_, value)| is_size(**value)) {
                    let (top, bottom) = (y_axis.y(below + value), y_axis.y(below));
                    page.rect(x, top, step * 0.8, bottom - top, colour(part));
                    below += value;
                }
            }
        }
        page.legend(self.parts.iter().map(String::as_str));
        page.end()
    }
}

fn is_size(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

fn is_drawable(point: &&(f64, f64)) -> bool {
    is_size(point.0) && is_size(point.1)
}

fn total(bar: &[f64]) -> f64 {
    bar.iter().copied().filter(|value| is_size(*value)).sum()
}

fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

/// An axis from zero to a round number.
struct Axis {
    end: f64,
    step: f64,
}

impl Axis {
    /// An axis that holds `max`.
    fn up_to(max: f64) -> Axis {
        let max = if max > 0.0 { max } else { 1.0 };
        let rough = max / TICKS;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * power);
        // A maximum that is a tick up to rounding does not want one more.
        Axis { end: (max / step - 1e-9).ceil() * step, step }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        let (step, count) = (self.step, (self.end / self.step).round() as u32);
        (0..=count).map(move |tick| f64::from(tick) * step)
    }

    fn label(&self, tick: f64) -> String {
        let digits = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        format!("{tick:.digits$}")
    }

    /// Vertical place of a value.
    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.end * (HEIGHT - BOTTOM - TOP)
    }
}

/// Where a panel begins and ends.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    right: f64,
}

impl Frame {
    /// Horizontal place of a part of the width.
    fn x(self, part: f64) -> f64 {
        self.left + part * (self.right - self.left)
    }
}

/// A drawing in the making. Writing to a string cannot fail, so results of `write!` are dropped.
struct Page {
    out: String,
}

impl Page {
    /// A page of this height.
    fn blank(title: &str, height: f64) -> Page {
        let mut page = Page { out: String::new() };
        let _ = writeln!(
            page.out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\">"
        );
        page.rect(0.0, 0.0, WIDTH, height, "#ffffff");
        page.text(WIDTH / 2.0, 24.0, "middle", 15, title);
        page
    }

    fn new(title: &str, x_label: &str, y_label: &str) -> Page {
        let mut page = Page::blank(title, HEIGHT);
        page.text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0, "middle", 13, x_label);
        let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
        let _ = writeln!(
            page.out,
            "<text x=\"18\" y=\"{middle}\" text-anchor=\"middle\" font-size=\"13\" \
             transform=\"rotate(-90 18 {middle})\">{}</text>",
            escape(y_label)
        );
        page
    }

    /// The lines and, if asked for, the figures of the vertical axis.
    fn horizontal_lines(&mut self, axis: &Axis, frame: Frame, with_figures: bool) {
        for tick in axis.ticks() {
            let y = axis.y(tick);
            let shade = if tick == 0.0 { "#000000" } else { "#dddddd" };
            self.line(frame.left, y, frame.right, y, shade);
            if with_figures {
                self.text(frame.left - 8.0, y + 4.0, "end", 12, &axis.label(tick));
            }
        }
    }

    fn legend<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let mut x = LEFT;
        for (at, name) in names.enumerate() {
            self.rect(x, 38.0, 12.0, 12.0, colour(at));
            self.text(x + 18.0, 49.0, "start", 12, name);
            x += 34.0 + 7.0 * name.chars().count() as f64;
        }
    }

    fn curve(&mut self, places: &[(f64, f64)], colour: &str) {
        let list: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            list.join(" ")
        );
        for (x, y) in places {
            let _ = writeln!(
                self.out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"
            );
        }
    }

    fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, colour: &str) {
        let _ = writeln!(
            self.out,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
        );
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        let _ = writeln!(
            self.out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{colour}\"/>"
        );
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, size: u32, text: &str) {
        let _ = writeln!(
            self.out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{}</text>",
            escape(text)
        );
    }

    fn end(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }
}

/// Text as XML takes it: markup escaped, control characters left out.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => {}
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of an attribute, in order.
    fn values(svg: &str, tag: &str, attribute: &str) -> Vec<f64> {
        let lines = svg.lines().filter(|line| line.starts_with(&format!("<{tag} ")));
        let key = format!(" {attribute}=\"");
        lines.filter_map(|line| line.split_once(&key)?.1.split('"').next()?.parse().ok()).collect()
    }

    #[test]
    fn axes_end_at_a_round_number_that_holds_all() {
        for (max, end, label) in
            [(191.0, 200.0, "50"), (1.0, 1.0, "0.2"), (0.0, 1.0, "0.2"), (0.031, 0.04, "0.01")]
        {
            let axis = Axis::up_to(max);
            assert!((axis.end - end).abs() < 1e-9, "{max}: {}", axis.end);
            assert_eq!(axis.label(axis.ticks().nth(1).unwrap()), label, "{max}");
        }
        let axis = Axis::up_to(1e300);
        assert!(axis.end >= 1e300 && axis.ticks().count() < 20);
    }

    #[test]
    fn greater_values_are_drawn_higher_and_bars_stack() {
        let lines = Lines {
            series: vec![Series { name: "s".into(), points: vec![(1.0, 5.0), (2.0, 10.0)] }],
            ..Lines::default()
        };
        let y = values(&lines.svg(), "circle", "cy");
        assert!(y.len() == 2 && y[1] < y[0]);

        let bars = Bars {
            parts: vec!["wait".into(), "write".into()],
            panels: vec![
                Panel { title: "a".into(), bars: vec![vec![1.0, 2.0]] },
                Panel { title: "b".into(), bars: vec![vec![3.0, 0.0]] },
            ],
            ..Bars::default()
        };
        let svg = bars.svg();
        // The page, three bar parts with a height and one without, two legend marks.
        let (y, height) = (values(&svg, "rect", "y"), values(&svg, "rect", "height"));
        assert_eq!(y.len(), 7);
        assert!((y[2] + height[2] - y[1]).abs() < 0.11, "the second part stands on the first");
        assert!((y[3] - y[2]).abs() < 0.11, "3 is as high as 1 + 2, also in another panel");
    }

    #[test]
    fn goals_that_are_reached_reach_the_line() {
        let share = |share, is_reached| Share { name: "a < b".into(), share, is_reached };
        let rows =
            vec![share(0.5, false), share(1.0, true), share(99.0, true), share(f64::NAN, false)];
        let svg = Shares { title: "t".into(), rows }.svg();
        let (x, width) = (values(&svg, "rect", "x"), values(&svg, "rect", "width"));
        let goal = values(&svg, "line", "x1")[0];
        // The page, and three bars.
        assert_eq!(x.len(), 4);
        assert!(x[1] + width[1] < goal && (x[2] + width[2] - goal).abs() < 0.11);
        assert!(x[3] + width[3] < WIDTH && svg.contains("a &lt; b") && !svg.contains("NaN"));
    }

    #[test]
    fn text_cannot_break_out_and_bad_figures_are_left_out() {
        let lines = Lines {
            title: "a<b>&\"c\"\u{1}".into(),
            series: vec![Series {
                name: "</svg>".into(),
                points: vec![(f64::NAN, 1.0), (1.0, f64::INFINITY), (-1.0, 1.0), (2.0, 3.0)],
            }],
            ..Lines::default()
        };
        let svg = lines.svg();
        assert!(svg.contains("a&lt;b&gt;&amp;&quot;c&quot;<"));
        assert_eq!(svg.matches("</svg>").count(), 1);
        assert_eq!(values(&svg, "circle", "cx").len(), 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(Lines::default().svg().contains("<svg"));
        assert!(Bars::default().svg().contains("<svg"));
    }
}
