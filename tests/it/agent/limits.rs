//! How runs end that cannot go on: an engine that breaks, tools that cannot be used, models that may not go on; and how
//! a run is recorded and repeated.

use crate::agent::run::{
    City, assert_valid, call, conversation, fallbacks, forced, info, kinds, long_text, prepared, run, scripted,
    weather, weather_tool,
};
use crate::hooked::Hooked;
use callwright::agent::exec::Approval;
use callwright::agent::fallback::Limits as Spending;
use callwright::agent::turn::Status;
use callwright::agent::{Agent, Fallbacks};
use callwright::constraint::Mode;
use callwright::engine::ModelInfo;
use callwright::engine::scripted::ScriptedEngine;
use callwright::message::Message;
use callwright::session::{ContextPolicy, Event, FinishReason, Outcome, Session};
use callwright::{Error, ErrorKind, Tools};
use serde_json::Value;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An engine that breaks when it is to speak for the n-th time, and takes its time for each token.
fn faulty(script: ScriptedEngine, mut after: usize, pause: Duration) -> Box<Hooked> {
    let mut engine = Hooked::new(script);
    engine.on_decode = Box::new(move || std::thread::sleep(pause));
    engine.on_begin = Box::new(move |_, _| {
        after = after.checked_sub(1).ok_or_else(|| Error::new(ErrorKind::Engine, "the engine broke"))?;
        Ok(())
    });
    Box::new(engine)
}

#[test]
fn an_engine_that_breaks_leaves_what_was_done() {
    for (after, left) in [(0, 0), (1, 3)] {
        let text = weather("Rome");
        let inner = ScriptedEngine::from_texts(info("main"), [text.as_str(), "Sunny."]);
        let mut session = Session::new(faulty(inner, after, Duration::ZERO), None, None).unwrap();
        let mut agent = Agent::default();
        let (tools, _) = weather_tool(&mut agent.executor);
        session.set_tools(tools);
        let ended = session.ask_and_run("What's the weather in Rome?", &mut agent);
        // What was done before it broke is not thrown away.
        let error = match after {
            0 => ended.unwrap_err(),
            _ => {
                let outcome = ended.unwrap();
                assert_eq!((outcome.status, outcome.finish_reason), (Status::Error, FinishReason::Error));
                assert_eq!(outcome.failure.as_deref(), Some("the engine broke"));
                assert_eq!(outcome.models[0].answers, 1);
                outcome.ok().unwrap_err()
            }
        };
        assert_eq!((error.kind(), error.message()), (ErrorKind::Engine, "the engine broke"));
        assert_eq!(session.messages().len(), left, "{}", conversation(session.messages()));
        assert_valid(session.messages());
    }
}

#[test]
fn a_conversation_without_a_question_is_not_answered() {
    let mut said = String::new();
    for messages in [vec![], vec![Message::system("Be brief.")], vec![Message::assistant("Hello?")]] {
        let (mut session, mut agent, _) = prepared(["Yes."]);
        session.set_messages(messages).unwrap();
        let error = session.run(&mut agent, &mut |_| ()).unwrap_err();
        assert_eq!((error.kind(), session.respond(&mut |_| ()).unwrap_err()), (ErrorKind::Messages, error.clone()));
        said += &format!("{error}\n");
    }
    insta::assert_snapshot!(said);
}

// What no other call can mend.

fn toml_tools(what: &str) -> Tools {
    let text = format!("[[tool]]\nname = \"weather\"\ndescription = \"The weather\"\n{what}\n");
    Tools::from_toml(&text, "tools.toml").unwrap()
}

#[test]
fn a_failure_that_no_other_call_can_correct_is_reported_once_and_given_up() {
    let any = call("weather", "{}");
    let mut report = String::new();
    for (what, exec) in [
        ("no program", "command = [\"no-such-program-anywhere\"]"),
        ("no folder", "command = [\"true\"]\ncwd = \"/no/such/folder\""),
        ("refused", "command = [\"true\"]\nconfirm = true"),
        ("hangs", "command = [\"sleep\", \"60\"]\ntimeout_s = 0.2"),
    ] {
        for (heeds, texts) in [(true, vec![any.as_str(), "I cannot tell."]), (false, vec![any.as_str(); 9])] {
            let mut agent = Agent::default();
            agent.fallbacks = Some(fallbacks(&[("helper", &[&any])]));
            let refused = Arc::new(Mutex::new(0));
            let asked = Arc::clone(&refused);
            agent.executor.confirm = Some(Box::new(move |_| {
                *asked.lock().unwrap() += 1;
                Approval::Denied(None)
            }));
            let mut session = scripted("main", texts);
            session.set_tools(toml_tools(exec));
            let (outcome, events) = run(&mut session, &mut agent, "?");
            let tried = events.iter().filter(|event| event["type"] == "tool_result").count();
            assert_eq!(tried, if heeds { 1 } else { 2 }, "{what}: {events:#?}");
            assert!(*refused.lock().unwrap() <= 2);
            let name = serde_json::to_value(outcome.status).unwrap();
            report += &format!("{what}, {}: {}", if heeds { "heeded" } else { "not heeded" }, name.as_str().unwrap());
            report += &format!(": {}\n", kinds(&events).join(", "));
            report += &conversation(session.messages());
        }
    }
    insta::assert_snapshot!(report);
}

// What fallback models may spend.

/// A run in which a fallback model may spend so much: its status, what became of asking, and what it took.
fn helped(says: &str, fallback_attempts: usize, max_tokens: usize) -> (Outcome, Vec<String>, usize) {
    let bad = call("weather", "{}");
    let (mut session, mut agent, _) = prepared([bad.as_str(), "No."]);
    agent.limits.max_tool_failures = 1;
    agent.limits.fallback_attempts = fallback_attempts;
    let says = says.to_owned();
    let open = move |name: &str| Ok((scripted(name, vec![says.as_str(); 9]), 1));
    let limits = Spending { max_tokens, ..Default::default() };
    agent.fallbacks = Some(Fallbacks::new(vec!["helper".into()], limits, Box::new(open)));
    let (outcome, events) = run(&mut session, &mut agent, "?");
    let steps =
        kinds(&events).into_iter().filter_map(|kind| Some(kind.strip_prefix("fallback ")?.to_owned())).collect();
    let helper = outcome.models.get(1).map_or(0, |helper| helper.usage.prompt_tokens + helper.usage.completion_tokens);
    (outcome, steps, helper)
}

#[test]
fn what_fallback_models_may_spend_has_an_end() {
    let (outcome, steps, once) = helped(&forced("Atlantis"), 1, usize::MAX);
    assert_eq!((outcome.status, steps.len()), (Status::ToolFailed, 2));
    // Enough for once, with a little room.
    let enough = once + 20;
    let (outcome, steps, spent) = helped(&forced("Atlantis"), 3, enough);
    assert_eq!((outcome.status, spent), (Status::ToolFailed, once));
    assert_eq!(steps, ["asked", "called", "asked", "exhausted"]);
    // An answer is ended where the tokens are; what was written of it is not executed.
    let (outcome, steps, spent) = helped(&forced(&long_text(5000)), 3, enough);
    assert_eq!((outcome.status, &steps[..2]), (Status::ToolFailed, &["asked".to_owned(), "failed".to_owned()][..]));
    assert!(spent <= enough && spent > once, "{spent} of {enough}");
    assert!(outcome.notes.iter().any(|note| note.message.starts_with("helper: ")), "{:?}", outcome.notes);
    // A prompt that is more than may be spent is not sent.
    let (outcome, steps, spent) = helped(&forced("Rome"), 3, 200);
    assert_eq!((outcome.status, spent), (Status::ToolFailed, 0));
    assert_eq!(steps, ["asked", "exhausted"]);
}

#[test]
fn a_fallback_models_answer_ends_where_its_time_does() {
    let bad = call("weather", "{}");
    let (mut session, mut agent, asked) = prepared([bad.as_str(), "No."]);
    agent.limits.max_tool_failures = 1;
    let open = |name: &str| {
        let inner = ScriptedEngine::from_texts(info(name), [forced(&long_text(400)).as_str()]);
        let mut session = Session::new(faulty(inner, 9, Duration::from_millis(50)), None, None)?;
        session.options_mut().constrain = Mode::Off;
        Ok((session, 1))
    };
    let limits = Spending { max_time: Duration::from_millis(500), ..Default::default() };
    agent.fallbacks = Some(Fallbacks::new(vec!["helper".into()], limits, Box::new(open)));
    let (outcome, events) = run(&mut session, &mut agent, "?");
    assert_eq!((outcome.status, asked.lock().unwrap().len()), (Status::ToolFailed, 0));
    let steps: Vec<String> = kinds(&events).into_iter().filter(|kind| kind.starts_with("fallback")).collect();
    assert_eq!(steps, ["fallback asked", "fallback failed", "fallback exhausted"]);
}

// Runs that are recorded.

fn repeated(path: &Path) -> (Session, Value, Vec<Value>) {
    let (mut session, agent) = Session::replay_run(path).unwrap();
    let mut events = Vec::new();
    let outcome = session
        .run(&mut agent.unwrap(), &mut |event: &Event| events.push(serde_json::to_value(event).unwrap()))
        .unwrap();
    (session, serde_json::to_value(outcome.status).unwrap(), events)
}

/// Events without what the clock says.
fn timeless(events: &[Value]) -> Vec<Value> {
    let kept = events.iter().filter(|event| event["type"] != "usage").cloned();
    kept.map(|mut event| {
        if let Value::Object(fields) = &mut event {
            fields.remove("seconds");
        }
        event
    })
    .collect()
}

#[test]
fn a_recorded_run_is_repeated_without_its_tools() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let bad = call("weather", "{}");
    let many = format!("{}\n{}", weather("Rome"), weather("Atlantis"));
    let (rome, long) = (weather("Rome"), weather(&long_text(3000)));
    let mended = forced("Oslo");
    let cases: [(&str, &[&str], Status); 4] = [
        ("results and a failure", &[&many, "Sunny in Rome."], Status::Done),
        ("a call that is mended", &[&bad, &bad, &bad, &mended, "Sunny."], Status::Done),
        ("a loop", &[rome.as_str(); 4], Status::Done),
        ("cut off", &[&long, "No."], Status::Done),
    ];
    for (what, texts, status) in cases {
        let (mut session, mut agent, _) = prepared(texts.iter().copied());
        agent.limits.regenerate = true;
        session.options_mut().constrain = Mode::Auto;
        session.options_mut().max_tokens = 500;
        session.set_messages(vec![Message::user("?")]).unwrap();
        session.record(&path).unwrap();
        let mut events = Vec::new();
        let outcome =
            session.run(&mut agent, &mut |event: &Event| events.push(serde_json::to_value(event).unwrap())).unwrap();
        assert_eq!(outcome.status, status, "{what}: {}", conversation(session.messages()));
        let (again, ended, repeated) = repeated(&path);
        assert_eq!(conversation(again.messages()), conversation(session.messages()), "{what}");
        assert_eq!(ended, serde_json::to_value(status).unwrap(), "{what}");
        let constraint = |events: Vec<Value>| -> Vec<Value> {
            events.into_iter().filter(|event| event["type"] != "constraint").collect()
        };
        assert_eq!(constraint(timeless(&repeated)), constraint(timeless(&events)), "{what}");
    }

    // Where nothing was executed there is nothing but a session to repeat.
    let mut session = scripted("main", ["Yes."]);
    session.set_messages(vec![Message::user("?")]).unwrap();
    session.record(&path).unwrap();
    session.respond(&mut |_| ()).unwrap();
    assert!(Session::replay_run(&path).unwrap().1.is_none());
}

#[test]
fn a_recorded_run_repeats_what_did_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    for (policy, status) in [(ContextPolicy::Shorten, Status::Done), (ContextPolicy::Error, Status::Error)] {
        let mut agent = Agent::default();
        let tool = agent.executor.function("weather", "", |_: City| Ok::<_, String>("sunny ".repeat(1000)));
        let texts = [weather("Rome"), weather("Oslo")];
        let info = ModelInfo { context_train: 4000, ..info("main") };
        let engine = ScriptedEngine::from_texts(info, [texts[0].as_str(), texts[1].as_str(), "Sunny."]);
        let mut session = Session::new(Box::new(engine), None, None).unwrap();
        session.options_mut().context = policy;
        session.set_tools(Tools::new([tool]).unwrap());
        session.set_messages(vec![Message::user("?")]).unwrap();
        session.record(&path).unwrap();
        let mut events = Vec::new();
        let outcome =
            session.run(&mut agent, &mut |event: &Event| events.push(serde_json::to_value(event).unwrap())).unwrap();
        assert_eq!(outcome.status, status);
        assert_eq!(kinds(&events).contains(&"context".to_owned()), policy == ContextPolicy::Shorten, "{events:#?}");
        let (again, ended, repeated) = repeated(&path);
        assert_eq!(again.messages(), session.messages());
        assert_eq!(ended, serde_json::to_value(status).unwrap());
        // What takes the room of a prompt is not recorded, only that it does not fit.
        let but_done = |events: &[Value]| timeless(&events[..events.len() - 1]);
        assert_eq!(but_done(&repeated), but_done(&events));
    }
}

#[test]
fn a_run_with_fallback_models_is_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, mut agent, _) = prepared(["Yes."]);
    agent.fallbacks = Some(fallbacks(&[("helper", &["No."])]));
    session.set_messages(vec![Message::user("?")]).unwrap();
    session.record(folder.path().join("run.jsonl")).unwrap();
    let error = session.run(&mut agent, &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    insta::assert_snapshot!(error);
}

/// Two calls without a city come to the same call of another model, which runs once.
#[test]
fn calls_that_are_corrected_to_the_same_call_run_once() {
    let answer =
        [crate::agent::run::call("weather", "{}"), crate::agent::run::call("weather", "{\"town\": 1}")].join("\n");
    let (mut session, mut agent, asked) = crate::agent::run::prepared([answer.as_str(), "Good day."]);
    agent.limits.retry = false;
    let rome = crate::agent::run::forced("Rome");
    agent.fallbacks = Some(crate::agent::run::fallbacks(&[("helper", &[&rome, &rome])]));
    session.options_mut().logit_bias = vec![(callwright::engine::Token(1), 1.0)];
    let (outcome, events) = crate::agent::run::run(&mut session, &mut agent, "?");
    assert_eq!(*asked.lock().unwrap(), ["Rome"], "{outcome:?}");
    let results: Vec<_> = events.iter().filter(|event| event["type"] == "tool_result").collect();
    assert_eq!((results.len(), &results[0]["same_as"]), (2, &serde_json::Value::Null));
    assert_eq!((&results[1]["same_as"], &results[1]["content"]), (&"call00001".into(), &"sunny in Rome".into()));
    let said = |text: &str| outcome.notes.iter().filter(|note| note.message.contains(text)).count();
    assert_eq!(
        said("call00002 weather: the same call as call00001, which ran once for both"),
        1,
        "{:?}",
        outcome.notes
    );
    assert_eq!(said("helper: logit_bias is not used for it: its tokens have other ids"), 1, "{:?}", outcome.notes);
}
