//! Starting and stopping a node.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use futures::StreamExt as _;
use openraft::{Config, ServerState, SnapshotPolicy};
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::JoinHandle,
};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Node, pending::Pending, retention, service::PeerServer, slow_disk};
use crate::{
    backend::{
        Error, Result,
        raft::{
            config::{RaftConfig, Start, WHEN_DAMAGED, check_address},
            log::{Log, LogOptions},
            membership::{Members, join},
            network::{
                Network, Timing,
                acknowledgements::Acknowledgements,
                append_stream::AppendStreams,
                certificates::Certificates,
                channels::{self, Channels, MAX_MESSAGE},
                server::{Names, RaftServer},
                snapshot_holds::SnapshotHolds,
            },
            reads::{Reads, batch::ReadBatch, lease::Lease},
            state_machine::StateMachine,
            types::Raft,
        },
        store::sync::blocking,
    },
    lease::Leadership,
    pb::generated::{
        hashicorp::consul::internal::storage::raft::forwarding_service_server::ForwardingServiceServer,
        resource_store::peer::v1::peer_service_server::PeerServiceServer,
    },
};

pub(super) const LOG_FOLDER: &str = "raft-log";
const SNAPSHOT_FOLDER: &str = "raft-snapshots";
/// Files of a node that an earlier version kept in its folder.
const PREVIOUS_FILES: [&str; 2] = ["raft-log.redb", "raft-resources.redb"];
/// Time that calls of other nodes may go on after the node was stopped.
const DRAIN: Duration = Duration::from_secs(2);

/// Says when a node has stopped.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    stop: CancellationToken,
    ended: watch::Receiver<bool>,
}

impl Ended {
    pub(crate) async fn stop_and_wait(&self) {
        self.stop.cancel();
        if self.ended.clone().wait_for(|ended| *ended).await.is_err() {
            tracing::debug!("the node had ended before");
        }
    }
}

fn library_config(config: &RaftConfig) -> Result<Config> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let config = Config {
        cluster_name: "resource-store".to_owned(),
        heartbeat_interval: millis(config.heartbeat),
        election_timeout_min: millis(config.election.0),
        election_timeout_max: millis(config.election.1),
        max_payload_entries: 4096,
        replication_lag_threshold: config.snapshot_after_entries.max(config.keep_entries),
        // See `retention`.
        snapshot_policy: SnapshotPolicy::Never,
        // It would also cut off what a node needs that gets a snapshot.
        max_in_snapshot_log_to_keep: u64::MAX,
        ..Config::default()
    };
    config.validate().map_err(|e| Error::failed("configure", e.to_string()))
}

/// A node that runs, until `stop` is dropped.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) node: Arc<Node>,
    pub(crate) listens: SocketAddr,
    pub(crate) ended: Ended,
    pub(crate) stop: DropGuard,
}

/// Starts a node; see [`RaftBackend::start`](super::super::RaftBackend::start).
pub(crate) async fn start(config: RaftConfig, start: Start) -> Result<Started> {
    let library = library_config(&config)?;
    // First of all: nothing is opened or made if the port belongs to somebody else.
    let listener = TcpListener::bind(&config.listen)
        .await
        .map_err(|e| Error::failed("listen", format!("{}: {e}", config.listen)))?;
    let listens = listener.local_addr().map_err(|e| Error::failed("listen", e))?;
    let address = config.advertise.clone().unwrap_or_else(|| listens.to_string());
    check_address(&address)?;
    check_plaintext(&config, listens)?;
    let certificates = config.tls.as_ref().map(Certificates::new).transpose()?;
    let (log, state_machine) = open_files(&config).await?;
    let identity = log.identity();
    if start == Start::Resume && identity.cluster == 0 {
        let text = format!(
            "the node in {} belongs to no cluster yet; bootstrap one or join one",
            config.data_dir.display()
        );
        return Err(given_up(&log, &state_machine, Error::failed("start", text)).await);
    }

    let (network, lease, leadership) = network_of(&config, &log);
    let raft = Raft::new(
        identity.node,
        Arc::new(library),
        network.clone(),
        log.clone(),
        state_machine.clone(),
    );
    let raft = match raft.await {
        Ok(raft) => raft,
        Err(e) => {
            return Err(given_up(&log, &state_machine, Error::failed("start", e.to_string())).await);
        }
    };
    let members = Members::new(
        address,
        raft.clone(),
        log.clone(),
        network.clone(),
        leadership.clone(),
        &config,
    );
    let names = Names::of(config.tls.as_ref());
    let server =
        RaftServer::new(network.clone(), log.clone(), state_machine.clone(), raft.clone(), names);
    let node = Arc::new(Node {
        server,
        members: Arc::new(members),
        reads: Reads::new(raft.clone(), log.clone(), network.clone(), lease, &config),
        follower_reads: ReadBatch::default(),
        pending: Pending::new(config.max_pending_bytes),
        forwarding: Channels::new(config.tls.as_ref()),
        certificates,
        config,
        raft,
        log,
        state_machine,
        network,
        leadership,
        moves: AtomicBool::new(false),
        failure: watch::Sender::default(),
    });

    let stop = CancellationToken::new();
    let serving = serve(&node, listener, stop.child_token());
    let (tell_end, ended) = watch::channel(false);
    let ended = Ended { stop: stop.clone(), ended };
    let (tell_entered, entered) = oneshot::channel();
    tokio::spawn(run(Arc::clone(&node), stop.clone(), serving, entered, tell_end));
    let started = Started { node, listens, ended, stop: stop.drop_guard() };
    // The node answers others by now: the leader brings it its data before it may vote.
    if let Err(error) = join::enter(&started.node.members, start).await {
        started.ended.stop_and_wait().await;
        return Err(error);
    }
    // If nobody listens, the node has stopped already.
    tell_entered.send(()).unwrap_or_default();
    Ok(started)
}

/// The way to other nodes, and the leadership that follows from what they say.
fn network_of(config: &RaftConfig, log: &Log) -> (Network, Lease, Leadership) {
    let identity = log.identity();
    let channels = Channels::new(config.tls.as_ref());
    let leadership = Leadership::default();
    let acknowledgements = Acknowledgements::default();
    let lease = Lease::new(acknowledgements.clone(), leadership.clone());
    let votes = lease.clone();
    log.tell_of_votes(move |vote| votes.voted(vote));
    let network = Network {
        node: identity.node,
        cluster: Arc::new(AtomicU64::new(identity.cluster)),
        streams: AppendStreams::new(channels.clone(), acknowledgements),
        channels,
        durable: log.durable().clone(),
        timing: Timing { heartbeat: config.heartbeat, disk: config.election.1 },
        faults: config.faults(),
        holds: SnapshotHolds::default(),
        silent: Arc::default(),
        lost: Arc::default(),
    };
    (network, lease, leadership)
}

/// Closes what cannot be used, so that another start finds it free.
async fn given_up(log: &Log, state_machine: &StateMachine, error: Error) -> Error {
    state_machine.close();
    log.close().await;
    error
}

async fn stop_consensus(raft: &Raft) {
    if let Err(error) = raft.shutdown().await {
        tracing::error!(%error, "the node did not stop in order");
    }
}

pub(super) async fn open_files(config: &RaftConfig) -> Result<(Log, StateMachine)> {
    let options = config.clone();
    let log = blocking(move || {
        let folder = &options.data_dir;
        let failed_at = |path: &Path, e: std::io::Error| {
            Error::failed("open", format!("{}: {e}", path.display()))
        };
        std::fs::create_dir_all(folder).map_err(|e| failed_at(folder, e))?;
        let is_there = |path: &Path| path.try_exists().map_err(|e| failed_at(path, e));
        for name in PREVIOUS_FILES {
            if is_there(&folder.join(name))? {
                return Err(of_previous_format(folder, name));
            }
        }
        let (log, snapshots) = (folder.join(LOG_FOLDER), folder.join(SNAPSHOT_FOLDER));
        let has_log = Log::exists(&log).map_err(|e| failed_at(&log, e))?;
        if is_there(&snapshots)? && !has_log {
            // A node made again could vote again in a term in which it has voted.
            let folder = folder.display();
            let text = format!(
                "{LOG_FOLDER} is missing in {folder}, beside {SNAPSHOT_FOLDER}; {WHEN_DAMAGED}"
            );
            return Err(Error::failed("open", text));
        }
        let how = LogOptions { segment_bytes: options.segment_bytes, ..LogOptions::default() };
        Log::open(&log, &how, options.faults())
    })
    .await?;
    let (opened, options) = (log.clone(), config.clone());
    let state_machine = blocking(move || open_state_machine(&options, &opened)).await;
    if state_machine.is_err() {
        log.close().await;
    }
    Ok((log, state_machine?))
}

/// Files that an earlier version wrote are not read, and not taken for none.
fn of_previous_format(folder: &Path, name: &str) -> Error {
    let folder = folder.display();
    let text = format!(
        "{folder} has {name}, which an earlier version wrote and this one does not read; start \
         the cluster with that version, export its resources, and import them into a cluster of \
         this version whose nodes begin with empty folders"
    );
    Error::failed("open", text)
}

/// Opens the state machine to a log. Blocks.
fn open_state_machine(config: &RaftConfig, log: &Log) -> Result<StateMachine> {
    let folder = config.data_dir.join(SNAPSHOT_FOLDER);
    let state_machine = StateMachine::open(&folder, config, log.durable().clone())?;
    log.keep_for(state_machine.persisted());
    let (purged, applied) = (log.purged_to(), *state_machine.applied().borrow());
    if purged > applied {
        // Somebody put an older file in its place, or took it away.
        let text = format!(
            "the snapshot in {} has the entries of the log before {applied} only, and the log \
             begins with {purged}; {WHEN_DAMAGED}",
            folder.display()
        );
        return Err(Error::failed("open", text));
    }
    Ok(state_machine)
}

/// Without certificates whoever reaches the port is trusted.
fn check_plaintext(config: &RaftConfig, listens: SocketAddr) -> Result<()> {
    if config.tls.is_some() || config.allow_plaintext || listens.ip().is_loopback() {
        return Ok(());
    }
    let text = format!(
        "without TLS the node would take everybody who reaches {listens} for a node of its \
         cluster: give it certificates (--tls-ca, --tls-cert and --tls-key), or have it listen \
         at 127.0.0.1, or allow it with --allow-plaintext"
    );
    Err(Error::failed("listen", text))
}

fn serve(node: &Arc<Node>, listener: TcpListener, stop: CancellationToken) -> JoinHandle<()> {
    let answers = PeerServer { node: Arc::clone(node), stop: stop.clone() };
    let router = channels::server()
        .add_service(
            PeerServiceServer::new(answers.clone())
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE),
        )
        .add_service(
            ForwardingServiceServer::new(answers)
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE),
        );
    let (certificates, stopped) = (node.certificates.clone(), stop.clone());
    tokio::spawn(async move {
        let end = stop.clone().cancelled_owned();
        let serving = async {
            if let Some(certificates) = certificates {
                let incoming = certificates.accept(listener, stop);
                router.serve_with_incoming_shutdown(incoming, end).await
            } else {
                let incoming = TcpListenerStream::new(listener).map(|socket| {
                    let socket = socket?;
                    socket.set_nodelay(true)?;
                    Ok::<_, std::io::Error>(socket)
                });
                router.serve_with_incoming_shutdown(incoming, end).await
            }
        };
        let too_late = async {
            stopped.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            served = serving => if let Err(error) = served {
                tracing::error!(%error, "the node cannot listen for others any more");
            },
            () = too_late => tracing::debug!("calls of other nodes are cut off"),
        }
    })
}

/// Watches over the node until it is to stop, and then stops it.
async fn run(
    node: Arc<Node>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    entered: oneshot::Receiver<()>,
    tell_end: watch::Sender<bool>,
) {
    let removed = async {
        if entered.await.is_err() {
            std::future::pending::<()>().await;
        }
        join::removed(&node.members).await;
    };
    tokio::select! {
        reason = follow_leader(&node) => node.fail(reason),
        () = retention::keep_log_short(&node) => node.fail(end_of(&node)),
        () = node.members.settle() => {}
        () = slow_disk::pass_what_a_majority_has(&node) => {}
        () = tell_of_commits(&node) => node.fail(end_of(&node)),
        () = removed => {
            let folder = node.config.data_dir.display();
            node.fail(format!(
                "it was removed from its cluster; to let it join again, empty the folder {folder}"
            ));
            // What it holds is not what the cluster holds any more.
            stop.cancel();
        }
        () = stop.cancelled() => {}
    }
    // Controllers stop at once; the rest stays as it is until the program stops the node.
    node.leadership.set(false);
    stop.cancelled().await;
    stop_consensus(&node.raft).await;
    node.forwarding.close_all();
    node.network.streams.close_all();
    node.network.channels.close_all();
    if let Err(error) = serving.await {
        tracing::error!(%error, "listening for other nodes failed");
    }
    node.state_machine.close();
    node.log.close().await;
    tell_end.send_replace(true);
}

/// Why the consensus has ended.
fn end_of(node: &Node) -> String {
    let state = node.raft.metrics().borrow().running_state.clone();
    let reason = state.err().map_or("the consensus has ended".to_owned(), |e| e.to_string());
    // The library hears only that the log failed.
    node.log.failure().map_or_else(|| reason.clone(), |why| format!("{reason}: {why}"))
}

/// Tells other nodes of entries that are committed once they are on the disk
/// here, if a message before had to leave them out.
async fn tell_of_commits(node: &Node) {
    loop {
        node.network.durable.opened().await;
        if node.raft.trigger().heartbeat().await.is_err() {
            return;
        }
    }
}

/// Gives and takes the leadership, and closes connections to old leaders, until
/// the node fails.
async fn follow_leader(node: &Node) -> String {
    // Not those of the data, which change with each entry.
    let mut server = node.raft.server_metrics();
    let metrics = node.raft.metrics();
    let lease = &node.reads.lease;
    let mut changes = lease.changes();
    // As long as other nodes elect nobody else, less what clocks may differ.
    let length = node.config.election.1 * 9 / 10;
    let mut leader = None;
    loop {
        if metrics.borrow().running_state.is_err() {
            return end_of(node);
        }
        let (now_leader, leads) = {
            let server = server.borrow_and_update();
            (server.current_leader, (server.state == ServerState::Leader).then_some(server.vote))
        };
        let members = metrics.borrow().membership_config.membership().clone();
        let held = leads.is_some_and(|vote| lease.hold(length, node.id(), &vote, &members));
        node.measure();
        if !held {
            node.leadership.set(false);
        }
        if now_leader != leader {
            leader = now_leader;
            metrics::counter!("resource_store_raft_leader_changes_total").increment(1);
            node.forwarding.close_all();
            let leads = leader.map(|leader| format!("{leader:016x}")).unwrap_or_default();
            let id = format!("{:016x}", node.id());
            tracing::info!(node = id, leader = leads, "the leader has changed");
        }
        tokio::select! {
            changed = server.changed() => if changed.is_err() {
                return end_of(node);
            },
            // While it is held, it is renewed with each heartbeat.
            () = changes.next(), if leads.is_some() && !held => {}
            () = tokio::time::sleep(node.config.heartbeat) => {}
        }
    }
}
