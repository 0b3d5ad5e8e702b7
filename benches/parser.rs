//! The streaming parser: bytes per second in bulk, and what a token costs when much text came before it.

use callwright::format::Format;
use callwright::format::parser::{Parser, ParserOptions};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

const TEXT: &str = "The forecast for the coming days looks mixed: rain from the west on Tuesday, clearing up by the \
    evening. ## Details\n\n- wind: 5 m/s, gusts of 12 m/s\n- temperature: between 8 °C and 14 °C\n\nLet me look up more.\n\n";
const CALL: &str = "### TOOL_CALL_START ###\n{\"name\": \"write_report\", \"arguments\": {\"title\": \"Forecast #3\", \
    \"body\": \"Rain from the west.\\nClearing up by the evening, says \\\"the office\\\".\", \"days\": [1, 2, 3, 4.5], \
    \"options\": {\"units\": \"metric\", \"draft\": false, \"tags\": [\"weather\", \"travel\"]}}}\n### TOOL_CALL_END ###\n";

fn parser() -> Parser {
    let format = Format::builtin("delimited").expect("it is built in");
    Parser::new(format, None, ParserOptions::default()).expect("it is sound")
}

/// Text, a short call, text, a call that carries a page of text, and so on: `length` bytes.
fn mixed(length: usize) -> Vec<u8> {
    let text = [TEXT, TEXT, CALL, TEXT, TEXT, &page(8)].concat().into_bytes();
    text.iter().copied().cycle().take(length).collect()
}

/// A call whose argument is `paragraphs` paragraphs long.
fn page(paragraphs: usize) -> String {
    let text = TEXT.replace('\n', "\\n").repeat(paragraphs);
    format!(
        "### TOOL_CALL_START ###\n{{\"name\": \"write\", \"arguments\": {{\"text\": \"{text}\"}}}}\n### TOOL_CALL_END ###\n"
    )
}

fn bulk(c: &mut Criterion) {
    let mut group = c.benchmark_group("bulk");
    let inputs = [
        ("mixed", mixed(1 << 20)),
        ("text", TEXT.bytes().cycle().take(1 << 20).collect()),
        ("short_calls", CALL.bytes().cycle().take(1 << 20).collect()),
        ("long_strings", page(40).bytes().cycle().take(1 << 20).collect()),
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
            b.iter_batched(parser, parse, BatchSize::PerIteration);
        });
    }
}

/// 1,024 deltas of 4 bytes after a text of the given length; criterion's time is for all of them.
fn deltas(c: &mut Criterion) {
    let mut group = c.benchmark_group("delta");
    let tail = mixed(4 << 10);
    for (name, before) in [("1KiB", 1 << 10), ("32KiB", 32 << 10), ("1MiB", 1 << 20)] {
        let before = mixed(before);
        group.throughput(Throughput::Elements(tail.len() as u64 / 4));
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter_batched(
                || {
                    let mut parser = parser();
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

criterion_group!(benches, bulk, deltas);
criterion_main!(benches);
