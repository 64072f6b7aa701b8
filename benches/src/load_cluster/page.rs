//! The report as a page with plots, in one file.

use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 200.0;
const MARGIN: f64 = 50.0;

/// The page.
pub(crate) fn page(
    text: &str,
    batches: &[u64],
    medians_ms: &[f64],
    latencies_ms: &[f64],
) -> String {
    #[expect(clippy::cast_precision_loss, reason = "counts lie below 2^53")]
    let batches: Vec<f64> = batches.iter().map(|count| *count as f64).collect();
    let mut page = String::from(concat!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Tidegate under load</title>",
        "<style>body{font:14px sans-serif;margin:2em;max-width:60em}",
        "svg{border:1px solid #ccc;background:#fff}polyline{fill:none;stroke:#0a6;stroke-width:1.5}",
        "text{font:11px sans-serif;fill:#444}pre{background:#f4f4f4;padding:1em}</style>",
        "<h1>Tidegate under load</h1>"
    ));
    // Writing to a string does not fail.
    let _ = write!(page, "<pre>{}</pre>", escaped(text));
    let plots = [
        (
            "Batches acknowledged in each second",
            batches.as_slice(),
            "s",
        ),
        ("Median latency in each second, ms", medians_ms, "s"),
        (
            "Latency of all batches, sorted, ms",
            latencies_ms,
            "batches",
        ),
    ];
    for (title, values, unit) in plots {
        let _ = write!(page, "<h2>{title}</h2>{}", plot(values, unit));
    }
    page.push_str("</html>\n");
    page
}

/// A line through values at equal distances.
fn plot(values: &[f64], unit: &str) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let last = values.len().saturating_sub(1).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a plot has pixels, not bits")]
    let x = |place: usize| MARGIN + (WIDTH - 2.0 * MARGIN) * place as f64 / last as f64;
    let y = |value: f64| HEIGHT - 25.0 - (HEIGHT - 45.0) * value / most.max(f64::MIN_POSITIVE);
    let mut points = String::new();
    // More points than pixels show nothing more.
    let step = values.len().div_ceil(2_000).max(1);
    for (place, value) in values.iter().enumerate().step_by(step) {
        let _ = write!(points, "{:.1},{:.1} ", x(place), y(*value));
    }
    format!(
        concat!(
            "<svg width=\"{}\" height=\"{}\"><polyline points=\"{}\"/>",
            "<text x=\"4\" y=\"24\">{:.1}</text><text x=\"4\" y=\"{}\">0</text>",
            "<text x=\"{}\" y=\"{}\">{} {}</text></svg>"
        ),
        WIDTH,
        HEIGHT,
        points.trim_end(),
        most,
        HEIGHT - 25.0,
        WIDTH - 2.0 * MARGIN,
        HEIGHT - 6.0,
        values.len(),
        unit
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
