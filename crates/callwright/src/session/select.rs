//! Which tools are in the prompt, where there are more than a model can read.
//!
//! Fifty tools fill a small model's context and distract it. So only those are shown that fit the question best. What is
//! shown depends on the conversation alone: the same conversation shows the same tools, in a recording, too. And it
//! changes only with a question or with `find_tools`, because any change of the tools has the prompt decoded again.

mod ranking;
mod words;

use super::{Options, ToolChoice};
use crate::message::{Arguments, Message, Role};
use crate::tool::{Tool, Tools};
use ranking::Ranking;
use serde::Serialize;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The tool that brings in others.
pub(crate) const FIND_TOOLS: &str = "find_tools";
/// How many tools it brings in.
const FOUND: usize = 5;
/// How much an earlier question counts, relative to the one after it.
const EARLIER: f64 = 0.4;
/// How many questions count.
const QUESTIONS: usize = 4;
/// How many characters of a description are shown with a tool that was found.
const ABOUT: usize = 200;

/// The tools that are in the prompt.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SelectedTools {
    /// Their names.
    pub tools: Vec<String>,
    /// How many there are.
    pub of: usize,
}

/// Selects the tools of prompts.
#[derive(Default)]
pub(super) struct Selector {
    last: RefCell<Selection>,
    /// The selection that was reported last.
    reported: Option<SelectedTools>,
}

/// What was selected last, to be used again while it is the same.
#[derive(Default)]
struct Selection {
    /// The tools that the ranking is of.
    ranking: Option<(Arc<Tools>, Arc<Ranking>)>,
    chosen: Option<(BTreeSet<usize>, bool, Arc<Tools>)>,
}

impl Selector {
    /// The tools of the next prompt of a conversation.
    pub(super) fn select(&self, tools: &Arc<Tools>, messages: &[Message], options: &Options) -> Arc<Tools> {
        let Some(most) = most(tools, options) else { return Arc::clone(tools) };
        let ranking = self.ranking(tools);
        let mut chosen = kept(messages, tools, &ranking);
        if let ToolChoice::Tool(name) = &options.tool_choice {
            chosen.extend(tools.iter().position(|tool| tool.name == *name || tool.called() == name));
        }
        chosen.extend(best(messages, &ranking, most, tools.len()));
        let finds = finds_tools(tools, options);
        let mut last = self.last.borrow_mut();
        if let Some((indices, found, tools)) = &last.chosen
            && (indices, *found) == (&chosen, finds)
        {
            return Arc::clone(tools);
        }
        let shown = tools.iter().enumerate().filter(|(index, _)| chosen.contains(index));
        let own = finds.then(find_tools);
        // They were read before, so none of them can be refused.
        let tools = Arc::new(Tools::new(shown.map(|(_, tool)| tool.clone()).chain(own)).unwrap_or_default());
        last.chosen = Some((chosen, finds, Arc::clone(&tools)));
        tools
    }

    /// Returns what is reported of the tools in a prompt, where not all are there and others are than before.
    pub(super) fn report(&mut self, shown: &Tools, tools: &Tools, options: &Options) -> Option<SelectedTools> {
        most(tools, options)?;
        let (.., chosen) = self.last.get_mut().chosen.as_ref()?;
        // A request for one call may have other tools.
        if chosen.iter().any(|tool| shown.get(&tool.name).is_none()) {
            return None;
        }
        let selected = SelectedTools { tools: chosen.iter().map(|tool| tool.name.clone()).collect(), of: tools.len() };
        let new = self.reported.as_ref() != Some(&selected);
        self.reported = Some(selected.clone());
        new.then_some(selected)
    }

    /// Returns what finds tools by words.
    pub(super) fn finder(&self, tools: &Arc<Tools>) -> Finder {
        Finder { tools: Arc::clone(tools), ranking: self.ranking(tools) }
    }

    fn ranking(&self, tools: &Arc<Tools>) -> Arc<Ranking> {
        let mut last = self.last.borrow_mut();
        if let Some((known, ranking)) = &last.ranking
            && Arc::ptr_eq(known, tools)
        {
            return Arc::clone(ranking);
        }
        let ranking = Arc::new(Ranking::new(tools));
        *last = Selection { ranking: Some((Arc::clone(tools), Arc::clone(&ranking))), chosen: None };
        ranking
    }
}

/// How many tools the prompt may have, where not all are in it.
fn most(tools: &Tools, options: &Options) -> Option<usize> {
    options.select_tools.filter(|most| *most < tools.len())
}

/// Returns whether the prompt has the tool that brings in others.
pub(super) fn finds_tools(tools: &Tools, options: &Options) -> bool {
    options.find_tools && tools.get(FIND_TOOLS).is_none() && most(tools, options).is_some()
}

/// Finds tools by words.
pub(crate) struct Finder {
    tools: Arc<Tools>,
    ranking: Arc<Ranking>,
}

impl Finder {
    /// The tools that fit these words best, as the model reads them.
    pub(crate) fn find(&self, words: &str) -> String {
        let found = Ranking::best(&self.ranking.scores(words), FOUND);
        if found.is_empty() {
            return "no tool fits these words; try others, or answer without a tool".to_owned();
        }
        let about = |tool: &Tool| {
            let line = tool.description.replace(char::is_control, " ");
            format!("\n{}: {}", tool.called(), line.chars().take(ABOUT).collect::<String>())
        };
        let tools = self.tools.iter().enumerate().filter(|(index, _)| found.contains(index));
        format!("these tools can be called now:{}", tools.map(|(_, tool)| about(tool)).collect::<String>())
    }
}

/// The tool `find_tools`.
fn find_tools() -> Tool {
    let words = json!({"type": "string", "description": "Words that say what the tool should do"});
    let schema = json!({"type": "object", "properties": {"words": words}, "required": ["words"]});
    let description = "Find other tools, if none of these tools can do what is needed";
    Tool::new(FIND_TOOLS, description, schema.as_object().cloned())
}

/// The words of a call of `find_tools`.
fn words_of(arguments: &Arguments) -> &str {
    match arguments {
        Arguments::Object(object) => object.get("words").and_then(Value::as_str).unwrap_or_default(),
        Arguments::Raw(_) => "",
    }
}

/// The tools that the conversation has calls of, and those that it found.
fn kept(messages: &[Message], tools: &Tools, ranking: &Ranking) -> BTreeSet<usize> {
    let mut kept = BTreeSet::new();
    for call in messages.iter().flat_map(|message| &message.tool_calls) {
        match tools.iter().position(|tool| tool.name == call.name || tool.called() == call.name) {
            Some(index) => drop(kept.insert(index)),
            None if call.name == FIND_TOOLS => {
                kept.extend(Ranking::best(&ranking.scores(words_of(&call.arguments)), FOUND));
            }
            None => {}
        }
    }
    kept
}

/// Returns the names of the `most` tools that [`Options::select_tools`](super::Options::select_tools) shows for a new conversation.
pub fn fitting<'t>(messages: &[Message], tools: &'t Tools, most: usize) -> Vec<&'t str> {
    let best = best(messages, &Ranking::new(tools), most, tools.len());
    tools.iter().enumerate().filter(|(index, _)| best.contains(index)).map(|(_, tool)| tool.name.as_str()).collect()
}

/// The tools that fit the last question and those before it best; the first ones where too few fit.
fn best(messages: &[Message], ranking: &Ranking, most: usize, all: usize) -> Vec<usize> {
    let questions = messages.iter().rev().filter(|message| message.role == Role::User).take(QUESTIONS);
    let mut scores = vec![0.0; all];
    let mut counts = 1.0;
    for question in questions {
        for (score, more) in scores.iter_mut().zip(ranking.scores(&question.content)) {
            *score += counts * more;
        }
        counts *= EARLIER;
    }
    let mut best = Ranking::best(&scores, most);
    let others = (0..all).filter(|index| !best.contains(index)).take(most - best.len());
    let others: Vec<usize> = others.collect();
    best.extend(others);
    best
}

#[cfg(test)]
mod tests;
