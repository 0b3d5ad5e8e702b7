//! The names of a request's fields in the library's messages, which name the library's own options and methods.

const NAMES: [(&str, &str); 14] = [
    ("set `Options::constrain` to off", "set callwright.constrain to \"off\""),
    ("`Options::constrain`", "callwright.constrain"),
    ("`Options::max_tokens`", "max_tokens"),
    ("`Options::max_calls`", "callwright.max_calls"),
    ("`Options::call_threshold`", "callwright.call_threshold"),
    ("`LoadOptions::context`", "--ctx"),
    ("`ModelBuilder::format`", "callwright.format"),
    ("`ModelBuilder::template`", "--template"),
    ("`ToolChoice::Required`", "tool_choice \"required\""),
    ("`Sampling::repeat_penalty`", "repeat_penalty"),
    ("`Sampling::temperature`", "temperature"),
    ("`Hub::offline`", "--offline"),
    ("`Session::set_tools` gives some", "give some in tools"),
    ("pass the question in addition to the conversation", "add the question to it"),
];

/// The text with the names of fields.
pub(super) fn with_fields(text: &str) -> String {
    NAMES.iter().fold(text.to_owned(), |text, (library, field)| text.replace(library, field))
}
