//! Cases of several turns: the leaderboard's, and those in declared worlds.

use super::fake::configuration;
use crate::ask::SessionAnswers;
use crate::directory::{NOW, Plan, RunDirectory};
use crate::outcome::Outcome;
use crate::replay::replay;
use crate::report::html;
use crate::run::{Answerer, run};
use crate::sample::Turn;
use crate::suite::{Case, EXAMPLE_TURNS, Suite};
use crate::summary::Summary;
use crate::task::{Ground, Task};
use callwright::engine::ModelInfo;
use callwright::engine::scripted::ScriptedEngine;
use callwright::session::Session;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// A turn that ended well.
fn ended() -> Turn {
    Turn {
        messages: json!([{"role": "assistant", "content": "It is done."}]),
        status: "done".to_owned(),
        answers: 1,
        tokens: 0,
        executed: Vec::new(),
    }
}

/// Executes the calls of each turn, and returns the verdict: its error type and its turn.
fn verdict(task: &Task, turns: &Value) -> (String, Option<usize>, String) {
    let mut environment = task.begin().unwrap();
    let mut done = Vec::new();
    for turn in turns.as_array().unwrap() {
        environment.begin_turn();
        for call in turn.as_array().unwrap() {
            let arguments: Map<String, Value> = call["arguments"].as_object().unwrap().clone();
            let _ = environment.call(call["name"].as_str().unwrap(), &arguments);
        }
        done.push(ended());
    }
    let verdict = environment.verdict(&done).unwrap();
    (verdict.bfcl.unwrap_or_else(|| verdict.outcome.to_string()), verdict.turn, verdict.detail)
}

fn package() -> PathBuf {
    let folder = std::env::var_os("CALLWRIGHT_BFCL_EVAL").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bfcl"));
    assert!(folder.join("bfcl_eval").is_dir(), "no bfcl_eval in {}: make bfcl fetches it", folder.display());
    folder
}

const CATEGORIES: &str = "multi_turn_base,multi_turn_miss_func,multi_turn_miss_param,multi_turn_long_context";

/// All 800 gold paths, and 800 with one call dropped, doubled, moved or changed.
#[test]
#[ignore = "needs the package bfcl-eval: make bfcl, then cargo test -- --ignored leaderboard_turns"]
fn leaderboard_turns_have_the_verdicts_of_its_own_checker() {
    let folder = package();
    let suite = Suite::open(&format!("bfcl:{}:{CATEGORIES}", folder.display())).unwrap();
    assert_eq!(suite.cases.len(), 800);
    let cases: HashMap<&str, &Case> = suite.cases.iter().map(|case| (case.id.as_str(), case)).collect();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/bfcl_turns.py");
    let ran = Command::new("python3").arg(script).arg(&folder).arg("1").output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let runs: Vec<Value> =
        String::from_utf8(ran.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let differs = |run: &Value| {
        let case = cases[run["id"].as_str().unwrap()];
        let (kind, turn, detail) = verdict(case.task.as_ref().unwrap(), &run["turns"]);
        let placed = turn.is_some() && !detail.is_empty();
        (kind != run["error_type"] || placed == kind.is_empty())
            .then(|| format!("{} {}: {kind:?} {turn:?} {detail}", run["id"], run))
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let parts = runs
            .chunks(runs.len().div_ceil(2))
            .map(|part| scope.spawn(|| part.iter().filter_map(differs).collect::<Vec<_>>()));
        parts.collect::<Vec<_>>().into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    println!("{} of {} verdicts are those of the leaderboard's checker", runs.len() - wrong.len(), runs.len());
    assert!(runs.len() == 1600 && wrong.is_empty(), "{}", wrong.join("\n"));
}

const WORLD: &str = r#"{"state": {"doors": {"front": "locked", "back": "open"}, "log": []}, "tool": [
    {"name": "look", "effect": "read", "result": "{{ state.doors | tojson }}"},
    {"name": "lock", "effect": "write", "parameters": {"type": "object", "properties": {"door": {"type": "string"}}, "required": ["door"]},
     "error": "{% if door not in state.doors %}no door {{ door }}{% endif %}", "set": {"/doors/{{ door }}": "locked", "/log/-": {"door": "{{ door }}"}}},
    {"name": "remove", "effect": "destructive", "parameters": {"type": "object", "properties": {"door": {"type": "string"}}, "required": ["door"]},
     "remove": ["/doors/{{ door }}"], "result": "left: {{ state.doors | join(', ') }}"}]}"#;

/// A suite of one case in that world.
fn one(rest: &str) -> callwright::Result<Suite> {
    let line = format!(r#"{{"id": "one", "world": {}, {rest}}}"#, WORLD.replace('\n', ""));
    Suite::from_text("one", &line, Path::new("suite.jsonl"))
}

fn call(name: &str, door: &str) -> Value {
    json!({"name": name, "arguments": if door.is_empty() { json!({}) } else { json!({"door": door}) }})
}

#[test]
fn a_task_is_judged_by_its_calls_its_state_and_its_text() {
    let lock = || call("lock", "back");
    let both = r#""changes": [{"name": "lock", "arguments": {"door": "back"}}], "state": {"/doors/back": "locked", "/log": [{"door": "back"}]}"#;
    let table: Vec<(&str, Value, &str)> = vec![
        (both, json!([[call("look", ""), lock()]]), ""),
        (both, json!([[]]), "missing_call turn - lock(door: \"back\") was not executed; none was executed"),
        // A call that fails was not executed.
        (
            both,
            json!([[call("lock", "side")]]),
            "missing_call turn - lock(door: \"back\") was not executed; none was executed",
        ),
        (both, json!([[lock(), lock()]]), "repeated_change turn 0 lock(door: \"back\") was executed twice"),
        (
            both,
            json!([[lock(), call("lock", "front")]]),
            "forbidden_call turn - lock(door: \"front\") was executed, which changes something else",
        ),
        (
            r#""state": {"/doors/back": "locked"}"#,
            json!([[lock()]]),
            "wrong_state turn - /log is [{\"door\":\"back\"}]; expected []",
        ),
        (r#""state": {}"#, json!([[call("look", "")]]), ""),
        (r#""state": {"/doors/back": null}, "approve": ["remove"]"#, json!([[call("remove", "back")]]), ""),
        (
            r#""state": {"/doors/back": null}"#,
            json!([[call("remove", "back")]]),
            "unapproved_call turn 0 remove(door: \"back\") was executed, and nobody approved it",
        ),
        (
            r#""never": ["look"]"#,
            json!([[call("look", "")]]),
            "forbidden_call turn - look() was executed, and must not be",
        ),
        (r#""tried": ["remove"]"#, json!([[call("look", "")]]), "missing_call turn - remove() was not tried"),
        (
            r#""calls": ["look", "lock"]"#,
            json!([[lock(), call("look", "")]]),
            "missing_call turn - lock() was not executed in its order; executed were lock(door: \"back\"), look()",
        ),
        (r#""text": ["Locked"]"#, json!([[]]), "wrong_text turn 0 the answer lacks \"Locked\": \"It is done.\""),
        (
            r#""text": ["DONE"], "no_text": ["it is"]"#,
            json!([[]]),
            "wrong_text turn 0 the answer has \"it is\": \"It is done.\"",
        ),
    ];
    for (checks, turns, expected) in table {
        let suite = one(&format!(r#""turns": ["Do it."], {checks}"#)).unwrap();
        let (outcome, turn, detail) = verdict(suite.cases[0].task.as_ref().unwrap(), &turns);
        let turn = turn.map_or("-".to_owned(), |turn| turn.to_string());
        let found = if outcome == "correct" { detail } else { format!("{outcome} turn {turn} {detail}") };
        assert_eq!(found, expected, "{checks} {turns}");
    }
}

#[test]
fn the_first_turn_that_goes_wrong_is_the_reason() {
    let turns = r#""turns": [{"user": "Which one?", "state": {}}, {"user": "The back one.", "changes": [{"name": "lock", "arguments": {"door": "back"}}]}], "state": {"/doors/back": "locked", "/log/-": {"door": "back"}}"#;
    let suite = one(turns).unwrap();
    let task = suite.cases[0].task.as_ref().unwrap();
    assert_eq!(verdict(task, &json!([[], [call("lock", "back")]])), ("correct".to_owned(), None, String::new()));
    let (outcome, turn, detail) = verdict(task, &json!([[call("lock", "back")], []]));
    assert_eq!((outcome.as_str(), turn), ("wrong_state", Some(0)), "{detail}");
    // How a turn ends counts too, but what was done is done.
    let mut environment = task.begin().unwrap();
    environment.begin_turn();
    environment.begin_turn();
    environment.call("lock", call("lock", "back")["arguments"].as_object().unwrap()).unwrap();
    let looped = Turn { status: "loop".to_owned(), ..ended() };
    let judged = environment.verdict(&[ended(), looped]).unwrap();
    assert_eq!((judged.outcome, judged.turn, judged.made), (Outcome::Loop, Some(1), Some(true)));
}

#[test]
fn faults_of_a_task_are_reported_with_their_line() {
    let known = r#""turns": ["Do it."]"#;
    for (line, message) in [
        (r#""turns": [], "state": {}"#.to_owned(), r#""turns" is no list of what the user says"#),
        (known.to_owned(), "the case checks nothing"),
        (format!(r#"{known}, "stat": {{}}"#), r#"the case has the unknown key "stat""#),
        (format!(r#"{known}, "never": ["lok"]"#), r#""lok" is none of the world's tools"#),
        (
            format!(r#"{known}, "never": [{{"name": "lock", "arguments": {{"dor": 1}}}}]"#),
            r#"lock has no parameter "dor""#,
        ),
        (
            format!(r#"{known}, "calls": [["lock"]]"#),
            r#""calls": ["lock"] is no call: write a tool's name, or {"name": …, "arguments": {…}}"#,
        ),
        (r#""turns": [{"state": {}}]"#.to_owned(), r#"turn 1: "user" is missing, or no string"#),
        (
            format!(r#"{known}, "changes": [{{"name": "lock", "arguments": {{"door": "side"}}}}]"#),
            "the wanted change lock(door: \"side\") cannot be made: no door side",
        ),
        (
            format!(r#"{known}, "changes": [{{"name": "lock", "arguments": {{"door": "back"}}}}], "state": {{}}"#),
            "the wanted changes do not lead to the state: /doors/back is \"locked\"; expected \"open\"; /log is [{\"door\":\"back\"}]; expected []",
        ),
    ] {
        let error = one(&line).unwrap_err();
        assert_eq!(error.message(), message);
        assert_eq!(error.location().and_then(|place| place.line), Some(1), "{message}");
    }
    for (world, message) in [
        (r#"{"tool": [{"name": "a", "effect": "reed"}]}"#, r#"the effect of a is "reed""#),
        (r#"{"tool": [{"name": "a", "effect": "read", "set": {"x": 1}}]}"#, r#"a: "x" is no JSON pointer"#),
        (r#"{"tool": [{"name": "a", "effect": "read", "result": "{{"}]}"#, "a: \"{{\" is no template"),
        (r#"{"tool": [{"name": "a", "effect": "read", "sets": {}}]}"#, "not a world: unknown field `sets`"),
        (r#""nowhere.toml""#, "cannot read nowhere.toml"),
    ] {
        let line = format!(r#"{{"world": {world}, {known}, "state": {{}}}}"#);
        let error = Suite::from_text("one", &line, Path::new("suite.jsonl")).unwrap_err();
        assert!(error.message().starts_with(message), "{error}");
    }
    let more = one(&format!(r#"{known}, "state": {{}}"#)).unwrap().with_more_tools(2).unwrap_err();
    assert!(more.message().contains("has several turns"), "{more}");
}

/// Each case of the built-in suite, of the example and of benches/tasks can be solved by what it names.
#[test]
fn what_a_task_names_solves_it() {
    let folder = tempfile::tempdir().unwrap();
    let [example, world] = EXAMPLE_TURNS;
    std::fs::write(folder.path().join("cases.toml"), world).unwrap();
    std::fs::write(folder.path().join("cases.jsonl"), example.replace("WORLD", "cases.toml")).unwrap();
    let tasks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/tasks/tasks.jsonl");
    for (spec, count) in [
        ("builtin-multi-turn".to_owned(), 60),
        (folder.path().join("cases.jsonl").display().to_string(), 4),
        (tasks.display().to_string(), 40),
    ] {
        let suite = Suite::open(&spec).unwrap();
        assert_eq!(suite.cases.len(), count);
        for case in &suite.cases {
            let task = case.task.as_ref().unwrap();
            let Ground::World(_, whole, _) = &task.ground else { panic!() };
            let mut environment = task.begin().unwrap();
            let last = task.turns.len() - 1;
            let mut turns = Vec::new();
            for (index, part) in task.turns.iter().enumerate() {
                environment.begin_turn();
                let mut wanted: Vec<_> = part.checks.calls.clone();
                wanted.extend(
                    part.checks.changes.iter().flatten().filter(|change| !part.checks.calls.contains(change)).cloned(),
                );
                if index == last {
                    wanted.extend(whole.calls.iter().cloned());
                    let more = whole.changes.iter().flatten().filter(|change| !whole.calls.contains(change));
                    wanted
                        .extend(more.filter(|_| task.turns.iter().all(|part| part.checks.changes.is_none())).cloned());
                }
                for wanted in wanted {
                    // `done` is the last argument of a tool that the example leaves open.
                    let mut arguments = wanted.arguments;
                    if wanted.name == "heat" {
                        arguments.entry("on").or_insert(json!(true));
                    }
                    environment.call(&wanted.name, &arguments).unwrap();
                }
                let says: Vec<&str> = part.checks.text.iter().chain(&whole.text).map(String::as_str).collect();
                let tried = part.checks.tried.iter().chain(&whole.tried).map(|wanted| {
                    json!({"function": {"name": wanted.name, "arguments": Value::from(wanted.arguments.clone()).to_string()}})
                });
                let said =
                    json!({"role": "assistant", "content": says.join(" "), "tool_calls": tried.collect::<Vec<_>>()});
                turns.push(Turn { messages: json!([said]), ..ended() });
            }
            let judged = environment.verdict(&turns).unwrap();
            assert_eq!((judged.outcome, judged.detail.as_str()), (Outcome::Correct, ""), "{}", case.id);
            // A run's directory has all that it needs.
            let kept = Suite::from_text(&suite.name, &case.line, Path::new("elsewhere.jsonl")).unwrap();
            assert_eq!((&kept.cases[0].line, &kept.cases[0].id), (&case.line, &case.id));
        }
    }
}

/// A model that says these texts, one after another.
fn answers(texts: &[&str]) -> Box<dyn Answerer> {
    let info = ModelInfo { context_train: 1 << 16, eos: "</s>".to_owned(), ..ModelInfo::default() };
    let texts: Vec<String> = texts
        .iter()
        .map(|text| text.replace('«', "### TOOL_CALL_START ###\n").replace('»', "\n### TOOL_CALL_END ###") + "</s>")
        .collect();
    let engine = ScriptedEngine::from_texts(info, texts.iter().map(String::as_str));
    let session = Session::builder().engine(engine).build().unwrap();
    Box::new(SessionAnswers::new(session, NOW, Default::default()).unwrap())
}

#[test]
fn a_task_is_run_as_the_agent_runs_and_kept_turn_by_turn() {
    let lock = r#"«{"name": "lock", "arguments": {"door": "back"}}»"#;
    let remove = r#"«{"name": "remove", "arguments": {"door": "front"}}»"#;
    let suite = one(
        r#""turns": ["Lock the back door.", {"user": "Remove the front one.", "changes": []}], "changes": [{"name": "lock", "arguments": {"door": "back"}}], "text": ["sorry"]"#,
    );
    let suite = suite.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let plan = Plan::new(&suite, vec![configuration("none", 0.0)], 1);
    let mut directory = RunDirectory::start(&path, plan.clone(), &suite, false).unwrap();
    // The call is made twice in different words and executed once; nobody approves the other.
    let mut open = |_, _| Ok(vec![answers(&[lock, "It is locked.", remove, "I am sorry, I must not do that."])]);
    assert!(run(&mut directory, &mut open, &mut |_| (), &AtomicBool::new(false)).unwrap());
    drop(directory);
    let directory = RunDirectory::open(&path).unwrap();
    let sample = &directory.samples[0];
    let roles: Vec<Vec<&str>> = sample
        .turns
        .iter()
        .map(|turn| turn.messages.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect())
        .collect();
    assert_eq!(roles, [["user", "assistant", "tool", "assistant"]; 2]);
    assert_eq!(sample.turns[0].messages[2]["content"], "ok");
    let denied = sample.turns[1].messages[2]["content"].as_str().unwrap();
    assert!(denied.contains("the user did not allow remove to run"), "{denied}");
    assert_eq!((sample.turns[0].answers, sample.turns[0].status.as_str()), (2, "done"));
    let summary = Summary::new(&directory).unwrap();
    let scores = &summary.configurations[0].scores;
    assert_eq!((scores.get("accuracy").unwrap().successes, scores.get("made").unwrap().successes), (1, 1));
    assert!(scores.get("decision_recall").is_none() && scores.get("delivered").is_none());
    let page = html(&summary).unwrap();
    assert!(page.contains("I am sorry, I must not do that."), "the report has the turns");
    // Nothing is asked again.
    let mut directory = RunDirectory::start(&path, plan, &suite, true).unwrap();
    assert!(run(&mut directory, &mut |_, _| panic!("all is there"), &mut |_| (), &AtomicBool::new(false)).unwrap());
}

#[test]
fn a_failed_task_is_repeated_without_a_model() {
    let suite =
        one(r#""turns": ["Lock the back door."], "changes": [{"name": "lock", "arguments": {"door": "back"}}]"#);
    let suite = suite.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let plan = Plan::new(&suite, vec![configuration("none", 0.0)], 1);
    let mut directory = RunDirectory::start(&path, plan, &suite, false).unwrap();
    let front = r#"«{"name": "lock", "arguments": {"door": "front"}}»"#;
    let mut open = |_, _| Ok(vec![answers(&[front, "It is locked."])]);
    assert!(run(&mut directory, &mut open, &mut |_| (), &AtomicBool::new(false)).unwrap());
    drop(directory);
    let repeated = |case: &str| replay(&Summary::new(&RunDirectory::open(&path).unwrap()).unwrap(), case);
    let verdict = r#"missing_call: lock(door: "back") was not executed; executed were lock(door: "front")
  in the state, /doors/back is "open"; expected "locked"
  in the state, /log is [{"door":"front"}]; expected [{"door":"back"}]
"#;
    let turn =
        "one, none\n\nTurn 1 of 1: done\nUser: Lock the back door.\n→ lock {\"door\":\"front\"}\n← ok\nIt is locked.\n";
    let page = format!("\n{}#configuration=0&outcome=&text=one\n", path.join("report.html").display());
    assert_eq!(repeated("one").unwrap(), format!("{turn}\n{verdict}{page}"));
    let page = html(&Summary::new(&RunDirectory::open(&path).unwrap()).unwrap()).unwrap();
    assert!(page.contains(r#"/doors/back is \"open\"; expected \"locked\""#), "the report has the difference");
    let error = repeated("on").unwrap_err().to_string();
    assert!(error.contains("has no answer to \"on\"") && error.contains("did you mean `one`?"), "{error}");

    // A result and a verdict that are others now.
    let journal = path.join("samples.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let text = text.replace(r#""result":"ok""#, r#""result":"fine""#).replace("missing_call", "wrong_state");
    std::fs::write(&journal, text).unwrap();
    let text = repeated("one").unwrap();
    assert!(text.contains("It is locked.\n  lock now gives \"ok\", and gave \"fine\"\n"), "{text}");
    assert!(text.contains("When it was recorded: wrong_state: lock(door"), "{text}");
}

#[test]
fn a_world_that_fails_is_no_fault_of_the_model() {
    let line = r#"{"world": {"tool": [{"name": "look", "effect": "read", "result": "{{ state.nothing.at_all }}"}]}, "turns": ["Look."], "state": {}}"#;
    let suite = Suite::from_text("one", line, Path::new("suite.jsonl")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan::new(&suite, vec![configuration("none", 0.0)], 1);
    let mut directory = RunDirectory::start(&folder.path().join("run"), plan, &suite, false).unwrap();
    let mut open = |_, _| Ok(vec![answers(&[r#"«{"name": "look", "arguments": {}}»"#, "Done."])]);
    assert!(run(&mut directory, &mut open, &mut |_| (), &AtomicBool::new(false)).unwrap());
    let sample = &directory.samples[0];
    let message = &sample.failure.as_ref().unwrap().message;
    assert!(message.starts_with("turn 1 of 1: the world's tool look: "), "{message}");
    assert_eq!(sample.turns.len(), 1, "what was said is kept");
    assert!(sample.broke(), "--resume asks again");
}
