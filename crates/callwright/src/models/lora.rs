//! LoRA adapters by their files.

use std::fmt;
use std::path::PathBuf;

/// A LoRA adapter: a small GGUF that changes what a model writes. The model's own file stays as it is.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LoraAdapter {
    /// Its file.
    pub file: PathBuf,
    /// How much of it is added to the weights: 1 is all, 0 is nothing.
    pub scale: f32,
}

impl LoraAdapter {
    /// All of the adapter in `file`.
    pub fn new(file: impl Into<PathBuf>) -> LoraAdapter {
        LoraAdapter { file: file.into(), scale: 1.0 }
    }

    /// `FILE` or `FILE:SCALE`; `place` says where a file is.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn parse(text: &str, place: impl Fn(&str) -> PathBuf) -> Result<LoraAdapter, String> {
        let whole = LoraAdapter::new(place(text));
        let Some((file, scale)) = text.rsplit_once(':').filter(|_| !whole.file.exists()) else { return Ok(whole) };
        let adapter = LoraAdapter::new(place(file));
        match scale.parse::<f32>() {
            Ok(scale) if scale.is_finite() => Ok(LoraAdapter { scale, ..adapter }),
            // The name of a file may have a colon.
            _ if !adapter.file.exists() => Ok(whole),
            _ => Err(format!("the scale {scale:?} is no number; FILE:0.5 adds half of an adapter")),
        }
    }
}

/// As `FILE:SCALE`.
impl fmt::Display for LoraAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.scale)
    }
}
