//! An engine with the bundled model.

use callwright::Model;
use callwright::engine::{Engine, LoadOptions};

pub fn load(options: LoadOptions) -> Box<dyn Engine> {
    Model::builder().load_options(options).open("bundled").unwrap().engine()
}

/// With one thread, which always adds in the same order.
pub fn one_thread() -> Box<dyn Engine> {
    load(LoadOptions { threads: Some(1), ..LoadOptions::default() })
}
