//! Text of unknown origin: determines which built-in format, or which server's response, it is.
//!
//! The beginning of the text is kept until the format is clear. Formats whose markers occur in it are tried on it; the
//! one with the most valid calls and the fewest repairs reads the text. A response pasted as JSON is read at the end of
//! the text.

use super::calls::{Calls, Ending};
use super::event::{Diagnostic, Event};
use super::payload::json::JsonPayload;
use super::payload::{PayloadReader, Terminator};
use super::repair::Dialect;
use super::{OtherForms, Parsed, Parser, ParserOptions};
use crate::error::Result;
use crate::format::{Format, Marker};
use crate::message::response::{self, Response};
use crate::tool::Tools;
use serde::de::IgnoredAny;
use std::sync::Arc;

/// Maximum number of bytes to keep before deciding.
const BEGINNING: usize = 64 << 10;
/// Shorter tags occur in ordinary text.
const TAG: usize = 6;
/// Maximum size of a response in bytes.
const RESPONSE: usize = 16 << 20;

/// Reads a text of unknown origin while it arrives, as [`Parser`] reads one in a known format.
///
/// ```
/// use callwright_core::parse::auto::AutoParser;
/// use callwright_core::parse::ParserOptions;
///
/// let mut parser = AutoParser::new(None, ParserOptions::default())?;
/// parser.push(b"<|tool_call_start|>[clock()]<|tool_call_end|>", &mut |_| ());
/// let parsed = parser.finish(&mut |_| ());
/// assert_eq!((parsed.calls[0].name.as_str(), parsed.origin), ("clock", Some("lfm2")));
/// # Ok::<(), callwright_core::Error>(())
/// ```
#[derive(Debug)]
pub struct AutoParser {
    tools: Option<Arc<Tools>>,
    options: ParserOptions,
    /// The text so far, until the origin is decided.
    beginning: Vec<u8>,
    /// The parser of that format; until then one of `delimited`, which reads what no other format does.
    parser: Parser,
    decided: Option<&'static str>,
}

impl AutoParser {
    /// A parser of a text of unknown origin; with `tools` it also checks whether a call fits its tool.
    ///
    /// # Errors
    /// As for [`Parser::new`].
    pub fn new(tools: Option<Arc<Tools>>, options: ParserOptions) -> Result<AutoParser> {
        let parser = Parser::new(Format::delimited(), tools.clone(), options.clone())?;
        Ok(AutoParser { tools, options, beginning: Vec::new(), parser, decided: None })
    }

    /// Takes the next bytes, and passes their events to `emit` once the origin is decided.
    pub fn push(&mut self, mut bytes: &[u8], emit: &mut impl FnMut(Event)) {
        while self.decided.is_none() && !bytes.is_empty() {
            let limit = if response::may_begin(&self.beginning) { RESPONSE } else { BEGINNING };
            let room = limit.saturating_sub(self.beginning.len()).clamp(1, BEGINNING);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.beginning.extend_from_slice(now);
            bytes = later;
            let limit = if response::may_begin(&self.beginning) { RESPONSE } else { BEGINNING };
            if self.beginning.len() >= limit {
                self.decide(emit);
            }
        }
        if self.decided.is_some() {
            self.parser.push(bytes, emit);
        }
    }

    /// Ends the text. [`Parsed::origin`] is the name of its format or kind of response.
    pub fn finish(mut self, emit: &mut impl FnMut(Event)) -> Parsed {
        if self.decided.is_none() {
            let text = String::from_utf8_lossy(&self.beginning);
            if response::may_begin(&self.beginning)
                && let Some(response) = response::read(&text)
            {
                return self.response(response, emit);
            }
            self.decide(emit);
        }
        Parsed { origin: self.decided, ..self.parser.finish(emit) }
    }

    fn decide(&mut self, emit: &mut impl FnMut(Event)) {
        let beginning = std::mem::take(&mut self.beginning);
        let name = self.choose(&beginning[..beginning.len().min(BEGINNING)]);
        if let Some(parser) = self.parser_of(name) {
            self.parser = parser;
        }
        self.parser.push(&beginning, emit);
        self.decided = Some(name);
    }

    /// A parser of a built-in format.
    fn parser_of(&self, name: &str) -> Option<Parser> {
        Parser::new(Format::builtin(name)?, self.tools.clone(), self.options.clone()).ok()
    }

    /// The format that reads the beginning best.
    fn choose(&self, beginning: &[u8]) -> &'static str {
        let text = format!("{}{}", self.options.prompt_tail, String::from_utf8_lossy(beginning));
        let options = ParserOptions { other_forms: OtherForms::Off, ..self.options.clone() };
        let mut best = (Format::delimited_name(), (0, 0, 0, 0, 0));
        for builtin in Format::builtins() {
            let format = builtin.format();
            let has = |marker: &Marker| has(&text, marker, format);
            let unmarked = format.start.is_none();
            let section = format.section.as_ref();
            let reasons =
                format.reasoning.as_ref().is_some_and(|reasoning| has(&reasoning.start) || has(&reasoning.end));
            // Also find imprecise markers, by their letters.
            let calls = format.start.as_ref().is_none_or(|start| has(start) || has_nearly(&text, start))
                || format.markup.iter().any(has);
            // Calls without markers are those of any format, and those of this one only in its section.
            let calls =
                calls && !(unmarked && section.is_some_and(|section| !has(&section.start) && !has(&section.end)));
            if !calls && !reasons {
                continue;
            }
            let Ok(mut parser) = Parser::new(format, self.tools.clone(), options.clone()) else { continue };
            parser.push(beginning, &mut |_| ());
            let parsed = parser.finish(&mut |_| ());
            // Calls in a code fence are in no format; the fence stays in the text.
            if unmarked && parsed.content.contains("```") && !parsed.calls.is_empty() {
                continue;
            }
            let valid = parsed.calls.iter().filter(|call| call.valid).count();
            let faults = parsed.repairs.len() + parsed.diagnostics.len() + 2 * (parsed.calls.len() - valid);
            let fault = -i64::try_from(faults).unwrap_or(i64::MAX);
            // If nothing else does, an unreadable call also shows the format.
            let named = parsed.calls.iter().filter(|call| !call.name.is_empty()).count();
            // A format whose prompts open the reasoning reads any text as reasoning.
            let closes = format.reasoning.as_ref().and_then(|reasoning| reasoning.end.text());
            let closed = closes.is_some_and(|end| text.trim_start().starts_with(end.trim()));
            let reasoned = i64::from(reasons && (parsed.reasoning.is_some() || closed));
            // Markers that are not the format's stay in the text.
            let rest = parsed.content.len() + parsed.reasoning.as_ref().map_or(0, String::len);
            let score = (valid as i64, named as i64, reasoned, fault, -i64::try_from(rest).unwrap_or(i64::MAX));
            if score.0 + score.1 + score.2 > 0 && score > best.1 {
                best = (builtin.name, score);
            }
        }
        if best.1.0 == 0 {
            // The calls are in another form than that of any markers.
            let reads = |name: &str| self.reads_calls(name, beginning);
            return [best.0, Format::delimited_name()].into_iter().find(|name| reads(name)).unwrap_or(best.0);
        }
        best.0
    }

    /// Returns whether there are valid calls in the text, in that format or in other forms.
    fn reads_calls(&self, name: &str, text: &[u8]) -> bool {
        let Some(mut parser) = self.parser_of(name) else { return false };
        parser.push(text, &mut |_| ());
        parser.finish(&mut |_| ()).calls.iter().any(|call| call.valid)
    }

    /// Parses a response. If it has no calls, its text may contain some.
    fn response(self, response: Response, emit: &mut impl FnMut(Event)) -> Parsed {
        let Response { message, kind } = response;
        let reasoning = message.reasoning.clone().filter(|reasoning| !reasoning.is_empty());
        if let Some(reasoning) = &reasoning {
            emit(Event::Reasoning { delta: reasoning.clone() });
        }
        if message.tool_calls.is_empty() {
            let mut parser = AutoParser { beginning: message.content.clone().into_bytes(), ..self };
            parser.decide(emit);
            let mut parsed = parser.finish(emit);
            parsed.reasoning = match (reasoning, parsed.reasoning) {
                (Some(first), Some(second)) => Some(first + &second),
                (first, second) => first.or(second),
            };
            return Parsed { origin: Some(kind), ..parsed };
        }
        if !message.content.is_empty() {
            emit(Event::Text { delta: message.content.clone() });
        }
        let options = self.options;
        let taken = options.session.taken_ids.into_iter().collect();
        let mut calls = Calls::new(self.tools, options.repair, options.session.earlier_calls + 1, taken);
        (calls.coerce, calls.normalize_names) = (options.coerce, options.normalize_names);
        (calls.forbidden, calls.any_number) = (options.session.forbidden, options.session.any_number);
        let machinery = self.parser.machinery;
        for call in &message.tool_calls {
            let text = call.arguments.to_text();
            let mut json = JsonPayload::arguments_only(&Dialect::Json, true, calls.repair);
            json.expect_arguments(false);
            calls.open(0);
            calls.keep(text.as_bytes());
            if let Some(id) = &call.id {
                calls.give_id(id.clone());
            }
            calls.start(call.name.clone(), 0..0);
            let (taken, _) = json.feed(text.as_bytes(), 0, machinery.stops(), false, &mut calls);
            // Arguments that end early are repaired like those of a call that the text's end cuts off.
            let whole = serde_json::from_str::<IgnoredAny>(&text).is_ok();
            let by = if whole { Terminator::End } else { Terminator::Text };
            let ending = json.end(by, &[], text.len(), machinery.stops(), &mut calls);
            let broken = ending.broken || taken < text.trim_end().len();
            calls.close(Ending { broken, ..ending }, &[]);
            calls.events.drain(..).for_each(&mut *emit);
        }
        let nowhere = |diagnostic: &mut Diagnostic| diagnostic.range = 0..0;
        calls.diagnostics.iter_mut().for_each(nowhere);
        calls.done.iter_mut().for_each(|call| call.range = 0..0);
        calls.repairs.iter_mut().for_each(|repair| repair.range = 0..0);
        let Calls { done, repairs, diagnostics, .. } = calls;
        Parsed { content: message.content, reasoning, calls: done, repairs, diagnostics, origin: Some(kind) }
    }
}

/// Returns whether a marker occurs in the text: for one that varies, a tag of it.
fn has(text: &str, marker: &Marker, format: &Format) -> bool {
    let Some(written) = marker.text().map(str::trim) else { return false };
    let is_there = |part: &str| text.contains(part);
    let mut tags = written.split_whitespace().filter(|part| part.starts_with('<') && part.len() >= TAG);
    let suffixed = format.suffix.as_deref().and_then(|suffix| written.split_once(suffix));
    is_there(written)
        || matches!(marker, Marker::Pattern { .. }) && tags.any(is_there)
        || suffixed.is_some_and(|(before, _)| is_there(before))
}

/// Returns whether the letters of a marker occur in the text.
fn has_nearly(text: &str, marker: &Marker) -> bool {
    let word = |text: &str| text.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect();
    let letters: String = marker.text().map(word).unwrap_or_default();
    let text: String = word(text);
    letters.len() > 5 && text.contains(&letters)
}
