//! What a server says about itself and its model.

use super::chat;
use super::engine::ServerEngine;
use super::http::{Http, Path};
use super::raw;
use crate::engine::vocabulary::special_looking;
use crate::engine::{Engine, ModelInfo};
use crate::error::nearest;
use crate::models::ServerModel;
use crate::setting::Setting;
use crate::template::ChatTemplate;
use crate::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The context of a server that does not say how long it is.
const UNKNOWN_CONTEXT: usize = 131_072;
/// How many of the likeliest tokens are asked for. vLLM allows 20 by default, OpenAI's API 5.
const LIKELIEST: [usize; 3] = [200, 20, 5];
/// More than any vocabulary has. llama-server gives all of them.
const EVERY: usize = 1 << 20;
/// How many texts of a chat template are tried as special tokens.
const MARKERS: usize = 64;

/// A server with one of its models.
pub struct Server {
    pub(super) http: Http,
    pub(super) named: ServerModel,
    /// What the server calls the model.
    pub(super) model: String,
    pub(super) info: ModelInfo,
    /// How many tokens prompt and answer may have.
    pub(super) context: usize,
    /// Whether it has llama-server's own endpoint, which takes prompts as tokens.
    pub(super) is_llama: bool,
    /// Whether it tokenises.
    pub(super) tokenizes: bool,
    /// How many of the likeliest tokens it may be asked for; 0 if it does not say.
    likeliest: AtomicUsize,
}

impl Server {
    /// Asks a server for its model. A `template` replaces what the server says of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Server`] if the server cannot be reached or refuses the key, [`ErrorKind::ModelNotFound`] if it has no
    /// such model, [`ErrorKind::Template`] if nobody says how its prompts are written.
    pub(crate) fn open(named: &ServerModel, context: Option<usize>, template: Option<&ChatTemplate>) -> Result<Server> {
        let http = Http::new(named)?;
        let models = listed(&http)?;
        let props = http.get(Path::Own("props"))?;
        let is_llama = props.as_ref().is_some_and(|props| props.get("total_slots").is_some());
        let (model, described) = chosen(named, &models, is_llama)?;
        let props = match described {
            // It may have several models, and answers for the one that is named.
            Some(described) if described["owned_by"] == "callwright" && !named.chat => {
                http.post(Path::Own("props"), &json!({"model": model}))?
            }
            _ => props,
        };
        let number = |value: Option<&Value>| value.and_then(Value::as_u64).filter(|number| *number > 0);
        let its_context = number(described.and_then(|model| model.get("max_model_len")))
            .or_else(|| number(props.as_ref().map(|props| &props["default_generation_settings"]["n_ctx"])))
            .or_else(|| number(props.as_ref().map(|props| &props["n_ctx"])))
            .and_then(|number| usize::try_from(number).ok());
        let text = |key: &str| props.as_ref().and_then(|props| props[key].as_str()).unwrap_or_default().to_owned();
        let name = if model.is_empty() { named.to_string() } else { model.clone() };
        let mut server = Server {
            http,
            named: named.clone(),
            model,
            info: ModelInfo { name, bos: text("bos_token"), eos: text("eos_token"), ..ModelInfo::default() },
            context: context.into_iter().chain(its_context).min().unwrap_or(UNKNOWN_CONTEXT),
            // Chats go to the same endpoint everywhere.
            is_llama: is_llama && !named.chat,
            tokenizes: false,
            likeliest: AtomicUsize::new(LIKELIEST[0]),
        };
        server.info.context_train = its_context.unwrap_or(server.context);
        if named.chat {
            server.info.templates = vec![("default".to_owned(), chat::TEMPLATE.to_owned())];
            return Ok(server);
        }
        let own = text("chat_template");
        if own.is_empty() && template.is_none() {
            let message = format!("{named} does not say how its model's prompts are written");
            return Err(Error::new(ErrorKind::Template, message).hint(format!(
                "give the model's chat template with {}, or let the server write the prompt: openai-chat:",
                Setting::Template
            )));
        }
        server.tokenizes = server.tokenizes()?;
        let source = template.map_or(own.as_str(), ChatTemplate::source);
        server.info.control_tokens = server.control_tokens(source)?;
        if !own.is_empty() {
            server.info.templates = vec![("default".to_owned(), own)];
        }
        Ok(server)
    }

    /// An engine of its own, which asks this server.
    pub(crate) fn engine(self: &Arc<Server>) -> Box<dyn Engine> {
        Box::new(ServerEngine::new(Arc::clone(self)))
    }

    pub(crate) fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Whether the server tokenises, as llama-server and vLLM do.
    fn tokenizes(&self) -> Result<bool> {
        Ok(self.tokenized("a b", true)?.is_some_and(|tokens| !tokens.is_empty()))
    }

    /// The tokens of a text, with special tokens or as plain text; vLLM does not distinguish.
    ///
    /// # Errors
    /// [`ErrorKind::Server`] if it does not say.
    pub(super) fn tokens(&self, text: &str, special: bool) -> Result<Vec<i64>> {
        self.tokenized(text, special)?.ok_or_else(|| {
            Error::new(ErrorKind::Server, format!("{} has no answer to what the tokens of a text are", self.named))
        })
    }

    fn tokenized(&self, text: &str, special: bool) -> Result<Option<Vec<i64>>> {
        let body = json!({
            "model": self.model,
            // llama-server's names, and vLLM's.
            "content": text, "add_special": false, "parse_special": special,
            "prompt": text, "add_special_tokens": false,
        });
        let answer = self.http.post(Path::Own("tokenize"), &body)?;
        let tokens = answer.as_ref().and_then(|answer| answer["tokens"].as_array());
        Ok(tokens.and_then(|tokens| tokens.iter().map(Value::as_i64).collect()))
    }

    /// The likeliest next tokens that fit after a request for more text, with the logarithm of their probabilities;
    /// none if the server does not say.
    ///
    /// # Errors
    /// [`ErrorKind::Server`] if it cannot be reached.
    pub(super) fn likeliest(
        &self,
        path: Path,
        mut body: Value,
        fits: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Vec<(String, f32)>> {
        let mut ask = |most| {
            raw::for_likeliest(&mut body, self.is_llama, most);
            self.http.post(path, &body).map(|answer| answer.map(|answer| raw::likeliest(&answer)).unwrap_or_default())
        };
        let mut fitting = |mut found: Vec<(String, f32)>| {
            found.retain(|(text, _)| fits(text.as_bytes()));
            found
        };
        let first = self.likeliest.load(Ordering::Relaxed);
        for most in LIKELIEST.into_iter().filter(|most| *most <= first) {
            let found = ask(most)?;
            if found.is_empty() {
                continue;
            }
            self.likeliest.store(most, Ordering::Relaxed);
            let found = fitting(found);
            // A word such as `true` may be unlikely where the model would write something else.
            return if found.is_empty() && most == LIKELIEST[0] { Ok(fitting(ask(EVERY)?)) } else { Ok(found) };
        }
        self.likeliest.store(0, Ordering::Relaxed);
        Ok(Vec::new())
    }

    /// The texts of a chat template that are special tokens of the model; all that look like some, if the server cannot
    /// tell.
    fn control_tokens(&self, template: &str) -> Result<Vec<String>> {
        let mut found = markers(template);
        found.extend([&self.info.bos, &self.info.eos].into_iter().filter(|text| !text.is_empty()).cloned());
        found.sort();
        found.dedup();
        found.truncate(MARKERS);
        if !self.tokenizes {
            return Ok(found);
        }
        let mut special = Vec::new();
        for text in &found {
            if self.tokens(text, true)?.len() == 1 && self.tokens(text, false)?.len() > 1 {
                special.push(text.clone());
            }
        }
        Ok(if special.is_empty() { found } else { special })
    }
}

/// The models of a server.
///
/// # Errors
/// [`ErrorKind::Config`] if the address is none, [`ErrorKind::Server`] if the server cannot be reached or lists none.
pub fn models(url: &str) -> Result<Vec<String>> {
    let mut seen = HashSet::new();
    let models = described(url, None)?;
    let names = models.iter().filter_map(|model| Some(model["id"].as_str()?.to_owned()));
    let models: Vec<String> = names.filter(|name| seen.insert(name.clone())).collect();
    if models.is_empty() {
        return Err(Error::new(ErrorKind::Server, format!("{url} does not list its models"))
            .hint("is this the address of the server's OpenAI API, which usually ends in /v1?"));
    }
    Ok(models)
}

/// The models of a server, as it describes them. Its key is in this variable of the environment, or in the usual one.
///
/// # Errors
/// As [`models`], but a server may list none.
pub fn described(url: &str, key: Option<&str>) -> Result<Vec<Value>> {
    let mut named = ServerModel::new(url, "", false)
        .map_err(|why| Error::new(ErrorKind::Config, format!("{url:?} is no server: {why}")))?;
    named.api_key_env = key.map(str::to_owned);
    listed(&Http::new(&named)?)
}

/// Returns what a server says of each of its models; nothing if it does not list them.
fn listed(http: &Http) -> Result<Vec<Value>> {
    let mut list = http.get(Path::Api("models"))?.unwrap_or_default();
    let models = list.get_mut("data").and_then(Value::as_array_mut);
    Ok(models.map(std::mem::take).unwrap_or_default())
}

/// The model that is meant, and what the server says of it.
fn chosen<'m>(named: &ServerModel, models: &'m [Value], is_llama: bool) -> Result<(String, Option<&'m Value>)> {
    let id = |model: &'m Value| model["id"].as_str().unwrap_or_default();
    if let Some(model) = models.iter().find(|model| !named.model.is_empty() && id(model) == named.model) {
        return Ok((named.model.clone(), Some(model)));
    }
    match models {
        // llama-server takes any name.
        [only] if named.model.is_empty() || is_llama => Ok((id(only).to_owned(), Some(only))),
        [] => Ok((named.model.clone(), None)),
        several => {
            let ids: Vec<&str> = several.iter().map(id).collect();
            let what = if named.model.is_empty() {
                format!("{} has several models", named.url)
            } else {
                format!("{} has no model {:?}", named.url, named.model)
            };
            let hint = match nearest(&named.model, ids.iter().copied()) {
                Some(meant) if !named.model.is_empty() => format!("did you mean {meant:?}?"),
                _ => format!("name one of them after #: {}", ids.join(", ")),
            };
            Err(Error::new(ErrorKind::ModelNotFound, what).hint(hint))
        }
    }
}

/// The texts in a chat template that look like special tokens, and are not Jinja.
fn markers(template: &str) -> Vec<String> {
    let mut found = special_looking(template);
    found.retain(|text| !text.contains(['{', '}', '\'', '"', '%']));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_look_like_special_tokens() {
        let template =
            "{% for m in messages %}{% if m.x < 3 and a[0] > 2 %}<|im_start|>{{ m['role'] }}</s>[INST]{% endif %}";
        assert_eq!(markers(template), ["<|im_start|>", "</s>", "[INST]"]);
    }
}
