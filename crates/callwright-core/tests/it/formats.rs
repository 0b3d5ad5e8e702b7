//! The built-in formats: what they write is read back.

use callwright_core::check::Subject;
use callwright_core::format::Format;
use callwright_core::message::{Arguments, ToolCall};
use callwright_core::parse::{Parsed, Parser, ParserOptions};
use callwright_core::template::{CallHistory, ChatTemplate};
use callwright_core::tool::Tools;
use serde_json::{Value, json};
use std::sync::Arc;

fn call(id: &str, name: &str, arguments: Value) -> ToolCall {
    let arguments = Arguments::Object(arguments.as_object().unwrap().clone());
    ToolCall { id: Some(id.into()), name: name.into(), arguments }
}

fn tools() -> Arc<Tools> {
    let text = r#"[
        {"name": "note", "parameters": {"type": "object", "properties": {
            "text": {"type": "string"}, "count": {"type": "integer"}, "share": {"type": "number"},
            "done": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string"}},
            "place": {"type": "object", "properties": {"lat": {"type": "number"}, "name": {"type": "string"}}}
        }}},
        {"name": "clock-2.now"}
    ]"#;
    Arc::new(Tools::from_json(text, "tools").unwrap())
}

fn calls() -> Vec<ToolCall> {
    let every_type = json!({
        "text": "One \"two\"\n\tthree, {four} [five] <six> & 'seven' – acht",
        "count": -7, "share": 0.25, "done": false, "tags": ["a", "b c"], "place": {"lat": 64.1, "name": "Vík"},
    });
    vec![
        call("call00001", "note", json!({"text": "plain"})),
        call("call00002", "clock-2.now", json!({})),
        call("call00003", "note", every_type),
    ]
}

fn parse(format: &Format, text: &str, piece: usize) -> Parsed {
    let mut parser = Parser::new(format, Some(tools()), ParserOptions::default()).unwrap();
    text.as_bytes().chunks(piece).for_each(|piece| parser.push(piece, &mut |_| ()));
    parser.finish(&mut |_| ())
}

/// Everything wrong with a parsed answer; `None` if it has exactly these calls and this text.
fn wrong(parsed: &Parsed, calls: &[ToolCall], content: &str, reasoning: Option<&str>) -> Option<String> {
    let read: Vec<_> = parsed.calls.iter().map(|call| (&*call.name, &call.arguments)).collect();
    let wrote: Vec<_> = calls.iter().map(|call| (&*call.name, &call.arguments)).collect();
    let sound = parsed.calls.iter().all(|call| call.complete && call.valid) && parsed.repairs.is_empty();
    let text = parsed.content.trim() == content && parsed.reasoning.as_deref().map(str::trim) == reasoning;
    (read != wrote || !sound || !text).then(|| format!("{parsed:#?}"))
}

#[test]
fn each_format_round_trips() {
    let mut report = String::new();
    for builtin in Format::builtins() {
        let format = builtin.format();
        for calls in [&calls()[..1], &calls()[1..2], &calls()[2..], &calls()[..]] {
            let text = format.write_calls(calls);
            for piece in [1, 7, text.len()] {
                if let Some(read) = wrong(&parse(format, &text, piece), calls, "", None) {
                    report += &format!("{} in pieces of {piece}\n{text}\nis read as {read}\n", builtin.name);
                    break;
                }
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn text_before_calls_stays_text_and_reasoning_is_separated() {
    let mut report = String::new();
    for builtin in Format::builtins() {
        let format = builtin.format();
        let thought = match &format.reasoning {
            Some(around) => format!("{}Hm.{}", around.start.text().unwrap(), around.end.text().unwrap()),
            None => String::new(),
        };
        let text = thought + &format.assistant("Let me see.", &calls()[..2]);
        let reasoning = format.reasoning.as_ref().map(|_| "Hm.");
        for piece in [1, text.len()] {
            if let Some(read) = wrong(&parse(format, &text, piece), &calls()[..2], "Let me see.", reasoning) {
                report += &format!("{} in pieces of {piece}\n{text}\nis read as {read}\n", builtin.name);
                break;
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn the_examples_in_each_prompt_match_the_format() {
    let weather = call("call00001", "example_weather", json!({"city": "Oslo", "day": "tomorrow"}));
    let clock = |id, city| call(id, "example_clock", json!({"city": city}));
    let clocks = [clock("call00001", "Lima"), clock("call00002", "Cairo")];
    let form = call("call00001", "TOOL_NAME", json!({"ARGUMENT": "VALUE"}));
    for builtin in Format::builtins() {
        let format = builtin.format();
        // The default format shows the form alone: with examples, small models choose the wrong tool more often.
        let shown: &[&[_]] = match builtin.name {
            "delimited" => &[std::slice::from_ref(&form)],
            _ => &[std::slice::from_ref(&weather), &clocks],
        };
        for calls in shown {
            // Ids that the format does not write are lost.
            let written = format.write_calls(calls);
            assert!(format.source().contains(&written), "{} lacks\n{written}", builtin.name);
        }
    }
}

#[test]
fn each_overlays_a_plain_template() {
    let template = ChatTemplate::builtin("chatml").unwrap().unwrap();
    for builtin in Format::builtins() {
        let section = ChatTemplate::new(builtin.name, builtin.format().source()).unwrap();
        let mut subject = Subject::new(&template, Some(builtin.format()));
        subject.section = Some(&section);
        let report = subject.check(None).unwrap();
        assert!(report.sound(), "{} {report:#?}", builtin.name);
        assert_eq!(report.round_trips.len(), 5);
        assert!(report.turns.iter().all(|turn| turn.differs.is_none()));
    }
}

#[test]
fn the_documentation_lists_them_all() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats.md")).unwrap();
    for builtin in Format::builtins() {
        let row = format!("| `{}` | {} |", builtin.name, builtin.models);
        assert!(page.contains(&row), "docs/formats.md lacks {row}");
    }
}

/// The models' templates for each format: they are read with it and, if `true`, written exactly like the format writes
/// calls.
#[test]
#[ignore = "needs the conformance data: CALLWRIGHT_CONFORMANCE=… cargo test -- --ignored conformance"]
fn conformance_templates_write_each_format() {
    let families = [
        ("hermes", "Qwen-Qwen3-0.6B", true),
        ("hermes", "Qwen-Qwen2.5-7B-Instruct", true),
        ("hermes", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", true),
        ("hermes", "ibm-granite-granite-4.0", true),
        ("hermes", "MiMo-VL", true),
        ("qwen3-coder", "Qwen3.5-4B", true),
        ("qwen3-coder", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", true),
        ("qwen3-coder", "StepFun3.5-Flash", false),
        ("llama3", "meta-llama-Llama-3.1-8B-Instruct", true),
        ("llama3", "meta-llama-Llama-3.3-70B-Instruct", true),
        ("mistral", "mistralai-Ministral-3-14B-Reasoning-2512", true),
        ("mistral", "Mistral-Small-3.2-24B-Instruct-2506", false),
        ("mistral-old", "mistralai-Mistral-Nemo-Instruct-2407", true),
        ("deepseek-v3.1", "deepseek-ai-DeepSeek-V3.1", true),
        ("deepseek-r1", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", true),
        ("kimi-k2", "moonshotai-Kimi-K2", true),
        ("kimi-k2", "Kimi-K2-Thinking", false),
        ("glm-4", "poolside-Laguna-XS-2.1", true),
        ("glm-4", "GLM-4.7-Flash", false),
        ("lfm2", "LFM2.5-8B-A1B", false),
        ("gemma-4", "google-gemma-4-31B-it-interleaved", false),
        ("deepseek-v3.2", "deepseek-ai-DeepSeek-V3.2", true),
        ("glm-5", "GLM-4.7-Flash", true),
        ("minimax-m3", "MiniMax-M3", true),
        ("hunyuan-3", "tencent-Hy3", true),
        ("solar-open", "upstage-Solar-Open-100B", true),
        ("nemotron-v2", "NVIDIA-Nemotron-Nano-v2", true),
        ("gigachat-3.1", "GigaChat3.1-10B-A1.8B", true),
        ("minicpm-5", "openbmb-MiniCPM5-1B", true),
        ("jamba", "unsloth-Apriel-1.5", false),
        ("kimi-k3", "Kimi-K3", true),
        ("muse-glimmer", "muse-glimmer", false),
        ("ling-3", "inclusionai-ling-3.0-flash", false),
        ("hermes", "Reka-Edge", false),
    ];
    let mut report = String::new();
    for (name, file, exact) in families {
        let Some(path) = crate::data::conformance_template(&format!("{file}.jinja")) else { continue };
        let template = ChatTemplate::from_file(path).unwrap();
        let checked = Subject::new(&template, Format::builtin(name)).check(None).unwrap();
        if checked.round_trips.is_empty() {
            report += &format!("{name} {file}: no calls\n");
        }
        for trip in checked.round_trips {
            // Some print booleans as in Python, which takes a repair.
            let otherwise = exact && trip.declared.is_some() && trip.what != "arguments of every type";
            if trip.problem.is_some() || otherwise {
                report += &format!("{name} {file}: {trip:#?}\n");
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// Format, the prompt's tail, the model's text; the resulting content, reasoning and calls.
type Written = (&'static str, &'static str, &'static str, &'static str, Option<&'static str>, Vec<ToolCall>);

/// Variations of a format that models write.
#[test]
fn variations_that_models_write() {
    let call = |arguments| vec![call("", "note", arguments)];
    let plain = || call(json!({"text": "a"}));
    let cases: Vec<Written> = vec![
        (
            "gpt-oss",
            "<|start|>assistant",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.note \
             <|constrain|>json<|message|>{\"text\": \"a\"}<|call|>",
            "",
            Some("Hm."),
            plain(),
        ),
        (
            "gpt-oss",
            "<|start|>assistant",
            "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant to=functions.note<|channel|>commentary \
             json<|message|>{\"text\":\"a\"}<|call|>",
            "Wait.",
            None,
            plain(),
        ),
        ("gpt-oss", "<|start|>assistant", " to=functions.note<|message|>{\"text\":\"a\"}<|call|>", "", None, plain()),
        (
            "gpt-oss",
            "<|start|>assistant",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi.<|return|>",
            "Hi.",
            Some("Hm."),
            vec![],
        ),
        ("functionary-v3.2", ">>>", "all\nHi.", "Hi.", None, vec![]),
        ("functionary-v3.2", ">>>", "note\n{\"text\": \"a\"}", "", None, plain()),
        ("functionary-v3.2", "", "note\n{\"text\": \"a\"}", "", None, plain()),
        ("functionary-v3.2", "", "all\nSee >>> above.", "See >>> above.", None, vec![]),
        ("functionary-v3.2", "", "Yes", "Yes", None, vec![]),
        ("functionary-v2", "", "note\n<|content|>{\"text\": \"a\"}<|stop|>", "", None, plain()),
        ("functionary-v2", "<|recipient|>", "note\n<|content|>{\"text\": \"a\"}", "", None, plain()),
        ("functionary-v2", "", "all\n<|content|>Hi.", "Hi.", None, vec![]),
        ("functionary-v2", "", "Hi.", "Hi.", None, vec![]),
        (
            "functionary-v2",
            "",
            "all\n<|content|>Wait.\n<|from|>assistant\n<|recipient|>note\n<|content|>{\"text\": \"a\"}<|stop|>",
            "Wait.",
            None,
            plain(),
        ),
        ("glm-4-0414", "", "note\n{\"text\": \"a\"}", "", None, plain()),
        ("glm-4-0414", "<|assistant|>", "note\n{\"text\": \"a\"}<|observation|>", "", None, plain()),
        ("glm-4-0414", "", "<|assistant|>note\n{\"text\": \"a\"}", "", None, plain()),
        ("glm-4-0414", "", "\nIt is noted.", "It is noted.", None, vec![]),
        ("glm-4-0414", "", "Yes", "Yes", None, vec![]),
        ("glm-4-0414", "", "Wait.<|assistant|>note\n{\"text\": \"a\"}", "Wait.", None, plain()),
        (
            "minimax-m1",
            "",
            "<tool_calls>\n{\"name\": \"note\", \"arguments\": {\"text\": \"a\"}}\n</tool_calls>",
            "",
            None,
            plain(),
        ),
        (
            "granite-20b",
            "",
            "<function_call> {\"name\": \"note\", \"arguments\": {\"text\": \"a\"}}",
            "",
            None,
            plain(),
        ),
        (
            "hyperclovax",
            "",
            "/think\nHm.<|im_end|>\n<|im_start|>assistant -> tool/function_call\n[{\"name\": \"note\", \"arguments\": {\"text\": \"a\"}}]<|im_end|>",
            "",
            Some("Hm."),
            plain(),
        ),
        ("hyperclovax", "", "/think\nHm.<|im_end|>\n<|im_start|>assistant\nHi.", "Hi.", Some("Hm."), vec![]),
        ("functionary-v3.2", "", ">>>all\nWait.\n>>>note\n{\"text\": \"a\"}", "Wait.", None, plain()),
        ("llama3", "", "<|python_tag|>{\"name\": \"note\", \"parameters\": {\"text\": \"a\"}}", "", None, plain()),
        (
            "llama3",
            "",
            "{\"type\": \"function\", \"name\": \"note\", \"parameters\": {\"text\": \"a\"}}",
            "",
            None,
            plain(),
        ),
        ("granite", "", "<think>Hm.</think><response>Hi.</response>", "Hi.", Some("Hm."), vec![]),
        ("granite", "", "<|tool_call|> [{\"name\": \"note\", \"arguments\": {\"text\": \"a\"}}]", "", None, plain()),
        (
            "hermes",
            "<think>\n",
            "Hm.</think><tool_call>{\"name\":\"note\",\"arguments\":{\"text\":\"a\"}}</tool_call>",
            "",
            Some("Hm."),
            plain(),
        ),
        ("mistral", "", "[TOOL_CALLS]note[CALL_ID]abcdefghi[ARGS]{\"text\": \"a\"}", "", None, plain()),
        ("mistral-old", "", "[TOOL_CALLS] [{\"name\": \"note\", \"arguments\": {\"text\": \"a\"}}]", "", None, plain()),
        ("glm-4", "", "<tool_call>note<arg_key>text</arg_key><arg_value>a</arg_value></tool_call>", "", None, plain()),
        (
            "glm-5",
            "",
            "Hm.</think><tool_call>note<arg_key>text</arg_key><arg_value>a</arg_value></tool_call>",
            "",
            Some("Hm."),
            plain(),
        ),
        ("glm-5", "<|assistant|><think></think>", "Hi.", "Hi.", None, vec![]),
        ("glm-5", "<|assistant|><think>", "</think>Hi.", "Hi.", None, vec![]),
        (
            "kimi-k3",
            "",
            "Hm.<|close|>think<|sep|><|open|>response<|sep|>Hi.<|close|>response<|sep|><|close|>message<|sep|>",
            "Hi.",
            Some("Hm."),
            vec![],
        ),
        (
            "kimi-k3",
            "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>",
            "<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"note\" index=\"1\"<|sep|><|open|>argument \
             key=\"text\" type=\"string\"<|sep|>a<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
            "",
            None,
            plain(),
        ),
        (
            "deepseek-v3.2",
            "<｜Assistant｜><think>",
            "Hm.</think>\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"note\">\n<｜DSML｜parameter name=\"text\" \
             string=\"true\">a</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
            "",
            Some("Hm."),
            plain(),
        ),
        (
            "deepseek-v4.1",
            "<｜Assistant｜></think>",
            "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"note\">\n<｜DSML｜ parameter name=\"text\" string=\"true\">a\
             </｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>",
            "",
            None,
            plain(),
        ),
        ("llama4", "", "<|python_start|>[note(text='a')]<|python_end|>", "", None, plain()),
        ("mistral", "", "<think>Hm.</think>Hi.", "Hi.", Some("Hm."), vec![]),
        (
            "gpt-oss",
            "<|start|>assistant",
            " to=functions.note<|channel|>analysis<|constrain|>json<|message|>{\"text\":\"a\"}<|call|>",
            "",
            None,
            plain(),
        ),
        ("functools", "", "functools [{\"name\": \"note\", \"arguments\": {\"text\": \"a\"}}]", "", None, plain()),
        ("lfm2", "", "<|tool_call_start|>[note(text='a')]<|tool_call_end|>Wait.", "Wait.", None, plain()),
        ("gemma", "", "```tool_code\nnote(text='a')\n```", "", None, plain()),
        (
            "command-r7b",
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
            "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"note\", \
             \"parameters\": {\"text\": \"a\"}}\n]<|END_ACTION|>",
            "",
            Some("Hm."),
            plain(),
        ),
        (
            "command-r7b",
            "",
            "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Hi.<|END_RESPONSE|>",
            "Hi.",
            Some("Hm."),
            vec![],
        ),
        (
            "seed-oss",
            "<seed:bos>assistant\n",
            "<seed:think>Hm.</seed:think>\n\n<seed:tool_call>\n<function=note>\n<parameter=text>a</parameter>\n\
             </function>\n</seed:tool_call>",
            "",
            Some("Hm."),
            plain(),
        ),
        (
            "jamba",
            "",
            "<tool_calls>[\n    {\"name\": \"note\", \"arguments\": {\"text\": \"a\"}}\n]</tool_calls>",
            "",
            None,
            plain(),
        ),
        (
            "apertus",
            "",
            "<|inner_prefix|>Hm.<|inner_suffix|><|tools_prefix|>[{\"note\": {\"text\": \"a\"}}]<|tools_suffix|>",
            "",
            Some("Hm."),
            plain(),
        ),
        (
            "solar-open",
            "<|begin|>assistant",
            "<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>note\
             <|tool_call:args|>{\"text\": \"a\"}<|tool_call:end|><|calls|>",
            "",
            Some("Hm."),
            plain(),
        ),
        (
            "solar-open",
            "<|begin|>assistant",
            "<|think|>Hm.<|end|><|begin|>assistant<|content|>Hi.<|end|>",
            "Hi.",
            Some("Hm."),
            vec![],
        ),
        (
            "step-3",
            "<think>\n",
            "Hm.\n</think>\n<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"note\">\n\
             <steptml:parameter name=\"text\">a</steptml:parameter>\n</steptml:invoke><｜tool_call_end｜>\n<｜tool_calls_end｜>",
            "",
            Some("Hm."),
            plain(),
        ),
        (
            "longcat",
            "",
            "<longcat_tool_call>note<longcat_arg_key>text</longcat_arg_key><longcat_arg_value>a</longcat_arg_value>\
             </longcat_tool_call>",
            "",
            None,
            plain(),
        ),
        (
            "ernie-4.5",
            "<think>\n",
            "Hm.\n</think>\n\n<response>\nHi.\n</response>\n\n<tool_call>\n{\"name\": \"note\", \"arguments\": {\"text\": \
             \"a\"}}\n</tool_call>\n",
            "Hi.",
            Some("Hm."),
            plain(),
        ),
        ("olmo-3", "", "<function_calls>\nnote(text='a')\n</function_calls>", "", None, plain()),
        (
            "minicpm-4",
            "",
            "<|thought_start|>\nHm.\n<|thought_end|>\n<|tool_call_start|>\n```python\nnote(text=\"a\")\n```\n\
             <|tool_call_end|>\n",
            "",
            Some("Hm."),
            plain(),
        ),
        ("minicpm-5", "", "<function name=\"note\"><param name=\"text\">a</param></function>", "", None, plain()),
    ];
    let mut report = String::new();
    for (name, prompt_tail, text, content, reasoning, calls) in cases {
        for piece in [1, text.len()] {
            let options = ParserOptions::default().with(|set| set.prompt_tail = prompt_tail.to_owned());
            let mut parser = Parser::new(Format::builtin(name).unwrap(), Some(tools()), options).unwrap();
            text.as_bytes().chunks(piece).for_each(|piece| parser.push(piece, &mut |_| ()));
            if let Some(read) = wrong(&parser.finish(&mut |_| ()), &calls, content, reasoning) {
                report += &format!("{name} after {prompt_tail:?} in pieces of {piece}\n{text}\nis read as {read}\n");
                break;
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}
