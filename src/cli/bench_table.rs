//! The tables that `callwright bench` prints.

use callwright_bench::compare::Comparison;
use callwright_bench::outcome::{OUTCOMES, Outcome};
use callwright_bench::report::{percent, seconds};
use callwright_bench::summary::{SCORES, Summary};
use comfy_table::{CellAlignment, Table, presets};

/// The scores and outcomes of each configuration.
pub fn table(summary: &Summary<'_>) -> String {
    let shown: Vec<_> = SCORES
        .iter()
        .filter(|score| summary.configurations.iter().any(|one| one.scores.get(score.key).is_some()))
        .collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let timed = summary.configurations.iter().any(|one| one.latency.is_some());
    let mut header = vec![String::new(), "correct (95% interval)".to_owned()];
    header.extend(shown.iter().skip(1).map(|score| score.title.to_owned()));
    header.extend(timed.then(|| "p50".to_owned()));
    let columns = header.len();
    table.set_header(header);
    for one in &summary.configurations {
        let score = |key| one.scores.get(key);
        let mut row = vec![one.label.clone(), score("accuracy").map_or("–".to_owned(), |score| score.to_string())];
        row.extend(
            shown
                .iter()
                .skip(1)
                .map(|definition| score(definition.key).map_or("–".to_owned(), |score| percent(score.share()))),
        );
        row.extend(timed.then(|| one.latency.as_ref().map_or("–".to_owned(), |latency| seconds(latency.total_p50))));
        table.add_row(row);
    }
    for index in 1..columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.to_string().lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    let mut text = lines.concat() + "\n";
    for one in &summary.configurations {
        let mut wrong: Vec<(usize, &str)> = OUTCOMES
            .iter()
            .filter(|row| row.outcome != Outcome::Correct)
            .map(|row| (one.outcomes[row.outcome as usize], row.name))
            .filter(|(count, _)| *count > 0)
            .collect();
        wrong.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let wrong: Vec<String> = wrong.iter().map(|(count, name)| format!("{name} {count}")).collect();
        let wrong = match wrong.join(", ") {
            _ if one.samples.is_empty() => "nothing to judge yet".to_owned(),
            none if none.is_empty() => "nothing went wrong".to_owned(),
            some => some,
        };
        text += &format!("{}: {}; {wrong}\n", one.label, answers(one.samples.len()));
    }
    match summary.run.lacking() {
        0 => {}
        1 => text += "1 answer is missing\n",
        count => text += &format!("{count} answers are missing\n"),
    }
    text
}

fn answers(count: usize) -> String {
    if count == 1 { "1 answer".to_owned() } else { format!("{count} answers") }
}

/// The number of flipped cases to list.
const FLIPS: usize = 20;

/// A comparison in words.
pub fn comparison(one: &Comparison) -> String {
    let [before, after] = one.sides();
    let names = if before == after { after } else { format!("{before} → {after}") };
    if one.cases == 0 {
        return format!("{names}: no cases to compare\n");
    }
    let (difference, low, high) = one.difference;
    let mut text = format!(
        "{names}: {:+.1} points (95% interval {:+.1} to {:+.1}) over {} cases\n  {} became right, {} became wrong; exact McNemar \
         p = {:.4}{}, after Holm's correction {:.4}{}\n",
        100.0 * difference,
        100.0 * low,
        100.0 * high,
        one.cases,
        one.won.len(),
        one.lost.len(),
        one.p,
        if one.design_effect > 1.0 { " (cases of one cluster counted as fewer)" } else { "" },
        one.p_holm,
        if one.is_drop() { ": worse" } else { "" }
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
