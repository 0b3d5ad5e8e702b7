//! Ask a model one question and print the calls that may be executed.
//!
//! ```console
//! $ cargo run --release --example ask
//! $ cargo run --release --example ask -- path/to/model.gguf tools.json "A question"
//! ```

use callwright::{Result, Session, Tools};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().unwrap_or_else(|| "bundled".to_owned());
    let tools = arguments.next().unwrap_or_else(|| "examples/weather.json".to_owned());
    let question = arguments.next().unwrap_or_else(|| "What's the weather in Beijing tomorrow?".to_owned());

    let mut session = Session::builder().model(model).tools(Tools::from_file(&tools)?).build()?;
    let reply = session.ask(question)?;

    print!("{}", reply.message.content);
    for call in &reply.calls {
        // A call that is cut off or does not fit its tool's schema must not be executed.
        if call.is_runnable() {
            println!("{} {}", call.name, call.arguments.to_text());
        } else {
            eprintln!("{} is not to be executed: {}", call.name, call.error_text());
        }
    }
    Ok(())
}
