//! `export` and `import`.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    GrpcClient, GrpcClientConfig, ResourceClient as _, WILDCARD,
    backend::{ResourceStream, WatchEvent},
    pb::{self, Tenancy},
    transfer,
};
use consul_watch::BoxError;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};

use super::{
    ServerProgram,
    arguments::{ExportOptions, ImportOptions},
    raft::RaftOptions,
    storage::{STORE_FILE, Storage, is_of_a_node},
};

/// Bytes of a file that are read at a time.
const PIECE: usize = 1 << 16;

pub(crate) async fn export(
    program: &ServerProgram,
    options: &ExportOptions,
) -> Result<(), BoxError> {
    if let Some(address) = &options.server {
        return write(from_server(program, address)?, &options.file).await;
    }
    if let Some(folder) = &options.storage.data_dir {
        // A store that is not there would be made, and exported as an empty one.
        let file = folder.join(STORE_FILE);
        if !file.try_exists()? && !is_of_a_node(folder) {
            return Err(
                format!("there is no store to export: {} is missing", file.display()).into()
            );
        }
    }
    let storage = Storage::open(&options.storage, &RaftOptions::default()).await?;
    let written = match storage.backend().snapshot().await {
        Ok(resources) => write(resources, &options.file).await,
        Err(error) => Err(error.into()),
    };
    let closed = storage.close().await;
    written.and(closed)
}

/// Every resource of the program's types that a server has, and the tombstones.
fn from_server(program: &ServerProgram, address: &str) -> Result<ResourceStream, BoxError> {
    let url =
        if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let client = GrpcClient::new(&GrpcClientConfig::new(&url))?;
    let registry = program.registry()?;
    let types: Vec<_> =
        registry.types().map(|registered| registered.resource_type().clone()).collect();
    let of_type = move |ty| {
        let client = client.clone();
        async move {
            let request = pb::WatchListRequest {
                r#type: Some(ty),
                tenancy: Some(Tenancy::new(WILDCARD, WILDCARD)),
                name_prefix: String::new(),
            };
            // A watch begins with all there is, in as many messages as it takes.
            let events = client.watch_list(request).await.map_err(into_backend_error)?;
            let present = events.map_err(into_backend_error).try_take_while(|event| {
                let more = !matches!(event, WatchEvent::EndOfSnapshot);
                async move { Ok(more) }
            });
            Ok(present.try_filter_map(|event| async move {
                match event {
                    WatchEvent::Upsert(resource) => Ok(Some(resource)),
                    WatchEvent::Delete(_) | WatchEvent::EndOfSnapshot => Ok(None),
                }
            }))
        }
    };
    Ok(stream::iter(types).then(of_type).try_flatten().boxed())
}

fn into_backend_error(error: crate::RpcError) -> crate::backend::Error {
    crate::backend::Error::Other { operation: "export", retryable: false, source: Box::new(error) }
}

/// Writes an export to a file, and says how much.
#[expect(clippy::print_stderr, reason = "the standard output may be the export")]
async fn write(resources: ResourceStream, file: &Path) -> Result<(), BoxError> {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let resources = resources.inspect_ok(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let chunks = std::pin::pin!(transfer::export(resources.boxed()));
    if file == Path::new("-") {
        write_all(chunks, &mut io::stdout()).await?;
    } else {
        write_file(chunks, file).await?;
    }
    eprintln!("{} resources exported", count.load(Ordering::Relaxed));
    Ok(())
}

/// Writes an export to a file, which is only there once it is complete.
async fn write_file(
    chunks: impl Stream<Item = transfer::Result<Vec<u8>>> + Unpin,
    file: &Path,
) -> Result<(), BoxError> {
    let failed = |error| format!("{} cannot be written: {error}", file.display());
    let mut aside = file.as_os_str().to_owned();
    aside.push(".part");
    let aside = PathBuf::from(aside);
    match std::fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error).into()),
        Ok(()) | Err(_) => {}
    }
    let mut open = OpenOptions::new();
    open.write(true).create_new(true);
    // What resources hold is for their owner only.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    let mut to = open.open(&aside).map_err(failed)?;
    let written = write_all(chunks, &mut to).await;
    let done = written.and_then(|()| {
        to.sync_all().map_err(failed)?;
        Ok(std::fs::rename(&aside, file).map_err(failed)?)
    });
    if done.is_err() {
        std::fs::remove_file(&aside).map_err(failed)?;
    }
    done
}

async fn write_all(
    mut chunks: impl Stream<Item = transfer::Result<Vec<u8>>> + Unpin,
    to: &mut impl Write,
) -> Result<(), BoxError> {
    while let Some(chunk) = chunks.try_next().await? {
        to.write_all(&chunk)?;
    }
    Ok(to.flush()?)
}

pub(crate) async fn import(options: &ImportOptions) -> Result<(), BoxError> {
    let file = source(&options.file)?;
    let storage = Storage::open(&options.storage, &options.raft).await?;
    let imported = import_into(&storage, options, file).await;
    let closed = storage.close().await;
    imported.and(closed)
}

#[expect(clippy::print_stdout, reason = "the answer to a command")]
async fn import_into(
    storage: &Storage,
    options: &ImportOptions,
    file: File,
) -> Result<(), BoxError> {
    if !storage.is_lasting() {
        return Err("importing needs a store that lasts: give --data-dir".into());
    }
    let backend = storage.backend();
    let empty = backend.snapshot().await?.next().await.transpose()?.is_none();
    if !empty && !options.replace {
        return Err(
            "the store holds resources; --replace gives them up for those of the file".into()
        );
    }
    let file = Arc::new(file);
    let summary = transfer::import(&*backend, || pieces(Arc::clone(&file))).await;
    let summary = summary.map_err(|error| -> BoxError {
        match error {
            // The file is sound.
            transfer::Error::Backend(error) => error.into(),
            error => format!("{}: {error}", options.file.display()).into(),
        }
    })?;
    println!("{} resources imported", summary.resources);
    Ok(())
}

/// The file to read from. Input from elsewhere is kept in a file that has no
/// name, because it is read twice.
fn source(path: &Path) -> Result<File, BoxError> {
    let failed = |error| format!("{} cannot be read: {error}", path.display());
    if path != Path::new("-") {
        return Ok(File::open(path).map_err(failed)?);
    }
    let mut kept = tempfile::tempfile()?;
    io::copy(&mut io::stdin().lock(), &mut kept).map_err(failed)?;
    Ok(kept)
}

/// A file from its beginning, in pieces.
fn pieces(file: Arc<File>) -> impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static {
    stream::try_unfold((file, true), |(file, first)| async move {
        let mut from = &*file;
        if first {
            from.rewind()?;
        }
        let mut piece = Vec::with_capacity(PIECE);
        from.take(PIECE as u64).read_to_end(&mut piece)?;
        Ok((!piece.is_empty()).then_some((piece, (file, false))))
    })
}
