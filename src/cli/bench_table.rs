//! The verdict and the tables that `callwright bench` prints.

use callwright_bench::compare::Comparison;
use callwright_bench::outcome::{OUTCOMES, Outcome};
use callwright_bench::report::{bytes, percent, seconds};
use callwright_bench::summary::{ConfigurationSummary, Summary};
use callwright_bench::verdict::{advised, sentence, verdict};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};

/// The width that a table has at most.
const WIDTH: u16 = 100;
/// The outcomes of more configurations than this are in the report alone.
const SHOWN: usize = 4;

/// A column: its heading, and what it shows of a configuration, if that is known.
type Column<'c> = (&'c str, Box<dyn Fn(&ConfigurationSummary<'_>) -> Option<String> + 'c>);

/// What the figures allow to say, the figures of each configuration, and what may help it.
pub fn table(summary: &Summary<'_>) -> String {
    let mut text: String = verdict(summary).iter().map(|sentence| wrapped(sentence, 0)).collect();
    text += "\n";
    text += &figures(summary);
    text += "\n";
    if summary.configurations.len() <= SHOWN {
        for one in &summary.configurations {
            text += &wrapped(&format!("{}: {}; {}", one.label, answers(one.samples.len()), went_wrong(one)), 2);
        }
    }
    text.extend(advised(summary).iter().map(|advice| wrapped(advice, 2)));
    match summary.run.lacking() {
        0 => {}
        1 => text += "1 answer is missing\n",
        count => text += &format!("{count} answers are missing\n"),
    }
    text
}

/// The table of figures: those that say the most, in columns that fit a terminal. The report has the others.
fn figures(summary: &Summary<'_>) -> String {
    let score = |key: &'static str| move |one: &ConfigurationSummary<'_>| Some(percent(one.scores.get(key)?.share()));
    let file = |one: &ConfigurationSummary<'_>| summary.run.plan.files.get(&one.configuration.model_sha256);
    let columns: Vec<Column<'_>> = vec![
        ("correct (95%)", Box::new(|one| one.scores.get("accuracy").map(|score| score.to_string()))),
        ("made", Box::new(score("made"))),
        ("delivered", Box::new(score("delivered"))),
        ("recall", Box::new(score("decision_recall"))),
        ("specificity", Box::new(score("decision_specificity"))),
        ("tokens/s", Box::new(|one| Some(format!("{:.0}", one.latency.as_ref()?.decode_rate?)))),
        ("p50", Box::new(|one| Some(seconds(one.latency.as_ref()?.total_p50)))),
        ("memory", Box::new(|one| one.latency.as_ref()?.memory.map(bytes))),
        ("file", Box::new(move |one| file(one).map(|file| bytes(file.bytes)))),
    ];
    let known = |(_, value): &Column<'_>| summary.configurations.iter().any(|one| value(one).is_some());
    let columns: Vec<Column<'_>> = columns.into_iter().filter(known).collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(std::iter::once("").chain(columns.iter().map(|(heading, _)| *heading)));
    for one in &summary.configurations {
        let value = |(_, value): &Column<'_>| value(one).unwrap_or("–".to_owned());
        table.add_row(std::iter::once(one.label.clone()).chain(columns.iter().map(value)));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index == 0 {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(12)));
            column.set_padding((0, 1));
        } else {
            column.set_constraint(ColumnConstraint::ContentWidth);
            column.set_cell_alignment(CellAlignment::Right);
            column.set_padding((0, 1));
        }
    }
    table.to_string().lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// The outcomes of a configuration that are not correct, the most frequent first.
fn went_wrong(one: &ConfigurationSummary<'_>) -> String {
    let mut wrong: Vec<(usize, &str)> = OUTCOMES
        .iter()
        .filter(|row| row.outcome != Outcome::Correct)
        .map(|row| (one.outcomes[row.outcome as usize], row.name))
        .filter(|(count, _)| *count > 0)
        .collect();
    wrong.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let wrong: Vec<String> = wrong.iter().map(|(count, name)| format!("{name} {count}")).collect();
    match wrong.join(", ") {
        _ if one.samples.is_empty() => "nothing to judge yet".to_owned(),
        none if none.is_empty() => "nothing went wrong".to_owned(),
        some => some,
    }
}

/// A sentence in lines that fit a terminal; those after the first are indented.
pub fn wrapped(sentence: &str, indent: usize) -> String {
    let (mut text, mut length) = (String::new(), 0);
    for word in sentence.split(' ') {
        let width = word.chars().count();
        if length > 0 && length + 1 + width > usize::from(WIDTH) {
            text += &format!("\n{:indent$}", "");
            length = indent;
        } else if length > 0 {
            text.push(' ');
            length += 1;
        }
        text += word;
        length += width;
    }
    text + "\n"
}

fn answers(count: usize) -> String {
    if count == 1 { "1 answer".to_owned() } else { format!("{count} answers") }
}

/// The number of flipped cases to list.
const FLIPS: usize = 20;

/// A comparison in words, with its figures and the cases that flipped.
pub fn comparison(one: &Comparison) -> String {
    let mut text = wrapped(&sentence(one), 0);
    if one.cases == 0 {
        return text;
    }
    let (difference, low, high) = one.difference;
    text += &format!(
        "  {:+.1} points (95% interval {:+.1} to {:+.1}) over {} cases; {} became right, {} became wrong\n  exact McNemar \
         p = {:.4}{}, after Holm's correction {:.4}\n",
        100.0 * difference,
        100.0 * low,
        100.0 * high,
        one.cases,
        one.won.len(),
        one.lost.len(),
        one.p,
        if one.design_effect > 1.0 { " (cases of one cluster counted as fewer)" } else { "" },
        one.p_holm,
    );
    for (what, flips) in [("wrong now", &one.lost), ("right now, was", &one.won)] {
        for (case, outcome) in flips.iter().take(FLIPS) {
            text += &format!("  {what}: {outcome:24} {case}\n");
        }
        if flips.len() > FLIPS {
            text += &format!("  … and {} more (--json has all)\n", flips.len() - FLIPS);
        }
    }
    text
}
