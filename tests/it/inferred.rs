//! Sessions with a template that declares no format: they speak the one that is read off it.

use callwright::Session;
use callwright::engine::{ModelInfo, scripted::ScriptedEngine};
use callwright::format::Format;
use callwright::message::Message;
use callwright::template::ChatTemplate;
use callwright::tool::Tools;
use serde_json::json;
use std::path::Path;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/callwright-core/tests/cases/infer");

fn case(name: &str) -> ChatTemplate {
    ChatTemplate::from_file(Path::new(CASES).join(name).with_extension("jinja")).unwrap()
}

fn tools() -> Tools {
    let port = json!({"type": "object", "properties": {"port": {"type": "string"}}});
    Tools::from_value(&json!([{"name": "tide", "parameters": port}, {"name": "now"}])).unwrap()
}

fn session(template: &str, format: Option<Format>, answer: &str) -> Session {
    let info = ModelInfo { name: "scripted".into(), context_train: 16_384, ..ModelInfo::default() };
    let engine = Box::new(ScriptedEngine::from_texts(info, [answer]));
    let mut session = Session::new(engine, Some(case(template)), format).unwrap();
    session.set_tools(tools());
    session
}

#[test]
fn a_session_speaks_the_format_that_its_template_writes() {
    let mut session = session("tagged", None, "Well.<do>tide\n<key>port</key>\n<value>12</value>\n</do>");
    let reply = session.ask("When is high tide at 12?").unwrap();
    assert_eq!(reply.message.content, "Well.");
    assert_eq!(reply.calls[0].arguments.to_text(), r#"{"port":"12"}"#);
    assert!(session.notices().is_empty());
    session.set_messages(vec![Message::user("?")]).unwrap();
    assert!(!session.prompt().unwrap().0.text().contains("TOOL_CALL"), "there is no overlay");
}

#[test]
fn a_template_without_calls_gets_the_overlay_and_a_notice() {
    let call = "### TOOL_CALL_START ###\n{\"name\": \"now\", \"arguments\": {}}\n### TOOL_CALL_END ###";
    let mut session = session("no_calls", None, call);
    let notices = session.notices().join("\n").replace(CASES, "<cases>");
    insta::assert_snapshot!(notices);
    assert_eq!(session.ask("What time is it?").unwrap().calls[0].name, "now");
}

#[test]
fn reasoning_that_the_prompt_opens_is_no_text() {
    let answer = "Only a tide.\n</hm>\n\nAt noon.";
    let delimited = || Format::builtin("delimited").cloned();
    for format in [None, delimited()] {
        let mut session = session("reasoning", format, answer);
        let mut events = Vec::new();
        session.set_messages(vec![Message::user("When is high tide?")]).unwrap();
        let reply = session.respond(&mut |event| events.push(serde_json::to_value(event).unwrap())).unwrap();
        assert_eq!(
            (reply.message.content.as_str(), reply.message.reasoning.as_deref()),
            ("At noon.", Some("Only a tide."))
        );
        assert_eq!(events[0]["type"], "reasoning");
        assert_eq!(session.messages()[1].to_json()["reasoning_content"], "Only a tide.");
    }
}

#[test]
fn a_prompt_may_open_the_call_that_the_model_writes() {
    let call = "tide\n{\"port\": \"12\"}";
    let mut session = session("named_after_the_header", None, call);
    let reply = session.ask("When is high tide at 12?").unwrap();
    assert_eq!((reply.message.content.as_str(), reply.calls.len()), ("", 1));
    assert_eq!(reply.calls[0].arguments.to_text(), r#"{"port":"12"}"#);
    let mut session = self::session("named_after_the_header", None, "Yes");
    assert_eq!(session.ask("Is it high?").unwrap().message.content, "Yes");
}
