//! The functions of the npm package. `npm/callwright.js` and `npm/callwright.d.ts` give them their types.

use callwright_bindings as bindings;
use callwright_bindings::{CheckOptions, ParseOptions, RenderOptions, Rendered, Stream};
use callwright_core::{Error, ErrorKind};
use js_sys::{Date, JSON, Object, Reflect};
use serde_json::{Value, json};
use wasm_bindgen::prelude::*;

/// An error as JavaScript's, with the fields of the library's.
fn thrown(error: &Error) -> JsValue {
    let thrown = js_sys::Error::new(&error.to_string());
    thrown.set_name("CallwrightError");
    for (name, field) in bindings::error_json(error).as_object().into_iter().flatten() {
        // The text is the error's `message` already.
        if name != "message" {
            let _ = Reflect::set(&thrown, &name.as_str().into(), &from_json(field));
        }
    }
    thrown.into()
}

type Answer<T = JsValue> = Result<T, JsValue>;

/// JSON is the bridge: the browser's own reader is faster than building objects one by one from here.
fn from_json(value: &Value) -> JsValue {
    JSON::parse(&value.to_string()).unwrap_or(JsValue::NULL)
}

fn to_json(value: &JsValue, argument: &str) -> Answer<Value> {
    if value.is_undefined() || value.is_null() {
        return Ok(Value::Null);
    }
    let text = JSON::stringify(value)?;
    let text = text.as_string().unwrap_or_default();
    serde_json::from_str(&text).map_err(|error| {
        let message = format!("{argument} cannot be read as JSON: {error}");
        thrown(&Error::new(ErrorKind::Syntax, message))
    })
}

/// Options from an object; unknown ones are errors.
fn options<T: serde::de::DeserializeOwned + Default>(value: &JsValue) -> Answer<T> {
    match to_json(value, "the options")? {
        Value::Null => Ok(T::default()),
        value => serde_json::from_value(value)
            .map_err(|error| thrown(&Error::new(ErrorKind::Config, format!("the options cannot be used: {error}")))),
    }
}

fn tools(value: &JsValue) -> Answer<Option<callwright_core::Tools>> {
    bindings::tools(&to_json(value, "tools")?).map_err(|error| thrown(&error))
}

/// The local time. WebAssembly has no clock of its own.
fn now() -> String {
    let date = Date::new_0();
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        date.get_full_year(),
        date.get_month() + 1,
        date.get_date(),
        date.get_hours(),
        date.get_minutes(),
        date.get_seconds()
    )
}

/// The options without their tools, and the tools.
fn split(value: &JsValue) -> Answer<(JsValue, JsValue)> {
    if value.is_undefined() || value.is_null() {
        return Ok((JsValue::NULL, JsValue::NULL));
    }
    let Some(object) = value.dyn_ref::<Object>() else {
        let error = Error::new(ErrorKind::Config, "the options are no object");
        return Err(thrown(&error.hint("write { format: \"hermes\", tools }")));
    };
    let rest = Object::assign(&Object::new(), object);
    let tools = Reflect::get(&rest, &"tools".into())?;
    Reflect::delete_property(&rest, &"tools".into())?;
    Ok((rest.into(), tools))
}

/// Reads one answer of a model while it arrives.
#[wasm_bindgen]
pub struct Parser(Stream);

#[wasm_bindgen]
impl Parser {
    /// A parser with these options.
    #[wasm_bindgen(constructor, skip_typescript)]
    pub fn new(given: &JsValue) -> Answer<Parser> {
        let (rest, given) = split(given)?;
        let options: ParseOptions = options(&rest)?;
        Stream::new(tools(&given)?, &options).map(Parser).map_err(|error| thrown(&error))
    }

    /// The events of the next piece: a text, or bytes.
    #[wasm_bindgen(skip_typescript)]
    pub fn feed(&mut self, piece: &JsValue) -> Answer {
        let bytes = bytes(piece)?;
        let events = self.0.feed(&bytes).map_err(|error| thrown(&error))?;
        Ok(from_json(&json!(events)))
    }

    /// The last events.
    #[wasm_bindgen(skip_typescript)]
    pub fn finish(&mut self) -> JsValue {
        from_json(&json!(self.0.finish()))
    }

    /// The calls that may be executed.
    #[wasm_bindgen(js_name = runnableCalls, skip_typescript)]
    pub fn runnable_calls(&self) -> JsValue {
        from_json(&json!(self.0.runnable_calls()))
    }

    /// The message so far; after the end it has the diagnostics.
    #[wasm_bindgen(getter, skip_typescript)]
    pub fn message(&self) -> JsValue {
        from_json(&self.0.message())
    }
}

fn bytes(piece: &JsValue) -> Answer<Vec<u8>> {
    if let Some(text) = piece.as_string() {
        return Ok(text.into_bytes());
    }
    match piece.dyn_ref::<js_sys::Uint8Array>() {
        Some(array) => Ok(array.to_vec()),
        None => Err(thrown(&Error::new(ErrorKind::Config, "a piece is neither a string nor a Uint8Array"))),
    }
}

/// Reads a whole text, and returns its message in OpenAI's form.
#[wasm_bindgen(skip_typescript)]
pub fn parse(text: &JsValue, given: &JsValue) -> Answer {
    let (rest, given) = split(given)?;
    let options: ParseOptions = options(&rest)?;
    let message = bindings::parse(&bytes(text)?, tools(&given)?, &options).map_err(|error| thrown(&error))?;
    Ok(from_json(&message))
}

/// Renders a conversation.
#[wasm_bindgen(skip_typescript)]
pub fn render(template: &str, messages: &JsValue, given: &JsValue) -> Answer {
    let (rest, given) = split(given)?;
    let mut options: RenderOptions = options(&rest)?;
    options.now.get_or_insert_with(now);
    let messages = to_json(messages, "messages")?;
    let Rendered { text, format, prompt_tail, notes } =
        bindings::render(template, messages, tools(&given)?, &options).map_err(|error| thrown(&error))?;
    Ok(from_json(&json!({"text": text, "format": format, "promptTail": prompt_tail, "notes": notes})))
}

/// Renders a template with exactly these variables.
#[wasm_bindgen(js_name = renderVariables, skip_typescript)]
pub fn render_variables(template: &str, variables: &JsValue, clock: Option<String>) -> Answer<String> {
    let clock = clock.unwrap_or_else(now);
    let variables = to_json(variables, "variables")?;
    bindings::render_variables(template, &variables, Some(&clock)).map_err(|error| thrown(&error))
}

/// Reports what a chat template can do.
#[wasm_bindgen(js_name = checkTemplate, skip_typescript)]
pub fn check_template(template: &str, given: &JsValue) -> Answer {
    let options: CheckOptions = options(given)?;
    let report = bindings::check_template(template, &options).map_err(|error| thrown(&error))?;
    Ok(from_json(&report))
}

/// The built-in formats.
#[wasm_bindgen(skip_typescript)]
pub fn formats() -> JsValue {
    from_json(&bindings::formats())
}
