//! The curve of the decision to call: recall against specificity over all thresholds.

use super::{STYLE, percent, render};
use crate::calibrate::{Calibration, Point};
use callwright::error::Result;
use minijinja::{Value, context};

/// The side of the curve's square.
const SIDE: f64 = 320.0;

/// A page with the curve, and a table of thresholds.
///
/// # Errors
/// [`ErrorKind::Template`](callwright::ErrorKind::Template) when the page's own template fails, which would be a defect of this library.
pub fn page(title: &str, about: &str, calibration: &Calibration) -> Result<String> {
    let page =
        context! { style => Value::from_safe_string(STYLE.to_owned()), title, about, curve => figures(calibration) };
    render("curve.html", include_str!("curve.html.jinja"), page)
}

/// Returns what the template takes.
pub(super) fn figures(calibration: &Calibration) -> Value {
    let (recall, specificity) = &calibration.held_out;
    // From the lowest threshold, where every answer is a call, to the highest, where none is.
    let places = calibration.curve.iter().map(place).chain([(0.0, SIDE)]);
    let line: Vec<String> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let row = |point: &Point| {
        context! {
            threshold => format!("{:.4e}", point.threshold),
            recall => point.recall.to_string(),
            specificity => point.specificity.to_string(),
            best => point.threshold == calibration.best.threshold,
        }
    };
    let mut points = calibration.outline();
    points.push(calibration.best);
    points.sort_by(|a, b| a.threshold.total_cmp(&b.threshold));
    points.dedup_by(|a, b| a.threshold == b.threshold);
    let (x, y) = place(&calibration.best);
    context! {
        side => SIDE,
        line => line.join(" "),
        best => context! { x => format!("{x:.1}"), y => format!("{y:.1}"), threshold => format!("{:?}", calibration.best.threshold) },
        auc => format!("{:.3} ({:.3}–{:.3})", calibration.auc.value, calibration.auc.low, calibration.auc.high),
        needs => calibration.cases.0,
        none => calibration.cases.1,
        folds => calibration.folds,
        recall => recall.to_string(),
        specificity => specificity.to_string(),
        balanced => percent((recall.share() + specificity.share()) / 2.0),
        points => points.iter().map(row).collect::<Vec<_>>(),
    }
}

fn place(point: &Point) -> (f64, f64) {
    (SIDE * (1.0 - point.specificity.share()), SIDE * (1.0 - point.recall.share()))
}
