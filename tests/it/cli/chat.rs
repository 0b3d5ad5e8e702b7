//! `chat` as a program, with the bundled model: through a pipe, and at a terminal.

use crate::program::callwright;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const QUESTION: &str = "What's the weather in New York and San Francisco?";
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/weather.toml");

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_chat_is_saved_undone_and_loaded() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("chat.json");
    let retried = home.path().join("retried.json");
    let broken = home.path().join("broken.json");
    let lines_file = home.path().join("lines.json");
    std::fs::write(&broken, "[{\"role\": 5, \"content\": \"\"}]").unwrap();
    std::fs::write(&lines_file, "an earlier one").unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(&lines_file, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    let lines = [
        "/help".to_owned(),
        "/tools".to_owned(),
        "/template".to_owned(),
        "/undo".to_owned(),
        "/stats".to_owned(),
        "/system".to_owned(),
        "/retry".to_owned(),
        QUESTION.to_owned(),
        "/stats".to_owned(),
        format!("/save {}", file.display()),
        "/undo".to_owned(),
        "/undo".to_owned(),
        format!("/load {}", file.display()),
        format!("/load {}", broken.display()),
        format!("/save {}", broken.display()),
        format!("/save {}", home.path().join("nowhere/chat.json").display()),
        format!("/save {}", home.path().display()),
        "/load".to_owned(),
        "/sing".to_owned(),
        "What's the weather in Beijing \\".to_owned(),
        "tomorrow?".to_owned(),
        format!("/save! {}", lines_file.display()),
        "/retry".to_owned(),
        "/system Be brief.".to_owned(),
        "/system".to_owned(),
        "/template".to_owned(),
        format!("/save {}", retried.display()),
        "/quit".to_owned(),
        "never read".to_owned(),
    ];
    let mut child = callwright(home.path())
        .args(["chat", "--tools", TOOLS, "--execute"])
        .env("XDG_STATE_HOME", home.path().join("state"))
        .stdin_piped();
    child.stdin.take().unwrap().write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{err}");
    let results =
        "← get_weather {\"temp\": 21, \"sky\": \"sunny\"}\n← get_weather {\"temp\": 16, \"sky\": \"foggy\"}\n";
    assert!(out.contains(results), "{out}");
    for said in [
        "/undo             forget the last question",
        "get_weather: Get the weather forecast for a city",
        ", calls in the format ",
        "there is no question",
        "there is no system message; /system TEXT sets one",
        "the system message is set\nBe brief.\n",
        "<|system|>Be brief.",
        "nothing was generated yet",
        "TOKENS/S",
        "5 messages are in ",
        "0 messages are left",
        "5 messages\n",
        "messages[0].role is a number",
        "broken.json\nhint: /save! ",
        "cannot write ",
        " is no regular file",
        "/load FILE",
        "there is no /sing; /help lists the commands",
    ] {
        assert!(err.contains(said), "{said:?} is not in {err}");
    }
    let asked: Value = serde_json::from_str(&std::fs::read_to_string(&lines_file).unwrap()).unwrap();
    assert_eq!(asked["messages"][5]["content"], "What's the weather in Beijing \ntomorrow?");
    let retried: Value = serde_json::from_str(&std::fs::read_to_string(&retried).unwrap()).unwrap();
    assert_eq!(retried["messages"][0]["content"], "Be brief.");
    let (retried, asked) = (retried["messages"].as_array().unwrap(), asked["messages"].as_array().unwrap());
    assert_eq!(retried.len(), asked.len() + 1, "the question is there once");
    assert_eq!(retried[6]["content"], asked[5]["content"]);
    assert!(std::fs::read_to_string(&broken).unwrap().contains("\"role\": 5"), "it was overwritten");
    #[cfg(unix)]
    {
        let mode = |path: &Path| std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        // A file that was there keeps its mode; a new one is for its owner alone.
        assert_eq!((mode(&file) & 0o777, mode(&lines_file) & 0o777), (0o600, 0o640));
    }
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(saved["messages"].as_array().unwrap().len(), 5);
    assert_eq!(saved["tools"][0]["function"]["name"], "get_weather");
    let kept = home.path().join("state/callwright/chat_history");
    let history = std::fs::read_to_string(&kept).unwrap();
    assert!(history.contains(QUESTION) && !history.contains("never read"), "{history}");
    let mut quiet = callwright(home.path());
    quiet.env("XDG_STATE_HOME", home.path().join("state")).args(["chat", "--no-history"]);
    quiet.write_stdin("/tools\n").assert().success();
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), history);
}

/// `assert_cmd` hands no running process out.
trait Piped {
    fn stdin_piped(&mut self) -> std::process::Child;
}

impl Piped for assert_cmd::Command {
    fn stdin_piped(&mut self) -> std::process::Child {
        let mut command = Command::new(self.get_program());
        command.args(self.get_args());
        for (name, value) in self.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

/// What a chat writes that is given these bytes: standard output and standard error.
fn piped(home: &Path, more: &[&str], input: &[u8]) -> (String, String) {
    let mut child = callwright(home).arg("chat").args(more).env("XDG_STATE_HOME", home.join("state")).stdin_piped();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn contents(path: &Path) -> Vec<String> {
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let asked = saved["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "user");
    asked.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_line_that_cannot_be_read_does_not_end_a_chat() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("chat.json");
    let few = ["-", "--max-tokens", "4"];
    let lines =
        [b"One \xff\n".as_slice(), b"Two\n", format!("/save {}\n", file.display()).as_bytes(), b"Three \\"].concat();
    let (out, err) = piped(home.path(), &few, &lines);
    assert!(err.contains("error: line 1 is passed over: it is not valid UTF-8 at byte 4"), "{err}");
    assert_eq!(contents(&file), ["Two"]);
    // What is begun and not ended is said all the same.
    assert_eq!(out.lines().count(), 2, "{out}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_tool_is_forced_for_one_answer() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("chat.json");
    let lines = format!(
        "/tool\n/tool get_wether\n/tool get_weather\n/tool\nHello\n/tool get_weather\nHello\nHello\n/save {}\n",
        file.display()
    );
    let (out, err) = piped(home.path(), &["--tools", TOOLS, "--max-turns", "1", "--temp", "0"], lines.as_bytes());
    assert_eq!(out.matches("→ get_weather").count(), 1, "{out}{err}");
    assert!(err.contains("there is no tool \"get_wether\"\nhint: the tools are get_weather"), "{err}");
    assert_eq!(err.matches("the model chooses whether it calls a tool").count(), 2, "{err}");
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let roles: Vec<&str> =
        saved["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles[..5], ["user", "assistant", "user", "assistant", "tool"], "the second answer has the call");
    let (_, err) = piped(home.path(), &[], b"/tool clock\n");
    assert!(err.contains("there is no tool \"clock\"\nhint: there are no tools; --tools FILE gives some"), "{err}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_new_conversation_keeps_the_system_message() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("chat.json");
    let lines = format!("One\n/clear\nTwo\n/save {}\n", file.display());
    let (_, err) = piped(home.path(), &["--max-tokens", "4", "--system", "Be brief."], lines.as_bytes());
    assert!(err.contains("a new conversation, with the system message"), "{err}");
    assert_eq!(contents(&file), ["Two"]);
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(saved["messages"][0]["content"], "Be brief.");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_conversation_with_an_open_call_is_loaded_and_stays_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let (open, saved) = (home.path().join("open.json"), home.path().join("saved.json"));
    let conversation = r#"[{"role": "user", "content": "Time?"}, {"role": "assistant", "tool_calls":
        [{"id": "call_1", "function": {"name": "clock", "arguments": "{}"}}]}]"#;
    std::fs::write(&open, conversation).unwrap();
    let lines = format!("/load {}\nHello\n/save {}\n", open.display(), saved.display());
    let (_, err) = piped(home.path(), &["--max-tokens", "4"], lines.as_bytes());
    let note = "the call of clock in messages[1] has no result; the prompt says that it was interrupted";
    assert!(err.contains(note), "{err}");
    let saved = std::fs::read_to_string(&saved).unwrap();
    assert!(saved.contains("call_1") && saved.contains("Hello") && !saved.contains("interrupted"), "{saved}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_command_that_takes_no_argument_says_so() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("chat.json");
    let lines = format!("One\n/clear all\n/undo 2\n/save {}\n/quit now\n/tools x\n/quit\n", file.display());
    let (_, err) = piped(home.path(), &["--max-tokens", "4"], lines.as_bytes());
    for command in ["clear", "undo", "quit", "tools"] {
        assert!(err.contains(&format!("/{command} takes no argument: nothing is done")), "{command}: {err}");
    }
    assert_eq!(contents(&file), ["One"]);
}

/// A terminal that nobody looks at: keys go in, and what is shown comes out.
#[cfg(target_os = "linux")]
pub mod terminal {
    use super::{Path, contents};
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::process::{Child, Command, Stdio};
    use std::sync::{Arc, Mutex};
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    pub struct Terminal {
        keys: File,
        shown: Arc<Mutex<Vec<u8>>>,
        /// Ends when all that was written is in `shown`.
        reader: JoinHandle<()>,
        child: Child,
    }

    impl Terminal {
        /// A chat at a terminal of its own; none where this system cannot give one.
        pub fn chat(home: &Path, more: &[&str]) -> Option<Terminal> {
            Terminal::start(home, "chat", more)
        }

        pub fn start(home: &Path, command: &str, more: &[&str]) -> Option<Terminal> {
            let pty = nix::pty::openpty(None, None).ok()?;
            // Not for the chat: while it held this side, too, it could not see the terminal go.
            fcntl(&pty.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
            let side = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
            // It has to be the process' controlling terminal, where questions are asked.
            let child = Command::new("setsid")
                .arg("--ctty")
                .arg(assert_cmd::cargo::cargo_bin!("callwright"))
                .arg(command)
                .args(more)
                .envs([("HOME", home), ("XDG_STATE_HOME", home), ("XDG_CONFIG_HOME", home)])
                .env("TERM", "xterm")
                .stdin(side(&pty.slave))
                .stdout(side(&pty.slave))
                .stderr(side(&pty.slave))
                .spawn()
                .ok()?;
            drop(pty.slave);
            let keys = File::from(pty.master);
            let mut screen = keys.try_clone().unwrap();
            let shown = Arc::new(Mutex::new(Vec::new()));
            let more = Arc::clone(&shown);
            let reader = std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = screen.read(&mut buffer) {
                    more.lock().unwrap().extend_from_slice(&buffer[..read]);
                }
            });
            Some(Terminal { keys, shown, reader, child })
        }

        pub fn type_keys(&mut self, keys: &str) {
            self.keys.write_all(keys.as_bytes()).unwrap();
        }

        pub fn shown(&self) -> String {
            String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
        }

        /// Waits until this is shown so many times.
        pub fn wait_for(&self, text: &str, times: usize) {
            let started = Instant::now();
            while self.shown().matches(text).count() < times {
                assert!(started.elapsed() < Duration::from_secs(60), "{text:?} is not shown: {}", self.shown());
                std::thread::sleep(Duration::from_millis(10));
            }
        }

        pub fn ends(mut self) -> String {
            let started = Instant::now();
            let status = loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    break status;
                }
                assert!(started.elapsed() < Duration::from_secs(60), "the chat goes on: {}", self.shown());
                std::thread::sleep(Duration::from_millis(10));
            };
            while !self.reader.is_finished() && started.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(status.success(), "{}", self.shown());
            self.shown()
        }
    }

    impl Drop for Terminal {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn parse_says_what_it_waits_for() {
        let home = tempfile::tempdir().unwrap();
        let Some(mut terminal) = Terminal::start(home.path(), "parse", &["--output", "events"]) else { return };
        terminal.wait_for("the model's text is read from standard input", 1);
        terminal.type_keys("Hello\r\x04");
        assert!(terminal.ends().contains(r#"{"type":"text","delta":"Hello"#));
    }

    #[test]
    #[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
    fn lines_that_come_together_are_all_read() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("chat.json");
        let Some(mut terminal) = Terminal::chat(home.path(), &["--max-tokens", "4"]) else { return };
        terminal.wait_for("> ", 1);
        terminal.type_keys(&format!("One\rTwo\rThree\r/save {}\r/quit\r", file.display()));
        terminal.ends();
        assert_eq!(contents(&file), ["One", "Two", "Three"]);
    }

    #[test]
    #[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
    fn text_that_is_pasted_after_a_command_is_read() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("chat.json");
        let Some(mut terminal) = Terminal::chat(home.path(), &["--max-tokens", "4"]) else { return };
        terminal.wait_for("> ", 1);
        // As terminals mark it.
        terminal.type_keys("\x1b[200~/template\nHello\nworld\x1b[201~\r");
        terminal.type_keys(&format!("/save {}\r/quit\r", file.display()));
        let shown = terminal.ends();
        assert!(shown.contains(", calls in the format "), "{shown}");
        assert_eq!(contents(&file), ["Hello\nworld"]);
    }

    #[test]
    #[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
    fn a_long_prompt_shows_how_far_it_is_read_until_ctrl_c_ends_that() {
        let home = tempfile::tempdir().unwrap();
        let system = "You are a helpful assistant who knows a lot. ".repeat(800);
        let more = ["--system", &system, "--ctx", "32768", "--threads", "1"];
        let Some(mut terminal) = Terminal::chat(home.path(), &more) else { return };
        terminal.wait_for("> ", 1);
        terminal.type_keys("Hello\r");
        terminal.wait_for("Reading the prompt: ", 1);
        terminal.type_keys("\x03");
        terminal.wait_for("interrupted", 1);
        let shown = terminal.shown();
        let (_, after) = shown.rsplit_once("Reading the prompt: ").unwrap();
        // The terminal's own ^C may come after the last sign.
        let (cleared, _) = after.split_once("\x1b[33mnote:").unwrap();
        assert!(cleared.ends_with("\r\x1b[K"), "the sign is not cleared: {after:?}");
        terminal.type_keys("/clear\r");
        terminal.wait_for("a new conversation, with the system message", 1);
        terminal.type_keys("/quit\r");
        terminal.ends();
    }

    #[test]
    #[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
    fn commands_and_names_of_tools_are_completed() {
        let home = tempfile::tempdir().unwrap();
        let Some(mut terminal) = Terminal::chat(home.path(), &["--tools", super::TOOLS]) else { return };
        terminal.wait_for("> ", 1);
        terminal.type_keys("/tem\t\r");
        terminal.wait_for(", calls in the format ", 1);
        terminal.type_keys("/tool get\t\r");
        terminal.wait_for("the next answer calls get_weather", 1);
        terminal.type_keys("/qu\t\r");
        terminal.ends();
    }

    #[test]
    #[cfg_attr(not(all(feature = "llama", feature = "mcp")), ignore = "needs llama.cpp and MCP servers")]
    fn an_mcp_server_asks_the_person() {
        let home = tempfile::tempdir().unwrap();
        if Command::new("python3").arg("--version").output().is_err() {
            return;
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/server.py");
        let servers = serde_json::json!({"test": {"command": "python3", "args": [script, "ask"], "autoApprove": true}});
        let file = home.path().join("mcp.json");
        std::fs::write(&file, serde_json::json!({"mcpServers": servers}).to_string()).unwrap();
        let more = ["--mcp", file.to_str().unwrap(), "--max-turns", "1"];
        let Some(mut terminal) = Terminal::chat(home.path(), &more) else { return };
        terminal.wait_for("> ", 1);
        terminal.type_keys("/tool ask\r");
        terminal.wait_for("the next answer calls ask", 1);
        terminal.type_keys("Ask me for a city\r");
        terminal.wait_for("The MCP server \"test\" asks: Which city?", 1);
        terminal.wait_for("city (string): ", 1);
        terminal.type_keys("Oslo\r");
        terminal.wait_for("days (integer; may be left empty): ", 1);
        terminal.type_keys("two\r");
        terminal.wait_for("expected integer; Ctrl-D declines", 1);
        terminal.type_keys("2\r");
        terminal.wait_for("[y/N]", 1);
        terminal.type_keys("y\r");
        terminal.wait_for("the user answered", 1);
        let shown = terminal.shown();
        assert!(shown.contains("\"accept\"") && shown.contains("\"city\": \"Oslo\", \"days\": 2"), "{shown}");
        terminal.type_keys("/quit\r");
        terminal.ends();
    }

    #[test]
    #[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
    fn what_is_typed_before_a_question_is_seen_does_not_answer_it() {
        let home = tempfile::tempdir().unwrap();
        let (file, tools) = (home.path().join("chat.json"), home.path().join("tools.toml"));
        let text = std::fs::read_to_string(super::TOOLS).unwrap();
        let command = "command = [\"echo\", \"fine\"]\nconfirm = true";
        std::fs::write(&tools, text.replace("command = [\"./tools/weather.sh\"]\ntimeout_s = 5", command)).unwrap();
        // A prompt that takes long enough to type something meanwhile.
        let system = "You are a helpful assistant. ".repeat(60);
        let more = ["--tools", tools.to_str().unwrap(), "--system", &system, "--max-turns", "1"];
        let more = [&more[..], &["--tool-choice", "required"]].concat();
        let Some(mut terminal) = Terminal::chat(home.path(), &more) else { return };
        terminal.wait_for("> ", 1);
        terminal.type_keys("What's the weather in Rome?\r");
        // The line editor leaves the terminal.
        terminal.wait_for("\x1b[?2004l", 1);
        terminal.type_keys("/template\r");
        terminal.wait_for("[y/N]", 1);
        assert!(!terminal.shown().contains("← get_weather"), "{}", terminal.shown());
        terminal.type_keys("y\r");
        terminal.wait_for("← get_weather fine", 1);
        terminal.type_keys(&format!("/save {}\r/quit\r", file.display()));
        let shown = terminal.ends();
        assert_eq!(contents(&file), ["What's the weather in Rome?"], "{shown}");
        assert!(shown.contains(", calls in the format "), "{shown}");
    }
}
