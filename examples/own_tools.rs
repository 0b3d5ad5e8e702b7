//! Tools that are Rust functions: the model calls them, and answers with their results.
//!
//! ```console
//! $ cargo run --release --example own_tools
//! ```

use callwright::agent::Agent;
use callwright::{Result, Session};

/// The arguments of the tool. The model reads the comments of the fields.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    /// The city
    city: String,
}

fn weather(place: Place) -> std::result::Result<String, String> {
    match place.city.as_str() {
        "New York" => Ok(r#"{"temp": 21, "sky": "sunny"}"#.to_owned()),
        "San Francisco" => Ok(r#"{"temp": 16, "sky": "foggy"}"#.to_owned()),
        // The model reads this and may call again.
        other => Err(format!("there is no forecast for {other}")),
    }
}

fn main() -> Result<()> {
    let mut agent = Agent::default();
    agent.function("get_weather", "Get the weather forecast for a city", weather);

    let mut session = Session::open("bundled")?;
    let outcome = session.ask_and_run("What's the weather in New York and San Francisco?", &mut agent)?;
    // An error where the run did not end with an answer.
    let outcome = outcome.ok()?;

    println!("{}", outcome.answer);
    println!("{} answers", outcome.models.iter().map(|model| model.answers).sum::<usize>());
    Ok(())
}
