//! The floor that the bench measures `mesh-init` against: the same calls, one after the other on one
//! connection, and the same files, without anything that makes a program of it.
//!
//! It depends on the standard library alone, decides nothing, and checks nothing but the status of each
//! answer. The bench compiles it with `rustc`:
//!
//! ```text
//! floor METADATA-HOST:PORT CONSUL-HOST:PORT VOLUME PROGRAM BOOTSTRAP
//! ```
//!
//! `PROGRAM` is copied into the volume, and so is `BOOTSTRAP`, which stands for the document that
//! `mesh-init` renders.

use std::{
    env, fs,
    io::{Error, Read as _, Result, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

/// What `mesh-init` registers for the service of the bench.
const SERVICE: &str = r#"{"ID":"web-abcdef","Name":"web","Port":8080,"Meta":{"source":"consul-ecs","task-arn":"arn:aws:ecs:us-east-1:1:task/test/abcdef","task-id":"abcdef"}}"#;

/// What `mesh-init` registers for its sidecar.
const SIDECAR: &str = r#"{"Kind":"connect-proxy","ID":"web-abcdef-sidecar-proxy","Name":"web-sidecar-proxy","Port":20000,"Meta":{"source":"consul-ecs","task-arn":"arn:aws:ecs:us-east-1:1:task/test/abcdef","task-id":"abcdef"},"Checks":[{"Name":"Proxy Public Listener","TCP":"127.0.0.1:20000","Interval":"10s","DeregisterCriticalServiceAfter":"10m0s"},{"Name":"Destination Alias","AliasService":"web-abcdef"}],"Proxy":{"DestinationServiceName":"web","DestinationServiceID":"web-abcdef","LocalServicePort":8080}}"#;

/// Makes one call and reads its whole answer.
fn call(stream: &mut TcpStream, method: &str, path: &str, body: &str, expected: &str) -> Result<()> {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 8192]);
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err(Error::other(format!("{path}: the connection was closed")));
        }
        answer.extend_from_slice(&buffer[..read]);
        let Some(head) = answer.windows(4).position(|it| it == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length
            .and_then(|length| length.trim().parse().ok())
            .ok_or_else(|| Error::other(format!("{path}: an answer without a length")))?;
        if answer.len() >= head + 4 + length {
            let status = text.split(' ').nth(1).unwrap_or_default();
            return if status == expected {
                Ok(())
            } else {
                Err(Error::other(format!("{path}: status {status}, expected {expected}")))
            };
        }
    }
}

/// Puts a file into place as `mesh-init` does: written aside, then renamed.
fn place(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let aside = to.with_extension("tmp");
    fs::copy(from, &aside)?;
    fs::set_permissions(&aside, fs::Permissions::from_mode(mode))?;
    fs::rename(aside, to)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [metadata, consul, volume, program, bootstrap] = &arguments[..] else {
        return Err(Error::other("expected METADATA CONSUL VOLUME PROGRAM BOOTSTRAP"));
    };
    let volume = Path::new(volume);
    call(&mut TcpStream::connect(metadata)?, "GET", "/task", "", "200")?;
    place(Path::new(program), &volume.join("consul-ecs"), 0o755)?;
    let mut stream = TcpStream::connect(consul)?;
    stream.set_nodelay(true)?;
    let register = "/v1/agent/service/register";
    call(&mut stream, "PUT", register, SERVICE, "200")?;
    call(&mut stream, "PUT", register, SIDECAR, "200")?;
    // Without ACLs Consul refuses to name a token, and there are no proxy defaults.
    call(&mut stream, "GET", "/v1/acl/token/self", "", "401")?;
    call(&mut stream, "GET", "/v1/agent/service/web-abcdef-sidecar-proxy", "", "200")?;
    call(&mut stream, "GET", "/v1/config/proxy-defaults/global", "", "404")?;
    place(Path::new(bootstrap), &volume.join("envoy-bootstrap.json"), 0o444)
}
