//! Redirection tried on a real kernel: the test runs itself again in a network namespace of its own,
//! with a second one beside it that stands for the rest of the network.

use std::{
    collections::BTreeMap,
    env,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use consul_watch::{
    testing::parts::Suite,
    types::{Service, ServiceKind},
};
use ecs_mesh_init::{
    Config,
    redirect::{self, PROXY_UID, Redirection},
};
use nix::unistd::geteuid;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, UdpSocket},
};

const SUITE: Suite = Suite("ecs-mesh-init with iptables");
const INSIDE: &str = "ECS_MESH_INIT_NAMESPACE";
const ROOT: &str = "root";
const THIS_TEST: &str = "namespace::traffic_goes_through_the_proxy_but_for_what_is_excluded";

/// The task's address, and that of a machine outside.
const TASK: &str = "10.9.0.1";
const OUTSIDE: &str = "10.9.0.2";

#[tokio::test]
async fn traffic_goes_through_the_proxy_but_for_what_is_excluded() {
    let Some(iptables) = SUITE.part("iptables", "redirection of a task's traffic") else { return };
    if env::var_os(INSIDE).is_some() {
        return in_the_namespace(&iptables.path).await;
    }
    let mut unshare = Command::new("unshare");
    // Another user's traffic can only be tried by root.
    let root = geteuid().is_root();
    unshare.arg("--net").args((!root).then_some("--map-root-user"));
    let can = Command::new(unshare.get_program())
        .args(unshare.get_args())
        .args(["ip", "link", "set", "lo", "up"])
        .status();
    if !can.is_ok_and(|status| status.success()) {
        SUITE.not_applicable("iptables", THIS_TEST, "no network namespace can be made here");
        return;
    }
    let output = unshare
        .arg(env::current_exe().unwrap())
        .args(["--exact", THIS_TEST, "--nocapture"])
        .env(INSIDE, if root { ROOT } else { "mapped" })
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}

/// The network beside the task's; it ends with the test.
struct Neighbour(Child);

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Neighbour {
    fn connected() -> Self {
        let sleeper = Command::new("unshare")
            .args(["--net", "sleep", "600"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let neighbour = Self(sleeper);
        let pid = neighbour.0.id().to_string();
        // Until the child has its own namespace, both ends of the link would be in ours.
        let net = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
        while net(&pid) == net("self") {
            std::thread::yield_now();
        }
        ip(&["link", "set", "lo", "up"]);
        ip(&["link", "add", "task0", "type", "veth", "peer", "name", "outside0", "netns", &pid]);
        ip(&["address", "add", &format!("{TASK}/24"), "dev", "task0"]);
        ip(&["link", "set", "task0", "up"]);
        ip(&["route", "add", "default", "via", OUTSIDE]);
        neighbour.run("ip", &["address", "add", &format!("{OUTSIDE}/24"), "dev", "outside0"]);
        neighbour.run("ip", &["link", "set", "outside0", "up"]);
        neighbour
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let status = self.command(program).args(arguments).status().unwrap();
        assert!(status.success(), "{program} {arguments:?}: {status}");
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.0.id().to_string(), program]);
        command
    }

    /// Connects from outside, and gives what is sent there.
    fn hears(&self, address: &str, port: u16) -> String {
        heard(self.command("bash"), address, port)
    }
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status().unwrap();
    assert!(status.success(), "ip {arguments:?}: {status}");
}

/// What a connection's other end says; the connection comes from a process of its own.
fn heard(mut bash: Command, address: &str, port: u16) -> String {
    let script = format!("exec 3<>/dev/tcp/{address}/{port} && cat <&3");
    let output = bash.args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Listeners that say their names.
async fn listen(names: &BTreeMap<u16, &'static str>) {
    for (port, name) in names {
        let listener = TcpListener::bind(("0.0.0.0", *port)).await.unwrap();
        let name = *name;
        tokio::spawn(async move {
            loop {
                let (mut stream, _from) = listener.accept().await.unwrap();
                stream.write_all(name.as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
                drop(stream.read(&mut [0; 1]).await);
            }
        });
    }
}

fn redirection() -> Redirection {
    let config = Config::parse(
        r#"{"bootstrapDir":"/consul","consulServers":{"hosts":"h"},"service":{"port":8080},
        "transparentProxy":{"excludeInboundPorts":[8081],"excludeOutboundPorts":[8082],
        "excludeOutboundCIDRs":["10.9.0.2/32"],"consulDNS":{"enabled":true}}}"#,
    )
    .unwrap();
    let mut sidecar = Service::default();
    sidecar.kind = ServiceKind::ConnectProxy;
    sidecar.port = 20000;
    Redirection::new(&config, &sidecar).unwrap()
}

/// What `iptables -S` shows of the rules, chain by chain.
const RULES: &str = "\
    -A CONSUL_DNS_REDIRECT -d 127.0.0.1/32 -p udp -m udp --dport 53 -j DNAT --to-destination 127.0.0.1:8600
    -A CONSUL_DNS_REDIRECT -d 127.0.0.1/32 -p tcp -m tcp --dport 53 -j DNAT --to-destination 127.0.0.1:8600
    -A CONSUL_PROXY_INBOUND -p tcp -m tcp --dport 22000 -j RETURN
    -A CONSUL_PROXY_INBOUND -p tcp -m tcp --dport 8081 -j RETURN
    -A CONSUL_PROXY_INBOUND -p tcp -j CONSUL_PROXY_IN_REDIRECT
    -A CONSUL_PROXY_IN_REDIRECT -p tcp -j REDIRECT --to-ports 20000
    -A CONSUL_PROXY_OUTPUT -m owner --uid-owner 5996 -j RETURN
    -A CONSUL_PROXY_OUTPUT -d 10.9.0.2/32 -j RETURN
    -A CONSUL_PROXY_OUTPUT -p tcp -m tcp --dport 8082 -j RETURN
    -A CONSUL_PROXY_OUTPUT -m owner --uid-owner 5995 -j RETURN
    -A CONSUL_PROXY_OUTPUT -d 127.0.0.1/32 -j RETURN
    -A CONSUL_PROXY_OUTPUT -j CONSUL_PROXY_REDIRECT
    -A CONSUL_PROXY_REDIRECT -p tcp -j REDIRECT --to-ports 15001
    -A OUTPUT -d 127.0.0.1/32 -p udp -m udp --dport 53 -j CONSUL_DNS_REDIRECT
    -A OUTPUT -d 127.0.0.1/32 -p tcp -m tcp --dport 53 -j CONSUL_DNS_REDIRECT
    -A OUTPUT -p tcp -j CONSUL_PROXY_OUTPUT
    -A PREROUTING -p tcp -j CONSUL_PROXY_INBOUND";

/// The rules of the table, those of a chain in their order, chains by name.
fn appended(iptables: &Path) -> String {
    let output = Command::new(iptables).args(["-t", "nat", "-S"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut rules: Vec<&str> =
        printed.lines().map(str::trim).filter(|line| line.starts_with("-A ")).collect();
    rules.sort_by_key(|rule| rule.split(' ').nth(1));
    rules.join("\n")
}

async fn in_the_namespace(iptables: &Path) {
    let neighbour = Arc::new(Neighbour::connected());
    let names = BTreeMap::from([
        (8080, "application"),
        (8081, "excluded port"),
        (8082, "excluded outbound port"),
        (15001, "outbound listener"),
        (20000, "inbound listener"),
        (22000, "ready"),
        (8600, "names"),
    ]);
    listen(&names).await;
    try_out(&neighbour, false).await;

    redirect::apply(iptables, &redirect::rules(&redirection())).await.unwrap();
    assert_eq!(appended(iptables), RULES.lines().map(str::trim).collect::<Vec<_>>().join("\n"));
    let dns = UdpSocket::bind("127.0.0.1:8600").await.unwrap();
    // The name server that the task had before, which is asked after Consul.
    let other = UdpSocket::bind((TASK, 53)).await.unwrap();
    let question = UdpSocket::bind("0.0.0.0:0").await.unwrap();
    for (to, at) in [("127.0.0.1", &dns), (TASK, &other)] {
        question.send_to(to.as_bytes(), (to, 53)).await.unwrap();
        let mut heard = [0; 16];
        let (length, _from) = at.recv_from(&mut heard).await.unwrap();
        assert_eq!(&heard[..length], to.as_bytes());
    }

    try_out(&neighbour, true).await;
}

async fn try_out(neighbour: &Arc<Neighbour>, redirected: bool) {
    let neighbour = Arc::clone(neighbour);
    tokio::task::spawn_blocking(move || trials(&neighbour, redirected)).await.unwrap();
}

fn trials(neighbour: &Neighbour, redirected: bool) {
    let bash = || Command::new("bash");
    let either =
        |with: &'static str, without: &'static str| if redirected { with } else { without };
    // What comes in goes to the proxy, but for excluded ports and the health check's.
    assert_eq!(neighbour.hears(TASK, 8080), either("inbound listener", "application"));
    assert_eq!(neighbour.hears(TASK, 8081), "excluded port");
    assert_eq!(neighbour.hears(TASK, 22000), "ready");
    // What goes out goes to the proxy, wherever to.
    assert_eq!(heard(bash(), TASK, 8080), either("outbound listener", "application"));
    assert_eq!(heard(bash(), TASK, 8082), "excluded outbound port");
    assert_eq!(heard(bash(), "127.0.0.1", 8080), "application");
    // Of lookups only those go to Consul that go to the local name server.
    assert_eq!(heard(bash(), "127.0.0.1", 53), either("names", ""));
    assert_eq!(heard(bash(), TASK, 53), either("outbound listener", ""));
    if redirected {
        assert_eq!(heard(bash(), "203.0.113.5", 80), "outbound listener");
        // Straight to the neighbour, where nothing listens.
        assert_eq!(heard(bash(), OUTSIDE, 80), "");
    }
    // The proxy's own traffic goes straight; only root can send it.
    if env::var(INSIDE).is_ok_and(|who| who == ROOT) {
        let mut proxy = Command::new("setpriv");
        proxy.args([&format!("--reuid={PROXY_UID}"), "--clear-groups", "bash"]);
        assert_eq!(heard(proxy, TASK, 8080), "application");
    }
}
