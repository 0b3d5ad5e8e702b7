//! MCP servers: their tools, what becomes of calls, and every way in which a server fails. The server is a script, which
//! needs Python 3.

use crate::agent::run::{call, scripted};
use crate::program::{callwright, run};
use callwright::agent::Agent;
use callwright::agent::exec::{Approval, Failure, FailureKind};
use callwright::agent::turn::Status;
use callwright::mcp::Servers;
use callwright::message::{Arguments, ToolCall};
use callwright::session::{Event, NoteKind};
use callwright::{Session, Tools};
use serde_json::{Value, json};
use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/server.py");
/// How long anything may take that takes no time on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server of the test's script.
fn server(arguments: &[&str]) -> Value {
    let arguments: Vec<&str> = std::iter::once(SERVER).chain(arguments.iter().copied()).collect();
    json!({"command": "python3", "args": arguments, "autoApprove": true})
}

fn start(servers: Value) -> (Tools, Agent, Servers) {
    let mut servers = Servers::from_value(&json!({"mcpServers": servers}), "").unwrap();
    let (mut tools, mut agent) = (Tools::default(), Agent::default());
    agent.limits.regenerate = false;
    servers.add_to(&mut tools, &mut agent.executor);
    (tools, agent, servers)
}

fn one(arguments: &[&str]) -> (Tools, Agent, Servers) {
    start(json!({"test": server(arguments)}))
}

fn names(tools: &Tools) -> Vec<&str> {
    tools.iter().map(|tool| tool.name.as_str()).collect()
}

fn tool_call(name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: Some(format!("id-{name}")), name: name.into(), arguments: Arguments::from_text(arguments) }
}

fn result(tools: &Tools, agent: &Agent, name: &str, arguments: &str) -> Result<String, Failure> {
    agent.executor.run(tools, &[tool_call(name, arguments)], &AtomicBool::new(false), &mut |_, _| ()).remove(0)
}

fn failure(tools: &Tools, agent: &Agent, name: &str) -> (FailureKind, String) {
    let failure = result(tools, agent, name, "{}").unwrap_err();
    (failure.kind, failure.message)
}

/// Waits for something that happens soon.
fn eventually(what: &str, happens: impl Fn() -> bool) {
    let started = Instant::now();
    while !happens() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lines(log: &Path, beginning: &str) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().filter_map(|line| line.strip_prefix(beginning)).map(str::to_owned).collect()
}

/// Whether a process runs, one that was not waited for aside.
fn runs(process: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{process}/stat"));
    state.is_ok_and(|stat| !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn tools_are_listed_called_and_answer_in_every_way() {
    let (tools, agent, servers) = one(&["get_weather", "add", "picture", "fail", "refuse", "long"]);
    assert_eq!(servers.notices(), [""; 0]);
    assert_eq!(names(&tools), ["get_weather", "add", "picture", "fail", "refuse", "long"]);
    assert_eq!(tools.get("add").unwrap().parameters.as_ref().unwrap()["required"], json!(["a", "b"]));
    let weather = result(&tools, &agent, "get_weather", r#"{"city": "Rome"}"#);
    assert_eq!(weather.as_deref(), Ok("sunny in Rome, 21 degrees"));
    assert_eq!(result(&tools, &agent, "add", r#"{"a": 1, "b": 2}"#).as_deref(), Ok(r#"{"sum":3}"#));
    let picture = result(&tools, &agent, "picture", "{}");
    assert_eq!(picture.as_deref(), Ok("[image: image/png, 6 bytes, which are not shown]"));
    let failed = failure(&tools, &agent, "fail");
    assert_eq!(failed, (FailureKind::Reported, "fail failed: there is no such city".to_owned()));
    let refused = failure(&tools, &agent, "refuse");
    assert_eq!(refused, (FailureKind::Reported, "refuse failed: not with me".to_owned()));
    let long = result(&tools, &agent, "long", "{}").unwrap();
    assert!(long.ends_with("\n[cut: these are the first 1048576 of 2097152 bytes]"), "{}", &long[long.len() - 99..]);
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn only_shared_names_get_their_servers_name() {
    let (tools, agent, _servers) = start(json!({"one": server(&["get_weather", "add"]), "two": server(&["add"])}));
    assert_eq!(names(&tools), ["get_weather", "one_add", "two_add"]);
    assert_eq!(result(&tools, &agent, "two_add", r#"{"a": 2, "b": 2}"#).as_deref(), Ok(r#"{"sum":4}"#));
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn a_server_that_does_not_start_is_named_and_the_others_go_on() {
    let (tools, _agent, servers) = start(json!({
        "missing": {"command": "/no/such/program"},
        "exits": server(&["--exit"]),
        "good": server(&["--stray"]),
        "nowhere": {"url": "http://127.0.0.1:9/mcp"},
    }));
    assert_eq!(names(&tools), ["get_weather"]);
    let notices = servers.notices();
    assert!(
        notices[0].starts_with(
            "the MCP server \"missing\" did not start, and is left out: /no/such/program cannot be started"
        )
    );
    assert_eq!(
        notices[1],
        "the MCP server \"exits\" did not start, and is left out: it ended (exit status: 1): there is no database; correct \
         \"mcpServers\".\"exits\" (python3), or set its \"disabled\" to true"
    );
    assert!(notices[2].starts_with("the MCP server \"nowhere\" did not start, and is left out: "), "{}", notices[2]);
    assert_eq!(
        notices[3],
        "the MCP server \"good\" wrote 2 lines to its standard output that is no message, which was ignored: \"Starting\""
    );
    assert_eq!(notices.len(), 4, "{notices:?}");
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn faulty_schemas_are_read_as_tolerantly_as_in_a_file() {
    let (tools, agent, _servers) = one(&["faulty", "get_weather"]);
    assert_eq!(names(&tools), ["faulty", "get_weather"]);
    let notices: Vec<String> = tools.notices().iter().map(ToString::to_string).collect();
    assert!(notices[0].contains("\"objekt\" is not a type") && notices.len() == 1, "{notices:?}");
    assert_eq!(result(&tools, &agent, "faulty", "{}").as_deref(), Ok("ok"));
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn a_server_that_crashes_in_a_call_is_reported_and_the_call_is_not_repeated() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    let (tools, agent, _servers) = one(&["crash", "add", "--log", log.to_str().unwrap()]);
    let (kind, message) = failure(&tools, &agent, "crash");
    assert_eq!(kind, FailureKind::Crashed);
    assert_eq!(
        message,
        "crash crashed: the MCP server \"test\": it ended (exit status: 3): out of cheese; whether the call was carried \
         out is not known"
    );
    let (kind, message) = failure(&tools, &agent, "add");
    assert_eq!(kind, FailureKind::NotRunnable);
    assert_eq!(message, "add cannot be run: the MCP server \"test\": it ended (exit status: 3): out of cheese");
    assert_eq!(lines(&log, "call "), ["crash {}"]);
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn a_server_that_hangs_is_cancelled_at_the_timeout() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    let mut slow = server(&["hang", "get_weather", "--log", log.to_str().unwrap()]);
    slow["timeout_s"] = json!(0.3);
    let (tools, agent, _servers) = start(json!({"slow": slow}));
    let (kind, message) = failure(&tools, &agent, "hang");
    assert_eq!(kind, FailureKind::TimedOut);
    assert_eq!(message, "hang did not end within 0.3 s, and the MCP server \"slow\" was told to stop it");
    eventually("the server hears of it", || lines(&log, "cancelled ").len() == 1);
    // The server still answers.
    assert!(result(&tools, &agent, "get_weather", r#"{"city": "Rome"}"#).is_ok());
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn an_interruption_ends_a_call() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    let (tools, agent, _servers) = one(&["hang", "--log", log.to_str().unwrap()]);
    let cancel = Arc::new(AtomicBool::new(false));
    let (raised, seen) = (Arc::clone(&cancel), log.clone());
    let interrupting = std::thread::spawn(move || {
        eventually("the call arrives", || lines(&seen, "call ").len() == 1);
        raised.store(true, Ordering::Relaxed);
    });
    let ended = agent.executor.run(&tools, &[tool_call("hang", "{}")], &cancel, &mut |_, _| ()).remove(0);
    interrupting.join().unwrap();
    assert_eq!(ended.unwrap_err().kind, FailureKind::Cancelled);
    eventually("the server hears of it", || lines(&log, "cancelled ").len() == 1);
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn a_flood_is_cut_off() {
    let (tools, agent, _servers) = one(&["flood"]);
    let (kind, message) = failure(&tools, &agent, "flood");
    assert_eq!(kind, FailureKind::Crashed);
    assert_eq!(
        message,
        "flood crashed: the MCP server \"test\": it wrote more than 16 MiB without a message, and was cut off; whether the \
         call was carried out is not known"
    );
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn a_list_whose_cursor_does_not_advance_ends_with_what_is_there() {
    for cursor in ["", "again"] {
        let (tools, _agent, servers) = one(&["get_weather", "add", "--cursor", cursor]);
        assert_eq!((names(&tools), servers.notices()), (vec!["get_weather", "add"], &[][..]), "{cursor:?}");
    }
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn a_result_with_an_unknown_part_has_the_known_ones() {
    let (tools, agent, _servers) = one(&["unknown"]);
    let expected = "known\n[content of the unknown kind \"hologram\", which is not shown]";
    assert_eq!(result(&tools, &agent, "unknown", "{}").as_deref(), Ok(expected));
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn a_list_that_is_nested_too_deep_is_reported() {
    let (tools, _agent, servers) = one(&["deep"]);
    assert!(tools.is_empty());
    let notice = "the MCP server \"test\" did not start, and is left out: it sent a message that is nested 128 deep, and was cut off";
    assert!(servers.notices().len() == 1 && servers.notices()[0].starts_with(notice), "{:?}", servers.notices());
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn tools_that_need_confirmation_are_asked_about() {
    let mut asking = server(&["add", "fail"]);
    asking["autoApprove"] = json!(["add"]);
    let (tools, mut agent, _servers) = start(json!({"test": asking}));
    assert!(result(&tools, &agent, "add", r#"{"a": 1, "b": 1}"#).is_ok());
    let (kind, message) = failure(&tools, &agent, "fail");
    assert_eq!(kind, FailureKind::Refused);
    assert_eq!(message, "fail was not run: it needs the user's approval, and there is nobody to ask");
    agent.executor.confirm = Some(Box::new(|_| Approval::Given));
    assert_eq!(failure(&tools, &agent, "fail").0, FailureKind::Reported);
}

fn session(texts: &[&str], tools: Tools) -> Session {
    let mut session = scripted("main", texts.iter().copied());
    session.set_tools(tools);
    session
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn tools_that_change_are_others_in_the_next_answer() {
    let home = tempfile::tempdir().unwrap();
    let recording = home.path().join("run.jsonl");
    let (tools, mut agent, _servers) = one(&["change", "add"]);
    let texts = [&*call("change", "{}"), &*call("get_weather", r#"{"city": "Rome"}"#), "Sunny."];
    let mut session = session(&texts, tools);
    session
        .set_messages(vec![callwright::message::Message::user("Change, then tell me the weather in Rome.")])
        .unwrap();
    session.record(&recording).unwrap();
    let mut events = Vec::new();
    let outcome = session.run(&mut agent, &mut |event| events.push(event.clone())).unwrap();
    assert_eq!(outcome.status, Status::Done);
    let changes: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::ToolsChanged(change) => Some(change.clone()),
            _ => None,
        })
        .collect();
    assert_eq!((changes[0].added.as_slice(), changes.len()), (&["get_weather".to_owned()][..], 1));
    assert_eq!(changes[0].removed, ["change", "add"]);
    assert_eq!(names(session.tools()), ["get_weather"]);
    let note = "the MCP server \"test\" has other tools now; new: get_weather; gone: change, add";
    assert!(outcome.notes.iter().any(|had| had.kind == NoteKind::Tools && had.message == note), "{:?}", outcome.notes);
    let said: Vec<&str> = session.messages().iter().map(|message| message.content.as_str()).collect();
    assert_eq!(said[2..], ["other tools now", "", "sunny in Rome, 21 degrees", "Sunny."]);

    // The same again, without a model and without servers.
    let (mut again, agent) = Session::replay_run(&recording).unwrap();
    let replayed = again.run(&mut agent.unwrap(), &mut |_| ()).unwrap();
    assert_eq!(replayed.status, Status::Done);
    assert_eq!(again.messages(), session.messages());
    assert_eq!(names(again.tools()), ["get_weather"]);
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn a_stray_line_in_a_call_is_reported_once() {
    let (tools, mut agent, _servers) = one(&["stray"]);
    let again = call("stray", r#"{"again": true}"#);
    let mut session = session(&[&call("stray", "{}"), &again, "Done."], tools);
    let outcome = session.ask_and_run("Go.", &mut agent).unwrap();
    let notes: Vec<_> = outcome.notes.iter().filter(|note| note.kind == NoteKind::Tools).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].message.contains("no message, which was ignored: \"DEBUG: a line for nobody\""), "{notes:?}");
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
fn streamable_http_carries_headers() {
    let mut child = Command::new("python3").args([SERVER, "--http"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let url = url.trim();
    let (tools, agent, servers) = start(json!({
        "http": {"url": url, "headers": {"Authorization": "Bearer secret"}, "autoApprove": true},
        "refused": {"url": url},
    }));
    assert_eq!(names(&tools), ["get_weather"]);
    let weather = result(&tools, &agent, "get_weather", r#"{"city": "Rome"}"#);
    assert_eq!(weather.as_deref(), Ok("sunny in Rome, 21 degrees"));
    assert!(servers.notices()[0].starts_with("the MCP server \"refused\" did not start"), "{:?}", servers.notices());
    child.kill().unwrap();
    child.wait().unwrap();
    // No server, no result, no wait.
    let (kind, message) = {
        let failure = result(&tools, &agent, "get_weather", r#"{"city": "Rome"}"#).unwrap_err();
        (failure.kind, failure.message)
    };
    assert_eq!(kind, FailureKind::NotRunnable);
    assert!(message.starts_with("get_weather cannot be run: the MCP server \"http\": "), "{message}");
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
#[cfg(target_os = "linux")]
fn servers_and_their_processes_end_with_the_executor() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    let (tools, agent, servers) = one(&["--stubborn", "--child", "--log", log.to_str().unwrap()]);
    let processes = lines(&log, "process ");
    assert!(processes.len() == 2 && processes.iter().all(|process| runs(process)), "{processes:?}");
    drop((tools, agent, servers));
    // They were killed; the system may need a moment.
    eventually(&format!("{processes:?}"), || !processes.iter().any(|process| runs(process)));
}

/// The program with a server, and the processes of the server once it runs.
#[cfg(all(target_os = "linux", feature = "llama", feature = "bundled-model"))]
fn chatting(home: &Path, arguments: &[&str]) -> (std::process::Child, Vec<String>) {
    let log = home.join("log");
    let file = home.join("mcp.json");
    let arguments = [arguments, &["--log", log.to_str().unwrap()]].concat();
    std::fs::write(&file, json!({"mcpServers": {"test": server(&arguments)}}).to_string()).unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("callwright"));
    command.args(["chat", "--mcp", file.to_str().unwrap()]).env("HOME", home).env("XDG_STATE_HOME", home);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    eventually("the server runs", || lines(&log, "process ").len() == 2);
    (child, lines(&log, "process "))
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
#[cfg(target_os = "linux")]
#[cfg(all(feature = "llama", feature = "bundled-model"))]
fn no_process_of_a_server_survives_the_program_however_it_ends() {
    use nix::sys::signal::{Signal, kill};
    for signal in [Some(Signal::SIGKILL), Some(Signal::SIGTERM), Some(Signal::SIGINT), Some(Signal::SIGHUP), None] {
        let home = tempfile::tempdir().unwrap();
        let (mut child, processes) = chatting(home.path(), &["--stubborn", "--child"]);
        match signal {
            Some(signal) => kill(nix::unistd::Pid::from_raw(child.id() as i32), signal).unwrap(),
            // The end of the conversation.
            None => drop(child.stdin.take()),
        }
        child.wait().unwrap();
        eventually(&format!("{signal:?}: {processes:?}"), || !processes.iter().any(|process| runs(process)));
    }
}

#[test]
#[ignore = "needs Python 3: cargo test -- --ignored python"]
#[cfg(all(feature = "llama", feature = "bundled-model"))]
fn the_program_asks_a_server() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mcp.json");
    let mut asking = server(&[]);
    asking["autoApprove"] = json!(false);
    std::fs::write(&file, json!({"mcpServers": {"test": asking, "gone": server(&["--exit"])}}).to_string()).unwrap();
    let file = file.to_str().unwrap();
    let question = ["run", "What's the weather in Rome?", "--mcp", file, "--execute"];
    let ran = run(callwright(home.path()).args(question).arg("--yes"));
    assert!(ran.out.contains("← get_weather sunny in Rome, 21 degrees") && ran.code == 0, "{ran:?}");
    let note = format!(
        "note: {file}: the MCP server \"gone\" did not start, and is left out: it ended (exit status: 1): there is no database"
    );
    assert!(ran.err.contains(&note), "{}", ran.err);
    // Nobody can be asked.
    let ran = run(callwright(home.path()).args(question));
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("get_weather {\"city\":\"Rome\"}") && !ran.out.contains("←"), "{ran:?}");

    let listed = run(callwright(home.path()).args(["mcp", "list", file]));
    assert!(listed.out.contains("test (python3): 1 tool\n  get_weather"), "{listed:?}");
    assert!(listed.out.contains("gone (python3): did not start") && listed.code == 1, "{listed:?}");
    let listed = run(callwright(home.path()).args(["mcp", "list", file, "--json"]));
    let value: Value = serde_json::from_str(&listed.out).unwrap();
    let tool = &value["servers"][0]["tools"][0];
    assert!(tool["tokens"].as_u64().is_some_and(|tokens| (20..200).contains(&tokens)), "{value}");
    assert_eq!((&tool["effect"], &tool["effect_from"]), (&json!("write"), &json!("the default")));
    assert_eq!((&tool["name"], &tool["unenforced"]), (&json!("get_weather"), &json!([])));
}

#[test]
#[cfg(all(feature = "llama", feature = "bundled-model"))]
fn a_server_with_a_fault_in_the_file_fails_the_list() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mcp.json");
    std::fs::write(&file, r#"{"mcpServers": {"bad": {"comand": "x"}}}"#).unwrap();
    let listed = run(callwright(home.path()).args(["mcp", "list"]).arg(&file));
    assert!(listed.out.starts_with("bad (a fault in the file): did not start\n"), "{listed:?}");
    assert!(listed.err.contains("write \"command\" in place of \"comand\"") && listed.code == 1, "{listed:?}");
}

#[test]
fn a_server_that_asks_where_nobody_is_gets_a_refusal() {
    let (tools, agent, _servers) = one(&["ask"]);
    let said = result(&tools, &agent, "ask", "{}").unwrap();
    assert!(said.contains("\"action\": \"decline\""), "{said}");
}

#[test]
fn resources_and_prompts_are_part_of_a_chat() {
    let home = tempfile::tempdir().unwrap();
    let (file, saved) = (home.path().join("mcp.json"), home.path().join("chat.json"));
    std::fs::write(&file, json!({"mcpServers": {"test": server(&[])}}).to_string()).unwrap();
    let lines = format!(
        "/resources\nWhat is on (@test/today)? I wrote to me@test/today and @types/node.\n/prompt test/plan day=next Monday\n\
         What is on @test/tody\n/prompt test/plan\n/prompt test/plant\n/save {}\n",
        saved.display()
    );
    let mut chat = callwright(home.path());
    chat.args(["chat", "--max-tokens", "4", "--mcp", file.to_str().unwrap()]).env("XDG_STATE_HOME", home.path());
    let ran = run(chat.write_stdin(lines));
    for shown in [
        "@test/today (note://today)  What is on today",
        "/prompt test/plan day=…  Plan a day",
        "the MCP server \"test\" has no resource \"tody\"\nhint: did you mean \"today\"?",
        "the prompt \"plan\" of the MCP server \"test\" needs the argument \"day\"",
        "has no prompt \"plant\"\nhint: did you mean \"plan\"?",
    ] {
        assert!(ran.err.contains(shown), "{shown}: {}", ran.err);
    }
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(saved).unwrap()).unwrap();
    let asked = saved["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "user");
    let asked: Vec<&str> = asked.map(|message| message["content"].as_str().unwrap()).collect();
    let first = "What is on (@test/today)? I wrote to me@test/today and @types/node.\n\n[resource note://today]\nThe meeting is at noon.";
    assert_eq!(asked, [first, "Plan next Monday for me."]);
}

#[test]
fn a_file_that_names_no_servers_is_an_error_with_the_shape() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mcp.json");
    std::fs::write(&file, "{\"servers\": {}}").unwrap();
    let ran = run(callwright(home.path()).args(["run", "Hello", "--mcp", file.to_str().unwrap()]));
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("there is no \"mcpServers\"") && ran.err.contains("expected {\"mcpServers\""),
        "{}",
        ran.err
    );
}
