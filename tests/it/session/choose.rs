//! Which format a template gets by itself, what is said of it, and what the prompt then has.

use crate::program::{callwright, run};
use callwright::engine::{ModelInfo, scripted::ScriptedEngine};
use callwright::format::Format;
use callwright::message::Message;
use callwright::template::ChatTemplate;
use callwright::{Session, Tools};

/// Tools, but no calls: LFM2's and Granite's templates are like this.
const TOOLS_ONLY: &str = "{% if tools %}<|tool_list_start|>{{ tools | tojson }}<|tool_list_end|>\n{% endif %}\
     {% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'tool' %}<|tool_response_start|>{{ m.content }}\
     <|tool_response_end|>{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}\
     {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new("chat.jinja", source).unwrap()
}

fn session(info: ModelInfo, source: &str, answer: &str) -> Session {
    let info = ModelInfo { name: "scripted".into(), context_train: 16_384, ..info };
    let engine = ScriptedEngine::from_texts(info, [answer]);
    let mut session = Session::new(Box::new(engine), Some(template(source)), None).unwrap();
    session.set_tools(Tools::from_json(r#"[{"name": "clock"}]"#, "tools").unwrap());
    session
}

#[test]
fn the_format_of_the_family_is_used_where_the_template_writes_only_tools() {
    let answer = "<|tool_call_start|>[clock()]<|tool_call_end|>";
    let mut session = session(ModelInfo::default(), TOOLS_ONLY, answer);
    assert_eq!(
        session.notices(),
        ["chat.jinja: format lfm2, because the template contains <|tool_response_start|>, <|tool_response_end|>"]
    );
    let reply = session.ask("What time is it?").unwrap();
    let id = reply.calls[0].id.clone();
    session.set_messages([session.messages(), &[Message::tool(id, "clock", "noon")]].concat()).unwrap();
    let prompt = session.prompt().unwrap().0.text();
    assert_eq!(prompt.matches("clock").count(), 2, "tools once, and the call: {prompt}");
    assert!(prompt.contains("<|tool_list_start|>[{") && prompt.contains(answer), "{prompt}");
    assert!(prompt.contains("<|tool_response_start|>noon<|tool_response_end|>"), "{prompt}");
    assert_eq!(Format::of_template(&template(TOOLS_ONLY)).unwrap().name, "lfm2");
}

#[test]
fn a_marker_that_is_no_token_is_reported_once() {
    let info = |tokens: &[&str]| ModelInfo {
        control_tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
        ..ModelInfo::default()
    };
    let said = |tokens: &[&str]| session(info(tokens), TOOLS_ONLY, "").notices()[1..].to_vec();
    let both = "the markers <|tool_call_start|> and <|tool_call_end|> of the format lfm2 are no tokens of scripted's \
                vocabulary: the model was probably not trained on this format";
    let one = "the marker <|tool_call_end|> of the format lfm2 is no token of scripted's vocabulary: the model was \
               probably not trained on this format";
    assert_eq!(said(&["<|im_end|>"]), [both]);
    assert_eq!(said(&["<|im_end|>", "<|tool_call_start|>"]), [one]);
    assert!(said(&["<|im_end|>", "<|tool_call_start|>", "<|tool_call_end|>"]).is_empty());
    assert!(said(&[]).is_empty(), "the vocabulary is not known");
}

#[test]
fn a_template_whose_calls_nothing_reads_is_not_sound() {
    let home = tempfile::tempdir().unwrap();
    let source = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}[{{ m.role }}] \
                  {{ m.content }}{% for c in m.tool_calls or [] %}CALL {{ c.function.name }} WITH {% for k, v in \
                  c.function.arguments.items() %}({{ v }} FOR {{ k }}){% endfor %}{% endfor %}{% endfor %}";
    std::fs::write(home.path().join("odd.jinja"), source).unwrap();
    let ran = run(callwright(home.path()).current_dir(home.path()).args(["template", "check", "odd.jinja"]));
    assert_eq!(ran.code, 3, "{}", ran.out);
    assert!(ran.out.contains("None of the calls that it writes is read back."), "{}", ran.out);
    assert!(
        ran.out.contains("Conversations with tools: format delimited, added to the template, because "),
        "{}",
        ran.out
    );
}

#[test]
fn a_section_that_teaches_other_markers_is_not_sound() {
    let home = tempfile::tempdir().unwrap();
    let hermes = Format::builtin("hermes").unwrap().source();
    let (block, section) = hermes.split_once("---#}").unwrap();
    let teaches = |section: String| {
        std::fs::write(home.path().join("mine.jinja"), format!("{block}---#}}{section}")).unwrap();
        run(callwright(home.path()).current_dir(home.path()).args(["template", "check", "mine.jinja"]))
    };
    let ran = teaches(section.replace("tool_call>", "do>"));
    assert_eq!(ran.code, 3, "{}", ran.out);
    assert!(
        ran.out.contains("The tool section does not show the model <tool_call>, which is declared."),
        "{}",
        ran.out
    );
    let ran = teaches(section.replace("<tool_call>", "### TOOL_CALL_START ###"));
    let said = "The tool section shows the model ### TOOL_CALL_START ###, but not <tool_call>, which is declared.";
    assert!(ran.code == 3 && ran.out.contains(said), "{}", ran.out);
    assert_eq!(teaches(section.to_owned()).code, 0);
}
