//! Calls between tags, in Python and in custom quotes: what a format writes is read back, and no text breaks the
//! readers.

use crate::parse::{Setup, check_splits, cut, parse, strung};
use callwright_core::format::Format;
use callwright_core::message::{Arguments, ToolCall};
use callwright_core::tool::{Tool, Tools};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// The folders of tests/cases/parse whose formats are tried.
const FOLDERS: [&str; 7] = ["tagged", "glm", "nested", "cdata", "python", "dialect", "typed"];

static FORMATS: LazyLock<Vec<Arc<Format>>> = LazyLock::new(|| {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/parse");
    FOLDERS.iter().map(|folder| Arc::new(Format::from_file(cases.join(folder).join("format.jinja")).unwrap())).collect()
});

static TOOLS: LazyLock<Arc<Tools>> = LazyLock::new(|| {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/parse");
    Arc::new(Tools::from_file(cases.join("tagged/tools.json")).unwrap())
});

/// A schema that allows only this value.
fn schema(value: &Value) -> Value {
    match value {
        Value::Null => json!({"type": "null"}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(number) if number.is_f64() => json!({"type": "number"}),
        Value::Number(_) => json!({"type": "integer"}),
        Value::String(_) => json!({"type": "string"}),
        Value::Array(items) => match items.first() {
            Some(item) => json!({"type": "array", "items": schema(item)}),
            None => json!({"type": "array"}),
        },
        Value::Object(object) => {
            let properties: Map<_, _> = object.iter().map(|(key, value)| (key.clone(), schema(value))).collect();
            json!({"type": "object", "properties": properties})
        }
    }
}

/// Text without the formats' markup, because nothing is escaped between tags.
fn plain_text() -> impl Strategy<Value = String> {
    let words =
        proptest::sample::select(&["\n", " ", "</", "~", "<", "5", "true", "null", "{", "\"", "'", "x", "é"][..]);
    let text =
        prop_oneof![".*", "[a-z \\n]{0,12}", proptest::collection::vec(words, 0..6).prop_map(|words| words.concat())];
    text.prop_filter("markup", |text| {
        !["</param", "</arg", "~<", "<|'", "<![CDATA["].iter().any(|tag| text.contains(tag))
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e300f64..1e300).prop_map(Value::from),
        plain_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            // Of one type, so that the schema gives it.
            (inner.clone(), 0..4usize).prop_map(|(item, count)| vec![item; count].into()),
            arguments(inner).prop_map(Value::Object),
        ]
    })
}

fn arguments(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    proptest::collection::vec(("[a-z_][a-zA-Z0-9_]{0,6}", value), 0..4)
        .prop_map(|members| members.into_iter().collect())
}

fn call(arguments: Map<String, Value>) -> ToolCall {
    ToolCall { id: None, name: "some_tool".to_owned(), arguments: Arguments::Object(arguments) }
}

/// Texts that break parsers, combined at random.
const FRAGMENTS: [&str; 94] = [
    "<tool_call>\n",
    "\n</tool_call>",
    "<function=",
    "plan>\n",
    "plan",
    "</function>",
    "<parameter=",
    "city>\n",
    "city>",
    "days>",
    "color>",
    "\n</parameter>\n",
    "</parameter>",
    "</param",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "city",
    "options",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "~<",
    "~</",
    "~<invoke name=\"",
    "plan\">",
    "~</invoke>",
    "item>",
    "tags>",
    "filter>",
    "~</item>",
    "~</tags>",
    "~</filter>",
    "mixed>",
    "~</mixed>",
    "free>",
    "~</free>",
    "<function name=\"",
    "<param name=\"",
    "city\">",
    "days\">",
    "</param>",
    "<![CDATA[",
    "]]>",
    "<|call|>",
    "<|end|>",
    "[",
    "]",
    "(",
    ")",
    "plan(",
    "now()",
    "city=",
    "days=",
    "options=",
    "=",
    ",",
    ", ",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    "\\",
    "\\x",
    "\\u00",
    "\\101",
    "r'",
    "{",
    "}",
    ":",
    "<|tool>",
    "<tool|>",
    "call:plan",
    "call:",
    "<|'|>",
    "<|",
    "|>",
    "\n",
    "\n\n",
    " ",
    "\t",
    "5",
    "-",
    ".",
    "1_0",
    "true",
    "None",
    "nul",
    "{\"a\": 1",
    "\"}",
    "x",
    "é",
    "\u{0}",
    "text (and more)\n",
];

/// Beginnings of calls in the formats, so that the following text is inside one.
const BEGINNINGS: [&[&str]; 7] = [
    &[
        "",
        "<function=plan>\n",
        "<function=plan>\n<parameter=city>\n",
        "<function=plan>\n<parameter=options>\n{\"a\": \"",
    ],
    &["", "<tool_call>plan", "<tool_call>plan<arg_key>city</arg_key><arg_value>"],
    &["", "~<invoke name=\"plan\">", "~<invoke name=\"plan\">~<options>", "~<invoke name=\"plan\">~<filter>"],
    &["", "<function name=\"f\"><param name=\"a\">", "<function name=\"f\"><param name=\"a\"><![CDATA["],
    &["", "<|call|>[", "<|call|>[plan(", "<|call|>[plan(city=\"", "<|call|>[plan(options={"],
    &["", "<|tool>call:plan{", "<|tool>call:plan{city:<|'|>"],
    &[
        "",
        "<calls>\n<do name=\"plan\">\n",
        "<do name=\"plan\">\n<arg name=\"city\" text=\"",
        "<do name=\"plan\">\n<arg name=\"options\" text=\"false\">{\"a\": \"",
        "<do name=\"plan\">\n<arg name=\"city\" text=\"true\">",
    ],
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: ProptestConfig::default().cases.max(3000), ..ProptestConfig::default() })]

    #[test]
    fn written_calls_are_read_back(first in arguments(value()), second in arguments(value()), which in 0..FOLDERS.len()) {
        let format = &FORMATS[which];
        let schema = schema(&Value::Object(first.clone())).as_object().cloned();
        let tools = Arc::new(Tools::new([Tool::new("some_tool", "", schema)]).unwrap());
        // The second call is read with the first one's schema, so it has to be the same.
        let calls = if second.is_empty() { vec![call(first.clone()), call(first)] } else { vec![call(first)] };
        let written = format.write_calls(&calls);
        for repair in [true, false] {
            let setup = Setup { format: Some(Arc::clone(format)), repair, tools: Some(Arc::clone(&tools)), prompt_tail: "" };
            let (_, parsed) = check_splits(&setup, written.as_bytes());
            let read: Vec<_> = parsed.calls.iter().map(|call| (&*call.name, &call.arguments, call.valid)).collect();
            let meant: Vec<_> = calls.iter().map(|call| (&*call.name, &call.arguments, true)).collect();
            prop_assert_eq!(read, meant, "{}", written);
            prop_assert_eq!(parsed.repairs, []);
            prop_assert_eq!(parsed.diagnostics, []);
            prop_assert_eq!(parsed.content, "");
        }
    }

    #[test]
    fn no_text_breaks_them_and_no_split_changes_their_events(
        which in 0..FOLDERS.len(),
        beginning: prop::sample::Index,
        rest in strung(&FRAGMENTS),
        at in proptest::collection::vec(any::<usize>(), 0..6),
        repair: bool,
        known: bool,
    ) {
        let input = [beginning.get(BEGINNINGS[which]).as_bytes(), &rest].concat();
        let tools = known.then(|| Arc::clone(&TOOLS));
        let setup = Setup { format: Some(Arc::clone(&FORMATS[which])), repair, tools, prompt_tail: "" };
        let whole = check_splits(&setup, &input);
        prop_assert_eq!(parse(&setup, cut(&input, at)), whole);
    }
}

/// The output after a text, without what only its end causes.
fn said(which: usize, input: &str) -> usize {
    let mut parser = callwright_core::parse::Parser::new(&FORMATS[which], None, Default::default()).unwrap();
    let mut said = 0;
    for byte in input.as_bytes().chunks(1) {
        parser.push(byte, &mut |event| match event {
            callwright_core::parse::event::Event::Text { delta } => said += delta.len(),
            callwright_core::parse::event::Event::CallArguments { delta, .. } => said += delta.len(),
            _ => {}
        });
    }
    said
}

#[test]
fn little_is_held_back_for_any_text() {
    for (which, beginning) in BEGINNINGS.iter().enumerate().filter_map(|(which, all)| Some((which, *all.last()?))) {
        for (filler, least) in
            [("word ", 20_000), ("\n", 20_000), ("<|'|", 10_000), ("x</parameter x~</x</arg_x]]x<", 10_000)]
        {
            if FOLDERS[which] == "python" && filler != "word " {
                continue; // White space between tokens is left out, and so is what follows the last bracket.
            }
            let input = format!("{beginning}{}", filler.repeat(40_000 / filler.len()));
            let said = said(which, &input);
            assert!(said > least, "{}: {said} of {} bytes of {filler:?}", FOLDERS[which], input.len());
        }
    }
}
