//! What a user of the crate sees: variables, placeholders and errors.

use minijinja_transformers::{ErrorKind, Placeholders, RenderOptions, Template, json_escapes, variables};
use serde_json::{Map, json};
use std::error::Error as _;

#[test]
fn a_conversation_has_the_variables_of_transformers() {
    let source = "{{ messages[0].content }} {{ tools }} {{ documents }} {{ add_generation_prompt }} {{ bos_token }}";
    let template = Template::new(source).unwrap();
    assert_eq!(template.source(), source);
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let mut given = variables(messages.clone(), None, true);
    assert_eq!(template.render(&given).unwrap(), "Hi None None True ");
    given.insert("bos_token".into(), json!("<s>"));
    assert_eq!(template.render(&given).unwrap(), "Hi None None True <s>");
    let given = variables(messages, Some(json!([{"type": "function"}])), false);
    assert_eq!(template.render(&given).unwrap(), "Hi [{'type': 'function'}] None False ");
}

#[test]
fn variables_that_a_template_needs_are_known() {
    let source = "{% set a = 1 %}{{ a }}{{ zeta }}{{ strftime_now('%Y') }}{% for m in messages %}{{ m ~ beta }}{% endfor %}\
        {{ range(2)[1:] + [2 ** 3] }}";
    assert_eq!(Template::new(source).unwrap().undeclared_variables(), ["beta", "messages", "zeta"]);
}

#[test]
fn placeholders_are_text_until_json_escapes_what_they_stand_for() {
    let template =
        Template::new("{{ x }} {{ x | upper | trim }} {{ x | tojson(ensure_ascii=true) }} {{ [x] }}").unwrap();
    let render = |text: &str| {
        let placeholders = Placeholders { first: 0x100000, originals: vec![text.to_owned()] };
        let options = RenderOptions { placeholders, ..RenderOptions::default() };
        let given = json!({"x": "a\u{100000}é"});
        template.render_with(given.as_object().unwrap(), options).unwrap()
    };
    assert!(!json_escapes("<|im_end|>"));
    assert_eq!(render("<|im_end|>"), "a\u{100000}é A\u{100000}É \"a\u{100000}\\u00e9\" ['a\u{100000}é']");
    assert!(json_escapes("<|\"|>"));
    assert_eq!(render("<|\"|>"), "a\u{100000}é A\u{100000}É \"a<|\\\"|>\\u00e9\" ['a\u{100000}é']");
}

#[test]
fn an_error_has_its_kind_and_its_place() {
    let error = |source: &str| {
        let rendered = Template::new(source).and_then(|template| template.render(&Map::new()));
        rendered.map_err(|error| (error.kind, error.to_string())).unwrap_err()
    };
    for (source, kind, text) in [
        ("ä\n{% if x", ErrorKind::Syntax, "line 2, column 7: unexpected end of input, expected end of block"),
        ("{% endfor %}", ErrorKind::Syntax, "line 1, column 4: unknown statement endfor"),
        (
            "ää{{ raise_exception('No tools') }}",
            ErrorKind::Raised,
            "line 1, column 6: No tools (the chat template itself raises this error)",
        ),
        ("\n{{ x.y.z }}", ErrorKind::Render, "line 2, column 4: a member of an undefined value is used"),
        (
            "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
            ErrorKind::Limit,
            "line 1, column 1: the template takes too many steps (is there an endless loop?)",
        ),
    ] {
        assert_eq!(error(source), (kind, text.to_owned()), "{source}");
    }
    let error = Template::new("{{ x | nosuch }}").unwrap().render(&Map::new()).unwrap_err();
    let cause = error.source().and_then(|cause| cause.downcast_ref()).map(ErrorKind::of);
    assert_eq!((error.offset, cause), (Some(7), Some(ErrorKind::Render)));
}

/// A template cannot take the place of what bounds it.
#[test]
fn the_variable_of_the_limits_cannot_be_overwritten() {
    let error = Template::new("{% set __callwright = 1 %}{{ 'x' }}").unwrap().render(&Map::new()).unwrap_err();
    assert_eq!(error.message, "the template overwrites __callwright");
}
