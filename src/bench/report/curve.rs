//! The curve of the decision to call: recall against specificity over all thresholds.

use super::percent;
use crate::bench::calibrate::{Calibration, Point};
use crate::error::{Error, ErrorKind, Result};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};

const NAME: &str = "curve.html";
const TEMPLATE: &str = include_str!("html/curve.html.jinja");
/// The drawing and the sentence below it.
pub(super) const DRAWING: (&str, &str) = ("curve.svg", include_str!("html/curve.svg.jinja"));
const STYLE: &str = include_str!("html/style.css");
/// The side of the curve's square.
const SIDE: f64 = 320.0;

/// A page with the curve, and a table of thresholds.
///
/// # Errors
/// [`ErrorKind::Template`] when the page's own template fails, which would be a defect of this library.
pub(crate) fn page(title: &str, about: &str, calibration: &Calibration) -> Result<String> {
    let page =
        context! { style => Value::from_safe_string(STYLE.to_owned()), title, about, curve => figures(calibration) };
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let added = environment.add_template(DRAWING.0, DRAWING.1).and_then(|()| environment.add_template(NAME, TEMPLATE));
    let rendered = added.and_then(|()| environment.get_template(NAME)?.render(page));
    rendered.map_err(|error| Error::new(ErrorKind::Template, format!("cannot render {NAME}: {error:#}")))
}

/// What the template takes.
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
