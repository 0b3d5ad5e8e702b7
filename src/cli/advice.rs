//! Names the option that helps. The library's messages name none, because a program's options are not its business.

use callwright::message::Body;
use std::borrow::Cow;

/// Options in place of fields of a request body that are not used.
const FIELDS: [(&str, &str); 5] = [
    ("stream", "--output events writes while the model does"),
    ("stream_options", "--output events writes while the model does"),
    ("system", "give a message with the role system, or --system"),
    ("grammar", "give it with --grammar FILE"),
    ("json_schema", "write response_format, or give it with --json-schema FILE"),
];

/// One sentence about the fields of a request body that are not used.
pub fn unused_note(body: &Body) -> Option<String> {
    let mut body = body.clone();
    for field in &mut body.unused {
        if let Some((_, option)) = FIELDS.iter().find(|(name, _)| *name == field.name) {
            field.advice = (*option).to_owned();
        } else if field.name == "model" {
            field.advice = format!("-m chooses one, not {}", field.value);
        }
    }
    body.unused_note()
}

/// A note of the library, with the option that helps.
pub fn with_option(note: &str) -> Cow<'_, str> {
    let form = note.strip_suffix(" fits it").and_then(|note| note.rsplit_once("; the format "));
    if let Some((note, format)) = form {
        return format!("{note}; --format {format} fits it").into();
    }
    match note.contains("; tools and calls are written in the format ") {
        true => format!("{note} (--format NAME|FILE gives another)").into(),
        false => note.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callwright::Tools;
    use callwright::choose::{Clues, format_for};
    use callwright::format::Format;
    use callwright::message::Conversation;
    use callwright::parse::{Parser, ParserOptions};
    use callwright::template::ChatTemplate;

    #[test]
    fn a_call_in_another_form_names_the_option_for_its_format() {
        let tools = Tools::from_json(r#"[{"name": "clock"}]"#, "tools.json").unwrap();
        let mistral = Format::builtin("mistral").unwrap();
        let mut parser = Parser::new(mistral, Some(tools.into()), ParserOptions::default()).unwrap();
        parser.push(b"<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>", &mut |_| ());
        let diagnostic = parser.finish(&mut |_| ()).diagnostics[0].to_string();
        assert!(with_option(&diagnostic).ends_with("in another form: hermes; --format hermes fits it"), "{diagnostic}");
    }

    #[test]
    fn a_format_that_is_only_the_default_names_the_option_for_another() {
        let template = ChatTemplate::new("chat.jinja", "{{ messages[0].content }}").unwrap();
        let choice = format_for(&template, None, Clues::default()).unwrap();
        let note = with_option(&choice.notices[0]).into_owned();
        assert!(note.ends_with("in the format delimited (--format NAME|FILE gives another)"), "{note}");
        assert_eq!(with_option("so that any JSON fits it"), "so that any JSON fits it");
    }

    #[test]
    fn unused_fields_name_the_options_in_their_place() {
        let body = r#"{"messages": [{"role": "user", "content": "Hi"}], "model": "m", "stream": true, "n": 2}"#;
        let body = Body::of(&Conversation::from_json(body, "body.json").unwrap()).unwrap();
        assert_eq!(
            unused_note(&body).unwrap(),
            "not used in the request body: model (-m chooses one, not \"m\"), \
            stream (--output events writes while the model does), n (one answer is written)"
        );
    }
}
