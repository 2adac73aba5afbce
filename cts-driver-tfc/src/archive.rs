//! Packs a root module into the archive that is uploaded. The same files give the same bytes, so
//! that an unchanged module is recognised by its digest.

mod ignore;

use std::{
    collections::BTreeMap,
    fs, io,
    io::Write as _,
    path::{Component, Path, PathBuf},
};

use bytes::Bytes;
use flate2::{Compression, GzBuilder};
use sha2::{Digest as _, Sha256};

use self::ignore::IgnoreRules;
use crate::{Error, Result};

/// Largest size of a module before compression, in bytes.
const LARGEST: u64 = 256 << 20;

/// Greatest depth of nested folders, which ends a loop of links.
const DEEPEST: usize = 64;

/// Packed root module.
#[derive(Clone)]
pub(crate) struct Archive {
    /// Gzipped tar.
    pub(crate) bytes: Bytes,
    /// SHA-256 of `bytes`, in hexadecimal.
    pub(crate) digest: String,
}

/// Files of an archive by their path in it.
#[derive(Default)]
pub(crate) struct Files {
    files: BTreeMap<String, File>,
    size: u64,
}

struct File {
    content: Vec<u8>,
    executable: bool,
}

impl Files {
    /// Adds a file at the root.
    pub(crate) fn add(&mut self, name: &str, content: impl Into<Vec<u8>>) {
        self.files.insert(name.to_owned(), File { content: content.into(), executable: false });
    }

    /// Adds the content of a folder below `prefix`, except for the matches of its
    /// `.terraformignore`, state, and Terraform's own folders.
    ///
    /// Links are followed within the folder, and refused if they lead out of it.
    ///
    /// # Errors
    ///
    /// [`Error::File`] that names the file, [`Error::Input`] for entries that cannot be packed.
    pub(crate) fn add_folder(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        // Canonical, so that links can be compared with it below.
        let root = fs::canonicalize(folder).map_err(|source| cannot_read(folder, source))?;
        if !root.is_dir() {
            return Err(refused(format!("{} is not a directory", folder.display())));
        }
        let ignored = match fs::read_to_string(root.join(".terraformignore")) {
            Ok(text) => IgnoreRules::parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => IgnoreRules::default(),
            Err(source) => return Err(cannot_read(&root.join(".terraformignore"), source)),
        };
        let mut walk = Walk { root: &root, prefix, ignored: &ignored, files: self };
        walk.folder(&root, "", 0)
    }

    /// Packs the files in the order of their paths, without times and owners.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for a path that no archive can hold.
    pub(crate) fn pack(&self) -> Result<Archive> {
        let packed = self.write().map_err(|error| refused(format!("cannot be packed: {error}")))?;
        let digest = hexadecimal(&Sha256::digest(&packed));
        Ok(Archive { bytes: packed.into(), digest })
    }

    fn write(&self) -> io::Result<Vec<u8>> {
        // Neither a time nor the operating system, which gzip would record otherwise (255 is
        // "unknown").
        let gzip = GzBuilder::new().mtime(0).operating_system(255);
        let mut tar = tar::Builder::new(gzip.write(Vec::new(), Compression::default()));
        tar.mode(tar::HeaderMode::Deterministic);
        for (path, file) in &self.files {
            // GNU, because names may be longer than 100 bytes.
            let mut header = tar::Header::new_gnu();
            header.set_size(u64::try_from(file.content.len()).unwrap_or(u64::MAX));
            header.set_mode(if file.executable { 0o755 } else { 0o644 });
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            header.set_entry_type(tar::EntryType::Regular);
            tar.append_data(&mut header, path, file.content.as_slice())?;
        }
        let mut gzip = tar.into_inner()?;
        gzip.flush()?;
        gzip.finish()
    }
}

struct Walk<'a> {
    root: &'a Path,
    prefix: &'a str,
    ignored: &'a IgnoreRules,
    files: &'a mut Files,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, inside: &str, depth: usize) -> Result<()> {
        if depth > DEEPEST {
            return Err(refused(format!("{}: folders nest too deep", folder.display())));
        }
        let entries = fs::read_dir(folder).map_err(|source| cannot_read(folder, source))?;
        for entry in entries {
            let path = entry.map_err(|source| cannot_read(folder, source))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return Err(refused(format!("{}: the name is not text", path.display())));
            };
            let inside =
                if inside.is_empty() { name.to_owned() } else { format!("{inside}/{name}") };
            let is_folder = path.is_dir();
            if self.ignored.excludes(&inside, is_folder) {
                continue;
            }
            // After the rules, so that a rule can exclude a link that would be refused.
            let real = fs::canonicalize(&path).map_err(|source| cannot_read(&path, source))?;
            if !real.starts_with(self.root) {
                return Err(refused(format!(
                    "{} leads out of the module, so that it cannot be uploaded: put a copy in its \
                     place, or name it in .terraformignore",
                    path.display()
                )));
            }
            if is_folder {
                self.folder(&real, &inside, depth + 1)?;
            } else {
                self.file(&real, &inside)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, inside: &str) -> Result<()> {
        let about = fs::metadata(path).map_err(|source| cannot_read(path, source))?;
        if !about.is_file() {
            return Err(refused(format!("{} is neither file nor folder", path.display())));
        }
        // From the metadata, before the file is read: a huge file must not fill the memory first.
        self.files.size = self.files.size.saturating_add(about.len());
        if self.files.size > LARGEST {
            return Err(refused(format!(
                "{} has more than {} MB: name what Terraform does not need in .terraformignore",
                self.root.display(),
                LARGEST >> 20
            )));
        }
        let content = fs::read(path).map_err(|source| cannot_read(path, source))?;
        let executable = is_executable(&about);
        self.files.files.insert(format!("{}{inside}", self.prefix), File { content, executable });
        Ok(())
    }
}

#[cfg(unix)]
fn is_executable(about: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    about.permissions().mode() & 0o100 != 0
}

#[cfg(not(unix))]
fn is_executable(_about: &fs::Metadata) -> bool {
    false
}

fn cannot_read(path: &Path, source: io::Error) -> Error {
    Error::File { action: "cannot read", path: path.to_owned(), source }
}

fn refused(problem: String) -> Error {
    Error::Input { operation: "pack module", problem }
}

/// Removes `.` and `..` from a path, as far as that is possible without the file system.
pub(crate) fn plain_path(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// Formats bytes in hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    halves.filter_map(|half| char::from_digit(half.into(), 16)).collect()
}

#[cfg(test)]
mod tests;
