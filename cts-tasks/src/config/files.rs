//! Reads files and directories, in order.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Diagnostic, Place, Source};

/// Reads the files of a list of files and directories, in order.
///
/// A directory gives its files in the byte order of their names. Empty files
/// and those without a known extension are left out.
///
/// Source: Consul-Terraform-Sync 0.9.0 `config/config.go` (`BuildConfig`).
pub(super) fn read_all(paths: &[PathBuf], errors: &mut Vec<Diagnostic>) -> Vec<Arc<Source>> {
    let mut sources = Vec::new();
    for path in paths {
        match list(path) {
            Ok(files) => {
                sources.extend(files.iter().filter_map(|file| read(file, errors)));
            }
            Err(error) => errors.push(unreadable(path, &error)),
        }
    }
    sources
}

/// Returns `true` if the path has one of the extensions that are read.
pub(super) fn is_supported(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "hcl" || extension == "json")
}

fn unreadable(path: &Path, error: &io::Error) -> Diagnostic {
    let diagnostic = Diagnostic::error(format!(
        "unable to read configuration file or directory {}: {error}",
        path.display()
    ));
    match error.kind() {
        io::ErrorKind::NotFound => diagnostic.help("check the path for a typing error"),
        io::ErrorKind::PermissionDenied => diagnostic.help("let the user of this process read it"),
        _ => diagnostic,
    }
}

fn list(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        if is_supported(&file) && !file.is_dir() {
            files.push(file);
        }
    }
    files.sort_by(|left, right| left.file_name().cmp(&right.file_name()));
    Ok(files)
}

/// Reads one file; `None` if it is skipped, or if it cannot be read, which is reported.
pub(super) fn read(path: &Path, errors: &mut Vec<Diagnostic>) -> Option<Arc<Source>> {
    if !is_supported(path) {
        return None;
    }
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            errors.push(unreadable(path, &error));
            return None;
        }
    };
    if bytes.is_empty() {
        return None;
    }
    match text(path, bytes) {
        Ok(source) => Some(source),
        Err(diagnostic) => {
            errors.push(diagnostic);
            None
        }
    }
}

/// The mark that some editors put before the text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The file's bytes as text, without a byte order mark.
///
/// # Errors
///
/// The place of the first byte that is not UTF-8.
pub(super) fn text(path: &Path, bytes: Vec<u8>) -> Result<Arc<Source>, Diagnostic> {
    match String::from_utf8(bytes) {
        Ok(mut text) => {
            if text.starts_with(BYTE_ORDER_MARK) {
                text.drain(..BYTE_ORDER_MARK.len_utf8());
            }
            Ok(Arc::new(Source { path: path.to_owned(), text }))
        }
        Err(error) => {
            let start = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let source = Arc::new(Source { path: path.to_owned(), text });
            Err(Diagnostic::error("the file is not text in UTF-8")
                .at(Place::new(source, start..start + 1))
                .help("save it in UTF-8"))
        }
    }
}
