//! Cases of packing: reproducible bytes, links, missing folders.

use std::{fs, io::Read as _, path::Path};

use super::{Archive, Files};

fn entries(archive: &Archive) -> Vec<(String, String)> {
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&archive.bytes[..]));
    let mut found = Vec::new();
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!((entry.header().mtime().unwrap(), entry.header().uid().unwrap()), (0, 0));
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        found.push((entry.path().unwrap().to_string_lossy().into_owned(), text));
    }
    found
}

fn module(folder: &Path) {
    fs::create_dir_all(folder.join("sub")).unwrap();
    for (name, text) in [("z.tf", "z"), ("a.tf", "a"), ("sub/s.sh", "#!"), ("x.tfstate", "secret")]
    {
        fs::write(folder.join(name), text).unwrap();
    }
}

fn packed(folder: &Path) -> Archive {
    let mut files = Files::default();
    files.add("main.tf", "m");
    files.add_folder(folder, "modules/web/").unwrap();
    files.pack().unwrap()
}

#[test]
fn identical_files_give_identical_bytes() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    module(one.path());
    // Other times, another order of creation, another folder.
    fs::write(other.path().join("z.tf"), "before").unwrap();
    module(other.path());
    let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    fs::File::options()
        .write(true)
        .open(other.path().join("a.tf"))
        .unwrap()
        .set_times(times)
        .unwrap();
    let (one, mut two) = (packed(one.path()), packed(other.path()));
    assert_eq!(one.bytes, two.bytes);
    assert_eq!(one.digest, two.digest);
    let names: Vec<String> = entries(&one).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["main.tf", "modules/web/a.tf", "modules/web/sub/s.sh", "modules/web/z.tf"]);
    assert_eq!(one.bytes[4..8], [0; 4], "no time in the header of gzip");

    fs::write(other.path().join("a.tf"), "b").unwrap();
    two = packed(other.path());
    assert_ne!(one.digest, two.digest);
}

/// Case TFC24: an upload to a bad address, of a path that is no folder, or of none is an error
/// without a run.
#[test]
fn a_module_that_is_not_there_or_no_folder_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Files::default().add_folder(&folder.path().join("gone"), "").unwrap_err();
    assert!(missing.to_string().contains("cannot read"), "{missing}");
    let file = folder.path().join("file.tf");
    fs::write(&file, "").unwrap();
    let no_folder = Files::default().add_folder(&file, "").unwrap_err();
    assert!(no_folder.to_string().contains("is not a directory"), "{no_folder}");
}

#[cfg(unix)]
#[test]
fn links_are_followed_inside_and_refused_outside() {
    let folder = tempfile::tempdir().unwrap();
    let (module, outside) = (folder.path().join("m"), folder.path().join("secret"));
    fs::create_dir(&module).unwrap();
    fs::write(module.join("main.tf"), "x").unwrap();
    std::os::unix::fs::symlink(module.join("main.tf"), module.join("other.tf")).unwrap();
    let mut files = Files::default();
    files.add_folder(&module, "").unwrap();
    let texts: Vec<String> =
        entries(&files.pack().unwrap()).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["x", "x"]);

    fs::write(&outside, "s").unwrap();
    std::os::unix::fs::symlink(&outside, module.join("leak")).unwrap();
    let error = Files::default().add_folder(&module, "").unwrap_err().to_string();
    assert!(error.contains("leak leads out of the module"), "{error}");
    // A rule may leave it out.
    fs::write(module.join(".terraformignore"), "leak\n").unwrap();
    Files::default().add_folder(&module, "").unwrap();
    // A loop ends.
    std::os::unix::fs::symlink(&module, module.join("again")).unwrap();
    assert!(Files::default().add_folder(&module, "").is_err());
}
