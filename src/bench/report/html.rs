//! One file for people: figures that need no scripts, and a list of all answers that can be filtered.

mod data;
mod figures;

use super::junit::escaped;
use super::remarks;
use crate::bench::outcome::OUTCOMES;
use crate::bench::summary::{SCORES, Summary};

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");

/// report.html
pub fn html(summary: &Summary<'_>) -> String {
    let plan = &summary.run.plan;
    let title = format!("{} cases of {}", plan.cases, plan.suite);
    let answers = summary.run.samples.len();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>callwright: {}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<header><h1>{}</h1><p>{} configuration{}, {answers} answers</p>{}</header>\n<main>\n",
        escaped(&title),
        escaped(&title),
        summary.configurations.len(),
        if summary.configurations.len() == 1 { "" } else { "s" },
        match plan.command.is_empty() {
            true => String::new(),
            false => format!("<pre class=\"command\">{}</pre>", escaped(&plan.command_line())),
        },
    );
    for (heading, figure) in [
        ("Correct answers", figures::intervals(summary)),
        ("By category", figures::heat_map(summary)),
        ("Scores", figures::scores(summary)),
        ("Outcomes", figures::outcomes(summary)),
        ("Several answers to each case", figures::repeats(summary)),
        ("Latency", figures::latencies(summary)),
    ] {
        if !figure.is_empty() {
            page += &format!("<section><h2>{heading}</h2>\n{figure}</section>\n");
        }
    }
    page += &samples();
    page += &meanings(summary);
    page += "</main>\n<script type=\"application/json\" id=\"data\">";
    // In a script element nothing is escaped, and only this could end it.
    page += &data::data(summary).to_string().replace('<', "\\u003c");
    page += &format!("</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
    page
}

fn samples() -> String {
    let select = |id: &str, label: &str| format!("<label>{label} <select id=\"{id}\"></select></label>\n");
    format!(
        "<section id=\"samples\"><h2>Answers</h2>\n<noscript><p>The list of answers needs scripts; outcomes.jsonl and \
         samples.jsonl have the same.</p></noscript>\n<form class=\"filter\" hidden>\n{}{}{}<label>Text \
         <input id=\"text\" type=\"search\" placeholder=\"in case, question, answer or reason\"></label>\n<output></output></form>\n\
         <div class=\"list\"></div>\n<button class=\"more\" hidden>Show more</button></section>\n",
        select("configuration", "Configuration"),
        select("outcome", "Outcome"),
        select("category", "Category"),
    )
}

fn meanings(summary: &Summary<'_>) -> String {
    let mut text = String::from("<section><h2>What the figures mean</h2>\n<ul>\n");
    for remark in remarks(summary) {
        text += &format!("<li>{}</li>\n", escaped(&remark));
    }
    text += "</ul>\n<table class=\"meanings\"><tr><th>score</th><th>what is counted</th></tr>\n";
    for score in &SCORES {
        text += &format!("<tr><td>{}</td><td>{}</td></tr>\n", score.title, escaped(score.meaning));
    }
    text += "</table>\n<p>Each answer has one outcome, the first of these that fits.</p>\n\
             <table class=\"meanings\"><tr><th>outcome</th><th>when</th></tr>\n";
    for row in &OUTCOMES {
        text += &format!(
            "<tr><td><i class=\"swatch\" style=\"background:var(--{0})\"></i>{0}</td><td>{1}</td></tr>\n",
            row.name,
            escaped(row.meaning)
        );
    }
    text + "</table></section>\n"
}
