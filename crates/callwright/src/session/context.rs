//! Context-window management: truncation and reuse of the KV cache.

use super::ContextPolicy;
use super::prompt::{AnswerRequest, Prepared, PromptWriter, Written};
use super::record::Recording;
use super::remarks;
use crate::engine::{Engine, Token, common};
use crate::message::{Arguments, Message, Role};
use crate::setting::Setting;
use crate::{Error, ErrorKind, Result};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// To how many bytes an old result is shortened.
const SHORT: usize = 200;
/// Tools that take this part of the context are reported: a quarter.
const LARGE: usize = 4;
/// So few tools are not reported.
const FEW: usize = 8;

/// The prompts of a session: what writes them, what they show of the conversation, and what is known of them.
pub(crate) struct Prompts {
    pub(super) writer: PromptWriter,
    cuts: Cuts,
    /// The prompt of the next answer, if it is known.
    pub(super) prepared: Option<Prepared>,
    /// The last answer's prompt.
    last: Last,
    /// Whether the note that the chat template rewrites earlier messages was given.
    rewriting_reported: bool,
    /// Whether the note that the tools take much of the context was given in this conversation.
    tools_reported: bool,
}

/// What the model is not shown of the conversation, by the messages' indices.
///
/// Once something is left out it stays out: the prompt would otherwise change in the middle at every turn.
#[derive(Debug, Default, Clone)]
struct Cuts {
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
pub(super) struct Shown {
    pub messages: Arc<Vec<Message>>,
    /// Their indices in the conversation, if some are left out.
    pub places: Vec<usize>,
}

/// What is known of the last prompt.
#[derive(Debug, Default)]
struct Last {
    messages: usize,
    /// Of these messages.
    fingerprint: u64,
    with_tools: bool,
    tokens: usize,
}

impl Prompts {
    pub(super) fn new(writer: PromptWriter) -> Prompts {
        Prompts {
            writer,
            cuts: Cuts::default(),
            prepared: None,
            last: Last::default(),
            rewriting_reported: false,
            tools_reported: false,
        }
    }

    /// The conversation became another one.
    pub(super) fn begin(&mut self) {
        self.forget_cuts();
        self.tools_reported = false;
    }

    /// Shows everything again.
    pub(crate) fn forget_cuts(&mut self) {
        self.cuts = Cuts::default();
    }

    /// Writes the prompt of an answer: the conversation without what was cut, with ids that the template takes.
    pub(super) fn write(&self, engine: &dyn Engine, request: &AnswerRequest) -> Result<Written> {
        let messages = self.writer.with_other_ids(request).map_or_else(|| Arc::clone(&request.messages), Arc::new);
        self.writer.write(engine, request, self.cuts.shown(messages))
    }

    /// The prompt of an answer, cut where that is needed and allowed, and what was cut in words.
    pub(super) fn fit(
        &mut self,
        engine: &dyn Engine,
        recording: &mut Recording,
        request: &AnswerRequest,
    ) -> Result<(Written, Vec<String>)> {
        let limit = engine.context_limit();
        // A large limit of tokens is not a wish: a quarter of the context is room enough.
        let room = request.options.max_tokens.min(limit / 4).max(1);
        let before = self.cuts.clone();
        let mut cuts: Vec<Cut> = Vec::new();
        let mut prepared = self.prepared.take().and_then(|prepared| prepared.of(request));
        loop {
            let written = match prepared.take() {
                Some(written) => written,
                None => self.write(engine, request)?,
            };
            let tokens = written.tokens.len();
            let cut = tokens + room > limit && request.options.context == ContextPolicy::Shorten;
            let cut = if cut { self.cuts.cut(&request.messages, tokens + room - limit, limit) } else { None };
            if cut.is_some() || tokens >= limit {
                recording.measured(&written.text, tokens)?;
            }
            match cut {
                Some(cut) => {
                    // If a message is cut twice, report only the last cut.
                    cuts.retain(|before| before.range.end <= cut.range.start || cut.range.end <= before.range.start);
                    cuts.push(cut);
                }
                None if tokens >= limit => {
                    self.cuts = before;
                    return Err(overflow(&self.writer, engine, request, tokens));
                }
                None => return Ok((written, cuts.into_iter().map(|cut| cut.note).collect())),
            }
        }
    }

    /// Reports, once, that the chat template writes earlier messages differently than before, so that tokens which are
    /// in the KV cache are decoded again.
    pub(super) fn rewritten(
        &mut self,
        engine: &dyn Engine,
        request: &AnswerRequest,
        written: &Written,
    ) -> Option<String> {
        let with_tools = request.shown_tools().is_some();
        let now = Last {
            messages: request.messages.len(),
            fingerprint: fingerprint(&request.messages),
            with_tools,
            tokens: written.tokens.len(),
        };
        let last = std::mem::replace(&mut self.last, now);
        let cached = engine.cached();
        let same = common(cached, &written.tokens);
        if self.rewriting_reported
            || engine.server().is_some()
            || !request.dropped.is_empty()
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
        self.rewriting_reported = true;
        let text = |token: Option<&Token>| {
            token.map_or_else(String::new, |token| String::from_utf8_lossy(engine.token_bytes(*token)).into_owned())
        };
        Some(format!(
            "{} writes earlier messages in another way when the conversation goes on, so {} tokens are read again, from \
             token {same} on, where {:?} became {:?}",
            self.writer.template(with_tools).name(),
            cached.len() - same,
            text(cached.get(same)),
            text(written.tokens.get(same)),
        ))
    }

    /// Reports, once in a conversation, that the tools take much of the context.
    pub(super) fn large_tools(
        &mut self,
        engine: &dyn Engine,
        recording: &mut Recording,
        request: &AnswerRequest,
        written: &Written,
    ) -> Result<Option<String>> {
        let limit = engine.context_limit();
        let large = |tokens: usize| tokens * LARGE >= limit;
        let tools = request.shown_tools().map_or(0, |tools| tools.len());
        if tools <= FEW || !large(written.tokens.len()) || self.tools_reported {
            return Ok(None);
        }
        // A template that cannot write a prompt without tools says nothing of what they cost.
        let Ok(without) = self.write(engine, &request.with_tools(Arc::default())) else { return Ok(None) };
        recording.measured(&without.text, without.tokens.len())?;
        let taken = written.tokens.len().saturating_sub(without.tokens.len());
        if !large(taken) {
            return Ok(None);
        }
        self.tools_reported = true;
        Ok(Some(format!(
            "the {tools} tools take {taken} tokens, {}% of the context of {limit}; {} shows the model \
             only those that fit the question",
            taken * 100 / limit.max(1),
            Setting::SelectTools
        )))
    }
}

impl Cuts {
    fn is_empty(&self) -> bool {
        self.results.is_empty() && self.dropped.is_empty()
    }

    /// Returns what the model is shown of a conversation.
    fn shown(&self, messages: Arc<Vec<Message>>) -> Shown {
        if self.is_empty() {
            return Shown { messages, places: Vec::new() };
        }
        let places: Vec<usize> = (0..messages.len()).filter(|index| !self.dropped.contains(index)).collect();
        let shown = places.iter().map(|index| {
            let mut message = messages[*index].clone();
            if let Some(most) = self.results.get(index) {
                message.content = shortened(&message.content, *most);
            }
            message
        });
        Shown { messages: Arc::new(shown.collect()), places }
    }

    /// Leaves one more thing out, and says what: an old result, the last results as far as they are very long, whole
    /// old turns, and the last results again. The prompt has `excess` tokens too many for a context of `limit`.
    fn cut(&mut self, messages: &[Message], excess: usize, limit: usize) -> Option<Cut> {
        let question = messages.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
        let last_calls = messages.iter().rposition(|message| !message.tool_calls.is_empty()).unwrap_or(0);
        let kept = |index: usize| self.results.get(&index).copied().unwrap_or(usize::MAX);
        let length = |index: usize| messages[index].content.len().min(kept(index));
        let results =
            (0..messages.len()).filter(|&index| messages[index].role == Role::Tool && !self.dropped.contains(&index));
        let old = results.clone().filter(|&index| index < last_calls && length(index) > SHORT + SHORT / 2);
        if let Some(index) = old.clone().next() {
            return Some(self.shorten(messages, index, SHORT));
        }
        // Tokens are about four bytes, at least one.
        let longest = results.filter(|&index| index >= last_calls).max_by_key(|&index| length(index));
        let long = longest.filter(|&index| length(index) > limit * 2);
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
            self.dropped.extend(dropped);
            return Some(Cut { range, note });
        }
        let index = longest.filter(|&index| length(index) > SHORT)?;
        let most = length(index).saturating_sub(excess.max(length(index) / 8)).max(SHORT);
        Some(self.shorten(messages, index, most))
    }

    fn shorten(&mut self, messages: &[Message], index: usize, most: usize) -> Cut {
        self.results.insert(index, most);
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
        let goes = |index: &usize| !self.dropped.contains(index) && messages[*index].role != Role::System;
        let next = |from: usize, to: usize, role: Role| {
            (from + 1..to).find(|&index| messages[index].role == role).unwrap_or(to)
        };
        if let Some(first) = (0..question).find(goes) {
            return Some(first..next(first, question, Role::User));
        }
        let first = (question + 1..last_calls).find(goes)?;
        Some(first..next(first, last_calls, Role::Assistant))
    }
}

/// The error that the prompt does not fit, with what takes its tokens.
fn overflow(writer: &PromptWriter, engine: &dyn Engine, request: &AnswerRequest, tokens: usize) -> Error {
    let limit = engine.context_limit();
    // Each part is what the prompt is shorter by without it; a template may refuse to do without.
    let without = |less: AnswerRequest| {
        let shown = Shown { messages: Arc::clone(&less.messages), places: Vec::new() };
        let left = writer.write(engine, &less, shown).ok()?.tokens.len();
        tokens.checked_sub(left).filter(|taken| *taken > 0)
    };
    let with_messages = |messages: Vec<Message>| AnswerRequest { messages: Arc::new(messages), ..request.clone() };
    let (system, others): (Vec<Message>, Vec<Message>) =
        request.messages.iter().cloned().partition(|message| message.role == Role::System);
    let question = others.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
    let recent = [system.as_slice(), &others[question..]].concat();
    let parts = [
        ("tools", without(request.with_tools(Arc::default()))),
        ("system message", without(with_messages(others))),
        ("history", without(with_messages(recent))),
    ];
    let parts: Vec<String> = parts.iter().filter_map(|(name, taken)| Some(format!("{name} {}", (*taken)?))).collect();
    let mut message = format!("the prompt has {tokens} tokens; the context holds {limit}");
    if !parts.is_empty() {
        message += &format!(" (of these: {})", parts.join(", "));
    }
    // Among several messages, the one that takes the most.
    let largest = (0..request.messages.len()).max_by_key(|&index| request.messages[index].content.len());
    if let Some(index) = largest.filter(|_| request.messages.len() > 1) {
        let mut messages = request.messages.to_vec();
        let large = &mut messages[index];
        let (role, name) = (large.role, large.name.clone());
        large.content.clear();
        if let Some(taken) = without(with_messages(messages)) {
            let whose = match (role, name) {
                (Role::Tool, Some(name)) => format!("the result of {name}"),
                (Role::Tool, None) => "a tool's result".to_owned(),
                (role, _) => format!("of role {}", role.as_str()),
            };
            message += &format!("; the largest message is messages[{index}], {whose}, with {taken}");
        }
    }
    let hint = if limit < engine.model().context_train {
        format!("a larger {} gives more room, up to what the model was trained for", Setting::Context)
    } else {
        "fewer tools, shorter descriptions or a shorter history make room".to_owned()
    };
    Error::new(ErrorKind::ContextOverflow, message).hint(hint)
}

/// A result, and the remarks after it: that it was cut before, that the call was made before.
fn parts(content: &str) -> (&str, &str) {
    let (unremarked, _) = remarks::without_advice(content);
    content.split_at(remarks::without_marks(unremarked).0.len())
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
