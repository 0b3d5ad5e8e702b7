//! The figures as Markdown.

use super::{amount, percent, remarks, seconds};
use crate::bench::outcome::{OUTCOMES, markdown_table};
use crate::bench::summary::{ConfigurationSummary, SCORES, Summary};

/// report.md
pub(crate) fn markdown(summary: &Summary<'_>) -> String {
    let plan = &summary.run.plan;
    let mut text = format!(
        "# {} cases of {}, {}\n\n",
        plan.cases,
        escaped(&plan.suite),
        match plan.repeat {
            1 => "one answer to each".to_owned(),
            n => format!("{n} answers to each"),
        }
    );
    if !plan.command.is_empty() {
        text += &format!("    {}\n\n", plan.command_line().replace(char::is_control, " "));
    }
    scores(summary, &mut text);
    categories(summary, &mut text);
    outcomes(summary, &mut text);
    repeats(summary, &mut text);
    latencies(summary, &mut text);
    costs(summary, &mut text);
    text += "## What the figures mean\n\n";
    for score in &SCORES {
        text += &format!("- **{}** (`{}`): {}.\n", score.title, score.key, score.meaning);
    }
    text += "\n";
    for remark in remarks(summary) {
        text += &format!("- {}\n", escaped(&remark));
    }
    text += &format!("\nEach answer has one outcome, the first of these that fits:\n\n{}", markdown_table());
    text += "\n## Configurations\n\n";
    for one in &summary.configurations {
        let c = one.configuration;
        text += &format!(
            "- **{}**: `{}` model {} (SHA-256 {}), {}template {} ({}), format {}, constrain {}, tool choice {}, repair {}, {}at most {} tokens, \
             temperature {}, top-k {}, top-p {}, min-p {}, seed {}\n",
            escaped(&one.label),
            c.id,
            escaped(&c.model),
            &c.model_sha256.get(..12).unwrap_or(&c.model_sha256),
            c.lora.iter().map(|adapter| escaped(&format!("adapter {adapter}, "))).collect::<String>(),
            escaped(&c.template),
            &c.template_sha256.get(..12).unwrap_or(&c.template_sha256),
            escaped(&c.format),
            c.values()[3],
            c.values()[4],
            c.values()[6],
            c.select_tools.map_or_else(String::new, |most| format!("{most} tools shown, ")),
            c.max_tokens,
            c.sampling.temperature,
            c.sampling.top_k,
            c.sampling.top_p,
            c.sampling.min_p,
            c.sampling.seed,
        );
    }
    text
}

/// A text that may come from elsewhere, such as the name of a model or a case: on one line, and without HTML.
fn escaped(text: &str) -> String {
    text.replace(char::is_control, " ").replace('&', "&amp;").replace('<', "&lt;")
}

fn table(text: &mut String, header: &[String], rows: &[Vec<String>]) {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell).replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    *text += &line(header);
    *text += &format!("|---|{}\n", "--:|".repeat(header.len() - 1));
    rows.iter().for_each(|row| *text += &line(row));
    *text += "\n";
}

fn scores(summary: &Summary<'_>, text: &mut String) {
    let shown: Vec<_> = SCORES
        .iter()
        .filter(|score| summary.configurations.iter().any(|one| one.scores.get(score.key).is_some()))
        .collect();
    let mut header = vec![String::new()];
    header.extend(shown.iter().map(|score| score.title.to_owned()));
    let row = |one: &ConfigurationSummary<'_>| {
        let mut row = vec![one.label.clone()];
        row.extend(
            shown.iter().map(|score| one.scores.get(score.key).map_or("–".to_owned(), |score| score.to_string())),
        );
        row
    };
    *text += "## Scores\n\n";
    table(text, &header, &summary.configurations.iter().map(row).collect::<Vec<_>>());
}

fn categories(summary: &Summary<'_>, text: &mut String) {
    if summary.categories.len() < 2 {
        return;
    }
    let mut header = vec![String::new()];
    header.extend(summary.categories.iter().map(|name| (*name).to_owned()));
    let row = |one: &ConfigurationSummary<'_>| {
        let mut row = vec![one.label.clone()];
        row.extend(one.by_category.iter().map(|scores| match scores.get("accuracy") {
            Some(score) => format!("{} of {}, {}", score.successes, score.trials, score),
            None => "–".to_owned(),
        }));
        row
    };
    *text += "## Correct by category\n\n";
    table(text, &header, &summary.configurations.iter().map(row).collect::<Vec<_>>());
}

fn outcomes(summary: &Summary<'_>, text: &mut String) {
    let mut header = vec!["outcome".to_owned()];
    header.extend(summary.configurations.iter().map(|one| one.label.clone()));
    let occurring =
        OUTCOMES.iter().filter(|row| summary.configurations.iter().any(|one| one.outcomes[row.outcome as usize] > 0));
    let mut rows: Vec<Vec<String>> = occurring
        .map(|row| {
            let mut cells = vec![format!("`{}`", row.name)];
            cells.extend(summary.configurations.iter().map(|one| one.outcomes[row.outcome as usize].to_string()));
            cells
        })
        .collect();
    let mut flag = |name: &str, count: &dyn Fn(&ConfigurationSummary<'_>) -> usize| {
        let mut cells = vec![name.to_owned()];
        cells.extend(summary.configurations.iter().map(|one| count(one).to_string()));
        rows.push(cells);
    };
    flag("*answers*", &|one| one.samples.len());
    flag("*with text beside the calls*", &|one| one.text_around);
    flag("*repaired*", &|one| one.repaired);
    flag("*that call a tool of the prompt's examples*", &|one| one.example_tools);
    *text += "## Outcomes\n\n";
    table(text, &header, &rows);
    for one in summary.configurations.iter().filter(|one| !one.repairs.is_empty()) {
        let kinds: Vec<String> =
            one.repairs.iter().map(|(kind, count)| format!("{} {count}", kind.describe())).collect();
        *text += &format!("Repaired in {}: the call had {}.\n\n", escaped(&one.label), kinds.join("; "));
    }
    for one in summary.configurations.iter().filter(|one| one.other_form > 0) {
        *text += &format!(
            "Answers whose call came in another form, in {}: {}. They count as answers without a call.\n\n",
            escaped(&one.label),
            one.other_form
        );
    }
    for one in summary.configurations.iter().filter(|one| !one.unknown_tools.is_empty()) {
        let kinds: Vec<String> =
            one.unknown_tools.iter().map(|(how, count)| format!("{} {count}", how.replace('_', " "))).collect();
        *text += &format!("Tools that were not offered, in {}: {}.\n\n", escaped(&one.label), kinds.join(", "));
    }
}

fn repeats(summary: &Summary<'_>, text: &mut String) {
    let most = summary.configurations.iter().filter_map(|one| one.repeats.as_ref()).map(|r| r.pass_hat.len()).max();
    let Some(most) = most else { return };
    let mut header = vec![String::new()];
    header.extend((1..=most).map(|k| format!("pass^{k}")));
    header.push("unstable cases".to_owned());
    let row = |one: &ConfigurationSummary<'_>| {
        let repeats = one.repeats.as_ref()?;
        let mut row = vec![one.label.clone()];
        row.extend((0..most).map(|k| repeats.pass_hat.get(k).map_or("–".to_owned(), |share| percent(*share))));
        row.push(repeats.unstable.to_string());
        Some(row)
    };
    *text += "## Several answers to each case\n\npass^k: the estimated probability that k answers to a case are all correct.\n\n";
    table(text, &header, &summary.configurations.iter().filter_map(row).collect::<Vec<_>>());
}

fn latencies(summary: &Summary<'_>, text: &mut String) {
    let header = [
        "",
        "answers",
        "first token p50",
        "p95",
        "end to end p50",
        "p95",
        "p99",
        "prefill",
        "decode",
        "tokens per correct",
    ];
    let row = |one: &ConfigurationSummary<'_>| {
        let latency = one.latency.as_ref()?;
        let rate = |rate: Option<f64>| rate.map_or("–".to_owned(), |rate| format!("{rate:.0} tokens/s"));
        Some(vec![
            one.label.clone(),
            latency.samples.to_string(),
            seconds(latency.first_token.0),
            seconds(latency.first_token.1),
            seconds(latency.total.0),
            seconds(latency.total.1),
            latency.p99.map_or("–".to_owned(), seconds),
            rate(latency.prefill_rate),
            rate(latency.decode_rate),
            one.tokens_per_correct.map_or("–".to_owned(), |tokens| format!("{tokens:.1}")),
        ])
    };
    let rows: Vec<Vec<String>> = summary.configurations.iter().filter_map(row).collect();
    if !rows.is_empty() {
        *text += "## Latency\n\n";
        table(text, &header.map(str::to_owned), &rows);
    }
}

/// What the answers cost, where there are prices.
fn costs(summary: &Summary<'_>, text: &mut String) {
    let row = |one: &ConfigurationSummary<'_>| {
        let cost = one.cost?;
        let per_correct = cost.per_correct.map_or("–".to_owned(), amount);
        Some(vec![one.label.clone(), amount(cost.total), amount(cost.per_answer), per_correct])
    };
    let rows: Vec<Vec<String>> = summary.configurations.iter().filter_map(row).collect();
    if !rows.is_empty() {
        *text += "## Cost\n\nIn the currency of the prices in models.toml.\n\n";
        table(text, &["", "all", "an answer", "a correct answer"].map(str::to_owned), &rows);
    }
}
