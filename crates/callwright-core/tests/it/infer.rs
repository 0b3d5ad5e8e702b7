//! Inferring formats of templates that declare none.

use crate::data::{conformance, conformance_rows};
use callwright_core::error::ErrorKind;
use callwright_core::format::{Around, Declaration, Format, Marker, Payload};
use callwright_core::message::{Arguments, Message, ToolCall};
use callwright_core::parse::{Parser, ParserOptions};
use callwright_core::template::{ChatTemplate, RenderRequest};
use callwright_core::tool::Tools;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;

fn cases() -> Vec<(String, ChatTemplate)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/infer");
    let mut cases: Vec<(String, ChatTemplate)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jinja"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, ChatTemplate::from_file(path).unwrap())
        })
        .collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(cases.len() > 20);
    cases
}

#[test]
fn formats_are_inferred_from_templates() {
    for (name, template) in cases() {
        let inference = Format::infer(&template);
        let notes: String = inference.notes.iter().map(|note| format!("note: {note}\n")).collect();
        let calls = if inference.parallel { "" } else { "one call at a time\n" };
        let block = inference.format.as_ref().map_or_else(String::new, |format| format.to_toml());
        let reasoning = match (&inference.format, &inference.reasoning) {
            (None, Some(reasoning)) => format!("{reasoning:?}\n"),
            _ => String::new(),
        };
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("snapshots/infer");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name.as_str(), format!("{notes}{calls}{reasoning}{block}")));
    }
}

#[test]
fn inferred_formats_can_be_declared() {
    let inferred = cases().into_iter().filter_map(|(_, template)| Format::infer(&template).format.clone());
    let built_in = Format::names().filter_map(Format::builtin).cloned();
    for format in inferred.chain(built_in) {
        let read = Format::parse_declaration(&format.to_toml()).unwrap().expect("it is a block");
        assert_eq!(*read, *format);
    }
}

/// The calls to render, and whether the format must write exactly the same bytes.
fn calls() -> Vec<(Vec<ToolCall>, bool)> {
    let call = |id: &str, name: &str, arguments: Value| ToolCall {
        id: Some(id.to_owned()),
        name: name.to_owned(),
        arguments: Arguments::Object(arguments.as_object().unwrap().clone()),
    };
    let typed = json!({
        "count": 9_007_199_254_740_993u64, "fresh": true, "ratio": -0.5,
        "record": {"a": {"b": "c"}, "n": 1}, "tags": ["x", "y z"],
    });
    vec![
        (vec![call("aBc000001", "find_ferries", json!({"from": "Ærø", "to": "Fåborg \"by\" <night> & day"}))], true),
        (
            vec![
                call("aBc000001", "find_ferries", json!({"from": "Ærø", "to": "Fåborg"})),
                call("aBc000002", "tide", json!({"port": "Søby"})),
            ],
            true,
        ),
        (vec![call("aBc000001", "store", typed)], false),
        (vec![call("aBc000001", "tide", json!({"port": "two\nlines"}))], true),
        (vec![call("aBc000001", "now", json!({}))], true),
    ]
}

fn tools() -> Tools {
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let text = json!({"type": "string", "description": "text"});
    let tool = |name: &str, properties: Value| {
        json!({"type": "function", "function": {
            "name": name, "description": "does it", "parameters": object(properties),
        }})
    };
    let stored = json!({
        "count": {"type": "integer"}, "fresh": {"type": "boolean"}, "ratio": {"type": "number"},
        "record": object(json!({"a": object(json!({"b": text})), "n": {"type": "integer"}})),
        "tags": {"type": "array", "items": text},
    });
    let tools = json!([
        tool("find_ferries", json!({"from": text, "to": text})),
        tool("tide", json!({"port": text})),
        tool("store", stored),
        tool("now", json!({})),
    ]);
    Tools::from_value(&tools).unwrap()
}

/// The template's output for a message, after its earlier output. `None` if it refuses.
fn written(template: &ChatTemplate, message: Message) -> Option<String> {
    let (tools, user) = (tools(), Message::user("When is the next one?"));
    let mut variables = Map::new();
    for name in ["today", "functions", "datetime"] {
        variables.insert(name.to_owned(), json!("none"));
    }
    let render = |messages: &[Message], add_generation_prompt| {
        let request = RenderRequest::default().with(|set| {
            set.messages = messages;
            set.tools = Some(&tools);
            set.add_generation_prompt = add_generation_prompt;
            set.variables = variables.clone();
        });
        Some(template.render(&request).ok()?.text())
    };
    let prompt = render(std::slice::from_ref(&user), true)?;
    let whole = render(&[user, message], false)?;
    let same =
        prompt.char_indices().zip(whole.chars()).find(|((_, a), b)| a != b).map_or(prompt.len(), |((at, _), _)| at);
    let mut same = &whole[..same.min(whole.len())];
    // Different tags may begin alike.
    if let Some(open) = same.rfind(['<', '[']).filter(|open| !same[*open..].contains(['>', ']'])) {
        same = &same[..open];
    }
    Some(whole[same.len()..].to_owned())
}

/// Renders calls, reads them back, and returns the problems.
fn round_trip(template: &ChatTemplate, format: &Format, parallel: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let only_with_results = written(template, Message::calls(calls()[0].0.clone())).is_none();
    for (calls, exact) in calls() {
        if calls.len() > 1 && !parallel || only_with_results {
            continue;
        }
        let Some(text) = written(template, Message::calls(calls.clone())) else {
            wrong.push(format!("it does not write {}", calls[0].name));
            continue;
        };
        let mut parser = Parser::new(format, Some(Arc::new(tools())), ParserOptions::default()).unwrap();
        parser.push(text.as_bytes(), &mut |_| ());
        let parsed = parser.finish(&mut |_| ());
        let read: Vec<_> = parsed.calls.iter().map(|call| (&call.name, &call.arguments, call.complete)).collect();
        let expected: Vec<_> = calls.iter().map(|call| (&call.name, &call.arguments, true)).collect();
        if read != expected {
            wrong.push(format!("{text:?} is read as {read:?}"));
        }
        let python = matches!(format.payload, Payload::Python { .. });
        let again = format.write_calls(&calls);
        // For a template with text arguments, white space and Python's quotes are not significant.
        let squeezed = |text: &str| text.replace(": ", ":").replace(", ", ",");
        // The prompt may write the beginning.
        let again = again.strip_prefix(format.opened.as_deref().unwrap_or_default()).unwrap_or(&again);
        if exact && !python && !squeezed(&text).contains(&squeezed(again)) {
            wrong.push(format!("{text:?} is written as {again:?}"));
        }
    }
    wrong
}

#[test]
fn calls_come_back_as_the_template_wrote_them() {
    // The notes explain these.
    let known = [
        "json_array_on_lines_numbered",
        "json_arguments_in_a_string",
        "json_as_python_prints_it",
        "json_in_a_wrapper",
        "json_only_with_results",
    ];
    let mut report = String::new();
    for (name, template) in cases() {
        let inference = Format::infer(&template);
        let Some(format) = &inference.format else { continue };
        let wrong = round_trip(&template, format, inference.parallel);
        match known.contains(&name.as_str()) {
            false => report.extend(wrong.iter().map(|wrong| format!("{name}: {wrong}\n"))),
            true if wrong.is_empty() => report += &format!("{name}: is as it should be\n"),
            true => {}
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// Expected results for the templates of many model families:
/// `template<TAB>payload<TAB>section<TAB>start<TAB>end<TAB>reasoning`, or `template<TAB>none<TAB>reason`.
const EXPECTED: &str = include_str!("../cases/infer/families.tsv");

/// Templates that write a value in a form that is not part of the format.
const WRITTEN_OTHERWISE: [(&str, &str); 2] = [
    ("openbmb-MiniCPM5-1B.jinja", "values with `<` or a line break are in CDATA, which is read but not written"),
    ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja", "it ends the section only after a second call"),
];

/// Templates without reasoning, from which it cannot be inferred.
const WITHOUT_REASONING: [&str; 1] = ["moonshotai-Kimi-K2.jinja"];

fn shown(format: &Declaration) -> String {
    let marker = |marker: Option<&Marker>| json!(marker.and_then(Marker::text).unwrap_or_default()).to_string();
    let around = |around: Option<&Around>| {
        around.map_or("-".to_owned(), |a| format!("{} {}", marker(Some(&a.start)), marker(Some(&a.end))))
    };
    let payload = match &format.payload {
        Payload::Json(json) if json.keyed => "json keyed",
        Payload::Json(json) if json.array => "json array",
        Payload::Json(_) => "json",
        Payload::Named(_) => "named",
        Payload::Tagged(tagged) if tagged.nested => "tagged nested",
        Payload::Tagged(_) => "tagged",
        Payload::Python { .. } => "python",
        _ => "new",
    };
    let (start, end) = (marker(format.start.as_ref()), marker(format.end.as_ref()));
    let section = around(format.section.as_ref());
    format!("{payload}\t{section}\t{start}\t{end}\t{}", around(format.reasoning.as_ref()))
}

#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn conformance_families_are_known_without_their_names() {
    let folder = conformance();
    let mut report = String::new();
    let lines: Vec<&str> = EXPECTED.lines().filter(|line| !line.starts_with('#')).collect();
    let mut paths: Vec<_> = std::fs::read_dir(folder.join("templates")).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let file = path.file_name().unwrap().to_str().unwrap();
        // Without its name, the template's origin is unknown.
        let template = ChatTemplate::new("chat.jinja", std::fs::read_to_string(&path).unwrap()).unwrap();
        let inference = Format::infer(&template);
        let found = match &inference.format {
            Some(format) => {
                for wrong in round_trip(&template, format, inference.parallel) {
                    let explained =
                        wrong.contains(" is written as ") && WRITTEN_OTHERWISE.iter().any(|(f, _)| *f == file);
                    if !explained {
                        report += &format!("{file}: {wrong}\n");
                    }
                }
                shown(format)
            }
            None => format!("none\t{}", inference.notes.join("; ")),
        };
        let line = format!("{file}\t{found}");
        if !lines.contains(&line.as_str()) {
            report += &format!("{line}\n");
        }
    }
    assert!(report.is_empty(), "not as expected:\n{report}");
}

#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn conformance_rows_are_read_in_what_is_inferred() {
    let known = crate::parses::known();
    let mut report = String::new();
    for (folder, row) in conformance_rows("parses.jsonl") {
        let (template, case) = (row["template"].as_str().unwrap(), row["case"].as_str().unwrap());
        let reasoning = row["expected"]["reasoning_content"] != "";
        if known.contains(&(template.to_owned(), case.to_owned())) || reasoning && WITHOUT_REASONING.contains(&template)
        {
            continue;
        }
        let source = std::fs::read_to_string(folder.join("templates").join(template)).unwrap();
        let Ok(format) = Format::of_template(&ChatTemplate::new("chat.jinja", source).unwrap()) else {
            assert!(EXPECTED.contains(&format!("\n{template}\tnone\t")), "{template} has no format");
            continue;
        };
        if let Some(difference) = crate::parses::difference(&format, &row) {
            report += &format!("{template} {case}: {difference}\n");
        }
    }
    assert!(report.is_empty(), "{} rows:\n{report}", report.lines().count());
}

#[test]
fn a_declaration_takes_precedence_over_inference() {
    let source = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<a>{{ c.function | tojson }}</a>\
                  {% endfor %}{% endfor %}";
    let plain = ChatTemplate::new("plain", source).unwrap();
    assert_eq!(Format::of_template(&plain).unwrap().name, "inferred");
    let block = Declaration { name: "mine".into(), ..Declaration::default() }.to_toml();
    let declared = ChatTemplate::new("declared", format!("{block}{source}")).unwrap();
    assert_eq!(Format::of_template(&declared).unwrap().name, "mine");
    let error = Format::of_template(&ChatTemplate::new("chat.jinja", "Hello").unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Format);
    insta::assert_snapshot!(error.to_string());
}
