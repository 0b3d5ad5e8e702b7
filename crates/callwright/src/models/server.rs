//! A model that a server runs, and its address.

use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::time::Duration;

/// The variable with the key, unless the entry names another.
const KEY: &str = "CALLWRIGHT_UPSTREAM_KEY";

/// A model on an HTTP server: vLLM, SGLang, llama-server, `callwright serve` and others.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ServerModel {
    /// The address of the server's OpenAI API, such as `http://host:8000/v1`.
    pub url: String,
    /// What the server calls the model; empty if it has only one.
    pub model: String,
    /// Whether the server writes the prompt and reads the calls. Otherwise callwright does both.
    pub chat: bool,
    /// The environment variable with the server's key; by default `CALLWRIGHT_UPSTREAM_KEY`, which may be unset.
    pub api_key_env: Option<String>,
    /// How long the server may be silent.
    pub timeout: Duration,
    /// Cost of a million tokens of the prompt and of the answer, in any currency.
    pub cost: Option<(f64, f64)>,
}

impl ServerModel {
    /// How long a server may be silent, unless models.toml says otherwise: a long prompt takes a while.
    pub(super) const TIMEOUT: Duration = Duration::from_secs(300);

    /// Reads `openai:URL[#MODEL]` or `openai-chat:URL[#MODEL]`; `None` if the text begins otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the address is none.
    pub(super) fn parse(text: &str) -> Option<Result<ServerModel>> {
        let (scheme, rest) = text.split_once(':')?;
        let chat = match scheme {
            "openai" => false,
            "openai-chat" => true,
            _ => return None,
        };
        let (url, model) = rest.split_once('#').unwrap_or((rest, ""));
        Some(ServerModel::new(url, model, chat).map_err(|why| {
            Error::new(ErrorKind::Config, format!("{text:?} names no server: {why}"))
                .hint(format!("write {scheme}:http://HOST:PORT/v1#MODEL"))
        }))
    }

    /// A model at an address; the error says what is wrong with the address.
    pub(crate) fn new(url: &str, model: &str, chat: bool) -> Result<ServerModel, String> {
        let url = url.trim().trim_end_matches('/');
        let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let host = host.ok_or("the address begins with neither http:// nor https://")?;
        if host.is_empty() || host.starts_with(['/', ':']) {
            return Err("the address has no host".to_owned());
        }
        if let Some(odd) = url.chars().find(|c| c.is_whitespace() || c.is_control() || matches!(c, '?' | '"' | '\\')) {
            return Err(format!("the address contains {odd:?}"));
        }
        // Without a path it is the server's root, where nobody has this API.
        let url = if host.contains('/') { url.to_owned() } else { format!("{url}/v1") };
        let (model, timeout) = (model.to_owned(), ServerModel::TIMEOUT);
        Ok(ServerModel { url, model, chat, api_key_env: None, timeout, cost: None })
    }

    /// The key, if there is one.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the entry names a variable that is not set.
    pub fn key(&self) -> Result<Option<String>> {
        let name = self.api_key_env.as_deref().unwrap_or(KEY);
        match std::env::var(name).ok().map(|key| key.trim().to_owned()).filter(|key| !key.is_empty()) {
            None if self.api_key_env.is_some() => {
                Err(Error::new(ErrorKind::Config, format!("{self}: the environment variable {name} is not set"))
                    .hint(format!("it has the server's key: export {name}=…")))
            }
            Some(key) if key.contains(|c: char| c.is_whitespace() || c.is_control()) => {
                Err(Error::new(ErrorKind::Config, format!("the key in {name} is not one word")))
            }
            key => Ok(key),
        }
    }
}

impl fmt::Display for ServerModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.chat { "openai-chat:" } else { "openai:" })?;
        f.write_str(&self.url)?;
        if self.model.is_empty() { Ok(()) } else { write!(f, "#{}", self.model) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_server_and_model() {
        let read = |text| ServerModel::parse(text).unwrap().unwrap();
        let raw = read("openai:http://host:8000/v1#Qwen/Qwen3-8B");
        assert_eq!((raw.url.as_str(), raw.model.as_str(), raw.chat), ("http://host:8000/v1", "Qwen/Qwen3-8B", false));
        let chat = read("openai-chat:https://host/");
        assert_eq!((chat.url.as_str(), chat.model.as_str(), chat.chat), ("https://host/v1", "", true));
        assert_eq!(chat.to_string(), "openai-chat:https://host/v1");
        assert!(ServerModel::parse("hf:org/repo/file.gguf").is_none());
        assert!(ServerModel::parse("model.gguf").is_none());
    }

    #[test]
    fn what_is_no_address_is_an_error_that_shows_one() {
        for (text, why) in [
            ("openai:host:8000", "the address begins with neither http:// nor https://"),
            ("openai:http:///v1", "the address has no host"),
            ("openai:http://a b/v1", "the address contains ' '"),
        ] {
            let error = ServerModel::parse(text).unwrap().unwrap_err();
            assert!(error.message().ends_with(why), "{error}");
            assert_eq!(error.hint_text(), Some("write openai:http://HOST:PORT/v1#MODEL"));
        }
    }
}
