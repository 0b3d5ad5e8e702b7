//! What fits into the context: what is left out of the prompt where it does not, and whether the prompt goes on where
//! the last one ended.

use super::answer::{Ask, Written};
use super::{ContextPolicy, Session};
use crate::agent::{exec, tell};
use crate::message::{Message, Role};
use crate::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// To how many bytes an old result is shortened.
const SHORT: usize = 200;

/// What the model is not shown of the conversation, by the messages' indices.
///
/// Once something is left out it stays out: the prompt would otherwise change in the middle at every turn.
#[derive(Debug, Default, Clone)]
pub(crate) struct Cuts {
    /// How many bytes are left of a result.
    results: BTreeMap<usize, usize>,
    dropped: BTreeSet<usize>,
}

/// Something that was cut: which messages, and the note about it.
struct Cut {
    range: Range<usize>,
    told: String,
}

/// What is known of the last answer.
#[derive(Debug, Default)]
pub(crate) struct Last {
    messages: Vec<Message>,
    with_tools: bool,
    prompt: usize,
    /// Whether the note that the chat template rewrites the past was given.
    told: bool,
}

impl Session {
    /// What the model is shown: the conversation without what was cut, with ids that the template takes.
    pub(crate) fn shown(&self, ask: &Ask) -> Ask {
        let mut shown = ask.clone();
        self.shorten_ids(&mut shown);
        if self.cuts.results.is_empty() && self.cuts.dropped.is_empty() {
            return shown;
        }
        shown.places = (0..shown.messages.len()).filter(|index| !self.cuts.dropped.contains(index)).collect();
        let messages = shown.messages.into_iter().enumerate();
        let messages = messages.filter(|(index, _)| !self.cuts.dropped.contains(index)).map(|(index, mut message)| {
            if let Some(most) = self.cuts.results.get(&index) {
                message.content = shortened(&message.content, *most);
            }
            message
        });
        Ask { messages: messages.collect(), ..shown }
    }

    /// The prompt of an answer, cut where that is needed and allowed, and what was cut in words.
    pub(crate) fn fit(&mut self, ask: &Ask) -> Result<(Ask, Written, Vec<String>)> {
        let limit = self.engine.context_limit();
        // A large --max-tokens is a limit, not a wish: a quarter of the context is room enough.
        let room = ask.options.max_tokens.min(limit / 4).max(1);
        let before = self.cuts.clone();
        let mut told: Vec<Cut> = Vec::new();
        loop {
            let shown = self.shown(ask);
            let written = self.write(&shown)?;
            let tokens = written.tokens.len();
            let cut = tokens + room > limit && ask.options.context == ContextPolicy::Shorten;
            let cut = if cut { self.cut(&ask.messages, tokens + room - limit) } else { None };
            if let Some(recorder) = &mut self.recorder
                && (cut.is_some() || tokens >= limit)
            {
                recorder.measured(&written.text, tokens)?;
            }
            match cut {
                Some(cut) => {
                    // If a message is cut twice, report only the last cut.
                    told.retain(|before| before.range.end <= cut.range.start || cut.range.end <= before.range.start);
                    told.push(cut);
                }
                None if tokens >= limit => {
                    self.cuts = before;
                    return Err(self.overflow(ask, tokens, limit));
                }
                None => return Ok((shown, written, told.into_iter().map(|cut| cut.told).collect())),
            }
        }
    }

    /// Leaves one more thing out, and says what: an old result, the last results as far as they are very long, whole
    /// old turns, and the last results again.
    fn cut(&mut self, messages: &[Message], excess: usize) -> Option<Cut> {
        let question = messages.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
        let last_calls = messages.iter().rposition(|message| !message.tool_calls.is_empty()).unwrap_or(0);
        let kept = |index: usize| self.cuts.results.get(&index).copied().unwrap_or(usize::MAX);
        let length = |index: usize| messages[index].content.len().min(kept(index));
        let results = (0..messages.len())
            .filter(|&index| messages[index].role == Role::Tool && !self.cuts.dropped.contains(&index));
        let old = results.clone().filter(|&index| index < last_calls && length(index) > SHORT + SHORT / 2);
        if let Some(index) = old.clone().next() {
            return Some(self.shorten(messages, index, SHORT));
        }
        // Tokens are about four bytes, at least one.
        let longest = results.filter(|&index| index >= last_calls).max_by_key(|&index| length(index));
        let long = longest.filter(|&index| length(index) > self.engine.context_limit() * 2);
        if let Some(index) = long {
            let most = length(index) / 2;
            return Some(self.shorten(messages, index, most));
        }
        if let Some(range) = self.oldest_turn(messages, question, last_calls) {
            let told = format!(
                "messages[{}] to messages[{}] are not shown to the model any more: the prompt would not fit",
                range.start,
                range.end - 1
            );
            let dropped = range.clone().filter(|&index| messages[index].role != Role::System);
            self.cuts.dropped.extend(dropped);
            return Some(Cut { range, told });
        }
        let index = longest.filter(|&index| length(index) > SHORT)?;
        let most = length(index).saturating_sub(excess.max(length(index) / 8)).max(SHORT);
        Some(self.shorten(messages, index, most))
    }

    fn shorten(&mut self, messages: &[Message], index: usize, most: usize) -> Cut {
        self.cuts.results.insert(index, most);
        let message = &messages[index];
        let name = message.name.as_deref().unwrap_or("a tool");
        let bytes = parts(&message.content).0.len();
        let told = format!(
            "the result of {name} in messages[{index}] is shown to the model up to byte {most} of {bytes}: the prompt would not fit"
        );
        Cut { range: index..index + 1, told }
    }

    /// The oldest turn that can go: a question with all that came of it, or in the current turn calls with results.
    fn oldest_turn(&self, messages: &[Message], question: usize, last_calls: usize) -> Option<Range<usize>> {
        let goes = |index: &usize| !self.cuts.dropped.contains(index) && messages[*index].role != Role::System;
        let next = |from: usize, to: usize, role: Role| {
            (from + 1..to).find(|&index| messages[index].role == role).unwrap_or(to)
        };
        if let Some(first) = (0..question).find(goes) {
            return Some(first..next(first, question, Role::User));
        }
        let first = (question + 1..last_calls).find(goes)?;
        Some(first..next(first, last_calls, Role::Assistant))
    }

    /// Says, once, where the chat template writes the past in another way than it did, so that tokens which are in
    /// the KV cache are decoded again.
    pub(crate) fn rewritten(&mut self, ask: &Ask, written: &Written) -> Option<String> {
        let with_tools = ask.shown_tools().is_some();
        let told = self.last.told;
        let now = Last { messages: ask.messages.clone(), with_tools, prompt: written.tokens.len(), told };
        let last = std::mem::replace(&mut self.last, now);
        let cached = self.engine.cached();
        let same = cached.iter().zip(&written.tokens).take_while(|(a, b)| a == b).count();
        let goes_on = ask.messages.len() > last.messages.len() && ask.messages.starts_with(&last.messages);
        let cut = !self.cuts.results.is_empty() || !self.cuts.dropped.is_empty();
        if last.told || !goes_on || cut || last.with_tools != with_tools || same >= last.prompt.min(cached.len()) {
            return None;
        }
        self.last.told = true;
        let text = |token: Option<&crate::engine::Token>| {
            token
                .map_or_else(String::new, |token| String::from_utf8_lossy(self.engine.token_bytes(*token)).into_owned())
        };
        let template = self.templates.choose(with_tools).name();
        Some(format!(
            "{template} writes the past otherwise once the conversation has gone on: from token {same} on ({:?} became \
             {:?}) {} tokens are decoded again",
            text(cached.get(same)),
            text(written.tokens.get(same)),
            cached.len() - same
        ))
    }

    /// Says how many tokens do not fit, and what takes them.
    fn overflow(&self, ask: &Ask, tokens: usize, limit: usize) -> Error {
        // Each part is what the prompt is shorter by without it; a template may refuse to do without.
        let without = |change: &dyn Fn(&mut Ask)| {
            let mut less = ask.clone();
            change(&mut less);
            let left = self.write(&less).ok()?.tokens.len();
            tokens.checked_sub(left).filter(|taken| *taken > 0)
        };
        let (system, others): (Vec<Message>, Vec<Message>) =
            ask.messages.iter().cloned().partition(|message| message.role == Role::System);
        let question = others.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
        let recent = [system.as_slice(), &others[question..]].concat();
        let parts = [
            ("tools", without(&|ask| ask.tools = Default::default())),
            ("system message", without(&|ask| ask.messages = others.clone())),
            ("history", without(&|ask| ask.messages = recent.clone())),
        ];
        let parts: Vec<String> =
            parts.iter().filter_map(|(name, taken)| Some(format!("{name} {}", (*taken)?))).collect();
        let mut message = format!("the prompt has {tokens} tokens; the context holds {limit}");
        if !parts.is_empty() {
            message += &format!(" (of these: {})", parts.join(", "));
        }
        let hint = if limit < self.engine.model().context_train {
            "a larger --ctx gives more room, up to what the model was trained for"
        } else {
            "fewer tools, shorter descriptions or a shorter history make room"
        };
        Error::new(ErrorKind::ContextOverflow, message).hint(hint)
    }
}

/// A result, and the remarks after it: that it was cut before, that the call was made before.
fn parts(content: &str) -> (&str, &str) {
    let (unremarked, _) = tell::without_remark(content);
    content.split_at(exec::without_marks(unremarked).0.len())
}

/// The beginning of a result, marked; the remarks after the result are kept.
fn shortened(content: &str, most: usize) -> String {
    let (text, marks) = parts(content);
    if text.len() <= most {
        return content.to_owned();
    }
    let mut end = most;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}\n[shortened: {end} of {} bytes]{marks}", &text[..end], text.len())
}
