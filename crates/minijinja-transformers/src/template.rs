//! A compiled chat template, and rendering it.

use crate::budget::{Budget, SCOPE, Scope, TooLong};
use crate::desugar::{Desugared, desugar};
use crate::environment::environment;
use crate::error::Error;
use jiff::civil::DateTime;
use minijinja::{Environment, Value};
use serde_json::Map;
use std::sync::Arc;
use std::{fmt, io};

/// Maximum length of a prompt in bytes, unless [`Template::with_output_limit`] sets another.
pub const OUTPUT_LIMIT: usize = 64 << 20;

/// The name of the one template in an environment.
const NAME: &str = "chat";

/// A compiled chat template.
pub struct Template {
    source: String,
    desugared: Desugared,
    env: Environment<'static>,
    output_limit: usize,
}

/// What a rendering needs other than variables.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// The time for `strftime_now`; `None` for the current time.
    pub now: Option<DateTime>,
    /// Characters in the variables that take the place of other text.
    pub placeholders: Placeholders,
}

/// Characters that take the place of other text; none by default.
///
/// This is for text that must not act as markup, such as `<|im_end|>` in a user's message: put a character of the last plane
/// (from U+100000 on), which nobody uses in text, in its place, and put the text back, as plain text, when the prompt is
/// tokenised. Templates copy, trim and split such a character like any letter. `tojson` writes the text instead if escaping
/// changes it ([`json_escapes`]), because then it is markup no more.
///
/// [`json_escapes`]: crate::json_escapes
#[derive(Debug, Clone, Default)]
pub struct Placeholders {
    /// The code of the first of these characters.
    pub first: u32,
    /// The texts that it and the characters after it take the place of.
    pub originals: Vec<String>,
}

impl Placeholders {
    /// The text that a character takes the place of, if it is one of these.
    pub fn original(&self, c: char) -> Option<&str> {
        let index = (c as u32).checked_sub(self.first)? as usize;
        self.originals.get(index).map(String::as_str)
    }
}

/// The variables that transformers gives to every chat template: `messages`, `tools`, `documents` (none) and
/// `add_generation_prompt`.
///
/// transformers adds the texts of special tokens, such as `bos_token`, and what its caller passes, such as
/// `enable_thinking`.
pub fn variables(
    messages: serde_json::Value,
    tools: Option<serde_json::Value>,
    add_generation_prompt: bool,
) -> Map<String, serde_json::Value> {
    let mut variables = Map::new();
    variables.insert("messages".into(), messages);
    variables.insert("tools".into(), tools.unwrap_or_default());
    variables.insert("documents".into(), serde_json::Value::Null);
    variables.insert("add_generation_prompt".into(), add_generation_prompt.into());
    variables
}

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    /// What is wrong in the source, and where.
    pub fn new(source: impl Into<String>) -> Result<Template, Error> {
        let source = source.into();
        let desugared = desugar(&source).map_err(|(message, offset)| Error::syntax(message, &source, offset))?;
        let mut env = environment(desugared.uncounted);
        let compiled = env.add_template_owned(NAME, desugared.source.clone());
        let template = Template { source, desugared, env, output_limit: OUTPUT_LIMIT };
        match compiled {
            Ok(()) => Ok(template),
            Err(error) => Err(template.compile_error(error)),
        }
    }

    /// The error in the original source: rewriting may change how a mistake looks.
    fn compile_error(&self, error: minijinja::Error) -> Error {
        match environment(false).template_from_named_str(NAME, &self.source) {
            Err(error) => Error::of(error, &self.source, &Desugared::unchanged(&self.source)),
            Ok(_) => self.failure(error),
        }
    }

    /// The same template with another output limit, in bytes. A single text, and the values of the template together, are
    /// held to a small multiple of it.
    #[must_use]
    pub fn with_output_limit(mut self, bytes: usize) -> Template {
        self.output_limit = bytes;
        self
    }

    /// The source that it was compiled from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the names that the template reads and does not set, without the functions that every template has; sorted.
    pub fn undeclared_variables(&self) -> Vec<String> {
        let Ok(compiled) = self.env.get_template(NAME) else { return Vec::new() };
        let is_function = |name: &String| self.env.globals().any(|(global, _)| global == name);
        let mut names: Vec<String> =
            compiled.undeclared_variables(false).into_iter().filter(|name| !is_function(name)).collect();
        names.sort();
        names
    }

    /// Renders with exactly these variables; [`variables`] makes those of a conversation.
    ///
    /// # Errors
    /// What the template raises, what fails in it, or the limit at which it was ended.
    pub fn render(&self, variables: &Map<String, serde_json::Value>) -> Result<String, Error> {
        self.render_with(variables, RenderOptions::default())
    }

    /// Renders like [`Template::render`], at another time or with placeholders.
    ///
    /// # Errors
    /// Those of [`Template::render`].
    pub fn render_with(
        &self,
        variables: &Map<String, serde_json::Value>,
        options: RenderOptions,
    ) -> Result<String, Error> {
        let template = self.env.get_template(NAME).map_err(|error| self.failure(error))?;
        let items = variables.values().filter_map(|value| value.as_array()).map(Vec::len).sum();
        let scope = Arc::new(Scope { budget: Budget::new(self.output_limit, items), options });
        let entries = variables.iter().map(|(name, value)| (name.clone(), Value::from_serialize(value)));
        let context: Value = entries.chain([(SCOPE.to_owned(), Value::from_dyn_object(Arc::clone(&scope)))]).collect();
        let mut output = Output { bytes: Vec::new(), limit: self.output_limit };
        let rendered = template.render_captured_to(context, &mut output);
        let rendered = match scope.budget.lateness() {
            // The output of loops that were stopped early is not used.
            Some(late) => Err(rendered.err().filter(|error| error.detail() == late.detail()).unwrap_or(late)),
            None => rendered.map(drop),
        };
        rendered.map_err(|error| self.failure(error))?;
        // Templates write only text, so this is lossless.
        Ok(String::from_utf8(output.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    fn failure(&self, error: minijinja::Error) -> Error {
        Error::of(error, &self.source, &self.desugared)
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Output that stops the template when it is too long.
struct Output {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.limit {
            return Err(io::Error::other(TooLong { limit: self.limit }));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
