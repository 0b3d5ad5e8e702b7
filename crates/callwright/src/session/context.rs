//! Context-window management: truncation and reuse of the KV cache.

use super::ContextPolicy;
use super::prompt::{AnswerRequest, Prepared, PromptWriter, Written};
use super::record::Recording;
use super::results::{self, Shortened, Shortener};
use crate::engine::{Engine, Token, common};
use crate::message::{Arguments, Message, Role};
use crate::setting::Setting;
use crate::tool::Tools;
use crate::{Error, ErrorKind, Result};
use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// How many bytes an old result is shortened to.
const SHORT: usize = 200;
/// After so many estimates of how much fits, what is left is halved.
const ESTIMATES: usize = 6;
/// Tools that take this part of the context are reported: a quarter.
const LARGE: usize = 4;
/// So few tools are not reported.
const FEW: usize = 8;

/// The prompts of a session: what writes them, what they show of the conversation, and what is known of them.
pub(crate) struct Prompts {
    pub(super) writer: PromptWriter,
    cuts: Cuts,
    /// Whether calls of the tool that reads results are answered.
    pub(crate) reads: bool,
    /// Whether the model is asked for an answer after results.
    pub(crate) asks_for_answers: bool,
    /// The last tools that the tool that reads results was added to, and both.
    with_reader: RefCell<Option<(Arc<Tools>, Arc<Tools>)>>,
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
    results: BTreeMap<usize, Shortened>,
    dropped: BTreeSet<usize>,
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
            reads: false,
            asks_for_answers: false,
            with_reader: RefCell::default(),
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

    /// The messages as the model is shown them.
    pub(crate) fn shown(&self, messages: &Arc<Vec<Message>>) -> Arc<Vec<Message>> {
        self.cuts.shown(Arc::clone(messages)).messages
    }

    /// Adds the tool that reads results to the tools of a prompt in which some are shortened, if its calls are answered. `all`
    /// are the tools that there are, the same each time.
    pub(super) fn with_reader(&self, shown: Arc<Tools>, all: &Tools, context: usize) -> Arc<Tools> {
        if !self.reads || self.cuts.results.is_empty() || !results::has_room(context) {
            return shown;
        }
        let name = results::reader_name(all);
        if shown.get(&name).is_some() {
            return shown;
        }
        let mut last = self.with_reader.borrow_mut();
        match &*last {
            Some((without, with)) if Arc::ptr_eq(without, &shown) => Arc::clone(with),
            _ => {
                // They were read before, and the name is free.
                let with = Tools::new(shown.iter().cloned().chain([results::reader(&name)])).unwrap_or_default();
                let with = Arc::new(with);
                *last = Some((shown, Arc::clone(&with)));
                with
            }
        }
    }

    /// Writes the prompt of an answer: the conversation without what was cut, with ids that the template takes.
    pub(super) fn write(&self, engine: &dyn Engine, request: &AnswerRequest) -> Result<Written> {
        let messages = self.writer.with_other_ids(request).map_or_else(|| Arc::clone(&request.messages), Arc::new);
        let mut shown = self.cuts.shown(messages);
        if self.asks_for_answers {
            results::ask_for_answers(&mut shown, &request.tools);
        }
        self.writer.write(engine, request, shown)
    }

    /// The prompt of an answer, cut where that is needed and allowed, and what was cut in words. The request gets the tool that
    /// reads results where some are shortened; `tools` are all that there are.
    pub(super) fn fit(
        &mut self,
        engine: &dyn Engine,
        recording: &mut Recording,
        request: &mut AnswerRequest,
        tools: &Tools,
    ) -> Result<(Written, Vec<String>)> {
        let limit = engine.context_limit();
        // A large limit of tokens is not a wish: a quarter of the context is room enough.
        let answer = request.options.max_tokens.min(limit / 4).max(1);
        let before = self.cuts.clone();
        let written = match self.prepared.take().and_then(|prepared| prepared.of(request)) {
            Some(written) => written,
            None => self.write(engine, request)?,
        };
        let mut fitting = Fitting { engine, recording, request, tools, most: limit.saturating_sub(answer), written };
        let mut turns = Vec::new();
        if !fitting.fits() && fitting.request.options.context == ContextPolicy::Shorten {
            turns = self.cut(&mut fitting, &before)?;
        }
        let Fitting { recording, request, written, .. } = fitting;
        let tokens = written.tokens.len();
        if tokens >= limit {
            recording.measured(&written.text, tokens)?;
            let shown = std::mem::replace(&mut self.cuts, before).shown(Arc::clone(&request.messages));
            return Err(overflow(&self.writer, engine, request, &shown, tokens));
        }
        let notes = self.cuts.notes(&before, &request.messages, turns);
        Ok((written, notes))
    }

    /// Leaves out of a prompt what does not fit: most of old results, of the last results what is more than half of the context,
    /// whole old turns, and more of the last results. Returns the turns.
    fn cut(&mut self, fitting: &mut Fitting<'_>, before: &Cuts) -> Result<Vec<Range<usize>>> {
        let messages = Arc::clone(&fitting.request.messages);
        let limit = fitting.engine.context_limit();
        let reads = self.reads && results::has_room(limit);
        let mut shortener = Shortener::new(&messages, limit, reads.then(|| results::reader_name(fitting.tools)));
        let question = messages.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
        let last_calls = messages.iter().rposition(|message| !message.tool_calls.is_empty()).unwrap_or(0);
        let is_result = |index: &usize| messages[*index].role == Role::Tool;
        for index in (0..last_calls).filter(is_result) {
            let shown = before.length(&messages, index);
            if shown > SHORT * 2
                && !self.cuts.dropped.contains(&index)
                && self.cuts.shorten(&mut shortener, index, SHORT)
            {
                self.write_again(fitting)?;
            }
            if fitting.fits() {
                return Ok(Vec::new());
            }
        }
        let results = (last_calls..messages.len()).filter(is_result);
        let mut last =
            LastResults { shortener, longest: results.map(|index| (index, before.length(&messages, index))).collect() };
        // In the bytes that its tokens have.
        let half = limit * fitting.written.text.len() / (2 * fitting.written.tokens.len().max(1));
        let share = (half / last.longest.len().max(1)).max(SHORT);
        let mut level = last.most();
        if level > share {
            level = share;
            last.shorten(&mut self.cuts, level);
            self.write_again(fitting)?;
        }
        let mut turns = Vec::new();
        while !fitting.fits()
            && let Some(range) = self.cuts.oldest_turn(&messages, question, last_calls)
        {
            self.cuts.dropped.extend(range.clone().filter(|&index| messages[index].role != Role::System));
            turns.push(range);
            self.write_again(fitting)?;
        }
        if !fitting.fits() || level < last.most() {
            self.fill(fitting, &mut last, level)?;
        }
        Ok(turns)
    }

    /// Shows as much of the last results as fits. The prompt has at most `level` bytes of each now.
    fn fill(&mut self, fitting: &mut Fitting<'_>, last: &mut LastResults<'_>, mut level: usize) -> Result<()> {
        // The highest level that fits, and the lowest that does not.
        let (mut low, mut high) = (SHORT, last.most() + 1);
        // What they show, and the prompt of the one that fits.
        let (mut at_low, mut at_high, mut fitted) = (None, None, None);
        let mut measured = 0;
        loop {
            measured += 1;
            let fits = fitting.fits();
            let shown = Some(self.cuts.results.clone());
            let mut estimate = Some(fitting.estimate(level, last.longest.len())).filter(|_| measured <= ESTIMATES);
            match fits {
                true => (low, at_low) = (level, shown),
                false => (high, at_high) = (level, shown),
            }
            // The next level that shows something else.
            while low + 1 < high {
                let is_between = |level: &usize| (low + 1..high).contains(level);
                level = estimate.take().filter(is_between).unwrap_or(low + (high - low) / 2);
                last.shorten(&mut self.cuts, level);
                let shown = Some(&self.cuts.results);
                if shown == at_low.as_ref() {
                    low = level;
                } else if shown == at_high.as_ref() {
                    high = level;
                } else {
                    break;
                }
            }
            if low + 1 >= high {
                break;
            }
            let written = self.write_again(fitting)?;
            if fits {
                fitted = Some(written);
            }
        }
        match at_low {
            None => {
                last.shorten(&mut self.cuts, SHORT);
                self.write_again(fitting)?;
            }
            Some(shown) => {
                self.cuts.results = shown;
                if let Some(fitted) = fitted.filter(|_| !fitting.fits()) {
                    fitting.replace(fitted)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the prompt with what is cut now, and returns the one before.
    fn write_again(&self, fitting: &mut Fitting<'_>) -> Result<Written> {
        let limit = fitting.engine.context_limit();
        fitting.request.tools = self.with_reader(Arc::clone(&fitting.request.tools), fitting.tools, limit);
        fitting.replace(self.write(fitting.engine, fitting.request)?)
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

/// A prompt that is to fit.
struct Fitting<'a> {
    engine: &'a dyn Engine,
    recording: &'a mut Recording,
    request: &'a mut AnswerRequest,
    /// All tools that there are.
    tools: &'a Tools,
    /// At most so many tokens leave room for the answer.
    most: usize,
    written: Written,
}

impl Fitting<'_> {
    fn fits(&self) -> bool {
        self.written.tokens.len() <= self.most
    }

    /// Replaces the prompt, and returns the one before.
    fn replace(&mut self, written: Written) -> Result<Written> {
        self.recording.measured(&self.written.text, self.written.tokens.len())?;
        Ok(std::mem::replace(&mut self.written, written))
    }

    /// How many bytes of each of the last results may fit, where the prompt has `level` bytes of each.
    fn estimate(&self, level: usize, results: usize) -> usize {
        let (bytes, tokens) = (self.written.text.len(), self.written.tokens.len().max(1));
        let change = self.most.abs_diff(tokens) * bytes / tokens / results.max(1);
        if self.fits() { level + change } else { level.saturating_sub(change) }
    }
}

/// The results of the last answer's calls.
struct LastResults<'m> {
    shortener: Shortener<'m>,
    /// How many bytes of each may be shown at most, by the messages' indices.
    longest: BTreeMap<usize, usize>,
}

impl LastResults<'_> {
    fn most(&self) -> usize {
        self.longest.values().copied().max().unwrap_or(0)
    }

    /// Has at most so many bytes of each shown.
    fn shorten(&mut self, cuts: &mut Cuts, level: usize) {
        for (&index, &longest) in &self.longest {
            cuts.results.remove(&index);
            cuts.shorten(&mut self.shortener, index, level.min(longest));
        }
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
            if let Some(cut) = self.results.get(index) {
                message.content.clone_from(&cut.content);
            }
            message
        });
        Shown { messages: Arc::new(shown.collect()), places }
    }

    /// How many bytes of a result are shown at most.
    fn length(&self, messages: &[Message], index: usize) -> usize {
        self.results.get(&index).map_or(messages[index].content.len(), |cut| cut.most)
    }

    /// Has at most so many bytes of a result shown. Returns whether that is less than all.
    fn shorten(&mut self, shortener: &mut Shortener<'_>, index: usize, most: usize) -> bool {
        let shortened = shortener.shorten(index, most);
        let is_shorter = shortened.is_some();
        self.results.extend(shortened.map(|shortened| (index, shortened)));
        is_shorter
    }

    /// Says what was cut in addition to what was cut before.
    fn notes(&self, before: &Cuts, messages: &[Message], turns: Vec<Range<usize>>) -> Vec<String> {
        let is_new = |(index, cut): &(&usize, &Shortened)| {
            !self.dropped.contains(index) && before.results.get(index).is_none_or(|before| before != *cut)
        };
        let results = self.results.iter().filter(is_new).map(|(&index, Shortened { left_out, .. })| {
            let name = messages[index].name.as_deref().unwrap_or("a tool");
            let note = format!(
                "the model is not shown {left_out} of the result of {name} in messages[{index}]: the prompt would not fit"
            );
            (index, note)
        });
        let turns = turns.into_iter().map(|range| {
            let (first, last) = (range.start, range.end - 1);
            let note = format!(
                "messages[{first}] to messages[{last}] are not shown to the model any more: the prompt would not fit"
            );
            (first, note)
        });
        let mut notes: Vec<(usize, String)> = results.chain(turns).collect();
        notes.sort();
        notes.into_iter().map(|(_, note)| note).collect()
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

/// The error that the prompt does not fit, with what takes its tokens of what it shows.
fn overflow(
    writer: &PromptWriter,
    engine: &dyn Engine,
    request: &AnswerRequest,
    shown: &Shown,
    tokens: usize,
) -> Error {
    let limit = engine.context_limit();
    let messages = &shown.messages;
    let request = AnswerRequest { messages: Arc::clone(messages), ..request.clone() };
    // Each part is what the prompt is shorter by without it; a template may refuse to do without.
    let without = |less: AnswerRequest| {
        let shown = Shown { messages: Arc::clone(&less.messages), places: Vec::new() };
        let left = writer.write(engine, &less, shown).ok()?.tokens.len();
        tokens.checked_sub(left).filter(|taken| *taken > 0)
    };
    let with_messages = |messages: Vec<Message>| AnswerRequest { messages: Arc::new(messages), ..request.clone() };
    let (system, others): (Vec<Message>, Vec<Message>) =
        messages.iter().cloned().partition(|message| message.role == Role::System);
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
    if let Some((place, largest)) = largest(shown) {
        let mut messages = messages.to_vec();
        messages[place].content.clear();
        if let Some(taken) = without(with_messages(messages)) {
            message += &format!("; {largest} with {taken}");
        }
    }
    let hint = if limit < engine.model().context_train {
        format!("a larger {} gives more room, up to what the model was trained for", Setting::Context)
    } else {
        "fewer tools, shorter descriptions or a shorter history make room".to_owned()
    };
    Error::new(ErrorKind::ContextOverflow, message).hint(hint)
}

/// The place of the largest of several messages, and which it is.
pub(super) fn largest(shown: &Shown) -> Option<(usize, String)> {
    let Shown { messages, places } = shown;
    let place = (0..messages.len()).max_by_key(|&place| messages[place].content.len());
    let place = place.filter(|_| messages.len() > 1)?;
    let whose = match (messages[place].role, &messages[place].name) {
        (Role::Tool, Some(name)) => format!("the result of {name}"),
        (Role::Tool, None) => "a tool's result".to_owned(),
        (role, _) => format!("of role {}", role.as_str()),
    };
    let index = places.get(place).unwrap_or(&place);
    Some((place, format!("the largest message is messages[{index}], {whose},")))
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
