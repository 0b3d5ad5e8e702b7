//! What is selected, and how often the right tool is among it.

use super::*;
use crate::agent::Agent;
use crate::constraint::Mode;
use crate::engine::ModelInfo;
use crate::engine::scripted::ScriptedEngine;
use crate::message::ToolCall;
use crate::session::{Event, NoteKind, Session};

const TOPICS: [&str; 12] = [
    "weather",
    "currency",
    "flight",
    "hotel",
    "recipe",
    "translation",
    "calendar",
    "email",
    "stock",
    "music",
    "map",
    "news",
];

fn tools() -> Tools {
    let tool = |topic: &&str| Tool::new(format!("get_{topic}"), format!("Look up a {topic}"), None);
    Tools::new(TOPICS.iter().map(tool)).unwrap()
}

fn session<'a>(most: usize, texts: impl IntoIterator<Item = &'a str>) -> Session {
    let info = ModelInfo { context_train: 8192, ..ModelInfo::default() };
    let mut session =
        Session::builder().engine(ScriptedEngine::from_texts(info, texts)).tools(tools()).build().unwrap();
    session.options_mut().select_tools = Some(most);
    session.options_mut().constrain = Mode::Off;
    session
}

fn shown(session: &Session) -> Vec<String> {
    session.shown_tools().iter().map(|tool| tool.name.clone()).collect()
}

fn call(name: &str, arguments: &str) -> String {
    format!("### TOOL_CALL_START ###\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n### TOOL_CALL_END ###")
}

#[test]
fn the_tools_that_fit_are_shown_in_their_own_order() {
    let mut session = session(2, []);
    session.push(Message::user("Any good music in the news?"));
    assert_eq!(shown(&session), ["get_music", "get_news"]);
    session.options_mut().find_tools = true;
    assert_eq!(shown(&session), ["get_music", "get_news", "find_tools"]);
    session.options_mut().tool_choice = ToolChoice::Tool("get_map".to_owned());
    assert_eq!(shown(&session), ["get_music", "get_map", "get_news", "find_tools"]);
    // As many as there are need no choice.
    session.options_mut().select_tools = Some(12);
    assert_eq!(session.shown_tools().len(), 12);
}

#[test]
fn the_same_choice_is_the_same_set_of_tools() {
    let mut session = session(2, []);
    session.push(Message::user("The weather and flights?"));
    let first = session.shown_tools();
    session.push(Message::user("And flights in that weather?"));
    assert!(Arc::ptr_eq(&first, &session.shown_tools()));
}

#[test]
fn earlier_questions_count_less_than_the_last_one() {
    let mut session = session(2, []);
    session.push(Message::user("What's the weather in Rome?"));
    session.push(Message::user("And in Paris?"));
    assert!(shown(&session).contains(&"get_weather".to_owned()));
    for text in ["Play some music.", "Which hotel?", "What recipe?"] {
        session.push(Message::user(text));
    }
    assert_eq!(shown(&session), ["get_hotel", "get_recipe"]);
}

#[test]
fn tools_that_were_called_stay() {
    let mut session = session(1, []);
    let arguments = Arguments::from_text("{}");
    let made = ToolCall { id: Some("call00001".to_owned()), name: "get_stock".to_owned(), arguments };
    session.push(Message::user("The stock?"));
    session.push(Message::calls(vec![made]));
    session.push(Message::tool("call00001", "get_stock", "3"));
    session.push(Message::user("Now the weather, and the calendar, and email, and news, and a map."));
    assert!(shown(&session).contains(&"get_stock".to_owned()) && shown(&session).len() == 2);
}

#[test]
fn a_call_that_waits_keeps_its_tool() {
    let mut session = session(1, ["The map is there."]);
    let made = ToolCall { id: Some("call00001".into()), name: "get_map".into(), arguments: Arguments::from_text("{}") };
    session.push(Message::user("Play some music."));
    session.push(Message::calls(vec![made]));
    let mut agent = Agent::default();
    agent.executor.function("get_map", "", |_: std::collections::HashMap<String, Value>| Ok::<_, String>("a map"));
    let paused = session.run(&mut agent, &mut |_| ()).unwrap();
    assert_eq!((paused.status, paused.pending.len()), (crate::agent::turn::Status::Pending, 1));
    assert_eq!(shown(&session), ["get_music", "get_map"]);
    agent.executor.confirm = Some(Box::new(|_| crate::agent::exec::Approval::Given));
    let mut selected = Vec::new();
    let outcome = session.run(&mut agent, &mut |event| {
        if let Event::Selected(tools) = event {
            selected.push(tools.tools.clone());
        }
    });
    outcome.unwrap().ok().unwrap();
    assert_eq!(selected, [["get_music", "get_map"]]);
    session.push(Message::user("And the weather?"));
    assert!(shown(&session).contains(&"get_map".to_owned()));
}

#[test]
fn a_run_brings_in_tools_by_words_and_reports_what_is_shown() {
    let texts = [&*call("find_tools", r#"{"words": "the latest news"}"#), &*call("get_news", "{}"), "It is 2."];
    let mut session = session(2, texts);
    session.options_mut().find_tools = true;
    let mut agent = Agent::default();
    agent.limits.regenerate = false;
    agent.executor.function("get_news", "", |_: std::collections::HashMap<String, Value>| Ok::<_, String>("2"));
    session.push(Message::user("How many dollars is a euro?"));
    let mut selected = Vec::new();
    let outcome = session.run(&mut agent, &mut |event| {
        if let Event::Selected(tools) = event {
            selected.push(tools.clone());
        }
    });
    outcome.unwrap().ok().unwrap();
    let said: Vec<&str> = session.messages().iter().map(|message| message.content.as_str()).collect();
    assert_eq!(said[2], "these tools can be called now:\nget_news: Look up a news");
    assert_eq!(said[4..], ["2", "It is 2."]);
    assert_eq!(selected.iter().map(|tools| tools.tools.len()).collect::<Vec<_>>(), [3, 4]);
    assert!(selected[1].tools.contains(&"get_news".to_owned()) && selected[1].of == 12);
    assert!(session.find_tools("quantum").starts_with("no tool fits these words"));
}

#[test]
fn tools_that_take_much_of_the_context_are_reported_once() {
    let info = ModelInfo { context_train: 6000, ..ModelInfo::default() };
    let engine = ScriptedEngine::from_texts(info, ["One.", "Two."]);
    let mut session = Session::builder().engine(engine).tools(tools()).build().unwrap();
    session.options_mut().constrain = Mode::Off;
    session.options_mut().max_tokens = 20;
    session.options_mut().context = crate::session::ContextPolicy::Error;
    let mut reports = Vec::new();
    for question in ["One?", "Two?"] {
        session.push(Message::user(question));
        let reply = session.respond(&mut |_| ()).unwrap();
        reports.extend(reply.notes.into_iter().filter(|note| note.kind == NoteKind::Context).map(|note| note.message));
    }
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(
        reports[0].starts_with("the 12 tools take ") && reports[0].contains("`Options::select_tools`"),
        "{reports:?}"
    );
}
