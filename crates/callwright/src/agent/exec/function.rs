//! Tools that are Rust functions.

use super::{Executor, Failure, FailureKind, cancelled, timed_out};
use crate::session::select::Finder;
use crate::tool::Tool;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How often a running function's end is waited for before the cancel flag is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A tool that is a Rust function: what a call of it does.
///
/// [`Executor::function`] makes one from a closure and the type of its arguments.
pub trait Function: Send + Sync {
    /// Answers a call whose arguments fit the tool's schema.
    ///
    /// # Errors
    /// What the model gets in place of a result.
    fn call(&self, arguments: Map<String, Value>) -> Result<String, String>;
}

impl Function for Finder {
    fn call(&self, arguments: Map<String, Value>) -> std::result::Result<String, String> {
        Ok(self.find(arguments.get("words").and_then(Value::as_str).unwrap_or_default()))
    }
}

struct Closure<F>(F);

impl<F> Function for Closure<F>
where
    F: Fn(Map<String, Value>) -> Result<String, String> + Send + Sync,
{
    fn call(&self, arguments: Map<String, Value>) -> Result<String, String> {
        self.0(arguments)
    }
}

impl Executor {
    /// Makes a tool of a closure; the tool's schema is that of the closure's argument. A string is a result as it is,
    /// anything else as JSON.
    ///
    /// The tool that it returns is for [`Tools::new`](crate::Tools::new), so that the model knows of it. A function
    /// that does not end in time is not waited for, but cannot be stopped: it goes on in its thread.
    pub fn function<A, R, E>(
        &mut self,
        name: &str,
        description: &str,
        function: impl Fn(A) -> Result<R, E> + Send + Sync + 'static,
    ) -> Tool
    where
        A: DeserializeOwned + JsonSchema,
        R: Serialize,
        E: Display,
    {
        self.add(
            name,
            Closure(move |arguments| {
                let arguments: A =
                    serde_json::from_value(Value::Object(arguments)).map_err(|error| error.to_string())?;
                let result = function(arguments).map_err(|error| error.to_string())?;
                match serde_json::to_value(result) {
                    Ok(Value::String(text)) => Ok(text),
                    Ok(value) => Ok(value.to_string()),
                    Err(error) => Err(format!("the result cannot be written as JSON: {error}")),
                }
            }),
        );
        Tool::new(name, description, parameters::<A>())
    }
}

/// The schema of a type of arguments, without references: small models do not follow them.
fn parameters<A: JsonSchema>() -> Option<Map<String, Value>> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let Value::Object(mut schema) = settings.into_generator().into_root_schema_for::<A>().to_value() else {
        return None;
    };
    // The name and the comment of a Rust type mean nothing to a model.
    schema.shift_remove("title");
    schema.shift_remove("description");
    Some(schema).filter(|schema| schema.contains_key("properties"))
}

/// Calls a function in a thread of its own, which is abandoned when it takes too long.
pub(super) fn run(
    function: &Arc<dyn Function>,
    name: &str,
    arguments: Map<String, Value>,
    timeout: Duration,
    cancel: &AtomicBool,
) -> Result<String, Failure> {
    let (sender, receiver) = mpsc::channel();
    let function = Arc::clone(function);
    let thread = std::thread::Builder::new().name(format!("tool {name}")).spawn(move || {
        // Nobody listens any more where the time is over.
        let _ = sender.send(function.call(arguments));
    });
    if let Err(error) = thread {
        return Err(Failure::new(FailureKind::NotRunnable, format!("{name} cannot be started: {error}")));
    }
    let started = Instant::now();
    loop {
        match receiver.recv_timeout(LOOK.min(timeout.saturating_sub(started.elapsed()))) {
            Ok(Ok(result)) => return Ok(result),
            Ok(Err(message)) => return Err(Failure::new(FailureKind::Reported, format!("{name} failed: {message}"))),
            // The thread has ended without a word: it panicked.
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(FailureKind::Crashed, format!("{name} crashed")));
            }
            Err(mpsc::RecvTimeoutError::Timeout) if cancel.load(Ordering::Relaxed) => return Err(cancelled(name)),
            Err(mpsc::RecvTimeoutError::Timeout) if started.elapsed() >= timeout => {
                return Err(timed_out(name, timeout));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}
