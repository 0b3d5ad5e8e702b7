//! What is reported of an answer without a call, and of a base model.

use crate::agent::run::{scripted, weather, weather_tool};
use callwright::Tools;
use callwright::agent::exec::Executor;
use callwright::constraint::Mode;
use callwright::engine::{ModelInfo, scripted::ScriptedEngine};
use callwright::message::Conversation;
use callwright::session::{FinishReason, NoteKind, Reply, Session, ToolChoice};
use callwright::template::ChatTemplate;
use serde_json::json;

const TOOLS: &str = r#"[{"name": "get_weather", "description": "The weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}}, "required": ["city"]}}]"#;

fn session(text: &str) -> Session {
    let mut session = scripted("main", [text, text]);
    session.set_tools(Tools::from_json(TOOLS, "tools").unwrap());
    session
}

fn said(reply: &Reply) -> Vec<&str> {
    reply.notes.iter().filter(|note| note.kind == NoteKind::NoCall).map(|note| note.message.as_str()).collect()
}

#[test]
fn a_call_that_was_meant_is_reported_and_an_ordinary_answer_is_not() {
    let meant = "no call: the answer names the tool get_weather, but does not call it (`ToolChoice::Required` makes it \
                 call, `Options::explain` says more)";
    for (question, answer, notes) in [
        ("How warm is it?", "I will use get_weather for Oslo.", vec![meant]),
        ("How warm is it?", "It is warm.", vec![]),
        ("How warm is it?", "I forget_weather.", vec![]),
        ("What does get_weather do?", "get_weather says how warm it is.", vec![]),
    ] {
        assert_eq!(said(&session(answer).ask(question).unwrap()), notes, "{answer}");
    }
    // Neither where there is a call, nor where none may be, nor after results.
    let mut calls = scripted("main", [weather("Oslo").as_str()]);
    calls.set_tools(weather_tool(&mut Executor::default()).0);
    assert_eq!(said(&calls.ask("How warm is it?").unwrap()), [""; 0]);
    let mut cut_off = session(&weather("Oslo"));
    cut_off.options_mut().max_tokens = weather("Oslo").len() - 30;
    cut_off.options_mut().constrain = Mode::Off;
    cut_off.options_mut().explain = true;
    let reply = cut_off.ask("How warm is it?").unwrap();
    assert_eq!((reply.calls.len(), said(&reply).len()), (1, 0), "{:?}", reply.notes);
    let mut none = session("I will use get_weather for Oslo.");
    none.options_mut().tool_choice = ToolChoice::None;
    none.options_mut().explain = true;
    assert_eq!(said(&none.ask("How warm is it?").unwrap()), [""; 0]);
    let mut after = session("get_weather says 12 degrees.");
    let conversation = json!([{"role": "user", "content": "Warm?"},
        {"role": "assistant", "tool_calls": [{"id": "call00001", "type": "function", "function":
            {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}]},
        {"role": "tool", "tool_call_id": "call00001", "content": "12"}]);
    after.set_messages(Conversation::from_value(conversation).unwrap().messages).unwrap();
    assert_eq!(said(&after.respond(&mut |_| ()).unwrap()), [""; 0]);
}

#[test]
fn the_whole_explanation_has_what_was_seen() {
    let mut asked = session("It is warm.");
    asked.options_mut().explain = true;
    let reply = asked.ask("How warm is it?").unwrap();
    insta::assert_snapshot!(said(&reply)[0]);
    let mut other = session("[TOOL_CALLS]get_wether[ARGS]{\"city\": \"Oslo\"}");
    other.options_mut().explain = true;
    let reply = other.ask("How warm is it?").unwrap();
    assert!(said(&reply)[0].contains("begins a call in the format mistral"), "{:?}", reply.notes);
    assert!(said(&reply)[0].contains("to try: `ModelBuilder::format` mistral"), "{:?}", reply.notes);
}

/// A model with a vocabulary that lacks the markers of ChatML.
fn base(answer: &str, template: Option<ChatTemplate>) -> Session {
    let info = ModelInfo {
        name: "base".into(),
        context_train: 100_000,
        eos: "</s>".into(),
        control_tokens: vec!["</s>".into()],
        ..ModelInfo::default()
    };
    let engine = ScriptedEngine::from_texts(info, [answer, answer]);
    let mut session = Session::new(Box::new(engine), template, None).unwrap();
    session.set_tools(Tools::from_json(TOOLS, "tools").unwrap());
    session
}

#[test]
fn a_base_model_is_named_and_its_turn_ends_at_a_marker_in_plain_text() {
    let answer = "It is warm.<|im_end|>\n<|im_start|>user\nAnd tomorrow?<|im_end|>";
    let mut session = base(answer, Some(ChatTemplate::builtin("chatml").unwrap().unwrap()));
    let notice = "base is probably a base model, which was not trained to answer questions or to call tools: the markers \
                  <|im_end|> and <|im_start|> of the chat template are no tokens of its vocabulary; use the instruct \
                  version of the model (its name ends with -Instruct, -it or -chat)";
    assert!(session.notices().iter().any(|said| said == notice), "{:?}", session.notices());
    let reply = session.ask("How warm is it?").unwrap();
    assert_eq!((reply.message.content.as_str(), reply.finish_reason), ("It is warm.", FinishReason::Stop));
    let note = "no call: base is probably a base model, which does not call tools (`Options::explain` says more)";
    assert_eq!(said(&reply), [note]);
    assert_eq!(said(&session.ask("And now?").unwrap()), [""; 0], "it is reported once");

    // A model that ends its turns with a token of its own was trained on conversations.
    let source = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}\
                  {% endif %}{% endfor %}<|assistant|>";
    let mut trained = base("It is warm.<|user|>And", Some(ChatTemplate::new("own.jinja", source).unwrap()));
    assert!(!trained.notices().iter().any(|said| said.contains("base model")), "{:?}", trained.notices());
    let reply = trained.ask("How warm is it?").unwrap();
    assert_eq!((reply.message.content.as_str(), said(&reply).len()), ("It is warm.", 0));
}
