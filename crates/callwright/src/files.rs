//! Files that are written as a whole or not at all: on a full disk, or where the process ends, the old one stays.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Who may read a new file. One that is there keeps its permissions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Whoever may read new files of this user.
    All,
    /// Only this user: it has what somebody wrote, or a model.
    Owner,
}

/// Writes a file, also over one that is there. Of a link, what it points to is written.
pub fn write(path: &Path, bytes: &[u8], readers: Readers) -> io::Result<()> {
    let (target, file) = prepare(path, bytes, readers)?;
    file.persist(target).map(|_| ()).map_err(|error| error.error)
}

/// Writes a file where there is none.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if there is one.
pub fn write_new(path: &Path, bytes: &[u8], readers: Readers) -> io::Result<()> {
    let (target, file) = prepare(path, bytes, readers)?;
    file.persist_noclobber(target).map(|_| ()).map_err(|error| error.error)
}

fn prepare(path: &Path, bytes: &[u8], readers: Readers) -> io::Result<(std::path::PathBuf, tempfile::NamedTempFile)> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    #[cfg_attr(not(unix), allow(unused_mut))]
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(match target.metadata() {
        Ok(found) => found.permissions(),
        Err(_) => std::os::unix::fs::PermissionsExt::from_mode(mode(readers)),
    });
    #[cfg(not(unix))]
    let _ = readers;
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    Ok((target, file))
}

/// How a file that grows is opened.
pub fn options(readers: Readers) -> fs::OpenOptions {
    #[cfg_attr(not(unix), allow(unused_mut))]
    let mut options = fs::OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode(readers));
    #[cfg(not(unix))]
    let _ = readers;
    options
}

#[cfg(unix)]
fn mode(readers: Readers) -> u32 {
    if readers == Readers::Owner { 0o600 } else { 0o666 }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_is_written_whole_with_its_permissions_and_where_a_link_points() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a"), folder.path().join("link"));
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        write_new(&path, b"one", Readers::Owner).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(write_new(&path, b"two", Readers::All).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &link).unwrap();
        write(&link, b"three", Readers::Owner).unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"three"[..], 0o640));
        assert!(link.symlink_metadata().unwrap().is_symlink());
        // A folder that takes no new file leaves the old one.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o500)).unwrap();
        let written = write(&path, b"four", Readers::All);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(written.is_ok() || fs::read(&path).unwrap() == b"three");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
