//! Messages in the common shapes, and every way in which a history can be wrong.

use callwright_core::message::{
    Conversation, Message, Placed, ToolCall, adopt, check_answered, check_order, complete, open_calls,
};
use std::path::Path;

/// Every case: the result and how it is written again, or the error.
#[test]
fn cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/messages");
    let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let mut report = String::new();
    for name in names {
        let name = name.to_str().unwrap();
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let result = Conversation::from_json(&text, name);
        let outcome = match &result {
            Ok(conversation) => {
                let again = Conversation::from_value(conversation.to_json()).unwrap();
                assert_eq!(again.messages, conversation.messages, "{name} is not the same when it is read again");
                let mut outcome = match check_order(&conversation.messages) {
                    Ok(()) => serde_json::to_string_pretty(&conversation.to_json()).unwrap(),
                    Err(error) => error.to_string(),
                };
                outcome.extend(conversation.notes.iter().map(|note| format!("\n- {note}")));
                outcome
            }
            Err(error) => error.to_string(),
        };
        report.push_str(&format!("=== {name}\n{outcome}\n\n"));
    }
    insta::assert_snapshot!("messages", report);
}

#[test]
fn a_missing_or_binary_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Conversation::from_file(folder.path().join("no.json")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read ") && missing.contains("no.json"), "{missing}");
    let path = folder.path().join("latin1.json");
    std::fs::write(&path, b"[\"\xe4\"]").unwrap();
    let wrong = Conversation::from_file(&path).unwrap_err().to_string();
    assert!(wrong.contains("latin1.json") && wrong.ends_with("not valid UTF-8 at byte 2"), "{wrong}");
}

#[test]
fn the_last_calls_may_be_open() {
    let call = |id: &str| ToolCall {
        id: Some(id.to_owned()),
        name: "now".to_owned(),
        arguments: callwright_core::message::Arguments::from_text(""),
    };
    let history = [Message::user("Hi"), Message::calls(vec![call("a"), call("b")]), Message::tool("a", "now", "12:00")];
    check_order(&history).unwrap();
    let open = open_calls(&history).unwrap();
    assert_eq!(open.iter().map(|call| call.id.as_deref()).collect::<Vec<_>>(), [Some("b")]);
}

/// Histories of other programs: the result and the notes, and that a second pass changes nothing.
#[test]
fn foreign_histories_are_repaired() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/adopt");
    let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let mut report = String::new();
    for name in names {
        let name = name.to_str().unwrap();
        report.push_str(&format!("=== {name}\n"));
        let (messages, notices) = adopt(Conversation::from_file(folder.join(name)).unwrap().messages);
        assert_eq!(adopt(messages.clone()), (messages.clone(), Vec::new()), "{name}");
        let placed = messages.into_iter().enumerate().map(|(at, message)| Placed::new(at, message)).collect();
        let (placed, notes) = complete(placed);
        let messages: Vec<Message> = placed.iter().map(|placed| placed.message.clone()).collect();
        check_answered(&messages).unwrap();
        assert_eq!(complete(placed.clone()), (placed, Vec::new()), "{name}");
        for message in &messages {
            let ids: Vec<&str> = message.tool_calls.iter().filter_map(|call| call.id.as_deref()).collect();
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            report.push_str(&format!("{} {id}{}: {}\n", message.role.as_str(), ids.join(" "), message.content));
        }
        report.extend(notices.iter().chain(&notes).map(|notice| format!("- {notice}\n")));
        report.push('\n');
    }
    insta::assert_snapshot!("adopted", report);
}
