//! Puts generated files into a directory: each in one step, and only where its content changed.

use std::{
    fs::{self, DirBuilder, Permissions},
    io::{self, BufRead as _, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
};

use cts_tasks::TaskInputs;
use tempfile::NamedTempFile;

use crate::{Error, GeneratedFile, Result, RootModule, root_module::TFVARS};

/// Mode of a task's directory.
const DIRECTORY: u32 = 0o750;

/// Mode of files without secrets.
const PUBLIC: u32 = 0o640;

/// Mode of files that can hold secrets.
pub(crate) const SECRET: u32 = 0o600;

/// Bytes of a file that are compared at a time.
pub(crate) const PIECE: usize = 64 * 1024;

/// Beginning of the names of files that are not yet in place.
pub(crate) const UNFINISHED: &str = ".cts-new-";

/// Files that stand only when the task has variables.
const OPTIONAL: [&str; 2] = ["variables.module.tf", "variables.auto.tfvars"];

/// Makes a directory and its parents, where they are missing.
pub(crate) fn create_directory(path: &Path) -> Result<()> {
    let created = DirBuilder::new().recursive(true).mode(DIRECTORY).create(path);
    created.map_err(|source| Error::File { action: "cannot create", path: path.to_owned(), source })
}

/// Writes all files of a root module, and removes those that it has no more.
pub(crate) fn write_all(directory: &Path, files: &[GeneratedFile]) -> Result<()> {
    files.iter().try_for_each(|file| replace(directory, file))?;
    let gone = OPTIONAL.iter().filter(|name| files.iter().all(|file| file.name != **name));
    for name in gone {
        let path = directory.join(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(Error::File { action: "cannot remove", path, source });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Writes `terraform.tfvars`, if its content changed. With thousands of instances it is
/// megabytes, which are never in memory as a whole.
pub(crate) fn write_inputs(directory: &Path, root: &RootModule, inputs: &TaskInputs) -> Result<()> {
    let path = directory.join(TFVARS);
    let failed = |source| Error::File { action: "cannot write", path: path.clone(), source };
    let mut file = InPieces::at(directory, &path);
    root.tfvars_pieces(inputs, |piece| file.add(piece.as_bytes()).map_err(failed))?;
    file.finish().map_err(failed)
}

/// Puts the file in place in one step, unless it stands there already.
pub(crate) fn replace(directory: &Path, file: &GeneratedFile) -> Result<()> {
    let path = directory.join(file.name);
    let mode = if file.secret { SECRET } else { PUBLIC };
    let result =
        if stands(&path, file, mode) { Ok(()) } else { write(directory, &path, file, mode) };
    result.map_err(|source| Error::File { action: "cannot write", path, source })
}

fn stands(path: &Path, file: &GeneratedFile, mode: u32) -> bool {
    Standing::open(path, mode).is_some_and(|mut standing| {
        standing.goes_on_with(file.content.as_bytes()) && standing.ends()
    })
}

/// A secret file that comes piece by piece. As long as it is the one that stands in its
/// place, nothing is written.
struct InPieces<'a> {
    directory: &'a Path,
    path: &'a Path,
    /// The file in its place, if there is one with the right mode.
    standing: Option<Standing>,
    /// Bytes of it that have come.
    same: u64,
    /// The file in place of it, from the first difference on.
    new: Option<NamedTempFile>,
}

impl<'a> InPieces<'a> {
    fn at(directory: &'a Path, path: &'a Path) -> Self {
        Self { directory, path, standing: Standing::open(path, SECRET), same: 0, new: None }
    }

    fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        if let Some(new) = &mut self.new {
            return new.write_all(piece);
        }
        if self.standing.as_mut().is_some_and(|standing| standing.goes_on_with(piece)) {
            self.same += u64::try_from(piece.len()).map_err(io::Error::other)?;
            return Ok(());
        }
        self.begin()?.write_all(piece)
    }

    /// Begins a new file with what is the same in both.
    fn begin(&mut self) -> io::Result<&mut NamedTempFile> {
        let mut new = unfinished(self.directory)?;
        if self.same > 0 {
            let copied = io::copy(&mut fs::File::open(self.path)?.take(self.same), &mut new)?;
            if copied != self.same {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.new.insert(new))
    }

    fn finish(mut self) -> io::Result<()> {
        if self.new.is_none() {
            if self.standing.as_mut().is_some_and(Standing::ends) {
                return Ok(());
            }
            self.begin()?;
        }
        self.new.map_or(Ok(()), |new| put(new, self.path, SECRET))
    }
}

/// A file that stands in its place, compared piece by piece.
struct Standing(io::BufReader<fs::File>);

impl Standing {
    /// Opens the file; `None` if there is none with this mode.
    fn open(path: &Path, mode: u32) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        if !found.is_file() || found.permissions().mode() & 0o777 != mode {
            return None;
        }
        Some(Self(io::BufReader::with_capacity(PIECE, fs::File::open(path).ok()?)))
    }

    /// Returns `true` if the next bytes are these. A file that cannot be read differs.
    fn goes_on_with(&mut self, mut content: &[u8]) -> bool {
        while !content.is_empty() {
            let Ok(found) = self.0.fill_buf() else { return false };
            let length = found.len().min(content.len());
            if length == 0 || found.get(..length) != content.get(..length) {
                return false;
            }
            self.0.consume(length);
            content = content.get(length..).unwrap_or_default();
        }
        true
    }

    /// Returns `true` if no further bytes follow.
    fn ends(&mut self) -> bool {
        self.0.fill_buf().is_ok_and(<[u8]>::is_empty)
    }
}

fn write(directory: &Path, path: &Path, file: &GeneratedFile, mode: u32) -> io::Result<()> {
    let mut new = unfinished(directory)?;
    new.write_all(file.content.as_bytes())?;
    put(new, path, mode)
}

fn unfinished(directory: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(directory)
}

/// Puts a written file in its place.
fn put(new: NamedTempFile, path: &Path, mode: u32) -> io::Result<()> {
    new.as_file().set_permissions(Permissions::from_mode(mode))?;
    // So that no power failure leaves an empty file in place. That it leaves the
    // old one does no harm: every run writes what it needs before it begins.
    new.as_file().sync_all()?;
    new.persist(path).map(drop).map_err(|error| error.error)
}
