//! A large file, opened by a server after a clean end and after a kill.

use std::path::Path;

use tokio::time::Instant;

use crate::{
    load::Load,
    node::Node,
    print,
    store::{SERVER, free_address, import, memory_of, seconds, size},
};

pub(crate) async fn figures(folder: &Path, export: &Path) {
    let data = folder.join("file");
    let arguments = ["--data-dir".to_owned(), data.to_str().unwrap().to_owned()];
    import("into a file", &arguments, export).await;
    print("size of the file", &size(&data.join("resources.redb")));
    let mut node = Node::new(SERVER, free_address(), arguments.to_vec(), folder.join("log"));
    for (how, more) in [("checked", &[][..]), ("not checked", &["--no-check"][..])] {
        for end in ["a clean end", "kill -9 under writes"] {
            node.start(&[]).await;
            let load = Load::start(&[&node], 16);
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            if end == "a clean end" {
                load.stop().await;
                node.stop().await;
            } else {
                node.kill();
                load.stop().await;
            }
            let started = Instant::now();
            node.start(more).await;
            let took = seconds(started.elapsed());
            print(&format!("start after {end}, {how}"), &format!("{took}, {}", memory_of(&node)));
            node.stop().await;
        }
    }
    std::fs::remove_dir_all(&data).unwrap();
}
