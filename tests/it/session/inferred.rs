//! Sessions with a template that declares no format: they speak the one that is read off it.

use callwright::Session;
use callwright::engine::{ModelInfo, scripted::ScriptedEngine};
use callwright::format::Format;
use callwright::message::{Arguments, Message, ToolCall};
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

/// Kimi's models know calls and results by `functions.NAME:INDEX`.
#[test]
fn results_have_the_ids_that_the_format_gives_calls() {
    let format = "{#--- callwright\n[format]\nname = \"ids\"\nstart = \"<call>\"\nend = \"<end>\"\nliteral = true\n\
                  payload = \"named\"\n[call]\nhead = \"{id}<args>\"\nid = \"functions.{name}:{index}\"\n---#}";
    let template = |id: &str| {
        let source = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<{{ m.role }}>\
                      {% if m.role == 'tool' %}of {{ m.tool_call_id }}: {% endif %}{{ m.content }}\
                      {% for c in m.tool_calls or [] %}<call>ID<args>{{ c.function.arguments | tojson }}<end>\
                      {% endfor %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
        ChatTemplate::new("ids", format!("{format}{}", source.replace("ID", id))).unwrap()
    };
    let call = |id: &str| {
        let arguments = Arguments::from_text(r#"{"port": "Oslo"}"#);
        Message::calls(vec![ToolCall { id: Some(id.to_owned()), name: "tide".to_owned(), arguments }])
    };
    let messages = [
        Message::user("?"),
        call("toolu_7"),
        Message::tool("toolu_7", "tide", "17:40"),
        call("toolu_8"),
        Message::tool("toolu_8", "tide", "18:10"),
    ];
    for (id, second) in
        [("{{ c.id }}", "functions.tide:1"), ("functions.{{ c.function.name }}:{{ loop.index0 }}", "functions.tide:0")]
    {
        let info = ModelInfo { name: "scripted".into(), context_train: 16_384, ..ModelInfo::default() };
        let engine = Box::new(ScriptedEngine::from_texts(info, ["Done."]));
        let mut session = Session::new(engine, Some(template(id)), None).unwrap();
        session.set_tools(tools());
        session.set_messages(messages.to_vec()).unwrap();
        let prompt = session.prompt().unwrap().0.text();
        for part in [
            "<call>functions.tide:0<args>",
            "of functions.tide:0: 17:40",
            &format!("<call>{second}<args>"),
            &format!("of {second}: 18:10"),
        ] {
            assert!(prompt.contains(part), "{part:?} is not in {prompt}");
        }
    }
}

#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn a_session_knows_the_headers_of_the_conformance_templates() {
    let answer = "Aft. Passengers wait.";
    for (name, source) in crate::data::conformance_templates() {
        let template = ChatTemplate::new(name.as_str(), source).unwrap();
        let info = ModelInfo { context_train: 16_384, ..ModelInfo::default() };
        let mut session =
            Session::new(Box::new(ScriptedEngine::from_texts(info, [answer])), Some(template), None).unwrap();
        let Ok(reply) = session.ask("When does the ferry leave?") else { continue };
        let reasoning = reply.message.reasoning.unwrap_or_default();
        let read = format!("{reasoning}{}", reply.message.content);
        // A beginning of the answer that Apriel 1.6 is given.
        assert_eq!(read.trim_start_matches("Here are my reasoning steps:\n"), answer, "{name}");
    }
}
