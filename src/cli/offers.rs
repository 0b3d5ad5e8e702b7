//! Resources and prompts of MCP servers in a chat.

use super::{notice, say};
use callwright::agent::exec::Executor;
use callwright::agent::exec::remote::{Offer, Use};
use callwright::{Error, ErrorKind};
use serde_json::{Map, Value};

/// Lists what servers have beside tools.
pub fn list(executor: &Executor) {
    let offers = known(executor);
    if offers.is_empty() {
        say(format_args!("none; --mcp FILE starts servers that may have some\n"));
    }
    for Offer { server, name, description, used } in &offers {
        let about = description.lines().next().unwrap_or_default();
        let use_it = match used {
            Use::Resource(uri) if uri == name => format!("@{server}/{name}"),
            Use::Resource(uri) => format!("@{server}/{name} ({uri})"),
            Use::Prompt(arguments) => {
                let shown = arguments.iter().map(|(name, required)| match required {
                    true => format!(" {name}=…"),
                    false => format!(" [{name}=…]"),
                });
                format!("/prompt {server}/{name}{}", shown.collect::<String>())
            }
        };
        say(format_args!("{use_it}{}{about}\n", if about.is_empty() { "" } else { "  " }));
    }
}

/// A message with the texts of the resources that it names as @SERVER/NAME, or by their addresses.
///
/// # Errors
/// [`ErrorKind::Tools`] if a server has no such resource, or does not give it.
pub fn with_resources(text: &str, executor: &Executor) -> Result<String, Error> {
    let words = text.split_whitespace().map(|word| word.trim_start_matches(['(', '[', '"', '\'']));
    let names: Vec<&str> = words.filter(|word| word.starts_with('@') && word.contains('/')).collect();
    if names.is_empty() || executor.remote.is_none() {
        return Ok(text.to_owned());
    }
    let offers = known(executor);
    let mut whole = text.to_owned();
    for word in names {
        let (server, name) = word[1..].split_once('/').unwrap_or_default();
        let resources: Vec<(&Offer, &str)> = offers
            .iter()
            .filter(|offer| offer.server == server)
            .filter_map(|offer| match &offer.used {
                Use::Resource(uri) => Some((offer, uri.as_str())),
                Use::Prompt(_) => None,
            })
            .collect();
        // It may be an address of another kind, such as a package's name.
        if resources.is_empty() {
            continue;
        }
        let plain = name.trim_end_matches(['.', ',', ';', ':', '?', '!', ')', ']', '"', '\'']);
        let found = [name, plain].into_iter().find_map(|name| {
            resources.iter().find(|(offer, uri)| offer.name == name || *uri == name).map(|(offer, _)| *offer)
        });
        let names = resources.iter().map(|(offer, _)| offer.name.as_str());
        let offer = found.ok_or_else(|| missing("resource", server, plain, names))?;
        whole += &format!("\n\n{}", take(executor, offer, Map::new())?);
    }
    Ok(whole)
}

/// The text of the prompt that `SERVER/NAME ARGUMENT=VALUE …` names.
///
/// # Errors
/// [`ErrorKind::Tools`] if there is none, an argument is missing or unknown, or the server does not give it.
pub fn prompt(command: &str, executor: &Executor) -> Result<String, Error> {
    let usage = || Error::new(ErrorKind::Tools, "/prompt SERVER/NAME [ARGUMENT=VALUE …]").hint("/resources lists them");
    let (named, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let (server, name) = named.split_once('/').ok_or_else(usage)?;
    let offers = known(executor);
    let prompts = || offers.iter().filter(|offer| offer.server == server && matches!(offer.used, Use::Prompt(_)));
    let found = prompts().find(|offer| offer.name == name);
    let offer = found.ok_or_else(|| missing("prompt", server, name, prompts().map(|offer| offer.name.as_str())))?;
    let Use::Prompt(wanted) = &offer.used else { return Err(usage()) };
    let mut arguments = Map::new();
    let mut last = String::new();
    for word in rest.split_whitespace() {
        match word.split_once('=').filter(|(name, _)| wanted.iter().any(|(known, _)| known == name)) {
            Some((name, value)) => {
                last = name.to_owned();
                arguments.insert(last.clone(), value.into());
            }
            // A value may have several words.
            None => match arguments.get_mut(&last) {
                Some(Value::String(value)) => *value += &format!(" {word}"),
                _ => return Err(usage()),
            },
        }
    }
    if let Some((missing, _)) = wanted.iter().find(|(name, required)| *required && !arguments.contains_key(name)) {
        let message = format!("the prompt {name:?} of the MCP server {server:?} needs the argument {missing:?}");
        return Err(Error::new(ErrorKind::Tools, message).hint(format!("/prompt {named} {missing}=…")));
    }
    take(executor, offer, arguments)
}

fn known(executor: &Executor) -> Vec<Offer> {
    let (offers, notes) = executor.remote.as_ref().map(|remote| remote.offers()).unwrap_or_default();
    notes.iter().for_each(|note| notice(note));
    offers
}

fn take(executor: &Executor, offer: &Offer, arguments: Map<String, Value>) -> Result<String, Error> {
    let taken = executor.remote.as_ref().map(|remote| remote.take(offer, arguments));
    taken.unwrap_or_else(|| Err("it has ended".to_owned())).map_err(|why| {
        Error::new(ErrorKind::Tools, format!("the MCP server {:?} does not give {:?}: {why}", offer.server, offer.name))
    })
}

fn missing<'a>(what: &str, server: &str, name: &str, names: impl Iterator<Item = &'a str> + Clone) -> Error {
    let error = Error::new(ErrorKind::Tools, format!("the MCP server {server:?} has no {what} {name:?}"));
    match callwright::error::nearest(name, names) {
        Some(meant) => error.hint(format!("did you mean {meant:?}? /resources lists them")),
        None => error.hint("/resources lists them"),
    }
}
