//! Bars with their least and greatest values, as SVG.

const BAR: f64 = 16.0;
const GAP: f64 = 6.0;
const HEAD: f64 = 30.0;
const NAMES: f64 = 160.0;
const LENGTH: f64 = 420.0;
const VALUES: f64 = 80.0;

#[derive(Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) bars: Vec<Bar>,
}

#[derive(Debug)]
pub(super) struct Bar {
    pub(super) name: &'static str,
    pub(super) is_ours: bool,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// The panels, one below the other.
pub(super) fn draw(panels: &[Panel]) -> String {
    let heights = panels
        .iter()
        .map(|panel| HEAD + panel.bars.len() as f64 * (BAR + GAP) + GAP);
    let (width, height) = (NAMES + LENGTH + VALUES, heights.clone().sum::<f64>());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut top = 0.0;
    for (panel, height) in panels.iter().zip(heights) {
        draw_panel(&mut svg, panel, top);
        top += height;
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(svg: &mut String, panel: &Panel, top: f64) {
    let longest = panel
        .bars
        .iter()
        .map(|bar| bar.max)
        .fold(f64::MIN_POSITIVE, f64::max);
    let x = |value: f64| NAMES + value / longest * LENGTH;
    svg.push_str(&format!(
        "<text x=\"8\" y=\"{:.1}\" font-weight=\"bold\">{}</text>\n",
        top + HEAD - 10.0,
        panel.title
    ));
    for (index, bar) in panel.bars.iter().enumerate() {
        let y = top + HEAD + index as f64 * (BAR + GAP);
        let (middle, colour) = (
            y + BAR / 2.0,
            if bar.is_ours { "#c2410c" } else { "#94a3b8" },
        );
        svg.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{NAMES}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\
             <path d=\"M{:.1} {middle:.1}H{:.1}\" stroke=\"black\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{:.*}</text>\n",
            NAMES - 8.0,
            middle + 4.0,
            bar.name,
            x(bar.median) - NAMES,
            x(bar.min),
            x(bar.max),
            x(bar.max) + 6.0,
            middle + 4.0,
            if longest < 20.0 { 2 } else { 0 },
            bar.median
        ));
    }
}
