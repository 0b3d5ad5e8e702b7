//! Which format goes with a template of which the history does not say everything.

use callwright_core::check::Subject;
use callwright_core::choose::{Choice, Clues, Origin, Reading, Writes, format_for};
use callwright_core::format::Format;
use callwright_core::message::Message;
use callwright_core::parse::{Parsed, Parser, ParserOptions};
use callwright_core::template::{ChatTemplate, RenderRequest};
use callwright_core::tool::Tools;
use std::sync::Arc;

const PLAIN: &str = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}";

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new("chat.jinja", source).unwrap()
}

fn chosen(source: &str) -> Choice {
    format_for(&template(source), None, Clues::default()).unwrap()
}

fn tools() -> Tools {
    let tools = r#"[{"name": "clock", "description": "Tells the time", "parameters":
        {"type": "object", "properties": {"zone": {"type": "string"}}}}, {"name": "now", "description": "Now"}]"#;
    Tools::from_json(tools, "tools").unwrap()
}

fn read(format: &Format, prompt_tail: &str, text: &str) -> Parsed {
    let options = ParserOptions::default().with(|set| set.prompt_tail = prompt_tail.to_owned());
    let mut parser = Parser::new(format, Some(Arc::new(tools())), options).unwrap();
    parser.push(text.as_bytes(), &mut |_| ());
    parser.finish(&mut |_| ())
}

/// Turns of which those with calls are `calls`, and a prompt with `section` before the tools.
fn turns(section: &str, calls: &str) -> String {
    format!(
        "{{% if tools %}}[sys]{section} {{{{ tools | tojson }}}}[end]{{% endif %}}{{% for m in messages %}}<|{{{{ m.role \
         }}}}|>{{{{ m.content or '' }}}}{{% if m.tool_calls %}}{calls}{{% endif %}}<|end|>{{% endfor %}}{{% if \
         add_generation_prompt %}}<|assistant|>{{% endif %}}"
    )
}

const BARE: &str = "{% for c in m.tool_calls %}{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson \
                    }}{% if not loop.last %},{% endif %}{% endfor %}";

#[test]
fn a_marker_that_the_prompt_asks_for_counts_if_past_calls_have_none() {
    let asks = turns(r#"Write functools[{"name": NAME, "arguments": {}}]."#, BARE);
    let choice = chosen(&asks);
    assert_eq!((choice.format.name.as_str(), choice.origin), ("functools", Origin::Family), "{choice:?}");
    assert!(matches!(choice.writes, Writes::Template(_)));
    assert!(choice.describe().contains("the prompt asks for calls that begin with functools"));
    for text in [
        r#"functools[{"name": "clock", "arguments": {}}, {"name": "now", "arguments": {}}]"#,
        r#"{"name": "clock", "arguments": {}},{"name": "now", "arguments": {}}"#,
    ] {
        let parsed = read(&choice.format, "", text);
        assert_eq!((parsed.calls.len(), parsed.content.as_str()), (2, ""), "{text}");
    }
    // A word alone asks for nothing.
    assert_eq!(chosen(&turns("Never write functools.", BARE)).origin, Origin::Inferred);
    // Calls that the asked format does not read are not replaced.
    let pairs =
        "{% for c in m.tool_calls %}<go>{{ c.function.name }} {{ c.function.arguments | tojson }}</go>{% endfor %}";
    assert_eq!(chosen(&turns("Write functools[{}].", pairs)).origin, Origin::Inferred);
}

#[test]
fn a_list_in_python_that_the_prompt_asks_for_counts_if_past_calls_cannot_be_read() {
    let lost = "{{ m.tool_calls | length }} calls";
    let choice = chosen(&turns("Write [func1(param1=value1), func2(…)].", lost));
    assert_eq!((choice.format.name.as_str(), choice.writes), ("llama4", Writes::Calls));
    assert_eq!(chosen(&turns("Write [1](a) and [x(y)].", lost)).origin, Origin::Default);
}

#[test]
fn a_built_in_format_wins_over_one_that_ends_with_the_turn() {
    let calls = " -> tool/function_call\n{{ '[' }}{% for c in m.tool_calls %}{{ {'name': c.function.name, 'arguments': \
                 c.function.arguments} | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}{{ ']' }}<|im_end|><|stop|>";
    let source = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}{% if \
                  m.tool_calls %}CALLS{% else %}\n{{ m.content }}<|im_end|><|endofturn|>{% endif %}\n{% endfor %}{% if \
                  add_generation_prompt %}<|im_start|>assistant{% endif %}";
    let choice = chosen(&source.replace("CALLS", calls));
    assert_eq!(choice.format.name, "hyperclovax", "{choice:?}");
}

/// Without tools, this template fails; and it writes them next to a system message only.
#[test]
fn a_template_that_needs_tools_or_a_system_message_gets_them() {
    let source = "{% if tools | length > 0 %}{% set any = true %}{% endif %}{% for m in messages %}[{{ m.role }}]{{ \
                  m.content }}{% if m.role == 'system' and any %}{{ tools | tojson }}{% endif %}{% for c in m.tool_calls \
                  or [] %}<tool_call>\n{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson \
                  }}\n</tool_call>{% endfor %}\n{% endfor %}";
    let template = template(source);
    let choice = format_for(&template, None, Clues::default()).unwrap();
    assert!(matches!(choice.writes, Writes::Template(_)), "{choice:?}");
    let (tools, messages) = (tools(), [Message::user("What time is it?")]);
    let request = RenderRequest::default().with(|set| set.messages = &messages);
    assert_eq!(template.render(&request).unwrap().text(), "[user]What time is it?");
    let adapted = template.render_adapted(&request.with(|set| set.tools = Some(&tools)), &[]).unwrap();
    assert!(adapted.prompt.text().contains("Tells the time"), "{adapted:?}");
    assert!(adapted.notes[0].contains("\"You can call tools.\", is inserted at the beginning"), "{:?}", adapted.notes);
}

#[test]
fn variables_that_a_template_cannot_do_without_are_given() {
    let source = "{{ 'Functions: ' + functions + '. ' + datetime + '. ' + today }}{% for m in messages %}[{{ m.role \
                  }}]{{ m.content }}{% for c in m.tool_calls or [] %} functools[{{ {'name': c.function.name, 'arguments': \
                  c.function.arguments} | tojson }}]{% endfor %}{% endfor %}";
    let template = template(source);
    let (tools, messages) = (tools(), [Message::user("What time is it?")]);
    let request = RenderRequest::default().with(|set| {
        (set.messages, set.tools) = (&messages, Some(&tools));
        set.now = "2026-01-15T12:30:00".parse().ok();
    });
    let prompt = template.render(&request).unwrap().text();
    assert!(prompt.contains("Functions: [\n    {\n        \"name\": \"clock\","), "{prompt}");
    assert!(prompt.contains("2026-01-15 12:30:00. 15 Jan 2026"), "{prompt}");
    assert!(matches!(format_for(&template, None, Clues::default()).unwrap().writes, Writes::Template(_)));
    let given = request.with(|set| drop(set.variables.insert("today".to_owned(), "Thursday".into())));
    assert!(template.render(&given).unwrap().text().contains("12:30:00. Thursday"));
    let listed =
        ChatTemplate::new("chat.jinja", source.replace("functions + '. '", "functions[0].function.name + '. '"));
    assert!(listed.unwrap().render(&given).unwrap().text().starts_with("Functions: clock. "));
    // A name that says nothing gets no value.
    let unknown = ChatTemplate::new("chat.jinja", "{{ 'x' + whatever }}{{ messages[0].content }}").unwrap();
    assert!(unknown.render(&given).is_err());
}

#[test]
fn the_end_of_the_prompt_and_of_the_turn_come_from_the_template() {
    let source = turns("", BARE).replace("<|assistant|>{% endif %}", "<|assistant|><think>{% endif %}");
    let source = source.replace(
        "{{ m.content or '' }}",
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}",
    );
    let Reading { format, prompt_tail, .. } = Reading::of_template(&template(&source)).unwrap();
    assert_eq!(prompt_tail, "<|assistant|><think>");
    let parsed = read(&format, &prompt_tail, "Hm.</think>It is noon.<|end|>");
    assert_eq!((parsed.content.as_str(), parsed.reasoning.as_deref()), ("It is noon.", Some("Hm.")));
    let parsed = read(&format, &prompt_tail, "</think>{\"name\": \"now\", \"arguments\": {}}<|end|>");
    assert_eq!((parsed.calls.len(), parsed.content.as_str()), (1, ""));
}

#[test]
fn slips_in_a_template_are_remarked() {
    let remarks = |source: &str| Subject::new(&template(source), None).check(None).unwrap().remarks;
    let source = turns("", BARE).replace("in messages", "in mesages");
    assert_eq!(remarks(&source), ["nothing sets the variable `mesages`; did you mean `messages`?"]);
    let source =
        turns("{{ '{{\"name\": <name>}}' }}{% if enable_thinking %}!{% endif %}{% set mine = 1 %}{{ mine }}", BARE);
    let found = remarks(&source);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0], "nothing sets `enable_thinking`, unless it is given with the variables");
    assert!(
        found[1].starts_with("the prompt shows the model doubled braces, as for Python's format: {{\"name\": <name>}}")
    );
    assert_eq!(remarks(&turns("{\"name\": {\"a\": {}}}", BARE)), [""; 0]);
}

#[test]
fn the_family_follows_from_vocabulary_and_architecture() {
    let is_token = |text: &str| matches!(text, "<tool_call>" | "</tool_call>");
    let chosen_by = |architecture, tokens: bool, source| {
        let is_token: Option<&dyn Fn(&str) -> bool> = if tokens { Some(&is_token) } else { None };
        let choice = format_for(&template(source), None, Clues { architecture, is_token }).unwrap();
        (choice.format.name.clone(), choice.origin, choice.describe())
    };
    let (name, origin, said) = chosen_by("", true, PLAIN);
    assert_eq!((name.as_str(), origin), ("hermes", Origin::Family));
    assert_eq!(said, "format hermes, because the model's vocabulary has <tool_call>, </tool_call>");
    let (name, _, said) = chosen_by("lfm2moe", false, PLAIN);
    assert_eq!((name.as_str(), said.as_str()), ("lfm2", "format lfm2, because the model's architecture is lfm2moe"));
    assert_eq!(chosen_by("llama", false, PLAIN).1, Origin::Default);
}

#[test]
fn two_tokens_of_one_format_identify_the_family_even_if_its_other_markers_are_plain_text() {
    let chosen_by = |tokens: &'static [&str]| {
        let is_token = move |text: &str| tokens.contains(&text);
        format_for(&template(PLAIN), None, Clues { architecture: "", is_token: Some(&is_token) })
            .unwrap()
            .format
            .name
            .clone()
    };
    assert_eq!(chosen_by(&["<seed:tool_call>", "</seed:tool_call>", "<seed:think>"]), "seed-oss");
    assert_eq!(chosen_by(&["<minimax:tool_call>", "</minimax:tool_call>"]), "minimax-m2");
    assert_eq!(chosen_by(&["<tool_call>", "</tool_call>", "<response>", "</response>"]), "ernie-4.5");
    assert_eq!(chosen_by(&["<seed:tool_call>"]), "delimited");
}

#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn conformance_families_get_their_built_in_format() {
    let expected = [
        ("openai-gpt-oss-120b.jinja", "gpt-oss", "template"),
        ("LFM2-8B-A1B.jinja", "lfm2", "calls"),
        ("deepseek-ai-DeepSeek-V3.1.jinja", "deepseek-v3.1", "section"),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", "deepseek-r1", "section"),
    ];
    let mut found_families = 0;
    for (file, source) in crate::data::conformance_templates() {
        let Some((_, name, writes)) = expected.iter().find(|(known, ..)| *known == file) else { continue };
        let choice = chosen(&source);
        let found = match choice.writes {
            Writes::Template(_) => "template",
            Writes::Calls => "calls",
            _ => "section",
        };
        assert_eq!((choice.format.name.as_str(), choice.origin, found), (*name, Origin::Family, *writes), "{file}");
        found_families += 1;
    }
    assert_eq!(found_families, expected.len());
}

#[test]
fn the_sections_of_all_built_in_formats_teach_their_markers() {
    let plain = ChatTemplate::builtin("chatml").unwrap().unwrap();
    for builtin in Format::builtins() {
        let section = ChatTemplate::new(builtin.name, builtin.format().source()).unwrap();
        let mut subject = Subject::new(&plain, Some(builtin.format()));
        subject.section = Some(&section);
        assert_eq!(subject.check(None).unwrap().problems, [""; 0], "{}", builtin.name);
    }
}
