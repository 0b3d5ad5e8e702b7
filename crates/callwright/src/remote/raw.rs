//! Raw mode: the server completes a text.

use super::feed::{Counted, Said, finish};
use super::http::Path;
use crate::answer::End;
use crate::engine::sampler::{Penalties, Sampling};
use crate::models::decimal;
use crate::template::Piece;
use serde_json::{Value, json};

/// A request to OpenAI's completions.
pub(super) fn request(prompt: &str, model: &str, most: usize, sampling: &Sampling) -> (Path, Value) {
    let Sampling { temperature, top_k, top_p, min_p, seed, .. } = *sampling;
    let mut body = json!({
        "model": model,
        "prompt": prompt,
        "max_tokens": most,
        "stream": true,
        "stream_options": {"include_usage": true},
        "temperature": decimal(temperature),
        // Markers are special tokens in many models. vLLM and SGLang leave those out of the text otherwise.
        "skip_special_tokens": false,
    });
    // An object may be extended so.
    let mut set = |name: &str, value: Value| body[name] = value;
    if temperature > 0.0 {
        set("top_p", json!(decimal(top_p)));
        set("seed", seed_of(seed));
        // Beyond OpenAI's API: what is not needed is not sent to a server that may refuse it.
        set("top_k", if top_k == 0 { json!(-1) } else { json!(top_k) });
        set("min_p", json!(decimal(min_p)));
    }
    self::penalties(sampling).for_each(|(name, value)| set(name, value));
    (Path::Api("completions"), body)
}

/// The penalties that are on, with the names that most servers know.
pub(super) fn penalties(sampling: &Sampling) -> impl Iterator<Item = (&'static str, Value)> {
    let Penalties { presence, frequency, repeat, dry_multiplier, .. } = sampling.penalties;
    [
        ("presence_penalty", presence, 0.0),
        ("frequency_penalty", frequency, 0.0),
        ("repetition_penalty", repeat, 1.0),
        ("dry_multiplier", dry_multiplier, 0.0),
    ]
    .into_iter()
    .filter(|(_, value, off)| value != off)
    .map(|(name, value, _)| (name, json!(decimal(value))))
}

/// A request to llama-server's own endpoint: the prompt as tokens, then the answer so far.
pub(super) fn llama_request<'a>(
    prompt: impl Iterator<Item = i32>,
    answer: &str,
    special: impl Iterator<Item = &'a String>,
    most: usize,
    sampling: &Sampling,
) -> (Path, Value) {
    let Sampling { temperature, top_k, top_p, min_p, seed, penalties } = *sampling;
    let mut prompt: Vec<Value> = prompt.map(Value::from).collect();
    prompt.extend((!answer.is_empty()).then(|| Value::from(answer)));
    let body = json!({
        "prompt": prompt,
        "n_predict": most,
        "stream": true,
        "cache_prompt": true,
        "temperature": decimal(temperature),
        "top_k": top_k,
        "top_p": decimal(top_p),
        "min_p": decimal(min_p),
        "seed": seed_of(seed),
        "repeat_penalty": decimal(penalties.repeat),
        "presence_penalty": decimal(penalties.presence),
        "frequency_penalty": decimal(penalties.frequency),
        "repeat_last_n": penalties.last_n,
        "dry_multiplier": decimal(penalties.dry_multiplier),
        // Otherwise special tokens are left out of the text.
        "preserved_tokens": special.collect::<Vec<_>>(),
    });
    (Path::Own("completion"), body)
}

/// Makes a request one for the next token alone, with the `most` likeliest ones and their probabilities.
pub(super) fn for_likeliest(body: &mut Value, is_llama: bool, most: usize) {
    let [tokens, likeliest] = if is_llama { ["n_predict", "n_probs"] } else { ["max_tokens", "logprobs"] };
    body["stream"] = json!(false);
    body[tokens] = json!(1);
    body[likeliest] = json!(most);
    // A whole answer has its usage anyway, and servers refuse the option without a stream.
    body.as_object_mut().and_then(|fields| fields.shift_remove("stream_options"));
}

/// The likeliest tokens, with the logarithm of their probabilities, of an answer to such a request.
pub(super) fn likeliest(answer: &Value) -> Vec<(String, f32)> {
    let found: Vec<(Option<String>, &Value)> = match &answer["completion_probabilities"][0]["top_logprobs"] {
        Value::Array(tokens) => tokens.iter().map(|token| (text_of(token), &token["logprob"])).collect(),
        _ => {
            let tokens = answer["choices"][0]["logprobs"]["top_logprobs"][0].as_object();
            tokens.into_iter().flatten().map(|(text, logprob)| (Some(text.clone()), logprob)).collect()
        }
    };
    let read = |(text, logprob): (Option<String>, &Value)| Some((text?, logprob.as_f64()? as f32));
    // The end of the turn has no text, and a part of a character is not shown as it is.
    let is_text = |(text, _): &(String, f32)| !text.is_empty() && !text.contains('\u{fffd}');
    found.into_iter().filter_map(read).filter(is_text).collect()
}

/// The text of one of llama-server's tokens, unless it is only a part of a character.
fn text_of(token: &Value) -> Option<String> {
    let byte = |byte: &Value| byte.as_u64().and_then(|byte| u8::try_from(byte).ok());
    match token["bytes"].as_array() {
        Some(bytes) => String::from_utf8(bytes.iter().map(byte).collect::<Option<_>>()?).ok(),
        None => token["token"].as_str().map(str::to_owned),
    }
}

/// The text of a prompt for a server that takes only text: what must stay plain text is broken up.
pub(super) fn plain(pieces: &[Piece]) -> String {
    const WORD_JOINER: char = '\u{2060}';
    let mut text = String::new();
    for piece in pieces {
        let mut chars = piece.text.chars();
        if piece.literal {
            text.extend(chars.next());
            text.push(WORD_JOINER);
        }
        text.push_str(chars.as_str());
    }
    text
}

/// A seed that every server takes.
pub(super) fn seed_of(seed: u64) -> Value {
    Value::from(seed & 0x7fff_ffff)
}

/// Returns what an event of a completion says.
pub(super) fn read(value: &Value) -> Said {
    if let Some(text) = value.get("content").and_then(Value::as_str) {
        let limit = value["stop_type"] == "limit" || value["stopped_limit"] == true || value["truncated"] == true;
        let end = (value["stop"] == true).then_some(if limit { End::Length } else { End::EndOfTurn });
        let number = |value: &Value| value.as_u64().unwrap_or(0) as usize;
        let counted = end.map(|_| Counted {
            prompt: number(&value["tokens_evaluated"]),
            cached: number(&value["timings"]["cache_n"]),
            completion: number(&value["tokens_predicted"]),
        });
        return Said { text: text.to_owned(), end, counted, failed: None };
    }
    let choice = &value["choices"][0];
    let (end, failed) = finish(choice["finish_reason"].as_str());
    let text = choice["text"].as_str().unwrap_or_default().to_owned();
    Said { text, end, counted: Counted::read(value), failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likeliest_tokens_are_whole_texts() {
        let token = |bytes: &[u8], logprob: f32| json!({"token": "?", "bytes": bytes, "logprob": logprob});
        let tokens = [token("é".as_bytes(), -0.5), token(&[0xc3], -1.0), token(b"", -2.0)];
        let own = json!({"completion_probabilities": [{"top_logprobs": tokens}]});
        assert_eq!(likeliest(&own), [("é".to_owned(), -0.5)]);
        let api = json!({"choices": [{"logprobs": {"top_logprobs": [{"a": -0.5, "\u{fffd}": -1.0}]}}]});
        assert_eq!(likeliest(&api), [("a".to_owned(), -0.5)]);
        assert_eq!(likeliest(&json!({"error": "too many"})), []);
    }

    #[test]
    fn a_literal_piece_is_broken_up() {
        let piece = |text: &str, literal| Piece { text: text.to_owned(), literal };
        let pieces = [piece("<|im_start|>user\n", false), piece("<|im_end|>", true), piece("é", true)];
        assert_eq!(plain(&pieces), "<|im_start|>user\n<\u{2060}|im_end|>é\u{2060}");
    }
}
