//! Declaration blocks: their content, and the errors for invalid ones.

use callwright_core::format::{Format, Marker, Payload};
use callwright_core::message::{Arguments, ToolCall};
use callwright_core::template::CallHistory;
use serde_json::json;

fn error(source: &str) -> String {
    Format::parse_declaration(source).expect_err(source).to_string()
}

/// A block with these lines, from line 2 on.
fn block(lines: &str) -> String {
    format!("{{#--- callwright\n{lines}\n---#}}\nHello")
}

const SOUND: &str = "[format]\nstart = '<call>'\nend = '</call>'\nliteral = true\npayload = 'json'\n";

const NAMED: &str = "[format]\nstart = '<call>'\nend = '</call>'\nliteral = true\npayload = 'named'\n";
const TAGGED: &str = "[format]\nstart = '<call>'\nend = '</call>'\nliteral = true\npayload = 'tagged'\n[call]\nhead = \
    '{name}'\n[argument]\nkey_start = '<a '\nvalue_end = '</a>'\n";

#[test]
fn a_file_without_a_block_declares_nothing() {
    for source in ["", "Hello {{ name }}", "{# a comment #}\nHello", "text {#--- callwright\n---#}"] {
        assert!(Format::parse_declaration(source).unwrap().is_none(), "{source}");
    }
}

#[test]
fn a_block_declares_markers_keys_and_history() {
    let source = block(&format!("{SOUND}name = 'mine'\n[keys]\narguments = 'parameters'\n[history]\nbetween = ' '"));
    let format = Format::parse_declaration(&source).unwrap().expect("there is a block");
    assert_eq!(format.name, "mine");
    assert_eq!(format.start, Some(Marker::Literal("<call>".into())));
    let Payload::Json(keys) = &format.payload else { panic!("it declares JSON") };
    assert_eq!((&*keys.name, &*keys.arguments), ("name", "parameters"));
    assert_eq!(format.reserved().collect::<Vec<_>>(), ["<call>", "</call>"]);
    let call = |arguments| ToolCall { id: None, name: "say \"hi\"".into(), arguments };
    let object = serde_json::from_str(r#"{"a": [1, {"b": null}], "c": "{end}"}"#).unwrap();
    let calls = [call(Arguments::Object(object)), call(Arguments::Raw("{broken".into()))];
    assert_eq!(
        format.assistant("Well:", &calls),
        "Well: <call>{\"name\": \"say \\\"hi\\\"\", \"parameters\": {\"a\": [1, {\"b\": null}], \"c\": \"{end}\"}}</call> \
         <call>{\"name\": \"say \\\"hi\\\"\", \"parameters\": {broken}</call>"
    );
}

#[test]
fn the_built_in_format_writes_calls_as_its_section_shows_them() {
    let format = Format::builtin("delimited").unwrap();
    let mut arguments = serde_json::Map::new();
    arguments.insert("ARGUMENT".into(), "VALUE".into());
    let call = ToolCall { id: None, name: "TOOL_NAME".into(), arguments: Arguments::Object(arguments) };
    assert!(format.source().contains(&format.assistant("", &[call])));
    assert_eq!(
        format.result("clock", "call00001", "{id} {content}"),
        "### TOOL_RESULT_START clock call00001 ###\n{id} {content}\n### TOOL_RESULT_END ###"
    );
}

#[test]
fn the_block_leaves_no_trace_in_the_prompt() {
    let format = Format::builtin("delimited").unwrap();
    let mut environment = minijinja::Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_template("delimited", format.source()).unwrap();
    let template = environment.get_template("delimited").unwrap();
    assert_eq!(template.render(minijinja::context! { tools => () }).unwrap(), "");
    let tool = json!({"type": "function", "function": {"name": "clock"}});
    let prompt = template.render(minijinja::context! { tools => vec![tool.clone(), tool] }).unwrap();
    assert!(prompt.starts_with("# Tools\n"), "{prompt}");
    assert!(prompt.ends_with("as JSON:\n{\"name\":\"clock\"}\n{\"name\":\"clock\"}\n"), "{prompt}");
}

#[test]
fn every_error_names_the_place_and_the_fix() {
    let cases = [
        ("not closed", "\n{#--- callwright\n[format]\n".to_owned()),
        ("closed too early", "{#--- callwright\n[format]\nstart = 'x#}'\n---#}".to_owned()),
        ("not TOML", block("[format]\nstart = <call>")),
        ("no format", block("[keys]\nname = 'name'")),
        ("unknown table", block(&format!("{SOUND}[histroy]\n"))),
        ("unknown key", block("[format]\nstrat = '<call>'")),
        ("key far from any", block(&format!("{SOUND}colour = 'red'"))),
        ("no end", block("[format]\nstart = '<call>'\npayload = 'json'")),
        ("blank marker", block("[format]\nstart = ' '\nend = 'x'\npayload = 'json'")),
        ("no start", block("[format]\nstart = ''\nend = 'x'\npayload = 'named'\n[call]\nhead = '{name}'")),
        ("not text", block("[format]\nstart = 5\npayload = 'json'")),
        ("not a switch", block("[format]\nliteral = 'yes'")),
        ("not a table", block("format = 'json'")),
        ("unknown payload", block("[format]\nstart = 'a'\nend = 'b'\npayload = 'jason'")),
        ("not a pattern", block("[format]\nstart = '('\nend = 'b'\npayload = 'json'")),
        ("no bound", block("[format]\nstart = 'a'\nend = 'b+'\npayload = 'json'")),
        ("pattern without its text", block("[format]\nstart = '[ab]'\nend = 'b'\npayload = 'json'")),
        ("unknown part", block(&format!("{SOUND}[history]\nresult = '{{content}}{{nam}}'"))),
        ("needless table", block(&format!("{SOUND}[call]\nhead = '{{name}}'"))),
        ("no head", block("[format]\nstart = 'a'\nend = ''\npayload = 'named'\n[call]\n")),
        ("head without name", block("[format]\nstart = 'a'\nend = ''\npayload = 'named'\n[call]\nhead = '{id}'")),
        ("unknown part of a head", block("[format]\nstart = 'a'\nend = ''\npayload = 'named'\n[call]\nhead = '{nme}'")),
        ("no arguments", block("[format]\nstart = 'a'\nend = ''\npayload = 'tagged'\n[call]\nhead = '{name}'")),
        ("half a section", block(&format!("{SOUND}[section]\nstart = '<calls>'"))),
        ("markup that is no list", block("[format]\nmarkup = '<end>'\nstart = 'a'\nend = 'b'\npayload = 'json'")),
        ("style of what cannot be written", block(&format!("{SOUND}[styles]\nhermes = {{ n = 1 }}"))),
        ("part missing", block(&format!("{SOUND}[history]\nresult = 'It is {{name}}'"))),
        (
            "unmarked calls in no list",
            block("[format]\nstart = ''\nend = ''\npayload = 'python'\n[call]\nlist = false"),
        ),
        ("keyed with a name", block(&format!("{SOUND}[keys]\nkeyed = true\nname = 'tool'"))),
        ("header in what is written", block(&format!("{NAMED}[call]\nhead = ['{{name}}{{header}}<|m|>']"))),
        ("unknown key of reasoning", block(&format!("{SOUND}[reasoning]\nstart = '<t>'\nend = '</t>'\nopened = true"))),
        ("open that is no flag", block(&format!("{SOUND}[reasoning]\nstart = '<t>'\nend = '</t>'\nopen = 'yes'"))),
        ("hidden that is no list", block(&format!("{SOUND}[reasoning]\nstart = '<t>'\nend = '</t>'\nhidden = 'x'"))),
        ("types without their part", block(&format!("{TAGGED}key_end = '>'\ntypes = {{ string = 'a', other = 'b' }}"))),
        ("type without text around it", block(&format!("{TAGGED}key_end = '{{type}}>'"))),
        ("type twice", block(&format!("{TAGGED}key_end = ' {{type}} {{type}}>'"))),
        ("unknown type", block(&format!("{TAGGED}key_end = ' {{type}}>'\ntypes = {{ strin = 'a' }}"))),
        ("type without a word", block(&format!("{TAGGED}key_end = ' {{type}}>'\ntypes = {{ string = 'a' }}"))),
        ("word that is none", block(&format!("{TAGGED}key_end = ' {{type}}>'\ntypes = {{ string = '' }}"))),
        ("one word for all", block(&format!("{TAGGED}key_end = ' {{type}}>'\ntypes = {{ other = 'a' }}"))),
        ("types and nested", block(&format!("{TAGGED}key_end = ' {{type}}>'\nnested = true"))),
        ("suffix that is none", block(&format!("{SOUND}suffix = 'x y'"))),
        ("suffix that no marker has", block(&format!("{SOUND}suffix = ':preview'"))),
        ("part where none is", block(&format!("{SOUND}[history]\nbetween = '{{call}}'"))),
    ];
    let all: String = cases.iter().map(|(name, source)| format!("== {name}\n{}\n", error(source))).collect();
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("declaration_errors", all));
}
