//! Finds the tool for a name that is not exactly a tool's.
//!
//! Models put namespaces before a name (`functions.clock`, `google:mcp:create-file`) and counters after it (`clock:0`),
//! and markup of the call runs into it (`clock<|channel|>analysis`). None of that is part of the name.

use crate::tool::Tools;

/// Characters that end a name. A name that a tool has is never cut, since tools may contain them.
const MARKUP: [char; 11] = ['<', '>', '\n', '\r', '(', ')', '[', ']', '{', '}', '"'];

/// The namespaces that models are trained to put before a tool's name.
const NAMESPACES: [&str; 8] =
    ["tools.", "functions.", "default_api.", "tool.", "function.", "default_api:", "functions:", "tools:"];

/// The intended tool's name, if it differs from the written one.
pub(crate) fn repaired(name: &str, tools: Option<&Tools>) -> Option<String> {
    if let Some(tool) = tools.and_then(|tools| meant(name, tools)) {
        return Some(tool.to_owned()).filter(|tool| tool != name);
    }
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')) {
        return None;
    }
    let bare = bare(name);
    (bare != name && !bare.is_empty()).then(|| bare.to_owned())
}

/// The tool that a name means.
pub(crate) fn meant<'t>(name: &str, tools: &'t Tools) -> Option<&'t str> {
    if let Some(tool) = known(name, tools) {
        return Some(tool);
    }
    let bare = bare(name);
    let candidates = [bare, without_counter(bare)];
    candidates.iter().find_map(|name| known(name, tools)).or_else(|| {
        let parts = candidates.iter().flat_map(|name| suffixes(name));
        parts.filter(|(prefix, _)| is_foreign(prefix, tools)).find_map(|(_, name)| known(name, tools))
    })
}

/// The tool of that name, or the only one that resembles it.
fn known<'t>(name: &str, tools: &'t Tools) -> Option<&'t str> {
    tools.get(name).map(|tool| tool.name.as_str()).or_else(|| tools.resembling(name))
}

/// The same in code, where any object may have a method of that name: only usual namespaces may precede it.
pub(crate) fn meant_in_code<'t>(name: &str, tools: &'t Tools) -> Option<&'t str> {
    known(name, tools).or_else(|| {
        let rest = NAMESPACES.iter().find_map(|namespace| name.strip_prefix(namespace))?;
        meant(name, tools).filter(|tool| known(rest, tools) == Some(tool))
    })
}

/// Returns whether a name that means a tool in code may begin like this.
pub(crate) fn may_begin_in_code(begun: &str, tools: &Tools) -> bool {
    let after = |namespace: &str| begun.strip_prefix(namespace).is_some_and(|rest| tools.may_begin(rest));
    tools.may_begin(begun) || NAMESPACES.iter().any(|namespace| namespace.starts_with(begun) || after(namespace))
}

/// Returns whether `key` can be the name of an argument: no markup, no line break, no bracket.
pub(crate) fn is_plain(key: &str) -> bool {
    !key.is_empty() && !key.contains(MARKUP)
}

/// A name without quotes, up to a character that cannot be part of one.
fn bare(name: &str) -> &str {
    let quoted = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`');
    let mut name = name.trim_matches(quoted);
    // A tag before the name.
    while let Some((_, rest)) = name.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        name = rest.trim_start_matches(quoted);
    }
    name[..name.find(MARKUP).unwrap_or(name.len())].trim_matches(quoted)
}

/// The name without a number after a colon or `#`: `clock:0`.
fn without_counter(name: &str) -> &str {
    let rest = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if rest.len() == name.len() { name } else { rest.strip_suffix([':', '#']).unwrap_or(name) }
}

/// The parts of a name before and after each namespace separator, longest names first.
fn suffixes(name: &str) -> impl Iterator<Item = (&str, &str)> {
    name.char_indices().filter_map(move |(at, c)| {
        let end = match c {
            '.' | ':' | '/' => at + 1,
            '_' if name[at..].starts_with("__") => at + 2,
            _ => return None,
        };
        Some(name.split_at(end)).filter(|(_, rest)| !rest.is_empty())
    })
}

/// Returns whether no tool's name has this prefix.
fn is_foreign(prefix: &str, tools: &Tools) -> bool {
    !tools.iter().any(|tool| tool.name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Tool;

    #[test]
    fn namespaces_counters_and_markup_are_not_part_of_a_name() {
        let tools = ["clock", "create-file", "tool_12", "files.read", "write"].map(|name| Tool::new(name, "", None));
        let tools = Tools::new(tools).unwrap();
        for (written, meant) in [
            ("clock", None),
            ("Clock", Some("clock")),
            ("clock:0", Some("clock")),
            ("functions.clock", Some("clock")),
            ("functions.clock:3", Some("clock")),
            ("google:mcp:create-file", Some("create-file")),
            ("mcp__server__create-file", Some("create-file")),
            ("server/create_file", Some("create-file")),
            ("clock<|channel|>analysis", Some("clock")),
            ("tool_12</arg_value>", Some("tool_12")),
            ("\"clock\"", Some("clock")),
            ("<|sep|>clock", Some("clock")),
            ("<a><b> clock</b>", Some("clock")),
            ("files.read", None),
            // Another tool has that prefix, so it is not removed.
            ("files.write", None),
            ("nothing", None),
            ("no.thing<x>", Some("no.thing")),
            ("", None),
        ] {
            assert_eq!(repaired(written, Some(&tools)).as_deref(), meant, "{written}");
        }
        assert_eq!(repaired("a.b:0", None), None);
        for (written, meant) in [
            ("clock", Some("clock")),
            ("Clock", Some("clock")),
            ("tools.clock", Some("clock")),
            ("functions.create_file", Some("create-file")),
            ("wall.clock", None),
            ("tools.wall.clock", None),
            ("tools.nothing", None),
        ] {
            assert_eq!(meant_in_code(written, &tools), meant, "{written}");
        }
        for (begun, may) in [("to", true), ("tools.cl", true), ("tools.x", false), ("cl", true), ("the", false)] {
            assert_eq!(may_begin_in_code(begun, &tools), may, "{begun}");
        }
        assert_eq!(repaired("a<b", None).as_deref(), Some("a"));
    }
}
