//! The prompt of one answer: the conversation as the chat template writes it, and how the answer begins in it.

use super::context::Shown;
use super::{Options, Session, ToolChoice};
use crate::Result;
use crate::constraint::Mode;
use crate::engine::Token;
use crate::message::{Arguments, Message, Role, ToolCall};
use crate::template::{Adapted, ChatTemplate, Overlay, Piece, Prompt, RenderRequest};
use crate::tool::Tools;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The request for one answer.
#[derive(Clone)]
pub(crate) struct AnswerRequest {
    pub messages: Arc<Vec<Message>>,
    pub tools: Arc<Tools>,
    pub options: Options,
    /// When the answer is ended, if it has not by then.
    pub until: Option<Instant>,
}

impl AnswerRequest {
    pub(crate) fn new(messages: impl Into<Arc<Vec<Message>>>, tools: Arc<Tools>, options: Options) -> AnswerRequest {
        AnswerRequest { messages: messages.into(), tools, options, until: None }
    }

    /// The tools in the prompt.
    pub(crate) fn shown_tools(&self) -> Option<&Arc<Tools>> {
        (!self.tools.is_empty() && self.options.tool_choice != ToolChoice::None).then_some(&self.tools)
    }
}

/// A prompt as it is sent.
pub(crate) struct Written {
    pub prompt: Prompt,
    pub tokens: Vec<Token>,
    /// The messages as passed to the chat template.
    messages: Arc<Vec<Message>>,
    /// How the conversation was adapted for the chat template.
    pub adapted: Vec<String>,
    /// The prompt's text, with the beginning of the answer.
    pub text: String,
    /// The beginning of an answer, if the tool choice determines it.
    pub prefill: String,
    /// Whether the answer begins in reasoning.
    pub thinking: bool,
}

impl Written {
    /// The prompt's text without the beginning of the answer.
    fn before(&self) -> &str {
        &self.text[..self.text.len() - self.prefill.len()]
    }
}

/// A prompt that was written before its answer is generated, so that it is written once.
pub(crate) struct Prepared {
    request: AnswerRequest,
    written: Written,
}

impl Prepared {
    pub(crate) fn new(request: AnswerRequest, written: Written) -> Prepared {
        Prepared { request, written }
    }

    /// The prompt, if it is the one of this request.
    pub(crate) fn for_request(self, request: &AnswerRequest) -> Option<Written> {
        let (then, now) = (&self.request.options, &request.options);
        let same = Arc::ptr_eq(&self.request.messages, &request.messages)
            && Arc::ptr_eq(&self.request.tools, &request.tools)
            && then.tool_choice == now.tool_choice
            && (then.constrain == Mode::Off) == (now.constrain == Mode::Off)
            && then.max_preamble == now.max_preamble
            && then.now == now.now;
        same.then_some(self.written)
    }
}

/// The tails of prompts of short conversations, by whether there are tools and by the role of the last message.
pub(super) type Tails = RefCell<HashMap<(bool, Role), Option<String>>>;

impl Session {
    /// Writes the prompt of an answer.
    pub(crate) fn write(&self, request: &AnswerRequest, shown: Shown) -> Result<Written> {
        let Shown { messages, places } = shown;
        let template = self.templates.choose(request.shown_tools().is_some());
        let Adapted { mut prompt, messages: adapted_messages, notes, .. } =
            template.render_adapted(&self.render_request(request, &messages), &places)?;
        let mut text = prompt.text();
        let opened = self.opens_reasoning(&text);
        let prefill = self.prefill(&request.options, opened);
        if !prefill.is_empty() {
            text.push_str(&prefill);
            prompt.pieces.push(Piece { text: prefill.clone(), literal: false });
        }
        let tokens = self.engine.tokenize(&prompt.pieces)?;
        let messages = adapted_messages.map_or(messages, Arc::new);
        let thinking = opened && prefill.is_empty();
        Ok(Written { prompt, tokens, messages, adapted: notes, text, prefill, thinking })
    }

    /// The request, with one call where the chat template writes one call per turn.
    pub(super) fn limited(&self, request: &AnswerRequest) -> AnswerRequest {
        let mut limited = request.clone();
        if self.one_call(request) {
            limited.options.max_calls = Some(limited.options.max_calls.unwrap_or(1).min(1));
        }
        limited
    }

    /// Whether the chat template writes one call per turn, and calls may be made.
    pub(super) fn one_call(&self, request: &AnswerRequest) -> bool {
        let template = self.templates.choose(request.shown_tools().is_some());
        self.section.is_none()
            && request.shown_tools().is_some()
            && template.writes_one_call(&self.render_request(request, &[]))
    }

    /// Whether the chat template writes such a conversation at all.
    pub(super) fn renders(&self, request: &AnswerRequest, messages: &[Message]) -> bool {
        let template = self.templates.choose(request.shown_tools().is_some());
        template.render(&self.render_request(request, messages)).is_ok()
    }

    pub(super) fn render_request<'a>(
        &'a self,
        request: &'a AnswerRequest,
        messages: &'a [Message],
    ) -> RenderRequest<'a> {
        let model = self.engine.model();
        RenderRequest::default().with(|set| {
            set.messages = messages;
            set.tools = request.shown_tools().map(|tools| &**tools);
            set.bos_token = &model.bos;
            set.eos_token = &model.eos;
            set.now = request.options.now;
            set.reserved = Some(&self.reserved);
            set.overlay = (self.section.is_some() || self.calls_as_text)
                .then(|| Overlay { section: self.section.as_ref(), history: &*self.format });
            set.variables = self.variables.clone();
        })
    }

    /// What the prompt writes of the answer: the head of the assistant's turn, and reasoning that it opens.
    pub(super) fn prompt_tail(&self, request: &AnswerRequest, written: &Written) -> String {
        if self.format.reasoning.is_none() {
            return String::new();
        }
        let template = self.templates.choose(request.shown_tools().is_some());
        let text = written.before();
        if template.source().contains("add_generation_prompt") {
            if let Some(tail) = self.usual_tail(template, request, written).filter(|tail| text.ends_with(tail)) {
                return tail;
            }
            let render = self.render_request(request, &written.messages);
            let without = render.with(|set| set.add_generation_prompt = false);
            let Ok(without) = template.render(&without) else { return String::new() };
            let tail = after_common(text, &without.text());
            if !tail.is_empty() {
                return tail.to_owned();
            }
        }
        // A template that does not distinguish may always write the head after the last message.
        let last = written.messages.last().map_or("", |message| message.content.trim());
        let after = text.rsplit_once(last).filter(|_| !last.is_empty());
        after.map_or_else(String::new, |(_, tail)| tail.to_owned())
    }

    /// The tail of a short conversation that ends with a message of the same role, if it has one.
    fn usual_tail(&self, template: &ChatTemplate, request: &AnswerRequest, written: &Written) -> Option<String> {
        let role = written.messages.last()?.role;
        let key = (request.shown_tools().is_some(), role);
        if let Some(tail) = self.tails.borrow().get(&key) {
            return tail.clone();
        }
        let tail = short_conversation(role).and_then(|messages| {
            let with = self.render_request(request, &messages);
            let without = with.clone().with(|set| set.add_generation_prompt = false);
            let [with, without] = [with, without].map(|request| template.render_trial(&request));
            Some(after_common(&with.ok()?.text(), &without.ok()?.text()).to_owned())
        });
        let tail = tail.filter(|tail| !tail.is_empty());
        self.tails.borrow_mut().insert(key, tail.clone());
        tail
    }

    /// The beginning of an answer, if the tool choice determines it.
    ///
    /// Where the model may reason or talk first, the constraint writes it later.
    fn prefill(&self, options: &Options, reasoning: bool) -> String {
        let constrained = options.constrain != Mode::Off;
        if !self.engine.can_begin_answer() {
            return String::new();
        }
        if constrained && (options.max_preamble.is_some_and(|most| most > 0) || reasoning) {
            return String::new();
        }
        match &options.tool_choice {
            ToolChoice::Auto | ToolChoice::None => String::new(),
            ToolChoice::Required => self.format.opening(None),
            ToolChoice::Tool(name) => self.format.opening(Some(name)),
        }
    }

    /// Whether a prompt ends where reasoning has just begun.
    fn opens_reasoning(&self, prompt: &str) -> bool {
        let start = self.format.reasoning.as_ref().and_then(|around| around.start.text()).unwrap_or_default().trim();
        !start.is_empty() && prompt.trim_end().ends_with(start)
    }
}

/// The part of `text` from the first character that differs from `other`.
fn after_common<'t>(text: &'t str, other: &str) -> &'t str {
    let differs = text.char_indices().zip(other.chars()).find(|((_, a), b)| a != b).map(|((at, _), _)| at);
    &text[differs.unwrap_or(other.len().min(text.len()))..]
}

/// The shortest conversation that a model answers after a message of this role.
fn short_conversation(role: Role) -> Option<Vec<Message>> {
    const ID: &str = "call00001";
    match role {
        Role::User => Some(vec![Message::user("?")]),
        Role::Tool => {
            let arguments = Arguments::from_text("");
            let call = ToolCall { id: Some(ID.to_owned()), name: "probe".to_owned(), arguments };
            Some(vec![Message::user("?"), Message::calls(vec![call]), Message::tool(ID, "probe", "!")])
        }
        Role::System | Role::Assistant => None,
    }
}
