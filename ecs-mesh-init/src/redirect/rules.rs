//! The `iptables` rules of a redirection, in the order in which the kernel has to see them.

use super::Redirection;

const INBOUND: &str = "CONSUL_PROXY_INBOUND";
const TO_INBOUND: &str = "CONSUL_PROXY_IN_REDIRECT";
const OUTPUT: &str = "CONSUL_PROXY_OUTPUT";
const TO_OUTBOUND: &str = "CONSUL_PROXY_REDIRECT";
const DNS: &str = "CONSUL_DNS_REDIRECT";

/// Returns the arguments of each run of `iptables`, in order.
///
/// Exclusions are inserted at the head of their chain, so the last one added is matched first.
///
/// Of DNS only queries to 127.0.0.1 are redirected, where the rewritten `resolv.conf` sends them:
/// lookups of the servers' own names, at the other name servers, stay as they are.
///
/// Source: Consul 1.21 `sdk/iptables/iptables.go`; consul-ecs 0.10 adds the policy at the end.
pub fn rules(redirection: &Redirection) -> Vec<Vec<String>> {
    let mut list = List::default();
    // All chains first, since rules below jump to them.
    for chain in [INBOUND, TO_INBOUND, OUTPUT, TO_OUTBOUND, DNS] {
        list.add(&format!("-N {chain}"));
    }
    list.outgoing(redirection);
    list.incoming(redirection);
    list.add("--policy POSTROUTING ACCEPT");
    list.rules
}

#[derive(Default)]
struct List {
    rules: Vec<Vec<String>>,
}

impl List {
    fn add(&mut self, rule: &str) {
        let words = ["-t", "nat"].into_iter().chain(rule.split_whitespace());
        self.rules.push(words.map(str::to_owned).collect());
    }

    fn outgoing(&mut self, redirection: &Redirection) {
        self.add(&format!(
            "-A {TO_OUTBOUND} -p tcp -j REDIRECT --to-port {}",
            redirection.outbound_port
        ));
        if let Some(port) = redirection.dns_port {
            // TCP as well: long answers are repeated over it.
            for protocol in ["udp", "tcp"] {
                let to = format!("-j DNAT --to-destination 127.0.0.1:{port}");
                self.add(&format!("-A {DNS} -p {protocol} -d 127.0.0.1 --dport 53 {to}"));
            }
            for protocol in ["udp", "tcp"] {
                self.add(&format!("-A OUTPUT -p {protocol} -d 127.0.0.1 --dport 53 -j {DNS}"));
            }
        }
        // After the DNS rules: a query to 127.0.0.1 must not match the local exclusion below first.
        self.add(&format!("-A OUTPUT -p tcp -j {OUTPUT}"));
        // The proxy's own connections, or they would come back to it in a loop.
        self.add(&format!("-A {OUTPUT} -m owner --uid-owner {} -j RETURN", redirection.proxy_uid));
        // Traffic within the task does not go through the mesh.
        self.add(&format!("-A {OUTPUT} -d 127.0.0.1/32 -j RETURN"));
        self.add(&format!("-A {OUTPUT} -j {TO_OUTBOUND}"));
        for port in &redirection.exclude_outbound_ports {
            self.add(&format!("-I {OUTPUT} -p tcp --dport {port} -j RETURN"));
        }
        for network in &redirection.exclude_outbound_cidrs {
            self.insert(&["-d", network]);
        }
        for user in &redirection.exclude_uids {
            self.insert(&["-m", "owner", "--uid-owner", user]);
        }
    }

    /// Inserts an exclusion by a value of the user's, which stays one argument.
    fn insert(&mut self, condition: &[&str]) {
        let words = ["-t", "nat", "-I", OUTPUT].iter().chain(condition).chain(&["-j", "RETURN"]);
        self.rules.push(words.map(|word| (*word).to_owned()).collect());
    }

    fn incoming(&mut self, redirection: &Redirection) {
        self.add(&format!(
            "-A {TO_INBOUND} -p tcp -j REDIRECT --to-port {}",
            redirection.inbound_port
        ));
        self.add(&format!("-A PREROUTING -p tcp -j {INBOUND}"));
        self.add(&format!("-A {INBOUND} -p tcp -j {TO_INBOUND}"));
        for port in &redirection.exclude_inbound_ports {
            self.add(&format!("-I {INBOUND} -p tcp --dport {port} -j RETURN"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_its_rule_in_its_place() {
        let redirection = Redirection {
            proxy_uid: 5995,
            inbound_port: 20000,
            outbound_port: 15001,
            exclude_inbound_ports: vec![22000],
            exclude_outbound_ports: vec![3],
            exclude_outbound_cidrs: vec!["10.0.0.0/8".into()],
            exclude_uids: vec!["5996".into()],
            dns_port: Some(8600),
        };
        let expected = "\
            -N CONSUL_PROXY_INBOUND
            -N CONSUL_PROXY_IN_REDIRECT
            -N CONSUL_PROXY_OUTPUT
            -N CONSUL_PROXY_REDIRECT
            -N CONSUL_DNS_REDIRECT
            -A CONSUL_PROXY_REDIRECT -p tcp -j REDIRECT --to-port 15001
            -A CONSUL_DNS_REDIRECT -p udp -d 127.0.0.1 --dport 53 -j DNAT --to-destination 127.0.0.1:8600
            -A CONSUL_DNS_REDIRECT -p tcp -d 127.0.0.1 --dport 53 -j DNAT --to-destination 127.0.0.1:8600
            -A OUTPUT -p udp -d 127.0.0.1 --dport 53 -j CONSUL_DNS_REDIRECT
            -A OUTPUT -p tcp -d 127.0.0.1 --dport 53 -j CONSUL_DNS_REDIRECT
            -A OUTPUT -p tcp -j CONSUL_PROXY_OUTPUT
            -A CONSUL_PROXY_OUTPUT -m owner --uid-owner 5995 -j RETURN
            -A CONSUL_PROXY_OUTPUT -d 127.0.0.1/32 -j RETURN
            -A CONSUL_PROXY_OUTPUT -j CONSUL_PROXY_REDIRECT
            -I CONSUL_PROXY_OUTPUT -p tcp --dport 3 -j RETURN
            -I CONSUL_PROXY_OUTPUT -d 10.0.0.0/8 -j RETURN
            -I CONSUL_PROXY_OUTPUT -m owner --uid-owner 5996 -j RETURN
            -A CONSUL_PROXY_IN_REDIRECT -p tcp -j REDIRECT --to-port 20000
            -A PREROUTING -p tcp -j CONSUL_PROXY_INBOUND
            -A CONSUL_PROXY_INBOUND -p tcp -j CONSUL_PROXY_IN_REDIRECT
            -I CONSUL_PROXY_INBOUND -p tcp --dport 22000 -j RETURN
            --policy POSTROUTING ACCEPT";
        let found: Vec<String> = rules(&redirection).iter().map(|rule| rule.join(" ")).collect();
        let expected: Vec<String> =
            expected.lines().map(|line| format!("-t nat {}", line.trim())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_value_of_the_users_stays_one_argument() {
        let mut list = List::default();
        list.insert(&["-d", "1.2.3.4 -j ACCEPT"]);
        assert_eq!(list.rules[0].len(), 8);
    }
}
