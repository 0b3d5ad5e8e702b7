//! Tools that run: what they get, what becomes of what they print, and every way in which they fail.

use callwright::Tools;
use callwright::agent::exec::{Approval, Executor, Failure, FailureKind, Question};
use callwright::message::{Arguments, ToolCall};
use callwright::tool::{Exec, Output, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

fn call(name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: Some(format!("id-{name}")), name: name.into(), arguments: Arguments::from_text(arguments) }
}

fn shell(script: &str) -> Exec {
    Exec { command: vec!["sh".into(), "-c".into(), script.into()], ..Exec::default() }
}

fn tools(exec: Exec) -> Tools {
    Tools::new([Tool { name: "tool".into(), exec: Some(exec), ..Tool::default() }]).unwrap()
}

fn run(exec: Exec) -> Result<String, Failure> {
    run_with(exec, r#"{"city": "Köln"}"#)
}

fn run_with(exec: Exec, arguments: &str) -> Result<String, Failure> {
    let never = AtomicBool::new(false);
    Executor::default().run(&tools(exec), &[call("tool", arguments)], &never, &mut |_, _| ()).remove(0)
}

fn limited(change: impl FnOnce(&mut Executor)) -> Executor {
    let mut executor = Executor::default();
    change(&mut executor);
    executor
}

fn failure(exec: Exec) -> (FailureKind, String) {
    let failure = run(exec).unwrap_err();
    (failure.kind, failure.message)
}

#[test]
fn arguments_come_as_json_and_output_is_the_result() {
    assert_eq!(run(shell("cat; echo")).unwrap(), r#"{"city":"Köln"}"#);
    assert_eq!(run(shell("printf 'a\\nb\\n\\n'")).unwrap(), "a\nb");
    assert_eq!(run(shell("true")).unwrap(), "");
    // What a tool complains of while it succeeds is no result.
    assert_eq!(run(shell("echo warning >&2; echo 5")).unwrap(), "5");
}

#[test]
fn no_shell_is_involved() {
    let exec = Exec { command: vec!["echo".into(), "$HOME; `id` *".into()], ..Exec::default() };
    assert_eq!(run(exec).unwrap(), "$HOME; `id` *");
}

#[test]
fn the_environment_is_path_and_what_is_listed() {
    let seen = run(shell("env")).unwrap();
    let names: Vec<&str> = seen.lines().filter_map(|line| line.split('=').next()).collect();
    // A shell sets some by itself.
    let own = ["PWD", "SHLVL", "_", "OLDPWD"];
    assert_eq!(names.into_iter().filter(|name| !own.contains(name)).collect::<Vec<_>>(), ["PATH"]);
    let env = vec![("GREETING".into(), Some("hello".into())), ("HOME".into(), None), ("NOT_THERE".into(), None)];
    let seen = run(Exec { env, ..shell("echo $GREETING ${HOME:+home} ${NOT_THERE-unset}") }).unwrap();
    assert_eq!(seen, if std::env::var_os("HOME").is_some() { "hello home unset" } else { "hello unset" });
}

#[test]
fn a_tool_runs_where_its_file_says() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("here")).unwrap();
    let script = folder.path().join("where.sh");
    std::fs::write(&script, "#!/bin/sh\nbasename \"$(pwd)\"\n").unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = folder.path().join("tools.toml");
    std::fs::write(&path, "[[tool]]\nname = \"tool\"\ncommand = [\"./where.sh\"]\ncwd = \"here\"\n").unwrap();
    let tools = Tools::from_file(&path).unwrap();
    let ran = Executor::default().run(&tools, &[call("tool", "{}")], &AtomicBool::new(false), &mut |_, _| ());
    assert_eq!(ran[0].as_deref(), Ok("here"));
}

#[test]
fn failures_say_what_was_wrong() {
    let missing = Exec { command: vec!["/no/such/program".into()], ..Exec::default() };
    let nowhere = Exec { cwd: Some("/no/such/folder".into()), ..shell("true") };
    let json = |script| Exec { output: Output::Json, ..shell(script) };
    let mut report = String::new();
    for (what, exec) in [
        ("exit status, standard error", shell("echo 'no such city' >&2; exit 3")),
        ("exit status, standard output", shell("echo 'no such city'; exit 1")),
        ("exit status, no word", shell("exit 1")),
        ("crash", shell("kill -SEGV $$")),
        ("no program", missing),
        ("no folder", nowhere),
        ("no command", Exec::default()),
        ("no JSON", json("echo sunny")),
        ("half of it", json("echo '{\"a\": '")),
        ("more JSON than is kept", Exec { max_output_bytes: Some(5), ..json("echo '[1, 2, 3]'") }),
        ("JSON that is not UTF-8", json("printf '\"\\377\"'")),
        ("JSON and more", json("echo '{} {}'")),
        ("too slow", Exec { timeout_s: Some(0.2), ..shell("sleep 20") }),
    ] {
        let (kind, message) = failure(exec);
        report += &format!("{what}: {kind:?}: {message}\n");
    }
    insta::assert_snapshot!(report);
    assert_eq!(run(json("echo '{\"a\": 1}'")).unwrap(), "{\"a\": 1}");
}

#[test]
fn a_flood_is_cut_and_marked() {
    let exec = Exec { max_output_bytes: Some(1000), ..shell("head -c 100000000 /dev/zero | tr '\\0' x") };
    let result = run(exec).unwrap();
    assert!(result.starts_with("xxx") && result.len() < 1100, "{} bytes", result.len());
    assert!(result.ends_with("\n[cut: these are the first 1000 of 100000000 bytes]"), "{}", &result[990..]);
    // One that never ends is stopped at its time, with all that was started for it.
    let endless = Exec { timeout_s: Some(0.5), ..shell("yes | cat") };
    assert_eq!(failure(endless).0, FailureKind::TimedOut);
    // A cut may fall into a character.
    let exec = Exec { max_output_bytes: Some(5), ..shell("printf 'ääää'") };
    assert_eq!(run(exec).unwrap(), "ää\n[cut: these are the first 4 of 8 bytes]");
}

#[test]
fn output_that_is_no_utf8_is_replaced_and_marked() {
    let result = run(shell("printf 'a\\377b'")).unwrap();
    assert_eq!(result, "a\u{fffd}b\n[some bytes of this were not UTF-8 and were replaced]");
    let (kind, message) = failure(shell("printf '\\377' >&2; exit 1"));
    assert_eq!((kind, message.as_str()), (FailureKind::Reported, "tool failed with exit status 1: \u{fffd}"));
}

#[test]
fn arguments_that_nobody_reads_block_nothing() {
    let long = format!(r#"{{"text": "{}"}}"#, "x".repeat(1 << 20));
    assert_eq!(run_with(shell("echo done"), &long).unwrap(), "done");
    // A megabyte in while a megabyte comes out.
    let echoed = run_with(Exec { max_output_bytes: Some(4 << 20), ..shell("cat") }, &long).unwrap();
    assert!(echoed.len() > 1 << 20);
}

#[cfg(unix)]
fn is_alive(id: &str) -> bool {
    // A process that nobody has waited for yet is dead all the same.
    let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

#[cfg(target_os = "linux")]
#[test]
fn processes_that_a_tool_leaves_running_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("id");
    let left = |how: &str| shell(&format!("sleep 600 {how} & echo $! > {}; {}", path.display(), "echo done"));
    for (how, waits) in [("", false), (">/dev/null 2>&1", false), ("", true)] {
        let mut exec = left(how);
        if waits {
            exec.command[2] += "; wait";
            exec.timeout_s = Some(0.3);
        }
        let result = run(exec);
        assert_eq!(result.is_ok(), !waits, "{result:?}");
        let id = std::fs::read_to_string(&path).unwrap();
        let gone = (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !is_alive(id.trim())
        });
        assert!(gone, "{how} {waits}: process {id} lives on");
    }
}

/// Kills the process whose id is in the file, which is alive: nobody has waited for its end.
#[cfg(target_os = "linux")]
fn kill_living(file: &std::path::Path) {
    let id = std::fs::read_to_string(file).unwrap();
    assert!(is_alive(id.trim()));
    assert!(std::process::Command::new("kill").args(["-KILL", id.trim()]).status().unwrap().success());
    std::fs::remove_file(file).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn output_held_by_an_unreachable_process_is_not_awaited_and_this_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("begun");
    let begun = path.display();
    // Not before it has left the group: it would be killed with the others.
    let script = format!(
        "setsid sh -c 'echo $$ > {begun}; exec sleep 600' & while [ ! -s {begun} ]; do sleep 0.01; done; echo done"
    );
    let result = run(shell(&script)).unwrap();
    assert_eq!(result, "done\n[this may not be all: a process that the tool left running holds its output]");
    kill_living(&path);
    // JSON stays JSON.
    let result =
        run(Exec { output: Output::Json, ..shell(&script.replace("echo done", "echo '{\"a\": 1}'")) }).unwrap();
    assert_eq!(result, "{\"a\": 1}");
    kill_living(&path);
}

#[test]
fn an_interruption_kills_what_runs_and_starts_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let exec = shell(&format!("touch {}/$$; sleep 600", folder.path().display()));
    let cancel = AtomicBool::new(false);
    let calls = vec![call("tool", "{}"); 3];
    let executor = limited(|executor| executor.jobs = 1);
    let tools = tools(exec);
    let results = std::thread::scope(|scope| {
        let running = scope.spawn(|| executor.run(&tools, &calls, &cancel, &mut |_, _| ()));
        while std::fs::read_dir(folder.path()).unwrap().count() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        cancel.store(true, Ordering::Relaxed);
        running.join().unwrap()
    });
    assert!(results.iter().all(|result| result.as_ref().is_err_and(|failure| failure.kind == FailureKind::Cancelled)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "the others were not started");
}

#[test]
fn calls_run_at_the_same_time_and_end_in_order() {
    let tools = tools(shell("sed 's/.*: *\\([0-9.]*\\).*/\\1/' | { read -r n; sleep \"$n\"; echo \"$n\"; }"));
    let calls: Vec<ToolCall> = ["0.6", "0.1", "0.3"].iter().map(|n| call("tool", &format!("{{\"n\":{n}}}"))).collect();
    let mut reported = Vec::new();
    let results = Executor::default().run(&tools, &calls, &AtomicBool::new(false), &mut |index, result| {
        reported.push((index, result.clone()));
    });
    let texts: Vec<&str> = results.iter().map(|result| result.as_deref().unwrap()).collect();
    assert_eq!(texts, ["0.6", "0.1", "0.3"]);
    assert_eq!(reported, results.into_iter().enumerate().collect::<Vec<_>>());

    let most = |jobs| {
        let (running, most) = (AtomicUsize::new(0), std::sync::Arc::new(AtomicUsize::new(0)));
        let seen = std::sync::Arc::clone(&most);
        let mut executor = limited(|executor| executor.jobs = jobs);
        let tool = executor.function("busy", "", move |_: Nothing| {
            seen.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(30));
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, String>(())
        });
        // The same call would run once.
        let calls: Vec<ToolCall> = (0..6).map(|n| call("busy", &format!("{{\"n\":{n}}}"))).collect();
        executor.run(&Tools::new([tool]).unwrap(), &calls, &AtomicBool::new(false), &mut |_, _| ());
        most.load(Ordering::SeqCst)
    };
    assert_eq!(most(1), 1);
    assert!((2..=3).contains(&most(3)));
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// Where and when.
#[derive(Deserialize, JsonSchema)]
struct Weather {
    /// The city
    city: String,
    /// Days from now
    days: Option<u8>,
    unit: Option<Unit>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Unit {
    Celsius,
    Kelvin,
}

#[test]
fn a_closure_is_a_tool_with_the_schema_of_its_argument() {
    let mut executor = limited(|executor| executor.timeout = Duration::from_secs(3));
    let tool = executor.function("weather", "The weather", |weather: Weather| match weather.city.as_str() {
        "Atlantis" => Err("there is no such city"),
        "Pompeii" => panic!("the volcano"),
        "Styx" => {
            std::thread::sleep(Duration::from_secs(20));
            Ok(serde_json::json!(null))
        }
        city => {
            let warm = if matches!(weather.unit, Some(Unit::Kelvin)) { 294 } else { 21 };
            Ok(serde_json::json!({"city": city, "temperature": warm, "days": weather.days}))
        }
    });
    insta::assert_snapshot!("a_typed_tool", format!("{:#}", tool.to_json()));
    let tools = Tools::new([tool]).unwrap();
    let run = |arguments: &str| {
        executor.run(&tools, &[call("weather", arguments)], &AtomicBool::new(false), &mut |_, _| ()).remove(0)
    };
    assert_eq!(
        run(r#"{"city": "Rome", "unit": "kelvin"}"#).unwrap(),
        r#"{"city":"Rome","temperature":294,"days":null}"#
    );
    let said = |arguments: &str| run(arguments).unwrap_err();
    assert_eq!(said(r#"{"city": "Atlantis"}"#).to_string(), "weather failed: there is no such city");
    assert_eq!(said(r#"{"city": "Pompeii"}"#).kind, FailureKind::Crashed);
    assert_eq!(said(r#"{"city": "Styx"}"#).to_string(), "weather did not end within 3 s and was stopped");
    assert_eq!(said(r#"{}"#).to_string(), "weather failed: missing field `city`");
    assert_eq!(said("{\"city\": ").kind, FailureKind::NotRunnable);
    assert_eq!(tools.problems("weather", &serde_json::from_str(r#"{"city": 5}"#).unwrap()).len(), 1);
}

#[test]
fn what_is_to_be_asked_about_is_asked_about() {
    let tools = tools(Exec { confirm: true, ..shell("echo ran") });
    let answer = |confirm: Option<bool>| {
        let approval = |yes| if yes { Approval::Given } else { Approval::Denied(None) };
        let executor = limited(|executor| {
            executor.confirm = confirm.map(|yes| Box::new(move |_: &Question<'_>| approval(yes)) as _)
        });
        executor.run(&tools, &[call("tool", "{}")], &AtomicBool::new(false), &mut |_, _| ()).remove(0)
    };
    assert_eq!(answer(Some(true)).unwrap(), "ran");
    assert_eq!(answer(Some(false)).unwrap_err().to_string(), "the user did not allow tool to run");
    let nobody = answer(None).unwrap_err();
    assert_eq!(nobody.kind, FailureKind::Refused);
    assert_eq!(nobody.to_string(), "tool was not run: it needs the user's approval, and there is nobody to ask");
}

#[test]
fn a_time_limit_may_be_as_long_as_it_likes() {
    assert_eq!(run(Exec { timeout_s: Some(1e300), ..shell("echo in time") }).unwrap(), "in time");
    let mut executor = limited(|executor| executor.timeout = Duration::MAX);
    let tools = Tools::new([executor.function("quick", "", |_: Nothing| Ok::<_, String>("in time"))]).unwrap();
    let results = executor.run(&tools, &[call("quick", "{}")], &AtomicBool::new(false), &mut |_, _| ());
    assert_eq!(results[0].as_deref(), Ok("in time"));
}

#[test]
fn a_tool_that_nothing_can_run() {
    let tools = Tools::new([Tool { name: "plain".into(), ..Tool::default() }]).unwrap();
    let results = Executor::default().run(
        &tools,
        &[call("plain", "{}"), call("other", "{}")],
        &AtomicBool::new(false),
        &mut |_, _| (),
    );
    let said: Vec<String> = results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
    assert_eq!(said, ["nothing says how the tool plain is run", "there is no tool named \"other\""]);
}

#[test]
fn the_built_in_tools() {
    let mut executor = Executor::default();
    let tools = Tools::new(["clock", "calculator"].map(|name| executor.builtin(name).unwrap())).unwrap();
    assert!(executor.builtin("format_disk").is_none());
    let run = |name: &str, arguments: &str| {
        executor.run(&tools, &[call(name, arguments)], &AtomicBool::new(false), &mut |_, _| ()).remove(0)
    };
    assert!(run("clock", r#"{"zone": "UTC"}"#).unwrap().ends_with(" UTC"));
    assert!(run("clock", "{}").is_ok());
    // Where this machine knows any.
    if run("clock", r#"{"zone": "Asia/Tokyo"}"#).is_ok() {
        // The day, the hour and the zone, but for the minute in between.
        let hour = |zone: &str| {
            let time = run("clock", &serde_json::json!({"zone": zone}).to_string()).unwrap();
            let (time, zone) = time.rsplit_once(' ').unwrap();
            (time.rsplit_once(':').and_then(|(time, _)| time.rsplit_once(':')).unwrap().0.to_owned(), zone.to_owned())
        };
        for (city, zone) in [
            ("tokyo", "Asia/Tokyo"),
            ("New York", "America/New_York"),
            ("Buenos Aires", "America/Argentina/Buenos_Aires"),
        ] {
            assert!(hour(city) == hour(zone) || hour(city) == hour(zone), "{city}");
        }
        assert_eq!(hour("Tokyo").1, "JST");
        assert!(run("clock", r#"{"zone": "East"}"#).is_err());
    }
    assert!(run("clock", r#"{"zone": "Mars/Olympus"}"#).unwrap_err().message.contains("there is no time zone"));
    let sum = |expression: &str| {
        let arguments = serde_json::json!({"expression": expression}).to_string();
        run("calculator", &arguments).unwrap_or_else(|failure| failure.message)
    };
    for (expression, value) in [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("-2 ^ 2", "-4"),
        ("2 ** 3 ** 2", "512"),
        ("0.1 + 0.2", "0.3"),
        ("0.3 - 0.2 - 0.1", "0"),
        ("1 / 3", "0.333333333333333"),
        ("1 / 10000000000000", "0.0000000000001"),
        ("9007199254740991 - 0", "9007199254740991"),
        ("0 * -1", "0"),
        ("123456789 * 1000000007", "123456789864197520"),
        ("7 % 4 - -1", "4"),
        ("10 / 4", "2.5"),
        ("2 × 3 − 1", "5"),
        ("1e3", "calculator failed: \"1e3\" cannot be read at \"e3\"; expected + - * / % ^ ( ) and numbers"),
        ("1 / 0", "calculator failed: \"1 / 0\" is no number: is something divided by zero, or too large?"),
        ("(1", "calculator failed: a bracket is not closed"),
        ("", "calculator failed: a number was expected at the end"),
        ("two", "calculator failed: a number was expected at 't'"),
    ] {
        assert_eq!(sum(expression), value, "{expression}");
    }
    assert!(sum(&"(".repeat(100_000)).ends_with("brackets are nested more than 64 deep"));
    assert!(sum(&"-".repeat(100_000)).contains("a number was expected"));
}
