//! How long it takes to render a conversation with 10 and with 100 tools, to compile and probe a template, and
//! to read its format off.

use callwright::format::Format;
use callwright::message::{Arguments, Message, ToolCall};
use callwright::template::{ChatTemplate, RenderRequest, Reserved};
use callwright::tool::{Tool, Tools};
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;
use std::hint::black_box;

/// Of the kind that models carry: tools as JSON, calls, results, a last user message looked for.
const TEMPLATE: &str = "\
{%- if tools %}{{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages[::-1] %}{%- if m.role == 'user' and ns.last < 0 %}{%- set ns.last = loop.revindex0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + m.content }}
        {%- for call in m.tool_calls or [] %}
            {{- '<tool_call>' ~ {'name': call.function.name, 'arguments': call.function.arguments} | tojson ~ '</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif m.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>' + m.content + '</tool_response><|im_end|>\\n' }}
    {%- elif not loop.first or not tools %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

fn tool(index: usize) -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, in the user's own words."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "How many to return at most."},
            "order": {"type": "string", "enum": ["newest", "oldest", "relevance"]},
            "filter": {"type": "object", "properties": {"from": {"type": "string"}, "to": {"type": "string"}}},
        },
        "required": ["query"],
    });
    let description = "Searches one of the archives and returns what it finds, best first.";
    Tool::new(format!("search_archive_{index}"), description, schema.as_object().cloned())
}

fn history() -> Vec<Message> {
    let mut messages = vec![Message::system("You are a terse assistant.")];
    for turn in 0..10 {
        let arguments = json!({"query": "harbour", "limit": 3}).as_object().cloned().unwrap_or_default();
        let id = format!("call{turn:05}");
        messages.push(Message::user("Find what was written about the harbour, newest first."));
        messages.push(Message::calls(vec![ToolCall {
            id: Some(id.clone()),
            name: "search_archive_0".to_owned(),
            arguments: Arguments::Object(arguments),
        }]));
        messages.push(Message::tool(id, "search_archive_0", "{\"found\": [\"1903\", \"1911\", \"1950\"]}"));
        messages.push(Message::assistant("In 1903, 1911 and 1950."));
    }
    messages.push(Message::user("And about the lighthouse?"));
    messages
}

fn render(criterion: &mut Criterion) {
    let template = ChatTemplate::new("bench.jinja", TEMPLATE).expect("the template compiles");
    let messages = history();
    let control: Vec<String> = (0..250).map(|index| format!("<|reserved_special_token_{index}|>")).collect();
    let reserved = Reserved::new(control, [], ["### TOOL_CALL_START ###".to_owned()]).expect("few strings");
    template.capabilities();
    for count in [10, 100] {
        let tools = Tools::new((0..count).map(tool)).expect("the tools are valid");
        let request = RenderRequest::default().with(|set| {
            set.messages = &messages;
            set.tools = Some(&tools);
            set.reserved = Some(&reserved);
        });
        criterion.bench_function(&format!("render/{count} tools"), |bencher| {
            bencher.iter(|| template.render(black_box(&request)).expect("it renders"));
        });
        let text = tools.to_json().to_string();
        criterion.bench_function(&format!("read/{count} tools"), |bencher| {
            bencher.iter(|| Tools::from_json(black_box(&text), "tools.json").expect("the tools are valid"));
        });
    }
    criterion.bench_function("compile", |bencher| {
        bencher.iter(|| ChatTemplate::new("bench.jinja", black_box(TEMPLATE)).expect("the template compiles"));
    });
    criterion.bench_function("probe", |bencher| {
        bencher.iter_batched(
            || ChatTemplate::new("bench.jinja", TEMPLATE).expect("the template compiles"),
            |template| template.capabilities(),
            criterion::BatchSize::SmallInput,
        );
    });
    let mut count = 0;
    criterion.bench_function("infer", |bencher| {
        bencher.iter_batched(
            || {
                // What is known of a template is remembered.
                count += 1;
                ChatTemplate::new("bench.jinja", format!("{TEMPLATE}{{# {count} #}}")).expect("the template compiles")
            },
            |template| Format::infer(&template),
            criterion::BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, render);
criterion_main!(benches);
