//! Templates and formats by the name that a person gives: a built-in one, or a file.

use crate::error::{Error, ErrorKind, Result, nearest};
use crate::format::Format;
use crate::template::ChatTemplate;
use std::path::Path;

impl ChatTemplate {
    /// The built-in template of that name, or the one in that file.
    ///
    /// # Errors
    /// [`ErrorKind::Template`] when there is neither, with a hint at what was probably meant; those of
    /// [`ChatTemplate::from_file`].
    pub fn load(name: &str) -> Result<ChatTemplate> {
        if let Some(template) = ChatTemplate::builtin(name) {
            return template;
        }
        if !is_name(name) {
            return ChatTemplate::from_file(name);
        }
        let error = Error::new(ErrorKind::Template, format!("there is no chat template {name:?}, and no such file"));
        Err(match nearest(name, Format::names().chain(ChatTemplate::BUILTIN)) {
            Some(meant) if ChatTemplate::BUILTIN.contains(&meant) => error.hint(format!("did you mean `{meant}`?")),
            Some(format) => error.hint(format!("`{format}` is a tool-call format, which any template can have")),
            None => error.hint(format!("give a Jinja file, or a built-in one: {}", ChatTemplate::BUILTIN.join(" or "))),
        })
    }
}

/// See [`Format::load`].
pub(super) fn format(name: &str) -> Result<Format> {
    if let Some(format) = Format::builtin(name) {
        return Ok(format.clone());
    }
    if !is_name(name) {
        return Format::from_file(name);
    }
    let error = Error::new(ErrorKind::Format, format!("there is no tool-call format {name:?}, and no such file"));
    let names: Vec<&str> = Format::names().collect();
    let otherwise = format!("give a file that declares one, or a built-in one: {}", names.join(", "));
    Err(error.suggest(name, names, &otherwise))
}

/// Returns whether this can only be the name of something built in.
pub fn is_name(name: &str) -> bool {
    !name.contains('/') && !Path::new(name).exists()
}
