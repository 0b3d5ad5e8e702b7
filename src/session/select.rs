//! Which tools are in the prompt, where there are more than a model can read.
//!
//! Fifty tools fill a small model's context and distract it. So only those are shown that fit the question best. What is
//! shown depends on the conversation alone: the same conversation shows the same tools, in a recording, too. And it
//! changes only with a question or with `find_tools`, because any change of the tools has the prompt decoded again.

mod ranking;
mod words;

use super::prompt::{AnswerRequest, Written};
use super::{Session, ToolChoice};
use crate::Result;
use crate::agent::exec::Function;
use crate::message::{Arguments, Message, Role};
use crate::tool::{Tool, Tools};
use ranking::Ranking;
use serde::Serialize;
use serde_json::{Map, Value, json};
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
/// Tools that take this part of the context are reported: a quarter.
const LARGE: usize = 4;
/// So few tools are not reported.
const FEW: usize = 8;
/// By which the report is known.
const TAKE: &str = "take";
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

/// What was selected last, to be used again while it is the same.
#[derive(Default)]
pub(crate) struct Selection {
    /// The tools that the ranking is of.
    ranking: Option<(Arc<Tools>, Arc<Ranking>)>,
    chosen: Option<(BTreeSet<usize>, bool, Arc<Tools>)>,
}

/// The index of a session's tools, and what was selected.
pub(super) type Selecting = RefCell<Selection>;

impl Session {
    /// The tools of the next prompt.
    pub(crate) fn shown_tools(&self) -> Arc<Tools> {
        let Some(most) = self.options.select_tools.filter(|most| *most < self.tools.len()) else {
            return Arc::clone(&self.tools);
        };
        let ranking = self.ranking();
        let mut chosen = kept(&self.messages, &self.tools, &ranking);
        if let ToolChoice::Tool(name) = &self.options.tool_choice {
            chosen.extend(self.tools.iter().position(|tool| tool.name == *name || tool.called() == name));
        }
        chosen.extend(best(&self.messages, &ranking, most, self.tools.len()));
        let finds = self.finds_tools();
        let mut selecting = self.selecting.borrow_mut();
        if let Some((indices, found, tools)) = &selecting.chosen
            && (indices, *found) == (&chosen, finds)
        {
            return Arc::clone(tools);
        }
        let shown = self.tools.iter().enumerate().filter(|(index, _)| chosen.contains(index));
        let own = finds.then(find_tools);
        // They were read before, so none of them can be refused.
        let tools = Arc::new(Tools::new(shown.map(|(_, tool)| tool.clone()).chain(own)).unwrap_or_default());
        selecting.chosen = Some((chosen, finds, Arc::clone(&tools)));
        tools
    }

    /// What is reported of the tools in a prompt, where not all are there and others are than before.
    pub(super) fn newly_selected(&mut self, shown: &Arc<Tools>) -> Option<SelectedTools> {
        // A request for one call may have other tools.
        let own = self.selecting.borrow().chosen.as_ref().is_some_and(|(.., tools)| Arc::ptr_eq(tools, shown));
        if !own || !self.selects() {
            return None;
        }
        let tools = shown.iter().map(|tool| tool.name.clone()).collect();
        let selected = SelectedTools { tools, of: self.tools.len() };
        let new = self.selected.as_ref() != Some(&selected);
        self.selected = Some(selected.clone());
        new.then_some(selected)
    }

    /// Reports, once, that the tools take much of the context.
    pub(super) fn large_tools(&mut self, request: &AnswerRequest, written: &Written) -> Result<Option<String>> {
        let limit = self.engine.context_limit();
        let large = |tokens: usize| tokens * LARGE >= limit;
        let tools = request.shown_tools().map_or(0, |tools| tools.len());
        if tools <= FEW || !large(written.tokens.len()) || self.reported.contains(TAKE) {
            return Ok(None);
        }
        let without = AnswerRequest { tools: Arc::default(), ..request.clone() };
        // A template that cannot write a prompt without tools says nothing of what they cost.
        let Ok(without) = self.write(&without, self.shown(&without)) else { return Ok(None) };
        if let Some(recorder) = &mut self.recorder {
            recorder.measured(&without.text, without.tokens.len())?;
        }
        let taken = written.tokens.len().saturating_sub(without.tokens.len());
        if !large(taken) {
            return Ok(None);
        }
        self.reported.insert(TAKE.to_owned());
        Ok(Some(format!(
            "the {tools} tools {TAKE} {taken} tokens, {}% of the context of {limit}; `Options::select_tools` shows the model \
             only those that fit the question",
            taken * 100 / limit.max(1)
        )))
    }

    /// Whether the prompt has the tool that brings in others.
    fn finds_tools(&self) -> bool {
        self.options.find_tools && self.tools.get(FIND_TOOLS).is_none() && self.selects()
    }

    fn selects(&self) -> bool {
        self.options.select_tools.is_some_and(|most| most < self.tools.len())
    }

    /// What answers calls of `find_tools`, if the prompt has it.
    pub(crate) fn finder(&self) -> Option<Finder> {
        self.finds_tools().then(|| Finder { tools: Arc::clone(&self.tools), ranking: self.ranking() })
    }

    /// The result of a call of `find_tools`: the tools that fit these words best, which the next prompt has.
    ///
    /// A [run](Session::run) answers such calls itself; whoever executes calls in another way answers them with this.
    pub fn find_tools(&self, words: &str) -> String {
        Finder { tools: Arc::clone(&self.tools), ranking: self.ranking() }.find(words)
    }

    fn ranking(&self) -> Arc<Ranking> {
        let mut selecting = self.selecting.borrow_mut();
        if let Some((tools, ranking)) = &selecting.ranking
            && Arc::ptr_eq(tools, &self.tools)
        {
            return Arc::clone(ranking);
        }
        let ranking = Arc::new(Ranking::new(&self.tools));
        *selecting = Selection { ranking: Some((Arc::clone(&self.tools), Arc::clone(&ranking))), chosen: None };
        ranking
    }
}

/// Finds tools by words.
pub(crate) struct Finder {
    tools: Arc<Tools>,
    ranking: Arc<Ranking>,
}

impl Finder {
    fn find(&self, words: &str) -> String {
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

impl Function for Finder {
    fn call(&self, arguments: Map<String, Value>) -> std::result::Result<String, String> {
        Ok(self.find(arguments.get("words").and_then(Value::as_str).unwrap_or_default()))
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
