//! What the switches of `resource-server` change.

use resource_store::{
    Code, ResourceClient as _, ResourceData as _,
    demo::{self, v2},
    pb::{self, DeleteRequest, ListRequest},
};
use tokio::time::timeout;

use crate::{PATIENCE, resource_server::ResourceServer};

async fn start(options: &[&str]) -> ResourceServer {
    let arguments = [&["--listen", "127.0.0.1:0"], options].concat();
    ResourceServer::start_with(&arguments.iter().map(Into::into).collect::<Vec<_>>()).await
}

fn albums() -> ListRequest {
    ListRequest {
        r#type: Some(v2::Album::resource_type()),
        tenancy: Some(demo::default_tenancy()),
        name_prefix: String::new(),
    }
}

async fn until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let waited = async {
        loop {
            if let Some(found) = check().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, waited).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Without a word about it nobody writes but the clients: what runs after the
/// artist was stored, and a child that the reaper deletes tells that it did, leaves
/// the artist alone.
#[tokio::test]
async fn the_demonstration_runs_only_where_it_is_asked_for() {
    for asked in ["-demo", "--demo"] {
        let server = start(&[asked]).await;
        let client = server.client();
        let stored = client.write(demo::artist("korn").encode()).await.unwrap();
        let id = stored.id.clone().unwrap();
        let artist = until("a status", async || {
            let artist = client.read(id.clone()).await.unwrap();
            (!artist.status.is_empty()).then_some(artist)
        });
        let artist = artist.await;
        assert!(artist.status.contains_key(demo::STATUS_KEY), "{artist:?}");
        assert_eq!(client.list(albums()).await.unwrap().len(), 3);
        server.stop().await;
    }

    let server = start(&[]).await;
    let client = server.client();
    let korn = client.write(demo::artist("korn").encode()).await.unwrap();
    for round in 0..3 {
        let owner = client.write(demo::artist(&format!("owner-{round}")).encode()).await.unwrap();
        let owner = owner.id.clone().unwrap();
        client.write(demo::album("owned", &owner).encode()).await.unwrap();
        let request = DeleteRequest { id: Some(owner), version: String::new() };
        client.delete(request).await.unwrap();
        until("the reaper deletes what was owned", async || {
            client.list(albums()).await.unwrap().is_empty().then_some(())
        })
        .await;
    }
    let read = client.read(korn.id.clone().unwrap()).await.unwrap();
    assert_eq!(read, korn, "no controller set a status");
    server.stop().await;
}

/// What the three differences to Consul lead to.
#[derive(Debug, PartialEq)]
struct Told {
    delete_of_an_old_version: Result<(), Code>,
    write_with_a_uid_of_before: Result<(), Code>,
    put_of_an_old_version: u16,
}

async fn told(server: &ResourceServer) -> Told {
    let client = server.client();
    let code = |error: resource_store::RpcError| error.code();
    let first = client.write(demo::artist("korn").encode()).await.unwrap();
    let id = first.id.clone().unwrap();
    client.write(demo::artist("korn").encode()).await.unwrap();

    // Over HTTP, what was read is sent back although somebody else was faster.
    let url = format!(
        "http://{}/api/demo/v2/artist/korn?partition=default&namespace=default",
        server.address
    );
    let body = serde_json::json!({ "version": first.version, "data": { "name": "Korn" } });
    let put = reqwest::Client::new().put(url).json(&body).send().await.unwrap();

    // Without a uid, so that upstream does not look at the version.
    let nameless = pb::Id { uid: String::new(), ..id.clone() };
    let request = DeleteRequest { id: Some(nameless.clone()), version: first.version.clone() };
    let deleted = client.delete(request).await.map_err(code);
    let request = DeleteRequest { id: Some(nameless), version: String::new() };
    client.delete(request).await.unwrap();

    let mut again = demo::artist("korn").encode();
    again.id.as_mut().unwrap().uid = id.uid;
    let written = client.write(again).await.map(drop).map_err(code);
    Told {
        delete_of_an_old_version: deleted,
        write_with_a_uid_of_before: written,
        put_of_an_old_version: put.status().as_u16(),
    }
}

#[tokio::test]
async fn upstream_parity_is_a_switch() {
    let server = start(&[]).await;
    let corrected = told(&server).await;
    server.stop().await;
    let refused = corrected.write_with_a_uid_of_before;
    assert!(refused.is_err(), "{corrected:?}");
    assert_eq!(
        corrected,
        Told {
            delete_of_an_old_version: Err(Code::Aborted),
            write_with_a_uid_of_before: refused,
            put_of_an_old_version: 409,
        }
    );
    let server = start(&["--upstream-parity"]).await;
    let upstream = told(&server).await;
    server.stop().await;
    assert_eq!(
        upstream,
        Told {
            delete_of_an_old_version: Ok(()),
            write_with_a_uid_of_before: Ok(()),
            put_of_an_old_version: 200,
        }
    );
}
