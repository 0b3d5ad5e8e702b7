//! Errors keep the error that caused them, and name no option of a program.

use callwright_core::format::Format;
use callwright_core::message::Conversation;
use callwright_core::template::ChatTemplate;
use callwright_core::tool::Tools;
use callwright_core::{Error, ErrorKind};
use std::error::Error as _;
use std::path::Path;

#[test]
fn an_error_keeps_its_cause() {
    let missing = Tools::from_file("no/such/file.json").unwrap_err();
    let cause = missing.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::NotFound), "{missing}");

    let broken = Conversation::from_json("{\"messages\": [}", "<stdin>").unwrap_err();
    assert!(broken.source().is_some_and(|cause| cause.is::<serde_json::Error>()), "{broken}");

    let template = ChatTemplate::new("chat.jinja", "{% if %}").unwrap_err();
    assert!(template.source().is_some_and(|cause| cause.is::<minijinja::Error>()), "{template}");

    let block = "{#--- callwright\nformat = {\n---#}";
    for error in [Tools::from_toml("[[tool", "tools.toml").unwrap_err(), Format::parse_declaration(block).unwrap_err()]
    {
        assert!(error.source().is_some_and(|cause| cause.is::<toml::de::Error>()), "{error}");
        assert_eq!(error.kind(), ErrorKind::Syntax);
    }

    let schema = r#"[{"name": "f", "parameters": {"type": "object", "properties": 5}}]"#;
    let tools = serde_json::from_str::<serde_json::Value>(schema).unwrap();
    let parameters = tools[0]["parameters"].as_object().cloned();
    let schema = Tools::new([callwright_core::tool::Tool::new("f", "", parameters)]).unwrap_err();
    assert!(schema.source().is_some(), "{schema}");

    assert!(Error::new(ErrorKind::Config, "two options contradict each other").source().is_none());
}

/// A library's user may have no command line. The program adds the option that helps.
#[test]
fn no_message_names_an_option() {
    fn look(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                look(&path, found);
                continue;
            }
            // The table of the names that each front end has for a setting.
            if path.ends_with("src/setting.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let option =
                |line: &&str| line.split("--").skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
            found.extend(lines.filter(option).map(|line| format!("{}: {}", path.display(), line.trim())));
        }
    }
    let mut found = Vec::new();
    look(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert_eq!(found, [""; 0]);
}
