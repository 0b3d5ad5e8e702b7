//! SHA-256 in hexadecimal.

use sha2::{Digest, Sha256};
use std::io::Read;

/// The hash of `bytes`.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(&Sha256::digest(bytes.as_ref()))
}

/// The hash of what `reader` has left; `on_read` gets the number of bytes read so far.
///
/// # Errors
/// The reader's.
pub fn sha256_of(mut reader: impl Read, on_read: &mut dyn FnMut(u64)) -> std::io::Result<String> {
    let (mut hash, mut buffer, mut done) = (Sha256::new(), vec![0; 1 << 20], 0);
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            count => {
                hash.update(&buffer[..count]);
                done += count as u64;
                on_read(done);
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
