//! Suites: files, the built-in one, a sample of each category; and every complaint.

use super::scores::cases;
use crate::suite::{EXAMPLE, Expected, Suite};
use callwright::ErrorKind;
use std::collections::BTreeMap;
use std::path::Path;

const TOOLS: &str = r#""tools": [{"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}]"#;

fn read(text: &str) -> callwright::Result<Suite> {
    Suite::from_text("test", text, Path::new("test.jsonl"))
}

#[test]
fn the_example_can_be_asked() {
    let suite = read(EXAMPLE).unwrap();
    assert_eq!(suite.cases.len(), 4);
    assert_eq!(suite.cases[2].expected, Expected::NoCall);
    assert_eq!(suite.cases[3].messages.len(), 3);
    let Expected::Calls(calls) = &suite.cases[0].expected else { panic!() };
    assert_eq!(calls[0].arguments[0].accepted.len(), 3);
    assert!(calls[0].arguments[2].optional);
    for key in ["id", "category", "prompt", "messages", "tools", "expected", "cluster", "accept", "optional"] {
        assert!(EXAMPLE.contains(&format!("\"{key}\"")), "{key} is not explained");
    }
}

#[test]
fn a_limit_takes_of_each_category_its_share() {
    let suite = Suite::builtin().unwrap();
    let all = suite.cases.len();
    let count = |suite: &Suite| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        suite.cases.iter().for_each(|case| *counts.entry(case.category.clone()).or_default() += 1);
        counts
    };
    let before = count(&suite);
    let few = suite.clone().limited(73);
    assert_eq!(few.cases.len(), 73);
    for (category, kept) in count(&few) {
        let share = before[&category] as f64 * 73.0 / all as f64;
        assert!((kept as f64 - share).abs() < 1.0, "{category}: {kept} of {share}");
    }
    // The same ones, in their order, however the limit is reached.
    assert_eq!(few.sha256(), suite.clone().limited(73).sha256());
    let places: Vec<usize> =
        few.cases.iter().map(|case| suite.cases.iter().position(|other| other.id == case.id).unwrap()).collect();
    assert!(places.is_sorted());
    assert_ne!(places, (0..73).collect::<Vec<_>>());
    assert_eq!(suite.clone().limited(10_000).cases.len(), all);
    assert_eq!(suite.limited(1).cases.len(), 1);
}

#[test]
fn what_is_wrong_with_a_case_is_said_with_its_line() {
    let lines = [
        ("3", "the line is no object"),
        ("{\"id\": 1, ", "not valid JSON"),
        ("  {\"id\": \"a\",, \"prompt\"}", "test.jsonl:3:14: not valid JSON: key must be a string\n3 |   {\"id\""),
        (r#"{"prompt": "x", "expected": "any"}"#, "\"any\" call is expected, and the case has no tools"),
        (
            r#"{"prompt": "x", "expects": []}"#,
            "the case has the unknown key \"expects\"\nhint: did you mean `expected`?",
        ),
        (r#"{"id": 5, "prompt": "x", "expected": []}"#, "\"id\" is 5; expected a string"),
        (
            r#"{"id": "", "prompt": "x", "expected": []}"#,
            "\"id\" is empty\nhint: without an \"id\" a case is named after its line",
        ),
        ("[", "a list begins here; a suite has a case a line, each an object\nhint: `callwright bench init FILE`"),
        (r#"{"expected": []}"#, "a case has either \"messages\" or \"prompt\""),
        (r#"{"prompt": "x"}"#, "\"expected\" is missing, or no list\nhint: a list of calls, []"),
        (r#"{"prompt": "x", "expected": "all"}"#, "\"expected\" is missing, or no list"),
        (r#"{"prompt": "x", "tools": 3, "expected": []}"#, "\"tools\" is no list"),
        (r#"{"prompt": "x", "expected": [], "bfcl": {}}"#, "\"bfcl\" has no \"category\""),
        (
            r#"{"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]}], "expected": []}"#,
            "the call \"1\" of f in messages[0] has no result yet",
        ),
        (
            r#"{"messages": [{"role": "human", "content": "Hi"}], "expected": []}"#,
            "messages[0].role is \"human\"; it is read as \"user\"",
        ),
        (r#"{"messages": [], "expected": []}"#, "there is no question: the conversation is empty"),
        (
            r#"{"messages": [{"role": "system", "content": "x"}], "expected": []}"#,
            "there is no question: no message is the user's",
        ),
    ];
    for (line, message) in lines {
        let error = read(&format!("// a comment\n\n{line}\n")).unwrap_err();
        let shown = error.to_string();
        assert!(shown.starts_with("test.jsonl:3") && shown.contains(message), "{line}\n{shown}");
    }
    let calls = [
        ("3", "an expected call is 3"),
        ("{}", "an expected call has no \"name\""),
        (
            r#"{"name": "g"}"#,
            "the expected call is of \"g\", which is none of the case's tools\nhint: did you mean `f`?",
        ),
        (r#"{"name": "f", "args": {}}"#, "an expected call has the unknown key \"args\""),
        (r#"{"name": "f", "arguments": [1]}"#, "\"arguments\" of f is [1]; expected an object"),
        (r#"{"name": "f", "accept": {"a": 1}}"#, "\"accept\" of a is 1; expected a list of values"),
        (r#"{"name": "f", "optional": "a"}"#, "\"optional\" is no list of argument names"),
        (r#"{"name": "f", "optional": ["a"]}"#, "\"optional\" names \"a\", which \"arguments\" has not"),
    ];
    for (call, message) in calls {
        let error = read(&format!(r#"{{"prompt": "x", {TOOLS}, "expected": [{call}]}}"#)).unwrap_err();
        assert!(error.to_string().contains(message), "{call}\n{error}");
    }
    // No model can make a call that its tool's schema refuses.
    let tools = r#""tools": [{"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}},
        "required": ["n"], "additionalProperties": false}}]"#
        .replace('\n', " ");
    let refused = [
        (r#""arguments": {"n": "1"}"#, "no model can make the expected call of f: \"n\" is \"1\"; expected an integer"),
        (r#""arguments": {}"#, "no model can make the expected call of f: \"n\" is missing"),
        (r#""arguments": {"n": 1, "m": 2}"#, "no model can make the expected call of f: "),
        (r#""accept": {"n": ["one", 1]}"#, "no model can make the expected call of f: \"n\" is \"one\""),
    ];
    for (call, message) in refused {
        let error = read(&format!(r#"{{"prompt": "x", {tools}, "expected": [{{"name": "f", {call}}}]}}"#)).unwrap_err();
        assert!(error.to_string().contains(message), "{call}\n{error}");
    }
    // As editors on Windows begin a file.
    assert_eq!(read("\u{feff}{\"prompt\": \"x\", \"expected\": []}").unwrap().cases.len(), 1);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tools.json"), "[{\"name\": \"f\",}]").unwrap();
    let line = "// tools of their own\n{\"prompt\": \"x\", \"tools\": \"tools.json\", \"expected\": []}";
    let error = Suite::from_text("test", line, &folder.path().join("test.jsonl")).unwrap_err().to_string();
    assert!(
        error.contains("tools.json:1:15: not valid JSON") && error.contains("test.jsonl:2 names this file"),
        "{error}"
    );
    let twice = format!(r#"{{"id": "a", "prompt": "x", {TOOLS}, "expected": []}}"#);
    let error = read(&format!("{twice}\n{twice}")).unwrap_err();
    assert_eq!(error.to_string(), "test.jsonl:2: there are two cases with the id \"a\"");
    assert!(read("// nothing\n").unwrap_err().to_string().contains("there are no cases in the suite"));
}

#[test]
fn what_is_no_suite_says_what_one_is() {
    let open = |spec: &str| Suite::open(spec).unwrap_err();
    let error = open("builtins");
    assert_eq!(error.kind(), ErrorKind::Suite);
    assert!(error.to_string().contains("there is no suite \"builtins\"") && error.to_string().contains("bench init"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    assert!(open(&format!("bfcl:{path}")).to_string().contains("there are no cases of BFCL (BFCL_v4_*.json)"));
    assert!(open(&format!("bfcl:{path}:paralell")).to_string().contains("did you mean `parallel`?"));
    assert!(open(&format!("bfcl:{path}:java")).to_string().contains("the categories are simple_python"));
}

#[test]
fn a_checkout_is_read_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("bfcl_eval/data");
    std::fs::create_dir_all(data.join("possible_answer")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(data.join(name), text).unwrap();
    let case = r#"{"id": "parallel_0", "question": [[{"role": "user", "content": "Add 1 and 2."}]], "function": [{"name": "math.add", "description": "Adds.", "parameters": {"type": "dict", "properties": {"a": {"type": "integer"}, "b": {"type": "float"}}, "required": ["a"]}}]}"#;
    write("BFCL_v4_parallel.json", case);
    let spec = format!("bfcl:{}", folder.path().display());
    assert!(Suite::open(&spec).unwrap_err().to_string().contains("cannot read"));
    write("possible_answer/BFCL_v4_parallel.json", "");
    assert!(Suite::open(&spec).unwrap_err().to_string().contains("there are 0 answers to 1 cases"));
    write(
        "possible_answer/BFCL_v4_parallel.json",
        r#"{"id": "parallel_0", "ground_truth": [{"math.add": {"a": [1], "b": [2, ""]}}]}"#,
    );
    let suite = Suite::open(&spec).unwrap();
    let Expected::Calls(calls) = &suite.cases[0].expected else { panic!() };
    assert_eq!((calls[0].name.as_str(), calls[0].arguments[1].optional), ("math.add", true));
    assert_eq!(suite.cases[0].tools.get("math.add").unwrap().schema().unwrap()["type"], "object");
    write("BFCL_v4_parallel.json", &case.replace("question", "questions"));
    let error = Suite::open(&spec).unwrap_err().to_string();
    assert!(error.contains("BFCL_v4_parallel.json:1: there is no \"question\""), "{error}");
}

#[test]
fn tools_may_stand_in_a_file_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tools.json"), r#"[{"name": "f"}]"#).unwrap();
    let path = folder.path().join("suite.jsonl");
    std::fs::write(&path, r#"{"prompt": "x", "tools": "tools.json", "expected": [{"name": "f"}]}"#).unwrap();
    let suite = Suite::open(path.to_str().unwrap()).unwrap();
    assert_eq!(suite.cases[0].tools.len(), 1);
    assert_eq!(cases().cases[1].tools.len(), 1);
}
