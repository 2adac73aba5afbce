//! The file store on a disk that loses power, and on the real one.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use tempfile::TempDir;

use super::{
    Disk, FileStore, Inner, Lock, beside,
    format::{self, read},
};
use crate::{
    Change, Changes, Error, Event, EventConfig, InputsDigest, Plan, PlanId, Result, State, Task,
    TaskStore,
    store::AppliedInputs,
    testing::{store as suite, task},
};

/// A disk in memory on which what was not synced may be lost.
#[derive(Debug, Default)]
struct Sim {
    world: Mutex<World>,
    fault: Option<Fault>,
}

/// How the store could be wrong: as if it left a step out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    SyncsNoFile,
    SyncsNoFolder,
    WritesInPlace,
}

#[derive(Debug, Clone, Default)]
struct World {
    /// Contents, each with what of it is safe.
    inodes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    names: BTreeMap<PathBuf, usize>,
    /// Names that are safe, and the changes of names since.
    safe: BTreeMap<PathBuf, usize>,
    pending: Vec<BTreeMap<PathBuf, usize>>,
    /// Steps until the power goes; `None` is never.
    left: Option<usize>,
    /// Steps until one fails, without more.
    fails: Option<usize>,
    random: fastrand::Rng,
}

impl Sim {
    /// Does a step, or half of it, unless the power is gone.
    fn step<T>(&self, work: impl FnOnce(&mut World) -> T) -> io::Result<T> {
        let mut world = self.world.lock().unwrap();
        if let Some(fails) = world.fails.take() {
            if fails == 0 {
                return Err(io::Error::other("no space left on device"));
            }
            world.fails = Some(fails - 1);
        }
        match world.left {
            None => Ok(work(&mut world)),
            Some(left) if left > 0 => {
                world.left = Some(left - 1);
                Ok(work(&mut world))
            }
            Some(_) => {
                if world.random.bool() && world.pending.len() < 9 {
                    work(&mut world);
                }
                Err(io::Error::other("the power is gone"))
            }
        }
    }

    /// The disk as another start finds it.
    fn after_crash(&self) -> Self {
        let mut world = self.world.lock().unwrap().clone();
        let kept = world.random.usize(..=world.pending.len());
        if let Some(names) = kept.checked_sub(1).and_then(|last| world.pending.get(last)) {
            world.safe = names.clone();
        }
        let World { inodes, random, .. } = &mut world;
        for (content, safe) in inodes {
            if safe.as_ref() != Some(content) {
                let cut = random.usize(..=content.len());
                content.truncate(cut);
                *safe = Some(content.clone());
            }
        }
        world.names = world.safe.clone();
        world.pending.clear();
        world.left = None;
        Self { world: Mutex::new(world), fault: self.fault }
    }
}

/// Only one process is there.
#[derive(Debug)]
struct NoLock;

impl Lock for NoLock {
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl Disk for Sim {
    fn make_folder(&self, _file: &Path) -> io::Result<()> {
        Ok(())
    }

    fn target(&self, file: &Path) -> PathBuf {
        file.to_owned()
    }

    fn lock(&self, _file: &Path) -> Result<Box<dyn Lock>> {
        Ok(Box::new(NoLock))
    }

    fn read(&self, file: &Path) -> io::Result<Option<Vec<u8>>> {
        let world = self.world.lock().unwrap();
        Ok(world.names.get(file).map(|inode| world.inodes[*inode].0.clone()))
    }

    fn write(&self, file: &Path, text: &[u8]) -> io::Result<()> {
        let in_place = self.fault == Some(Fault::WritesInPlace);
        let file = if in_place { Path::new("state") } else { file };
        self.step(|world| {
            world.inodes.push((text.to_vec(), None));
            world.names.insert(file.to_owned(), world.inodes.len() - 1);
            world.pending.push(world.names.clone());
        })
    }

    fn sync(&self, file: &Path) -> io::Result<()> {
        self.step(|world| {
            if self.fault == Some(Fault::SyncsNoFile) {
                return;
            }
            if let Some((content, safe)) =
                world.names.get(file).and_then(|inode| world.inodes.get_mut(*inode))
            {
                *safe = Some(content.clone());
            }
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|world| {
            if let Some(inode) = world.names.remove(from) {
                world.names.insert(to.to_owned(), inode);
                world.pending.push(world.names.clone());
            }
        })
    }

    fn sync_folder(&self, _file: &Path) -> io::Result<()> {
        self.step(|world| {
            if self.fault != Some(Fault::SyncsNoFolder) {
                world.safe = world.names.clone();
                world.pending.clear();
            }
        })
    }
}

fn event(task: &Task, random: &mut fastrand::Rng) -> Event {
    let time = chrono::DateTime::UNIX_EPOCH.with_timezone(&chrono::Local);
    Event {
        id: uuid::Uuid::from_u128(random.u128(..)),
        success: true,
        start_time: time,
        end_time: time,
        task_name: task.name.clone(),
        error: None,
        config: EventConfig::of(task),
        changes: None,
        waiting_plan: None,
        notes: Vec::new(),
    }
}

/// A batch as the engine commits them.
fn batch(random: &mut fastrand::Rng) -> Vec<Change> {
    let change = |random: &mut fastrand::Rng| {
        let task = task(["one", "two", "three"][random.usize(..3)]);
        let name = task.name.clone();
        match random.u8(..6) {
            0 => Change::DeleteTask(name),
            1 => Change::AddEvent(Box::new(event(&task, random))),
            2 => {
                let plan = Plan::new(PlanId::of(&random.u64(..)), Changes::default(), "+ one\n");
                Change::PutPlan(name, Box::new(plan))
            }
            3 => {
                let digest = InputsDigest::of(&crate::TaskInputs::default());
                Change::SetApplied(name, AppliedInputs::unknown(digest))
            }
            _ => {
                Change::PutTask(Box::new(Task { description: random.u64(..).to_string(), ..task }))
            }
        }
    };
    (0..random.usize(1..4)).map(|_| change(random)).collect()
}

/// Commits batches until the power goes, several times, and holds what each start finds
/// against what was acknowledged.
fn survives(seed: u64, fault: Option<Fault>) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut disk = Arc::new(Sim { fault, ..Sim::default() });
    disk.world.lock().unwrap().random = random.fork();
    // What may be there: the acknowledged state, and that with the batch under way.
    let mut possible = vec![State::default()];
    for _ in 0..6 {
        let mut store = Inner::new("state".into(), Arc::<Sim>::clone(&disk));
        let found = store.load().map_err(|error| format!("seed {seed}: {error:?}"))?;
        if !possible.contains(&found) {
            return Err(format!("seed {seed}: {found:?} is none of {possible:?}"));
        }
        possible = vec![found];
        disk.world.lock().unwrap().left = Some(random.usize(..24));
        loop {
            let batch = batch(&mut random);
            let mut next = possible[0].clone();
            batch.iter().for_each(|change| next.apply(change));
            match store.commit(&batch) {
                Ok(()) => possible = vec![next],
                Err(error) => {
                    assert!(error.is_retryable());
                    possible.push(next);
                    break;
                }
            }
        }
        disk = Arc::new(disk.after_crash());
    }
    Ok(())
}

#[test]
fn a_loss_of_power_at_any_step_loses_nothing_that_was_acknowledged() {
    let seeds = if std::env::var_os("SOAK").is_some() { 20_000 } else { 300 };
    for seed in 0..seeds {
        survives(seed, None).unwrap();
    }
}

#[test]
fn each_step_is_needed() {
    for fault in [Fault::SyncsNoFile, Fault::SyncsNoFolder, Fault::WritesInPlace] {
        assert!((0..300).any(|seed| survives(seed, Some(fault)).is_err()), "{fault:?}");
    }
}

#[test]
fn a_step_that_fails_changes_nothing_and_can_be_tried_again() {
    let mut random = fastrand::Rng::with_seed(7);
    let disk = Arc::new(Sim::default());
    let mut store = Inner::new("state".into(), Arc::<Sim>::clone(&disk));
    let mut expected = store.load().unwrap();
    for fails in (0..4).cycle().take(40) {
        let batch = batch(&mut random);
        disk.world.lock().unwrap().fails = Some(fails);
        let error = store.commit(&batch).unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        assert!(consul_watch::error_chain(&error).contains("no space left"), "{error:?}");
        store.commit(&batch).unwrap();
        batch.iter().for_each(|change| expected.apply(change));
        assert_eq!(store.load().unwrap(), expected);
    }
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/tasks.json");
    (folder, path)
}

macro_rules! cases {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            let (_folder, path) = folder();
            suite::$case(&FileStore::new(&path)).await;
        }
    )*};
}

cases! {
    nothing_is_loaded_at_first,
    what_was_committed_is_loaded,
    changes_are_applied_in_order,
    a_task_put_again_keeps_its_place,
    only_the_newest_events_are_kept,
    a_deleted_task_leaves_nothing,
    a_deletion_waits_with_its_task,
    removing_the_unknown_is_no_error,
    an_empty_batch_does_nothing,
}

async fn refusal(path: &Path) -> String {
    let error = FileStore::new(path).load().await.unwrap_err();
    assert!(!error.is_retryable(), "{error:?}");
    consul_watch::error_chain(&error)
}

#[tokio::test]
async fn what_was_committed_outlives_the_store_and_is_its_owners_alone() {
    let (_folder, path) = folder();
    let store = FileStore::new(&path);
    suite::what_was_committed_is_loaded(&store).await;
    let state = store.load().await.unwrap();
    // What a crash left is in nobody's way, whatever it is.
    fs::write(beside(&path, ".new"), "half").unwrap();
    fs::set_permissions(beside(&path, ".new"), fs::Permissions::from_mode(0o644)).unwrap();
    store.commit(&[Change::DeleteEvents(task("none").name)]).await.unwrap();
    drop(store);
    assert_eq!(FileStore::new(&path).load().await.unwrap(), state);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&beside(&path, ".lock")), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert!(!beside(&path, ".new").exists());
}

#[tokio::test]
async fn a_second_store_is_told_who_holds_the_file() {
    let (_folder, path) = folder();
    let first = FileStore::new(&path);
    first.load().await.unwrap();
    let refused = refusal(&path).await;
    let holder = format!("is in use by process {}", std::process::id());
    assert!(refused.contains(&holder) && refused.contains(path.to_str().unwrap()), "{refused}");
    assert!(refused.contains("stop that process"), "{refused}");
    drop(first);
    FileStore::new(&path).load().await.unwrap();
}

#[tokio::test]
async fn who_lost_the_lock_writes_nothing() {
    let (_folder, path) = folder();
    let first = FileStore::new(&path);
    first.load().await.unwrap();
    fs::remove_file(beside(&path, ".lock")).unwrap();
    let second = FileStore::new(&path);
    let put = Change::PutTask(Box::new(task("one")));
    second.commit(std::slice::from_ref(&put)).await.unwrap();
    let error = first.commit(&[Change::DeleteTask(task("one").name)]).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error:?}");
    assert_eq!(second.load().await.unwrap().tasks.len(), 1);
}

#[tokio::test]
async fn a_symbolic_link_stays_one() {
    let (folder, path) = folder();
    let link = folder.path().join("link.json");
    let put = Change::PutTask(Box::new(task("one")));
    FileStore::new(&path).commit(std::slice::from_ref(&put)).await.unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    FileStore::new(&link).commit(&[Change::PutTask(Box::new(task("two")))]).await.unwrap();
    assert!(link.is_symlink());
    assert_eq!(FileStore::new(&path).load().await.unwrap().tasks.len(), 2);
}

#[tokio::test]
async fn a_damaged_file_is_refused_with_its_place() {
    let (_folder, path) = folder();
    let mut one = task("one");
    one.variables.insert("password".into(), "hunter2".into());
    FileStore::new(&path).commit(&[Change::PutTask(Box::new(one))]).await.unwrap();
    let sound = fs::read_to_string(&path).unwrap();
    let (header, body) = sound.split_once('\n').unwrap();
    let unsigned = "{\"format\":\"cts-tasks state\",\"version\":1}";
    let cut = &sound[..sound.len() - 30];
    let cases = [
        (String::new(), ":1: this is no state of tasks, or a damaged one"),
        ("{\"a\": 1}\n".to_owned(), ":1: this is no state of tasks, or a damaged one"),
        (sound.replace("cts-tasks state", "another"), ":1: this is no state of tasks"),
        (
            sound.replace("\"version\":1", "\"version\":2"),
            ":1: the state has the format version 2, and this program reads up to 1 (start the newer program",
        ),
        (cut.to_owned(), "the file ends too soon"),
        (sound.replace("hunter2", "hunter3"), ":1: the digest does not fit"),
        (
            format!("{unsigned}\n{}", body.replace("\"enabled\":true", "\"enabled\":\"hunter2\"")),
            ":4: what stands here is not what a state has",
        ),
        (format!("{header}\n{{]"), ":2: this is no JSON"),
    ];
    for (text, expected) in cases {
        fs::write(&path, &text).unwrap();
        let refused = refusal(&path).await;
        assert!(refused.contains(expected), "{refused}\n{expected}");
        assert!(
            refused.contains(path.to_str().unwrap()) && !refused.contains("hunter"),
            "{refused}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "what is refused is left alone");
    }
    // Who mends it by hand leaves out the digest.
    fs::write(&path, format!("{unsigned}\n{}", body.replace("hunter2", "hunter3"))).unwrap();
    let state = FileStore::new(&path).load().await.unwrap();
    assert_eq!(state.tasks[0].variables["password"], "hunter3".into());
}

#[test]
fn each_task_stands_on_a_line_of_its_own() {
    let mut state = State::default();
    assert_eq!(read(&format::write(&state).unwrap()), Ok(state.clone()));
    state.tasks = ["one", "two"].map(task).into();
    let text = String::from_utf8(format::write(&state).unwrap()).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("{\"name\":"));
    assert_eq!(lines.count(), 2, "{text}");
    assert_eq!(read(text.as_bytes()), Ok(state));
}
