//! What `scripts/package` makes, installed into a clean root, unpacked, and started there.
//!
//! Here with the programs as they were just built for tests; with `SOAK=1`, as
//! `scripts/soak package` runs it, with the static ones of a release.

use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;

use crate::{
    book::root,
    programs::{self, SUITE},
    session::{Session, can_unshare},
};

/// Packages; the short form leaves out the last one, which is a minute's work in a debug build.
const NAMES: [&str; 3] = ["consul-terraform-sync", "consul-ecs", "resource-server"];

fn names() -> &'static [&'static str] {
    if std::env::var_os("SOAK").is_some() { &NAMES } else { &NAMES[..2] }
}

/// Runs a command and returns what it printed; it has to succeed.
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{said}{complained}");
    said
}

fn package(out: &Path, names: &[&str]) {
    let mut command = Command::new(root().join("scripts/package"));
    command.args(["--out".as_ref(), out.as_os_str()]).env("SOURCE_DATE_EPOCH", "1750000000");
    if std::env::var_os("SOAK").is_none() {
        command.args(["--binaries".as_ref(), programs::ours().as_os_str()]);
    }
    done(command.args(names));
}

fn file(out: &Path, begin: &str, end: &str) -> PathBuf {
    let mut found = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(begin) && name.ends_with(end)
    };
    found.find(fits).unwrap_or_else(|| panic!("no {begin}…{end}"))
}

/// The suite needs root, as `dpkg` and `chroot` do.
fn can_run(case: &str) -> bool {
    if !can_unshare() || done(Command::new("id").arg("-u")).trim() != "0" {
        SUITE.missing("unshare", case, "installing and chroot need root");
        return false;
    }
    true
}

#[test]
fn packages_install_and_start() {
    let case = "package::packages_install_and_start";
    if !can_run(case) {
        return;
    }
    let Some(path) = programs::path(&["consul", "tofu"], case) else { return };
    if SUITE.part("systemd-analyze", case).is_none() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    package(out.path(), names());
    let sums = done(Command::new("sha256sum").args(["-c", "SHA256SUMS"]).current_dir(&out));
    assert_eq!(sums.matches(": OK").count(), 3 * names().len(), "{sums}");
    for name in names().iter().copied() {
        materials(&file(out.path(), &format!("{name}-"), ".cdx.json"), name);
        let installed = installed(&file(out.path(), &format!("{name}_"), ".deb"), name);
        if installed.path().join(format!("lib/systemd/system/{name}.service")).exists() {
            unit(installed.path(), name);
        }
        if name == "consul-terraform-sync" {
            is_ready_alive_and_stopped(installed.path(), &path);
        }
        image(&file(out.path(), &format!("{name}-"), ".oci.tar"), name, &path);
    }
    // The same again is the same to the byte.
    let again = tempfile::tempdir().unwrap();
    package(again.path(), &["consul-ecs"]);
    for line in fs::read_to_string(again.path().join("SHA256SUMS")).unwrap().lines() {
        let before = fs::read_to_string(out.path().join("SHA256SUMS")).unwrap();
        assert!(before.contains(line), "{line} was not so before:\n{before}");
    }
}

fn materials(path: &Path, name: &str) {
    let bill: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(bill["metadata"]["component"]["name"], name);
    let components = bill["components"].as_array().unwrap();
    let tokio = components.iter().find(|one| one["name"] == "tokio").expect("tokio is in it");
    assert_eq!(tokio["licenses"][0]["expression"], "MIT");
    assert!(components.iter().all(|one| one["purl"].as_str().unwrap().starts_with("pkg:cargo/")));
}

/// Installs a package into an empty root, with its maintainer scripts.
fn installed(package: &Path, name: &str) -> tempfile::TempDir {
    let clean = tempfile::tempdir().unwrap();
    let admin = clean.path().join("var/lib/dpkg");
    fs::create_dir_all(admin.join("updates")).unwrap();
    fs::create_dir_all(admin.join("info")).unwrap();
    for empty in ["status", "available"] {
        fs::write(admin.join(empty), "").unwrap();
    }
    let at = format!("--root={}", clean.path().display());
    done(
        Command::new("dpkg")
            .args([&at, "--force-script-chrootless", "--force-not-root", "--install"])
            .arg(package),
    );
    let status = done(Command::new("dpkg").args([&at, "--status", name]));
    assert!(status.contains("Status: install ok installed"), "{status}");
    let inside = |path: &str| clean.path().join(path);
    let manual = inside(&format!("usr/share/man/man1/{name}.1.gz"));
    let manual = done(Command::new("zcat").arg(manual));
    assert!(manual.starts_with(".TH") && manual.contains("Usage"), "{manual}");
    assert!(inside(&format!("usr/share/bash-completion/completions/{name}")).exists());
    if inside(&format!("lib/systemd/system/{name}.service")).exists() {
        let users = fs::read_to_string(inside("etc/passwd")).unwrap();
        assert!(users.contains(&format!("{name}:x:")), "{users}");
        assert!(status.contains(&format!(" /etc/default/{name} ")), "{status}");
    }
    clean
}

fn unit(installed: &Path, name: &str) {
    let unit = installed.join(format!("lib/systemd/system/{name}.service"));
    let at = format!("--root={}", installed.display());
    let offline = ["security", "--offline=true", "--threshold=20", "--no-pager"];
    done(Command::new("systemd-analyze").args(offline).arg(&unit));
    // What the unit refers to is the system's, which the clean root lacks.
    let units = installed.join("lib/systemd/system");
    for entry in fs::read_dir("/lib/systemd/system").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "target") {
            fs::copy(&path, units.join(path.file_name().unwrap())).unwrap();
        }
    }
    fs::create_dir_all(installed.join("bin")).unwrap();
    fs::copy("/bin/kill", installed.join("bin/kill")).unwrap();
    let verify = ["verify", "--man=no", &at];
    let verified =
        Command::new("systemd-analyze").args(verify).arg(format!("{name}.service")).output();
    let said = String::from_utf8_lossy(&verified.unwrap().stderr).into_owned();
    let ours: Vec<&str> =
        said.lines().filter(|line| line.contains(&format!("{name}.service"))).collect();
    assert!(ours.is_empty(), "{said}");
}

/// Runs the unit's `ExecStart` within the root, and listens as the service manager would.
fn is_ready_alive_and_stopped(installed: &Path, path: &str) {
    let text =
        fs::read_to_string(installed.join("lib/systemd/system/consul-terraform-sync.service"))
            .unwrap();
    let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    fs::create_dir_all(installed.join("run")).unwrap();
    fs::create_dir_all(installed.join("tmp")).unwrap();
    let manager = UnixDatagram::bind(installed.join("run/notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let said = || {
        let mut buffer = [0; 64];
        let length = manager.recv(&mut buffer).expect("the daemon says something within a minute");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let tool = consul_watch::testing::parts::find("tofu").unwrap().path;
    fs::copy(tool, installed.join("usr/bin/tofu")).unwrap();

    let mut session = Session::start(path);
    session.must("consul agent -dev -log-level=warn > consul.log 2>&1 &");
    session.must(&format!(
        "cd {0} && mkdir -p dev proc && mount --bind /dev dev && mount -t proc proc proc && cd -",
        installed.display()
    ));
    session.must(&format!(
        "NOTIFY_SOCKET=/run/notify WATCHDOG_USEC=200000 PATH=/usr/bin:/usr/sbin:/bin \
         chroot {} {start} > sync.log 2>&1 & daemon=$!",
        installed.display()
    ));
    session.must("until [ -s sync.log ]; do sleep 0.1; done");
    session.must("for i in $(seq 100); do grep -q 'serving the API' sync.log && break; sleep 0.1; done; grep 'serving the API' sync.log");
    assert_eq!(said(), "READY=1");
    assert_eq!(said(), "WATCHDOG=1");
    assert_eq!(said(), "WATCHDOG=1");
    session.must(&format!(
        "chroot {} /usr/bin/consul-terraform-sync status -health \
         -http-addr=http://127.0.0.1:8558",
        installed.display()
    ));
    // A reload, as ExecReload does it.
    fs::write(
        installed.join("etc/consul-terraform-sync/more.hcl"),
        "buffer_period {\n  min = 7\n}\n",
    )
    .unwrap();
    session.must("kill -HUP $daemon; until grep -q 'the configuration is not reloaded' sync.log; do sleep 0.1; done");
    session.must("kill $daemon");
    while said() != "STOPPING=1" {}
    session.must("wait $daemon");
}

/// Unpacks an image, and runs it read-only, as nobody.
fn image(archive: &Path, name: &str, path: &str) {
    let folder = tempfile::tempdir().unwrap();
    done(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(folder.path()));
    let read = |file: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(folder.path().join(file)).unwrap()).unwrap()
    };
    let blob = |digest: &Value| {
        let digest = digest.as_str().unwrap().trim_start_matches("sha256:").to_owned();
        let path = format!("blobs/sha256/{digest}");
        let found = done(Command::new("sha256sum").arg(folder.path().join(&path)));
        assert!(found.starts_with(&digest), "{found}");
        path
    };
    let manifest = read(&blob(&read("index.json")["manifests"][0]["digest"]));
    let config = read(&blob(&manifest["config"]["digest"]));
    let layer = blob(&manifest["layers"][0]["digest"]);
    assert_eq!(read("manifest.json")[0]["Layers"][0], layer.as_str());
    let size = fs::metadata(folder.path().join(&layer)).unwrap().len();
    assert_eq!(manifest["layers"][0]["size"], size);
    let config = &config["config"];
    assert_eq!(config["User"], "65532:65532");

    let files = folder.path().join("root");
    fs::create_dir(&files).unwrap();
    done(Command::new("tar").arg("-xpf").arg(folder.path().join(&layer)).arg("-C").arg(&files));
    let entry = config["Entrypoint"][0].as_str().unwrap();
    let volume = config["WorkingDir"].as_str().unwrap();
    let mut session = Session::start(path);
    let files = files.display();
    session.must(&format!(
        "mkdir volume && chown 65532:65532 volume && mount --bind {files} {files} \
         && mount -o remount,bind,ro {files} && mount --bind volume {files}{volume}"
    ));
    let run = format!("chroot --userspec=65532:65532 {files}");
    session.must(&format!("! touch {files}/usr/bin/one-more && touch {files}{volume}/one-more"));
    if name == "consul-ecs" {
        let copied = session.must(&format!("{run} {entry} version"));
        assert!(!copied.trim().is_empty());
        return;
    }
    if name == "resource-server" {
        session.must(&format!("{run} {entry} > server.log 2>&1 &"));
    } else {
        // The image has no Terraform: whoever needs it builds upon the image. Its double of a
        // driver would be no test, so the health check is asked of a daemon on the outside.
        session.must("consul agent -dev -log-level=warn > consul.log 2>&1 &");
        session.must("echo 'log_level = \"INFO\"' > sync.hcl");
        session.must("consul-terraform-sync start -config-file=sync.hcl > sync.log 2>&1 &");
        session.must(&format!("{run} {entry} -version"));
    }
    let health: Vec<&str> = config["Healthcheck"]["Test"]
        .as_array()
        .unwrap()
        .iter()
        .skip(1)
        .map(|word| word.as_str().unwrap())
        .collect();
    session.must(&format!("until {run} {}; do sleep 0.2; done", health.join(" ")));
}
