//! One page for people: figures that need no scripts, and a list of all answers that can be filtered.

mod data;
mod figures;

use super::{curve, percent, remarks, seconds};
use crate::bench::outcome::OUTCOMES;
use crate::bench::summary::{SCORES, Summary};
use crate::error::{Error, ErrorKind, Result};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};

const NAME: &str = "report.html";
const TEMPLATE: &str = include_str!("html/report.html.jinja");
const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");

/// report.html
///
/// # Errors
/// [`ErrorKind::Template`] when the page's own template fails, which would be a defect of this library.
pub(crate) fn html(summary: &Summary<'_>) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("percent", percent);
    environment.add_filter("seconds", seconds);
    environment.add_filter("fixed", |number: f64, digits: usize| format!("{number:.digits$}"));
    let plan = &summary.run.plan;
    // In a script element nothing is escaped, and only this character could end it.
    let data = data::data(summary).to_string().replace('<', "\\u003c");
    let meanings = OUTCOMES.iter().map(|row| context! { name => row.name, meaning => row.meaning });
    let page = context! {
        style => Value::from_safe_string(STYLE.to_owned()),
        script => Value::from_safe_string(SCRIPT.to_owned()),
        data => Value::from_safe_string(data),
        suite => plan.suite,
        cases => plan.cases,
        command => if plan.command.is_empty() { String::new() } else { plan.command_line() },
        answers => summary.run.samples.len(),
        remarks => remarks(summary),
        score_meanings => SCORES,
        outcome_meanings => meanings.collect::<Vec<_>>(),
        ..figures::figures(summary)
    };
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let (drawing, source) = curve::DRAWING;
    let added = environment.add_template(drawing, source).and_then(|()| environment.add_template(NAME, TEMPLATE));
    let rendered = added.and_then(|()| environment.get_template(NAME)?.render(page));
    rendered.map_err(|error| Error::new(ErrorKind::Template, format!("cannot render {NAME}: {error:#}")))
}
