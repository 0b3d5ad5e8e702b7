//! Markers that look like special tokens and are none of the model's: it was hardly trained on their format.

use crate::engine::Engine;
use crate::format::Format;
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
    let missing: Vec<String> = format.special_tokens().into_iter().filter(|token| !is_one(engine, token)).collect();
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
