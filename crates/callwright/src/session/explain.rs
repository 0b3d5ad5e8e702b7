//! Why an answer has no call, although there are tools: what can be seen of it.

use super::ToolChoice;
use super::context::Prompts;
use super::event::{Cut, FinishReason, NoteKind, Reply};
use super::prompt::AnswerRequest;
use crate::decision::CallProbability;
use crate::engine::Engine;
use crate::format::Format;
use crate::message::Role;
use crate::parse::OtherForms;
use crate::setting::Setting;
use std::sync::Arc;

/// From this share of the context on, the tools are reported as many.
const MANY: usize = 4;
/// From this probability on, a call was nearly made.
const NEARLY: f64 = 0.2;

/// What can be seen of an answer without a call.
pub(super) struct NoCall {
    /// The probability that the answer begins with a call, if it was measured. That of the first token says too little.
    probability: Option<f64>,
    /// Its parts, in words.
    parts: String,
    /// A format whose marker the answer has, and the marker.
    other_form: Option<(&'static str, &'static str)>,
    /// The tools whose names the answer has, except those that the user named.
    named: Vec<String>,
    ended: FinishReason,
    /// Whether nothing suggests that the model was trained on conversations.
    base: bool,
}

impl NoCall {
    /// Returns what can be seen of an answer to a question that has no call; `None` where no call was to be expected.
    pub(super) fn of(format: &Format, base: bool, request: &AnswerRequest, reply: &Reply) -> Option<NoCall> {
        let (content, raw, ended) = (&reply.message.content, &reply.raw, reply.finish_reason);
        let options = &request.options;
        let tools = request.shown_tools()?;
        let to_question = request.messages.last().is_some_and(|message| message.role == Role::User);
        let whole = options.grammar.is_some() || options.response_format.is_some();
        let other = matches!(ended, FinishReason::ToolCalls | FinishReason::Cancelled | FinishReason::Error);
        // A call that was cut off is one.
        if options.tool_choice != ToolChoice::Auto || !to_question || whole || other || !reply.calls.is_empty() {
            return None;
        }
        let asked = &request.messages.last()?.content;
        let named = tools.iter().map(|tool| tool.called()).filter(|name| names(content, name) && !names(asked, name));
        Some(NoCall {
            probability: reply.call_probability.and_then(|probability| probability.whole()),
            parts: reply.call_probability.map(parts).unwrap_or_default(),
            other_form: format.other_call_in(&String::from_utf8_lossy(raw)),
            named: named.map(str::to_owned).collect(),
            ended,
            base,
        })
    }

    /// A short note on it, where something suggests that a call was meant or that the model is not able to call.
    pub(super) fn in_short(&self, model: &str, request: &AnswerRequest, reply: &Reply) -> Option<String> {
        if self.base {
            return Some(format!(
                "no call: {model} is probably a base model, which does not call tools ({} says more)",
                Setting::Explain
            ));
        }
        // A diagnostic has said what is wrong with it, or the constraint that there was no room for a call.
        let no_room = reply.cut == Some(Cut::Constraint);
        if no_room || reply.notes.iter().any(|note| note.kind == NoteKind::Diagnostic) {
            return None;
        }
        let more = format!("{} says more", Setting::Explain);
        let nearly = self.probability.filter(|probability| *probability >= NEARLY);
        // Where calls in other forms are not to be looked for, they are text.
        let other_form = self.other_form.filter(|_| request.options.other_forms != OtherForms::Off);
        match (self.named.as_slice(), other_form, nearly) {
            (_, Some((format, marker)), _) => Some(format!(
                "no call: {marker} in the answer begins a call in the format {format}, which is not read here ({} {format} \
                 reads it, {more})",
                Setting::Format
            )),
            // An answer that names several tools lists them.
            ([name], None, _) => Some(format!(
                "no call: the answer names the tool {name}, but does not call it ({} makes it call, {more})",
                Setting::Required
            )),
            (_, None, Some(probability)) => Some(format!(
                "no call, but nearly: the probability of one was {probability:.2} ({} {:.2} makes it call, \
                 {more})",
                Setting::CallThreshold,
                floor(probability)
            )),
            _ => None,
        }
    }

    /// All that can be said of it, in lines.
    pub(super) fn in_full(
        &self,
        prompts: &Prompts,
        engine: &dyn Engine,
        request: &AnswerRequest,
        reply: &Reply,
    ) -> String {
        let model = engine.model();
        let without = prompts.write(engine, &request.with_tools(Arc::default()));
        let all = reply.usage.prompt_tokens;
        let tokens = without.map(|without| all.saturating_sub(without.tokens.len()));
        let training = match &prompts.writer.section {
            _ if self.base => format!("{} is probably a base model, which was not trained to call tools", model.name),
            Some(_) => format!(
                "the chat template writes no tools, so the model was probably not trained to call any; the format {} was \
                 added to the prompt",
                prompts.writer.format.name
            ),
            None => format!("the chat template writes tools in the format {}", prompts.writer.format.name),
        };
        let probability = self.probability.map_or_else(
            || "not measured".to_owned(),
            |probability| format!("{probability:.3} at the beginning of the answer{}", self.parts),
        );
        let other = self.other_form.map_or_else(
            || "no call in another format".to_owned(),
            |(format, marker)| format!("{marker} begins a call in the format {format}"),
        );
        let named = if self.named.is_empty() { "no tool".to_owned() } else { self.named.join(", ") };
        let ended = match self.ended {
            FinishReason::Length => "it was cut off, and a call may have followed",
            FinishReason::Loop => "it repeats itself, and was ended",
            _ => "the model ended it",
        };
        let cost = tokens
            .as_ref()
            .map_or_else(|_| "unknown".to_owned(), |tokens| format!("{tokens} of the prompt's {all} tokens"));
        let many = tokens.is_ok_and(|tokens| tokens * MANY > engine.context_limit());
        let next = self.to_try(prompts.writer.section.is_some(), many).join("; ");
        format!(
            "no call, although there are tools\n  probability of a call: {probability}\n  the answer has: {other}\n  \
             the answer names: {named}\n  end of the answer: {ended}\n  training: {training}\n  cost of the tools: \
             {cost}\n  to try: {next}"
        )
    }

    /// Returns what may help, the likeliest first. The format may have been `added` to the prompt, and the tools may be
    /// `many`.
    fn to_try(&self, added: bool, many: bool) -> Vec<String> {
        let mut next = Vec::new();
        if self.base {
            next.push("an instruct model (`callwright model list` shows some)".to_owned());
        }
        if let Some((format, _)) = self.other_form {
            next.push(format!("{} {format}", Setting::Format));
        }
        if let Some(probability) = self.probability.filter(|probability| floor(*probability) > 0.0) {
            next.push(format!("{} {:.2}", Setting::CallThreshold, floor(probability)));
        }
        if self.ended == FinishReason::Length {
            next.push(format!("a larger {}", Setting::MaxTokens));
        }
        next.push(format!("{}, if each answer needs a call", Setting::Required));
        if added && !self.base && self.other_form.is_none() {
            next.push(format!("{} with another format", Setting::Format));
        }
        if many {
            next.push("fewer tools".to_owned());
        }
        next
    }
}

/// The parts of a probability, in words.
fn parts(probability: CallProbability) -> String {
    match (probability.marker, probability.other_forms) {
        (Some(marker), Some(other)) if other > 0.0 => {
            format!(" ({marker:.3} with the format's marker, {other:.3} in another form)")
        }
        _ => String::new(),
    }
}

/// A probability, rounded down to what a threshold is written with.
fn floor(probability: f64) -> f64 {
    (probability * 100.0).floor() / 100.0
}

/// Returns whether a text has a tool's name in it, which is no ordinary word.
fn names(text: &str, name: &str) -> bool {
    let ordinary = name.chars().all(char::is_lowercase) || name.chars().skip(1).all(char::is_lowercase);
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let whole = |at: usize| !text[..at].ends_with(part) && !text[at + name.len()..].starts_with(part);
    !ordinary && text.match_indices(name).any(|(at, _)| whole(at))
}
