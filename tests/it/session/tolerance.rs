//! Tools files with faults: the others stay usable, every change is reported, and names come back as they were.

use crate::program::{callwright, run};
use callwright::constraint::Compiler;
use callwright::engine::vocabulary::Vocabulary;
use callwright::format::Format;
use callwright::grammar::{Begins, Scope};
use callwright::message::{Arguments, Message, ToolCall};
use callwright::parse::{Parser, ParserOptions};
use callwright::template::{ChatTemplate, RenderRequest};
use callwright::tool::{Change, Tools};
use serde_json::{Map, Value, json};
use std::sync::Arc;

const ONE: Scope = Scope { begins: Begins::Answer, max_calls: Some(1), only_calls: true };

fn named(names: &[&str]) -> Tools {
    let tools: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    Tools::from_value(&tools.into()).unwrap()
}

fn call(name: &str) -> ToolCall {
    ToolCall { id: Some("abcdef123".into()), name: name.into(), arguments: Arguments::Object(Map::new()) }
}

/// A name that a model cannot write in every format is mapped, and the call that is read has the tool's own.
#[test]
fn names_are_mapped_and_mapped_back_in_every_format() {
    let long = "x".repeat(70);
    let names = ["local.server getMacroList", "a/b", "a.b", "a-b", "server:tool", "get(x)", long.as_str()];
    let tools = Arc::new(named(&names));
    for format in Format::names().map(|name| Format::builtin(name).unwrap()) {
        let grammar = format.grammar(&tools.iter().collect::<Vec<_>>(), ONE).unwrap();
        let mut compiler = Compiler::for_format(Vocabulary::of_bytes(), format).unwrap();
        for tool in tools.iter() {
            assert!(tool.called().len() <= 64, "{}", tool.called());
            let text = format.write_calls(&[call(tool.called())]);
            assert_eq!(compiler.check(&grammar.lark, &text).unwrap(), None, "{}: {text}", format.name);
            let mut parser = Parser::new(format, Some(Arc::clone(&tools)), ParserOptions::default()).unwrap();
            parser.push(text.as_bytes(), &mut |_| ());
            let parsed = parser.finish(&mut |_| ());
            let [read] = parsed.calls.as_slice() else { panic!("{}: {text}", format.name) };
            assert_eq!(read.name, tool.name, "{}: {text}", format.name);
            assert!(parsed.repairs.is_empty() && read.problems.is_empty(), "{}: {text}", format.name);
        }
    }
}

#[test]
fn a_prompt_has_the_names_that_the_model_writes() {
    let tools = named(&["get weather", "now"]);
    let source = "{% for tool in tools %}{{ tool.function.name }} {% endfor %}\
        {% for message in messages %}{{ message.name }}{% for call in message.tool_calls %}{{ call.function.name }}\
        {% endfor %} {% endfor %}";
    let template = ChatTemplate::new("test", source).unwrap();
    let mut asked = Message::assistant("");
    asked.tool_calls = vec![call("get weather"), call("unknown tool")];
    let mut result = Message::new(callwright::message::Role::Tool, "rain");
    result.name = Some("get weather".into());
    let messages = [asked, result];
    let request = RenderRequest::default().with(|set| {
        set.messages = &messages;
        set.tools = Some(&tools);
    });
    let text = template.render(&request).unwrap().text();
    assert_eq!(text.trim(), "get_weather now get_weatherunknown tool get_weather");
}

#[test]
fn a_name_that_is_taken_is_not_given_to_another_tool() {
    let tools = named(&["a b", "a_b", "a/b"]);
    let called: Vec<&str> = tools.iter().map(|tool| tool.called()).collect();
    assert_eq!(called, ["a_b_2", "a_b", "a_b_3"]);
    assert_eq!(tools.get("a_b_3").unwrap().name, "a/b");
    let mut first = named(&["a b"]);
    first.append(named(&["a/b", "a b", "a_b"]));
    let called: Vec<&str> = first.iter().map(|tool| tool.called()).collect();
    let distinct: std::collections::HashSet<&str> = called.iter().copied().collect();
    assert_eq!(distinct.len(), called.len(), "{called:?}");
    assert!(first.notices().iter().any(|notice| notice.change == Change::LeftOut && notice.tool == "a b"));
}

/// A schema that no value fits takes its tool out of the grammar, and only that.
#[test]
fn a_tool_that_no_arguments_fit_does_not_refuse_the_others() {
    let tools = json!([
        {"name": "never", "parameters": {"type": "object", "properties": {"a": false}, "required": ["a"]}},
        {"name": "endless", "parameters": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}},
        {"name": "now"},
    ]);
    let tools = Tools::from_value(&tools).unwrap();
    let grammar = Format::delimited().grammar(&tools.iter().collect::<Vec<_>>(), ONE).unwrap();
    assert!(grammar.lark.contains("now") && !grammar.lark.contains("never") && !grammar.lark.contains("endless"));
    let said: Vec<String> = grammar.unenforced.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn the_program_reports_each_change_once_and_refuses_them_when_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let tools = json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": [
        {"name": "get weather", "inputSchema": {"type": "object", "properties": {
            "city": {"type": "string", "pattern": "("}, "days": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}}}},
        {"description": "nameless"},
        {"name": "now", "inputSchema": {"type": "object", "properties": []}},
    ]}});
    std::fs::write(folder.path().join("tools.json"), tools.to_string()).unwrap();
    std::fs::write(folder.path().join("more.json"), r#"[{"name": "now"}, {"name": "later"}]"#).unwrap();
    let text = "### TOOL_CALL_START ###\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n### TOOL_CALL_END ###";
    let ran = |arguments: &[&str]| {
        let mut command = callwright(folder.path());
        command.current_dir(folder.path()).args(arguments);
        if arguments[0] == "parse" {
            command.write_stdin(text);
        }
        run(&mut command)
    };
    let two = ["--tools", "tools.json", "--tools", "more.json"];
    let parsed = ran(&[&["parse", "--output", "json"], &two[..]].concat());
    assert!(parsed.out.contains("\"name\": \"get weather\""), "{}", parsed.out);
    let grammar = ran(&[&["grammar", "--json"], &two[..]].concat());
    let notices = serde_json::from_str::<Value>(&grammar.out).unwrap()["notices"].clone();
    let strict = ran(&[&["grammar", "--tools-strict"], &two[..]].concat());
    let fine = ran(&["grammar", "--tools-strict", "--tools", "more.json"]);
    assert_eq!((fine.code, fine.err.as_str()), (0, ""));
    insta::assert_snapshot!(format!(
        "{}\n-- the same from grammar: {}\n{notices:#}\n-- strict: exit {}\n{}",
        parsed.err,
        grammar.err == parsed.err,
        strict.code,
        strict.err
    ));
}

#[test]
fn a_batch_says_with_each_answer_what_was_changed_in_its_tools() {
    let folder = tempfile::tempdir().unwrap();
    let case = json!({"input": "Hi", "tools": [{"name": "f", "parameters": []}]});
    let mut command = callwright(folder.path());
    command.args(["parse", "--batch"]).write_stdin(case.to_string());
    let answer: Value = serde_json::from_str(&run(&mut command).out).unwrap();
    assert_eq!(answer["tools_notices"][0]["keyword"], "parameters");
    assert_eq!(answer["tools_notices"][0]["change"], "read");
}
