//! Fields of a request body that the program does not use, and its options in their place.

use callwright::message::Body;

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

#[cfg(test)]
mod tests {
    use super::{Body, unused_note};
    use callwright::message::Conversation;

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
