//! Whether a chat template writes a format natively, so that no overlay is needed.

use crate::Result;
use crate::format::Format;
use crate::message::{Arguments, Message, ToolCall};
use crate::parse::{Parsed, Parser, ParserOptions};
use crate::template::{ChatTemplate, RenderRequest};
use crate::tool::{Tool, Tools};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// See [`Format::native_in`].
pub(super) fn variables(format: &Format, template: &ChatTemplate) -> Result<Option<Map<String, Value>>> {
    let declared = Format::parse_declaration(template.source()).map_err(|error| error.in_file(template.name()))?;
    if let Some(own) = declared {
        // A user's format may reuse a built-in name.
        let same = (&own.start, &own.end, &own.payload) == (&format.start, &format.end, &format.payload);
        if own.name == format.name && same {
            return Ok(Some(Map::new()));
        }
        if let Some((_, variables)) = own.styles.iter().find(|(style, _)| *style == format.name)
            && reads_call_of(format, template, variables).unwrap_or(false)
        {
            return Ok(Some(variables.clone()));
        }
    }
    let written =
        template.capabilities().native_tools() && reads_call_of(format, template, &Map::new()).unwrap_or(false);
    Ok(written.then(Map::new))
}

/// Whether a call that the template writes with `variables` is read back unchanged and without repairs.
fn reads_call_of(format: &Format, template: &ChatTemplate, variables: &Map<String, Value>) -> Result<bool> {
    Ok(read_call_of(format, template, variables)?.is_some_and(|parsed| parsed.repairs.is_empty()))
}

/// Returns whether a call that the template writes is read back unchanged; without repairs if `strict`.
pub(super) fn reads(format: &Format, template: &ChatTemplate, strict: bool) -> bool {
    let read = read_call_of(format, template, &Map::new());
    read.ok().flatten().is_some_and(|parsed| !strict || parsed.repairs.is_empty())
}

/// The answer with a call that the template writes with `variables`, if the call is read back unchanged.
fn read_call_of(format: &Format, template: &ChatTemplate, variables: &Map<String, Value>) -> Result<Option<Parsed>> {
    let schema = json!({"type": "object", "properties": {"island": {"type": "string"}}});
    let tools = Tools::new([Tool::new("find_ferries", "Looks departures up", schema.as_object().cloned())])?;
    let arguments = Arguments::Object(Map::from_iter([("island".to_owned(), json!("Heimaey"))]));
    let call = ToolCall { id: Some("fErry0001".to_owned()), name: "find_ferries".to_owned(), arguments };
    let messages = [
        Message::user("When does the ferry leave?"),
        Message::calls(vec![call.clone()]),
        Message::tool("fErry0001", "find_ferries", "17:40"),
    ];
    let render = |messages: &[Message], add_generation_prompt| {
        let (tools, variables) = (Some(&tools), variables.clone());
        let request = RenderRequest { messages, tools, add_generation_prompt, variables, ..RenderRequest::default() };
        template.render(&request).map(|prompt| prompt.text())
    };
    let (prompt, whole) = (render(&messages[..1], true)?, render(&messages, false)?);
    let same = prompt.bytes().zip(whole.bytes()).take_while(|(a, b)| a == b).count();
    let mut parser = Parser::new(format, Some(Arc::new(tools)), ParserOptions::default())?;
    parser.push(&whole.as_bytes()[same..], &mut |_| ());
    let parsed = parser.finish(&mut |_| ());
    let same = match parsed.calls.as_slice() {
        [read] => read.name == call.name && read.arguments == call.arguments && read.complete,
        _ => false,
    };
    Ok(same.then_some(parsed))
}
