//! `callwright render`: the prompt, as the model gets it.

use super::input::{ConversationOptions, Input, ModelOptions};
use super::stdin::{Source, batch};
use super::{DONE, notice, say, screen};
use anyhow::Result;
use callwright::template::ChatTemplate;
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;

/// Print the prompt that run would send, and how many tokens it has
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    callwright render \"What's the weather in Beijing?\" --tools tools.json\n  \
    callwright render --template chat.jinja --vars variables.json --now 2026-01-15T12:00:00")]
pub struct RenderArgs {
    #[command(flatten)]
    conversation: ConversationOptions,

    #[command(flatten)]
    model: ModelOptions,

    /// Render --template with exactly these variables (a JSON object); needs no model
    #[arg(long, value_name = "FILE", requires = "template", conflicts_with_all = ["prompt", "prompt_option", "tools", "messages", "system"])]
    vars: Option<PathBuf>,

    /// Set the template's clock, as 2026-01-15T12:00:00 [default: the time now]
    #[arg(long, value_name = "TIME")]
    now: Option<jiff::civil::DateTime>,

    /// Read lines {"template", "vars", "now"} and answer each with {"text"} or {"error"}; "template" is a name or a path, as in --template
    #[arg(long, conflicts_with_all = ["prompt", "prompt_option", "tools", "messages", "system", "vars", "template", "now"])]
    batch: bool,

    /// Print a JSON object: {"text", "tokens"}
    #[arg(long)]
    json: bool,
}

/// One line of `--batch`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    template: String,
    vars: Value,
    now: Option<jiff::civil::DateTime>,
}

pub fn run(args: RenderArgs) -> Result<u8> {
    if args.batch {
        return render_lines();
    }
    // The prompt as it is: anstream would strip its control characters.
    let mut out = screen::data();
    if let (Some(path), Some(template)) = (&args.vars, &args.model.template) {
        let vars = callwright::json::from_file(path)?;
        let rendered = ChatTemplate::load(template)?.render_vars(&vars, args.now);
        // What fails in the template says so itself.
        let text = rendered.map_err(|error| if vars.is_object() { error } else { error.in_file(path) })?;
        if args.json {
            writeln!(out, "{}", json!({"text": text}))?
        } else {
            write!(out, "{text}")?
        }
        return Ok(DONE);
    }
    let Input { messages, tools, tool_choice, asked, .. } = args.conversation.read()?;
    let (mut session, _) = args.model.open()?;
    session.options_mut().tool_choice = tool_choice;
    session.options_mut().now = args.now;
    session.options_mut().select_tools = args.conversation.select_tools.and_then(|shown| shown.0);
    session.set_variables(asked.body.variables);
    session.set_tools(tools);
    session.notices().iter().for_each(|text| notice(text));
    session.set_adopted_messages(messages);
    let (prompt, tokens, notes) = session.prompt_with_notes()?;
    notes.iter().for_each(|text| notice(text));
    let text = prompt.text();
    if args.json {
        writeln!(out, "{}", json!({"text": text, "tokens": tokens.len()}))?;
    } else {
        write!(out, "{text}")?;
        out.flush()?;
        say(format_args!("{}{} tokens\n", if text.ends_with('\n') { "" } else { "\n" }, tokens.len()));
    }
    Ok(DONE)
}

fn render_lines() -> Result<u8> {
    let mut templates: HashMap<String, ChatTemplate> = HashMap::new();
    batch(Source::stdin(), |case: Case| {
        if !templates.contains_key(&case.template) {
            templates.insert(case.template.clone(), ChatTemplate::load(&case.template)?);
        }
        Ok(json!({"text": templates[&case.template].render_vars(&case.vars, case.now)?}))
    })
}
