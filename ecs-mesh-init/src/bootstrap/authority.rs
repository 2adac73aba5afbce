//! Reads the CA certificates that Envoy trusts for xDS, and reports unreadable ones in upstream's
//! words.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// Reads the PEM certificates of authorities from a file, or from all files below a folder.
///
/// The file wins when both are given; the result is empty when neither is.
///
/// # Errors
///
/// [`Error::Input`] in upstream's words for what cannot be read, or a file without a certificate.
///
/// Source: Consul 1.20 `command/connect/envoy/envoy.go` (`tlsCAPem`), `rootcerts`.
pub fn authority_pem(file: Option<&Path>, folder: Option<&Path>) -> Result<String> {
    match (file, folder) {
        (Some(file), _) => read(file),
        (None, Some(folder)) => files_of(folder)?.iter().map(|file| read(file)).collect(),
        (None, None) => Ok(String::new()),
    }
}

fn read(file: &Path) -> Result<String> {
    let failed = |problem: &str| Error::input(format!("Error loading CA File: {problem}"));
    let text = fs::read_to_string(file)
        .map_err(|error| failed(&format!("open {}: {}", file.display(), cause(&error))))?;
    // Envoy itself would fail only later, with a message that does not name the file.
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        return Err(failed(&format!("{} holds no PEM certificate", file.display())));
    }
    // The certificates of several files are concatenated: without the newline two PEM markers would
    // share a line.
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

/// Lists the files below a folder, recursively, in a stable order.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |path: &Path, error: &io::Error| {
        Error::input(format!("Error loading CA Path: lstat {}: {}", path.display(), cause(error)))
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, &error))? {
        let path = entry.map_err(|error| failed(folder, &error))?.path();
        if path.is_dir() {
            found.extend(files_of(&path)?);
        } else {
            found.push(path);
        }
    }
    // Directory order differs from host to host; the document should not.
    found.sort();
    Ok(found)
}

/// Renders an I/O error in the words that operators search logs for.
fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case MI44: a missing CA file or folder is named in the words of the `consul` command.
    #[test]
    fn what_is_not_there_is_named_in_upstreams_words() {
        let missing = Path::new("some/path");
        assert_eq!(
            authority_pem(Some(missing), None).unwrap_err().to_string(),
            "Error loading CA File: open some/path: no such file or directory"
        );
        let error = authority_pem(None, Some(missing)).unwrap_err().to_string();
        assert!(error.ends_with("lstat some/path: no such file or directory"), "{error}");
    }

    #[test]
    fn all_files_of_a_folder_count_and_each_must_hold_a_certificate() {
        const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----";
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(folder.path().join("b.pem"), PEM).unwrap();
        fs::write(inner.join("a.pem"), format!("{PEM}\n")).unwrap();
        let both = format!("{PEM}\n{PEM}\n");
        assert_eq!(authority_pem(None, Some(folder.path())).unwrap(), both);
        assert_eq!(authority_pem(None, None).unwrap(), "");
        let file = folder.path().join("none.pem");
        fs::write(&file, "text").unwrap();
        let error = authority_pem(Some(&file), Some(&inner)).unwrap_err().to_string();
        assert!(error.ends_with("none.pem holds no PEM certificate"), "{error}");
    }
}
