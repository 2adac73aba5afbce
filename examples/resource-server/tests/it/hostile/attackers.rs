//! The hostile clients.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;
use resource_store::{
    ResourceData as _,
    demo::{self, v2},
    pb::{WatchListRequest, resource_service_client::ResourceServiceClient},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tonic::transport::Endpoint;

use super::Target;

/// Where those come from that hold connections at work.
const WORKING: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
/// Where all others come from.
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 3));
/// Watches of one connection; the server allows 2,048.
const WATCHES_EACH: usize = 2_000;
/// Time between two attempts of one client.
const PAUSE: Duration = Duration::from_millis(10);
/// How long what an attack needs may take.
const PATIENCE: Duration = Duration::from_mins(2);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Of nothing, so that what is counted is the connection.
const WATCH: &[u8] = b"GET /api/demo/v2/artist?watch&name_prefix=none HTTP/1.1\r\nhost: a\r\n\r\n";
const LIST: &[u8] = b"GET /api/demo/v2/artist?partition=default&namespace=default HTTP/1.1\r\n\
                      host: a\r\n\r\n";

/// Hostile clients at work; dropping it ends them.
pub(super) struct Attack {
    clients: JoinSet<()>,
    /// What there has to be before an attack counts.
    wanted: usize,
    reached: Arc<AtomicUsize>,
    base_files: usize,
    few_files: bool,
}

impl Attack {
    fn new(target: &Target, wanted: usize) -> Self {
        let (clients, reached) = (JoinSet::new(), Arc::default());
        Self { clients, wanted, reached, base_files: target.open_files(), few_files: false }
    }

    /// Some of everything.
    pub(super) fn mixed(target: &Target, mut random: fastrand::Rng) -> Self {
        // Each of the clients below has begun.
        let mut attack = Self::new(target, 4 + 60 + 4 + 4);
        let address = target.address;
        for _ in 0..4 {
            attack.spawn(garbage(address, random.fork(), Arc::clone(&attack.reached)));
        }
        for number in 0..60 {
            let silence = silences()[number % silences().len()].clone();
            attack.spawn(silent(address, silence, Arc::clone(&attack.reached)));
        }
        for _ in 0..4 {
            attack.spawn(takes_nothing(address, Arc::clone(&attack.reached)));
        }
        for _ in 0..4 {
            attack.spawn(huge_bodies(address, random.fork(), Arc::clone(&attack.reached)));
        }
        for _ in 0..300 {
            attack.spawn(at_work(address, Arc::default()));
        }
        attack
    }

    /// As many connections at work as there may be.
    pub(super) fn work(target: &Target) -> Self {
        let mut attack = Self::new(target, 1);
        for _ in 0..400 {
            attack.spawn(at_work(target.address, Arc::clone(&attack.reached)));
        }
        attack
    }

    /// So many watches, over a few connections.
    pub(super) fn watches(target: &Target, count: usize) -> Self {
        let mut attack = Self::new(target, count);
        for first in (0..count).step_by(WATCHES_EACH) {
            let count = WATCHES_EACH.min(count - first);
            attack.spawn(watches(target.address, count, Arc::clone(&attack.reached)));
        }
        attack
    }

    /// A crowd that says nothing, while the server may open few files.
    pub(super) fn descriptors(target: &Target, mut random: fastrand::Rng) -> Self {
        target.allow_more_files(Some(40));
        let mut attack = Self::new(target, 100);
        attack.few_files = true;
        for _ in 0..100 {
            let silence = silences()[random.usize(..silences().len())].clone();
            attack.spawn(silent(target.address, silence, Arc::clone(&attack.reached)));
        }
        attack
    }

    fn spawn(&mut self, client: impl Future<Output = ()> + Send + 'static) {
        self.clients.spawn(client);
    }

    /// Waits until the attack is what it should be, then goes on for this long.
    pub(super) async fn run(&self, time: Duration) -> Result<(), String> {
        let begun = Instant::now();
        while self.reached.load(Ordering::Relaxed) < self.wanted {
            if begun.elapsed() > PATIENCE {
                let reached = self.reached.load(Ordering::Relaxed);
                return Err(format!("{reached} of {} came about", self.wanted));
            }
            sleep(PAUSE).await;
        }
        sleep(time).await;
        Ok(())
    }

    /// Ends the clients, and waits until the server has closed what they had.
    pub(super) async fn leave(mut self, target: &Target) {
        self.clients.shutdown().await;
        if self.few_files {
            target.allow_more_files(None);
        }
        // The good client has some of its own, now and then.
        let most = self.base_files + 8;
        let gone = async {
            while target.open_files() > most {
                sleep(PAUSE).await;
            }
        };
        timeout(PATIENCE, gone).await.unwrap_or_else(|_| {
            panic!("{} files are open, {} were before", target.open_files(), self.base_files)
        });
    }
}

async fn connect(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

/// What a client may say that says nothing.
fn silences() -> Vec<Vec<u8>> {
    vec![
        Vec::new(),
        b"P".to_vec(),
        PREFACE[..20].to_vec(),
        PREFACE.to_vec(),
        [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat(),
        b"GET /api/demo/v2/artist HTTP/1.1\r\nhost: a\r\nx: ".to_vec(),
        // The beginning of a TLS handshake.
        vec![0x16, 3, 1, 2, 0, 1, 0],
    ]
}

/// Says this and no more, and comes again when it is cut off.
async fn silent(address: SocketAddr, silence: Vec<u8>, reached: Arc<AtomicUsize>) {
    let mut counted = false;
    loop {
        if let Ok(mut socket) = connect(OTHER, address).await
            && socket.write_all(&silence).await.is_ok()
        {
            if !counted {
                reached.fetch_add(1, Ordering::Relaxed);
                counted = true;
            }
            let mut rest = [0; 512];
            while matches!(socket.read(&mut rest).await, Ok(1..)) {}
        }
        sleep(PAUSE).await;
    }
}

/// Sends bytes of any kind: random ones, and frames of HTTP/2 with random contents.
async fn garbage(address: SocketAddr, mut random: fastrand::Rng, reached: Arc<AtomicUsize>) {
    loop {
        let mut bytes = Vec::new();
        if random.bool() {
            bytes.extend_from_slice(PREFACE);
            bytes.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
            for _ in 0..random.usize(1..20) {
                let length = random.usize(..200);
                let stream = if random.bool() { 0 } else { random.u32(..16) };
                // The length that a frame names may not be the one that it has.
                let wrong = random.u8(..8) == 0;
                let named =
                    if wrong { random.u32(..1 << 24) } else { u32::try_from(length).unwrap() };
                bytes.extend_from_slice(&named.to_be_bytes()[1..]);
                bytes.extend_from_slice(&[random.u8(..12), random.u8(..)]);
                bytes.extend_from_slice(&stream.to_be_bytes());
                bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(length));
            }
        } else {
            let length = random.usize(..2_000);
            bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(length));
        }
        if let Ok(mut socket) = connect(OTHER, address).await {
            drop(socket.write_all(&bytes).await);
            let mut rest = [0; 512];
            let answer = async { while matches!(socket.read(&mut rest).await, Ok(1..)) {} };
            // Some stay, to see whether they are cut off.
            drop(timeout(Duration::from_millis(200), answer).await);
        }
        reached.fetch_add(1, Ordering::Relaxed);
        sleep(PAUSE).await;
    }
}

/// Asks for a list of all, and takes none of it.
async fn takes_nothing(address: SocketAddr, reached: Arc<AtomicUsize>) {
    loop {
        if let Ok(mut socket) = connect(OTHER, address).await
            && socket.write_all(LIST).await.is_ok()
        {
            reached.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_secs(5)).await;
        }
        sleep(PAUSE).await;
    }
}

/// Sends bodies beyond what is taken, and within it but without an end.
async fn huge_bodies(address: SocketAddr, mut random: fastrand::Rng, reached: Arc<AtomicUsize>) {
    let chunk = vec![b'x'; 64 << 10];
    loop {
        let length = if random.bool() { 60 << 20 } else { 40 << 20 };
        let head = format!(
            "PUT /api/demo/v2/artist/huge?partition=default&namespace=default HTTP/1.1\r\nhost: a\r\n\
             content-length: {length}\r\n\r\n"
        );
        if let Ok(mut socket) = connect(OTHER, address).await
            && socket.write_all(head.as_bytes()).await.is_ok()
        {
            let sent = async {
                for _ in 0..length / chunk.len() - 1 {
                    if socket.write_all(&chunk).await.is_err() {
                        return;
                    }
                }
            };
            drop(timeout(Duration::from_secs(5), sent).await);
            reached.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(200)).await;
        }
        sleep(PAUSE).await;
    }
}

/// Holds a watch over a connection of its own.
async fn at_work(address: SocketAddr, reached: Arc<AtomicUsize>) {
    loop {
        if let Ok(mut socket) = connect(WORKING, address).await
            && socket.write_all(WATCH).await.is_ok()
        {
            reached.fetch_add(1, Ordering::Relaxed);
            let mut rest = [0; 4096];
            while matches!(socket.read(&mut rest).await, Ok(1..)) {}
        }
        sleep(PAUSE).await;
    }
}

/// Holds so many watches over one connection.
async fn watches(address: SocketAddr, count: usize, reached: Arc<AtomicUsize>) {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let Ok(channel) = endpoint.local_address(Some(WORKING)).connect().await else { return };
    let request = WatchListRequest {
        r#type: Some(v2::Artist::resource_type()),
        tenancy: Some(demo::default_tenancy()),
        // Nothing is there, so that what is counted is the watch.
        name_prefix: "none".to_owned(),
    };
    let mut watches = Vec::with_capacity(count);
    for _ in 0..count {
        let mut client = ResourceServiceClient::new(channel.clone());
        let Ok(watch) = client.watch_list(request.clone()).await else { return };
        watches.push(watch.into_inner());
        reached.fetch_add(1, Ordering::Relaxed);
    }
    let events = futures::stream::select_all(watches);
    drop(events.collect::<Vec<_>>().await);
}
