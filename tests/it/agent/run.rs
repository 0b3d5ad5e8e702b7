//! Runs with tools, on scripted engines: whatever goes wrong, a run ends within its limits, with
//! a conversation that is valid.

use callwright::agent::exec::Executor;
use callwright::agent::fallback::Limits as Spending;
use callwright::agent::turn::Status;
use callwright::agent::{Agent, Fallbacks};
use callwright::constraint::Mode;
use callwright::engine::ModelInfo;
use callwright::engine::scripted::ScriptedEngine;
use callwright::format::Format;
use callwright::message::{Conversation, Message, Role, check_order, messages_to_json, open_calls};
use callwright::session::{Event, FinishReason, NoteKind, Outcome, Session, ToolChoice};
use callwright::template::ChatTemplate;
use callwright::tool::Effect;
use callwright::{Error, ErrorKind, Tools};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub fn call(name: &str, arguments: &str) -> String {
    format!("### TOOL_CALL_START ###\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n### TOOL_CALL_END ###")
}

pub fn weather(city: &str) -> String {
    call("weather", &format!("{{\"city\": \"{city}\"}}"))
}

/// The rest of a call of `weather` whose beginning is forced.
pub fn forced(city: &str) -> String {
    format!("\", \"arguments\": {{\"city\": \"{city}\"}}}}\n### TOOL_CALL_END ###")
}

pub fn info(name: &str) -> ModelInfo {
    ModelInfo { name: name.into(), context_train: 32_768, ..ModelInfo::default() }
}

pub fn scripted<'a>(name: &str, texts: impl IntoIterator<Item = &'a str>) -> Session {
    let engine = ScriptedEngine::from_texts(info(name), texts);
    let mut session = Session::new(Box::new(engine), None, None).unwrap();
    session.options_mut().constrain = Mode::Off;
    session
}

#[derive(Deserialize, JsonSchema)]
pub struct City {
    pub city: String,
}

/// So many bytes that do not repeat themselves.
pub fn long_text(bytes: usize) -> String {
    let mut text: String = (0..bytes).map(|number| format!("{number} ")).collect();
    text.truncate(bytes);
    text
}

/// A tool `weather` that keeps the cities it was asked for.
pub fn weather_tool(executor: &mut Executor) -> (Tools, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let tool = executor.function("weather", "The weather in a city", move |arguments: City| {
        seen.lock().unwrap().push(arguments.city.clone());
        match arguments.city.as_str() {
            "Atlantis" => Err(format!("there is no city {}", arguments.city)),
            city => Ok(format!("sunny in {city}")),
        }
    });
    (Tools::new([tool.effect(Effect::Read)]).unwrap(), asked)
}

/// An agent with the tool, and a session whose model says `texts`.
pub fn prepared<'a>(texts: impl IntoIterator<Item = &'a str>) -> (Session, Agent, Arc<Mutex<Vec<String>>>) {
    let mut agent = Agent::default();
    agent.limits.regenerate = false;
    let (tools, asked) = weather_tool(&mut agent.executor);
    let mut session = scripted("main", texts);
    session.set_tools(tools);
    (session, agent, asked)
}

/// Fallback models that say these texts, each a model; an empty list cannot be loaded.
pub fn fallbacks(models: &[(&str, &[&str])]) -> Fallbacks {
    let texts: BTreeMap<String, Vec<String>> = models
        .iter()
        .map(|(name, texts)| ((*name).to_owned(), texts.iter().map(ToString::to_string).collect()))
        .collect();
    let names = models.iter().map(|(name, _)| (*name).to_owned()).collect();
    Fallbacks::new(
        names,
        Spending::default(),
        Box::new(move |name| {
            let texts = &texts[name];
            if texts.is_empty() {
                return Err(Error::new(ErrorKind::ModelNotFound, format!("there is no model {name}")));
            }
            Ok((scripted(name, texts.iter().map(String::as_str)), 1 << 20))
        }),
    )
}

/// Asks and runs; every event as JSON.
pub fn run(session: &mut Session, agent: &mut Agent, question: &str) -> (Outcome, Vec<Value>) {
    let mut messages = session.messages().to_vec();
    messages.push(Message::user(question));
    session.set_messages(messages).unwrap();
    let mut events = Vec::new();
    let outcome = session.run(agent, &mut |event: &Event| events.push(serde_json::to_value(event).unwrap())).unwrap();
    assert_valid(session.messages());
    (outcome, events)
}

/// A conversation that another program can read, in which every call has its result.
pub fn assert_valid(messages: &[Message]) {
    check_order(messages).unwrap();
    assert!(open_calls(messages).unwrap().is_empty(), "{messages:?}");
    let read = Conversation::from_value(messages_to_json(messages)).unwrap().messages;
    assert_eq!(read.len(), messages.len());
    check_order(&read).unwrap();
}

/// A field of all events of a type.
pub fn texts_of<'e>(events: &'e [Value], kind: &str, field: &str) -> Vec<&'e str> {
    events.iter().filter(|event| event["type"] == kind).map(|event| event[field].as_str().unwrap()).collect()
}

pub fn kinds(events: &[Value]) -> Vec<String> {
    let said = |event: &Value| !matches!(event["type"].as_str(), Some("text" | "call_arguments" | "usage"));
    events
        .iter()
        .filter(|event| said(event))
        .map(|event| match (event["type"].as_str(), event["step"].as_str().or(event["outcome"].as_str())) {
            (Some(kind), Some(step)) => format!("{kind} {step}"),
            (Some(kind), None) => kind.to_owned(),
            (None, _) => panic!("an event without a type: {event}"),
        })
        .collect()
}

pub fn conversation(messages: &[Message]) -> String {
    let line = |message: &Message| {
        let calls: Vec<String> = message
            .tool_calls
            .iter()
            .map(|call| format!("{} {}({})", call.id.as_deref().unwrap_or("-"), call.name, call.arguments.to_text()))
            .collect();
        let id = message.tool_call_id.as_ref().map_or(String::new(), |id| format!(" {id}"));
        format!("{}{id}: {}{}\n", message.role.as_str(), message.content, calls.join("; "))
    };
    messages.iter().map(line).collect()
}

// The bugs that others had.

/// Tool results pushed as user messages made the model list the tables for ever (rig#450).
#[test]
fn listing_tables_takes_one_call_and_one_answer() {
    let mut agent = Agent::default();
    let tool = agent.executor.function("list_tables", "Lists the tables", |_: Nothing| Ok::<_, String>(["users"]));
    let list = call("list_tables", "{}");
    let mut session = scripted("main", [list.as_str(), "There is one table: users."]);
    session.set_tools(Tools::new([tool]).unwrap());
    let (outcome, events) = run(&mut session, &mut agent, "Which tables are there?");
    assert_eq!(outcome.status, Status::Done);
    assert_eq!(kinds(&events), ["call_start", "call_end", "tool_result", "done"]);
    let roles: Vec<Role> = session.messages().iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant]);
    assert_eq!(session.messages()[2].content, r#"["users"]"#);
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// Calls to one tool could not be told apart (genkit#2241).
#[test]
fn two_cities_stay_apart_though_the_second_ends_first() {
    let mut agent = Agent::default();
    let tool = agent.executor.function("weather", "The weather", |arguments: City| {
        let slow = arguments.city == "New York";
        std::thread::sleep(Duration::from_millis(if slow { 300 } else { 0 }));
        Ok::<_, String>(format!("{} is fine", arguments.city))
    });
    let both = format!("{}\n{}", weather("New York"), weather("San Francisco"));
    let mut session = scripted("main", [both.as_str(), "Fine in both."]);
    session.set_tools(Tools::new([tool]).unwrap());
    let (outcome, events) = run(&mut session, &mut agent, "What's the weather in New York and San Francisco?");
    assert_eq!(outcome.status, Status::Done);
    let results = texts_of(&events, "tool_result", "content");
    assert_eq!(results, ["New York is fine", "San Francisco is fine"]);
    insta::assert_snapshot!(conversation(session.messages()));
}

/// The same failing call was retried for ever (RA.Aid#84).
#[test]
fn three_failures_of_form_are_rescued_by_the_second_fallback_model() {
    let broken = "### TOOL_CALL_START ###\n{\"name\": \"weather\", \"arguments\": 5}\n### TOOL_CALL_END ###";
    let (mut session, mut agent, asked) = prepared([broken, broken, broken, "It is sunny in Oslo."]);
    agent.limits.fallback_attempts = 1;
    agent.fallbacks = Some(fallbacks(&[
        ("first", &["\", \"arguments\": {\"city\": \"Atlantis\"}}\n### TOOL_CALL_END ###"]),
        ("second", &[&forced("Oslo")]),
    ]));
    let (outcome, events) = run(&mut session, &mut agent, "What's the weather in Oslo?");
    assert_eq!(outcome.status, Status::Done, "{events:#?}");
    assert_eq!(*asked.lock().unwrap(), ["Atlantis", "Oslo"]);
    assert_eq!(
        kinds(&events),
        [
            "call_start",
            "call_end",
            "retry reported",
            "call_start",
            "call_end",
            "retry reported",
            "call_start",
            "call_end",
            "fallback asked",
            "fallback called",
            "tool_result",
            "fallback asked",
            "fallback called",
            "tool_result",
            "done"
        ]
    );
    let models: Vec<(&str, usize)> = outcome.models.iter().map(|usage| (usage.model.as_str(), usage.answers)).collect();
    assert_eq!(models, [("main", 4), ("first", 1), ("second", 1)]);
    insta::assert_snapshot!(conversation(session.messages()));
}

// The fault matrix.

/// One way in which things go wrong.
struct Fault {
    name: &'static str,
    /// What the model writes for the bad call.
    bad: String,
    /// How the run ends without and with fallback models.
    status: [Status; 2],
    /// The city that a fallback model asks for; none, and it cannot be loaded.
    other_call: Option<&'static str>,
}

fn faults() -> Vec<Fault> {
    use Status::{Done, ToolFailed};
    let fault = |name, bad: String, status, other_call| Fault { name, bad, status, other_call };
    vec![
        fault("valid", weather("Rome"), [Done, Done], Some("Oslo")),
        fault("broken JSON", call("weather", "[[}"), [ToolFailed, Done], Some("Oslo")),
        fault("missing end marker", weather("Rome").replace("\n### TOOL_CALL_END ###", ""), [Done, Done], Some("Oslo")),
        fault("unknown tool", call("no_such_tool", "{}"), [ToolFailed, Done], Some("Oslo")),
        fault("wrong type", call("weather", "{\"city\": {\"a\": 1}}"), [ToolFailed, Done], Some("Oslo")),
        fault("missing argument", call("weather", "{}"), [ToolFailed, Done], Some("Oslo")),
        fault("cut off", weather(&long_text(3000)), [ToolFailed, Done], Some("Oslo")),
        fault("endless repetition", weather("Again"), [Done, Done], Some("Oslo")),
        fault("tool crashes", weather("Crash"), [ToolFailed, Done], Some("Oslo")),
        fault("tool complains", weather("Atlantis"), [ToolFailed, Done], Some("Oslo")),
        fault("tool hangs", weather("Hang"), [ToolFailed, ToolFailed], Some("Oslo")),
        fault("tool floods", weather("Flood"), [Done, Done], Some("Oslo")),
        fault("tool prints invalid UTF-8", weather("Bytes"), [Done, Done], Some("Oslo")),
        fault("fallback model fails to load", call("weather", "{}"), [ToolFailed, ToolFailed], None),
        fault("fallback model fails too", call("weather", "{}"), [ToolFailed, ToolFailed], Some("Crash")),
    ]
}

/// A tool that does all that a tool must not do, and keeps what it was asked.
fn naughty(log: &Path) -> Tools {
    let script = format!(
        r#"city=$(sed 's/.*"city":"\([^"]*\)".*/\1/'); echo "$city" >> '{}'
        case $city in
            Crash) kill -SEGV $$ ;;
            Atlantis) echo "there is no city $city" >&2; exit 1 ;;
            Hang) sleep 60 ;;
            Flood) head -c 100000000 /dev/zero | tr '\0' x ;;
            Bytes) printf 'a\377b' ;;
            *) echo "sunny in $city" ;;
        esac"#,
        log.display()
    );
    let script = toml::Value::from(script);
    let text = format!(
        "[[tool]]\nname = \"weather\"\neffect = \"read\"\ndescription = \"The weather\"\ncommand = [\"sh\", \"-c\", {script}]\n\
         timeout_s = 2\nmax_output_bytes = 500\n[tool.parameters]\ntype = \"object\"\nrequired = [\"city\"]\n\
         properties = {{ city = {{ type = \"string\" }} }}\n"
    );
    Tools::from_toml(&text, "naughty.toml").unwrap()
}

#[test]
fn every_fault_ends_well() {
    // At the same time: those that hang take seconds.
    let report: String = std::thread::scope(|scope| {
        let cells = |fault: Fault| {
            let each = [(false, false), (false, true), (true, false), (true, true)];
            each.map(|(parallel, with_fallback)| cell(&fault, parallel, with_fallback)).concat()
        };
        let running: Vec<_> = faults().into_iter().map(|fault| scope.spawn(move || cells(fault))).collect();
        running.into_iter().map(|cells| cells.join().unwrap()).collect()
    });
    insta::assert_snapshot!("fault_matrix", report);
}

fn cell(fault: &Fault, parallel: bool, with_fallback: bool) -> String {
    let what = format!(
        "{}, {}, fallback {}",
        fault.name,
        if parallel { "three calls" } else { "one call" },
        if with_fallback { "on" } else { "off" }
    );
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("asked");
    let first = match parallel {
        true => format!("{}\n{}\n{}", weather("Paris"), weather("Lima"), fault.bad),
        false => fault.bad.clone(),
    };
    let repeats = fault.name == "endless repetition";
    let mut texts = vec![first.as_str(); if repeats && parallel { 6 } else { 1 }];
    let good = fault.status[0] == Status::Done;
    if !good {
        texts.extend([fault.bad.as_str(); 2]);
    }
    if repeats {
        texts.extend([fault.bad.as_str(); 3]);
    }
    texts.extend(["That is all."; 2]);
    let mut session = scripted("main", texts);
    session.set_tools(naughty(&log));
    session.options_mut().max_tokens = 1000;
    let mut agent = Agent::default();
    agent.limits.regenerate = false;
    agent.limits.fallback_attempts = 1;
    agent.limits.max_turns = 8;
    agent.failure_log = Some(folder.path().join("failures"));
    let other_call = match (fault.other_call, fault.name) {
        (None, _) => String::new(),
        (Some(city), "unknown tool") => format!("\n{{\"name\": \"weather{}", forced(city)),
        (Some(city), _) => forced(city),
    };
    let helper: &[&str] = if other_call.is_empty() { &[] } else { &[&other_call] };
    agent.fallbacks = with_fallback.then(|| fallbacks(&[("helper", helper)]));
    let (outcome, events) = run(&mut session, &mut agent, "What's the weather?");
    assert_eq!(outcome.status, fault.status[usize::from(with_fallback)], "{what}: {events:#?}");

    let messages = session.messages();
    let answers = messages.iter().filter(|message| message.role == Role::Assistant).count();
    assert!(answers <= 9, "{what}: {answers} answers");
    // Every call that the model began is in the conversation, with a result, or was reported as dropped.
    let ids = |of: &dyn Fn(&Value) -> bool| -> Vec<&str> {
        events.iter().filter(|event| of(event)).map(|event| event["id"].as_str().unwrap()).collect()
    };
    let dropped = ids(&|event| event["step"] == "dropped");
    let mut begun = ids(&|event| event["type"] == "call_start");
    // Nor does a call count that is written where the model has to answer in words.
    let in_words = events.iter().skip_while(|event| event["reason"] != "already_done");
    let refused: Vec<&str> =
        in_words.filter(|event| event["valid"] == false).filter_map(|event| event["id"].as_str()).collect();
    begun.retain(|id| !dropped.contains(id) && !refused.contains(id));
    let kept: Vec<&str> =
        messages.iter().flat_map(|message| &message.tool_calls).map(|call| call.id.as_deref().unwrap()).collect();
    assert_eq!(begun, kept, "{what}");
    // None is executed twice: a call that goes to another model is executed once more, as that model wrote it.
    let asked = std::fs::read_to_string(&log).unwrap_or_default();
    let results = events.iter().filter(|event| event["type"] == "tool_result").count();
    assert_eq!(asked.lines().count(), results, "{what}: {asked}");
    for city in ["Paris", "Lima", "Oslo"] {
        let times = asked.lines().filter(|line| *line == city).count();
        assert!(times <= 1 || repeats, "{what}: {city} was asked for {times} times");
    }
    assert!(!asked.contains("xxx"), "{what}: a call that was cut off was executed");
    let logged = std::fs::read_dir(folder.path().join("failures")).map_or(0, Iterator::count);
    assert_eq!(logged, usize::from(outcome.status == Status::ToolFailed), "{what}");
    let name = serde_json::to_value(outcome.status).unwrap();
    let mut asked: Vec<&str> = asked.lines().collect();
    // Tools run at the same time.
    asked.sort_unstable();
    format!("{what}: {}, {answers} answers, asked for {}\n", name.as_str().unwrap(), asked.join(" "))
}

// What else a run promises.

#[test]
fn the_results_of_failures_say_what_is_expected() {
    let bad = [
        call("weather", "{\"town\": \"Rome\"}"),
        call("wether", "{\"city\": \"Rome\"}"),
        "### TOOL_CALL_START ###\n{\"arguments\": {}}\n### TOOL_CALL_END ###".to_owned(),
        call("weather", "[[}"),
        weather("Atlantis"),
    ]
    .join("\n");
    let (mut session, mut agent, _) = prepared([bad.as_str(), "I do not know."]);
    let (outcome, events) = run(&mut session, &mut agent, "?");
    assert_eq!(outcome.status, Status::Done);
    insta::assert_snapshot!(conversation(session.messages()));
    let reported = events.iter().filter(|event| event["step"] == "reported");
    let faults: Vec<&str> = reported.map(|event| event["fault"].as_str().unwrap()).collect();
    assert_eq!(faults, ["schema", "unknown_tool", "format", "format", "execution"]);
}

#[test]
fn one_call_is_generated_alone_under_the_grammar() {
    let bad = call("weather", "{}");
    let texts = [bad.as_str(), bad.as_str(), bad.as_str(), &forced("Rome"), "Sunny."];
    let (mut session, mut agent, asked) = prepared(texts);
    agent.limits.regenerate = true;
    let (outcome, events) = run(&mut session, &mut agent, "What's the weather in Rome?");
    assert_eq!(outcome.status, Status::Done, "{events:#?}");
    assert_eq!(*asked.lock().unwrap(), ["Rome"]);
    assert_eq!(events.iter().filter(|event| event["type"] == "usage").count(), 5);
    let step = events.iter().find(|event| event["step"] == "regenerated").unwrap();
    assert_eq!(step["arguments"], r#"{"city":"Rome"}"#);
    let last_call = &session.messages()[session.messages().len() - 3];
    assert_eq!(last_call.tool_calls[0].arguments.to_text(), r#"{"city":"Rome"}"#, "the call that was executed stays");
}

#[test]
fn what_nothing_helped_returns_the_original_error_and_keeps_all_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let bad = call("weather", "{\"city\": 5}").replace('5', "[5]");
    let (mut session, mut agent, _) = prepared([bad.as_str(), bad.as_str(), bad.as_str(), "I cannot tell."]);
    agent.failure_log = Some(folder.path().to_owned());
    agent.limits.fallback_attempts = 1;
    agent.fallbacks = Some(fallbacks(&[("helper", &[&forced("Atlantis")])]));
    let (outcome, events) = run(&mut session, &mut agent, "What's the weather in Atlantis?");
    assert_eq!(outcome.status, Status::ToolFailed);
    let error = outcome.failure.clone().unwrap();
    assert!(error.contains("\"city\" is [5]; expected a string"), "{error}");
    let result = session.messages().iter().rfind(|message| message.role == Role::Tool).unwrap();
    assert_eq!(result.content, format!("error: {error}"), "the error is that of the model's own call");
    assert_eq!(events.last().unwrap()["status"], "tool_failed");
    assert_eq!(outcome.ok().unwrap_err().message(), error);

    let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let log: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let attempts: Vec<_> =
        log["attempts"].as_array().unwrap().iter().map(|a| (&a["model"], &a["step"], &a["fault"])).collect();
    let of = |model: &str, step: &str, fault: &str| (json!(model), json!(step), json!(fault));
    let wanted = [
        of("main", "answer", "schema"),
        of("main", "answer", "schema"),
        of("main", "answer", "schema"),
        of("helper", "fallback", "execution"),
    ];
    assert_eq!(attempts, wanted.iter().map(|(a, b, c)| (a, b, c)).collect::<Vec<_>>());
    assert!(log["attempts"][0]["written"].as_str().unwrap().contains("[5]"));
    assert_eq!(log["attempts"][0]["messages"][0]["role"], "user");
}

#[test]
fn fallback_models_stay_loaded_within_their_memory_and_are_learned_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/fallbacks.json");
    let bad = call("weather", "{}");
    let loads = Arc::new(Mutex::new(Vec::new()));
    let rescued = |learned: bool| {
        let (mut session, mut agent, _) = prepared([bad.as_str(), "Sunny.", bad.as_str(), "Sunny again."]);
        agent.limits.max_tool_failures = 1;
        agent.limits.fallback_attempts = 1;
        let loading = Arc::clone(&loads);
        let models = vec!["bad".to_owned(), "good".to_owned()];
        let limits = Spending { memory: 100, ..Default::default() };
        let open = Box::new(move |name: &str| {
            loading.lock().unwrap().push(name.to_owned());
            let city = if name == "good" { "Rome" } else { "Atlantis" };
            let texts = vec![forced(city); 4];
            Ok((scripted(name, texts.iter().map(String::as_str)), 60))
        });
        let fallbacks = Fallbacks::new(models, limits, open);
        agent.fallbacks = Some(if learned { fallbacks.learning(&path).unwrap() } else { fallbacks });
        for _ in 0..2 {
            assert_eq!(run(&mut session, &mut agent, "?").0.status, Status::Done);
        }
        let loaded = agent.fallbacks.unwrap().loaded();
        (std::mem::take(&mut *loads.lock().unwrap()), loaded)
    };
    let as_given = vec!["bad".to_owned(), "good".to_owned(), "bad".to_owned(), "good".to_owned()];
    assert_eq!(rescued(false), (as_given, vec!["good".to_owned()]), "two do not fit at a time");
    // What helped is asked first from then on, and is still loaded.
    let (loads, _) = rescued(true);
    assert_eq!(loads, ["bad", "good"]);
    let rates: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((&rates["good"]["weather"]["good"], &rates["bad"]["weather"]["all"]), (&2.into(), &1.into()));
    std::fs::write(&path, "{").unwrap();
    let fallbacks = Fallbacks::new(Vec::new(), Spending::default(), Box::new(|_| unreachable!("none is loaded")));
    let error = fallbacks.learning(&path).err().unwrap().to_string();
    assert!(error.contains("not the success rates of fallback models"), "{error}");
}

#[test]
fn an_interruption_leaves_a_conversation_to_go_on_with() {
    // While a tool runs.
    let mut agent = Agent::default();
    let (begin, begun) = std::sync::mpsc::channel();
    // The tool does not end before the test does.
    let test_runs = Arc::new(Mutex::new(()));
    let until_the_end = Arc::clone(&test_runs);
    let _running = test_runs.lock().unwrap();
    let tool = agent.executor.function("weather", "The weather", move |_: City| {
        begin.send(()).unwrap();
        drop(until_the_end.lock());
        Ok::<_, String>("late")
    });
    let both = format!("{}\n{}", weather("Rome"), call("weather", "{}"));
    let mut session = scripted("main", [both.as_str(), "Good day."]);
    session.set_tools(Tools::new([tool]).unwrap());
    let cancel = Arc::clone(&session.options().cancel);
    let flag = Arc::clone(&cancel);
    let waker = std::thread::spawn(move || {
        begun.recv().unwrap();
        flag.store(true, Ordering::Relaxed);
    });
    let (outcome, _) = run(&mut session, &mut agent, "What's the weather in Rome?");
    waker.join().unwrap();
    assert_eq!(outcome.status, Status::Cancelled);
    insta::assert_snapshot!(conversation(session.messages()));
    cancel.store(false, Ordering::Relaxed);
    assert_eq!(run(&mut session, &mut agent, "Hello?").0.status, Status::Done);

    // While the model writes a call.
    let (mut session, mut agent, asked) = prepared([weather("Rome").as_str(), "Good day."]);
    let cancel = Arc::clone(&session.options().cancel);
    session.set_messages(vec![Message::user("?")]).unwrap();
    let outcome = session
        .run(&mut agent, &mut |event| {
            if matches!(event, Event::Parsed(callwright::parse::event::Event::CallArguments { .. })) {
                cancel.store(true, Ordering::Relaxed);
            }
        })
        .unwrap();
    assert_eq!(outcome.status, Status::Cancelled);
    assert_valid(session.messages());
    assert!(asked.lock().unwrap().is_empty(), "half a call was executed");
    cancel.store(false, Ordering::Relaxed);
    assert_eq!(run(&mut session, &mut agent, "Hello?").0.status, Status::Done);
}

#[test]
fn a_call_is_required_once() {
    let begun = |call: String| format!("\n{}", call.split_once('\n').unwrap().1);
    // One that cannot be executed is none.
    let texts = [begun(call("weather", "{}")), begun(weather("Rome")), "Sunny.".to_owned()];
    let (mut session, mut agent, asked) = prepared(texts.iter().map(String::as_str));
    session.options_mut().tool_choice = ToolChoice::Required;
    let (outcome, _) = run(&mut session, &mut agent, "?");
    assert_eq!((outcome.status, asked.lock().unwrap().len()), (Status::Done, 1));
}

#[test]
fn an_answer_has_only_so_many_calls() {
    let many = (0..40).map(|city| weather(&format!("City {city}"))).collect::<Vec<_>>().join("\n");
    let (mut session, mut agent, asked) = prepared([many.as_str(), "Enough."]);
    agent.limits.max_calls = 2;
    let (outcome, _) = run(&mut session, &mut agent, "?");
    assert_eq!((outcome.status, asked.lock().unwrap().len()), (Status::Done, 2));
    assert!(outcome.notes.iter().any(|note| note.message == "the answer was ended after 2 calls"), "{outcome:?}");
}

/// Where only the next call shows that the last one has ended, that is not a call that failed.
#[test]
fn no_call_begins_after_the_last_allowed_one() {
    let open = |city: &str| weather(city).replace("\n### TOOL_CALL_END ###", "\n");
    let object = |city: &str| weather(city).lines().nth(1).unwrap().to_owned();
    let between = format!("### TOOL_CALL_START ###\n{}\n{}\n### TOOL_CALL_END ###", object("Rome"), object("Oslo"));
    for answer in [open("Rome") + &weather("Oslo"), between] {
        let (mut session, mut agent, asked) = prepared([answer.as_str(), "Sunny."]);
        agent.limits.max_calls = 1;
        let (outcome, events) = run(&mut session, &mut agent, "?");
        assert_eq!((outcome.status, asked.lock().unwrap().as_slice()), (Status::Done, &["Rome".to_owned()][..]));
        assert_eq!(texts_of(&events, "call_start", "name"), ["weather"], "{events:?}");
        assert!(!kinds(&events).contains(&"retry".to_owned()), "{events:?}");
        assert!(!outcome.notes.iter().any(|note| note.kind == NoteKind::Problem), "{:?}", outcome.notes);
    }
}

/// A model calls tools that its prompt does not name.
#[test]
fn a_call_that_is_not_allowed_is_reported_once_and_never_executed() {
    for second in [weather("Rome"), "It is sunny.".to_owned()] {
        let (mut session, mut agent, asked) = prepared([weather("Rome").as_str(), second.as_str(), "I cannot."]);
        session.options_mut().tool_choice = ToolChoice::None;
        let (outcome, events) = run(&mut session, &mut agent, "?");
        let status = if second.starts_with('#') { Status::ToolFailed } else { Status::Done };
        assert_eq!((outcome.status, asked.lock().unwrap().len()), (status, 0));
        let reported = session.messages().iter().find(|message| message.role == Role::Tool).unwrap();
        assert!(
            reported.content.starts_with("error: weather was not executed: no tool may be called here"),
            "{}",
            reported.content
        );
        assert!(events.iter().any(|event| event["type"] == "call_end" && event["valid"] == false), "{events:?}");
    }
}

#[test]
fn an_answer_cut_off_after_a_quoted_marker_has_no_complete_call() {
    let answer =
        "### TOOL_CALL_START ###\n{\"name\": \"weather\", \"arguments\": {\"city\": \"see ### TOOL_CALL_END ###";
    let engine = || ScriptedEngine::from_texts(info("main"), [answer]);
    let ask = |most: usize| {
        let mut session = Session::new(Box::new(engine()), None, None).unwrap();
        session.options_mut().constrain = Mode::Off;
        session.options_mut().max_tokens = most;
        session.set_tools(weather_tool(&mut Executor::default()).0);
        session.ask("?").unwrap()
    };
    // The model ended its turn there: only the quote is missing.
    let whole = ask(4096);
    assert!(whole.calls[0].complete, "{whole:?}");
    let cut = ask(whole.tokens.len());
    assert_eq!((cut.raw.len(), cut.calls[0].complete), (whole.raw.len(), false), "{cut:?}");
}

#[test]
fn tools_that_the_prompt_does_not_show_are_reported() {
    let notices = |template: &str, format: Option<&str>, tools: bool| {
        let format = format.map(|source| Format::parse_declaration(source).unwrap().unwrap());
        let template = ChatTemplate::new("own.jinja", template).unwrap();
        let engine = ScriptedEngine::from_texts(info("main"), ["?"]);
        let mut session = Session::new(Box::new(engine), Some(template), format).unwrap();
        if tools {
            session.set_tools(weather_tool(&mut Executor::default()).0);
        }
        session.notices().join("\n")
    };
    let plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let bare = "{#--- callwright\n[format]\nname = 'mine'\nstart = '<c>'\nend = '</c>'\nliteral = true\npayload = 'json'\n---#}";
    let section = format!("{bare}{{{{ tools | tojson }}}}");
    insta::assert_snapshot!(
        notices(plain, Some(bare), true),
        @"mine.jinja: the prompt does not have the tools: the section that writes them, below the declaration, has none"
    );
    assert_eq!(notices(plain, Some(&section), true), "");
    assert_eq!(notices(plain, None, false), "");
    insta::assert_snapshot!(notices("hi there", None, false), @"own.jinja: it leaves out what the user says");
}

#[test]
fn an_empty_answer_is_reported() {
    let (mut session, mut agent, _) = prepared(["", weather("Rome").as_str(), ""]);
    let (outcome, _) = run(&mut session, &mut agent, "?");
    assert_eq!(outcome.status, Status::Done);
    assert!(outcome.notes.iter().any(|note| note.message == "the model's answer is empty"), "{outcome:?}");
    // After calls their results are the answer.
    let (outcome, events) = run(&mut session, &mut agent, "?");
    assert_eq!(session.messages().last().unwrap().content, r#"weather {"city":"Rome"}: sunny in Rome"#);
    assert_eq!(*texts_of(&events, "text", "delta").last().unwrap(), r#"weather {"city":"Rome"}: sunny in Rome"#);
    let note = "the model's answer is empty; the results of its calls take its place";
    assert!(outcome.notes.iter().any(|other| other.message == note), "{outcome:?}");
}

#[test]
fn ids_that_a_template_does_not_take_are_others_in_the_prompt_alone() {
    let source = "{#--- callwright\n[format]\nname = 'nine'\nstart = '[CALL]'\nend = ''\nliteral = true\npayload = 'json'\n---#}\
                  {%- for m in messages -%}{%- for c in m.tool_calls or [] -%}\
                  {%- if c.id is not defined or c.id|length != 9 -%}\
                  {{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}\
                  {%- endif -%}[CALL]{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments|tojson }}}\
                  {%- endfor -%}{{ m.role }} {{ m.content }} {{ m.tool_call_id }}{%- endfor -%}{{ tools|tojson if tools }}";
    let template = ChatTemplate::new("nine.jinja", source).unwrap();
    let engine = ScriptedEngine::from_texts(info("main"), ["Noon."]);
    let mut session = Session::new(Box::new(engine), Some(template), None).unwrap();
    let history = r#"[{"role": "user", "content": "?"},
        {"role": "assistant", "tool_calls": [{"id": "call_4f1b2c3d4e5f", "type": "function",
          "function": {"name": "clock", "arguments": "{}"}},
          {"id": "call00001", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_4f1b2c3d4e5f", "content": "12:00"},
        {"role": "tool", "tool_call_id": "call00001", "content": "12:01"}]"#;
    session.set_messages(Conversation::from_json(history, "history.json").unwrap().messages).unwrap();
    let prompt = session.prompt().unwrap().0.text();
    assert!(prompt.contains("12:00 call00002") && prompt.contains("12:01 call00001"), "{prompt}");
    assert_eq!(session.messages()[1].tool_calls[0].id.as_deref(), Some("call_4f1b2c3d4e5f"));
}

#[test]
fn the_same_call_several_times_in_one_answer_runs_once() {
    let again = "\n### TOOL_CALL_START ###\n{\"name\": \"weather\", \"arguments\": { \"city\": \"Oslo\" }}\n### TOOL_CALL_END ###";
    let answer = format!("{}\n{}\n{}{again}", weather("Oslo"), weather("Rome"), weather("Oslo"));
    let mut session = scripted("main", [answer.as_str(), "Rain in both."]);
    session.options_mut().loop_guard = false;
    let mut agent = Agent::default();
    let (tools, asked) = weather_tool(&mut agent.executor);
    session.set_tools(tools);
    let (outcome, events) = run(&mut session, &mut agent, "Weather?");
    assert_eq!(outcome.status, Status::Done, "{events:#?}");
    let mut cities = asked.lock().unwrap().clone();
    cities.sort();
    assert_eq!(cities, ["Oslo", "Rome"]);
    let results: Vec<&Message> = session.messages().iter().filter(|message| message.role == Role::Tool).collect();
    assert_eq!(results.len(), 4);
    assert!(results[2].content == results[0].content && results[3].content == results[0].content, "{results:?}");
    let same: Vec<&Value> = events.iter().filter(|e| e["type"] == "tool_result").map(|e| &e["same_as"]).collect();
    assert_eq!(same, [&Value::Null, &Value::Null, &"call00001".into(), &"call00001".into()]);
    let notes: Vec<&str> =
        outcome.notes.iter().filter(|note| note.kind == NoteKind::Repeated).map(|note| note.message.as_str()).collect();
    let said = "call00003 weather: the same call as call00001, which ran once for both";
    assert!(notes.len() == 2 && notes[0] == said, "{notes:?}");
}

#[test]
fn an_answer_that_goes_on_with_the_same_call_is_ended() {
    let answer = (0..30).map(|_| weather("Oslo")).collect::<Vec<_>>().join("\n");
    let mut session = scripted("main", [answer.as_str()]);
    session.options_mut().loop_guard = false;
    session.options_mut().max_tokens = 100_000;
    session.set_tools(weather_tool(&mut Executor::default()).0);
    let reply = session.ask("Weather?").unwrap();
    assert_eq!((reply.calls.len(), reply.finish_reason), (16, FinishReason::ToolCalls));
    let said = "the answer was ended after 16 times the same call, weather {\"city\": \"Oslo\"} (`Options::max_calls` sets another limit)";
    assert!(reply.notes.iter().any(|note| note.message == said), "{:?}", reply.notes);
    // Other calls are no repetition.
    let answer = (0..30).map(|city| weather(&format!("City {city}"))).collect::<Vec<_>>().join("\n");
    let mut session = scripted("main", [answer.as_str()]);
    session.options_mut().max_tokens = 100_000;
    session.set_tools(weather_tool(&mut Executor::default()).0);
    assert_eq!(session.ask("Weather?").unwrap().calls.len(), 30);
}
