//! Whether a file is a base or an instruct model, as far as it tells.
//!
//! No key of a GGUF says so. Its makers say it in names, and a chat template says it where its markers are tokens of the model: a base
//! model may have a template that it was never trained on.

use super::own_template;
use crate::models::Gguf;
use crate::session::untrained::turn_markers;
use std::fmt;

/// Words of a name that tell what a model was trained for, in lower case.
const OF_INSTRUCT: [&str; 4] = ["instruct", "it", "chat", "thinking"];
const OF_BASE: [&str; 3] = ["base", "pt", "pretrained"];

/// What a GGUF is, and what it was judged by.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FileKind {
    /// `instruct`, `base`, or what it is instead of a model, such as `adapter`; `None` where nothing tells.
    pub name: Option<String>,
    /// Whether the file says so, and it is no guess from its chat template.
    pub said: bool,
    /// What it was judged by, as a sentence without its end.
    pub by: String,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or("unknown");
        let probably = if self.name.is_some() && !self.said { ", probably" } else { "" };
        write!(f, "{name}{probably}: {}", self.by)
    }
}

impl FileKind {
    /// Judges by the names in the file, then by its own name, and then by its chat template.
    pub fn of(gguf: &Gguf) -> FileKind {
        let said = |name: &str, by: String| FileKind { name: Some(name.to_owned()), said: true, by };
        let guessed = |name: &str, by: String| FileKind { said: false, ..said(name, by) };
        if let Some(other) = gguf.text("general.type").filter(|kind| *kind != "model") {
            return said(other, "general.type says so".to_owned());
        }
        let keys = ["general.finetune", "general.name", "general.basename"].map(|key| (key, gguf.text(key)));
        let file = gguf.path().file_name().map(|name| name.to_string_lossy());
        for (place, text) in keys.into_iter().chain([("the file's name", file.as_deref())]) {
            if let Some((name, word)) = text.and_then(said_by) {
                return said(name, format!("{place} says {word:?}"));
            }
        }
        if gguf.chat_templates().is_empty() {
            return guessed("base", "it has no chat template".to_owned());
        }
        let token = |name| gguf.special_token(name).and_then(|id| gguf.token_text(id)).unwrap_or_default();
        let template = own_template(gguf);
        let markers = template.map_or_else(Vec::new, |template| turn_markers(&template, &token("bos"), &token("eos")));
        let is_token = |marker: &&String| gguf.tokens().is_some_and(|all| all.iter().any(|t| t == marker.as_bytes()));
        match (markers.iter().find(is_token), markers.first().map(|marker| marker.trim())) {
            (Some(known), _) => {
                guessed("instruct", format!("its vocabulary has {known}, with which its chat template separates turns"))
            }
            (None, Some(missing)) => {
                guessed("base", format!("its vocabulary lacks {missing}, with which its chat template separates turns"))
            }
            (None, None) => {
                FileKind { name: None, said: false, by: "neither names nor the chat template tell".to_owned() }
            }
        }
    }
}

/// What a name says that a model is, and the word that does; nothing where words disagree.
fn said_by(text: &str) -> Option<(&'static str, &str)> {
    let words = || text.split(|c: char| !c.is_alphanumeric());
    let first = |known: &[&str]| words().find(|word| known.contains(&&*word.to_lowercase()));
    match (first(&OF_INSTRUCT), first(&OF_BASE)) {
        (Some(word), None) => Some(("instruct", word)),
        (None, Some(word)) => Some(("base", word)),
        _ => None,
    }
}
