//! What the figures of a run allow to say, in words.

use super::compare::{Comparison, within};
use super::outcome::Outcome;
use super::report::percent;
use super::stats::Proportion;
use super::summary::{ConfigurationSummary, Summary};
use callwright::constraint::Mode;
use callwright::session::ToolChoice;

/// From so many configurations on, those that may be as good as the first are named together.
const MANY: usize = 4;
/// More cases than this are not worth counting.
const MOST_CASES: usize = 10_000;
/// Below so many trials a share is no reason for advice.
const FEW: usize = 5;
/// More tools in a prompt than this are many to a small model: `--select-tools` takes as many.
const MANY_TOOLS: usize = 8;

/// The verdict on a run: the best configuration, and how each compares with the first one.
pub fn verdict(summary: &Summary<'_>) -> Vec<String> {
    let judged = summary.configurations.iter().filter_map(|one| Some((one, one.scores.get("accuracy")?)));
    // The first of equals.
    let best = judged.rev().max_by(|(_, a), (_, b)| a.share().total_cmp(&b.share()));
    let Some((best, score)) = best else { return vec!["There is nothing to judge yet.".to_owned()] };
    let Proportion { successes, trials, .. } = score;
    let most = if summary.configurations.len() > 1 { "Most right: " } else { "" };
    let mut sentences = vec![format!("{most}{}, {score}: {successes} of {trials} answers are correct.", best.label)];
    let comparisons = within(summary);
    let (told, alike): (Vec<_>, Vec<_>) = comparisons.iter().partition(|one| one.is_significant());
    sentences.extend(told.into_iter().map(sentence));
    if alike.len() < MANY {
        sentences.extend(alike.into_iter().map(sentence));
    } else {
        sentences.extend(together(&alike));
    }
    sentences
}

/// What a comparison allows to say.
pub fn sentence(one: &Comparison) -> String {
    let [before, after] = one.sides();
    if one.before.is_err() || one.after.is_err() || one.cases == 0 {
        return format!("{before} and {after}: there are no cases to compare.");
    }
    let (after, before) = match before == after {
        true => (format!("{after} in the second run"), "the one in the first".to_owned()),
        false => (after, before),
    };
    let shares = shares(one);
    let p = p_value(one.p_holm);
    if one.is_significant() {
        let how = if one.difference.0 > 0.0 { "better" } else { "worse" };
        return format!("{after} is {how} than {before} ({shares}, {p}).");
    }
    let cases = one.cases;
    let unknown = format!("{after} may be as good as {before}");
    match one.needed {
        _ if one.lost.is_empty() && one.won.is_empty() => {
            format!("{unknown}: each of {cases} cases is right in both or wrong in both.")
        }
        None => format!("{unknown}: of {cases} cases, {} became right, and as many wrong.", one.won.len()),
        Some(needed) => {
            format!("{unknown}: {cases} cases are too few to say ({shares}, {p}); {} are needed.", about(needed))
        }
    }
}

/// What several comparisons with one configuration that chance explains allow to say. The shares of each are in the table.
fn together(alike: &[&Comparison]) -> Option<String> {
    let cases = alike.iter().map(|one| one.cases).max()?;
    let largest = alike.iter().max_by(|a, b| a.difference.0.abs().total_cmp(&b.difference.0.abs()))?;
    let [first, other] = largest.sides();
    let enough = largest.needed.map_or_else(String::new, |needed| {
        format!(
            " The largest difference is that of {other} ({}): {} cases are needed to be sure of it.",
            shares(largest),
            about(needed)
        )
    });
    Some(format!("{} others may be as good as {first}: {cases} cases are too few to say.{enough}", alike.len()))
}

/// `61% against 43%`: the second share and the first one.
fn shares(one: &Comparison) -> String {
    let [before, after] = one.shares().map(|share| 100.0 * share);
    let digits = usize::from(before.round() == after.round() && before != after);
    format!("{after:.digits$}% against {before:.digits$}%")
}

fn about(cases: usize) -> String {
    match cases {
        _ if cases > MOST_CASES => "more than 10,000".to_owned(),
        _ if cases > 1000 => format!("about {},000", (cases as f64 / 1000.0).round()),
        _ if cases > 100 => format!("about {}", cases.next_multiple_of(50)),
        _ => format!("about {}", cases.next_multiple_of(5)),
    }
}

/// `p = 0.004`, with no more digits than mean something.
pub fn p_value(p: f64) -> String {
    let digits = match p {
        _ if p < 0.0001 => return "p < 0.0001".to_owned(),
        _ if p < 0.001 => 4,
        _ if p < 0.1 => 3,
        _ => 2,
    };
    format!("p = {p:.digits$}")
}

/// What may help a configuration: the figure that suggests it, and the advice.
pub(crate) fn advice(one: &ConfigurationSummary<'_>) -> Vec<(String, String)> {
    let configuration = one.configuration;
    let score = |key: &str| one.scores.get(key).filter(|score| score.trials >= FEW);
    // Even at the interval's upper end.
    let is_low =
        |key: &str, limit: f64| score(key).filter(|score| score.high < limit).map(|score| percent(score.share()));
    let count = |outcome: Outcome| one.outcomes[outcome as usize];
    let is_share = |count: usize, of: f64| count >= 2 && count as f64 >= of * one.samples.len() as f64;
    let decides = configuration.tool_choice == ToolChoice::Auto;
    let tools = one.samples.iter().map(|one| one.case.tools.len()).max().unwrap_or(0);
    let mut advice: Vec<(String, String)> = Vec::new();
    let mut add = |figure: String, text: &str| advice.push((figure, text.to_owned()));
    if let Some(share) = is_low("decision_recall", 0.6).filter(|_| decides) {
        add(format!("recall {share}"), "it seldom calls; `--tool-choice required` or an adapter (`--lora`)");
    }
    if let Some(share) = is_low("decision_specificity", 0.6).filter(|_| decides) {
        let text = "it calls where no call is right; `bench calibrate` finds a threshold for `--no-call-below`";
        add(format!("specificity {share}"), text);
    }
    if configuration.constrain == Mode::Off
        && let Some(score) = score("delivered").filter(|score| score.share() < 0.95)
    {
        add(format!("delivered {}", percent(score.share())), "`--constrain auto`, as in `run`, keeps its calls valid");
    }
    if let Some(share) = is_low("in_format", 0.6).filter(|_| is_share(one.other_form, 0.2)) {
        let text = "it writes calls in another form; `callwright template check` and `--format` find its own";
        add(format!("in the format {share}"), text);
    }
    let selects = configuration.select_tools.is_some() || tools <= MANY_TOOLS;
    if let Some(share) = is_low("tool_selection", 0.8).filter(|_| !selects) {
        add(format!("tools {share}"), "it seldom takes the right one of many tools; `--select-tools 8` shows fewer");
    }
    let cut = count(Outcome::Truncated);
    if is_share(cut, 0.1) {
        add(format!("{cut} answers cut off at {} tokens", configuration.max_tokens), "`--max-tokens` allows more");
    }
    let loops = count(Outcome::Loop);
    if is_share(loops, 0.1) {
        let greedy = configuration.sampling.temperature == 0.0;
        let text = if greedy { "`--temp 0.7` or another `--format` may help" } else { "another `--format` may help" };
        add(format!("{loops} answers repeat themselves"), text);
    }
    let long = count(Outcome::PromptTooLong);
    if long > 0 {
        let which = if long == 1 { "1 prompt does not fit".to_owned() } else { format!("{long} prompts do not fit") };
        add(which, "a larger `--ctx`, or `--select-tools`");
    }
    advice
}

/// The advice for all configurations, each once.
pub fn advised(summary: &Summary<'_>) -> Vec<String> {
    let mut texts: Vec<(String, String, usize)> = Vec::new();
    for one in &summary.configurations {
        for (figure, text) in advice(one) {
            match texts.iter_mut().find(|(_, known, _)| *known == text) {
                Some((.., count)) => *count += 1,
                None => texts.push((format!("{}: {figure}", one.label), text, 1)),
            }
        }
    }
    let line = |(first, text, count)| match count {
        1 => format!("{first}: {text}"),
        2 => format!("{first}, and one other: {text}"),
        count => format!("{first}, and {} others: {text}", count - 1),
    };
    texts.into_iter().map(line).collect()
}
