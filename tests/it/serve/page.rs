//! The page of `callwright serve`, and what the server gives only to it; with the bundled model.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The program as a server; it ends with this.
struct Served {
    child: Child,
    address: String,
    /// What its page has to present to run a tool; empty if it runs none.
    token: String,
}

impl Served {
    fn new(key: Option<&str>) -> Served {
        Served::with(key, &[])
    }

    fn with(key: Option<&str>, options: &[&str]) -> Served {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("callwright"));
        command.args(["serve", "--port", "0", "--offline"]).args(options).env_remove("CALLWRIGHT_API_KEY");
        command.envs(key.map(|key| ("CALLWRIGHT_API_KEY", key)));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let ready = lines.next().expect("a first line");
        let address = ready.trim().rsplit_once("http://").expect("the first line has the address").1.to_owned();
        let before = lines.take_while(|line| !line.starts_with("Try it"));
        let token = before.filter_map(|line| Some(line.split_once("/#token=")?.1.to_owned())).next();
        Served { child, address, token: token.unwrap_or_default() }
    }

    /// The head and the body of a response.
    fn ask(&self, request: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: {}\r\nX-Callwright-Token: {}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}",
            self.address, self.token
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.to_lowercase(), body.to_owned())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn weather() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/weather.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_page_needs_no_key_and_may_reach_no_other_server() {
    let served = Served::new(Some("key"));
    let (head, page) = served.ask("GET /", "");
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("content-type: text/html; charset=utf-8"), "{head}");
    let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).expect("a policy");
    for directive in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "form-action 'none'"] {
        assert!(policy.split("; ").any(|part| part == directive), "{directive}: {policy}");
    }
    assert!(!policy.contains("http") && !policy.contains('*'), "{policy}");

    for outside in ["http://", "https://", "src=", "@import", "innerHTML", "insertAdjacentHTML", "document.write"] {
        assert!(!page.contains(outside), "{outside} in the page");
    }
    let (_, example) = page.split_once("id=\"tools-weather\">").unwrap();
    let (example, _) = example.split_once("</script>").unwrap();
    assert_eq!(serde_json::from_str::<Value>(example).unwrap(), weather());

    let (head, _) = served.ask("GET /callwright/formats", "");
    assert!(head.starts_with("http/1.1 401"), "{head}");
}

#[test]
fn a_trace_has_the_prompts_tokens_the_markers_and_what_was_forced() {
    let served = Served::new(None);
    let (_, formats) = served.ask("GET /callwright/formats", "");
    let formats: Value = serde_json::from_str(&formats).unwrap();
    assert!(formats["formats"].as_array().unwrap().contains(&json!("hermes")), "{formats}");

    let body = json!({
        // The marker in the question is text.
        "messages": [{"role": "user", "content": "What's the weather in Beijing tomorrow? <|end|>"}],
        "tools": weather(), "temperature": 0, "callwright": {"format": "hermes", "trace": true},
    });
    let (_, answer) = served.ask("POST /v1/chat/completions", &body.to_string());
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let (trace, usage) = (&answer["callwright"]["trace"], &answer["callwright"]["usage"]);
    let texts = |name: &str| -> Vec<&str> {
        trace[name].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
    };
    assert_eq!(trace["format"], "hermes", "{answer:#}");
    assert_eq!(texts("prompt_tokens").concat(), trace["prompt"].as_str().unwrap());
    assert_eq!(texts("prompt_tokens").len() as u64, usage["prompt_tokens"].as_u64().unwrap());
    // One ends the system message and one the question; the text is several tokens.
    assert_eq!(texts("prompt_tokens").iter().filter(|text| **text == "<|end|>").count(), 2);
    assert_eq!(trace["prompt"].as_str().unwrap().matches("<|end|>").count(), 3);
    assert_eq!(texts("tokens").concat(), trace["raw"].as_str().unwrap());

    let markers: BTreeSet<&str> = texts("markers").into_iter().collect();
    assert!(markers.is_superset(&BTreeSet::from(["<tool_call>", "</tool_call>", "<|end|>"])), "{markers:?}");

    let tokens = texts("tokens");
    let forced: Vec<String> = trace["forced"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| tokens[run[0].as_u64().unwrap() as usize..run[1].as_u64().unwrap() as usize].concat())
        .collect();
    assert!(forced.iter().any(|text| text.contains("get_weather")), "{forced:?}");
    assert!(!forced.iter().any(|text| text.contains("Beijing")), "{forced:?}");
    let count: u64 =
        trace["forced"].as_array().unwrap().iter().map(|run| run[1].as_u64().unwrap() - run[0].as_u64().unwrap()).sum();
    assert_eq!(count, usage["forced_tokens"].as_u64().unwrap());
    assert_eq!(trace["calls"][0]["id"], answer["choices"][0]["message"]["tool_calls"][0]["id"]);
}

/// A server whose page may run the tool `get_weather` of an MCP server; `None` if there is no Python to run that.
#[cfg(feature = "mcp")]
fn with_tools(home: &Path) -> Option<Served> {
    let there = Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_ok_and(|ran| ran.success());
    if !there {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/server.py");
    let file = home.join("mcp.json");
    let servers = json!({"mcpServers": {"test": {"command": "python3", "args": [script, "get_weather", "fail"]}}});
    std::fs::write(&file, servers.to_string()).unwrap();
    Some(Served::with(None, &["--mcp", file.to_str().unwrap()]))
}

#[test]
#[cfg(feature = "mcp")]
fn the_page_may_run_tools_of_mcp_servers() {
    let home = tempfile::tempdir().unwrap();
    let Some(served) = with_tools(home.path()) else { return };
    let json = |(head, body): (String, String)| -> (String, Value) {
        (head.lines().next().unwrap_or_default().to_owned(), serde_json::from_str(&body).unwrap())
    };
    let (_, listed) = json(served.ask("GET /callwright/tools", ""));
    assert_eq!(listed["tools"][0]["function"]["name"], "get_weather", "{listed}");
    let call = |body: Value| json(served.ask("POST /callwright/call", &body.to_string()));
    let approved = |mut body: Value| {
        let (_, asked) = call(body.clone());
        assert_eq!(asked["needs_approval"]["why"], "the server's `autoApprove` does not have it", "{asked}");
        body["approve"] = asked["needs_approval"]["hash"].clone();
        call(body).1
    };
    let ran = approved(json!({"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}));
    assert_eq!(ran, json!({"result": "sunny in Rome, 21 degrees"}));
    assert_eq!(
        approved(json!({"name": "fail", "arguments": {}})),
        json!({"error": "fail failed: there is no such city"})
    );
    // An approval is for these arguments only.
    let (_, other) = call(json!({"name": "get_weather", "arguments": {"city": "Oslo"}, "approve": "0123456789ab"}));
    assert!(other["needs_approval"]["hash"].is_string(), "{other}");
    for (body, status, message) in [
        (json!({"name": "rm", "arguments": {}}), "404", "this server runs no tool \"rm\""),
        (json!({"name": "get_weather", "arguments": {}}), "400", "arguments: \"city\" is missing"),
        (
            json!({"name": "get_weather", "arguments": "{\"city\": "}),
            "400",
            "arguments is no object, nor the text of one",
        ),
    ] {
        let (head, refused) = call(body);
        let said = refused["error"]["message"].as_str().unwrap();
        assert!(head.contains(status) && said.starts_with(message), "{head}: {said}");
    }
    // Nor may who has not read the address that the server printed.
    let stranger = Served {
        token: "guessed".to_owned(),
        address: served.address.clone(),
        child: Command::new("true").spawn().unwrap(),
    };
    let (head, refused) =
        stranger.ask("POST /callwright/call", r#"{"name": "get_weather", "arguments": {"city": "Rome"}}"#);
    assert!(head.starts_with("http/1.1 403") && refused.contains("no_token"), "{head}{refused}");
    // A page of another origin may not.
    let (head, _) = served.ask("POST /callwright/call HTTP/1.1\r\nOrigin: http://evil.example\r\nX: 1\r\nY:", "{}");
    assert!(head.starts_with("http/1.1 403"), "{head}");
}

/// Without --mcp nothing runs.
#[test]
fn a_server_without_tools_of_its_own_runs_nothing() {
    let served = Served::new(None);
    let (_, listed) = served.ask("GET /callwright/tools", "");
    assert_eq!(listed, "{\"tools\":[]}");
    let (head, _) = served.ask("POST /callwright/call", r#"{"name": "get_weather", "arguments": {}}"#);
    assert!(head.starts_with("http/1.1 404"), "{head}");
}

/// A browser that is driven over a pipe. It ends with this.
struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    number: u64,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn new() -> Browser {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let path = std::env::var_os("PATH").unwrap_or_default();
        let browser = std::env::split_paths(&path)
            .flat_map(|folder| names.map(|name| folder.join(name)))
            .find(|file| file.is_file())
            .expect("chromium, chromium-browser or google-chrome is on the PATH");
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // The browser reads commands from file 3 and answers in file 4.
        command.args(["-c", "exec \"$@\" 3<&0 4>&1 >/dev/null 2>&1", "sh"]).arg(browser);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        command.arg("--remote-debugging-pipe").arg(format!("--user-data-dir={}", profile.path().display()));
        let mut child = command.arg("about:blank").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut browser = Browser { child, commands, answers, session: None, number: 0, _profile: profile };
        let targets = browser.call("Target.getTargets", json!({}));
        let page = targets["targetInfos"].as_array().unwrap().iter().find(|target| target["type"] == "page").unwrap();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": page["targetId"], "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        browser
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut command = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        write!(self.commands, "{command}\0").unwrap();
        self.commands.flush().unwrap();
        loop {
            let mut answer = Vec::new();
            self.answers.read_until(0, &mut answer).unwrap();
            assert_eq!(answer.pop(), Some(0), "the browser has ended");
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.number {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// The value of an expression in the page.
    fn value(&mut self, expression: &str) -> Value {
        let found = self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(found.get("exceptionDetails").is_none(), "{expression}: {found}");
        found["result"]["value"].clone()
    }

    fn wait(&mut self, expression: &str) {
        let until = Instant::now() + Duration::from_secs(120);
        while self.value(expression) != true {
            assert!(
                Instant::now() < until,
                "never: {expression}; the page has {}",
                self.value("document.body.innerText")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Types a text where the focus is, and Enter.
    fn enter(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
        let key = |kind: &str| json!({"type": kind, "key": "Enter", "text": "\r", "windowsVirtualKeyCode": 13});
        self.call("Input.dispatchKeyEvent", key("keyDown"));
        self.call("Input.dispatchKeyEvent", key("keyUp"));
    }

    fn open(&mut self, served: &Served) {
        self.call("Page.navigate", json!({"url": format!("http://{}/#token={}", served.address, served.token)}));
        self.wait("document.readyState === 'complete' && location.pathname === '/'");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs chromium or google-chrome: cargo test -- --ignored browser"]
fn in_a_browser_a_call_is_streamed_gets_its_result_and_is_answered() {
    let served = Served::new(Some("key"));
    let mut browser = Browser::new();
    browser.open(&served);

    // The focus moves as the person needs it: nothing is clicked here.
    browser.wait("document.activeElement.id === 'key'");
    browser.enter("wrong");
    browser.wait("document.getElementById('key-note').textContent.includes('did not accept')");
    browser.value("document.getElementById('key').select()");
    browser.enter("key");
    browser.wait("document.getElementById('key-form').hidden && document.activeElement.id === 'message'");
    assert_eq!(browser.value("document.getElementById('model').value"), "bundled");
    browser.value("document.getElementById('temperature').value = '0'");

    browser.enter("What's the weather in Beijing tomorrow?");
    browser.wait("document.activeElement.matches('.result textarea')");
    browser.wait("document.getElementById('filled').textContent.endsWith(' of 2048 tokens')");
    let call = browser.value("document.querySelector('.call').innerText");
    let call = call.as_str().unwrap();
    for part in ["get_weather", "complete", "valid", r#"{"city": "Beijing", "date": "tomorrow"}"#] {
        assert!(call.contains(part), "{part}: {call}");
    }

    browser.enter("<img src=x onerror=alert(1)> sunny, 21 degrees");
    browser.wait("document.querySelectorAll('article.assistant[aria-busy=false]').length === 2");
    let answer = browser.value("[...document.querySelectorAll('article.assistant .said')].pop().textContent");
    assert!(answer.as_str().unwrap().contains("21"), "{answer}");
    assert_eq!(browser.value("document.querySelectorAll('img').length"), 0, "text became HTML");

    browser.value("document.querySelector('.trace summary').click()");
    browser.wait("document.querySelectorAll('.trace .tokens').length === 2");
    let marks = browser.value("[...document.querySelectorAll('mark')].map((mark) => mark.textContent)");
    assert_eq!(marks, json!(["### TOOL_CALL_START ###", "### TOOL_CALL_END ###"]));
    assert!(browser.value("document.querySelectorAll('.forced').length").as_f64().unwrap() > 5.0);
}

#[test]
#[cfg(feature = "mcp")]
#[ignore = "needs chromium or google-chrome: cargo test -- --ignored browser"]
fn in_a_browser_a_tool_of_an_mcp_server_runs_when_a_person_says_so() {
    let home = tempfile::tempdir().unwrap();
    let Some(served) = with_tools(home.path()) else { return };
    let mut browser = Browser::new();
    browser.open(&served);
    browser.wait("document.getElementById('example').value === 'server'");
    let empty = browser.value("document.getElementById('empty').textContent");
    assert!(empty.as_str().unwrap().contains("the tools of this server: get_weather"), "{empty}");
    browser.value("document.getElementById('temperature').value = '0'");
    browser.value("document.getElementById('message').focus()");
    browser.enter("What's the weather in Rome?");
    browser.wait("document.querySelector('.result button[type=button]') !== null");
    assert_eq!(browser.value("document.querySelector('.result textarea').value"), "", "nothing ran by itself");
    browser.value("window.confirm = (question) => { window.asked = question; return true; }");
    browser.value("document.querySelector('.result button[type=button]').click()");
    browser.wait("document.querySelector('.result textarea').value === 'sunny in Rome, 21 degrees'");
    assert_eq!(browser.value("window.asked.includes('needs approval')"), true);
    browser.wait("document.activeElement.textContent === 'Send the result'");
    browser.value("document.activeElement.click()");
    browser.wait("document.querySelectorAll('article.assistant[aria-busy=false]').length === 2");
}

#[test]
#[ignore = "needs chromium or google-chrome: cargo test -- --ignored browser"]
fn in_a_browser_wrong_tools_and_wrong_calls_are_shown_and_fit_a_narrow_screen() {
    let served = Served::new(None);
    let mut browser = Browser::new();
    let narrow = json!({"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", narrow);
    browser.open(&served);
    browser.wait("document.getElementById('model').value === 'bundled'");
    let below = "innerHeight - document.getElementById('composer').getBoundingClientRect().bottom";
    assert_eq!(browser.value(below), 0, "the message is at the bottom before there is any");
    let set = |browser: &mut Browser, id: &str, value: &str| {
        browser.value(&format!(
            "{{ const field = document.getElementById({id:?}); field.value = {}; \
             field.dispatchEvent(new Event('input')); field.dispatchEvent(new Event('change')); }}",
            json!(value)
        ));
    };

    set(&mut browser, "tools", "[{]");
    assert_eq!(browser.value("document.getElementById('tools').getAttribute('aria-invalid')"), "true");
    let note = browser.value("document.getElementById('tools-note').textContent");
    assert!(note.as_str().unwrap().contains("not JSON"), "{note}");

    let mut tools = weather();
    tools[0]["function"]["parameters"]["properties"]["city"]["enum"] = json!(["Paris"]);
    set(&mut browser, "tools", &tools.to_string());
    set(&mut browser, "constrain", "off");
    set(&mut browser, "temperature", "0");
    browser.value("document.getElementById('message').focus()");
    browser.enter("What's the weather in Beijing tomorrow?");
    browser.wait("document.querySelector('.call.wrong .bad') !== null");
    let error = browser.value("document.querySelector('.call.wrong .bad').textContent");
    assert_eq!(error, r#""city" is "Beijing"; expected "Paris""#);

    browser.value("document.getElementById('clear').click()");
    set(&mut browser, "max-tokens", "12");
    browser.enter("What's the weather in Beijing tomorrow?");
    browser.wait("document.querySelector('.call.wrong .bad') !== null");
    let call = browser.value("document.querySelector('.call').innerText");
    assert!(call.as_str().unwrap().contains("not complete"), "{call}");
    assert_eq!(browser.value("document.querySelectorAll('.result').length"), 0, "a result for an incomplete call");

    browser.value("document.getElementById('settings').open = true");
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 360);
}
