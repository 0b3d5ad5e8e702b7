//! A tool-call format of one's own: one file declares it and writes the tool section of the prompt.
//!
//! The prompt, the grammar and the parser come from that file.
//!
//! ```console
//! $ cargo run --release --example own_format
//! ```

use callwright::format::Format;
use callwright::parse::{Parser, ParserOptions};
use callwright::session::ToolChoice;
use callwright::{Result, Session, Tools};

fn main() -> Result<()> {
    let format = Format::from_file("examples/arrow.jinja")?;

    // It reads the text of any engine …
    let text = "Let me see.\n<call>\n{\"tool\": \"get_weather\", \"with\": {\"city\": \"Oslo\"}}\n</call>";
    let tools = Tools::from_file("examples/weather.json")?;
    let mut parser = Parser::new(&format, Some(tools.into()), ParserOptions::default())?;
    parser.push(text.as_bytes(), &mut |_| ());
    let parsed = parser.finish(&mut |_| ());
    println!("read: {} {}", parsed.calls[0].name, parsed.calls[0].arguments.to_text());

    // … and a model is held to it. The bundled model never saw this format: the grammar writes it.
    let mut session = Session::builder().model("bundled").format(format).build()?;
    session.set_tools(Tools::from_file("examples/weather.json")?);
    session.options_mut().tool_choice = ToolChoice::Required;
    session.options_mut().max_calls = Some(1);
    let reply = session.ask("What's the weather in Beijing?")?;
    println!("written:\n{}", String::from_utf8_lossy(&reply.raw));
    for call in reply.runnable_calls() {
        println!("call: {} {}", call.name, call.arguments.to_text());
    }
    Ok(())
}
