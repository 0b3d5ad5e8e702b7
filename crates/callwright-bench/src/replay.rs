//! Executes what a recorded case of several turns executed once more, without a model.

use super::report::{escaped, said};
use super::sample::{Turn, Verdict};
use super::suite::wrong;
use super::summary::{ScoredSample, Summary};
use super::task::Task;
use callwright::error::{Error, ErrorKind, Result};

/// Repeats all answers of a run to a case in fresh environments: each turn, and what became of it. It says where a result or the
/// verdict is another than the recorded one.
///
/// # Errors
/// [`ErrorKind::Suite`] when the run has no answer to the case, or the case has no turns; [`ErrorKind::Engine`] when its
/// environment fails.
pub fn replay(summary: &Summary<'_>, case: &str) -> Result<String> {
    let is_it = |one: &&ScoredSample<'_>| one.case.id == case;
    let mut text = String::new();
    for (number, configuration) in summary.configurations.iter().enumerate() {
        for one in configuration.samples.iter().filter(is_it) {
            let task = one.case.task.as_ref().ok_or_else(|| {
                wrong(format!("{case} has no turns: nothing was executed")).hint("report.html has its answers")
            })?;
            if !text.is_empty() {
                text.push('\n');
            }
            text += &format!("{case}, {}\n\n", configuration.label);
            text += &played(task, one).map_err(|why| Error::new(ErrorKind::Engine, format!("{case}: {why}")))?;
            let page = summary.run.path().join("report.html");
            text += &format!("\n{}#configuration={number}&outcome=&text={}\n", page.display(), escaped(case));
        }
    }
    if text.is_empty() {
        let ids = summary.configurations.iter().flat_map(|one| &one.samples).map(|one| one.case.id.as_str());
        let error = wrong(format!("the run in {} has no answer to {case:?}", summary.run.path().display()));
        return Err(error.suggest(case, ids, "outcomes.jsonl names the cases"));
    }
    Ok(text)
}

fn played(task: &Task, one: &ScoredSample<'_>) -> Result<String, String> {
    let sample = one.sample;
    let mut environment = task.begin()?;
    let mut text = String::new();
    for (index, turn) in sample.turns.iter().enumerate() {
        environment.begin_turn();
        text += &format!("Turn {} of {}: {}\n{}\n", index + 1, task.turns.len(), turn.status, said(turn, usize::MAX));
        for call in &turn.executed {
            let result = environment.call(&call.name, &call.arguments).unwrap_or_else(|error| error);
            if result != call.result {
                text += &format!("  {} now gives {result:?}, and gave {:?}\n", call.name, call.result);
            }
        }
        if let Some(why) = environment.broken() {
            return Err(format!("turn {}: {why}", index + 1));
        }
        text.push('\n');
    }
    if let Some(failure) = &sample.failure {
        return Ok(format!("{text}{}: {}\n", one.scored.outcome, failure.message));
    }
    let verdict = environment.verdict(&sample.turns)?;
    text += &in_words(&verdict, &sample.turns);
    if let Some(recorded) = sample.verdict.as_ref().filter(|recorded| recorded.outcome != verdict.outcome) {
        text += &format!("When it was recorded: {}", in_words(recorded, &sample.turns));
    }
    Ok(text)
}

fn in_words(verdict: &Verdict, turns: &[Turn]) -> String {
    let place = verdict.turn.filter(|_| turns.len() > 1).map(|turn| format!(" in turn {}", turn + 1));
    let mut text = format!("{}{}", verdict.outcome, place.unwrap_or_default());
    if !verdict.detail.is_empty() {
        text += &format!(": {}", verdict.detail);
    }
    for line in &verdict.difference {
        text += &format!("\n  in the state, {line}");
    }
    text + "\n"
}
