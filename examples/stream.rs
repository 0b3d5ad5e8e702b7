//! Print an answer while the model writes it: text, calls and their arguments.
//!
//! ```console
//! $ cargo run --release --example stream
//! ```

use callwright::message::Message;
use callwright::parse::event::Event as Parsed;
use callwright::session::Event;
use callwright::{Result, Session, Tools};
use std::io::Write;

fn main() -> Result<()> {
    let mut session = Session::open("bundled")?;
    session.set_tools(Tools::from_file("examples/weather.json")?);
    session.set_messages(vec![Message::user("What's the weather in New York and San Francisco?")])?;
    session.options_mut().max_tokens = 200;

    let reply = session.respond(&mut |event| match event {
        Event::Parsed(Parsed::Text { delta }) => show(delta),
        Event::Parsed(Parsed::CallStart { name, .. }) => show(&format!("\n{name} ")),
        Event::Parsed(Parsed::CallArguments { delta, .. }) => show(delta),
        Event::Parsed(Parsed::CallEnd { complete: false, .. }) => show(" (cut off)"),
        Event::Parsed(Parsed::CallEnd { valid: false, .. }) => show(" (invalid)"),
        Event::Parsed(Parsed::Repair(repair)) => eprintln!("\nrepaired: {:?}", repair.kind),
        _ => {}
    })?;

    println!("\n{} tokens, finish reason {:?}", reply.usage.completion_tokens, reply.finish_reason);
    Ok(())
}

fn show(text: &str) {
    print!("{text}");
    // A terminal that cannot be written to has no use for an error message either.
    let _ = std::io::stdout().flush();
}
