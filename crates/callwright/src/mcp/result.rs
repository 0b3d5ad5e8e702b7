//! What a server answers to a call, as the text that the model reads.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, ServerResult};
use serde_json::Value;

/// The text of an answer to a call, and whether it is an error; `None` if it is no result.
pub(super) fn read(answer: ServerResult) -> Option<(String, bool)> {
    match answer {
        ServerResult::CallToolResult(result) => Some((text(&result), result.is_error == Some(true))),
        ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => Some(Default::default()),
        // One part that is not known makes all of it unknown to the protocol's library.
        ServerResult::CustomResult(result) => {
            let content = match result.0.get("content") {
                Some(Value::Array(content)) => content.as_slice(),
                None if result.0.get("structuredContent").or_else(|| result.0.get("_meta")).is_some() => &[],
                _ => return None,
            };
            let parts = content.iter().map(|part| match serde_json::from_value::<ContentBlock>(part.clone()) {
                Ok(known) => block(&known),
                Err(_) => unknown(part),
            });
            let structured = result.0.get("structuredContent").filter(|structured| !structured.is_null());
            let is_error = result.0.get("isError") == Some(&Value::Bool(true));
            Some((joined(parts.collect(), structured), is_error))
        }
        _ => None,
    }
}

/// The text of a result: its texts, placeholders for what is no text, and its structured content where no text has it.
fn text(result: &CallToolResult) -> String {
    joined(result.content.iter().map(block).collect(), result.structured_content.as_ref())
}

fn joined(mut parts: Vec<String>, structured: Option<&Value>) -> String {
    if let Some(structured) = structured
        && !parts.iter().any(|part| has(part, structured))
    {
        parts.push(structured.to_string());
    }
    parts.join("\n")
}

/// A part of an unknown kind: its text, if it has one.
fn unknown(part: &Value) -> String {
    let kind = part.get("type").and_then(Value::as_str).map_or_else(String::new, |kind| format!(" {kind:?}"));
    match part.get("text").and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None => format!("[content of the unknown kind{kind}, which is not shown]"),
    }
}

/// Returns whether a text has the structured content: as JSON, or as the only value in it.
fn has(text: &str, structured: &Value) -> bool {
    let same = |value: &Value| match value {
        Value::String(string) => string == text,
        value => serde_json::from_str::<Value>(text).is_ok_and(|read| read == *value),
    };
    // Libraries that derive schemas wrap a value that is no object into one with a single member.
    let only = structured.as_object().filter(|object| object.len() == 1).and_then(|object| object.values().next());
    same(structured) || only.is_some_and(same)
}

pub(super) fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => placeholder("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => placeholder("audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(resource) => contents(&resource.resource),
        ContentBlock::ResourceLink(link) => {
            let about = link.description.as_deref().map_or_else(String::new, |about| format!(": {about}"));
            format!("[link to the resource {} ({}){about}]", link.uri, link.name)
        }
        _ => "[content of an unknown kind, which is not shown]".to_owned(),
    }
}

/// The text of a resource, after its address.
pub(super) fn contents(resource: &ResourceContents) -> String {
    match resource {
        ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            let kind = mime_type.as_deref().unwrap_or("binary");
            placeholder(&format!("resource {uri}"), kind, blob)
        }
        _ => "[a resource of an unknown kind, which is not shown]".to_owned(),
    }
}

/// Returns what is in place of data in base64.
fn placeholder(what: &str, kind: &str, data: &str) -> String {
    format!("[{what}: {kind}, {} bytes, which are not shown]", data.trim_end_matches('=').len() * 3 / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> String {
        super::read(serde_json::from_value(value).unwrap()).unwrap().0
    }

    #[test]
    fn what_is_no_text_has_a_placeholder() {
        let content = json!([
            {"type": "text", "text": "one"},
            {"type": "image", "mimeType": "image/png", "data": "AAAAAA=="},
            {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAA"}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
        ]);
        let expected = "one\n[image: image/png, 4 bytes, which are not shown]\n[audio: audio/wav, 3 bytes, which are not shown]\n\
            [resource file:///a]\ninside\n[resource file:///b: binary, 3 bytes, which are not shown]\n\
            [link to the resource file:///c (c)]";
        assert_eq!(read(json!({"content": content})), expected);
    }

    #[test]
    fn an_unknown_part_does_not_spoil_the_others() {
        let content = json!([
            {"type": "text", "text": "one"},
            {"type": "hologram", "data": "AAAA"},
            {"type": "verse", "text": "two"},
            {"type": "image", "mimeType": "image/png"},
            {"type": "text", "text": "three"},
        ]);
        let expected = "one\n[content of the unknown kind \"hologram\", which is not shown]\ntwo\n\
            [content of the unknown kind \"image\", which is not shown]\nthree\n{\"a\":1}";
        assert_eq!(read(json!({"content": content, "structuredContent": {"a": 1}})), expected);
        let failed = json!({"content": [{"type": "hologram"}], "isError": true});
        assert!(super::read(serde_json::from_value(failed).unwrap()).unwrap().1);
    }

    #[test]
    fn structured_content_is_written_where_no_text_has_it() {
        let with = |text: &str, structured: Value| {
            read(json!({"content": [{"type": "text", "text": text}], "structuredContent": structured}))
        };
        assert_eq!(with("{\"a\":  1}", json!({"a": 1})), "{\"a\":  1}");
        assert_eq!(with("3", json!({"result": 3})), "3");
        assert_eq!(with("x", json!({"result": "x"})), "x");
        assert_eq!(with("See below.", json!({"a": 1})), "See below.\n{\"a\":1}");
        assert_eq!(read(json!({"content": [], "structuredContent": {"a": 1}})), "{\"a\":1}");
    }
}
