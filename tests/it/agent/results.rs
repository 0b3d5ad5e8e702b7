//! Results that are larger than the context: what the model is shown of them, and how it reads the rest.

use crate::agent::run::{call, info, run, texts_of};
use crate::hooked::Hooked;
use callwright::agent::Agent;
use callwright::agent::journal::Journal;
use callwright::agent::turn::Status;
use callwright::constraint::Mode;
use callwright::engine::scripted::ScriptedEngine;
use callwright::engine::{Engine, ModelInfo};
use callwright::message::{Message, Role};
use callwright::session::{ContextPolicy, Session};
use callwright::tool::Effect;
use callwright::{ErrorKind, Tools};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

const CONTEXT: usize = 8192;
/// So many tokens of the context are kept for the answer.
const ANSWER: usize = 1024;

#[derive(Deserialize, JsonSchema)]
struct Search {
    /// Which result it is
    place: usize,
}

/// What a test looks at.
struct Setting {
    session: Session,
    agent: Agent,
    prompts: Arc<Mutex<Vec<String>>>,
}

impl Setting {
    /// A model that says this, and a tool `search` that returns the texts in turn.
    fn new(context: usize, results: &[&str], says: impl FnMut(&str) -> String + Send + 'static) -> Setting {
        let info = ModelInfo { context_train: context, ..info("main") };
        let prompts = Arc::<Mutex<Vec<String>>>::default();
        let mut engine = Hooked::new(ScriptedEngine::from_texts(info, []));
        let (mut says, seen) = (says, Arc::clone(&prompts));
        // It answers by what its prompt says. Its tokens are bytes.
        engine.on_begin = Box::new(move |script, prompt| {
            let text = prompt.iter().flat_map(|token| u8::try_from(token.0)).collect();
            let text = String::from_utf8(text).unwrap();
            let answer = says(&text);
            seen.lock().unwrap().push(text);
            *script = ScriptedEngine::from_texts(script.model().clone(), [answer.as_str()]);
            Ok(())
        });
        let mut session = Session::new(Box::new(engine), None, None).unwrap();
        session.options_mut().max_tokens = ANSWER;
        session.options_mut().loop_guard = false;
        let mut agent = Agent::default();
        agent.limits.max_turns = 200;
        let results: Vec<String> = results.iter().map(ToString::to_string).collect();
        let search = agent
            .executor
            .function("search", "Search", move |Search { place }: Search| Ok::<_, String>(results[place].clone()));
        session.set_tools(Tools::new([search.effect(Effect::Read)]).unwrap());
        Setting { session, agent, prompts }
    }

    /// Runs; the answer, and the events.
    fn ask(&mut self) -> (String, Vec<Value>) {
        let (outcome, events) = run(&mut self.session, &mut self.agent, "What is the code?");
        assert_eq!(outcome.status, Status::Done, "{:?}", outcome.failure);
        for prompt in self.prompts.lock().unwrap().iter() {
            assert!(prompt.len() + ANSWER <= self.session.context_limit().0, "{} tokens", prompt.len());
        }
        (outcome.answer, events)
    }

    fn prompts(&self) -> Vec<String> {
        self.prompts.lock().unwrap().clone()
    }
}

fn search(place: usize) -> String {
    call("search", &format!("{{\"place\": {place}}}"))
}

/// With the spaces that the grammar has.
fn read(arguments: &Value) -> String {
    call("read_result", &arguments.to_string().replace("\":", "\": ").replace(",\"", ", \""))
}

/// The last number between two texts.
fn number(text: &str, before: &str, after: &str) -> Option<usize> {
    let mut from = text.len();
    while let Some(at) = text[..from].rfind(before) {
        let rest = &text[at + before.len()..];
        if let Some(number) = rest.split(after).next().and_then(|number| number.parse().ok())
            && rest.contains(after)
        {
            return Some(number);
        }
        from = at;
    }
    None
}

const CODE: &str = "the code is ";

/// The code, if a prompt has it; digits are followed by a full stop.
fn code(prompt: &str) -> Option<usize> {
    number(prompt, CODE, ".")
}

/// Answers with the code as soon as it sees it, and until then reads page after page.
fn pages(prompt: &str) -> String {
    if let Some(code) = code(prompt) {
        return format!("It is {code}.");
    }
    if !prompt.contains("are left out here") {
        return search(0);
    }
    let last = prompt.rfind("### TOOL_CALL_START ###").map_or("", |at| &prompt[at..]);
    if !last.contains("\"read_result\"") {
        let first =
            number(last, "[lines ", " to ").or(number(last, "[elements ", " to ")).or(number(last, "[parts ", " to "));
        return read(&json!({"id": 1, "from": first.unwrap_or(1)}));
    }
    match number(last, "; from ", " goes on]") {
        Some(from) => read(&json!({"id": 1, "from": from})),
        None => "It is nowhere.".to_owned(),
    }
}

/// Answers with the code as soon as it sees it, and until then looks for its words.
fn queries(prompt: &str) -> String {
    match code(prompt) {
        Some(code) => format!("It is {code}."),
        None if prompt.contains("; read_result with id 1 reads them]") => {
            read(&json!({"id": 1, "query": "The Code is"}))
        }
        None => search(0),
    }
}

/// Searches once.
fn once(prompt: &str) -> String {
    if prompt.contains("are left out here") { "Done.".to_owned() } else { search(0) }
}

/// Numbers without an order, the same ones each time.
fn random(seed: usize) -> impl FnMut(usize) -> usize {
    let mut state = seed as u64;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

/// About so many bytes, in lines.
fn log(bytes: usize) -> Vec<String> {
    let mut random = random(bytes);
    let mut lines = Vec::new();
    let mut length = 0;
    while length < bytes {
        lines.push(format!("{} entry {} {}", lines.len(), random(1 << 30), "x".repeat(random(60))));
        length += lines.last().unwrap().len() + 1;
    }
    lines
}

#[test]
fn a_value_anywhere_in_72_000_tokens_is_found_in_a_context_of_8_000() {
    let mut places = random(7);
    let says: [fn(&str) -> String; 2] = [pages, queries];
    for says in says {
        for round in 0..20 {
            let mut lines = log(72_000);
            let place = places(lines.len());
            let wanted = 1000 + places(9000);
            lines[place] = format!("{} {CODE}{wanted}.", lines[place]);
            let mut setting = Setting::new(CONTEXT, &[&lines.join("\n")], says);
            let (answer, events) = setting.ask();
            assert_eq!(answer, format!("It is {wanted}."), "line {place} of {} in round {round}", lines.len());
            let read = texts_of(&events, "tool_result", "name").iter().filter(|name| **name == "read_result").count();
            assert!(read <= 60, "{read} calls for line {place}");
        }
    }
}

#[test]
fn a_result_that_fits_changes_no_prompt() {
    let says = |prompt: &str| if prompt.contains("sunny") { "Sunny.".to_owned() } else { search(0) };
    let mut setting = Setting::new(CONTEXT, &["sunny"], says);
    setting.ask();
    let mut other = Setting::new(CONTEXT, &["sunny"], |_| String::new());
    other.session.set_messages(setting.session.messages()[..3].to_vec()).unwrap();
    assert_eq!(setting.prompts()[1], other.session.prompt().unwrap().0.text());
    assert!(setting.prompts().iter().all(|prompt| !prompt.contains("read_result")));
}

/// The result as the last prompt of the first question shows it.
fn shown(prompt: &str, begin: &str, end: &str) -> String {
    let from = prompt.rfind(begin).unwrap();
    let to = prompt.rfind(end).unwrap() + end.len();
    prompt[from..to].to_owned()
}

#[test]
fn the_beginning_and_the_end_are_shown_in_whole_lines_and_fill_the_room() {
    let lines = log(72_000);
    let mut setting =
        Setting::new(CONTEXT, &[&lines.join("\n")], |prompt| match prompt.contains("are left out here") {
            true => "Done.".to_owned(),
            false => search(0),
        });
    let (_, events) = setting.ask();
    let prompt = setting.prompts()[1].clone();
    let shown = shown(&prompt, &lines[0], lines.last().unwrap());
    let shown: Vec<&str> = shown.lines().collect();
    let gap = shown.iter().position(|line| line.contains("left out")).unwrap();
    let end = shown.len() - gap - 1;
    assert_eq!(shown[..gap], lines[..gap]);
    assert_eq!(shown[gap + 1..], lines[lines.len() - end..]);
    let (first, last) = (gap + 1, lines.len() - end);
    let sentence = format!("lines {first} to {last} of {}", lines.len());
    assert_eq!(shown[gap], format!("[{sentence} are left out here; read_result with id 1 reads them]"));
    let bytes = |lines: &[&str]| lines.iter().map(|line| line.len()).sum::<usize>();
    assert!(bytes(&shown[..gap]).abs_diff(bytes(&shown[gap + 1..])) < 200, "{gap} and {end} lines");
    // None of the next lines would have fitted.
    let next = lines[gap].len().min(lines[lines.len() - end - 1].len()) + 1;
    assert!(prompt.len() + next > CONTEXT - ANSWER, "{} tokens, and {next} more", prompt.len());
    let note =
        format!("the model is not shown {sentence} of the result of search in messages[2]: the prompt would not fit");
    assert_eq!(texts_of(&events, "context", "message"), [note]);
    // Whoever does not execute calls could not answer one of this tool.
    assert!(!setting.session.tools().iter().any(|tool| tool.name == "read_result"));
}

#[test]
fn of_json_whole_elements_are_shown() {
    let element = |number: usize| {
        let name = "ä".repeat(number % 40);
        json!({"name": name, "tags": [1, [2, "a, b"], {"c": "]}"}], "number": number})
    };
    let list: Vec<Value> = (0..600).map(element).collect();
    let texts = [
        Value::from(list.clone()).to_string(),
        serde_json::to_string_pretty(&list).unwrap(),
        json!({"total": 600, "rows": list}).to_string(),
    ];
    for (text, unit) in texts.iter().zip(["elements", "elements", "parts"]) {
        let mut setting = Setting::new(CONTEXT, &[text], once);
        setting.ask();
        let prompt = setting.prompts()[1].clone();
        let shown = shown(&prompt, &text[..12], &text[text.len() - 12..]);
        let (begin, end) = shown.split_once(&format!("\n[{unit} ")).unwrap();
        let (begin, end) = (begin.trim_end().trim_end_matches(','), end.split_once('\n').unwrap().1);
        let (begin, end) = match unit {
            "elements" => (format!("{begin}]"), format!("[{end}")),
            _ => (format!("{begin}]}}"), format!("{{\"rows\":[{end}")),
        };
        let [begin, end] = [begin, end].map(|text| serde_json::from_str::<Value>(&text).unwrap());
        let [begin, end] = [&begin, &end].map(|value| value.get("rows").unwrap_or(value).as_array().unwrap());
        assert_eq!((&begin[..], &end[..]), (&list[..begin.len()], &list[600 - end.len()..]), "{unit}");
        assert!(begin.len() > 4 && end.len() > 4, "{unit}: {} and {}", begin.len(), end.len());
    }
}

/// What the pages have, one after another.
fn paged(events: &[Value]) -> String {
    let pages = events.iter().filter(|event| event["type"] == "tool_result" && event["name"] == "read_result");
    // A result ends without a line break.
    pages.map(|event| event["content"].as_str().unwrap().split_once('\n').unwrap().1.to_owned() + "\n").collect()
}

#[test]
fn the_pages_of_any_text_are_the_whole_text() {
    let whole = |prompt: &str| match prompt.contains("left out here") || prompt.contains("read_result") {
        false => search(0),
        true => match prompt.rfind("### TOOL_CALL_START ###").map_or("", |at| &prompt[at..]) {
            last if !last.contains("\"read_result\"") => read(&json!({"id": 1, "from": 1})),
            last => number(last, "; from ", " goes on]")
                .map_or("Read.".to_owned(), |from| read(&json!({"id": 1, "from": from}))),
        },
    };
    let list: Vec<Value> = (0..300).map(|number| json!({"n": number, "text": "€".repeat(number % 50)})).collect();
    let mut texts = vec![
        log(20_000).join("\n"),
        log(20_000).join("\r\n") + "\r\n",
        Value::from(list).to_string(),
        json!({"text": "a\u{1f600}".repeat(4000), "n": [1, 2]}).to_string(),
        format!("{}1{}", "[".repeat(9000), "]".repeat(9000)),
    ];
    // One line, with characters of each length at each place.
    texts.extend((0..4).map(|offset| "x".repeat(offset) + &"ä€😀".repeat(2000)));
    for text in texts {
        let mut setting = Setting::new(CONTEXT, &[&text], whole);
        let (answer, events) = setting.ask();
        assert_eq!(answer, "Read.");
        let [read, text] = [paged(&events), text].map(|text| text.replace(['\r', '\n'], ""));
        assert!(
            read == text,
            "{} bytes of {}: {:?}",
            read.len(),
            text.len(),
            text.chars().take(50).collect::<String>()
        );
    }
}

#[test]
fn a_value_anywhere_in_one_line_is_found() {
    let mut places = random(3);
    for round in 0..20 {
        let mut text: String = (0..72_000).map(|_| char::from(b'a' + u8::try_from(places(26)).unwrap())).collect();
        let wanted = 1000 + places(9000);
        text.insert_str(places(72_000), &format!(" {CODE}{wanted}. "));
        let (answer, _) = Setting::new(CONTEXT, &[&text], queries).ask();
        assert_eq!(answer, format!("It is {wanted}."), "round {round}");
    }
}

#[test]
fn two_large_results_of_one_answer_share_the_room_and_are_read_by_their_ids() {
    let (one, mut two) = (log(30_000), log(50_000));
    two[700] = format!("{CODE}77.");
    let says = |prompt: &str| match code(prompt) {
        Some(code) => format!("It is {code}."),
        None if prompt.contains("with id 2") => {
            format!("{}\n{}", read(&json!({"id": 1, "query": CODE})), read(&json!({"id": 2, "query": CODE})))
        }
        None => format!("{}\n{}", search(0), search(1)),
    };
    let mut setting = Setting::new(CONTEXT, &[&one.join("\n"), &two.join("\n")], says);
    let (answer, events) = setting.ask();
    assert_eq!(answer, "It is 77.");
    let prompt = setting.prompts()[1].clone();
    for (id, lines) in [(1, &one), (2, &two)] {
        assert!(
            prompt.contains(&format!("of {} are left out here; read_result with id {id} reads them]", lines.len()))
        );
        assert!(prompt.contains(&lines[5]) && prompt.contains(&lines[lines.len() - 5]), "{id}");
    }
    let results = texts_of(&events, "tool_result", "content");
    let none = format!("[none of the {} lines contains \"the code is \"]", one.len());
    let one = format!("[1 of the {} lines contains \"the code is \"]\n701: the code is 77.", two.len());
    assert_eq!(results[2..], [none, one]);
}

#[test]
fn whatever_is_asked_for_the_answer_says_what_there_is() {
    let asked = [
        json!({"id": 9}),
        json!({"id": -1}),
        json!({"id": 0}),
        json!({"id": 1e300}),
        json!({"id": 18_446_744_073_709_551_615_u64, "from": 1}),
        json!({"id": 1, "from": 5000}),
        json!({"id": 1, "from": 0}),
        json!({"id": 1, "from": -3}),
        json!({"id": 1, "from": 9.9e99}),
        json!({"id": 1, "from": 2, "lines": 0}),
        json!({"id": 1, "from": 2, "lines": -9_223_372_036_854_775_808_i64}),
        json!({"id": 1, "from": 2, "lines": 2}),
        json!({"id": 1, "from": 2000, "lines": 9_223_372_036_854_775_807_i64}),
        json!({"id": 1, "query": "number 12", "lines": 2}),
        json!({"id": 1, "query": "NUMBER 1999", "from": 1900}),
        json!({"id": 1, "query": "nothing \"like\" this"}),
        json!({"id": 1, "query": "number 7", "from": 1990}),
        json!({"id": 2, "query": "é"}),
        json!({"id": 2, "from": 2}),
        json!({"id": 3}),
    ];
    let lines: Vec<String> = (1..=2000).map(|number| format!("number {number}")).collect();
    let mut calls = vec![[search(0), search(1), search(2)].join("\n")]
        .into_iter()
        .chain(asked.iter().map(read).collect::<Vec<_>>());
    let results = [&*lines.join("\n"), r#"["caf\u00e9", "b"]"#, ""];
    let mut setting = Setting::new(CONTEXT, &results, move |_| calls.next().unwrap_or("Done.".to_owned()));
    setting.session.options_mut().constrain = Mode::Off;
    let (_, events) = setting.ask();
    let results: Vec<&Value> = events.iter().filter(|event| event["type"] == "tool_result").skip(3).collect();
    assert!(results.iter().all(|result| result["ok"] == true), "{results:?}");
    let lines =
        asked.iter().zip(&results).map(|(asked, result)| format!("{asked}\n{}", result["content"].as_str().unwrap()));
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n\n"));
}

#[test]
fn many_reads_in_one_answer_fit_together() {
    let lines = log(72_000);
    let mut setting = Setting::new(CONTEXT, &[&lines.join("\n")], |prompt| {
        if prompt.contains("[lines 1 to ") && prompt.contains("read_result\"") {
            "Done.".to_owned()
        } else if prompt.contains("with id 1") {
            (0..16).map(|place| read(&json!({"id": 1, "from": 1 + place * 50}))).collect::<Vec<_>>().join("\n")
        } else {
            search(0)
        }
    });
    setting.session.options_mut().max_tokens = CONTEXT / 4;
    let (_, events) = setting.ask();
    let results = texts_of(&events, "tool_result", "content");
    assert_eq!(results.len(), 17);
    assert!(results[1..].iter().all(|result| result.contains(" goes on]\n") && result.lines().count() > 1));
    assert!(results[1..].concat().len() <= CONTEXT / 4, "{}", results[1..].concat().len());
}

#[test]
fn a_tool_of_the_user_keeps_its_name() {
    let lines = log(30_000);
    let says = |prompt: &str| {
        if prompt.contains("from the user") && prompt.contains("[1 of the ") {
            "Both.".to_owned()
        } else if prompt.contains("; read_result_2 with id 1 reads them]") {
            format!("{}\n{}", read(&json!({})), call("read_result_2", r#"{"id": 1, "query": "20 entry"}"#))
        } else {
            search(0)
        }
    };
    let mut lines_ = lines;
    lines_.iter_mut().skip(21).for_each(|line| *line = line.replace("20 entry", "20"));
    let mut setting = Setting::new(CONTEXT, &[&lines_.join("\n")], says);
    let own = setting
        .agent
        .executor
        .function("read_result", "Read", |_: HashMap<String, Value>| Ok::<_, String>("from the user"));
    let tools = setting.session.tools().iter().cloned().chain([own.effect(Effect::Read)]).collect::<Vec<_>>();
    setting.session.set_tools(Tools::new(tools).unwrap());
    assert_eq!(setting.ask().0, "Both.");
}

#[test]
fn a_run_goes_on_wherever_its_journal_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (folder.path().join("whole.jsonl"), folder.path().join("cut.jsonl"));
    let mut lines = log(72_000);
    lines[900] = format!("{CODE}4711.");
    let text = lines.join("\n");
    let mut first = Setting::new(CONTEXT, &[&text], queries);
    first.session.set_messages(vec![Message::user("What is the code?")]).unwrap();
    first.session.journal(&whole).unwrap();
    first.session.run(&mut first.agent, &mut |_| ()).unwrap().ok().unwrap();
    let bytes = std::fs::read(&whole).unwrap();
    let ends: Vec<usize> = (1..=bytes.len()).filter(|end| bytes[end - 1] == b'\n').collect();
    assert!(ends.len() > 6, "{}", ends.len());
    for end in ends {
        std::fs::write(&cut, &bytes[..end]).unwrap();
        let journal = Journal::read(&cut).unwrap();
        let mut setting = Setting::new(CONTEXT, &[&text], queries);
        setting.session.set_messages(journal.messages).unwrap();
        setting.session.journal_on(&cut, &journal.unjoined).unwrap();
        setting.agent.unknown = journal.unknown;
        setting.agent.executor.confirm =
            Some(Box::new(|question| panic!("{} needs no approval: {}", question.call.name, question.why)));
        if journal.finished.is_none() {
            let outcome = setting.session.run(&mut setting.agent, &mut |_| ()).unwrap();
            assert_eq!(outcome.status, Status::Done, "{end}: {:?}", outcome.failure);
        }
        let messages = setting.session.messages();
        assert_eq!(messages.last().unwrap().content, "It is 4711.", "{end}");
        let failed = messages.iter().find(|message| message.role == Role::Tool && message.content.starts_with("error"));
        assert!(failed.is_none(), "{end}: {failed:?}");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(whole.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_recorded_run_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let mut lines = log(72_000);
    lines[900] = format!("{CODE}4711.");
    let mut setting = Setting::new(CONTEXT, &[&lines.join("\n")], queries);
    setting.session.set_messages(vec![Message::user("What is the code?")]).unwrap();
    setting.session.record(&path).unwrap();
    setting.session.run(&mut setting.agent, &mut |_| ()).unwrap().ok().unwrap();
    let (mut session, agent) = Session::replay_run(&path).unwrap();
    let outcome = session.run(&mut agent.unwrap(), &mut |_| ()).unwrap().ok().unwrap();
    assert_eq!(outcome.answer, "It is 4711.");
    assert_eq!(session.messages(), setting.session.messages());
}

#[test]
fn another_conversation_begins_without_the_tool() {
    let mut lines = log(72_000);
    lines[900] = format!("{CODE}4711.");
    let mut setting = Setting::new(CONTEXT, &[&lines.join("\n")], queries);
    setting.ask();
    setting.session.set_messages(Vec::new()).unwrap();
    let before = setting.prompts().len();
    assert_eq!(setting.ask().0, "It is 4711.");
    assert!(!setting.prompts()[before].contains("read_result"));
    assert!(setting.prompts()[before + 1].contains("read_result"));
}

#[test]
fn where_nobody_answers_the_tools_calls_only_the_text_says_what_is_left_out() {
    let lines = log(30_000).join("\n");
    let mut setting = Setting::new(CONTEXT, &[], |_| "Done.".to_owned());
    let calls = Message::calls(vec![callwright::message::ToolCall {
        id: Some("call00001".into()),
        name: "search".into(),
        arguments: callwright::message::Arguments::from_text("{}"),
    }]);
    let messages = vec![Message::user("?"), calls, Message::tool("call00001", "search", lines)];
    setting.session.set_messages(messages).unwrap();
    setting.session.respond(&mut |_| ()).unwrap();
    let prompt = &setting.prompts()[0];
    assert!(prompt.contains(" are left out here]\n") && !prompt.contains("read_result"), "{prompt}");
}

#[test]
fn what_does_not_fit_is_named_with_its_tokens() {
    let large = log(72_000).join("\n");
    let mut setting = Setting::new(CONTEXT, &[&large], |_| search(0));
    setting.session.options_mut().context = ContextPolicy::Error;
    setting.session.set_messages(vec![Message::user("?")]).unwrap();
    let outcome = setting.session.run(&mut setting.agent, &mut |_| ()).unwrap();
    let error = outcome.error.unwrap();
    assert_eq!(error.kind(), ErrorKind::ContextOverflow);
    let named = format!("; the largest message is messages[2], the result of search, with {}", large.len());
    assert!(error.message().ends_with(&named), "{error}");

    // Of a result that is shortened, only what is left of it counts.
    let question = "Why? ".repeat(2000);
    let mut setting = Setting::new(CONTEXT, &[&large], |_| search(0));
    let call = callwright::message::ToolCall {
        id: Some("call00001".into()),
        name: "search".into(),
        arguments: callwright::message::Arguments::from_text("{}"),
    };
    let messages =
        vec![Message::user(&question), Message::calls(vec![call]), Message::tool("call00001", "search", &large)];
    setting.session.set_messages(messages).unwrap();
    let error = setting.session.run(&mut setting.agent, &mut |_| ()).unwrap_err();
    let named = format!("; the largest message is messages[0], of role user, with {}", question.len());
    assert!(error.message().ends_with(&named), "{error}");
}

#[test]
fn without_a_constraint_the_calls_are_read_as_well() {
    let mut lines = log(72_000);
    lines[900] = format!("{CODE}4711.");
    let mut setting = Setting::new(CONTEXT, &[&lines.join("\n")], queries);
    setting.session.options_mut().constrain = Mode::Off;
    assert_eq!(setting.ask().0, "It is 4711.");
}

#[cfg(feature = "remote")]
mod program {
    use super::{CODE, log};
    use crate::engine::model_server::{Answer, ModelServer};
    use crate::program::{callwright, run};
    use serde_json::{Value, json};

    /// The model: it searches, looks for the code in the result, and says it.
    fn script(request: &Value) -> Answer {
        let call = |name: &str, arguments: Value| {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            let call = json!({"index": 0, "id": format!("call_{name}"), "type": "function", "function": function});
            Answer::Deltas(vec![json!({"tool_calls": [call]})], "tool_calls")
        };
        let text = request["messages"].to_string();
        match super::code(&text) {
            Some(code) => Answer::Deltas(vec![json!({"content": format!("It is {code}.")})], "stop"),
            None if text.contains("read_result with id 1") => call("read_result", json!({"id": 1, "query": CODE})),
            None => call("search", json!({})),
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_run_of_the_program_reads_what_its_tool_printed() {
        let server = ModelServer::start([]).answering(script);
        let home = tempfile::tempdir().unwrap();
        let (log_file, tools) = (home.path().join("log"), home.path().join("tools.toml"));
        let mut lines = log(288_000);
        lines[3000] = format!("{CODE}4711.");
        std::fs::write(&log_file, lines.join("\n")).unwrap();
        let tool = format!("[[tool]]\nname = \"search\"\neffect = \"read\"\ncommand = [\"cat\", {log_file:?}]\n");
        std::fs::write(&tools, tool).unwrap();
        let model = format!("openai-chat:{}", server.url);
        let arguments =
            ["run", "What is the code?", "--execute", "--tools", tools.to_str().unwrap(), "--model", &model];
        let ran = run(callwright(home.path()).env("NO_PROXY", "*").args(arguments));
        assert!(ran.code == 0 && ran.out.ends_with("It is 4711.\n"), "{} {}", ran.out, ran.err);
        assert!(ran.err.contains("note: the model is not shown lines "), "{}", ran.err);
        let offered: Vec<bool> =
            server.requests().iter().map(|request| request["tools"].to_string().contains("read_result")).collect();
        assert_eq!(offered, [false, true, true]);
    }
}
