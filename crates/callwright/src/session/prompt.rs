//! The prompt of one answer: the conversation as the chat template writes it, and how the answer begins in it.

use super::context::{Shown, largest};
use super::ids::Ids;
use super::untrained;
use super::{ContextPolicy, Options, ToolChoice};
use crate::choose::{Choice, Clues, Origin, Writes, format_for};
use crate::constraint::Mode;
use crate::engine::{Engine, ModelInfo, Token, check_length};
use crate::format::Format;
use crate::message::{Arguments, Message, Role, ToolCall};
use crate::setting::Setting;
use crate::template::{Adapted, ChatTemplate, ChatTemplates, Overlay, Piece, Prompt, RenderRequest, Reserved};
use crate::tool::Tools;
use crate::{Error, Result};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The request for one answer.
#[derive(Clone)]
pub struct AnswerRequest {
    /// The conversation.
    pub messages: Arc<Vec<Message>>,
    /// The tools that the model may call.
    pub tools: Arc<Tools>,
    /// How it answers.
    pub options: Options,
    /// When the answer is ended, if it has not by then.
    pub until: Option<Instant>,
    /// The ids of calls in answers that were dropped: events had them.
    pub dropped: Vec<String>,
}

impl AnswerRequest {
    pub(crate) fn new(messages: impl Into<Arc<Vec<Message>>>, tools: Arc<Tools>, options: Options) -> AnswerRequest {
        AnswerRequest { messages: messages.into(), tools, options, until: None, dropped: Vec::new() }
    }

    /// The same request with other tools.
    pub(super) fn with_tools(&self, tools: Arc<Tools>) -> AnswerRequest {
        AnswerRequest { tools, ..self.clone() }
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
    pub request: AnswerRequest,
    pub written: Written,
}

impl Prepared {
    /// The prompt, if it is the one of this request.
    pub(super) fn of(self, request: &AnswerRequest) -> Option<Written> {
        let (then, now) = (&self.request.options, &request.options);
        let same = Arc::ptr_eq(&self.request.messages, &request.messages)
            && Arc::ptr_eq(&self.request.tools, &request.tools)
            && then.tool_choice == now.tool_choice
            && then.prefill == now.prefill
            && (then.constrain == Mode::Off) == (now.constrain == Mode::Off)
            && then.max_preamble == now.max_preamble
            && then.now == now.now;
        same.then_some(self.written)
    }
}

/// Writes a session's prompts: with the chat template, and with the format where the template does not write it.
pub(crate) struct PromptWriter {
    templates: ChatTemplates,
    pub(super) format: Arc<Format>,
    /// The format's tool section, for a chat template that does not write tools in this format by itself.
    pub(super) section: Option<ChatTemplate>,
    /// Whether past calls are written as text, for a chat template that writes the tools, but no calls.
    calls_as_text: bool,
    /// What the chat template is given; at first what makes it write the format, where it knows several.
    pub(super) variables: Map<String, Value>,
    reserved: Reserved,
    /// The texts of the tokens that begin and end a sequence.
    bos: String,
    eos: String,
    /// The tails of prompts of short conversations, by whether there are tools and by the role of the last message.
    tails: RefCell<HashMap<(bool, Role), Option<String>>>,
    ids: Ids,
}

impl PromptWriter {
    /// Returns what writes the prompts of a model with these templates, and what is worth knowing of that once there
    /// are tools. Without a format it is the one that fits the template: see [`format_for`].
    pub(super) fn new(
        engine: &dyn Engine,
        templates: ChatTemplates,
        format: Option<Format>,
    ) -> Result<(PromptWriter, Vec<String>)> {
        let model = engine.model();
        let template = templates.choose(true);
        let is_token = |text: &str| untrained::is_token(engine, text);
        let clues = Clues { architecture: &model.architecture, is_token: Some(&is_token) };
        let choice = format_for(template, format, clues)?;
        tracing::info!("tools and calls: {}", choice.describe());
        let Choice { format, writes, origin, mut notices, .. } = choice;
        if templates.is_built_in() && origin == Origin::Default {
            // The notice of the session says so.
            notices.clear();
        } else if origin == Origin::Default {
            notices.iter_mut().for_each(|notice| *notice += &format!(" ({})", Setting::AnotherFormat));
        }
        notices.extend(untrained::notice(engine, &format));
        let section = match writes {
            Writes::Section => Some(ChatTemplate::new(format!("{}.jinja", format.name), format.source())?),
            _ => None,
        };
        let calls_as_text = writes == Writes::Calls;
        let variables = if let Writes::Template(variables) = writes { variables } else { Map::new() };
        let overlaid = section.is_some() || calls_as_text;
        let writer = PromptWriter {
            reserved: reserved(model, template, &format, overlaid)?,
            templates,
            format: Arc::new(format),
            section,
            calls_as_text,
            variables,
            bos: model.bos.clone(),
            eos: model.eos.clone(),
            tails: RefCell::default(),
            ids: Ids::default(),
        };
        Ok((writer, notices))
    }

    /// The chat template of prompts with tools, or of those without.
    pub(super) fn template(&self, with_tools: bool) -> &ChatTemplate {
        self.templates.choose(with_tools)
    }

    /// The chat template of a request's prompt.
    fn template_for(&self, request: &AnswerRequest) -> &ChatTemplate {
        self.template(request.shown_tools().is_some())
    }

    /// Gives the chat template variables, and reports those that it does not read. Where it has only `enable_thinking`, a
    /// `reasoning_effort` of `none` sets that.
    pub(super) fn set_variables(&mut self, mut variables: Map<String, Value>) -> Option<String> {
        let sources = [false, true].map(|with_tools| self.template(with_tools).source());
        let reads = |name: &str| sources.iter().any(|text| text.contains(name));
        let (effort, switch) = ("reasoning_effort", "enable_thinking");
        let switched_off = variables.get(effort).is_some_and(|effort| effort == "none");
        if switched_off && !reads(effort) && reads(switch) {
            variables.shift_remove(effort);
            variables.entry(switch).or_insert(Value::Bool(false));
        }
        let unread: Vec<&str> = variables.keys().map(String::as_str).filter(|name| !reads(name)).collect();
        let name = self.template(false).name();
        let notice =
            (!unread.is_empty()).then(|| format!("the chat template {name} does not use {}", unread.join(", ")));
        self.tails.borrow_mut().clear();
        // The variables that make the template write the format must not change.
        for (name, value) in variables {
            self.variables.entry(name).or_insert(value);
        }
        notice
    }

    /// Reports that the prompt has nothing of the tools in it, if that is so.
    pub(super) fn missing_tools(&self, tools: &Arc<Tools>, options: &Options) -> Option<String> {
        if tools.is_empty() {
            return None;
        }
        // Some templates write them only next to a system message.
        let conversations = [vec![Message::user("?")], vec![Message::system("?"), Message::user("?")]];
        let options = Options { tool_choice: ToolChoice::Auto, ..options.clone() };
        let request = AnswerRequest::new(Vec::new(), Arc::clone(tools), options);
        let prompts = conversations.iter().filter_map(|messages| {
            Some(self.template(true).render(&self.render_request(&request, messages)).ok()?.text())
        });
        let mut prompts = prompts.peekable();
        let has_tools = |prompt: String| tools.iter().any(|tool| prompt.contains(tool.called()));
        let missing = prompts.peek().is_some() && !prompts.any(has_tools);
        missing.then(|| match &self.section {
            Some(section) => format!(
                "{}: the prompt does not have the tools: the section that writes them, below the declaration, has none",
                section.name()
            ),
            None => format!("{}: it does not tell the model of the tools", self.template(true).name()),
        })
    }

    /// The messages with ids that the chat template takes, if it does not take those that they have.
    pub(super) fn with_other_ids(&self, request: &AnswerRequest) -> Option<Vec<Message>> {
        self.ids.replaced(&request.messages, &self.format, |messages| {
            let written = self.template_for(request).render(&self.render_request(request, messages));
            written.ok().map(|prompt| prompt.text())
        })
    }

    /// Writes the prompt of an answer.
    pub(super) fn write(&self, engine: &dyn Engine, request: &AnswerRequest, shown: Shown) -> Result<Written> {
        let Shown { messages, places } = &shown;
        let Adapted { mut prompt, messages: adapted_messages, notes, .. } =
            self.template_for(request).render_adapted(&self.render_request(request, messages), places)?;
        let mut text = prompt.text();
        let opened = self.opens_reasoning(&text);
        let prefill = if engine.server().is_none_or(|server| server.can_begin_answer()) {
            self.prefill(&request.options, opened)
        } else {
            String::new()
        };
        if !prefill.is_empty() {
            text.push_str(&prefill);
            // What a user begins an answer with is no markup.
            let markup = prefill.strip_suffix(begun(&request.options)).unwrap_or(&prefill);
            let pieces =
                [(markup, false), (&prefill[markup.len()..], true)].into_iter().filter(|(text, _)| !text.is_empty());
            prompt.pieces.extend(pieces.map(|(text, literal)| Piece { text: text.to_owned(), literal }));
        }
        if request.options.context == ContextPolicy::Error {
            check_length(engine, text.len()).map_err(|error| {
                let Some((place, largest)) = largest(&shown) else { return error };
                let bytes = messages[place].content.len();
                Error::new(error.kind(), format!("{}; {largest} with {bytes} bytes", error.message()))
                    .hint(error.hint_text().unwrap_or_default())
            })?;
        }
        let tokens = engine.tokenize(&prompt.pieces)?;
        let messages = adapted_messages.map_or(shown.messages, Arc::new);
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

    /// Returns whether the chat template writes one call per turn, and calls may be made.
    pub(super) fn one_call(&self, request: &AnswerRequest) -> bool {
        self.section.is_none()
            && request.shown_tools().is_some()
            && self.template_for(request).writes_one_call(&self.render_request(request, &[]))
    }

    fn render_request<'a>(&'a self, request: &'a AnswerRequest, messages: &'a [Message]) -> RenderRequest<'a> {
        RenderRequest::default().with(|set| {
            set.messages = messages;
            set.tools = request.shown_tools().map(|tools| &**tools);
            set.bos_token = &self.bos;
            set.eos_token = &self.eos;
            set.now = request.options.now;
            set.reserved = Some(&self.reserved);
            set.overlay = (self.section.is_some() || self.calls_as_text)
                .then(|| Overlay { section: self.section.as_ref(), history: &*self.format });
            set.variables = self.variables.clone();
        })
    }

    /// What follows a prompt in a conversation whose next message has these calls. Where the chat template writes it otherwise
    /// than the prompt begins it, it is the calls in the format.
    pub(super) fn written_calls(&self, request: &AnswerRequest, written: &Written, calls: &[ToolCall]) -> String {
        let mut messages = written.messages.to_vec();
        messages.push(Message::calls(calls.to_vec()));
        let render = self.render_request(request, &messages).with(|set| set.add_generation_prompt = false);
        let whole = self.template_for(request).render(&render).ok().map(|prompt| prompt.text());
        let after = whole.as_deref().and_then(|text| text.strip_prefix(written.before()));
        after.filter(|text| !text.trim().is_empty()).map_or_else(|| self.format.write_calls(calls), str::to_owned)
    }

    /// Returns what the prompt writes of the answer: the head of the assistant's turn, and reasoning that it opens.
    pub(super) fn prompt_tail(&self, request: &AnswerRequest, written: &Written) -> String {
        if self.format.reasoning.is_none() {
            return String::new();
        }
        let template = self.template_for(request);
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
        if begun(options).is_empty() && constrained && (options.max_preamble.is_some_and(|most| most > 0) || reasoning)
        {
            return String::new();
        }
        match &options.tool_choice {
            ToolChoice::Auto | ToolChoice::None if reasoning && !begun(options).is_empty() => {
                let end = self.format.reasoning.as_ref().and_then(|around| around.end.text()).unwrap_or_default();
                end.to_owned() + begun(options)
            }
            ToolChoice::Auto | ToolChoice::None => begun(options).to_owned(),
            ToolChoice::Required => self.format.opening(None),
            ToolChoice::Tool(name) => self.format.opening(Some(name)),
        }
    }

    /// Returns whether a prompt ends where reasoning has just begun.
    fn opens_reasoning(&self, prompt: &str) -> bool {
        let start = self.format.reasoning.as_ref().and_then(|around| around.start.text()).unwrap_or_default().trim();
        !start.is_empty() && prompt.trim_end().ends_with(start)
    }
}

/// The text that the user begins the answer with. A required call leaves no room for one.
fn begun(options: &Options) -> &str {
    match options.tool_choice {
        ToolChoice::Auto | ToolChoice::None => options.prefill.as_deref().unwrap_or_default(),
        _ => "",
    }
}

/// Returns what must not be taken for markup where it is in a text: the model's control tokens, and what the template
/// and the format write.
fn reserved(model: &ModelInfo, template: &ChatTemplate, format: &Format, overlaid: bool) -> Result<Reserved> {
    // User-defined tokens are markup only where the template or the format writes them: others are mere
    // abbreviations, such as the HTML tags in some vocabularies.
    let written = |token: &&String| {
        template.source().contains(token.as_str()) || format.reserved().any(|marker| marker == token.as_str())
    };
    let user_defined: Vec<String> = model.user_defined_tokens.iter().filter(written).cloned().collect();
    let marks = overlaid.then(|| format.history.marks()).into_iter().flatten();
    let markers: Vec<String> = format.reserved().chain(marks).map(str::to_owned).collect();
    Reserved::new(model.control_tokens.clone(), user_defined, markers)
}

/// Returns what the user should know of the templates of a model.
pub(super) fn notices(model: &ModelInfo, templates: &ChatTemplates) -> Vec<String> {
    let mut notices = Vec::new();
    if templates.is_built_in() {
        notices.push(format!(
            "{} has no chat template; the prompt is written as {} ({} gives another)",
            model.name,
            if templates.choose(false).source().contains("<|im_start|>") { "ChatML" } else { "plain text" },
            Setting::Template
        ));
    }
    let plain = templates.choose(false);
    let messages = [Message::user("What is it?")];
    let request = RenderRequest::default().with(|set| {
        set.messages = &messages;
        set.bos_token = &model.bos;
        set.eos_token = &model.eos;
    });
    if plain.render(&request).is_ok_and(|prompt| !prompt.text().contains(&messages[0].content)) {
        notices.push(format!("{}: it leaves out what the user says", plain.name()));
    }
    notices
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
