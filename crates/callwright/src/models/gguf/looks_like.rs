//! Identifies files that are not GGUF: people mix these up, and "invalid magic" helps nobody.

use crate::error::{Error, ErrorKind};

/// The error for a file of `size` bytes that starts with `head`.
pub(super) fn error(head: &[u8], size: u64) -> Error {
    let (what, hint) = guess(head, size);
    let error = Error::new(ErrorKind::Gguf, format!("not a GGUF file: {what}"));
    if hint.is_empty() { error } else { error.hint(hint) }
}

fn guess(head: &[u8], size: u64) -> (String, &'static str) {
    const FETCH: &str = "fetch the file again: a download was probably interrupted";
    const CONVERT: &str = "convert the model with llama.cpp's convert_hf_to_gguf.py, or fetch a GGUF of it";
    let text = head.trim_ascii_start();
    let starts = |prefix: &[u8]| text.len() >= prefix.len() && text[..prefix.len()].eq_ignore_ascii_case(prefix);
    if size == 0 {
        ("it is empty".into(), FETCH)
    } else if b"GGUF".starts_with(head) {
        (format!("it ends after {size} bytes"), FETCH)
    } else if starts(b"version https://git-lfs") {
        ("it is a git-LFS pointer, the placeholder for a file that was not fetched".into(), "fetch it: git lfs pull")
    } else if starts(b"<!doctype") || starts(b"<html") || starts(b"<?xml") {
        (
            "it is a web page".into(),
            "download the file itself, not the page about it: on huggingface.co its address has /resolve/, not /blob/",
        )
    } else if head.len() > 9 && head[8] == b'{' && head[9..].trim_ascii_start().starts_with(b"\"") {
        ("it is a safetensors file".into(), CONVERT)
    } else if head.starts_with(b"PK\x03\x04") || head.starts_with(b"\x80\x02") || head.starts_with(b"\x80\x04") {
        ("it is a zip archive or a PyTorch checkpoint".into(), CONVERT)
    } else if [b"lmgg", b"fmgg", b"tjgg", b"algg"].iter().any(|magic| head.starts_with(*magic)) {
        ("it is in a GGML format from before GGUF".into(), "fetch a GGUF of this model, or convert it again")
    } else if starts(b"{") || starts(b"[") {
        ("it looks like JSON".into(), "-m takes the model's weights, a file that ends in .gguf")
    } else if head.iter().all(|&b| b == 0) {
        ("it starts with zeros".into(), FETCH)
    } else {
        let shown: String = head.iter().take(8).map(|b| format!("{b:02x} ")).collect();
        (format!("it starts with the bytes {}", shown.trim_end()), "")
    }
}
