//! The names of the command line's options in the library's messages.
//!
//! The library's messages name its own options and methods. A person at a terminal needs the option of the command line.

use callwright::message::Body;
use serde_json::Value;
use std::borrow::Cow;

/// What the library writes, and what the program writes in its place.
const NAMES: [(&str, &str); 29] = [
    ("set `Options::constrain` to off", "use --constrain off"),
    ("`Options::constrain`", "--constrain"),
    ("`Options::max_tokens`", "--max-tokens"),
    ("`Options::max_thinking`", "--max-thinking"),
    ("`Options::max_calls`", "--max-calls"),
    ("`Options::select_tools`", "--select-tools"),
    ("`Limits::max_turns`", "--max-turns"),
    ("`LoadOptions::context`", "--ctx"),
    ("`LoadOptions::gpu_layers`", "--gpu-layers"),
    ("`ModelBuilder::format` gives", "--format NAME|FILE gives"),
    ("`ModelBuilder::format`", "--format"),
    ("`Options::explain`", "--explain"),
    ("`ToolChoice::Required`", "--tool-choice required"),
    ("`Options::call_threshold`", "--call-threshold"),
    ("`Options::loop_guard` off", "--no-loop-guard"),
    ("`Sampling::repeat_penalty`", "--repeat-penalty"),
    ("`Sampling::temperature`", "--temp"),
    ("`ModelBuilder::template`", "--template NAME|FILE"),
    ("`Hub::offline`", "--offline"),
    ("`Session::set_tools` gives some", "give some with --tools FILE"),
    ("`Session::record`", "--record FILE"),
    ("`Plan::repeat`", "--repeat"),
    (
        "a grammar is written in llguidance's Lark, or in GBNF",
        "it has to be llguidance's Lark, or GBNF; `callwright grammar --grammar FILE --check FILE` tries one",
    ),
    (
        "it can be resumed; another directory starts a new run",
        "--resume goes on with it, --out DIR starts one elsewhere",
    ),
    (
        "a run needs a new directory, or one that a run began in",
        "--out names a new directory, or one that a run began in",
    ),
    ("a run is resumed by the command that began it", "--resume needs the command that began the run"),
    ("start a run in another directory", "start a run elsewhere with --out DIR"),
    ("a run's directory has the file run.json", "a run's directory is what `callwright bench --out DIR` wrote"),
    ("only runs of the same suite with the same cases", "only runs of the same suite with the same --limit"),
];

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

/// The text with the names of the command line's options.
pub fn with_options(text: &str) -> Cow<'_, str> {
    if !NAMES.iter().any(|(library, _)| text.contains(library)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(NAMES.iter().fold(text.to_owned(), |text, (library, program)| text.replace(library, program)))
}

/// The same in these fields of a JSON object.
pub fn in_fields(mut object: Value, fields: &[&str]) -> Value {
    for field in fields {
        if let Some(Value::String(text)) = object.get_mut(field) {
            *text = with_options(text).into_owned();
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::{Body, unused_note, with_options};
    use callwright::message::Conversation;

    #[test]
    fn messages_name_the_options_of_the_command_line() {
        for (library, program) in [
            (
                "raise `Options::max_tokens`, or set `Options::constrain` to off",
                "raise --max-tokens, or use --constrain off",
            ),
            ("not enforced: `Options::constrain` is off", "not enforced: --constrain is off"),
            ("a larger `LoadOptions::context` gives more room", "a larger --ctx gives more room"),
            ("missing field `context`", "missing field `context`"),
            (
                "written in the format delimited (`ModelBuilder::format` gives another)",
                "written in the format delimited (--format NAME|FILE gives another)",
            ),
            ("hermes fits it (`ModelBuilder::format` sets it)", "hermes fits it (--format sets it)"),
            (
                "another process is at work; start a run in another directory",
                "another process is at work; start a run elsewhere with --out DIR",
            ),
        ] {
            assert_eq!(with_options(library), program);
        }
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
