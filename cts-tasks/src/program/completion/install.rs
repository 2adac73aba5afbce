//! Tells shells to complete this program's command line.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// A file of a shell, and the lines in it that are ours.
struct Shell {
    file: PathBuf,
    lines: Vec<String>,
    /// `true` if the file is made where it does not exist.
    own: bool,
}

/// Adds completion to each shell that has its file in `home`; returns the
/// files that were changed, none if all had it already.
pub(crate) fn install(name: &str, home: &Path, program: &Path) -> Result<Vec<PathBuf>, String> {
    let shells = shells(name, home, program)?;
    if shells.is_empty() {
        return Err(format!(
            "no shell found: there is no .bashrc, .bash_profile, .bash_login, .profile, .zshrc or \
             .config/fish in {}",
            home.display()
        ));
    }
    let mut changed = Vec::new();
    for shell in shells {
        if add(&shell).map_err(|error| cannot("change", &shell.file, &error))? {
            changed.push(shell.file);
        }
    }
    Ok(changed)
}

/// Takes back what [`install`] did; returns the files that were changed.
pub(crate) fn uninstall(name: &str, home: &Path, program: &Path) -> Result<Vec<PathBuf>, String> {
    let mut changed = Vec::new();
    for shell in shells(name, home, program)? {
        if remove(&shell).map_err(|error| cannot("change", &shell.file, &error))? {
            changed.push(shell.file);
        }
    }
    Ok(changed)
}

fn cannot(what: &str, file: &Path, error: &io::Error) -> String {
    format!("cannot {what} {}: {error}", file.display())
}

fn shells(name: &str, home: &Path, program: &Path) -> Result<Vec<Shell>, String> {
    let program = program.to_str().filter(|path| path.chars().all(is_plain)).ok_or_else(|| {
        format!("{}: a shell needs a path without spaces and quotes", program.display())
    })?;
    // File names are completed by the shell, where this program has no answer.
    let complete = format!("complete -o default -C {program} {name}");
    let mut shells = Vec::new();
    let bash = [".bashrc", ".bash_profile", ".bash_login", ".profile"];
    if let Some(file) = bash.iter().map(|file| home.join(file)).find(|file| file.exists()) {
        shells.push(Shell { file, lines: vec![complete.clone()], own: false });
    }
    let zsh = home.join(".zshrc");
    if zsh.exists() {
        let lines = vec!["autoload -U +X bashcompinit && bashcompinit".to_owned(), complete];
        shells.push(Shell { file: zsh, lines, own: false });
    }
    let fish = home.join(".config/fish");
    if fish.exists() {
        let line =
            format!("complete -c {name} -a '(set -lx COMP_LINE (commandline -cp); {program})'");
        let file = fish.join(format!("completions/{name}.fish"));
        shells.push(Shell { file, lines: vec![line], own: true });
    }
    Ok(shells)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/._+-@".contains(c)
}

fn read(file: &Path) -> io::Result<String> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// Appends the lines that are missing; whether there were any.
fn add(shell: &Shell) -> io::Result<bool> {
    let text = read(&shell.file)?;
    let missing: Vec<&String> =
        shell.lines.iter().filter(|ours| !text.lines().any(|line| line == ours.as_str())).collect();
    if missing.is_empty() {
        return Ok(false);
    }
    if let Some(folder) = shell.file.parent().filter(|_| shell.own) {
        fs::create_dir_all(folder)?;
    }
    let mut added = String::new();
    if !text.is_empty() && !text.ends_with('\n') {
        added.push('\n');
    }
    for line in missing {
        added.push_str(line);
        added.push('\n');
    }
    let mut file = OpenOptions::new().create(shell.own).append(true).open(&shell.file)?;
    file.write_all(added.as_bytes())?;
    Ok(true)
}

/// Takes the last line of ours out; the one before it serves others, too.
fn remove(shell: &Shell) -> io::Result<bool> {
    let text = read(&shell.file)?;
    let Some(ours) = shell.lines.last() else { return Ok(false) };
    if !text.lines().any(|line| line == ours) {
        return Ok(false);
    }
    if shell.own {
        fs::remove_file(&shell.file)?;
        return Ok(true);
    }
    let kept: String = text.split_inclusive('\n').filter(|line| line.trim_end() != ours).collect();
    // Renamed into place, so that nothing is lost; the file may be a link.
    let file = fs::canonicalize(&shell.file)?;
    let mut aside = file.clone().into_os_string();
    aside.push(".completion");
    fs::write(&aside, kept)?;
    fs::set_permissions(&aside, fs::metadata(&file)?.permissions())?;
    fs::rename(aside, file)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "consul-terraform-sync";
    const PATH: &str = "/opt/bin/consul-terraform-sync";
    const LINE: &str =
        "complete -o default -C /opt/bin/consul-terraform-sync consul-terraform-sync";

    #[test]
    fn each_shell_that_is_used_is_told_once_and_told_off() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        fs::write(home.join(".bashrc"), "alias l=ls").unwrap();
        fs::write(home.join(".zshrc"), "").unwrap();
        fs::create_dir_all(home.join(".config/fish")).unwrap();
        assert_eq!(install(NAME, home, Path::new(PATH)).unwrap().len(), 3);
        assert_eq!(
            fs::read_to_string(home.join(".bashrc")).unwrap(),
            format!("alias l=ls\n{LINE}\n")
        );
        let fish = home.join(".config/fish/completions/consul-terraform-sync.fish");
        assert!(fs::read_to_string(&fish).unwrap().contains(PATH));
        assert_eq!(install(NAME, home, Path::new(PATH)).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(uninstall(NAME, home, Path::new(PATH)).unwrap().len(), 3);
        assert_eq!(fs::read_to_string(home.join(".bashrc")).unwrap(), "alias l=ls\n");
        assert!(!fish.exists());
        assert_eq!(uninstall(NAME, home, Path::new(PATH)).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn where_no_shell_is_nothing_is_made() {
        let home = tempfile::tempdir().unwrap();
        let error = install(NAME, home.path(), Path::new(PATH)).unwrap_err();
        assert!(error.contains(".bashrc"), "{error}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_path_that_a_shell_would_take_apart_is_refused() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(".bashrc"), "").unwrap();
        for path in ["/opt/my tools/sync", "/opt/$(reboot)/sync", "/opt/a'b"] {
            assert!(install(NAME, home.path(), Path::new(path)).is_err(), "{path}");
        }
    }
}
