//! Whether a model and its context fit into the memory, said before either takes any.
//!
//! The system ends a program that takes more memory than there is, without a word. Mapped weights may be larger: they are read from the
//! file again and again. A KV cache may not.

use crate::engine::{CacheType, LoadOptions};
use crate::models::Gguf;
use crate::models::gguf::{Attention, that_fits};
use crate::setting::Setting;
use crate::{Error, ErrorKind, Result};

/// One part in so many of the free memory is left for what llama.cpp computes in, and for other programs.
const LEFT: u64 = 8;

/// What a model takes of the memory.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// The number of its files.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Weights in all files.
    pub parameters: u64,
    /// How it looks back.
    pub attention: Attention,
}

/// How a model is loaded, so that it fits.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Fit {
    /// Tokens whose KV cache fits beside the weights; `None` where that is not known.
    pub room: Option<usize>,
    /// Whether the weights are larger than the memory.
    pub from_file: bool,
    /// What is slow, and what helps.
    pub notice: Option<String>,
}

impl Sizes {
    /// What the file says, and its other shards.
    pub fn of(gguf: &Gguf) -> Sizes {
        let attention = gguf.attention();
        let mut sizes = Sizes { files: 1, bytes: gguf.file_size(), parameters: gguf.parameters(), attention };
        for path in gguf.files().iter().filter(|path| *path != gguf.path()) {
            if let Ok(shard) = Gguf::open(path) {
                sizes.files += 1;
                sizes.bytes = sizes.bytes.saturating_add(shard.file_size());
                sizes.parameters = sizes.parameters.saturating_add(shard.parameters());
                sizes.attention = sizes.attention.and(shard.attention());
            }
        }
        sizes
    }

    /// The most tokens whose KV cache fits into so much free memory. Mapped weights leave at least half of it.
    pub fn fitting(&self, free: u64, options: &LoadOptions) -> Option<u64> {
        let spare = free - free / LEFT;
        let least = if options.stays_in_memory() { 0 } else { spare / 2 };
        // Counted in full, layers with a window would seem to need too much.
        let token = self.token(options).filter(|_| self.attention.window.is_none())?;
        spare.saturating_sub(self.bytes).max(least).checked_div(token)
    }

    /// Bytes of the KV cache for a token.
    fn token(&self, options: &LoadOptions) -> Option<u64> {
        let bits = |kind: Option<CacheType>| kind.unwrap_or_default().half_bits();
        // Keys and values are equally long.
        let of_f16 = 2 * CacheType::F16.half_bits();
        Some(self.attention.bytes(1)?.saturating_mul(bits(options.cache_type_k) + bits(options.cache_type_v)) / of_f16)
    }

    /// Decides how the model is loaded where so much memory is free.
    ///
    /// # Errors
    /// [`ErrorKind::Engine`] if its weights have to be in memory and do not fit, or if the context that was asked for does not.
    pub(crate) fn fit(&self, free: u64, options: &LoadOptions) -> Result<Fit> {
        let here = format!("{} of memory are free", size(free));
        let from_file = self.bytes > free;
        let larger = format!("the model has {}, and {here}", size(self.bytes));
        let smaller = match that_fits(self.parameters, free - free / LEFT) {
            Some((kind, bytes)) => format!("as {kind}, it would have about {} and fit", size(bytes)),
            None => "a model with fewer parameters would fit".to_owned(),
        };
        if from_file && options.stays_in_memory() {
            return Err(Error::new(ErrorKind::Engine, larger).hint(smaller));
        }
        let room = self.fitting(free, options);
        let mut needed = self.bytes;
        if let (Some(context), Some(room), Some(token)) = (options.context, room, self.token(options)) {
            let cache = (context as u64).saturating_mul(token);
            needed = needed.saturating_add(cache);
            if cache > free || (options.stays_in_memory() && needed > free) {
                let (cache, weights) = (size(cache), size(self.bytes));
                let message =
                    format!("a context of {context} tokens needs {cache} beside the model's {weights}, and {here}");
                return Err(Error::new(ErrorKind::Engine, message).hint(format!(
                    "{} {room} fits; a KV cache of q8_0 needs half as much for each token",
                    Setting::Context
                )));
            }
        }
        let notice = match (from_file, needed > free) {
            (true, _) => Some(format!("{larger}: it is read from the disk again and again, which is slow; {smaller}")),
            (false, true) => Some(format!(
                "the model and its context need {}, and {here}: parts are read from the disk again and again, which is slow",
                size(needed)
            )),
            (false, false) => None,
        };
        Ok(Fit { room: room.map(|room| usize::try_from(room).unwrap_or(usize::MAX)), from_file, notice })
    }
}

impl LoadOptions {
    /// Returns whether the weights may not be left on the disk.
    fn stays_in_memory(&self) -> bool {
        self.no_mmap || self.mlock
    }
}

impl CacheType {
    /// Half bits of a number, with its share of what a block has in common.
    fn half_bits(self) -> u64 {
        match self {
            CacheType::F32 => 64,
            CacheType::F16 | CacheType::Bf16 => 32,
            CacheType::Q8_0 => 17,
            CacheType::Q5_1 => 12,
            CacheType::Q5_0 => 11,
            CacheType::Q4_1 => 10,
            CacheType::Q4_0 | CacheType::Iq4Nl => 9,
        }
    }
}

/// A number of bytes in words.
fn size(bytes: u64) -> String {
    let (unit, name) = if bytes < 1_000_000_000 { (1e6, "MB") } else { (1e9, "GB") };
    format!("{:.1} {name}", bytes as f64 / unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::gguf::tests::gguf_builder::GgufBuilder;

    const GB: u64 = 1_000_000_000;

    /// A hybrid of 10 GB, and the bytes of its KV cache for a token.
    fn model() -> (Sizes, u64) {
        let folder = tempfile::tempdir().unwrap();
        let sizes = Sizes::of(&Gguf::open(GgufBuilder::random("lfm2").write(folder.path(), "model.gguf")).unwrap());
        let token = sizes.attention.bytes(1).unwrap();
        (Sizes { bytes: 10 * GB, parameters: 10_000_000_000, ..sizes }, token)
    }

    fn asking(context: u64) -> LoadOptions {
        LoadOptions::default().with(|load| load.context = Some(usize::try_from(context).unwrap()))
    }

    #[test]
    fn the_context_has_what_the_weights_leave_and_mapped_weights_leave_half() {
        let (model, token) = model();
        let kept = |load: &mut LoadOptions| load.mlock = true;
        for (free, mapped, in_memory) in [(40, 25, 25), (16, 7, 4), (8, 3, 0)] {
            // An eighth is left for others.
            let (free, spare) = (free * GB, |part: u64| part * GB / token);
            let halves = (free - free / 8) / 2 / token;
            assert_eq!(model.fitting(free, &LoadOptions::default()), Some(spare(mapped).max(halves)), "{free}");
            assert_eq!(model.fitting(free, &LoadOptions::default().with(kept)), Some(spare(in_memory)), "{free}");
        }
        let smaller = |load: &mut LoadOptions| (load.cache_type_k, load.cache_type_v) = (Some(CacheType::Q8_0), None);
        let (few, all) = (model.fitting(40 * GB, &LoadOptions::default().with(smaller)), 25 * GB / token);
        assert_eq!(few, (25 * GB).checked_div(token * 49 / 64), "{all}");
    }

    #[test]
    fn a_context_that_does_not_fit_is_refused_with_the_largest_that_does() {
        let (model, token) = model();
        let fits = model.fit(40 * GB, &asking(30 * GB / token)).unwrap();
        assert_eq!(fits, Fit { room: Some(usize::try_from(25 * GB / token).unwrap()), from_file: false, notice: None });
        let error = model.fit(40 * GB, &asking(41 * GB / token)).unwrap_err();
        assert!(error.message().contains("needs 41.0 GB beside the model's 10.0 GB, and 40.0 GB of memory are free"));
        assert!(error.to_string().contains(&(25 * GB / token).to_string()), "{error}");
        let slow = model.fit(40 * GB, &asking(35 * GB / token)).unwrap();
        assert!(slow.notice.unwrap().starts_with("the model and its context need 45.0 GB, and 40.0 GB"));
        let locked = asking(35 * GB / token).with(|load| load.mlock = true);
        assert!(model.fit(40 * GB, &locked).is_err());
    }

    #[test]
    fn a_model_larger_than_the_memory_is_read_from_its_file_or_names_a_smaller_one() {
        let (model, token) = model();
        let fit = model.fit(8 * GB, &LoadOptions::default()).unwrap();
        assert!(fit.from_file);
        assert_eq!(fit.room, usize::try_from(7 * GB / 2 / token).ok());
        let notice = fit.notice.unwrap();
        assert!(notice.starts_with("the model has 10.0 GB, and 8.0 GB of memory are free"), "{notice}");
        assert!(notice.ends_with("as Q4_K_M, it would have about 6.1 GB and fit"), "{notice}");
        let read = LoadOptions::default().with(|load| load.no_mmap = true);
        assert!(model.fit(8 * GB, &read).is_err());
        assert!(model.fit(GB, &LoadOptions::default()).unwrap().notice.unwrap().contains("fewer parameters"));
        assert!(model.fit(8 * GB, &asking(9 * GB / token)).is_err(), "the KV cache alone is larger");
    }
}
