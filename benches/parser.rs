//! The streaming parser: bytes per second for every payload kind, and what a token costs when much text came before it.

use callwright::format::Format;
use callwright::message::{Arguments, ToolCall};
use callwright::parse::{Parser, ParserOptions};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;
use std::hint::black_box;

const TEXT: &str = "The forecast for the coming days looks mixed: rain from the west on Tuesday, clearing up by the \
    evening. ## Details\n\n- wind: 5 m/s, gusts of 12 m/s\n- temperature: between 8 °C and 14 °C\n\nLet me look up more.\n\n";

/// A format of each payload kind.
const FORMATS: [(&str, &str); 6] = [
    ("json", "format = { literal = true, start = \"<tool_call>\\n\", end = \"\\n</tool_call>\", payload = 'json' }"),
    (
        "json_array",
        "format = { literal = true, start = '[TOOL_CALLS]', end = '', payload = 'json' }
        keys = { id = 'id', array = true }",
    ),
    (
        "json_bare",
        "format = { literal = true, start = '', end = '', payload = 'json' }
        keys = { arguments = 'parameters' }",
    ),
    (
        "named",
        "format = { literal = true, start = '<|tool_call_begin|>', end = '<|tool_call_end|>', payload = 'named' }
        section = { start = '<|tool_calls_section_begin|>', end = '<|tool_calls_section_end|>' }
        call = { head = '{id}<|tool_call_argument_begin|>', id = 'functions.{name}:{index}' }",
    ),
    (
        "tagged",
        "format = { literal = true, start = '<function=', end = '</function>', payload = 'tagged' }
        section = { start = \"<tool_call>\\n\", end = \"\\n</tool_call>\" }
        call = { head = \"{name}>\\n\" }
        argument = { key_start = '<parameter=', key_end = \">\\n\", value_end = \"\\n</parameter>\\n\" }",
    ),
    (
        "python",
        "format = { literal = true, start = '<|tool_call_start|>', end = '<|tool_call_end|>', payload = 'python' }",
    ),
];

fn format(declaration: &str) -> Format {
    let block = format!("{{#--- callwright\n{declaration}\n---#}}");
    Format::parse_declaration(&block).expect("it is sound").expect("it is a declaration")
}

fn parser(format: &Format) -> Parser {
    Parser::new(format, None, ParserOptions::default()).expect("it is sound")
}

fn call(format: &Format, arguments: serde_json::Value) -> String {
    let serde_json::Value::Object(arguments) = arguments else { unreachable!("arguments are an object") };
    let (id, arguments) = (Some("call00001".to_owned()), Arguments::Object(arguments));
    format.write_calls(&[ToolCall { id, name: "write_report".into(), arguments }]) + "\n"
}

fn short_call(format: &Format) -> String {
    call(
        format,
        json!({"title": "Forecast #3",
            "body": "Rain from the west.\nClearing up by the evening, says \"the office\".", "days": [1, 2, 3, 4.5],
            "options": {"units": "metric", "draft": false, "tags": ["weather", "travel"]}}),
    )
}

/// A call that carries so many paragraphs of text.
fn long_call(format: &Format, paragraphs: usize) -> String {
    call(format, json!({"text": TEXT.repeat(paragraphs)}))
}

/// Text, a short call, text, a call that carries a page of text, and so on: `length` bytes.
fn mixed(format: &Format, length: usize) -> Vec<u8> {
    let text = [TEXT, TEXT, &short_call(format), TEXT, TEXT, &long_call(format, 8)].concat().into_bytes();
    text.iter().copied().cycle().take(length).collect()
}

fn bulk(c: &mut Criterion) {
    for (name, declaration) in FORMATS {
        let format = format(declaration);
        let mut group = c.benchmark_group(name);
        let cycle = |text: String| text.bytes().cycle().take(1 << 20).collect::<Vec<u8>>();
        let inputs = [
            ("mixed", mixed(&format, 1 << 20)),
            ("text", cycle(TEXT.to_owned())),
            ("short_calls", cycle(short_call(&format))),
            ("long_strings", cycle(long_call(&format, 40))),
        ];
        for (name, input) in inputs {
            group.throughput(Throughput::Bytes(input.len() as u64));
            group.bench_function(name, |b| {
                let parse = |mut parser: Parser| {
                    parser.push(&input, &mut |event| {
                        black_box(event);
                    });
                    parser.finish(&mut |event| {
                        black_box(event);
                    })
                };
                b.iter_batched(|| parser(&format), parse, BatchSize::PerIteration);
            });
        }
    }
}

/// 1,024 deltas of 4 bytes after a text of the given length; criterion's time is for all of them.
fn deltas(c: &mut Criterion) {
    for (name, declaration) in FORMATS {
        let format = format(declaration);
        let mut group = c.benchmark_group(format!("{name}_delta"));
        let tail = mixed(&format, 4 << 10);
        for (name, before) in [("1KiB", 1 << 10), ("32KiB", 32 << 10), ("1MiB", 1 << 20)] {
            let before = mixed(&format, before);
            group.throughput(Throughput::Elements(tail.len() as u64 / 4));
            group.bench_function(BenchmarkId::from_parameter(name), |b| {
                b.iter_batched(
                    || {
                        let mut parser = parser(&format);
                        parser.push(&before, &mut |_| ());
                        parser
                    },
                    |mut parser| {
                        for delta in tail.chunks(4) {
                            parser.push(delta, &mut |event| {
                                black_box(event);
                            });
                        }
                        parser
                    },
                    BatchSize::PerIteration,
                );
            });
        }
    }
}

criterion_group!(benches, bulk, deltas);
criterion_main!(benches);
