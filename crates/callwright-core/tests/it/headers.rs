//! The header of the assistant's turn, which a prompt ends with, is no part of an answer.

use crate::data::conformance_templates;
use callwright_core::format::Format;
use callwright_core::message::Message;
use callwright_core::parse::{Parser, ParserOptions};
use callwright_core::template::{ChatTemplate, RenderRequest};
use callwright_core::tool::{Tool, Tools};
use serde_json::{Map, json};

const QUESTION: &str = "When does the ferry leave?";
const ANSWER: &str = "Aft. Passengers wait.";

/// What a prompt ends with: from the end of the question on, and what the generation prompt adds.
fn tails(template: &ChatTemplate, tools: Option<&Tools>, switches: &[(&str, bool)]) -> Vec<String> {
    let messages = [Message::user(QUESTION)];
    let variables: Map<_, _> = switches.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let render = |add_generation_prompt| {
        let variables = variables.clone();
        let request = RenderRequest::default().with(|set| {
            set.messages = &messages;
            set.tools = tools;
            set.add_generation_prompt = add_generation_prompt;
            set.variables = variables;
            set.bos_token = "<s>";
            set.eos_token = "</s>";
        });
        template.render(&request).ok().map(|prompt| prompt.text())
    };
    let (Some(with), Some(without)) = (render(true), render(false)) else { return Vec::new() };
    let after = with.rsplit_once(QUESTION).map(|(_, after)| after.to_owned());
    after.into_iter().chain(with.strip_prefix(&without).map(str::to_owned)).collect()
}

fn read(format: &Format, tail: &str, text: &str) -> (String, String) {
    let options = ParserOptions::default().with(|set| set.prompt_tail = tail.to_owned());
    let mut parser = Parser::new(format, None, options).unwrap();
    parser.push(text.as_bytes(), &mut |_| ());
    let message = parser.finish(&mut |_| ()).message();
    (message.content, message.reasoning.unwrap_or_default())
}

#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn no_header_of_the_conformance_templates_is_part_of_an_answer() {
    let tool = Tool::new("find_ferries", "Looks departures up", None);
    let tools = Tools::new([tool]).unwrap();
    let (mut report, mut count) = (String::new(), 0);
    for (name, source) in conformance_templates() {
        let template = ChatTemplate::new(name.as_str(), source).unwrap();
        let own = Format::of_template(&template).ok();
        let switches: [&[(&str, bool)]; 5] = [
            &[],
            &[("enable_thinking", true)],
            &[("enable_thinking", false)],
            &[("thinking", true)],
            &[("thinking", false)],
        ];
        for (tools, switches) in [None, Some(&tools)].into_iter().flat_map(|t| switches.map(|s| (t, s))) {
            for tail in tails(&template, tools, switches) {
                // What comes right after a word cannot be separated from it by the text alone.
                let ends_in_word = tail.ends_with(char::is_alphanumeric);
                for continued in ["", "Fore and <a>. "].into_iter().take(if ends_in_word { 1 } else { 2 }) {
                    let tail = format!("{tail}{continued}");
                    let wanted = format!("{continued}{ANSWER}");
                    count += 1;
                    // Where only a format is known, its text has to tell. What opens reasoning is not known to all.
                    let of_name = Format::builtins().iter().map(|builtin| (builtin.name, builtin.format()));
                    for (format_name, format) in own.iter().map(|own| ("its own", own)).chain(of_name) {
                        // What ends the turn before in some templates ends reasoning in gpt-oss and Solar Open.
                        if matches!(format_name, "gpt-oss" | "solar-open") && tail.contains("<|end|>") {
                            continue;
                        }
                        // HyperCLOVA X's reasoning begins with /think, in a turn that has no tags of other models.
                        if format_name == "hyperclovax" && tail.contains("</think") {
                            continue;
                        }
                        let (content, reasoning) = read(format, &tail, ANSWER);
                        let all = format!("{reasoning}{content}");
                        let rest = all.strip_suffix(&wanted);
                        let header = rest.is_none_or(|rest| {
                            // A beginning of the answer that Apriel 1.6 is given.
                            let opened = rest.replace("Here are my reasoning steps:", "");
                            let known = ["think", "thought", "channel", "mm:", "opensource"];
                            let words = known.iter().fold(opened.clone(), |words, known| words.replace(known, ""));
                            format_name == "its own" && !opened.trim().is_empty() || words.contains(char::is_alphabetic)
                        });
                        if header {
                            report += &format!("{name} {switches:?}, {format_name}: {tail:?}: {all:?}\n");
                        }
                    }
                }
            }
        }
    }
    assert!(report.is_empty(), "{} of {count}:\n{report}", report.lines().count());
}

/// Headers that look like no others.
#[test]
fn any_header_is_known_from_the_template() {
    let headers = ["<assistant>\n", "<seed:bos>assistant\n", "assistant: ", "<role>ASSISTANT</role>", "~~ Käpt'n ~~\n"];
    for header in headers {
        for opened in ["", "<hm>\n"] {
            let source = format!(
                "{{% for m in messages %}}{{% if m.role == 'assistant' %}}{header}{{% if m.thinking %}}<hm>\n{{{{ \
                 m.thinking }}}}</hm>\n{{% endif %}}{{{{ m.content }}}}{{% for c in m.tool_calls or [] %}}<call>{{{{ \
                 c.function | tojson }}}}</call>{{% endfor %}}{{% else %}}[{{{{ m.role }}}}] {{{{ m.content }}}}\n\
                 {{% endif %}}{{% endfor %}}{{% if add_generation_prompt %}}{header}{opened}{{% endif %}}"
            );
            let template = ChatTemplate::new("chat.jinja", source).unwrap();
            let format = Format::of_template(&template).unwrap();
            let (content, reasoning) = read(&format, &format!("{header}{opened}"), ANSWER);
            assert_eq!((content + &reasoning).trim(), ANSWER, "{header:?}");
            assert_eq!(reasoning.is_empty(), opened.is_empty(), "{header:?}");
        }
    }
}
