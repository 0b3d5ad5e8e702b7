//! rig's OpenAI client against `callwright serve`: a call, its result and the answer, over responses and chat
//! completions, whole and streamed.

use futures::StreamExt;
use rig_core::agent::MultiTurnStreamItem;
use rig_core::client::CompletionClient;
use rig_core::completion::{CompletionModel, Prompt};
use rig_core::providers::openai;
use rig_core::streaming::StreamingPrompt;
use rig_core::tool::Tool;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

static CALLS: AtomicUsize = AtomicUsize::new(0);

struct Weather;

#[derive(Deserialize)]
struct Question {
    city: String,
}

impl Tool for Weather {
    const NAME: &'static str = "get_weather";
    type Error = std::convert::Infallible;
    type Args = Question;
    type Output = String;

    fn description(&self) -> String {
        "Get the weather".to_owned()
    }

    fn parameters(&self) -> Value {
        let text = json!({"type": "string"});
        json!({"type": "object", "properties": {"city": text, "date": text}, "required": ["city", "date"]})
    }

    async fn call(&self, question: Question) -> Result<String, Self::Error> {
        assert_eq!(question.city, "Beijing");
        CALLS.fetch_add(1, Ordering::Relaxed);
        Ok("21 C, sunny".to_owned())
    }
}

const QUESTION: &str = "What's the weather in Beijing tomorrow?";

async fn ask<M: CompletionModel + 'static>(name: &str, model: M)
where
    M::StreamingResponse: Send + Sync,
{
    let agent = rig_core::agent::AgentBuilder::new(model).tool(Weather).build();
    let before = CALLS.load(Ordering::Relaxed);
    let answer = agent.prompt(QUESTION).max_turns(3).await.unwrap();
    assert!(answer.contains("21 C"), "{answer}");
    assert_eq!(CALLS.load(Ordering::Relaxed), before + 1);
    let mut stream = agent.stream_prompt(QUESTION).max_turns(3).await;
    let mut last = String::new();
    while let Some(item) = stream.next().await {
        if let MultiTurnStreamItem::FinalResponse(answer) = item.unwrap() {
            last = answer.output;
        }
    }
    assert!(last.contains("21 C"), "{last}");
    assert_eq!(CALLS.load(Ordering::Relaxed), before + 2);
    println!("ok  rig {name}: call, result and answer, whole and streamed");
}

#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).expect("the server's address");
    let client = openai::Client::builder().api_key("none").base_url(format!("{url}/v1")).build().unwrap();
    ask("responses", client.completion_model("bundled")).await;
    ask("chat completions", client.completions_api().completion_model("bundled")).await;
}
