//! The decision to call: its probability, and what thresholds make of it.

use callwright::Tools;
use callwright::constraint::Mode;
use callwright::decision::{CallProbability, Decided};
use callwright::engine::ModelInfo;
use callwright::engine::scripted::ScriptedEngine;
use callwright::message::Message;
use callwright::parse::OtherForms;
use callwright::session::{Event, Options, Reply, Session, ToolChoice};

/// As long as the start marker, which replaces it where an answer has to be a call.
const TEXT: &str = "Hello, how do you feel?";
const MARKER: &str = "### TOOL_CALL_START ###";
const REST: &str = "\n{\"name\": \"clock\", \"arguments\": {}}\n### TOOL_CALL_END ###";

fn session(texts: &[&str], options: Options) -> Session {
    let info = ModelInfo { context_train: 16_384, ..ModelInfo::default() };
    let engine = ScriptedEngine::from_texts(info, texts.iter().copied());
    let mut session = Session::new(Box::new(engine), None, None).unwrap();
    session.set_tools(Tools::from_json(r#"[{"name": "clock"}, {"name": "stopwatch"}]"#, "tools.json").unwrap());
    *session.options_mut() = options;
    session
}

fn ask(text: &str, options: Options) -> Reply {
    session(&[text], options).ask("What time is it?").unwrap()
}

/// Returns the probabilities of the first token and of the whole marker.
fn measures(found: Option<CallProbability>) -> (f64, f64) {
    let found = found.expect("it was measured");
    (found.first_token, found.marker.expect("the whole marker was measured"))
}

#[test]
fn the_probability_is_there_where_the_model_decides() {
    let call = MARKER.to_owned() + REST;
    let measured = |choice: ToolChoice| {
        Options::default().with(|options| {
            options.tool_choice = choice;
            options.measure_call = true;
        })
    };
    assert_eq!(measures(ask(&call, measured(ToolChoice::Auto)).call_probability), (1.0, 1.0));
    assert_eq!(measures(ask(TEXT, measured(ToolChoice::Auto)).call_probability), (0.0, 0.0));
    assert_eq!(ask(TEXT, measured(ToolChoice::None)).call_probability, None);
    assert_eq!(ask(REST, measured(ToolChoice::Required)).call_probability, None);
    let first = ask(&call, Options::default()).call_probability.unwrap();
    assert_eq!((first.first_token, first.marker), (1.0, None), "the rest of the marker is not decoded");
    // Measuring changes nothing of the answer.
    for constrain in [Mode::Off, Mode::Auto] {
        let reply = ask(&call, measured(ToolChoice::Auto).with(|options| options.constrain = constrain));
        assert_eq!((reply.calls.len(), reply.raw.as_slice(), reply.decided), (1, call.as_bytes(), None));
    }
}

#[test]
fn it_can_be_asked_for_without_an_answer() {
    let call = MARKER.to_owned() + REST;
    let mut session = session(&["### Heading", &call], Options::default());
    session.set_messages(vec![Message::user("What time is it?")]).unwrap();
    let heading = session.call_probability().unwrap().unwrap();
    assert_eq!((heading.first_token, heading.value()), (1.0, 0.0));
    assert_eq!(measures(session.call_probability().unwrap()), (1.0, 1.0));
    assert_eq!(session.messages().len(), 1);
    session.set_tools(Tools::default());
    assert_eq!(session.call_probability().unwrap(), None);
}

#[test]
fn an_answer_at_the_threshold_is_a_call() {
    let script = TEXT.to_owned() + REST;
    for constrain in [Mode::Off, Mode::Auto, Mode::Strict] {
        let with = |threshold: f64| {
            Options::default().with(|options| {
                options.call_threshold = Some(threshold);
                options.constrain = constrain;
                options.other_forms = OtherForms::Off;
            })
        };
        let held = ask(&script, with(0.0));
        assert_eq!((held.decided, held.calls.len()), (Some(Decided::Call), 1), "{constrain:?}");
        assert!(held.raw.starts_with(MARKER.as_bytes()) && held.calls[0].valid, "{constrain:?}");
        let free = ask(&script, with(0.01));
        assert_eq!((free.decided, free.calls.len()), (None, 0), "{constrain:?}");
        assert!(free.message.content.starts_with(TEXT), "{constrain:?}");
    }
}

#[test]
fn a_call_without_room_is_a_note_where_only_the_threshold_wants_it() {
    let options = Options::default().with(|options| {
        options.call_threshold = Some(0.0);
        options.max_tokens = 30;
    });
    let reply = ask(TEXT, options);
    assert_eq!((reply.decided, reply.calls.len()), (Some(Decided::Call), 0));
    assert!(reply.notes[0].message.starts_with("the answer ends before a call: "), "{:?}", reply.notes);
}

#[test]
fn an_answer_below_the_other_threshold_is_text() {
    let script = format!("Sure. {MARKER}{REST}");
    for constrain in [Mode::Off, Mode::Auto] {
        let with = |threshold: Option<f64>| {
            Options::default().with(|options| {
                options.no_call_below = threshold;
                options.constrain = constrain;
            })
        };
        let free = ask(&script, with(Some(0.0)));
        assert_eq!((free.decided, free.calls.len()), (None, 1), "{constrain:?}");
        let held = ask(&script, with(Some(0.5)));
        assert_eq!((held.decided, held.calls.len()), (Some(Decided::Text), 0), "{constrain:?}");
        assert!(held.message.content.starts_with("Sure. "), "{constrain:?}");
        let misspelled = ask(&(MARKER.replace("T #", "T#") + REST), with(Some(0.5)));
        assert_eq!(
            (misspelled.decided, misspelled.runnable_calls().count()),
            (Some(Decided::Text), 0),
            "{constrain:?}"
        );
        assert!(!misspelled.raw.starts_with(b"#"), "{constrain:?}");
        for marker in ["# TOOL_CALL_START ###", "###TOOL CALL START###", "### Tool_Call_Start"] {
            let later = ask(&format!("Sure.\n```\n{marker}{REST}"), with(Some(0.5)));
            assert!(later.message.content.starts_with("Sure.\n```\n#"), "{constrain:?} {marker}");
            assert_eq!(later.calls.len(), 0, "{constrain:?} {marker}");
            let free = ask(&format!("Sure.\n```\n{marker}{REST}"), with(Some(0.0)));
            assert_eq!(free.calls.len(), 1, "{constrain:?} {marker}");
        }
        let call = ask(&(MARKER.to_owned() + REST), with(Some(0.5)));
        assert_eq!((call.decided, call.calls.len()), (None, 1), "{constrain:?}");
    }
}

#[test]
fn after_a_result_the_model_is_left_alone() {
    let always = Options::default().with(|options| options.call_threshold = Some(0.0));
    let mut session = session(&[&(TEXT.to_owned() + REST), "It is noon."], always);
    let reply = session.ask("What time is it?").unwrap();
    assert_eq!(reply.decided, Some(Decided::Call));
    let mut messages = session.messages().to_vec();
    messages.push(Message::tool(reply.calls[0].id.as_str(), "clock", "12:00"));
    session.set_messages(messages).unwrap();
    let answer = session.respond(&mut |_| ()).unwrap();
    assert_eq!((answer.decided, answer.message.content.as_str()), (None, "It is noon."));
    assert_eq!(answer.call_probability.map(|probability| probability.value()), Some(0.0));
}

#[test]
fn the_usage_event_and_a_replay_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    let options = Options::default().with(|options| {
        options.call_threshold = Some(0.0);
        options.constrain = Mode::Off;
    });
    let mut session = session(&[&(TEXT.to_owned() + REST)], options);
    session.set_messages(vec![Message::user("What time is it?")]).unwrap();
    session.record(&path).unwrap();
    let mut usage = Vec::new();
    let mut on_event = |event: &Event| {
        if matches!(event, Event::Usage(_)) {
            usage.push(serde_json::to_value(event).unwrap());
        }
    };
    let reply = session.respond(&mut on_event).unwrap();
    assert_eq!((&usage[0]["decided"], &usage[0]["call_probability"]["marker"]), (&"call".into(), &0.0.into()));
    let again = Session::replay(&path).unwrap().respond(&mut |_| ()).unwrap();
    assert_eq!((again.call_probability, again.decided), (reply.call_probability, reply.decided));
    assert_eq!(again.calls[0].name, "clock");
}
