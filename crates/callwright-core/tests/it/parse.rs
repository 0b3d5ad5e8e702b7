//! The streaming parser: every case file produces the reviewed events, however it is split.
//!
//! A case is a file under `tests/cases/parse`: the model's text, without its last line break. In a file whose name
//! begins with `bytes_`, `\xNN` is a byte. Cases under `strict/` are parsed without repairs. A folder may have a
//! `tools.json`, and a `format.jinja` with the declaration of the format; without one, a folder with the name of a
//! built-in format has cases of that. In a name that ends in `_after_NAME`, NAME is
//! the part of the answer in the prompt, under `prompt/`.

use callwright_core::format::{Declaration, Format, JsonCall, Marker, Payload};
use callwright_core::message::Arguments;
use callwright_core::parse::auto::AutoParser;
use callwright_core::parse::event::{Diagnostic, DiagnosticKind, Event, RepairKind};
use callwright_core::parse::{Parsed, Parser, ParserOptions};
use callwright_core::tool::Tools;
use proptest::prelude::*;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a text is parsed.
#[derive(Clone)]
pub(crate) struct Setup {
    /// `None` for the default.
    pub format: Option<Arc<Format>>,
    pub repair: bool,
    pub tools: Option<Arc<Tools>>,
    pub prompt_tail: &'static str,
}

const REPAIR: Setup = Setup { format: None, repair: true, tools: None, prompt_tail: "" };
const STRICT: Setup = Setup { repair: false, ..REPAIR };

fn delimited() -> &'static Format {
    Format::builtin("delimited").expect("it is built in")
}

/// Parses the pieces; adjacent deltas of one kind are joined.
pub(crate) fn parse<'a>(setup: &Setup, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Event>, Parsed) {
    let format = setup.format.as_deref().unwrap_or_else(|| delimited());
    let prompt_tail = setup.prompt_tail.to_owned();
    let options = ParserOptions::default().with(|set| {
        set.repair = setup.repair;
        set.prompt_tail = prompt_tail;
    });
    let mut parser = Parser::new(format, setup.tools.clone(), options).expect("the format is sound");
    let mut events = Vec::new();
    let mut join = |event: Event| match (events.last_mut(), event) {
        (Some(Event::Text { delta }), Event::Text { delta: more }) => delta.push_str(&more),
        (Some(Event::Reasoning { delta }), Event::Reasoning { delta: more }) => delta.push_str(&more),
        (Some(Event::CallArguments { id, delta }), Event::CallArguments { id: same, delta: more }) if *id == same => {
            delta.push_str(&more);
        }
        (_, event) => events.push(event),
    };
    for piece in pieces {
        parser.push(piece, &mut join);
    }
    let parsed = parser.finish(&mut join);
    (events, parsed)
}

/// Invariants of every text, valid or not.
fn check(setup: &Setup, input: &[u8], events: &[Event], parsed: &Parsed) {
    let text: String =
        events.iter().filter_map(|e| if let Event::Text { delta } = e { Some(&**delta) } else { None }).collect();
    assert_eq!(text, parsed.content, "the text deltas are the content");
    let reasoning: String =
        events.iter().filter_map(|e| if let Event::Reasoning { delta } = e { Some(&**delta) } else { None }).collect();
    assert_eq!(reasoning, parsed.reasoning.clone().unwrap_or_default(), "the reasoning deltas are the reasoning");
    let mut end = 0;
    for call in &parsed.calls {
        let deltas: String = events
            .iter()
            .filter_map(|e| match e {
                Event::CallArguments { id, delta } if *id == call.id => Some(&**delta),
                _ => None,
            })
            .collect();
        // A call without a name is not announced, nor is one whose name was only ended by the text's end.
        let announced = events.iter().any(|e| matches!(e, Event::CallStart { id, .. } if *id == call.id));
        assert!(announced || !call.is_whole(), "{}: a whole call is announced", call.id);
        assert!(!announced || !call.name.is_empty(), "{}: a call without a name is not announced", call.id);
        match &call.arguments {
            _ if !announced => assert_eq!(deltas, "", "{}: what is not announced has no deltas", call.id),
            // What is open at the text's end stays open in the deltas.
            Arguments::Object(_) if !call.complete && serde_json::from_str::<serde_json::Value>(&deltas).is_err() => {}
            Arguments::Raw(raw) if !call.complete && *raw != deltas => {
                assert!(raw.starts_with(&deltas), "{raw} {deltas}")
            }
            Arguments::Object(object) => {
                assert_eq!(&serde_json::from_str::<serde_json::Map<_, _>>(&deltas).unwrap(), object, "{deltas}");
            }
            Arguments::Raw(raw) => {
                assert_eq!(&deltas, raw);
                let error = serde_json::from_str::<serde_json::Value>(raw).err().map(|error| error.to_string());
                let said = |d: &Diagnostic| {
                    !matches!(d.kind, DiagnosticKind::IgnoredKey { .. } | DiagnosticKind::CutOff)
                        && call.range.start <= d.range.start
                };
                assert!(
                    error.is_none_or(|error| error.contains("number out of range"))
                        || parsed.diagnostics.iter().any(said),
                    "{raw:?} is not JSON, and nothing says so"
                );
            }
        }
        let starts = events.iter().filter(|e| matches!(e, Event::CallStart { id, .. } if *id == call.id)).count();
        let ends = events.iter().filter(|e| matches!(e, Event::CallEnd { id, complete, valid } if *id == call.id && *complete == call.complete && *valid == call.valid)).count();
        let invalid = events
            .iter()
            .filter(|e| matches!(e, Event::InvalidCall(said) if said.id == call.id && said.problems == call.problems))
            .count();
        assert_eq!((starts, ends, invalid), if announced { (1, 1, 0) } else { (0, 0, 1) }, "{}", call.id);
        assert!(call.complete || !call.valid, "an incomplete call is never valid");
        assert_eq!(call.valid, call.problems.is_empty());
        for problem in &call.problems {
            assert_eq!(serde_json::to_value(problem).unwrap()["kind"], problem.kind(), "{problem}");
        }
        assert!(call.range.start >= end && call.range.end <= input.len(), "{:?}", call.range);
        // What prompts open of a call is part of it.
        if setup.prompt_tail.is_empty() && setup.format.as_ref().is_none_or(|format| format.opened.is_none()) {
            assert_eq!(call.raw, String::from_utf8_lossy(&input[call.range.clone()]));
        }
        end = call.range.end;
    }
    let solid = |text: &str| text.split_ascii_whitespace().collect::<String>();
    if setup.format.as_ref().is_none_or(|f| f.section.is_none() && f.reasoning.is_none() && f.markup.is_empty()) {
        let content = solid(&parsed.content);
        // A marker that was read, with a mistake, is text if it turns out to be only named.
        // A comma before, between or after calls in another form may be either.
        let expected: Vec<String> = (0..8)
            .map(|bits| [bits & 1 > 0, bits & 2 > 0, bits & 4 > 0])
            .map(|[near, between, last]| solid(&outside(setup, input, parsed, near, (between, last))))
            .collect();
        assert!(expected.contains(&content), "what is in no call is text: {content:?} is none of {expected:?}");
    }
    for call in parsed.to_json()["tool_calls"].as_array().into_iter().flatten() {
        let arguments = call["function"]["arguments"].as_str().unwrap();
        assert!(serde_json::from_str::<serde_json::Map<_, _>>(arguments).is_ok(), "a client can read {arguments}");
    }
    for range in parsed.repairs.iter().map(|r| &r.range).chain(parsed.diagnostics.iter().map(|d| &d.range)) {
        assert!(range.start <= range.end && range.end <= input.len() + 1, "{range:?}");
    }
    if !setup.repair {
        assert_eq!(parsed.repairs, []);
    }
}

/// The text that is in no call, without markup; with `near`, markers with a mistake are markup as well, and with `commas`,
/// those before a call in another form, and those after the last one, are text.
fn outside(setup: &Setup, input: &[u8], parsed: &Parsed, near: bool, commas: (bool, bool)) -> String {
    let kept = without_markup(input, parsed, near);
    let (mut outside, mut end) = (Vec::new(), 0);
    for call in &parsed.calls {
        outside.extend_from_slice(text_after_call(setup, &kept[end..call.range.start], end > 0, parsed, commas.0));
        outside.push(b'\n');
        end = call.range.end;
    }
    outside.extend_from_slice(text_after_call(setup, &kept[end..], end > 0, parsed, commas.1));
    String::from_utf8_lossy(&outside).into_owned()
}

/// The text with white space in place of markup that belongs to no call.
fn without_markup(input: &[u8], parsed: &Parsed, near: bool) -> Vec<u8> {
    let mut text = input.to_vec();
    let stray = |kind: &DiagnosticKind| matches!(kind, DiagnosticKind::StrayMarkup | DiagnosticKind::EmptySection);
    let stray = parsed.diagnostics.iter().filter(|said| stray(&said.kind)).map(|said| &said.range);
    let around = parsed
        .repairs
        .iter()
        .filter(|repair| near && repair.kind == RepairKind::NearMissMarker)
        .map(|repair| &repair.range);
    for range in stray.chain(around) {
        let end = range.end.min(text.len());
        text[range.start.min(end)..end].fill(b' ');
    }
    text
}

/// The text between two calls, or after the last one. A comma in it separates calls without markers.
fn text_after_call<'a>(setup: &Setup, text: &'a [u8], after: bool, parsed: &Parsed, commas: bool) -> &'a [u8] {
    let other = !commas && parsed.repairs.iter().any(|repair| repair.kind == RepairKind::OtherForm);
    let marked = setup.format.as_ref().is_none_or(|format| format.start.is_some()) && !other;
    let separator = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b';');
    if after && !marked && text.iter().all(separator) { b"" } else { text }
}

pub(crate) fn check_splits(setup: &Setup, input: &[u8]) -> (Vec<Event>, Parsed) {
    let whole = parse(setup, [input]);
    check(setup, input, &whole.0, &whole.1);
    let bytewise = parse(setup, input.chunks(1));
    assert_eq!(bytewise, whole, "byte by byte: {}", String::from_utf8_lossy(input));
    whole
}

fn case_files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/parse").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    files
}

fn read_case(path: &Path) -> Vec<u8> {
    let mut input = std::fs::read(path).unwrap();
    assert_eq!(input.pop(), Some(b'\n'), "{}", path.display());
    if !path.file_name().unwrap().to_str().unwrap().starts_with("bytes_") {
        return input;
    }
    let mut bytes = Vec::new();
    let mut rest = &input[..];
    while let Some((&byte, after)) = rest.split_first() {
        let code = rest.strip_prefix(b"\\x").and_then(|digits| std::str::from_utf8(digits.get(..2)?).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(code) => {
                bytes.push(code);
                rest = &rest[4..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    bytes
}

fn describe(events: &[Event], parsed: &Parsed) -> String {
    let mut out = String::new();
    for event in events {
        writeln!(out, "{}", serde_json::to_string(event).unwrap()).unwrap();
    }
    writeln!(out, "content: {:?}", parsed.content).unwrap();
    for call in &parsed.calls {
        writeln!(out, "call {} at {:?}", call.name, call.range).unwrap();
        for problem in &call.problems {
            writeln!(out, "  problem: {problem}").unwrap();
        }
        if let Arguments::Raw(raw) = &call.arguments {
            writeln!(out, "  raw arguments: {raw:?}").unwrap();
        }
    }
    for diagnostic in &parsed.diagnostics {
        writeln!(out, "{diagnostic}").unwrap();
    }
    out
}

/// The setup for a folder's cases: with its tools and its format, if it has them.
fn setup(folder: &str, setup: &Setup) -> Setup {
    let mut setup = setup.clone();
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/parse").join(folder);
    if place.join("tools.json").exists() {
        setup.tools = Some(Arc::new(Tools::from_file(place.join("tools.json")).unwrap()));
    }
    if place.join("format.jinja").exists() {
        setup.format = Some(Arc::new(Format::from_file(place.join("format.jinja")).unwrap()));
    } else if let Some(builtin) = Format::builtin(folder) {
        setup.format = Some(Arc::new(builtin.clone()));
    }
    setup
}

/// Every case of a folder: its snapshot, every split in two, byte by byte, and random pieces.
fn check_cases(folder: &str, options: &Setup) {
    let setup = &setup(folder, options);
    let files = case_files(folder);
    assert!(!files.is_empty());
    let mut pieces = Pieces(17);
    for file in files {
        let input = read_case(&file);
        let whole = check_splits(setup, &input);
        for split in 0..=input.len() {
            let (head, tail) = input.split_at(split);
            assert_eq!(parse(setup, [head, tail]), whole, "{} split at {split}", file.display());
        }
        for _ in 0..20 {
            assert_eq!(parse(setup, pieces.of(&input)), whole, "{}", file.display());
        }
        let name = format!("{folder}_{}", file.file_stem().unwrap().to_str().unwrap());
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("snapshots/parse");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.set_description(String::from_utf8_lossy(&input));
        settings.bind(|| insta::assert_snapshot!(name, describe(&whole.0, &whole.1)));
    }
}

/// Random pieces, the same in every run.
struct Pieces(u64);

impl Pieces {
    fn of<'a>(&mut self, mut input: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !input.is_empty() {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (head, tail) = input.split_at(input.len().min((self.0 >> 33) as usize % 9));
            pieces.push(head);
            input = tail;
        }
        pieces
    }
}

#[test]
fn cases() {
    check_cases("repair", &REPAIR);
}

#[test]
fn cases_without_repairs() {
    check_cases("strict", &STRICT);
}

#[test]
fn cases_with_no_tools() {
    check_cases("no_tools", &Setup { tools: Some(Arc::new(Tools::default())), ..REPAIR });
}

#[test]
fn cases_with_tools() {
    check_cases("tools", &REPAIR);
    check_cases("types", &REPAIR);
    check_cases("types_strict", &STRICT);
}

#[test]
fn cases_in_other_forms() {
    for folder in ["forms", "forms_gemma", "forms_bare"] {
        check_cases(folder, &REPAIR);
    }
    check_cases("forms_strict", &STRICT);
}

/// Folders with the name of a built-in format.
const BUILTIN: [&str; 9] = [
    "gigachat-3.5",
    "gpt-oss",
    "hunyuan-3",
    "inkling",
    "k2-horizon",
    "ling-3",
    "muse-glimmer",
    "plamo-3",
    "solar-open-2",
];

#[test]
fn cases_of_built_in_formats() {
    for folder in BUILTIN {
        check_cases(folder, &REPAIR);
    }
}

/// Without the format's name, the same calls are read.
#[test]
fn cases_of_built_in_formats_are_detected() {
    let calls = |parsed: &Parsed| {
        let valid = parsed.calls.iter().filter(|call| call.valid);
        valid.map(|call| (call.name.clone(), call.arguments.clone())).collect::<Vec<_>>()
    };
    let mut report = String::new();
    for folder in BUILTIN {
        let setup = setup(folder, &REPAIR);
        for file in case_files(folder) {
            let input = read_case(&file);
            let (_, parsed) = parse(&setup, [&*input]);
            let mut auto = AutoParser::new(setup.tools.clone(), ParserOptions::default()).unwrap();
            auto.push(&input, &mut |_| ());
            let detected = auto.finish(&mut |_| ());
            if calls(&detected) != calls(&parsed) {
                let origin = detected.origin.unwrap();
                report += &format!("{} is read as {origin}: {:?}\n", file.display(), calls(&detected));
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// JSON without any format's markers is not called a format's whose calls have markers around them.
#[test]
fn json_in_a_code_fence_is_in_no_format() {
    let call = r#"{"name": "get_weather", "arguments": {"city": "Oslo"}}"#;
    for (text, origin) in [
        (format!("Sure:\n```json\n{call}\n```\n"), "delimited"),
        (format!("```\n{call}\n```"), "delimited"),
        (call.to_owned(), "llama3"),
        (format!("<tool_calls>\n{call}\n</tool_calls>"), "minimax-m1"),
    ] {
        let tools = Tools::from_json(r#"[{"name": "get_weather"}]"#, "tools").unwrap();
        let mut auto = AutoParser::new(Some(tools.into()), ParserOptions::default()).unwrap();
        auto.push(text.as_bytes(), &mut |_| ());
        let parsed = auto.finish(&mut |_| ());
        assert_eq!((parsed.calls.len(), parsed.origin), (1, Some(origin)), "{text}");
        assert!(parsed.calls[0].is_runnable(), "{text}");
    }
}

/// Folders with a format of their own.
const FOLDERS: [&str; 24] = [
    "array",
    "bare",
    "bare_tools",
    "raw",
    "ids",
    "named",
    "fenced",
    "sections",
    "closing",
    "tagged",
    "glm",
    "nested",
    "cdata",
    "python",
    "dialect",
    "signs",
    "typed",
    "escaped",
    "pythonic",
    "keyed",
    "recipients",
    "word",
    "untagged",
    "openended",
];

#[test]
fn cases_of_other_formats() {
    for folder in FOLDERS {
        check_cases(folder, &REPAIR);
        check_prefixes(folder);
    }
}

/// The events so far while a text streams are those of a parse of the text so far.
fn check_prefixes(folder: &str) {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/parse").join(folder);
    let format = Format::from_file(place.join("format.jinja")).unwrap();
    let said = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut parser = Parser::new(&format, None, ParserOptions::default()).unwrap();
        let mut said = String::new();
        for piece in pieces {
            parser.push(piece, &mut |event| said.push_str(text(&event)));
        }
        said
    };
    for file in case_files(folder) {
        let input = read_case(&file);
        for end in 0..=input.len() {
            let input = &input[..end];
            assert_eq!(said(&mut std::iter::once(input)), said(&mut input.chunks(1)), "{}", file.display());
        }
    }
}

/// Texts that break parsers, combined at random.
const FRAGMENTS: [&str; 58] = [
    "### TOOL_CALL_START ###",
    "### TOOL_CALL_END ###",
    "### tool call start ###",
    "##TOOL-CALL-END",
    "### TOOL_",
    "CALL_",
    "START ###",
    "#",
    "##",
    " ",
    "\n",
    "\r\n",
    "\t",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "'",
    "\\",
    "\\u",
    "\\ud83d",
    "\\ude00",
    "\\n",
    "\\\"",
    "```",
    "```json\n",
    "name",
    "\"name\"",
    "\"name\": \"f\"",
    "\"arguments\"",
    "\"arguments\": {",
    "\"parameters\": ",
    "\"id\": \"x\"",
    "\"function\": {",
    "\"type\": \"function\"",
    "true",
    "None",
    "null",
    "nonsense",
    "-1.5e3",
    "0",
    "1.",
    "-",
    "é",
    "🌦",
    "\u{0}",
    "text",
    "it's",
    "{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": \"c\"}]}}",
    "{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}",
    "}}",
    "}}\n",
    "\"}}\n### TOOL_CALL_END ###",
    "\"\n### TOOL_CALL_START ###",
    "### TOOL_CALL_END ###\n",
];

/// Several of the fragments, with a few random bytes in between.
pub(crate) fn strung(fragments: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        15 => proptest::sample::select(fragments).prop_map(|text| text.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..3),
    ];
    proptest::collection::vec(fragment, 0..24).prop_map(|parts| parts.concat())
}

fn fragments() -> impl Strategy<Value = Vec<u8>> {
    strung(&FRAGMENTS)
}

fn in_call() -> impl Strategy<Value = Vec<u8>> {
    fragments().prop_map(|inner| [b"### TOOL_CALL_START ###\n{\"name\": \"f\", \"arguments\": {", &inner[..]].concat())
}

/// A whole call without end marker, and text that may follow.
fn after_call() -> impl Strategy<Value = Vec<u8>> {
    let call = b"### TOOL_CALL_START ###\n{\"name\": \"f\"}\n";
    (fragments(), 0..300usize, fragments()).prop_map(|(before, count, after)| {
        [call, &before[..], "a line of text\n".repeat(count / 15).as_bytes(), &after].concat()
    })
}

/// A JSON object in one of JSON's notations.
fn json_object() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        (-1e300f64..1e300).prop_map(|value| format!("{value:e}")),
        ".*".prop_map(|text| serde_json::Value::from(text).to_string()),
        Just(r#""\u00e9 \ud83d\ude00 \/ \" }} ### TOOL_CALL_END ###""#.to_owned()),
    ];
    let blank = || proptest::sample::select(&["", " ", "\n  ", "\t"][..]);
    let value = leaf.prop_recursive(4, 24, 4, move |inner| {
        // Without duplicate keys, which are valid JSON but reported.
        let member = (".*", inner.clone(), blank());
        let written = |(index, (key, value, blank)): (usize, (String, String, &str))| {
            format!("{blank}{}{blank}:{blank}{value}{blank}", serde_json::Value::from(format!("{key}{index}")))
        };
        prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            proptest::collection::vec(member, 0..4).prop_map(move |members| {
                format!("{{{}}}", members.into_iter().enumerate().map(written).collect::<Vec<_>>().join(","))
            }),
        ]
    });
    (value, blank()).prop_map(|(value, blank)| format!("{{{blank}\"value\":{blank}{value}{blank}}}"))
}

pub(crate) fn cut(input: &[u8], mut at: Vec<usize>) -> Vec<&[u8]> {
    at.iter_mut().for_each(|at| *at %= input.len() + 1);
    at.extend([0, input.len()]);
    at.sort_unstable();
    at.windows(2).map(|ends| &input[ends[0]..ends[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: ProptestConfig::default().cases.max(1500), ..ProptestConfig::default() })]

    #[test]
    fn no_text_breaks_the_parser_and_no_split_changes_its_events(
        input in prop_oneof![fragments(), in_call(), after_call(), proptest::collection::vec(any::<u8>(), 0..200)],
        at in proptest::collection::vec(any::<usize>(), 0..6),
        repair: bool,
    ) {
        let setup = Setup { repair, ..REPAIR };
        let whole = check_splits(&setup, &input);
        prop_assert_eq!(parse(&setup, cut(&input, at)), whole);
    }

    #[test]
    fn valid_json_passes_unchanged_with_and_without_repairs(object in json_object(), strict: bool) {
        let input = format!("### TOOL_CALL_START ###\n{{\"name\": \"f\", \"arguments\": {object}}}\n### TOOL_CALL_END ###");
        let (events, parsed) = check_splits(if strict { &STRICT } else { &REPAIR }, input.as_bytes());
        let deltas: String = events.iter().filter_map(|e| match e {
            Event::CallArguments { delta, .. } => Some(&**delta),
            _ => None,
        }).collect();
        prop_assert_eq!(&deltas, &object);
        prop_assert_eq!(parsed.calls.len(), 1);
        prop_assert!(parsed.calls[0].valid);
        prop_assert_eq!(parsed.repairs, []);
        // A tag in a value is valid JSON, and reported.
        prop_assert!(parsed.diagnostics.iter().all(|said| said.kind == DiagnosticKind::TagInValue));
    }
}

#[test]
fn the_deltas_of_a_cut_call_are_not_whole_json() {
    for (format, text) in [
        ("delimited", r#"### TOOL_CALL_START ###{"name": "f", "arguments": {"city": "Zür"#),
        ("hermes", r#"<tool_call>{"name": "f", "arguments": {"at": {"n": 1}, "city": ["Zür""#),
        ("qwen3-coder", "<tool_call>\n<function=f>\n<parameter=city>\nZür"),
        ("glm-4", "<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>Zür"),
        ("lfm2", r#"<|tool_call_start|>[f(city="Zür"#),
        ("llama3", r#"{"name": "f", "parameters": {"city": "Zür""#),
        ("gemma-4", r#"<|tool_call>call:f{city:<|"|>Zür"#),
        (
            "deepseek-v3.2",
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Zür",
        ),
    ] {
        let format = Some(Arc::new(Format::builtin(format).unwrap().clone()));
        let (events, parsed) = check_splits(&Setup { format, ..REPAIR }, text.as_bytes());
        let deltas: String = events
            .iter()
            .filter_map(|event| match event {
                Event::CallArguments { delta, .. } => Some(&**delta),
                _ => None,
            })
            .collect();
        assert!(!parsed.calls[0].complete && deltas.contains("Zür"), "{text} {deltas}");
        assert!(serde_json::from_str::<serde_json::Value>(&deltas).is_err(), "{text} {deltas}");
    }
}

#[test]
fn every_repair_is_shown_by_a_case() {
    let mut seen: Vec<String> = Vec::new();
    for folder in FOLDERS.into_iter().chain(["repair", "types"]) {
        let setup = setup(folder, &REPAIR);
        for file in case_files(folder) {
            let (_, parsed) = parse(&setup, [&read_case(&file)[..]]);
            seen.extend(parsed.repairs.iter().map(|repair| format!("{:?}", repair.kind)));
        }
    }
    let kinds = [
        RepairKind::MissingEndMarker,
        RepairKind::DoubledMarker,
        RepairKind::NearMissMarker,
        RepairKind::CodeFence,
        RepairKind::StrayText,
        RepairKind::SeveralCalls,
        RepairKind::TrailingComma,
        RepairKind::MissingComma,
        RepairKind::DuplicateKey,
        RepairKind::SingleQuotes,
        RepairKind::UnquotedKey,
        RepairKind::UnescapedControl,
        RepairKind::InvalidEscape,
        RepairKind::MissingBrackets,
        RepairKind::PythonLiteral,
        RepairKind::ArgumentsAsString,
        RepairKind::ExtraWrapping,
        RepairKind::KeyAlias,
        RepairKind::ValueType,
        RepairKind::EmptyArgument,
        RepairKind::ToolName,
        RepairKind::UnescapedQuote,
        RepairKind::OtherQuotes,
        RepairKind::PositionalArgument,
        RepairKind::JsonArguments,
    ];
    for kind in kinds {
        assert!(seen.contains(&format!("{kind:?}")), "{kind:?}");
    }
}

/// The events after each piece, without those that only the end causes.
fn stream(input: &str) -> Vec<Event> {
    let mut parser = Parser::new(delimited(), None, ParserOptions::default()).unwrap();
    let mut events = Vec::new();
    for byte in input.as_bytes().chunks(1) {
        parser.push(byte, &mut |event| events.push(event));
    }
    events
}

/// How soon each part of an answer is shown: the text byte by byte, and a `¦` where one delta ends and the next begins.
#[test]
fn what_is_shown_comes_in_small_pieces() {
    const CASES: [(&str, &str); 20] = [
        ("repair", "one_call"),
        ("repair", "text_before_between_after"),
        ("repair", "single_quotes"),
        ("repair", "missing_comma"),
        ("repair", "unquoted_string"),
        ("repair", "cut_off_in_a_string"),
        ("repair", "arguments_before_name"),
        ("repair", "code_fence"),
        ("repair", "near_miss_letters_in_prose"),
        ("forms", "fence_after_text"),
        ("forms", "in_reasoning"),
        ("tagged", "every_type"),
        ("tagged", "tag_in_value"),
        ("glm", "one_call"),
        ("python", "every_value"),
        ("python", "quote_missing"),
        ("named", "one_call"),
        ("keyed", "two_calls"),
        ("nested", "deep"),
        ("gpt-oss", "reasoning_between_calls_of_llm_jp"),
    ];
    let mut report = String::new();
    for (folder, name) in CASES {
        let setup = setup(folder, &REPAIR);
        let input = read_case(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/parse").join(folder).join(format!("{name}.txt")),
        );
        let format = setup.format.as_deref().unwrap_or_else(|| delimited());
        let mut parser = Parser::new(format, setup.tools.clone(), ParserOptions::default()).unwrap();
        writeln!(report, "{folder}/{name}").unwrap();
        let (mut at, mut last) = (0, "");
        let mut show = |event: Event, at: usize| {
            let (kind, delta) = match &event {
                Event::Text { delta } => ("text", delta.as_str()),
                Event::Reasoning { delta } => ("reasoning", delta.as_str()),
                Event::CallArguments { delta, .. } => ("arguments", delta.as_str()),
                Event::CallStart { name, .. } => ("call", name.as_str()),
                Event::CallEnd { valid: true, .. } => ("end", "valid"),
                Event::CallEnd { .. } => ("end", "invalid"),
                _ => return,
            };
            let separator = if kind == last { "¦".to_owned() } else { format!("\n  {at:>3} {kind:9} ") };
            write!(report, "{separator}{}", delta.replace('\n', "\\n")).unwrap();
            last = kind;
        };
        for byte in &input {
            at += 1;
            parser.push(std::slice::from_ref(byte), &mut |event| show(event, at));
        }
        parser.finish(&mut |event| show(event, at));
        writeln!(report, "\n").unwrap();
    }
    insta::assert_snapshot!(report);
}

#[test]
fn known_text_is_emitted_at_once() {
    assert_eq!(stream("Hello #1").iter().map(text).collect::<String>(), "Hello #1");
    assert_eq!(stream("Hello ##").iter().map(text).collect::<String>(), "Hello", "this may become a marker");
    let call = "### TOOL_CALL_START ###\n{\"name\": \"f\"";
    assert!(matches!(stream(call)[..], [Event::CallStart { .. }]));
    let events = stream(&format!("{call}, \"arguments\": {{\"a\": \"bc"));
    assert_eq!(events.iter().map(text).collect::<String>(), "{\"a\": \"bc");
    let events = stream(&format!("{call}}}\n### TOOL_CALL_END ###"));
    assert!(matches!(events.last(), Some(Event::CallEnd { complete: true, .. })), "with the marker's last byte");
}

fn text(event: &Event) -> &str {
    match event {
        Event::Text { delta } | Event::Reasoning { delta } | Event::CallArguments { delta, .. } => delta,
        _ => "",
    }
}

#[test]
fn little_is_held_back_for_any_text() {
    let held = |input: String| {
        let said: usize = stream(&input).iter().map(|event| text(event).len()).sum();
        input.len().saturating_sub(said)
    };
    assert!(held("#".repeat(5000)) < 256);
    assert!(held("\n".repeat(5000)) < 256);
    // The possible beginning of a call in another form is longer than a marker.
    let count = held("### TOOL_CALL_STAR".repeat(500));
    assert!(count < 1536, "{count}");
    let call = "### TOOL_CALL_START ###\n{\"name\": \"f\", \"arguments\": {\"a\": ";
    assert!(held(format!("{call}\"{}", "}".repeat(5000))) < 256 + call.len());
    assert!(held(format!("{call}\"{}", "}\n".repeat(5000))) < 256 + call.len());
    assert!(held(format!("{call}{}", "1".repeat(5000))) < 256 + call.len());
    assert!(held(format!("{call}1, \"{}", "k".repeat(5000))) < 2048 + call.len());
    assert!(held(format!("{call}1}}}}\n{}", "text ".repeat(1000))) < 512 + call.len(), "text after a call");
}

/// Repairs and held values are for broken text: values under other keys never change a call that has the canonical
/// ones.
#[test]
fn aliases_never_change_a_call_with_canonical_keys() {
    let proper = [r#""name": "f""#, r#""arguments": {"a": 1}"#];
    let others = [r#""tool": "g""#, r#""input": {"b": 2}"#, r#""function": {"name": "g", "arguments": {"b": 2}}"#];
    for other in others {
        for place in 0..=2 {
            for turned in [false, true] {
                let mut members = proper.to_vec();
                if turned {
                    members.reverse();
                }
                members.insert(place, other);
                let input =
                    format!("### TOOL_CALL_START ###\n{{{}}}\n### TOOL_CALL_END ###", members.join(", ")).into_bytes();
                for setup in [&REPAIR, &STRICT] {
                    let (_, parsed) = check_splits(setup, &input);
                    let call = &parsed.calls[0];
                    assert!(call.valid && parsed.repairs.is_empty(), "{members:?}: {call:?}");
                    let arguments = match &call.arguments {
                        Arguments::Object(object) => serde_json::to_string(object).unwrap(),
                        Arguments::Raw(raw) => raw.clone(),
                    };
                    assert_eq!((&*call.name, &*arguments), ("f", r#"{"a":1}"#), "{members:?}");
                }
            }
        }
    }
}

#[test]
fn ids_continue_from_the_conversation_and_are_unique() {
    let options = ParserOptions::default().with(|set| {
        set.session.earlier_calls = 6;
        set.session.taken_ids = vec!["call00008".into()];
    });
    let mut parser = Parser::new(delimited(), None, options).unwrap();
    let call = "### TOOL_CALL_START ###\n{\"name\": \"f\"}\n### TOOL_CALL_END ###\n";
    parser.push(call.repeat(3).as_bytes(), &mut |_| ());
    let parsed = parser.finish(&mut |_| ());
    let ids: Vec<&str> = parsed.calls.iter().map(|call| &*call.id).collect();
    assert_eq!(ids, ["call00007", "call00009", "call00010"]);
    assert_eq!(parsed.message().tool_calls.len(), 3);
}

fn own(start: Marker, end: Marker, keys: JsonCall) -> Setup {
    let (start, end, payload) = (Some(start), Some(end), Payload::Json(keys));
    let format = Format::new(Declaration { start, end, payload, ..Declaration::default() }).unwrap();
    Setup { format: Some(Arc::new(format)), ..REPAIR }
}

#[test]
fn a_key_that_the_format_declares_is_no_alias() {
    let keys = JsonCall { name: "function_name".into(), arguments: "tool".into(), ..JsonCall::default() };
    let marker = |text: &str| Marker::Literal(text.into());
    let setup = own(marker("<call>"), marker("</call>"), keys);
    let input = b"<call>{\"tool\": {\"a\": 1}, \"function_name\": \"f\", \"name\": \"g\"}</call>";
    let (_, parsed) = parse(&setup, [&input[..]]);
    assert_eq!((&*parsed.calls[0].name, parsed.calls[0].valid), ("f", true));
    assert!(matches!(&parsed.calls[0].arguments, Arguments::Object(object) if object.len() == 1));
    assert_eq!(parsed.repairs, []);
}

#[test]
fn a_user_defined_format() {
    let keys = JsonCall { name: "tool".into(), arguments: "parameters".into(), ..JsonCall::default() };
    let start = Marker::Literal("<｜tool▁call｜>".into());
    let end = Marker::Pattern { pattern: "</call[0-9]{0,3}>".into(), text: Some("</call>".into()) };
    let setup = own(start, end, keys);
    let input = "So: <｜tool▁call｜>{\"tool\": \"f\", \"parameters\": {\"a\": \"<｜\"}}</call12> <｜tool";
    let whole = parse(&setup, [input.as_bytes()]);
    assert_eq!(parse(&setup, input.as_bytes().chunks(1)), whole);
    assert_eq!(whole.1.content, "So: <｜tool");
    assert!(whole.1.calls[0].valid);
    assert_eq!(whole.1.repairs, []);
}
