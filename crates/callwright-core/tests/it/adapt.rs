//! Conversations that a chat template cannot write unchanged: their prompts and notes.

use callwright_core::message::{Conversation, Message, Placed, complete};
use callwright_core::template::{ChatTemplate, RenderRequest};
use callwright_core::tool::Tools;
use serde_json::Value;
use std::path::Path;

fn placed(messages: &[Message]) -> Vec<Placed> {
    messages.iter().cloned().enumerate().map(|(at, message)| Placed::new(at, message)).collect()
}

/// Every case: the prompt and the notes, or the error. A prompt without notes is the unadapted one.
#[test]
fn cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/adapt");
    let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let mut report = String::new();
    for name in names {
        let name = name.to_str().unwrap();
        let case: Value = serde_json::from_str(&std::fs::read_to_string(folder.join(name)).unwrap()).unwrap();
        let template = ChatTemplate::new("chat.jinja", case["template"].as_str().unwrap()).unwrap();
        let messages = Conversation::from_value(case["messages"].clone()).unwrap().messages;
        let (completed, mut notes) = complete(placed(&messages));
        let request = RenderRequest::default().with(|set| set.messages = &messages);
        report.push_str(&format!("=== {name}\n"));
        let adapted = match template.render_adapted(&request, completed) {
            Ok(adapted) => adapted,
            Err(error) => {
                assert_eq!(error.to_string(), template.render(&request).unwrap_err().to_string());
                report.push_str(&format!("{error}\n\n"));
                continue;
            }
        };
        notes.extend(adapted.notes);
        if notes.is_empty() {
            assert_eq!(adapted.prompt, template.render(&request).unwrap(), "{name}");
        }
        report.push_str(&adapted.prompt.text());
        report.extend(notes.iter().map(|note| format!("- {note}\n")));
        report.push('\n');
    }
    insta::assert_snapshot!("adapted", report);
}

#[test]
fn tools_lost_next_to_a_system_message_are_named() {
    let source = "{% if tools and messages[0].role != 'system' %}{{ tools | tojson }}{% endif %}{% for m in messages %}\
        [{{ m.role }}]{{ m.content }}{% endfor %}";
    let template = ChatTemplate::new("chat.jinja", source).unwrap();
    let tools = Tools::from_json(r#"[{"name": "clock", "description": "The time"}]"#, "tools").unwrap();
    let render = |messages: &[Message]| {
        let request = RenderRequest::default().with(|set| {
            set.messages = messages;
            set.tools = Some(&tools);
        });
        template.render_adapted(&request, placed(messages)).unwrap()
    };
    assert!(render(&[Message::user("Hi")]).notes.is_empty());
    let adapted = render(&[Message::system("Be brief."), Message::user("Hi")]);
    assert!(adapted.prompt.text().contains("clock") && adapted.prompt.text().contains("Be brief."), "{adapted:?}");
    assert_eq!(adapted.notes.len(), 1, "{:?}", adapted.notes);
    // There is no user message for the instructions.
    let lost = "{% if tools and messages | length == 1 %}{{ tools | tojson }}{% endif %}{% for m in messages %}\
        [{{ m.role }}]{{ m.content }}{% endfor %}";
    let template = ChatTemplate::new("chat.jinja", lost).unwrap();
    let messages = [Message::user("Hi"), Message::assistant("Hello."), Message::user("Time?")];
    let request = RenderRequest::default().with(|set| {
        set.messages = &messages;
        set.tools = Some(&tools);
    });
    let notes = template.render_adapted(&request, placed(&messages)).unwrap().notes;
    assert_eq!(notes, ["chat.jinja: the tools are not in the prompt: the template leaves them out"]);
}
