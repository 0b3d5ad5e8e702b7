//! Renders conversation and tools into the prompt format that a model was trained on.
//!
//! A chat template is a Jinja program that a model's publisher wrote for Python. With one extra space the model answers
//! worse, without any error, so the environment matches transformers' `apply_chat_template` to the byte. A template is
//! also untrusted code: it cannot loop forever, exhaust the memory or access a file.
//!
//! ```
//! use callwright_core::message::Message;
//! use callwright_core::template::{ChatTemplate, RenderRequest};
//!
//! let template = ChatTemplate::new("mine.jinja", "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}")?;
//! let messages = [Message::system("Be brief."), Message::user("Hello")];
//! let prompt = template.render(&RenderRequest::default().with(|set| set.messages = &messages))?;
//! assert_eq!(prompt.text(), "[system] Be brief.\n[user] Hello\n");
//! # Ok::<(), callwright_core::Error>(())
//! ```

mod adapt;
mod overlay;
pub(crate) mod probe;
mod reserved;
mod trials;
mod variables;
mod variants;

#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use self::{
    adapt::Adapted,
    overlay::{CallHistory, Overlay},
    probe::Capabilities,
    reserved::Reserved,
    variants::ChatTemplates,
};
#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) use minijinja_transformers::OUTPUT_LIMIT;

use crate::error::{Error, ErrorKind, Location, Result};
use crate::message::{Message, Role};
use crate::text_file;
use crate::tool::Tools;
use jiff::civil::DateTime;
use minijinja_transformers::{Placeholders, RenderOptions, Template};
use probe::Roles;
use reserved::Neutraliser;
use serde_json::Map;
use std::borrow::Cow;
use std::error::Error as _;
use std::fmt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use trials::Trials;
use variables::CallShape;

/// A compiled chat template.
pub struct ChatTemplate {
    name: String,
    jinja: Template,
    capabilities: OnceLock<Capabilities>,
    roles: OnceLock<Roles>,
    demanded: OnceLock<Map<String, serde_json::Value>>,
    trials: Trials,
    /// Cached results of what the template omits.
    runs: adapt::Runs,
    one_call: OnceLock<bool>,
    /// Whether it writes ids of calls.
    ids: OnceLock<bool>,
    rendered: AtomicUsize,
}

/// How often a template was rendered since it was compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "unstable", visibility::make(pub))]
pub(crate) struct Renders {
    /// Conversations that a caller gave.
    pub prompts: usize,
    /// Small or synthetic conversations that show what the template can write.
    pub trials: usize,
}

/// What to render.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RenderRequest<'a> {
    /// The conversation, oldest message first.
    pub messages: &'a [Message],
    /// The tools that the model may call.
    pub tools: Option<&'a Tools>,
    /// Whether the prompt ends with the header of the assistant's turn.
    pub add_generation_prompt: bool,
    /// The text of the model's token that begins a sequence.
    pub bos_token: &'a str,
    /// The text of the token that ends one.
    pub eos_token: &'a str,
    /// More variables, such as `enable_thinking`; they override the ones above.
    pub variables: Map<String, serde_json::Value>,
    /// The time for `strftime_now`; `None` for the current time.
    pub now: Option<DateTime>,
    /// Text that must not act as markup when it comes from outside.
    pub reserved: Option<&'a Reserved>,
    /// The tool-call format to overlay on a template that does not write tools itself.
    pub overlay: Option<Overlay<'a>>,
}

impl RenderRequest<'_> {
    /// This request after `set` has changed some of it.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }
}

/// A message with the tool names that the model uses.
fn as_called<'m>(message: &'m Message, request: &RenderRequest<'_>) -> Cow<'m, Message> {
    let Some(tools) = request.tools.filter(|tools| tools.has_aliases()) else { return Cow::Borrowed(message) };
    let mut message = message.clone();
    for call in &mut message.tool_calls {
        call.name = tools.called(&call.name).to_owned();
    }
    if message.role == Role::Tool {
        message.name = message.name.map(|name| tools.called(&name).to_owned());
    }
    Cow::Owned(message)
}

impl Default for RenderRequest<'_> {
    /// No messages, and a generation prompt.
    fn default() -> Self {
        RenderRequest {
            messages: &[],
            tools: None,
            add_generation_prompt: true,
            bos_token: "",
            eos_token: "",
            variables: Map::new(),
            now: None,
            reserved: None,
            overlay: None,
        }
    }
}

/// A piece of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The piece's text.
    pub text: String,
    /// Whether it is plain text: it must never be tokenised as a special token.
    pub literal: bool,
}

/// A rendered prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompt {
    /// The pieces in order.
    pub pieces: Vec<Piece>,
}

impl Prompt {
    /// The whole text.
    pub fn text(&self) -> String {
        self.pieces.iter().map(|piece| piece.text.as_str()).collect()
    }
}

impl ChatTemplate {
    /// Compiles `source`; `name` appears in errors: the file, or another origin.
    pub fn new(name: impl Into<String>, source: impl Into<String>) -> Result<ChatTemplate> {
        let (name, source) = (name.into(), source.into());
        Ok(ChatTemplate {
            jinja: Template::new(source.as_str()).map_err(|error| failure(error, &name, &source))?,
            name,
            capabilities: OnceLock::new(),
            roles: OnceLock::new(),
            demanded: OnceLock::new(),
            trials: Trials::default(),
            runs: adapt::Runs::default(),
            one_call: OnceLock::new(),
            ids: OnceLock::new(),
            rendered: AtomicUsize::new(0),
        })
    }

    /// Reads and compiles a file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<ChatTemplate> {
        let path = path.as_ref();
        ChatTemplate::new(path.display().to_string(), text_file::read(path)?)
    }

    /// The same template with another output limit, in bytes.
    #[must_use]
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn with_output_limit(mut self, bytes: usize) -> ChatTemplate {
        self.jinja = self.jinja.with_output_limit(bytes);
        self
    }

    /// Its name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The Jinja source.
    pub fn source(&self) -> &str {
        self.jinja.source()
    }

    /// Renders with exactly these variables.
    ///
    /// ```
    /// use callwright_core::template::ChatTemplate;
    /// let template = ChatTemplate::new("t", "{{ x }} {{ {'y': x} | tojson }}")?;
    /// assert_eq!(template.render_vars(&serde_json::json!({"x": true}), None)?, r#"True {"y": true}"#);
    /// # Ok::<(), callwright_core::Error>(())
    /// ```
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn render_vars(&self, variables: &serde_json::Value, now: Option<DateTime>) -> Result<String> {
        match variables {
            serde_json::Value::Object(map) => self.evaluate(map, now, Placeholders::default()),
            other => {
                let message = format!("the variables are {}; expected an object", crate::json::kind(other));
                Err(Error::new(ErrorKind::Template, message))
            }
        }
    }

    /// Returns what the template can write, determined by rendering it; the first call takes a few milliseconds.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn capabilities(&self) -> Capabilities {
        *self.capabilities.get_or_init(|| probe::capabilities(self))
    }

    /// Renders a conversation.
    ///
    /// With an overlay the template gets no tools and no calls, only text. Without one it gets the same variables
    /// as in transformers, and writes what it can.
    pub fn render(&self, request: &RenderRequest<'_>) -> Result<Prompt> {
        let nothing = Reserved::default();
        let sources =
            [self.source(), request.overlay.and_then(|overlay| overlay.section).map_or("", |section| section.source())];
        let neutraliser = Neutraliser::new(request.reserved.unwrap_or(&nothing), &sources);
        let has_calls = request.messages.iter().any(|message| !message.tool_calls.is_empty());
        let shape = match request.overlay {
            None if has_calls => self.capabilities().shape,
            _ => CallShape::default(),
        };
        let calls_as_json = request.overlay.is_some() || shape.text_arguments;
        let mut messages: Vec<Message> = request
            .messages
            .iter()
            .map(|message| neutraliser.message(&as_called(message, request), calls_as_json))
            .collect();
        let mut tools =
            request.tools.filter(|tools| !tools.is_empty()).map(|tools| neutraliser.outside(&tools.for_model()));
        let placeholders = neutraliser.placeholders();
        if let Some(overlay) = &request.overlay {
            let section = match overlay.section.and_then(|section| Some((section, tools.take()?))) {
                Some((section, tools)) => section.section(request, tools, placeholders.clone())?,
                None => String::new(),
            };
            messages = overlay.write(messages, &section, *self.roles.get_or_init(|| probe::roles(self)));
        }
        let mut variables = variables::variables(request, &messages, tools, shape);
        let text = match self.evaluate(&variables, request.now, placeholders.clone()) {
            Err(error) if !is_bound(&error) => {
                let supplied = self.supply(&mut variables, request.now);
                let listed = self.list_no_tools(&mut variables);
                match supplied || listed {
                    true => self
                        .evaluate(&variables, request.now, placeholders.clone())
                        .map_err(|again| if supplied { again } else { error })?,
                    false => return Err(error),
                }
            }
            result => result?,
        };
        let pieces =
            reserved::cut(text, &placeholders).into_iter().map(|(text, literal)| Piece { text, literal }).collect();
        Ok(Prompt { pieces })
    }

    /// Adds the variables without which the template fails, where their names say what they are; true if there are any.
    fn supply(&self, variables: &mut Map<String, serde_json::Value>, now: Option<DateTime>) -> bool {
        let demanded = self.demanded.get_or_init(|| probe::demanded(self));
        let Some(now) = now.or_else(minijinja_transformers::local_time).filter(|_| !demanded.is_empty()) else {
            return false;
        };
        let tools = variables.get("tools").cloned().unwrap_or_default();
        let missing: Vec<_> = demanded.iter().filter(|(name, _)| !variables.contains_key(*name)).collect();
        let supplied = missing.into_iter().filter_map(|(name, value)| {
            Some((name.clone(), variables::demanded(name, &tools, value.is_array(), now)?))
        });
        let before = variables.len();
        variables.extend(supplied);
        variables.len() > before
    }

    /// Makes no tools an empty list: some templates ask for its length.
    fn list_no_tools(&self, variables: &mut Map<String, serde_json::Value>) -> bool {
        let tools = variables.get_mut("tools").filter(|tools| tools.is_null());
        tools.map(|tools| *tools = serde_json::json!([])).is_some()
    }

    /// The variables that the template reads and nothing sets, apart from these.
    pub(crate) fn unset(&self, given: &Map<String, serde_json::Value>) -> Vec<String> {
        let demanded = self.demanded.get_or_init(|| probe::demanded(self));
        let is_set = |name: &String| {
            let supplied = || variables::demanded(name, &serde_json::Value::Null, false, DateTime::default()).is_some();
            given.contains_key(name) || demanded.contains_key(name) && supplied()
        };
        probe::missing_variables(self).into_iter().filter(|name| !is_set(name)).collect()
    }

    /// Renders something as a trial.
    ///
    /// # Errors
    /// Those of `render`; and, if earlier trials have shown that the template is unusable, their error.
    pub(crate) fn trial<T>(&self, render: impl FnOnce() -> Result<T>) -> Result<T> {
        self.trials.run(render)
    }

    /// Renders a short conversation as a trial, which shows what the template writes.
    ///
    /// # Errors
    /// Those of [`ChatTemplate::render`]; after another trial has shown that the template never ends, its error.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn render_trial(&self, request: &RenderRequest<'_>) -> Result<Prompt> {
        self.trial(|| self.render(request))
    }

    /// Renders this template as the tool section of a format.
    fn section(
        &self,
        request: &RenderRequest<'_>,
        tools: serde_json::Value,
        placeholders: Placeholders,
    ) -> Result<String> {
        let mut variables = Map::new();
        variables.insert("tools".into(), tools);
        variables.extend(request.variables.clone());
        self.evaluate(&variables, request.now, placeholders)
    }

    /// How often the template was rendered.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn renders(&self) -> Renders {
        let trials = self.trials.made();
        Renders { prompts: self.rendered.load(Ordering::Relaxed).saturating_sub(trials), trials }
    }

    fn evaluate(
        &self,
        variables: &Map<String, serde_json::Value>,
        now: Option<DateTime>,
        placeholders: Placeholders,
    ) -> Result<String> {
        self.rendered.fetch_add(1, Ordering::Relaxed);
        let rendered = self.jinja.render_with(variables, RenderOptions { now, placeholders });
        rendered.map_err(|error| failure(error, &self.name, self.source()))
    }
}

/// An error of a template as the library's own: with the template's name, and the line that it points at.
fn failure(error: minijinja_transformers::Error, name: &str, source: &str) -> Error {
    let converted = Error::new(ErrorKind::Template, error.message);
    let converted = match error.offset {
        Some(offset) => converted.marked(source, offset..offset).in_file(name),
        None => converted.at(Location::file(name)),
    };
    let converted = match error.hint {
        Some(hint) => converted.hint(hint),
        None => converted,
    };
    match error.source {
        Some(source) => converted.caused_by(source),
        None => converted,
    }
}

/// Whether a rendering ended at a limit, so that another one will too.
fn is_bound(error: &Error) -> bool {
    let kind = error.source().and_then(|cause| cause.downcast_ref()).map(minijinja_transformers::ErrorKind::of);
    kind == Some(minijinja_transformers::ErrorKind::Limit)
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("name", &self.name).field("source", &self.source()).finish_non_exhaustive()
    }
}
