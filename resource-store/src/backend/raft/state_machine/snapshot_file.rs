//! The newest snapshot on the disk.
//!
//! A file begins with eight bytes that name its format, and holds the parts of
//! the [`snapshot`](super::snapshot), each after its length and the checksum
//! over length and part: four bytes each, little end first. It is written under
//! another name, synced, and then gets its own; so a file of that name is
//! always whole, and anything wrong with it is damage.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Mutex,
};

use prost::Message as _;

use super::snapshot::{Assembly, head, parts};
use crate::{
    backend::{
        Error, Result,
        raft::{config::WHEN_DAMAGED, types::Contents},
        store::{folder::sync_names, sync::lock},
    },
    pb::generated::resource_store::peer::v1::{self as peer, snapshot_part::Part},
};

const FORMAT: &[u8; 8] = b"RSSNAP1\n";
const NAME: &str = "newest.snapshot";
const NEW: &str = "new.snapshot";
/// The length and the checksum before each part.
const HEAD: usize = 8;
/// No part is larger; a length that says so is damaged.
const MOST_PART: usize = 300 << 20;
/// After how many bytes a file under way is synced, so that the log, whose
/// syncs others wait for, never waits for much of it.
const SYNC_BYTES: u64 = 4 << 20;

/// The file of the newest snapshot.
#[derive(Debug)]
pub(super) struct SnapshotFile {
    folder: PathBuf,
    /// Held while a snapshot is written, which may take long.
    written: Mutex<Written>,
    /// Why the last snapshot was not written.
    failure: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Written {
    /// The index after the last entry that is in the file.
    end: u64,
    bytes: u64,
}

/// The damage of a file: its place and its kind.
struct Damage {
    offset: u64,
    what: String,
}

impl SnapshotFile {
    /// Reads the newest snapshot; an empty one if there is none. Blocks.
    pub(super) fn open(folder: &Path) -> Result<(Self, Contents)> {
        let failed =
            |path: &Path, e: io::Error| Error::failed("open", format!("{}: {e}", path.display()));
        fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
        let (path, new) = (folder.join(NAME), folder.join(NEW));
        // A write that a crash cut short left it.
        match fs::remove_file(&new) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(&new, e)),
            Ok(()) | Err(_) => {}
        }
        let (contents, bytes) = match File::open(&path) {
            Ok(file) => {
                let bytes = file.metadata().map_err(|e| failed(&path, e))?.len();
                let contents = read(file).map_err(|Damage { offset, what }| {
                    let path = path.display();
                    let text =
                        format!("{path} is damaged at byte {offset}: {what}; {WHEN_DAMAGED}");
                    Error::failed("open", text)
                })?;
                (contents, bytes)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => (Contents::default(), 0),
            Err(e) => return Err(failed(&path, e)),
        };
        let written = Mutex::new(Written { end: contents.end(), bytes });
        Ok((Self { folder: folder.to_owned(), written, failure: Mutex::default() }, contents))
    }

    /// Returns the size of the file.
    pub(super) fn bytes(&self) -> u64 {
        lock(&self.written).bytes
    }

    /// Puts a snapshot in the place of the one before, unless that is newer.
    /// Gives how large the file is. Blocks, until it is on the disk.
    pub(super) fn write(&self, contents: &Contents) -> Result<u64> {
        let mut written = lock(&self.written);
        // Two may want to write: the one that was taken earlier may get here later.
        if written.bytes > 0 && written.end >= contents.end() {
            return Ok(written.bytes);
        }
        match self.replace(contents) {
            Ok(bytes) => {
                *written = Written { end: contents.end(), bytes };
                *lock(&self.failure) = None;
                Ok(bytes)
            }
            Err(error) => {
                let text =
                    format!("no snapshot can be written in {}: {error}", self.folder.display());
                *lock(&self.failure) = Some(text.clone());
                Err(Error::failed("take a snapshot", text))
            }
        }
    }

    /// Returns an error if the folder is gone, or the last snapshot could not be
    /// written. Blocks.
    pub(super) fn ready(&self) -> Result<()> {
        if let Some(text) = &*lock(&self.failure) {
            return Err(Error::failed("write", text.clone()));
        }
        let missing = |e| Error::failed("write", format!("{}: {e}", self.folder.display()));
        fs::metadata(&self.folder).map(drop).map_err(missing)
    }

    fn replace(&self, contents: &Contents) -> io::Result<u64> {
        let (path, new) = (self.folder.join(NAME), self.folder.join(NEW));
        let mut file = NewFile::create(&new)?;
        for part in parts(head(contents), contents) {
            file.put(&part)?;
        }
        let bytes = file.sync()?;
        fs::rename(&new, &path)?;
        // Otherwise a crash could bring the old file back, whose log has been cut off since.
        sync_names(&self.folder)?;
        Ok(bytes)
    }
}

/// A file of a snapshot that is being written.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: File,
    bytes: u64,
    unsynced: u64,
}

impl NewFile {
    /// Makes the file, or makes it empty.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(true);
        // What it holds is for its owner only.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
        let mut file = open.open(path)?;
        file.write_all(FORMAT)?;
        Ok(Self { file, bytes: FORMAT.len() as u64, unsynced: 0 })
    }

    pub(crate) fn put(&mut self, part: &peer::SnapshotPart) -> io::Result<()> {
        let record = record(part)?;
        self.file.write_all(&record)?;
        self.bytes += record.len() as u64;
        self.unsynced += record.len() as u64;
        if self.unsynced >= SYNC_BYTES {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Brings all to the disk. Gives how large it is.
    pub(crate) fn sync(self) -> io::Result<u64> {
        self.file.sync_all()?;
        Ok(self.bytes)
    }
}

/// Reads a backup, which is a snapshot in a file of any name. Blocks.
///
/// # Errors
///
/// If it cannot be read, or is damaged or incomplete; the text says where.
pub(crate) fn read_backup(path: &Path) -> Result<Contents> {
    let shown = path.display();
    let failed = |text: String| Error::failed("read the backup", text);
    let file = File::open(path).map_err(|e| failed(format!("{shown}: {e}")))?;
    read(file).map_err(|Damage { offset, what }| {
        failed(format!("{shown} is damaged at byte {offset}: {what}; use another backup"))
    })
}

fn checksum(length: [u8; 4], part: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(part);
    hasher.finalize()
}

fn record(part: &peer::SnapshotPart) -> io::Result<Vec<u8>> {
    let body = part.encode_to_vec();
    let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_le_bytes();
    let mut record = Vec::with_capacity(HEAD + body.len());
    record.extend_from_slice(&length);
    record.extend_from_slice(&checksum(length, &body).to_le_bytes());
    record.extend_from_slice(&body);
    Ok(record)
}

fn read(file: File) -> Result<Contents, Damage> {
    let mut reader = Reader { file: BufReader::with_capacity(1 << 20, file), offset: 0 };
    let mut format = [0; FORMAT.len()];
    reader.fill(&mut format)?;
    if &format != FORMAT {
        let format = format.escape_ascii();
        return Err(Damage { offset: 0, what: format!("its format is {format}, not RSSNAP1") });
    }
    let at = reader.offset;
    let Some(Part::Head(head)) = reader.part()?.part else {
        return Err(Damage { offset: at, what: "it does not begin with a head".to_owned() });
    };
    let bad = |offset, error: &dyn std::fmt::Display| Damage { offset, what: error.to_string() };
    let mut assembly = Assembly::new(head).map_err(|e| bad(at, &e))?;
    loop {
        let at = reader.offset;
        let part = reader.part()?;
        if let Some(contents) = assembly.take(part).map_err(|e| bad(at, &e))? {
            return match reader.file.read(&mut [0]) {
                Ok(0) => Ok(contents),
                Ok(_) => Err(bad(reader.offset, &"there is more after its end")),
                Err(e) => Err(bad(reader.offset, &e)),
            };
        }
    }
}

struct Reader {
    file: BufReader<File>,
    offset: u64,
}

impl Reader {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Damage> {
        self.file.read_exact(buffer).map_err(|error| Damage {
            offset: self.offset,
            what: match error.kind() {
                io::ErrorKind::UnexpectedEof => "it is cut off".to_owned(),
                _ => error.to_string(),
            },
        })?;
        self.offset += buffer.len() as u64;
        Ok(())
    }

    fn part(&mut self) -> Result<peer::SnapshotPart, Damage> {
        let offset = self.offset;
        let damage = |what: String| Damage { offset, what };
        let (mut length, mut sum) = ([0; 4], [0; 4]);
        self.fill(&mut length)?;
        self.fill(&mut sum)?;
        let bytes = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if bytes > MOST_PART {
            return Err(damage(format!("a part of {bytes} bytes")));
        }
        let mut part = vec![0; bytes];
        self.fill(&mut part)?;
        let (found, computed) = (u32::from_le_bytes(sum), checksum(length, &part));
        if found != computed {
            return Err(damage(format!(
                "the checksum of a part is {found:08x}, but its content gives {computed:08x}"
            )));
        }
        peer::SnapshotPart::decode(part.as_slice()).map_err(|e| damage(e.to_string()))
    }
}
