//! Rewrites the resolver's configuration so that Consul's DNS is asked first.

use std::{fmt, str::FromStr};

/// Content of `/etc/resolv.conf`, as far as it is kept.
///
/// ```
/// use ecs_mesh_init::resolv_conf::ResolvConf;
///
/// let conf: ResolvConf = "nameserver 10.0.0.2\nsearch ec2.internal\n".parse().unwrap();
/// assert_eq!(conf.with_first("127.0.0.1").to_string(), "search ec2.internal\nnameserver 127.0.0.1\nnameserver 10.0.0.2\n");
/// ```
///
/// Source: consul-ecs 0.10 `internal/dns`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResolvConf {
    /// Name servers, in order.
    pub servers: Vec<String>,
    /// Search domains.
    pub search: Vec<String>,
    /// Number of dots from which a name is tried as it is first. Default 1.
    pub ndots: u32,
    /// Seconds before a server is given up. Default 5.
    pub timeout: u32,
    /// Number of rounds through all servers. Default 2.
    pub attempts: u32,
}

impl Default for ResolvConf {
    fn default() -> Self {
        Self { servers: Vec::new(), search: Vec::new(), ndots: 1, timeout: 5, attempts: 2 }
    }
}

impl FromStr for ResolvConf {
    type Err = std::convert::Infallible;

    /// Parses known lines and skips the rest.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut conf = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => conf.servers.extend(words.next().map(str::to_owned)),
                Some("search") => conf.search = words.map(str::to_owned).collect(),
                // The later of `domain` and `search` wins, as in the resolver.
                Some("domain") => conf.search = words.take(1).map(str::to_owned).collect(),
                Some("options") => words.for_each(|option| conf.set(option)),
                _ => {}
            }
        }
        Ok(conf)
    }
}

impl ResolvConf {
    fn set(&mut self, option: &str) {
        let Some((name, Ok(value))) =
            option.split_once(':').map(|(name, value)| (name, value.parse::<u32>()))
        else {
            return;
        };
        match name {
            "ndots" => self.ndots = value,
            "timeout" => self.timeout = value,
            "attempts" => self.attempts = value,
            _ => {}
        }
    }

    /// Returns a copy that asks this server first. A second call changes nothing.
    #[must_use]
    pub fn with_first(mut self, server: &str) -> Self {
        self.servers.retain(|known| known != server);
        self.servers.insert(0, server.to_owned());
        self
    }
}

impl fmt::Display for ResolvConf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `search .` is the resolver's word for no search at all.
        let searches_root = self.search.iter().all(|domain| domain == ".");
        if !self.search.is_empty() && !searches_root {
            writeln!(f, "search {}", self.search.join(" "))?;
        }
        for server in &self.servers {
            writeln!(f, "nameserver {server}")?;
        }
        let defaults = Self::default();
        let options = [
            ("ndots", self.ndots, defaults.ndots),
            ("timeout", self.timeout, defaults.timeout),
            ("attempts", self.attempts, defaults.attempts),
        ];
        let options: Vec<String> = options
            // Defaults are left out, as upstream does.
            .into_iter()
            .filter(|(_name, value, default)| value != default)
            .map(|(name, value, _default)| format!("{name}:{value}"))
            .collect();
        if !options.is_empty() {
            writeln!(f, "options {}", options.join(" "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rewritten(text: &str) -> String {
        text.parse::<ResolvConf>().unwrap().with_first("127.0.0.1").to_string()
    }

    /// Case MI26: `resolv.conf` gets Consul's DNS first and keeps servers, options and search
    /// domains.
    #[test]
    fn consul_is_asked_first_and_the_rest_stays() {
        assert_eq!(rewritten(""), "nameserver 127.0.0.1\n");
        assert_eq!(
            rewritten("nameserver 10.0.0.2\n"),
            "nameserver 127.0.0.1\nnameserver 10.0.0.2\n"
        );
        let full = "# made by hand\nsearch a.internal b.internal\nnameserver 1.1.1.1\nnameserver 2.2.2.2\n\
                    nameserver 3.3.3.3\nnameserver 4.4.4.4\noptions ndots:5 timeout:5 attempts:4 rotate\n";
        assert_eq!(
            rewritten(full),
            "search a.internal b.internal\nnameserver 127.0.0.1\nnameserver 1.1.1.1\nnameserver 2.2.2.2\n\
             nameserver 3.3.3.3\nnameserver 4.4.4.4\noptions ndots:5 attempts:4\n"
        );
        assert_eq!(rewritten("search .\n"), "nameserver 127.0.0.1\n");
        assert_eq!(rewritten(&rewritten(full)), rewritten(full));
    }

    proptest! {
        #[test]
        fn any_text_is_rewritten(text in "(\\PC|\n|nameserver |search |options ndots:){0,30}") {
            prop_assert!(rewritten(&text).contains("nameserver 127.0.0.1\n"));
        }
    }
}
