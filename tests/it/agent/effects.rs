//! Tools that change something: executed once, within limits, and only with the approval that they need.

use crate::agent::run::{call, info, scripted};
use crate::program;
use callwright::agent::Agent;
use callwright::agent::exec::{Approval, Executor};
use callwright::agent::turn::Status;
use callwright::constraint::Mode;
use callwright::engine::scripted::ScriptedEngine;
use callwright::format::Format;
use callwright::message::{Arguments, Message, Role, ToolCall};
use callwright::session::{Outcome, Session};
use callwright::tool::{Effect, EffectSource, Tool};
use callwright::{ErrorKind, Tools};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::sync::{Arc, Mutex};

#[derive(Deserialize, JsonSchema)]
struct Room {
    room: String,
}

type Log = Arc<Mutex<Vec<String>>>;

/// An agent with the tools `light_on`, `wipe` (destructive) and `state` (reads), and what they were called with.
fn home() -> (Agent, Vec<Tool>, Log) {
    let log = Log::default();
    let mut agent = Agent::default();
    let mut add = |name: &'static str| {
        let log = Arc::clone(&log);
        agent.executor.function(name, "", move |room: Room| {
            log.lock().unwrap().push(format!("{name} {}", room.room));
            Ok::<_, String>(format!("{} is done", room.room))
        })
    };
    let tools = vec![add("light_on"), add("wipe").effect(Effect::Destructive), add("state").effect(Effect::Read)];
    (agent, tools, log)
}

fn in_room(tool: &str, room: &str) -> String {
    call(tool, &format!(r#"{{"room": "{room}"}}"#))
}

/// A run of these answers, and what the tools were called with.
fn run(texts: &[&str], change: impl FnOnce(&mut Agent)) -> (Outcome, Session, Vec<String>) {
    let (mut agent, tools, log) = home();
    change(&mut agent);
    let mut session = scripted("main", texts.iter().copied());
    session.set_tools(Tools::new(tools).unwrap());
    let outcome = session.ask_and_run("?", &mut agent).unwrap();
    let log = log.lock().unwrap().clone();
    (outcome, session, log)
}

#[test]
fn in_every_format_what_is_repeated_for_ever_is_executed_once_and_the_run_ends_well() {
    for name in Format::names() {
        let format = Format::builtin(name).unwrap();
        let arguments = Arguments::from_text(r#"{"room": "kitchen"}"#);
        let made =
            |name: &str| ToolCall { id: Some("call00001".into()), name: name.into(), arguments: arguments.clone() };
        let text = format.write_calls(&[made("light_on")]);
        let (mut agent, tools, log) = home();
        agent.trust_other_forms = true;
        let engine = ScriptedEngine::from_texts(info("main"), std::iter::repeat_n(text.as_str(), 20));
        let mut session = Session::new(Box::new(engine), None, Some(format.clone())).unwrap();
        session.options_mut().constrain = Mode::Off;
        session.set_tools(Tools::new(tools).unwrap());
        let outcome = session.ask_and_run("Light!", &mut agent).unwrap();
        assert_eq!(outcome.status, Status::Done, "{name}: {text}");
        assert_eq!(*log.lock().unwrap(), ["light_on kitchen"], "{name}: {text}");
        let answer = session.messages().last().unwrap();
        assert_eq!(answer.content.trim(), r#"light_on {"room":"kitchen"}: kitchen is done"#, "{name}");
        assert!(answer.tool_calls.is_empty(), "{name}");
    }
}

#[test]
fn after_a_repeated_call_the_model_may_do_what_is_left() {
    let (kitchen, hall) = (in_room("light_on", "kitchen"), in_room("light_on", "hall"));
    let (outcome, session, log) = run(&[&kitchen, &kitchen, &hall, "Both are on."], |_| ());
    assert_eq!((outcome.status, log), (Status::Done, vec!["light_on kitchen".to_owned(), "light_on hall".to_owned()]));
    let results: Vec<&str> = session.messages().iter().skip(1).map(|message| message.content.as_str()).collect();
    assert_eq!(
        results[3],
        "kitchen is done\n[This was done before, and not again. Do not call it again: do what is left, or say that it is done.]"
    );
    assert_eq!(results.last(), Some(&"Both are on."));
}

/// What a person reads: that a result is the earlier one, the reason once, and the log on lines of its own.
#[test]
#[cfg(unix)]
fn the_program_shows_which_calls_were_not_executed_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let (mut agent, tools, _) = home();
    let again = in_room("light_on", "kitchen");
    let mut session = scripted("main", [again.as_str(), &again, &again, "It is on."]);
    session.set_tools(Tools::new(tools).unwrap());
    session.set_messages(vec![Message::user("?")]).unwrap();
    session.record(&path).unwrap();
    session.run(&mut agent, &mut |_| ()).unwrap();

    let mut shell = std::process::Command::new("sh");
    program::at_home(&mut shell, folder.path());
    let script = "\"$0\" run -v --replay \"$1\" 2>&1";
    shell.args(["-c", script]).arg(assert_cmd::cargo::cargo_bin!("callwright")).arg(&path);
    let text = String::from_utf8(shell.output().unwrap().stdout).unwrap();
    let results: Vec<&str> = text.lines().filter(|line| line.starts_with('←')).collect();
    let [first, other] = ["← light_on kitchen is done", "← light_on kitchen is done (not executed again)"];
    assert_eq!(results, [first, other, other], "{text}");
    assert_eq!(text.matches("the model repeated calls that were done").count(), 1, "{text}");
    assert!(text.lines().any(|line| line == "It is on."), "{text}");
}

#[test]
fn a_call_is_the_same_in_another_order_and_in_a_run_that_goes_on() {
    let (mut agent, tools, log) = home();
    let mut session = scripted("main", [in_room("light_on", "hall").as_str(), "It is on."]);
    session.set_tools(Tools::new(tools).unwrap());
    let made = ToolCall {
        id: Some("a".into()),
        name: "light_on".into(),
        arguments: Arguments::from_text(r#"{"room":"hall"}"#),
    };
    let messages = vec![Message::user("?"), Message::calls(vec![made]), Message::tool("a", "light_on", "hall is done")];
    session.set_messages(messages).unwrap();
    assert_eq!(session.run(&mut agent, &mut |_| ()).unwrap().status, Status::Done);
    assert!(log.lock().unwrap().is_empty());
    // The user may ask for it again.
    let (outcome, _, log) = run(&[&in_room("light_on", "hall"), "On."], |_| ());
    assert_eq!((outcome.status, log.len()), (Status::Done, 1));
}

#[test]
fn reading_again_is_allowed_and_so_is_a_tool_that_may_repeat() {
    let state = in_room("state", "hall");
    // The first time the model may have overlooked the result.
    let (outcome, session, log) = run(&[&state, &state, "Dark."], |_| ());
    assert_eq!((outcome.status, log.len()), (Status::Done, 1));
    let roles: Vec<Role> = session.messages().iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant], "the repeated answer does not count");
    let (_, _, log) = run(&[&state, &state, &state, "Dark."], |_| ());
    assert_eq!(log.len(), 2);
    let (mut agent, mut tools, log) = home();
    tools[0].policy.repeat = true;
    let light = in_room("light_on", "hall");
    let mut session = scripted("main", [light.as_str(), light.as_str(), "On."]);
    session.set_tools(Tools::new(tools).unwrap());
    session.ask_and_run("?", &mut agent).unwrap();
    assert_eq!(log.lock().unwrap().len(), 2);
}

#[test]
fn a_tool_that_changes_something_runs_eight_times_and_a_destructive_one_once() {
    let texts: Vec<String> = (0..12).map(|room| in_room("light_on", &room.to_string())).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let (_, session, log) = run(&texts, |_| ());
    assert_eq!(log.len(), 8);
    let refused = "error: light_on was not executed: it was called often enough in this run (at most 8)";
    assert!(session.messages().iter().any(|message| message.content.starts_with(refused)));
    let both = [in_room("wipe", "a"), in_room("wipe", "b")];
    let texts = [both[0].as_str(), both[1].as_str(), "Done."];
    let (_, _, log) = run(&texts, |agent| agent.executor.confirm = Some(Box::new(|_| Approval::Assumed)));
    assert_eq!(log, ["wipe a"]);
    let (_, _, log) = run(&texts, |agent| agent.executor.confirm = Some(Box::new(|_| Approval::Given)));
    assert_eq!(log, ["wipe a", "wipe b"]);
    let (_, _, log) = run(&[&in_room("state", "a"), &in_room("state", "b"), "."], |agent| {
        agent.limits.max_calls_per_run = Some(1);
    });
    assert_eq!(log, ["state a"]);
}

#[test]
fn where_nobody_can_be_asked_the_run_pauses_and_goes_on_later() {
    let both = format!("{}\n{}", in_room("state", "hall"), in_room("wipe", "hall"));
    let (outcome, mut session, log) = run(&[&both, "It is wiped."], |_| ());
    assert_eq!((outcome.status, log.len()), (Status::Pending, 0), "nothing of the answer is executed");
    let pending = &outcome.pending[0];
    assert_eq!((pending.name.as_str(), pending.arguments.as_str()), ("wipe", r#"{"room":"hall"}"#));
    assert_eq!((pending.why.as_str(), pending.hash.len()), ("it is destructive", 12));
    let (mut agent, _, log) = home();
    agent.executor.confirm = Some(Box::new(|question| {
        assert_eq!(
            (question.call.name.as_str(), question.runs, question.why),
            ("wipe", "this program", "it is destructive")
        );
        Approval::Given
    }));
    assert_eq!(session.run(&mut agent, &mut |_| ()).unwrap().status, Status::Done);
    // They run at the same time.
    log.lock().unwrap().sort();
    assert_eq!(*log.lock().unwrap(), ["state hall", "wipe hall"]);
    assert_eq!(session.messages().last().unwrap().content, "It is wiped.");
}

#[test]
fn a_refusal_reaches_the_model_with_its_reason() {
    let (outcome, session, log) = run(&[&in_room("wipe", "hall"), "I did not wipe it."], |agent| {
        agent.executor.confirm = Some(Box::new(|_| Approval::Denied(Some("not today".to_owned()))));
    });
    assert_eq!((outcome.status, log.len()), (Status::Done, 0));
    assert!(session.messages()[2].content.starts_with("error: the user did not allow wipe to run: not today"));
}

#[test]
fn a_call_in_another_form_of_a_tool_that_changes_something_needs_approval() {
    let bare = r#"{"name": "light_on", "arguments": {"room": "hall"}}"#;
    let (outcome, _, log) = run(&[bare, "On."], |_| ());
    assert_eq!((outcome.status, log.len()), (Status::Pending, 0));
    assert_eq!(outcome.pending[0].why, "the model wrote it in another form than its format's");
    // It still does when the run goes on.
    let (mut agent, tools, log) = home();
    let mut session = scripted("main", [bare, "On."]);
    session.set_tools(Tools::new(tools).unwrap());
    assert_eq!(session.ask_and_run("Light!", &mut agent).unwrap().status, Status::Pending);
    assert_eq!(session.run(&mut agent, &mut |_| ()).unwrap().status, Status::Pending);
    assert!(log.lock().unwrap().is_empty());
    let (outcome, _, log) = run(&[bare, "On."], |agent| agent.trust_other_forms = true);
    assert_eq!((outcome.status, log.len()), (Status::Done, 1));
    let reads = bare.replace("light_on", "state");
    let (outcome, _, log) = run(&[&reads, "Dark."], |_| ());
    assert_eq!((outcome.status, log.len()), (Status::Done, 1));
}

#[test]
fn calls_of_a_conversation_that_do_not_fit_are_not_executed() {
    let (mut agent, tools, log) = home();
    let mut session = scripted("main", ["I am sorry."]);
    session.set_tools(Tools::new(tools).unwrap());
    let made = |id: &str, name: &str, arguments: &str| ToolCall {
        id: Some(id.into()),
        name: name.into(),
        arguments: Arguments::from_text(arguments),
    };
    let calls = vec![made("a", "light_on", r#"{"room": 5}"#), made("b", "no_tool", "{}"), made("c", "state", "[")];
    session.set_messages(vec![Message::user("?"), Message::calls(calls)]).unwrap();
    assert_eq!(session.run(&mut agent, &mut |_| ()).unwrap().status, Status::Done);
    assert!(log.lock().unwrap().is_empty());
    for message in &session.messages()[2..5] {
        assert!(message.content.starts_with("error: "), "{message:?}");
    }
}

#[test]
fn effects_come_from_files_annotations_and_code() {
    let tools = Tools::from_value(&json!([
        {"name": "a", "annotations": {"readOnlyHint": true}},
        {"name": "b", "annotations": {"readOnlyHint": false, "destructiveHint": true, "idempotentHint": true}},
        {"name": "c", "annotations": {"readOnlyHint": true}, "x-effect": "destructive"},
        {"name": "d", "annotations": {"destructiveHint": false}, "x-max-calls": 3, "x-repeat": true},
        {"name": "e", "annotations": {"title": "E"}, "x-effect": "harmless"},
    ]))
    .unwrap();
    let of = |tool: &Tool| (tool.policy.effect, tool.policy.source);
    let effects: Vec<_> = tools.iter().map(of).collect();
    use EffectSource::{Annotations, Default, Definition};
    assert_eq!(
        effects,
        [
            (Effect::Read, Annotations),
            (Effect::Destructive, Annotations),
            (Effect::Destructive, Definition),
            (Effect::Write, Annotations),
            (Effect::Write, Default),
        ]
    );
    let (d, notices) = (tools.get("d").unwrap(), tools.notices());
    assert_eq!((d.policy.max_calls, d.policy.repeat, tools.get("b").unwrap().policy.repeat), (Some(3), true, false));
    assert!(notices[0].to_string().contains(r#""harmless" is no effect; write is assumed"#), "{}", notices[0]);
    let read = Tools::from_value(&tools.to_json_with_policies()).unwrap();
    let again: Vec<Effect> = read.iter().map(|tool| tool.policy.effect).collect();
    assert_eq!(again, effects.iter().map(|(effect, _)| *effect).collect::<Vec<_>>());

    let toml = "[[tool]]\nname = \"a\"\neffect = \"read\"\nrepeat = true\nmax_calls = 2";
    let tools = Tools::from_toml(toml, "tools.toml").unwrap();
    let policy = &tools.get("a").unwrap().policy;
    assert_eq!((policy.effect, policy.repeat, policy.max_calls), (Effect::Read, true, Some(2)));
    for (wrong, message) in [
        ("effect = \"harmless\"", r#"tool[0].effect is "harmless"; expected "read", "write" or "destructive""#),
        ("repeat = 1", "tool[0].repeat is 1; expected true or false"),
        ("max_calls = 0", "tool[0].max_calls is 0; expected a positive number of calls"),
    ] {
        let error = Tools::from_toml(&format!("[[tool]]\nname = \"a\"\n{wrong}"), "tools.toml").unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Tools, message));
    }
    assert_eq!(Executor::default().builtin("clock").unwrap().policy.effect, Effect::Read);
}
