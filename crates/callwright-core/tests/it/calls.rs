//! Calls in the words of templates of another project, and conversations that templates find hard to write.
//!
//! The data is not part of the repository: see data.rs.

use callwright_core::choose::Reading;
use callwright_core::message::{Arguments, Conversation, adopt};
use callwright_core::parse::{Parser, ParserOptions};
use callwright_core::template::{ChatTemplate, RenderRequest};
use callwright_core::tool::Tools;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows that no reader can get right, and why.
const GARBLED: [(&str, &str, &str); 2] = [
    ("vllm-llama3.2_pythonic.jinja", "nested", "it writes each character of the JSON text as an argument"),
    ("vllm-llama4_pythonic.jinja", "nested", "it writes each character of the JSON text as an argument"),
];

/// The folders with data: the one of data.rs, and `conformance-2` beside it. Visibly skipped where there is none.
fn folders() -> Vec<PathBuf> {
    let repository =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.join("models.toml").exists());
    let beside = || repository.map(|repository| repository.join("../shared/conformance"));
    let first = std::env::var_os("CALLWRIGHT_CONFORMANCE").map(PathBuf::from).or_else(beside).unwrap_or_default();
    let second = first.with_file_name("conformance-2");
    let (there, absent): (Vec<_>, Vec<_>) =
        [first, second].into_iter().partition(|folder| folder.join("templates").exists());
    absent.iter().for_each(|folder| eprintln!("SKIPPED: there is no data in {}", folder.display()));
    there
}

#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn conformance_calls_are_read_back_with_their_templates() {
    let Some(folder) = folders().into_iter().find(|folder| folder.join("calls.jsonl").exists()) else {
        return eprintln!("SKIPPED: there is no calls.jsonl");
    };
    let rows = std::fs::read_to_string(folder.join("calls.jsonl")).unwrap();
    let mut report = String::new();
    let mut read = 0;
    for line in rows.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let (name, case) = (row["template"].as_str().unwrap(), row["case"].as_str().unwrap());
        let template = ChatTemplate::from_file(folder.join("templates").join(name)).unwrap();
        let Reading { format, prompt_tail, .. } = Reading::of_template(&template).unwrap();
        let tools = Arc::new(Tools::from_value(&row["tools"]).unwrap());
        let garbled = GARBLED.iter().any(|(template, garbled, _)| (*template, *garbled) == (name, case));
        let mut differs = None;
        for tail in [row["prompt_tail"].as_str().unwrap(), &prompt_tail] {
            let options = ParserOptions::default().with(|set| set.prompt_tail = tail.to_owned());
            let mut parser = Parser::new(&format, Some(Arc::clone(&tools)), options).unwrap();
            parser.push(row["input"].as_str().unwrap().as_bytes(), &mut |_| ());
            let parsed = parser.finish(&mut |_| ());
            let object = |arguments: &Arguments| arguments.as_object().cloned().unwrap_or_default();
            let calls: Value = parsed
                .calls
                .iter()
                .map(|call| json!({"name": call.name, "arguments": object(&call.arguments)}))
                .collect();
            let content = row["expected"]["content"].as_str().unwrap();
            if calls != row["expected"]["tool_calls"] || parsed.content.trim() != content.trim() {
                differs = Some(format!("{name} {case} after {tail:?}: {calls} {:?}\n", parsed.content));
            }
        }
        read += usize::from(differs.is_none());
        match (differs, garbled) {
            (Some(differs), false) => report += &differs,
            (None, true) => report += &format!("{name} {case}: is read now, take it off the list\n"),
            _ => {}
        }
    }
    assert!(report.is_empty(), "{report}");
    assert_eq!((read, rows.lines().count()), (54, 56));
}

/// Every template at hand.
fn templates() -> Vec<ChatTemplate> {
    let files = folders().into_iter().flat_map(|folder| std::fs::read_dir(folder.join("templates")).unwrap());
    files.map(|file| ChatTemplate::from_file(file.unwrap().path()).unwrap()).collect()
}

fn prompt(template: &ChatTemplate, messages: &Value) -> (String, Vec<String>) {
    let (messages, _) = adopt(Conversation::from_value(messages.clone()).unwrap().messages);
    let tools = json!([{"name": "look_up", "description": "Looks it up", "parameters":
        {"type": "object", "properties": {"city": {"type": "string"}}}}]);
    let tools = Tools::from_value(&tools).unwrap();
    let request = RenderRequest::default().with(|set| (set.messages, set.tools) = (&messages, Some(&tools)));
    let adapted = template.render_adapted(&request, &[]).unwrap_or_else(|error| panic!("{error}"));
    (adapted.prompt.text(), adapted.notes)
}

#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn conformance_templates_show_results_in_the_order_of_their_calls() {
    let call =
        |id: &str, city: &str| json!({"id": id, "function": {"name": "look_up", "arguments": json!({"city": city})}});
    let result = |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    let messages = json!([
        {"role": "user", "content": "Both, please"},
        {"role": "assistant", "content": null, "tool_calls": [call("aBc000001", "FIRST-CITY"), call("aBc000002", "SECOND-CITY")]},
        result("aBc000002", "SECOND-RESULT"),
        result("aBc000001", "FIRST-RESULT"),
    ]);
    let mut kept = Vec::new();
    let templates = templates();
    for template in &templates {
        let (text, notes) = prompt(template, &messages);
        let [first, second] = ["FIRST-RESULT", "SECOND-RESULT"].map(|result| text.find(result).unwrap());
        let said = notes.iter().any(|note| note.contains("in the order of the calls"));
        if first < second {
            assert!(said || notes.iter().any(|note| note.contains("one turn each")), "{}: {notes:?}", template.name());
        } else {
            let ids = ["aBc000001", "aBc000002"].map(|id| text.matches(id).count());
            assert!(!said && ids.iter().all(|count| *count > 1), "{}: {text}", template.name());
            kept.push(template.name().to_owned());
        }
    }
    assert!(kept.len() * 5 <= templates.len(), "{kept:?}");
}

#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn conformance_templates_write_an_empty_turn() {
    let messages = json!([
        {"role": "user", "content": "FIRST-QUESTION"}, {"role": "assistant", "content": ""},
        {"role": "user", "content": "SECOND-QUESTION"},
    ]);
    for template in &templates() {
        let (text, notes) = prompt(template, &messages);
        assert!(text.contains("FIRST-QUESTION") && text.contains("SECOND-QUESTION"), "{}", template.name());
        assert!(notes.iter().any(|note| note.contains("has neither text nor calls")), "{}: {notes:?}", template.name());
    }
}
