//! The classes that the leaderboard's cases of several turns act on, in a Python process of their own.
//!
//! The process has the package's classes and its checker, unmodified: what they do is not written here a second time.

use crate::exact::Exact;
use crate::outcome::Outcome;
use crate::sample::{Turn, Verdict};
use crate::task::Environment;
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

const SCRIPT: &str = include_str!("classes.py");

/// How long the process may take for one request. A tool of a run has 30 seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// The error types of the leaderboard's verdicts on several turns.
pub(crate) const TURN_ERRORS: [&str; 4] = [
    "multi_turn:empty_turn_model_response",
    "multi_turn:instance_state_mismatch",
    "multi_turn:execution_response_mismatch",
    "multi_turn:force_terminated",
];

/// A process with the classes of one case.
pub(crate) struct Classes {
    process: Child,
    input: ChildStdin,
    /// The lines that it answers.
    lines: Receiver<String>,
    /// How long it may take for one request.
    patience: Duration,
    broken: Option<String>,
}

impl Classes {
    /// Starts a process with the package in `folder`, and begins the case whose data is given.
    pub(crate) fn start(folder: &Path, case: &Exact) -> Result<Classes, String> {
        let mut classes = Classes::open(folder)?;
        // Not by way of a `Value`: Python tells 1 from 1.0.
        classes.ask("the start", &format!("{{\"case\": {case}}}"))?;
        Ok(classes)
    }

    /// Checks that Python can load the package in `folder`.
    pub(super) fn check(folder: &Path) -> Result<(), String> {
        Classes::open(folder)?.ask("the start", "{\"ready\": true}").map(drop)
    }

    fn open(folder: &Path) -> Result<Classes, String> {
        let program = if cfg!(windows) { "python" } else { "python3" };
        let mut command = Command::new(program);
        command.args(["-B", "-c", SCRIPT]).arg(folder).arg(PATIENCE.as_secs().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The terminal's Ctrl-C is for this process; the other one ends with its input.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let failed = |error: std::io::Error| {
            format!("{program}, which runs the leaderboard's classes, cannot be started: {error}")
        };
        let mut process = command.spawn().map_err(failed)?;
        let missing = || failed(std::io::ErrorKind::BrokenPipe.into());
        let input = process.stdin.take().ok_or_else(missing)?;
        let output = process.stdout.take().ok_or_else(missing)?;
        let complaints = process.stderr.take().ok_or_else(missing)?;
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                if line.map(|line| tell.send(line).is_err()).unwrap_or(true) {
                    return;
                }
            }
            let mut text = Vec::new();
            let _ = complaints.take(1 << 16).read_to_end(&mut text);
            let text = String::from_utf8_lossy(&text);
            let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it ended without a word");
            let _ = tell.send(json!({"error": last}).to_string());
        });
        Ok(Classes { process, input, lines, patience: PATIENCE, broken: None })
    }

    /// Sends a request and returns the answer. After a failure there is none to any other.
    fn ask(&mut self, what: &str, request: &str) -> Result<Value, String> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let asked = self.input.write_all(format!("{request}\n").as_bytes()).and_then(|()| self.input.flush());
        let answer = match self.lines.recv_timeout(self.patience) {
            Ok(line) => {
                serde_json::from_str(&line).unwrap_or_else(|error| json!({"error": format!("{error}: {line}")}))
            }
            Err(RecvTimeoutError::Timeout) => {
                json!({"error": format!("no answer within {} s", self.patience.as_secs())})
            }
            Err(RecvTimeoutError::Disconnected) => {
                json!({"error": asked.err().map_or_else(|| "it has ended".to_owned(), |error| error.to_string())})
            }
        };
        match answer.get("error").map(|error| error.as_str().map_or_else(|| error.to_string(), str::to_owned)) {
            None => Ok(answer),
            Some(error) => {
                let broken = format!("the leaderboard's classes failed at {what}: {error}");
                let _ = self.process.kill();
                Err(self.broken.insert(broken).clone())
            }
        }
    }
}

impl Environment for Classes {
    fn begin_turn(&mut self) {
        // Where it fails, so does the verdict.
        let _ = self.ask("the beginning of a turn", "{\"turn\": true}");
    }

    fn call(&mut self, name: &str, arguments: &Map<String, Value>) -> Result<String, String> {
        let answer =
            self.ask(&format!("the call of {name}"), &json!({"call": name, "arguments": arguments}).to_string())?;
        Ok(answer["result"].as_str().unwrap_or_default().to_owned())
    }

    fn broken(&self) -> Option<String> {
        self.broken.clone()
    }

    fn verdict(&mut self, turns: &[Turn]) -> Result<Verdict, String> {
        let finished = turns.last().is_none_or(|turn| turn.status != "max_turns");
        let answer = self.ask("the verdict", &json!({"verdict": finished}).to_string())?;
        let kind = answer["error_type"].as_str().unwrap_or_default();
        let outcomes = [Outcome::MissingCall, Outcome::WrongState, Outcome::MissingCall, Outcome::GaveUp];
        let outcome = match TURN_ERRORS.iter().position(|error| *error == kind) {
            Some(place) => outcomes[place],
            None if kind.is_empty() => Outcome::Correct,
            None => return Err(format!("the leaderboard's checker says {kind:?}, which is not known")),
        };
        Ok(Verdict {
            outcome,
            turn: answer["turn"].as_u64().and_then(|turn| usize::try_from(turn).ok()),
            detail: answer["detail"].as_str().unwrap_or_default().to_owned(),
            difference: Vec::new(),
            made: None,
            bfcl: Some(kind.to_owned()),
        })
    }
}

impl Drop for Classes {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package whose tools are `body`, and a case with one call of `tool`.
    fn begun(folder: &Path, body: &str) -> Result<Classes, String> {
        let modules = folder.join("bfcl_eval/eval_checker/multi_turn_eval");
        std::fs::create_dir_all(&modules).unwrap();
        std::fs::write(modules.join("multi_turn_checker.py"), "def multi_turn_checker(*_): return {'valid': True}")
            .unwrap();
        let utils = format!(
            "import os, time\ndef execute_multi_turn_func_call(calls, config, classes, name, *_):\n    {body}\n    return ['fine' for _ in calls], {{}}\n"
        );
        std::fs::write(modules.join("multi_turn_utils.py"), utils).unwrap();
        let case = r#"{"id": "x_1", "initial_config": {}, "involved_classes": [], "ground_truth": [["tool()"]]}"#;
        Classes::start(folder, &Exact::parse(case).unwrap())
    }

    #[test]
    #[ignore = "needs Python 3: cargo test -- --ignored python"]
    fn python_that_ends_hangs_or_refuses_is_named_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let refused =
            begun(folder.path(), "return [f'Error during execution: no {call}' for call in calls], {}").err().unwrap();
        let path = "turn 1 of the gold path: tool(): Error during execution: no tool()";
        assert_eq!(refused, format!("the leaderboard's classes failed at the start: ValueError: {path}"));
        let hangs = "if name == 'model': time.sleep(60)";
        for (body, why) in [
            ("if name == 'model': print('last words', file=__import__('sys').stderr); os._exit(3)", "last words"),
            (hangs, "no answer within 2 s"),
        ] {
            let mut classes = begun(folder.path(), body).unwrap();
            classes.begin_turn();
            // Python may take long to start.
            if body == hangs {
                classes.patience = Duration::from_secs(2);
            }
            let failed = format!("the leaderboard's classes failed at the call of tool: {why}");
            assert_eq!(classes.call("tool", &Map::new()), Err(failed.clone()));
            // It stays so, and the verdict says it.
            assert_eq!(classes.call("tool", &Map::new()), Err(failed.clone()));
            assert_eq!((classes.broken(), classes.verdict(&[]).err()), (Some(failed.clone()), Some(failed)));
        }
        let mut classes = begun(folder.path(), "print('a class may print')").unwrap();
        classes.begin_turn();
        assert_eq!(classes.call("tool", &Map::new()), Ok("fine".to_owned()));
        let injected = Map::from_iter([("x=1, y".to_owned(), Value::from(1))]);
        assert!(classes.call("tool", &injected).unwrap().contains("an argument that is no name"));
        assert_eq!(classes.verdict(&[]).unwrap().outcome, Outcome::Correct);
    }
}
