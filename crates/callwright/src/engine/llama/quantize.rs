//! Stores a model's weights with fewer bits, with llama.cpp's own function.

use super::backend::{backend, because};
use crate::{Error, ErrorKind, Result};
use llama_cpp_sys_2 as sys;
use std::ffi::CString;
use std::path::Path;

/// How weights can be stored, by the names that files have. Those that need an importance matrix are left out.
const KINDS: [(&str, sys::llama_ftype); 20] = [
    ("F32", sys::LLAMA_FTYPE_ALL_F32),
    ("F16", sys::LLAMA_FTYPE_MOSTLY_F16),
    ("BF16", sys::LLAMA_FTYPE_MOSTLY_BF16),
    ("Q8_0", sys::LLAMA_FTYPE_MOSTLY_Q8_0),
    ("Q6_K", sys::LLAMA_FTYPE_MOSTLY_Q6_K),
    ("Q5_K_M", sys::LLAMA_FTYPE_MOSTLY_Q5_K_M),
    ("Q5_K_S", sys::LLAMA_FTYPE_MOSTLY_Q5_K_S),
    ("Q5_1", sys::LLAMA_FTYPE_MOSTLY_Q5_1),
    ("Q5_0", sys::LLAMA_FTYPE_MOSTLY_Q5_0),
    ("Q4_K_M", sys::LLAMA_FTYPE_MOSTLY_Q4_K_M),
    ("Q4_K_S", sys::LLAMA_FTYPE_MOSTLY_Q4_K_S),
    ("Q4_1", sys::LLAMA_FTYPE_MOSTLY_Q4_1),
    ("Q4_0", sys::LLAMA_FTYPE_MOSTLY_Q4_0),
    ("IQ4_NL", sys::LLAMA_FTYPE_MOSTLY_IQ4_NL),
    ("IQ4_XS", sys::LLAMA_FTYPE_MOSTLY_IQ4_XS),
    ("Q3_K_L", sys::LLAMA_FTYPE_MOSTLY_Q3_K_L),
    ("Q3_K_M", sys::LLAMA_FTYPE_MOSTLY_Q3_K_M),
    ("Q3_K_S", sys::LLAMA_FTYPE_MOSTLY_Q3_K_S),
    ("IQ3_S", sys::LLAMA_FTYPE_MOSTLY_IQ3_S),
    ("Q2_K", sys::LLAMA_FTYPE_MOSTLY_Q2_K),
];

/// The names of all kinds, from the largest files to the smallest.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, _)| *name)
}

/// Writes the GGUF at `from`, which must have passed `Gguf::check`, to `to` with weights of one of the [`kinds`]. Weights
/// that are stored with few bits already are taken as they are, with what they lost.
///
/// # Errors
/// [`ErrorKind::Config`] for an unknown kind, [`ErrorKind::Gguf`] with llama.cpp's message.
pub fn quantize(from: &Path, to: &Path, kind: &str, threads: usize) -> Result<()> {
    backend()?;
    let known = KINDS.iter().find(|(name, _)| *name == kind);
    let (_, file_type) =
        known.ok_or_else(|| Error::new(ErrorKind::Config, format!("llama.cpp has no quantization {kind:?}")))?;
    let path = |path: &Path| {
        let text = path.to_str().and_then(|text| CString::new(text).ok());
        text.ok_or_else(|| Error::new(ErrorKind::Gguf, format!("the path {} is not UTF-8", path.display())))
    };
    let (source, target) = (path(from)?, path(to)?);
    // What was said before is not the reason of a failure here.
    let _ = because("");
    // SAFETY: a function without arguments that returns a struct.
    let mut params = unsafe { sys::llama_model_quantize_default_params() };
    params.nthread = i32::try_from(threads).unwrap_or(0);
    params.ftype = *file_type;
    params.allow_requantize = true;
    // SAFETY: both texts end with NUL and outlive the call, the parameters have no pointers, and llama.cpp turns its
    // exceptions into the status.
    let status = unsafe { sys::llama_model_quantize(source.as_ptr(), target.as_ptr(), &raw const params) };
    match status {
        0 => Ok(()),
        status => {
            let why = because(&format!("status {status}"));
            Err(Error::new(ErrorKind::Gguf, format!("llama.cpp cannot write {} as {kind}: {why}", from.display())))
        }
    }
}
