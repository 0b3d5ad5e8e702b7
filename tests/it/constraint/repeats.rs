//! Answers that repeat themselves, or go on after their calls, in sessions on a scripted engine whose tokens are bytes.

use crate::agent::run::{run, scripted, weather, weather_tool};
use callwright::agent::Agent;
use callwright::agent::exec::Executor;
use callwright::agent::turn::Status;
use callwright::constraint::Mode;
use callwright::format::Format;
use callwright::message::{Arguments, Message, ToolCall};
use callwright::parse::event::Event as Parsed;
use callwright::session::{Event, FinishReason, NoteKind, Reply, Session};
use callwright::{Tools, engine::ModelInfo, engine::scripted::ScriptedEngine};
use serde_json::{Value, json};

const SORRY: &str = "I can't. ";

fn session(text: &str, constrain: Mode) -> Session {
    let mut session = scripted("main", [text]);
    session.set_tools(weather_tool(&mut Executor::default()).0);
    session.options_mut().constrain = constrain;
    session.options_mut().max_tokens = 100_000;
    session
}

/// The reply, and what was shown of it: its text and the names of its calls.
fn ask(session: &mut Session, question: &str) -> (Reply, String) {
    let mut shown = String::new();
    session.set_messages(vec![Message::user(question)]).unwrap();
    let reply = session.respond(&mut |event| match event {
        Event::Parsed(Parsed::Text { delta }) => shown.push_str(delta),
        Event::Parsed(Parsed::CallStart { name, .. }) => shown.push_str(&format!("[{name}]")),
        _ => {}
    });
    (reply.unwrap(), shown)
}

fn notes(reply: &Reply, kind: NoteKind) -> Vec<&str> {
    reply.notes.iter().filter(|note| note.kind == kind).map(|note| note.message.as_str()).collect()
}

#[test]
fn an_answer_that_repeats_itself_is_ended_and_reported() {
    let text = format!("Well. {}", SORRY.repeat(1000));
    for constrain in [Mode::Off, Mode::Auto] {
        let (reply, shown) = ask(&mut session(&text, constrain), "Hi");
        assert_eq!(reply.finish_reason, FinishReason::Loop);
        assert_eq!((reply.cut, reply.message.content.trim_end()), (None, shown.trim_end()));
        assert!(shown.starts_with("Well. I can't. ") && shown.len() < 100, "{shown}");
        let note = "the answer was ended because it repeats itself: the same 9 tokens 7 times, \" I can't.\" \
                    (`Sampling::repeat_penalty` 1.1, `Sampling::temperature` 0.7 or another `ModelBuilder::format` may help; `Options::loop_guard` off lets it go on)";
        assert_eq!(notes(&reply, NoteKind::Loop), [note]);
    }
    let mut free = session(&text, Mode::Auto);
    free.options_mut().loop_guard = false;
    assert_eq!(ask(&mut free, "Hi").0.message.content.trim_end(), text.trim_end());
}

#[test]
fn a_value_that_repeats_itself_is_ended_where_no_schema_asks_for_it() {
    let call = weather(&"la".repeat(500));
    for constrain in [Mode::Off, Mode::Auto] {
        let (reply, _) = ask(&mut session(&call, constrain), "Hi");
        assert_eq!((reply.finish_reason, reply.calls.len()), (FinishReason::Loop, 1));
        assert!(!reply.calls[0].complete, "{:?}", reply.calls);
    }
    let tools = r#"[{"name": "weather", "parameters": {"type": "object", "properties": {"city":
        {"type": "string", "minLength": 900}}}}]"#;
    let mut asked = session(&call, Mode::Off);
    asked.set_tools(Tools::from_json(tools, "tools").unwrap());
    let (reply, _) = ask(&mut asked, "Hi");
    assert!(reply.finish_reason == FinishReason::ToolCalls && reply.calls[0].valid, "{:?}", reply.notes);
    // The same member of an object again and again is a loop, although the schema allows any member.
    let tools =
        r#"[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "object"}}}}]"#;
    let call = weather("Rome").replace("\"Rome\"", &format!("{{{}\"a\": 1}}", r#""ace": "five", "#.repeat(60)));
    for constrain in [Mode::Off, Mode::Auto] {
        let mut looping = session(&call, constrain);
        looping.set_tools(Tools::from_json(tools, "tools").unwrap());
        let (reply, _) = ask(&mut looping, "Hi");
        assert_eq!(reply.finish_reason, FinishReason::Loop);
        assert!(!reply.calls[0].complete && notes(&reply, NoteKind::Loop).len() == 1, "{reply:?}");
    }
}

#[test]
fn json_that_a_schema_demands_is_closed_where_it_repeats_itself() {
    let properties = json!({"points": {"type": "array", "items": {"type": "integer"}}, "title": {"type": "string"}});
    let schema = json!({"type": "object", "properties": properties, "required": ["points", "title"], "additionalProperties": false});
    for text in [
        format!("{{\"points\": [7{}], \"title\": \"x\"}}", ", 7".repeat(900)),
        format!("{{\"points\": [7], \"title\": \"{}\"}}", "very ".repeat(500)),
    ] {
        let mut session = scripted("main", [text.as_str()]);
        session.options_mut().constrain = Mode::Auto;
        session.options_mut().max_tokens = 100_000;
        session.options_mut().response_format =
            Some(serde_json::from_value(json!({"schema": schema, "strict": true})).unwrap());
        let mut notices = Vec::new();
        session.set_messages(vec![Message::user("Plot it")]).unwrap();
        let reply = session.respond(&mut |event| notices.push(serde_json::to_string(event).unwrap())).unwrap();
        let value: Value = serde_json::from_str(&reply.message.content).unwrap_or_else(|_| panic!("{reply:?}"));
        assert!(value["points"][0] == 7 && value["title"].is_string(), "{value}");
        assert!(reply.message.content.len() < 400, "{value}");
        assert_eq!((reply.finish_reason, notes(&reply, NoteKind::Loop).len()), (FinishReason::Loop, 1));
        assert_eq!(notes(&reply, NoteKind::Problem), [""; 0]);
        let note = "the answer repeated itself, and was closed early, with the shortest values that fit";
        assert!(notices.concat().contains(note), "{notices:?}");
    }
}

#[test]
fn a_result_is_answered_with_json_where_the_model_would_have_written_text() {
    let mut session = session("It is sunny.", Mode::Auto);
    session.options_mut().max_tokens = 80;
    session.options_mut().response_format =
        Some(serde_json::from_value(json!({"schema": {"type": "object"}, "strict": false})).unwrap());
    let call = ToolCall { id: Some("call00001".into()), name: "weather".into(), arguments: Arguments::from_text("{}") };
    let result = Message::tool("call00001", "weather", "sunny");
    session.set_messages(vec![Message::user("Weather?"), Message::calls(vec![call]), result]).unwrap();
    let reply = session.respond(&mut |_| ()).unwrap();
    assert!(reply.calls.is_empty(), "{reply:?}");
    assert!(serde_json::from_str::<Value>(&reply.message.content).unwrap().is_object(), "{reply:?}");
}

#[test]
fn a_run_ends_with_an_answer_that_repeats_itself() {
    let mut session = scripted("main", [SORRY.repeat(100).as_str()]);
    let mut agent = Agent::default();
    session.set_tools(weather_tool(&mut agent.executor).0);
    let (outcome, events) = run(&mut session, &mut agent, "Hi");
    assert_eq!((outcome.status, outcome.finish_reason), (Status::Loop, FinishReason::Loop));
    assert!(outcome.failure.as_ref().is_some_and(|why| why.contains("it repeats itself")), "{outcome:?}");
    assert_eq!(events.last().unwrap()["finish_reason"], "loop");
}

#[test]
fn a_call_that_was_made_before_ends_the_answer_and_is_not_part_of_it() {
    let text = [weather("Oslo"), weather("Rome"), weather("Oslo"), weather("Lima")].join("\n");
    for constrain in [Mode::Off, Mode::Auto] {
        let (reply, shown) = ask(&mut session(&text, constrain), "Weather?");
        assert_eq!((reply.calls.len(), reply.finish_reason), (2, FinishReason::ToolCalls));
        assert_eq!(shown.trim(), "[weather][weather]");
        let note = "the answer was ended where it made the same call again, weather {\"city\": \"Oslo\"}: it is made once \
                    (`Options::loop_guard` off lets the answer go on)";
        assert_eq!(notes(&reply, NoteKind::Answer), [note]);
        let dropped = &reply.raw[reply.dropped_from.unwrap()..];
        assert!(String::from_utf8_lossy(dropped).contains("Oslo"), "{:?}", reply.dropped_from);
        assert!(!String::from_utf8_lossy(&reply.raw).contains("Lima"));
    }
    // The beginning of a call is no repetition of it.
    let text = [weather("Oslo"), weather("Oslo, Norway"), weather("Os")].join("\n");
    let (reply, shown) = ask(&mut session(&text, Mode::Auto), "Weather?");
    assert_eq!((reply.calls.len(), shown.trim()), (3, "[weather][weather][weather]"));
    let cities: Vec<&str> =
        reply.calls.iter().filter_map(|call| call.arguments.as_object()?["city"].as_str()).collect();
    assert_eq!((cities, reply.dropped_from), (vec!["Oslo", "Oslo, Norway", "Os"], None));
}

#[test]
fn text_after_a_call_ends_the_answer_where_calls_are_constrained() {
    let text =
        format!("Let me see.\n{}\n{}\n\nIt is sunny. Next:\n{}", weather("Oslo"), weather("Rome"), weather("Lima"));
    let (reply, shown) = ask(&mut session(&text, Mode::Auto), "Weather?");
    assert_eq!((reply.calls.len(), reply.finish_reason), (2, FinishReason::ToolCalls));
    assert_eq!(reply.message.content.trim_end(), "Let me see.");
    assert!(!shown.contains("sunny"), "{shown}");
    assert!(reply.usage.completion_tokens < text.len() - weather("Lima").len(), "generation ends there");
    assert!(reply.raw[reply.dropped_from.unwrap()..].starts_with(b"\n\nI"), "{:?}", reply.dropped_from);
    assert_eq!(reply.notes, []);
    // A heading begins as the next call would.
    let heading = format!("{}\n\n### Weather", weather("Oslo"));
    let (reply, shown) = ask(&mut session(&heading, Mode::Auto), "Weather?");
    assert_eq!((reply.message.content.trim(), shown.trim(), reply.calls.len()), ("", "[weather]", 1));

    // It goes on where that is wanted, where nothing is constrained, and where the format has text after calls.
    let mut wanted = session(&text, Mode::Auto);
    wanted.options_mut().text_after_calls = true;
    let format =
        Format::delimited().source().replace("payload = \"json\"", "payload = \"json\"\ntext_after_calls = true");
    let format = Format::parse_declaration(&format).unwrap().unwrap();
    assert!(format.text_after_calls);
    let engine =
        ScriptedEngine::from_texts(ModelInfo { context_train: 100_000, ..ModelInfo::default() }, [text.as_str()]);
    let mut declared = Session::new(Box::new(engine), None, Some(format)).unwrap();
    declared.set_tools(weather_tool(&mut Executor::default()).0);
    for mut session in [wanted, session(&text, Mode::Off), declared] {
        let (reply, shown) = ask(&mut session, "Weather?");
        assert_eq!((reply.calls.len(), reply.dropped_from), (3, None), "{reply:?}");
        assert!(shown.contains("It is sunny."), "{shown}");
    }
}

#[test]
fn a_recording_ends_where_the_answer_did() {
    let folder = tempfile::tempdir().unwrap();
    let texts = [SORRY.repeat(100), [weather("Oslo"), weather("Oslo")].join("\n"), format!("{}\nSo.", weather("Oslo"))];
    for (number, text) in texts.into_iter().enumerate() {
        let path = folder.path().join(format!("{number}.jsonl"));
        let mut first = session(&text, Mode::Auto);
        first.set_messages(vec![Message::user("Hi")]).unwrap();
        first.record(&path).unwrap();
        let reply = first.respond(&mut |_| ()).unwrap();
        let again = Session::replay(&path).unwrap().respond(&mut |_| ()).unwrap();
        assert_eq!((reply.message, reply.finish_reason), (again.message, again.finish_reason));
        assert_eq!((reply.dropped_from, reply.notes), (again.dropped_from, again.notes));
    }
}
