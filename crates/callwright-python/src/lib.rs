//! The native half of the Python package: JSON texts in and out. `python/callwright/__init__.py` makes Python's values
//! of them, and is what users import.

use callwright_bindings::{
    CheckOptions, ParseOptions, RenderOptions, Rendered, Stream, check_template, error_json, formats, parse, render,
    render_variables, tools,
};
use callwright_core::{Error, ErrorKind};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};

create_exception!(callwright, CallwrightError, PyValueError, "What failed, where, and what to do about it.");

/// Pieces up to this size are read without letting other threads run: that takes longer than the reading.
const SMALL: usize = 4096;

/// An error of the library on its way to Python.
struct Failed(Error);

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed(error)
    }
}

impl From<Failed> for PyErr {
    fn from(Failed(error): Failed) -> PyErr {
        Python::attach(|py| {
            let raised = CallwrightError::new_err(error.to_string());
            let fields = error_json(&error);
            let value = raised.value(py);
            for (name, field) in fields.as_object().into_iter().flatten() {
                let set = match field {
                    Value::String(text) => value.setattr(name.as_str(), text),
                    Value::Number(number) => value.setattr(name.as_str(), number.as_u64()),
                    _ => value.setattr(name.as_str(), py.None()),
                };
                if let Err(error) = set {
                    return error;
                }
            }
            raised
        })
    }
}

/// The JSON text of an argument, which `json.dumps` wrote.
fn value(text: &str, argument: &str) -> Result<Value, Failed> {
    serde_json::from_str(text).map_err(|error| {
        // Python writes values that are nested deeper than this reader goes.
        let error = Error::new(ErrorKind::Syntax, format!("{argument} cannot be read as JSON: {error}"));
        Failed(error.hint("values may be nested about 120 levels deep"))
    })
}

fn optional(text: Option<&str>, argument: &str) -> Result<Value, Failed> {
    text.map_or(Ok(Value::Null), |text| value(text, argument))
}

/// Reads one answer while it arrives.
#[pyclass(frozen, module = "callwright._native")]
struct NativeParser(Mutex<Stream>);

impl NativeParser {
    fn with<T>(&self, work: impl FnOnce(&mut Stream) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl NativeParser {
    #[new]
    #[pyo3(signature = (format, tools, template, prompt_tail, reasoning, repair, other_forms))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        format: Option<String>,
        tools: Option<&str>,
        template: Option<String>,
        prompt_tail: String,
        reasoning: String,
        repair: bool,
        other_forms: String,
    ) -> Result<NativeParser, Failed> {
        let options =
            ParseOptions { format, template, prompt_tail, reasoning, repair, other_forms, ..ParseOptions::default() };
        let tools = optional(tools, "tools")?;
        let stream = py.detach(|| Stream::new(self::tools(&tools)?, &options))?;
        Ok(NativeParser(Mutex::new(stream)))
    }

    /// The events of the next piece, as JSON.
    fn feed(&self, py: Python<'_>, piece: &[u8]) -> Result<String, Failed> {
        let read = || self.with(|stream| stream.feed(piece)).map(|events| json(&events));
        // A lock is not waited for with the interpreter's own lock in hand.
        Ok(if piece.len() > SMALL { py.detach(read) } else { read() }?)
    }

    /// The last events, as JSON.
    fn finish(&self, py: Python<'_>) -> String {
        py.detach(|| json(&self.with(Stream::finish)))
    }

    /// The calls that may be executed, as JSON.
    fn runnable_calls(&self) -> String {
        json(&self.with(|stream| stream.runnable_calls()))
    }

    /// The message, as JSON.
    fn message(&self) -> String {
        self.with(|stream| stream.message()).to_string()
    }
}

/// Events have only texts, numbers and lists, which JSON can hold.
fn json(events: &impl serde::Serialize) -> String {
    serde_json::to_string(events).unwrap_or_else(|_| "[]".to_owned())
}

#[pyfunction(name = "parse")]
#[pyo3(signature = (text, format, tools, template, prompt_tail, reasoning, repair, other_forms, partial))]
#[allow(clippy::too_many_arguments)]
fn parse_text(
    py: Python<'_>,
    text: &[u8],
    format: Option<String>,
    tools: Option<&str>,
    template: Option<String>,
    prompt_tail: String,
    reasoning: String,
    repair: bool,
    other_forms: String,
    partial: bool,
) -> Result<String, Failed> {
    let options = ParseOptions { format, template, prompt_tail, reasoning, repair, other_forms, partial };
    let tools = optional(tools, "tools")?;
    Ok(py.detach(|| parse(text, self::tools(&tools)?, &options))?.to_string())
}

/// The prompt, its format, its tail, and notes.
#[pyfunction(name = "render")]
#[pyo3(signature = (template, messages, tools, format, add_generation_prompt, bos_token, eos_token, variables, now))]
#[allow(clippy::too_many_arguments)]
fn render_messages(
    py: Python<'_>,
    template: &str,
    messages: &str,
    tools: Option<&str>,
    format: Option<String>,
    add_generation_prompt: bool,
    bos_token: String,
    eos_token: String,
    variables: &str,
    now: Option<String>,
) -> Result<(String, String, String, Vec<String>), Failed> {
    let (messages, tools) = (value(messages, "messages")?, optional(tools, "tools")?);
    let variables = object(variables)?;
    let options = RenderOptions { format, add_generation_prompt, bos_token, eos_token, variables, now };
    let Rendered { text, format, prompt_tail, notes } =
        py.detach(|| render(template, messages, self::tools(&tools)?, &options))?;
    Ok((text, format, prompt_tail, notes))
}

#[pyfunction(name = "render_variables")]
#[pyo3(signature = (template, variables, now))]
fn render_with(py: Python<'_>, template: &str, variables: &str, now: Option<&str>) -> Result<String, Failed> {
    let variables = value(variables, "variables")?;
    Ok(py.detach(|| render_variables(template, &variables, now))?)
}

#[pyfunction(name = "check_template")]
#[pyo3(signature = (template, format, variables))]
fn check(py: Python<'_>, template: &str, format: Option<String>, variables: &str) -> Result<String, Failed> {
    let options = CheckOptions { format, variables: object(variables)? };
    Ok(py.detach(|| check_template(template, &options))?.to_string())
}

fn object(variables: &str) -> Result<serde_json::Map<String, Value>, Failed> {
    match value(variables, "variables")? {
        Value::Object(map) => Ok(map),
        other => Err(Failed(Error::new(ErrorKind::Config, format!("the variables are {other}; expected an object")))),
    }
}

#[pyfunction(name = "formats")]
fn built_in_formats() -> String {
    formats().to_string()
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("CallwrightError", module.py().get_type::<CallwrightError>())?;
    module.add_class::<NativeParser>()?;
    module.add_function(wrap_pyfunction!(parse_text, module)?)?;
    module.add_function(wrap_pyfunction!(render_messages, module)?)?;
    module.add_function(wrap_pyfunction!(render_with, module)?)?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(built_in_formats, module)?)
}
