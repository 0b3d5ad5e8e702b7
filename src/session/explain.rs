//! Why an answer has no call, although there are tools: what can be seen of it.

use super::event::{Cut, FinishReason, Reply};
use super::prompt::AnswerRequest;
use super::{Session, ToolChoice};
use crate::message::Role;
use crate::parse::OtherForms;
use crate::tool::Tools;
use std::sync::Arc;

/// From this share of the context on, the tools are reported as many.
const MANY: usize = 4;
/// From this probability on, a call was nearly made.
const NEARLY: f64 = 0.2;

/// What can be seen of an answer without a call.
pub(super) struct NoCall {
    /// The probability that the answer begins with a call, if it was measured.
    probability: Option<f64>,
    /// A format whose marker the answer has, and the marker.
    other_form: Option<(&'static str, &'static str)>,
    /// The tools whose names the answer has, except those that the user named.
    named: Vec<String>,
    ended: FinishReason,
}

impl Session {
    /// What can be seen of an answer to a question that has no call; `None` where no call was to be expected.
    pub(super) fn no_call(&self, request: &AnswerRequest, reply: &Reply) -> Option<NoCall> {
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
            probability: reply.call_probability.map(|probability| probability.value()),
            other_form: self.format.other_call_in(&String::from_utf8_lossy(raw)),
            named: named.map(str::to_owned).collect(),
            ended,
        })
    }

    /// The note on it: in full where that is asked for, otherwise short, and only where something suggests that a call was
    /// meant or that the model is not able to call.
    pub(super) fn note_of_no_call(&mut self, request: &AnswerRequest, reply: &Reply, why: &NoCall) -> Option<String> {
        if request.options.explain {
            return Some(self.in_full(request, reply, why));
        }
        if self.base {
            let note = format!(
                "no call: {} is probably a base model, which does not call tools (`Options::explain` says more)",
                self.engine.model().name
            );
            return self.reported.insert(note.clone()).then_some(note);
        }
        // A diagnostic has said what is wrong with it, or the constraint that there was no room for a call.
        let no_room = reply.cut == Some(Cut::Constraint);
        if no_room || reply.notes.iter().any(|note| note.kind == "diagnostic") {
            return None;
        }
        let next = "`ToolChoice::Required` makes it call, `Options::explain` says more";
        let nearly = why.probability.filter(|probability| *probability >= NEARLY);
        // Where calls in other forms are not to be looked for, they are text.
        let other_form = why.other_form.filter(|_| request.options.other_forms != OtherForms::Off);
        match (why.named.as_slice(), other_form, nearly) {
            (_, Some((format, marker)), _) => Some(format!(
                "no call: {marker} in the answer begins a call in the format {format}, which is not read here (`ModelBuilder::format` \
                 {format} reads it, `Options::explain` says more)"
            )),
            // An answer that names several tools lists them.
            ([name], None, _) => {
                Some(format!("no call: the answer names the tool {name}, but does not call it ({next})"))
            }
            (_, None, Some(probability)) => Some(format!(
                "no call, but nearly: the probability of one was {probability:.2} (`Options::call_threshold` {:.2} makes it call, \
                 `Options::explain` says more)",
                floor(probability)
            )),
            _ => None,
        }
    }

    /// All that can be said of it, in lines.
    fn in_full(&self, request: &AnswerRequest, reply: &Reply, why: &NoCall) -> String {
        let model = self.engine.model();
        let plain = AnswerRequest { tools: Arc::new(Tools::default()), ..request.clone() };
        let without = self.write(&plain, self.shown(&plain));
        let all = reply.usage.prompt_tokens;
        let tokens = without.map(|without| all.saturating_sub(without.tokens.len()));
        let training = match &self.section {
            _ if self.base => format!("{} is probably a base model, which was not trained to call tools", model.name),
            Some(_) => format!(
                "the chat template writes no tools, so the model was probably not trained to call any; the format {} was \
                 added to the prompt",
                self.format.name
            ),
            None => format!("the chat template writes tools in the format {}", self.format.name),
        };
        let probability = why.probability.map_or_else(
            || "not measured".to_owned(),
            |probability| format!("{probability:.3} at the beginning of the answer"),
        );
        let other = why.other_form.map_or_else(
            || "no call in another format".to_owned(),
            |(format, marker)| format!("{marker} begins a call in the format {format}"),
        );
        let named = if why.named.is_empty() { "no tool".to_owned() } else { why.named.join(", ") };
        let ended = match why.ended {
            FinishReason::Length => "it was cut off, and a call may have followed",
            FinishReason::Loop => "it repeats itself, and was ended",
            _ => "the model ended it",
        };
        let cost = tokens
            .as_ref()
            .map_or_else(|_| "unknown".to_owned(), |tokens| format!("{tokens} of the prompt's {all} tokens"));
        let many = tokens.is_ok_and(|tokens| tokens * MANY > self.engine.context_limit());
        let next = self.to_try(why, many).join("; ");
        format!(
            "no call, although there are tools\n  probability of a call: {probability}\n  the answer has: {other}\n  \
             the answer names: {named}\n  end of the answer: {ended}\n  training: {training}\n  cost of the tools: \
             {cost}\n  to try: {next}"
        )
    }

    /// What may help, the likeliest first.
    fn to_try(&self, why: &NoCall, many: bool) -> Vec<String> {
        let mut next = Vec::new();
        if self.base {
            next.push("an instruct model (`callwright model list` shows some)".to_owned());
        }
        if let Some((format, _)) = why.other_form {
            next.push(format!("`ModelBuilder::format` {format}"));
        }
        if let Some(probability) = why.probability.filter(|probability| floor(*probability) > 0.0) {
            next.push(format!("`Options::call_threshold` {:.2}", floor(probability)));
        }
        if why.ended == FinishReason::Length {
            next.push("a larger `Options::max_tokens`".to_owned());
        }
        next.push("`ToolChoice::Required`, if each answer needs a call".to_owned());
        if self.section.is_some() && !self.base && why.other_form.is_none() {
            next.push("`ModelBuilder::format` with another format".to_owned());
        }
        if many {
            next.push("fewer tools".to_owned());
        }
        next
    }
}

/// A probability, rounded down to what a threshold is written with.
fn floor(probability: f64) -> f64 {
    (probability * 100.0).floor() / 100.0
}

/// Whether a text has a tool's name in it, which is no ordinary word.
fn names(text: &str, name: &str) -> bool {
    let ordinary = name.chars().all(char::is_lowercase) || name.chars().skip(1).all(char::is_lowercase);
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let whole = |at: usize| !text[..at].ends_with(part) && !text[at + name.len()..].starts_with(part);
    !ordinary && text.match_indices(name).any(|(at, _)| whole(at))
}
