//! From a model's name to a session.

use callwright::constraint::Mode;
use callwright::engine::ModelInfo;
use callwright::engine::scripted::ScriptedEngine;
use callwright::format::Format;
use callwright::message::Message;
use callwright::session::Options;
use callwright::{ErrorKind, Model, Session, Tools};

const TOOLS: &str = r#"[{"name": "clock", "description": "The time now"}]"#;
const CALL: &str = "### TOOL_CALL_START ###\n{\"name\": \"clock\", \"arguments\": {}}\n### TOOL_CALL_END ###";

fn scripted(text: &str) -> ScriptedEngine {
    ScriptedEngine::from_texts(ModelInfo { context_train: 8192, ..ModelInfo::default() }, [text])
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn sessions_of_one_model_answer_alike_in_different_threads() {
    let model = Model::open("bundled").unwrap();
    let ask = || {
        let mut session = model.session().unwrap();
        session.set_tools(Tools::from_file("examples/weather.json").unwrap());
        let reply = session.ask("What's the weather in Beijing tomorrow?").unwrap();
        reply.runnable_calls().map(|call| (call.name.clone(), call.arguments.to_text())).collect::<Vec<_>>()
    };
    let alone = ask();
    assert_eq!(alone.len(), 1);
    let both = std::thread::scope(|scope| [scope.spawn(ask), scope.spawn(ask)].map(|thread| thread.join().unwrap()));
    assert_eq!(both, [alone.clone(), alone]);
}

#[test]
fn what_is_wrong_with_a_name_is_an_error_before_anything_is_loaded() {
    let error = |opened: callwright::Result<Model>| opened.map(|_| ()).unwrap_err();
    let unknown = error(Model::open("qwen3-0.6"));
    assert_eq!(unknown.kind(), ErrorKind::ModelNotFound, "{unknown}");
    assert!(unknown.to_string().contains("qwen3-0.6b"), "{unknown}");
    // The file of this model is not here, and nothing asks for it.
    let template = error(Model::builder().template("chatmll").open("qwen3-0.6b"));
    assert_eq!(
        template.to_string(),
        "there is no chat template \"chatmll\", and no such file\nhint: did you mean `chatml`?"
    );
    let format = error(Model::builder().format("hermess").open("qwen3-0.6b"));
    assert_eq!(
        format.to_string(),
        "there is no tool-call format \"hermess\", and no such file\nhint: did you mean `hermes`?"
    );
}

#[test]
#[cfg(all(not(feature = "llama"), feature = "bundled-model"))]
fn a_build_without_llama_cpp_says_so() {
    let error = Model::open("bundled").map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("it has no llama.cpp\nhint: build with the feature llama"), "{error}");
}

#[test]
fn a_session_is_built_from_parts() {
    let tools = Tools::from_json(TOOLS, "tools").unwrap();
    let earlier = vec![Message::user("Hello"), Message::assistant("Hi.")];
    let mut session = Session::builder().engine(scripted(CALL)).tools(tools).messages(earlier).build().unwrap();
    let reply = session.ask("What time is it?").unwrap();
    assert_eq!(reply.runnable_calls().map(|call| &*call.name).collect::<Vec<_>>(), ["clock"]);
    assert_eq!(session.messages()[0].content, "Hello");
}

#[test]
fn only_whole_and_valid_calls_are_runnable() {
    let tools = r#"[{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}},
        "required": ["a"]}}]"#;
    for (text, runnable) in [
        (r#"<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>"#, 1),
        (r#"<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>"#, 0),
        (r#"<tool_call>{"name": "g", "arguments": {"a": 1}}</tool_call>"#, 0),
        (r#"<tool_call>{"name": "f", "arguments": {"a": 1"#, 0),
    ] {
        let format = Format::builtin("hermes").unwrap().clone();
        let tools = Tools::from_json(tools, "tools").unwrap();
        let options = Options::default().with(|options| options.constrain = Mode::Off);
        let builder = Session::builder().engine(scripted(text)).options(options);
        let mut session = builder.format(format).tools(tools).build().unwrap();
        let reply = session.ask("Go").unwrap();
        assert_eq!((reply.calls.len(), reply.runnable_calls().count()), (1, runnable), "{text}");
    }
}
