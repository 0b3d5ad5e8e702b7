//! Grammars for calls, from the same declaration that the parser uses.
//!
//! A grammar is in llguidance's dialect of Lark, with JSON Schemas inside. It begins right after the marker that opens
//! a call (or a section of calls), where the constraint takes over. Names are those of the tools, arguments fit their
//! schemas, and markers are written as declared. The parser reads whatever the grammar accepts, without repairs.

pub mod budget;
mod fit;
mod flat;
mod gbnf;
mod json;
mod lark;
mod limits;
mod native;
mod references;
mod rules;
mod schema;
mod tagged;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{Declaration, Format, Head, JsonCall, Marker, NamedCall, Payload};
use crate::schema::{concerns, restricts};
use crate::tool::Tool;
use fit::Fitted;
use rules::{Rules, literal};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Deref;
use std::path::Path;

pub use crate::schema::says_nothing;
pub use budget::Ended;
pub use json::json_grammar;
pub use lark::{is_large, prepared};
pub use limits::{LIMITS, Limits, beyond};

/// A part of a schema that the grammar does not enforce. It is checked after parsing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct Unenforced {
    /// The tool with that schema; `None` for a schema without a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The place in the schema, from `$`.
    pub path: String,
    /// The keyword that is dropped.
    pub keyword: String,
    /// Why the whole tool is left out of the grammar, if it is: no arguments fit its schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// Which of the [`Limits`] it is beyond, if it could be enforced otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

impl Unenforced {
    /// A keyword at a place of a schema.
    pub(super) fn at(path: &str, keyword: &str) -> Unenforced {
        Unenforced { tool: None, path: path.to_owned(), keyword: keyword.to_owned(), left_out: None, limit: None }
    }
}

impl fmt::Display for Unenforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.left_out {
            return write!(f, "{why}; the grammar has no call of it");
        }
        let whose = self.tool.as_deref().map_or(String::new(), |tool| format!("{tool}: "));
        write!(f, "{whose}{:?} at {} is not enforced while generating, only checked", self.keyword, self.path)?;
        self.limit.as_ref().map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

/// A grammar, and the parts of the schemas that it does not enforce.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grammar {
    /// The grammar's text, in llguidance's dialect of Lark.
    pub lark: String,
    /// What is not enforced.
    pub unenforced: Vec<Unenforced>,
    /// The schema that the whole answer must fit, if it is JSON.
    pub schema: Option<Value>,
}

impl Grammar {
    /// Reads a user's grammar: llguidance's Lark, or GBNF, llama.cpp's notation. It is GBNF if `::=` follows the first
    /// name.
    ///
    /// ```
    /// use callwright_core::grammar::Grammar;
    ///
    /// let grammar = Grammar::from_text("root ::= \"yes\" | \"no\"")?;
    /// assert!(grammar.lark.starts_with("start: "));
    /// # Ok::<(), callwright_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`] with line and column if the text is neither.
    pub fn from_text(text: &str) -> Result<Grammar> {
        let first = text.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with('#'));
        let is_gbnf = first.is_some_and(|line| {
            let word = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
            word.is_some_and(|end| line[end..].trim_start().starts_with("::="))
        });
        lark::bounded(text)?;
        let lark = if is_gbnf { gbnf::to_lark(text)? } else { lark::checked(text)? };
        Ok(Grammar { lark, ..Grammar::default() })
    }

    /// Reads a grammar file. The extension gives the notation (`.gbnf`, `.lark`); with any other, the text does.
    ///
    /// # Errors
    /// Those of [`Grammar::from_text`]; [`ErrorKind::Io`] if the file cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Grammar> {
        let path = path.as_ref();
        let text = crate::text_file::read(path)?;
        lark::bounded(&text).map_err(|error| error.in_file(path))?;
        let lark = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gbnf") => gbnf::to_lark(&text).map_err(|error| error.in_file(path))?,
            Some("lark") => lark::checked(&text).map_err(|error| error.in_file(path))?,
            _ => return Grammar::from_text(&text).map_err(|error| error.in_file(path)),
        };
        Ok(Grammar { lark, ..Grammar::default() })
    }
}

/// Where a grammar begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Begins {
    /// Before all markers: the grammar covers the whole text of the calls.
    Answer,
    /// After the marker that begins a call; at the beginning of the call if the format has no marker.
    Call,
    /// After the marker that begins a section of calls.
    Section,
}

/// The part of an answer that a grammar describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Where it begins.
    pub begins: Begins,
    /// Maximum number of calls.
    pub max_calls: Option<usize>,
    /// Whether calls follow one another, with only the format's own text between them, up to the answer's end.
    /// Otherwise the grammar ends with the call or the section, and some white space.
    pub only_calls: bool,
}

/// Maximum number of calls that one grammar spells out: each is a copy in the automaton.
const MANY: usize = 64;

impl Format {
    /// The grammar of calls of `tools` in this format, starting after the marker that opens them.
    ///
    /// ```
    /// use callwright_core::format::Format;
    /// use callwright_core::grammar::{Begins, Scope};
    /// use callwright_core::tool::Tool;
    ///
    /// let tool = Tool::new("clock", "The time", None);
    /// let scope = Scope { begins: Begins::Call, max_calls: Some(1), only_calls: true };
    /// let grammar = Format::delimited().grammar(&[&tool], scope)?;
    /// assert!(grammar.lark.contains("clock"));
    /// # Ok::<(), callwright_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Tools`] if there is no tool, or if no arguments fit a tool's schema; [`ErrorKind::Format`] if a
    /// marker is a pattern and the declaration gives no text for it.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn grammar(&self, tools: &[&Tool], scope: Scope) -> Result<Grammar> {
        self.build_grammar(tools, scope, &Effort::Checked)
    }

    /// Like [`Format::grammar`], with more or less [`Effort`].
    ///
    /// # Errors
    /// Those of [`Format::grammar`].
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn build_grammar(&self, tools: &[&Tool], scope: Scope, effort: &Effort) -> Result<Grammar> {
        if tools.is_empty() {
            return Err(Error::new(ErrorKind::Tools, "there is no tool to call, so there is no grammar of calls"));
        }
        let made = self.within_limits(tools, effort, move |builder, tools| {
            let calls = builder.calls(tools)?;
            let start = builder.answer(&calls, scope)?;
            Ok(Grammar { lark: std::mem::take(&mut builder.rules).finish(&start), ..Grammar::default() })
        });
        made.map(|(grammar, unenforced)| Grammar { unenforced, ..grammar })
    }

    /// Builds a grammar, on a thread of its own if a schema is large.
    fn within_limits(
        &self,
        tools: &[&Tool],
        effort: &Effort,
        build: impl Fn(&mut Builder<'_>, &[&Tool]) -> Result<Grammar> + Clone + Send + 'static,
    ) -> Result<(Grammar, Vec<Unenforced>)> {
        let fitted: Vec<Option<Fitted>> = tools.iter().map(|tool| fitted(tool)).collect();
        let large = fitted.iter().flatten().any(|fitted| fitted.large);
        let again = build.clone();
        let make = move |format: &Declaration, effort: &Effort, tools: &[&Tool]| {
            let mut builder = Builder::new(format, effort);
            let tool_of = |tool: &&Tool| std::ptr::from_ref(*tool);
            builder.fitted = tools.iter().map(tool_of).zip(fitted).collect();
            build(&mut builder, tools).map(|grammar| (grammar, builder.unenforced))
        };
        if matches!(effort, Effort::NamesOnly(_)) || !large {
            return budget::limited(|| make(self, effort, tools));
        }
        let (format, checked) = (self.deref().clone(), effort.clone());
        let owned: Vec<Tool> = tools.iter().map(|&tool| tool.clone()).collect();
        let made = budget::within(true, move || make(&format, &checked, &owned.iter().collect::<Vec<_>>()));
        match made {
            Ok(made) => made,
            Err(Ended::Cancelled) => Err(limits::ended(Ended::Cancelled)),
            Err(ended) => self.within_limits(tools, &Effort::NamesOnly(ended.to_string()), again),
        }
    }
}

/// Returns the schema of a tool's arguments within the limits.
fn fitted(tool: &Tool) -> Option<Fitted> {
    Some(fit::fitted(json::as_object(tool.schema()?)))
}

/// How much to do for a grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effort {
    /// Compiling the grammar may fail on schemas that a check would have relaxed or refused. The check costs as much as
    /// compiling, and most schemas pass.
    Unchecked,
    /// Each schema is compiled separately, so that unenforceable parts are relaxed.
    Checked,
    /// The values of arguments are not enforced, for this reason.
    NamesOnly(String),
}

impl Declaration {
    /// Returns what the format writes right before each argument of `tools` that is a number, an object or a list, if
    /// it writes arguments between tags.
    pub fn before_json(&self, tools: &[&Tool]) -> Vec<String> {
        match &self.payload {
            Payload::Tagged(tagged) => Builder::new(self, &Effort::Unchecked).before_json(tools, tagged),
            _ => Vec::new(),
        }
    }

    /// Every text of the format for which a model may have its own tokens.
    pub fn texts(&self) -> Vec<&str> {
        let around = [&self.section, &self.reasoning].into_iter().flatten().flat_map(|a| [&a.start, &a.end]);
        let markers = self.start.iter().chain(&self.end).chain(around).chain(&self.markup);
        let mut texts: Vec<&str> = markers.filter_map(Marker::text).collect();
        texts.push(&self.history.between);
        match &self.payload {
            Payload::Json(_) | Payload::Python { .. } => {}
            Payload::Named(named) => {
                texts.extend(named.head.forms.iter().map(String::as_str));
                texts.extend([Some(named.tail.as_str()), named.quote.as_deref()].into_iter().flatten());
            }
            Payload::Tagged(tagged) => {
                texts.extend(tagged.head.forms.iter().map(String::as_str));
                texts.extend([&tagged.key_start, &tagged.value_start, &tagged.value_end].map(|text| &**text));
                match tagged.around_type() {
                    Some((before, after)) => texts.extend([before, after]),
                    None => texts.push(&tagged.key_end),
                }
            }
        }
        texts.retain(|text| !text.trim().is_empty());
        texts
    }
}

/// Builds one grammar.
struct Builder<'f> {
    format: &'f Declaration,
    rules: Rules,
    unenforced: Vec<Unenforced>,
    /// The schemas of the tools' arguments that were measured, by address.
    fitted: HashMap<*const Tool, Option<Fitted>>,
    /// Whether to compile each schema separately, so that unenforceable parts are relaxed.
    check: bool,
    /// Why the values of arguments are not enforced, if they are not.
    names_only: Option<String>,
    /// Total cost so far of the length limits on texts, for the grammar engine.
    counted: u64,
}

/// The text of a marker.
fn written(marker: &Option<Marker>) -> Result<&str> {
    match marker {
        None => Ok(""),
        Some(marker) => marker.text().ok_or_else(|| {
            Error::new(ErrorKind::Format, "a marker of the format is a pattern, and nothing says how it is written")
                .hint("give its `text` in the declaration: { pattern = '…', text = '…' }")
        }),
    }
}

/// The white space after a marker's recognised part.
fn trail(text: &str) -> &str {
    &text[text.trim_end().len()..]
}

impl<'f> Builder<'f> {
    fn new(format: &'f Declaration, effort: &Effort) -> Builder<'f> {
        let names_only = match effort {
            Effort::NamesOnly(why) => Some(why.clone()),
            _ => None,
        };
        let (rules, check) = (Rules::default(), *effort == Effort::Checked);
        Builder { format, rules, unenforced: Vec::new(), fitted: HashMap::new(), check, names_only, counted: 0 }
    }

    /// The whole grammar, with `payload` as the rule of one payload.
    fn answer(&mut self, payload: &str, scope: Scope) -> Result<String> {
        let (start, end) = (written(&self.format.start)?, written(&self.format.end)?);
        let between = self.format.history.between.as_str();
        let most = scope.max_calls.unwrap_or(MANY).clamp(1, MANY);
        // Several calls in one pair of markers, or each in its own.
        let (inner, outer) = match self.format.payload {
            Payload::Json(JsonCall { array: true, .. }) | Payload::Python { list: true, .. } => (most, 1),
            _ => (1, most),
        };
        let payload = match &self.format.payload {
            Payload::Json(JsonCall { array: true, .. }) | Payload::Python { list: true, .. } => {
                let more = self.repeated(&[literal(", "), payload.to_owned()], inner - 1);
                self.rules.sequence(&[literal("["), payload.to_owned(), more, literal("]")])
            }
            _ => payload.to_owned(),
        };
        let whole = self.rules.sequence(&[literal(start), payload.clone(), literal(end)]);
        let next = self.repeated(&[literal(between), whole.clone()], outer - 1);
        let opened = if self.format.start.is_some() { trail(start) } else { "" };
        let rest_of_first = self.rules.sequence(&[literal(opened), payload, literal(end)]);
        let tail = if scope.only_calls { String::new() } else { self.rules.white_space() };
        let parts = match (&self.format.section, scope.begins) {
            (None, Begins::Answer) => vec![whole, if scope.only_calls { next } else { String::new() }, tail],
            (Some(section), Begins::Answer) => {
                let opening = written(&Some(section.start.clone()))?.to_owned();
                let closing = written(&Some(section.end.clone()))?.to_owned();
                vec![literal(&opening), whole, next, literal(&closing), tail]
            }
            (Some(section), Begins::Section) => {
                let opening = written(&Some(section.start.clone()))?.to_owned();
                let closing = written(&Some(section.end.clone()))?.to_owned();
                vec![literal(trail(&opening)), whole, next, literal(&closing), tail]
            }
            // The model omitted the section's marker and began a call, so continue with the call.
            (Some(_), Begins::Call) => vec![rest_of_first, tail],
            (None, _) if scope.only_calls => vec![rest_of_first, next],
            (None, _) => vec![rest_of_first, tail],
        };
        Ok(self.rules.sequence(&parts))
    }

    /// A sequence, repeated at most `most` times.
    fn repeated(&mut self, parts: &[String], most: usize) -> String {
        if most == 0 {
            return String::new();
        }
        let one = self.rules.sequence(parts);
        format!("{one}{{0,{most}}}")
    }

    /// The rule of one call of any tool, without its markers.
    fn calls(&mut self, tools: &[&Tool]) -> Result<String> {
        let (mut calls, mut first) = (Vec::new(), None);
        for tool in tools {
            let already = self.unenforced.len();
            match self.limited_call(tool) {
                Ok(call) => calls.push(call),
                // An unusable tool does not affect the others.
                Err(error) if error.kind() == ErrorKind::Tools => {
                    let left_out = Some(error.message().to_owned());
                    self.unenforced.truncate(already);
                    self.unenforced.push(Unenforced {
                        tool: Some(tool.name.clone()),
                        left_out,
                        ..Unenforced::at("$", "")
                    });
                    first.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = first.filter(|_| calls.is_empty()) {
            return Err(error);
        }
        let any = self.rules.alternatives(&calls);
        Ok(match &self.format.payload {
            Payload::Json(JsonCall { keyed: true, .. }) => self.rules.sequence(&[literal("{"), any, literal("}")]),
            Payload::Json(json) => {
                let key = literal(&format!("{{{}: ", Value::from(json.name.as_str())));
                let id = match &json.id {
                    Some(id) => {
                        let key = literal(&format!(", {}: \"", Value::from(id.as_str())));
                        let id = self.id();
                        vec![key, id, literal("\"")]
                    }
                    None => Vec::new(),
                };
                self.rules.sequence(&[vec![key, any], id, vec![literal("}")]].concat())
            }
            _ => any,
        })
    }

    /// The schema of a tool's arguments, with all references resolved.
    fn schema(&mut self, tool: &Tool) -> Result<Option<Map<String, Value>>> {
        let known = self.fitted.get(&std::ptr::from_ref(tool)).cloned();
        let Some(Fitted { mut schema, unenforced, .. }) = known.unwrap_or_else(|| fitted(tool)) else {
            return Ok(None);
        };
        if self.names_only.is_none() {
            self.unenforced.extend(unenforced);
        }
        schema::plain_never(&mut schema);
        schema::whole_counts(&mut schema);
        let (schema, dropped) =
            references::resolved(schema).map_err(|place| json::endless(&format!("tool {:?}: ", tool.name), &place))?;
        self.unenforced.extend(dropped);
        let schema = schema.as_object().cloned().map(references::with_own_members);
        if let (Some(why), Some(schema)) = (&self.names_only, &schema) {
            self.unenforced.push(Unenforced { limit: Some(why.clone()), ..Unenforced::at("$", "properties") });
            return Ok(Some(fit::names_only(schema)));
        }
        Ok(schema)
    }

    /// Reports the keywords of `schema` that the grammar ignores.
    fn leave(&mut self, schema: &Map<String, Value>, heeded: &[&str], path: &str) {
        self.leave_for(None, schema, heeded, path);
    }

    /// Like `leave`, but only keywords that apply to values of type `kind`.
    fn leave_for(&mut self, kind: Option<&str>, schema: &Map<String, Value>, heeded: &[&str], path: &str) {
        for keyword in schema.keys().filter(|keyword| !heeded.contains(&keyword.as_str())) {
            if restricts(keyword) && kind.is_none_or(|kind| concerns(keyword, kind)) {
                self.unenforced.push(Unenforced::at(path, keyword));
            }
        }
    }

    /// A call, without its arguments' values where they take too much text or time.
    fn limited_call(&mut self, tool: &Tool) -> Result<String> {
        let (already, mark) = (self.unenforced.len(), self.rules.mark());
        let made = self.call(tool);
        let too_long = format!("its grammar has more than {} bytes", LIMITS.text);
        let why = match budget::check() {
            Err(Ended::Cancelled) => return Err(limits::ended(Ended::Cancelled)),
            Err(ended) => ended.to_string(),
            Ok(()) if self.rules.are_too_long() => too_long.clone(),
            Ok(()) => return made,
        };
        if self.names_only.is_some() {
            return if self.rules.are_too_long() { Err(limits::refused(&too_long)) } else { made };
        }
        self.rules.reset(mark);
        self.unenforced.truncate(already);
        let check = std::mem::replace(&mut self.check, false);
        self.names_only = Some(why);
        let made = self.limited_call(tool);
        (self.names_only, self.check) = (None, check);
        made
    }

    fn call(&mut self, tool: &Tool) -> Result<String> {
        let already = self.unenforced.len();
        let format = self.format;
        let parts = match &format.payload {
            Payload::Json(json) => {
                let name = Value::from(tool.called());
                let before = match json.keyed {
                    true => literal(&format!("{name}: ")),
                    false => literal(&format!("{name}, {}: ", Value::from(json.arguments.as_str()))),
                };
                vec![before, self.json_arguments(tool)?]
            }
            Payload::Named(NamedCall { head, tail, quote, bare_keys }) => {
                let mut parts = self.head(head, tool);
                parts.push(match (quote, bare_keys) {
                    (None, false) => self.json_arguments(tool)?,
                    _ => self.native_arguments(tool, native::Dialect::of_format(quote.as_deref(), *bare_keys))?,
                });
                parts.push(literal(tail));
                parts
            }
            Payload::Tagged(tagged) => {
                let mut parts = self.head(&tagged.head, tool);
                parts.push(self.tagged_arguments(tool, tagged)?);
                parts
            }
            Payload::Python { .. } => {
                let arguments = self.python_arguments(tool)?;
                vec![literal(&format!("{}(", tool.called())), arguments, literal(")")]
            }
        };
        let mut known = HashSet::new();
        for mut unenforced in self.unenforced.split_off(already) {
            unenforced.tool = Some(tool.name.clone());
            if known.insert(unenforced.clone()) {
                self.unenforced.push(unenforced);
            }
        }
        Ok(self.rules.sequence(&parts))
    }

    /// The head of a call of `tool`.
    fn head(&mut self, head: &Head, tool: &Tool) -> Vec<String> {
        let form = head.forms.first().map_or("{name}", String::as_str);
        // An id that is built from the other parts is replaced by them.
        let form = match &head.id {
            Some(id) => form.replace("{id}", id),
            None => form.to_owned(),
        };
        let mut parts = Vec::new();
        let mut rest = form.as_str();
        let mut text = String::new();
        while let Some(open) = rest.find('{') {
            text.push_str(&rest[..open]);
            rest = &rest[open..];
            let part = ["{name}", "{id}", "{index}", "{number}"].into_iter().find(|part| rest.starts_with(part));
            match part {
                Some("{name}") => text.push_str(tool.called()),
                Some(part) => {
                    parts.push(literal(&std::mem::take(&mut text)));
                    parts.push(if part == "{id}" { self.id() } else { self.rules.terminal("/[0-9]{1,3}/") });
                }
                None => text.push('{'),
            }
            rest = &rest[part.map_or(1, str::len)..];
        }
        text.push_str(rest);
        parts.push(literal(&text));
        parts
    }

    /// An id: nine letters and digits, the strictest form that a known chat template requires.
    fn id(&mut self) -> String {
        self.rules.terminal("/[a-zA-Z0-9]{9}/")
    }
}
