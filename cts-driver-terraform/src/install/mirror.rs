//! Downloads releases from a server that is laid out as `HashiCorp`'s is.

use std::{
    io::{Cursor, Read as _},
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use super::TerraformSource;
use crate::{Error, Result, Version, VersionConstraint, hex::hex};

/// Time limit of a connection attempt, and of each pause within an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most that a list of versions or of checksums may hold, in bytes.
const MAX_TEXT: usize = 64 << 20;

/// The most that an archive, and the program in it, may hold, in bytes.
const MAX_PROGRAM: usize = 512 << 20;

/// A server laid out as `HashiCorp`'s release server is.
///
/// | path below the address | content |
/// |---|---|
/// | `terraform/index.json` | all versions, as keys of `versions` |
/// | `terraform/V/terraform_V_SHA256SUMS` | checksums |
/// | `terraform/V/terraform_V_SHA256SUMS.sig` | their signature, if it is checked |
/// | `terraform/V/terraform_V_OS_ARCH.zip` | the program |
///
/// The archive has to have the checksum that the list gives. The list has to be
/// signed with one of the keys that `with_keys` (feature `verify-signature`)
/// names. Without keys the server and the way to it have to be trusted: use an
/// `https` address.
///
/// Source: Consul-Terraform-Sync 0.9, installation of Terraform.
///
/// Deviation: upstream has the key of `HashiCorp` built in, which ends its life
/// before a program does; and it asks another server for the newest version.
#[derive(Debug, Clone)]
pub struct ReleaseMirror {
    address: String,
    #[cfg(feature = "verify-signature")]
    keys: Option<super::ReleaseKeys>,
    http: OnceCell<reqwest::Client>,
}

impl ReleaseMirror {
    /// The server that is used unless another is configured.
    pub const DEFAULT: &'static str = "https://releases.hashicorp.com";

    /// The server at this address.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into().trim_end_matches('/').to_owned(),
            #[cfg(feature = "verify-signature")]
            keys: None,
            http: OnceCell::new(),
        }
    }

    /// Takes only checksums that one of these keys has signed.
    #[cfg(feature = "verify-signature")]
    #[must_use]
    pub fn with_keys(mut self, keys: super::ReleaseKeys) -> Self {
        self.keys = Some(keys);
        self
    }

    /// The list of checksums of a version, after a check of its signature.
    async fn checksums(&self, version: &Version) -> Result<Bytes> {
        let path = format!("{version}/terraform_{version}_SHA256SUMS");
        let sums = self.get(&path, MAX_TEXT).await?;
        #[cfg(feature = "verify-signature")]
        if let Some(keys) = &self.keys {
            let signature = self.get(&format!("{path}.sig"), MAX_TEXT).await?;
            keys.check(&sums, &signature).map_err(|problem| wrong(&path, problem, false))?;
            return Ok(sums);
        }
        tracing::warn!(
            list = path,
            "the signature of the checksums is not checked: there are no release_keys"
        );
        Ok(sums)
    }

    fn http(&self) -> impl Future<Output = Result<&reqwest::Client>> {
        self.http.get_or_try_init(|| async {
            let builder = reqwest::Client::builder()
                .connect_timeout(PATIENCE)
                .read_timeout(PATIENCE)
                .user_agent(concat!("cts-driver-terraform/", env!("CARGO_PKG_VERSION")));
            builder.build().map_err(|error| failure(&self.address, &error))
        })
    }

    /// The content of a file, if it is not longer than this.
    async fn get(&self, path: &str, most: usize) -> Result<Bytes> {
        let url = format!("{}/terraform/{path}", self.address);
        let request = self.http().await?.get(&url);
        let answer = request.send().await.and_then(reqwest::Response::error_for_status);
        let mut answer = answer.map_err(|error| failure(&url, &error))?;
        let mut content = BytesMut::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| failure(&url, &error))? {
            if content.len() + chunk.len() > most {
                return Err(wrong(&url, format!("it is longer than {most} bytes"), false));
            }
            content.extend_from_slice(&chunk);
        }
        Ok(content.freeze())
    }
}

#[async_trait]
impl TerraformSource for ReleaseMirror {
    async fn newest(&self, constraint: &VersionConstraint) -> Result<Option<Version>> {
        #[derive(Deserialize)]
        struct Index {
            versions: serde_json::Map<String, serde_json::Value>,
        }
        let index = self.get("index.json", MAX_TEXT).await?;
        let index: Index = serde_json::from_slice(&index)
            .map_err(|error| wrong("index.json", error.to_string(), false))?;
        let versions = index.versions.keys().filter_map(|version| version.parse().ok());
        Ok(versions.filter(|version| constraint.accepts(version)).max())
    }

    async fn program(&self, version: &Version) -> Result<Bytes> {
        let name = format!("terraform_{version}_{}_{}.zip", system(), architecture());
        let sums = self.checksums(version).await?;
        let sums = String::from_utf8_lossy(&sums);
        let expected = sums.lines().find_map(|line| {
            let (sum, file) = line.split_once(char::is_whitespace)?;
            (file.trim_start_matches([' ', '*']) == name).then(|| sum.to_ascii_lowercase())
        });
        let expected = expected.ok_or_else(|| {
            wrong(&name, "the list of checksums does not name it".to_owned(), false)
        })?;
        let archive = self.get(&format!("{version}/{name}"), MAX_PROGRAM).await?;
        let unpacked = tokio::task::spawn_blocking(move || {
            let found = hex(&Sha256::digest(&archive));
            if found != expected {
                let problem = format!("its sha256 is {found}, and {expected} is expected");
                return Err(wrong(&name, problem, false));
            }
            unpack(archive).map_err(|problem| wrong(&name, problem, false))
        });
        unpacked.await.map_err(|error| wrong("the archive", error.to_string(), true))?
    }
}

/// The program in the archive.
fn unpack(archive: Bytes) -> Result<Bytes, String> {
    let mut archive = zip::ZipArchive::new(Cursor::new(archive)).map_err(|e| e.to_string())?;
    let program = archive.by_name("terraform").map_err(|error| error.to_string())?;
    let most = u64::try_from(MAX_PROGRAM).unwrap_or(u64::MAX);
    let mut content = Vec::new();
    let length = program.take(most + 1).read_to_end(&mut content).map_err(|e| e.to_string())?;
    if length > MAX_PROGRAM {
        return Err(format!("the program in it is longer than {MAX_PROGRAM} bytes"));
    }
    Ok(content.into())
}

fn system() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        other => other,
    }
}

fn wrong(what: &str, problem: String, retryable: bool) -> Error {
    Error::Install { what: what.to_owned(), problem, retryable }
}

fn failure(url: &str, error: &reqwest::Error) -> Error {
    let retryable = error.status().is_none_or(|status| status.is_server_error());
    let problem = match error.status() {
        Some(status) => format!("the server answered {status}"),
        None => consul_watch::error_chain(error),
    };
    wrong(url, problem, retryable)
}
