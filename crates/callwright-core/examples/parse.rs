//! Read the tool calls out of another engine's text, while it arrives. No model, no C++.
//!
//! ```console
//! $ cargo run --release -p callwright-core --example parse
//! $ cat answer.txt | cargo run --release -p callwright-core --example parse -- tools.json qwen3-coder
//! ```

use callwright_core::parse::event::Event;
use callwright_core::{Format, Parser, ParserOptions, Result, Tools};
use std::io::Read;

const TOOLS: &str = r#"[{"name": "get_weather", "parameters": {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"]
}}]"#;

/// A text with four departures from JSON and from the schema.
const TEXT: &str = "I'll look.\n<tool_call>\n{'name': 'get_weather', 'arguments': {'city': 'Oslo', 'days': '3',}}\n";

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next();
    let tools = match &file {
        Some(file) => Tools::from_file(file)?,
        None => Tools::from_json(TOOLS, "TOOLS")?,
    };
    let name = arguments.next().unwrap_or_else(|| "hermes".to_owned());
    let Some(format) = Format::builtin(&name) else {
        eprintln!("there is no format {name}; the formats are {}", Format::names().collect::<Vec<_>>().join(", "));
        std::process::exit(2);
    };

    let mut parser = Parser::new(format, Some(tools.into()), ParserOptions::default())?;
    let mut show = |event: Event| match event {
        Event::Text { delta } => print!("{delta}"),
        Event::CallStart { name, .. } => print!("\n{name} "),
        Event::CallArguments { delta, .. } => print!("{delta}"),
        Event::Repair(repair) => eprintln!("  [repaired: {:?}]", repair.kind),
        _ => {}
    };
    if file.is_none() {
        // As small as the pieces of an engine's stream.
        TEXT.as_bytes().chunks(4).for_each(|piece| parser.push(piece, &mut show));
    } else {
        let (mut input, mut piece) = (std::io::stdin(), [0; 4096]);
        // An input that breaks ends the text, as its end does.
        while let Ok(count @ 1..) = input.read(&mut piece) {
            parser.push(&piece[..count], &mut show);
        }
    }
    let parsed = parser.finish(&mut show);

    println!();
    for call in &parsed.calls {
        match call.is_runnable() {
            true => println!("execute {} {}", call.name, call.arguments.to_text()),
            false => println!("do not execute {}: {}", call.name, call.error_text()),
        }
    }
    Ok(())
}
