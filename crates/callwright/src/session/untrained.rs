//! Markers that look like special tokens and are none of the model's: it was hardly trained on their format, or on
//! conversations at all.

use crate::choose::special_tokens;
use crate::engine::Engine;
use crate::engine::vocabulary::special_looking;
use crate::format::Format;
use crate::message::Message;
use crate::template::{ChatTemplate, Piece, RenderRequest};

/// Returns whether a text is a special token of the model.
pub(super) fn is_token(engine: &dyn Engine, text: &str) -> bool {
    let model = engine.model();
    model.control_tokens.iter().chain(&model.user_defined_tokens).any(|token| token == text)
}

/// Returns whether it is known which texts are tokens. A server's vocabulary is not.
fn knows_vocabulary(engine: &dyn Engine) -> bool {
    let model = engine.model();
    engine.server().is_none() && (!model.control_tokens.is_empty() || !model.user_defined_tokens.is_empty())
}

/// Returns what the user should know where the model's vocabulary lacks markers of the format.
pub(super) fn notice(engine: &dyn Engine, format: &Format) -> Option<String> {
    if !knows_vocabulary(engine) {
        return None;
    }
    let model = engine.model();
    let missing: Vec<String> = special_tokens(format).into_iter().filter(|token| !is_one(engine, token)).collect();
    let (subject, are) = listed(&missing)?;
    Some(format!(
        "{subject} of the format {} {are} of {}'s vocabulary: the model was probably not trained on this format",
        format.name, model.name
    ))
}

/// Markers as the subject of a sentence, and its verb; `None` if there are none.
fn listed(markers: &[String]) -> Option<(String, &'static str)> {
    let markers: Vec<&str> = markers.iter().map(|marker| marker.trim()).collect();
    let (last, before) = markers.split_last()?;
    Some(match before {
        [] => (format!("the marker {last}"), "is no token"),
        _ => (format!("the markers {} and {last}", before.join(", ")), "are no tokens"),
    })
}

/// Which of the markers between two turns a model knows.
pub(super) struct Turns {
    /// Those that the model's vocabulary lacks.
    pub missing: Vec<String>,
    /// Whether it has others.
    known: bool,
}

impl Turns {
    /// The turns of a template; nothing is missing where the vocabulary is not known. A server may pass on the marker that
    /// ends a turn, so there all of them end an answer.
    pub(super) fn of(engine: &dyn Engine, template: &ChatTemplate) -> Turns {
        let model = engine.model();
        let completes = engine.server().is_some_and(|server| server.can_begin_answer());
        let markers = match completes || knows_vocabulary(engine) {
            true => turn_markers(template, &model.bos, &model.eos),
            false => Vec::new(),
        };
        if completes {
            return Turns { missing: markers, known: true };
        }
        let (known, missing): (Vec<String>, Vec<String>) =
            markers.into_iter().partition(|marker| is_one(engine, marker));
        Turns { missing, known: !known.is_empty() }
    }

    /// Returns whether the model has none of the tokens that begin and end turns.
    pub(super) fn is_base(&self) -> bool {
        !self.known && !self.missing.is_empty()
    }

    /// Returns what the user should know of a model without such tokens.
    pub(super) fn notice(&self, name: &str) -> Option<String> {
        let (subject, are) = listed(&self.missing).filter(|_| self.is_base())?;
        Some(format!(
            "{name} is probably a base model, which was not trained to answer questions or to call tools: {subject} of \
             the chat template {are} of its vocabulary; use the instruct version of the model (its name ends with \
             -Instruct, -it or -chat)"
        ))
    }
}

/// The markers that a chat template writes between an answer and the next question.
pub(crate) fn turn_markers(template: &ChatTemplate, bos: &str, eos: &str) -> Vec<String> {
    let (answer, question) = ("Answer of the first turn.", "Question of the second turn.");
    let messages = [Message::user("Question?"), Message::assistant(answer), Message::user(question)];
    let request = RenderRequest::default().with(|set| {
        set.messages = &messages;
        set.bos_token = bos;
        set.eos_token = eos;
    });
    let text = template.render(&request).ok().map(|prompt| prompt.text());
    let between = text.as_deref().and_then(|text| text.split_once(answer)?.1.split_once(question));
    between.map_or_else(Vec::new, |(between, _)| markers_in(between))
}

/// The texts that look like special tokens, each once. Without any, the line that names who speaks next: `User:`.
fn markers_in(between: &str) -> Vec<String> {
    let mut found = special_looking(between);
    found.sort();
    found.dedup();
    if let Some((_, line)) =
        between.trim_end().rsplit_once('\n').filter(|(_, line)| found.is_empty() && line.ends_with(':'))
    {
        found.push(format!("\n{line}"));
    }
    found
}

/// Returns whether a text is one token, special or not.
fn is_one(engine: &dyn Engine, text: &str) -> bool {
    let count = |text: &str| engine.tokenize(&[Piece { text: text.to_owned(), literal: false }]).map(|all| all.len());
    // A token that begins every sequence is no part of the text.
    is_token(engine, text) || matches!((count(text), count("")), (Ok(all), Ok(none)) if all.saturating_sub(none) <= 1)
}
