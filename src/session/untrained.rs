//! Markers that look like special tokens and are none of the model's: it was hardly trained on their format.

use crate::engine::Engine;
use crate::format::family::is_special;
use crate::format::infer::texts::tags;
use crate::format::{Format, Payload};
use crate::template::Piece;

/// Whether a text is a special token of the model.
pub(super) fn is_token(engine: &dyn Engine, text: &str) -> bool {
    let model = engine.model();
    model.control_tokens.iter().chain(&model.user_defined_tokens).any(|token| token == text)
}

/// What the user should know where the model's vocabulary lacks markers of the format.
pub(super) fn notice(engine: &dyn Engine, format: &Format) -> Option<String> {
    let model = engine.model();
    if model.control_tokens.is_empty() && model.user_defined_tokens.is_empty() {
        // The vocabulary is not known.
        return None;
    }
    let missing: Vec<String> = special_tokens(format).into_iter().filter(|token| !is_one(engine, token)).collect();
    let (last, before) = missing.split_last()?;
    let (subject, are) = match before {
        [] => (format!("the marker {last}"), "is no token"),
        _ => (format!("the markers {} and {last}", before.join(", ")), "are no tokens"),
    };
    Some(format!(
        "{subject} of the format {} {are} of {}'s vocabulary: the model was probably not trained on this format",
        format.name, model.name
    ))
}

/// Whether a text is one token, special or not.
fn is_one(engine: &dyn Engine, text: &str) -> bool {
    let count = |text: &str| engine.tokenize(&[Piece { text: text.to_owned(), literal: false }]).map(|all| all.len());
    // A token that begins every sequence is no part of the text.
    is_token(engine, text) || matches!((count(text), count("")), (Ok(all), Ok(none)) if all.saturating_sub(none) <= 1)
}

/// The special tokens in the markers of calls.
fn special_tokens(format: &Format) -> Vec<String> {
    let around = format.section.iter().flat_map(|section| [&section.start, &section.end]);
    let markers = around.chain(&format.start).chain(&format.end).filter_map(|marker| marker.text());
    let head = match &format.payload {
        Payload::Named(named) => named.head.forms.first(),
        Payload::Tagged(tagged) => tagged.head.forms.first(),
        Payload::Json(_) | Payload::Python { .. } => None,
    };
    let mut tokens: Vec<String> = Vec::new();
    for text in markers.chain(head.map(String::as_str)) {
        let found = tags(text).into_iter().map(|tag| &text[tag]).filter(|tag| is_reserved(tag));
        for token in found {
            if !tokens.iter().any(|known| known == token) {
                tokens.push(token.to_owned());
            }
        }
    }
    tokens
}

/// Whether nothing but a special token looks like this: `<tool_call>` may as well be text.
fn is_reserved(text: &str) -> bool {
    is_special(text)
        && (text.starts_with('[') || text.starts_with("<|") || text.starts_with("<｜") || text.ends_with("|>"))
}
