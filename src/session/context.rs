//! Context-window management: truncation and reuse of the KV cache.

use super::prompt::{AnswerRequest, Prepared, Written};
use super::{ContextPolicy, Session};
use crate::agent::{exec, messages};
use crate::message::{Arguments, Message, Role};
use crate::{Error, ErrorKind, Result};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

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
    note: String,
}

/// The messages that a prompt shows.
pub(crate) struct Shown {
    pub messages: Arc<Vec<Message>>,
    /// Their indices in the conversation, if some are left out.
    pub places: Vec<usize>,
}

/// What is known of the last prompt.
#[derive(Debug, Default)]
pub(crate) struct Last {
    messages: usize,
    /// Of these messages.
    fingerprint: u64,
    with_tools: bool,
    tokens: usize,
    /// Whether the note that the chat template rewrites earlier messages was given.
    reported: bool,
}

impl Cuts {
    fn is_empty(&self) -> bool {
        self.results.is_empty() && self.dropped.is_empty()
    }
}

impl Session {
    /// What the model is shown: the conversation without what was cut, with ids that the template takes.
    pub(crate) fn shown(&self, request: &AnswerRequest) -> Shown {
        let messages = self.with_short_ids(request).map_or_else(|| Arc::clone(&request.messages), Arc::new);
        if self.cuts.is_empty() {
            return Shown { messages, places: Vec::new() };
        }
        let places: Vec<usize> = (0..messages.len()).filter(|index| !self.cuts.dropped.contains(index)).collect();
        let shown = places.iter().map(|index| {
            let mut message = messages[*index].clone();
            if let Some(most) = self.cuts.results.get(index) {
                message.content = shortened(&message.content, *most);
            }
            message
        });
        Shown { messages: Arc::new(shown.collect()), places }
    }

    /// The prompt of an answer, cut where that is needed and allowed, and what was cut in words.
    pub(crate) fn fit(&mut self, request: &AnswerRequest) -> Result<(Written, Vec<String>)> {
        let limit = self.engine.context_limit();
        // A large limit of tokens is not a wish: a quarter of the context is room enough.
        let room = request.options.max_tokens.min(limit / 4).max(1);
        let before = self.cuts.clone();
        let mut cuts: Vec<Cut> = Vec::new();
        let mut prepared = self.prepared.take().and_then(|prepared| prepared.for_request(request));
        loop {
            let written = match prepared.take() {
                Some(written) => written,
                None => self.write(request, self.shown(request))?,
            };
            let tokens = written.tokens.len();
            let cut = tokens + room > limit && request.options.context == ContextPolicy::Shorten;
            let cut = if cut { self.cut(&request.messages, tokens + room - limit) } else { None };
            if let Some(recorder) = &mut self.recorder
                && (cut.is_some() || tokens >= limit)
            {
                recorder.measured(&written.text, tokens)?;
            }
            match cut {
                Some(cut) => {
                    // If a message is cut twice, report only the last cut.
                    cuts.retain(|before| before.range.end <= cut.range.start || cut.range.end <= before.range.start);
                    cuts.push(cut);
                }
                None if tokens >= limit => {
                    self.cuts = before;
                    return Err(self.overflow(request, tokens, limit));
                }
                None => return Ok((written, cuts.into_iter().map(|cut| cut.note).collect())),
            }
        }
    }

    /// Makes the prompt of an answer fit, and keeps it for [`Session::answer`]. Returns its number of tokens.
    pub(crate) fn prepare(&mut self, request: &AnswerRequest) -> Result<usize> {
        let (written, _) = self.fit(request)?;
        let tokens = written.tokens.len();
        self.prepared = Some(Prepared::new(request.clone(), written));
        Ok(tokens)
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
            let note = format!(
                "messages[{}] to messages[{}] are not shown to the model any more: the prompt would not fit",
                range.start,
                range.end - 1
            );
            let dropped = range.clone().filter(|&index| messages[index].role != Role::System);
            self.cuts.dropped.extend(dropped);
            return Some(Cut { range, note });
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
        let note = format!(
            "the result of {name} in messages[{index}] is shown to the model up to byte {most} of {bytes}: the prompt would not fit"
        );
        Cut { range: index..index + 1, note }
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

    /// Reports, once, that the chat template writes earlier messages differently than before, so that tokens which are
    /// in the KV cache are decoded again.
    pub(crate) fn rewritten(&mut self, request: &AnswerRequest, written: &Written) -> Option<String> {
        let with_tools = request.shown_tools().is_some();
        let now = Last {
            messages: request.messages.len(),
            fingerprint: fingerprint(&request.messages),
            with_tools,
            tokens: written.tokens.len(),
            reported: self.last.reported,
        };
        let last = std::mem::replace(&mut self.last, now);
        let cached = self.engine.cached();
        let same = cached.iter().zip(&written.tokens).take_while(|(a, b)| a == b).count();
        if last.reported
            || self.engine.samples()
            || !self.cuts.is_empty()
            || last.with_tools != with_tools
            || same >= last.tokens.min(cached.len())
        {
            return None;
        }
        let earlier = request.messages.get(..last.messages).filter(|earlier| earlier.len() < request.messages.len())?;
        if fingerprint(earlier) != last.fingerprint {
            return None;
        }
        self.last.reported = true;
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

    /// The error that the prompt does not fit, with what takes its tokens.
    fn overflow(&self, request: &AnswerRequest, tokens: usize, limit: usize) -> Error {
        // Each part is what the prompt is shorter by without it; a template may refuse to do without.
        let without = |less: AnswerRequest| {
            let shown = Shown { messages: Arc::clone(&less.messages), places: Vec::new() };
            let left = self.write(&less, shown).ok()?.tokens.len();
            tokens.checked_sub(left).filter(|taken| *taken > 0)
        };
        let with_messages = |messages: Vec<Message>| AnswerRequest { messages: Arc::new(messages), ..request.clone() };
        let (system, others): (Vec<Message>, Vec<Message>) =
            request.messages.iter().cloned().partition(|message| message.role == Role::System);
        let question = others.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
        let recent = [system.as_slice(), &others[question..]].concat();
        let parts = [
            ("tools", without(AnswerRequest { tools: Arc::default(), ..request.clone() })),
            ("system message", without(with_messages(others))),
            ("history", without(with_messages(recent))),
        ];
        let parts: Vec<String> =
            parts.iter().filter_map(|(name, taken)| Some(format!("{name} {}", (*taken)?))).collect();
        let mut message = format!("the prompt has {tokens} tokens; the context holds {limit}");
        if !parts.is_empty() {
            message += &format!(" (of these: {})", parts.join(", "));
        }
        let hint = if limit < self.engine.model().context_train {
            "a larger `LoadOptions::context` gives more room, up to what the model was trained for"
        } else {
            "fewer tools, shorter descriptions or a shorter history make room"
        };
        Error::new(ErrorKind::ContextOverflow, message).hint(hint)
    }
}

/// A result, and the remarks after it: that it was cut before, that the call was made before.
fn parts(content: &str) -> (&str, &str) {
    let (unremarked, _) = messages::without_advice(content);
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

/// A hash of messages, by which a longer conversation is recognised as their continuation.
fn fingerprint(messages: &[Message]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for Message { role, content, parts, reasoning, tool_calls, tool_call_id, name } in messages {
        (role, content, parts, reasoning, tool_call_id, name).hash(&mut hasher);
        for call in tool_calls {
            (&call.id, &call.name).hash(&mut hasher);
            match &call.arguments {
                Arguments::Object(object) => object.hash(&mut hasher),
                Arguments::Raw(text) => text.hash(&mut hasher),
            }
        }
        tool_calls.len().hash(&mut hasher);
    }
    hasher.finish()
}
