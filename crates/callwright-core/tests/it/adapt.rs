//! Conversations that a chat template cannot write unchanged: their prompts and notes.

use callwright_core::message::{Conversation, Message};
use callwright_core::template::{ChatTemplate, RenderRequest};
use callwright_core::tool::Tools;
use serde_json::Value;
use std::path::Path;

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
        let request = RenderRequest::default().with(|set| set.messages = &messages);
        report.push_str(&format!("=== {name}\n"));
        let adapted = match template.render_adapted(&request, &[]) {
            Ok(adapted) => adapted,
            Err(error) => {
                assert_eq!(error.to_string(), template.render(&request).unwrap_err().to_string());
                report.push_str(&format!("{error}\n\n"));
                continue;
            }
        };
        if adapted.notes.is_empty() {
            assert_eq!(adapted.prompt, template.render(&request).unwrap(), "{name}");
        }
        report.push_str(&adapted.prompt.text());
        report.extend(adapted.notes.iter().map(|note| format!("- {note}\n")));
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
        let request = RenderRequest::default().with(|set| (set.messages, set.tools) = (messages, Some(&tools)));
        template.render_adapted(&request, &[]).unwrap()
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
    let request = RenderRequest::default().with(|set| (set.messages, set.tools) = (&messages, Some(&tools)));
    let notes = template.render_adapted(&request, &[]).unwrap().notes;
    assert_eq!(notes, ["chat.jinja: the tools are not in the prompt: the template leaves them out"]);
}

/// A template that drops what the tools returned. An answer that quotes a result does not hide that it is missing.
#[test]
fn a_message_that_others_quote_is_named_if_it_is_left_out() {
    let source = "{% for m in messages %}{% if m.role != 'tool' %}[{{ m.role }}]{{ m.reasoning_content or '' }} {{ \
        m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endif %}{% endfor %}";
    let template = ChatTemplate::new("chat.jinja", source).unwrap();
    let conversation = r#"[{"role": "user", "content": "The weather in Rome?"},
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "function",
          "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny in Rome"},
        {"role": "assistant", "reasoning_content": "The result is: sunny in Rome.", "content": "It is sunny in Rome."}]"#;
    let messages = Conversation::from_value(serde_json::from_str(conversation).unwrap()).unwrap().messages;
    let request = RenderRequest::default().with(|set| set.messages = &messages);
    let notes = template.render_adapted(&request, &[]).unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("the result in messages[2] is shown as text")), "{notes:?}");
}

/// Words that are long enough and in order need no second rendering.
#[test]
fn a_conversation_with_words_of_its_own_is_rendered_once() {
    let source = "{{ tools | tojson }}{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}{% for c in m.tool_calls \
        or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
    let template = ChatTemplate::new("chat.jinja", source).unwrap();
    let tools = Tools::from_json(r#"[{"name": "clock", "description": "The time"}]"#, "tools").unwrap();
    let conversation = r#"[{"role": "user", "content": "What time is it? \n"},
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "function",
          "function": {"name": "clock", "arguments": "{\"zone\": \"UTC\", \"hours\": 24}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "noon"}, {"role": "assistant", "content": "It is noon."}]"#;
    let mut messages = Conversation::from_value(serde_json::from_str(conversation).unwrap()).unwrap().messages;
    template.capabilities();
    let count = |messages: &[Message]| {
        let before = template.renders();
        let request = RenderRequest::default().with(|set| (set.messages, set.tools) = (messages, Some(&tools)));
        assert_eq!(template.render_adapted(&request, &[]).unwrap().notes, [""; 0]);
        let after = template.renders();
        (after.prompts - before.prompts, after.trials - before.trials)
    };
    assert_eq!(count(&messages), (1, 0));
    // A number may be anything: one rendering with other words shows whether it was written.
    messages[2].content = "12".to_owned();
    assert_eq!(count(&messages), (1, 1));
}
