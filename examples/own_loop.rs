//! Execute the calls yourself, and give the results back to the model.
//!
//! ```console
//! $ cargo run --release --example own_loop
//! ```

use callwright::message::Message;
use callwright::{Result, Session, Tools};

fn main() -> Result<()> {
    let mut session = Session::open("bundled")?;
    session.set_tools(Tools::from_file("examples/weather.json")?);
    let reply = session.ask("What's the weather in New York?")?;

    // Each call needs one result with the call's id, also where the call is not executed.
    for call in &reply.calls {
        let result = match call.is_runnable() {
            true => r#"{"temp": 21, "sky": "sunny"}"#.to_owned(),
            false => format!("error: {}", call.error_text()),
        };
        println!("{} {} -> {result}", call.name, call.arguments.to_text());
        session.push(Message::tool(call.id.as_str(), call.name.as_str(), result));
    }
    println!("{}", session.respond(&mut |_| ())?.message.content);
    Ok(())
}
