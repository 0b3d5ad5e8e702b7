//! An engine with the bundled model.

use callwright::Model;
use callwright::engine::sampler::Sampling;
use callwright::engine::{Engine, LoadOptions};

pub fn load(options: LoadOptions) -> Box<dyn Engine> {
    Model::builder().load_options(options).open("bundled").unwrap().engine()
}

/// With one thread, which always adds in the same order.
pub fn one_thread() -> Box<dyn Engine> {
    load(LoadOptions::default().with(|options| options.threads = Some(1)))
}

/// A choice among all tokens.
pub fn unfiltered(temperature: f32, seed: u64) -> Sampling {
    Sampling::default().with(|sampling| {
        sampling.temperature = temperature;
        sampling.top_k = 0;
        sampling.top_p = 1.0;
        sampling.min_p = 0.0;
        sampling.seed = seed;
    })
}
