//! Renders a conversation with a chat template, as transformers does:
//!
//! ```console
//! $ cargo run --release -p minijinja-transformers --example render -- chat_template.jinja messages.json
//! $ cargo run --release -p minijinja-transformers --example render -- chat_template.jinja messages.json tools.json
//! ```
//!
//! messages.json has a list of messages in OpenAI's form; tools.json, a list of tools.

use minijinja_transformers::{Template, variables};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (template, messages, tools) = match arguments.as_slice() {
        [template, messages] => (template, messages, None),
        [template, messages, tools] => (template, messages, Some(tools)),
        _ => return Err("usage: render TEMPLATE MESSAGES [TOOLS]".into()),
    };
    let read = |path: &String| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let json = |path: &String| -> Result<serde_json::Value, String> {
        serde_json::from_str(&read(path)?).map_err(|error| format!("{path}: {error}"))
    };
    let source = read(template)?;
    let mut variables = variables(json(messages)?, tools.map(json).transpose()?, true);
    // The texts of these tokens are in the model's tokenizer_config.json.
    variables.insert("bos_token".into(), "<s>".into());
    variables.insert("eos_token".into(), "</s>".into());
    let prompt = Template::new(source).and_then(|template| template.render(&variables));
    print!("{}", prompt.map_err(|error| format!("{template}: {error}"))?);
    Ok(())
}
