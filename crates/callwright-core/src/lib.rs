//! Tool calls in the text of local models: chat templates, tool-call formats and a streaming parser, without a model.
//!
//! Another engine generates; this crate reads the calls out of its text while it is written. It needs no C++, no network,
//! no files and no threads, and builds for `wasm32-unknown-unknown`.
//!
//! ```
//! use callwright_core::{Format, Parser, ParserOptions, Tools};
//!
//! let tools = r#"[{"name": "get_weather", "parameters": {
//!     "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]"#;
//! let tools = Tools::from_json(tools, "tools.json")?; // the name is for errors
//! let format = Format::builtin("hermes").expect("it is built in");
//! let mut parser = Parser::new(format, Some(tools.into()), ParserOptions::default())?;
//! for piece in ["<tool_call>\n{\"name\": \"get_weather\", ", "\"arguments\": {\"city\": 'Oslo'}}\n</tool", "_call>"] {
//!     parser.push(piece.as_bytes(), &mut |event| println!("{event:?}")); // events, as soon as they are known
//! }
//! let parsed = parser.finish(&mut |_| ());
//! let call = &parsed.calls[0];
//! assert!(call.is_runnable()); // the quotes were repaired, and parsed.repairs says so
//! assert_eq!(call.arguments.to_text(), r#"{"city":"Oslo"}"#);
//! # Ok::<(), callwright_core::Error>(())
//! ```
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod check;
pub mod choose;
pub mod error;
pub mod format;
#[cfg(feature = "grammar")]
pub mod grammar;
#[doc(hidden)]
pub mod json;
pub mod message;
pub mod parse;
pub mod template;
#[doc(hidden)]
pub mod text_file;
pub mod tool;

pub use error::{Error, ErrorKind, Result};
pub use format::Format;
pub use parse::{Parser, ParserOptions};
pub use tool::Tools;
