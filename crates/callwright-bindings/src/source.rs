//! Templates, formats and tools by what a caller gives: a name, a source text, a file.

use callwright_core::format::Builtin;
use callwright_core::template::ChatTemplate;
use callwright_core::{Error, ErrorKind, Format, Result, Tools};
use serde_json::Value;
use std::path::Path;

/// The name that detects the format from the text.
pub(crate) const AUTO: &str = "auto";

/// A chat template from its source, or by name or path. A source has Jinja's braces; a name or a path has not.
pub(crate) fn template(given: &str) -> Result<ChatTemplate> {
    if ["{{", "{%", "{#"].iter().any(|braces| given.contains(braces)) {
        return ChatTemplate::new("template", given);
    }
    if !files() && ChatTemplate::builtin(given).is_none() {
        let message = format!("there is no built-in chat template {given:?}, and it is no Jinja source");
        let error = Error::new(ErrorKind::Template, message);
        return Err(error.suggest(given, ChatTemplate::BUILTIN, "give the source of a chat template"));
    }
    ChatTemplate::load(given)
}

/// A format from its declaration, or by name or path; `None` for `auto`.
pub(crate) fn format(given: &str) -> Result<Option<Format>> {
    if given == AUTO {
        return Ok(None);
    }
    if given.contains("{#") {
        let declared = Format::parse_declaration(given).map_err(|error| error.in_file("format"))?;
        return declared.map(Some).ok_or_else(|| {
            Error::new(ErrorKind::Format, "the text declares no tool-call format")
                .hint("begin it with a comment that holds the declaration in TOML: a line {#--- callwright, the TOML, a line ---#}")
        });
    }
    if !files() && Format::builtin(given).is_none() {
        let error = Error::new(ErrorKind::Format, format!("there is no tool-call format {given:?}"));
        let names: Vec<&str> = Format::names().collect();
        let otherwise = format!("the built-in ones are {}", names.join(", "));
        return Err(error.suggest(given, names, &otherwise));
    }
    Format::load(given).map(Some)
}

/// Returns whether there can be files.
fn files() -> bool {
    !cfg!(all(target_family = "wasm", target_os = "unknown"))
}

/// Tools from a JSON value, or from a file if it is a text; `null` is no tools.
///
/// # Errors
/// Those of [`Tools::from_value`] and [`Tools::from_file`].
pub fn tools(given: &Value) -> Result<Option<Tools>> {
    match given {
        Value::Null => Ok(None),
        Value::String(path) if files() => Tools::from_file(Path::new(path)).map(Some),
        value => Tools::from_value(value).map(Some),
    }
}

/// The built-in formats, as `callwright template list --json` prints them.
pub fn formats() -> Value {
    Format::builtins().iter().map(Builtin::to_json).collect()
}
