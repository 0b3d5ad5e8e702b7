//! JUnit XML for continuous integration, with a test for each answer.

use crate::outcome::{Outcome, Stage};
use crate::summary::Summary;

/// junit.xml
pub(crate) fn junit(summary: &Summary<'_>) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for one in &summary.configurations {
        let errors = one.samples.iter().filter(|sample| sample.scored.outcome.definition().stage == Stage::Run).count();
        let correct = one.outcomes[Outcome::Correct as usize];
        text += &format!(
            "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{errors}\">\n",
            escaped(&one.label),
            one.samples.len(),
            one.samples.len() - correct - errors,
        );
        for sample in &one.samples {
            let (scored, timing) = (&sample.scored, &sample.sample.timing);
            let name = match summary.run.plan.repeat {
                1 => sample.case.id.clone(),
                _ => format!("{} #{}", sample.case.id, sample.sample.repeat + 1),
            };
            text += &format!(
                "<testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
                escaped(&sample.case.category),
                escaped(&name),
                timing.first_token + timing.generation
            );
            if scored.outcome == Outcome::Correct {
                text += "/>\n";
                continue;
            }
            let tag = if scored.outcome.definition().stage == Stage::Run { "error" } else { "failure" };
            text += &format!(
                "><{tag} type=\"{}\" message=\"{}\">{}</{tag}></testcase>\n",
                scored.outcome,
                escaped(&scored.detail),
                escaped(&sample.sample.raw)
            );
        }
        text += "</testsuite>\n";
    }
    text + "</testsuites>\n"
}

/// Escapes text for XML; characters that XML does not allow are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&quot;",
            '\n' => escaped += "&#10;",
            '\t' => escaped += "&#9;",
            '\r' => escaped += "&#13;",
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
