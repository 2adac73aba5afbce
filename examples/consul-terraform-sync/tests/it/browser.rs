//! A real browser, driven by the `WebDriver` protocol.
//!
//! It resolves no name but those of this machine, so that nothing that a page asks for can
//! leave it.

use std::{fs, path::Path, process::Stdio, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use consul_watch::testing::parts::Suite;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{sleep, timeout},
};

use crate::sync::PATIENCE;

/// A name that leads to this machine, as one of an attacker's would.
pub(crate) const REBOUND: &str = "rebound.example.com";

/// A browser with one window.
pub(crate) struct Browser {
    http: reqwest::Client,
    session: String,
    profile: TempDir,
    _driver: Child,
    axe: String,
    /// Addresses that pages have asked for so far.
    asked: Vec<String>,
    /// What pages have complained about so far.
    complaints: Vec<String>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its many processes have their own groups, but all name the profile.
        let profile = self.profile.path().display().to_string();
        for entry in fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&words).contains(&profile)
                && let Some(pid) = pid
            {
                let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

impl Browser {
    /// Starts the browser; `None` if there is none, which is reported.
    pub(crate) async fn start(suite: Suite, case: &str) -> Option<Self> {
        let chromium = suite.part("chromium", case)?;
        let driver = suite.part("chromedriver", case)?;
        let axe = suite.part("axe-core", case)?;
        let axe = Command::new(&axe.path).output().await.unwrap().stdout;
        let profile = tempfile::Builder::new().prefix("browser-").tempdir().unwrap();
        let mut child = Command::new(&driver.path)
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = timeout(PATIENCE, async {
            loop {
                let line = lines.next_line().await.unwrap().unwrap();
                if let Some(rest) = line.split("successfully on port ").nth(1) {
                    return rest.trim_end_matches('.').to_owned();
                }
            }
        });
        let port = port.await.unwrap();
        // It would stop at a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let mut browser = Self {
            http: reqwest::Client::new(),
            session: format!("http://127.0.0.1:{port}/session"),
            profile,
            _driver: child,
            axe: String::from_utf8(axe).unwrap(),
            asked: Vec::new(),
            complaints: Vec::new(),
        };
        let wanted = browser.capabilities(&chromium.path);
        let session = browser.post("", wanted).await;
        let id = session["sessionId"].as_str().unwrap();
        browser.session = format!("{}/{id}", browser.session);
        Some(browser)
    }

    fn capabilities(&self, chromium: &Path) -> Value {
        let rules = format!("MAP {REBOUND} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1");
        let args = [
            "--headless".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-quic".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--no-first-run".to_owned(),
            "--no-proxy-server".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--disable-sync".to_owned(),
            "--hide-scrollbars".to_owned(),
            format!("--host-resolver-rules={rules}"),
            format!("--user-data-dir={}", self.profile.path().display()),
        ];
        json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"binary": chromium, "args": args},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}})
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> Result<Value, String> {
        let request = self.http.request(method, format!("{}{path}", self.session));
        let request = request.timeout(PATIENCE).json(&body);
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        match answer["value"]["error"].as_str() {
            Some(error) => Err(format!("{path}: {error}: {}", answer["value"]["message"])),
            None => Ok(answer["value"].clone()),
        }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.send(Method::POST, path, body).await.unwrap()
    }

    /// A command of the browser's own protocol.
    pub(crate) async fn command(&self, name: &str, params: Value) -> Value {
        self.post("/goog/cdp/execute", json!({"cmd": name, "params": params})).await
    }

    pub(crate) async fn open(&self, url: &str) {
        self.post("/url", json!({"url": url})).await;
    }

    /// Runs a script in the page, which may `return` something.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []})).await
    }

    /// The text of the first element, as it is rendered; empty if there is none.
    pub(crate) async fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({selector:?})?.innerText ?? ''");
        self.run(&script).await.as_str().unwrap().to_owned()
    }

    /// Waits until a script returns `true`.
    pub(crate) async fn until(&self, script: &str) {
        let waited = timeout(PATIENCE, async {
            // A page that is being left has nothing to run it in.
            let body = || json!({"script": script, "args": []});
            while self.send(Method::POST, "/execute/sync", body()).await != Ok(json!(true)) {
                sleep(Duration::from_millis(10)).await;
            }
        });
        let page = if waited.await.is_err() { Some(self.text("body").await) } else { None };
        assert!(page.is_none(), "not so: {script}\n{}", page.unwrap_or_default());
    }

    /// Clicks as a person does.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.post(&format!("/element/{element}/click"), json!({})).await;
    }

    /// Types as a person does.
    pub(crate) async fn write(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.post(&format!("/element/{element}/value"), json!({"text": text})).await;
    }

    async fn element(&self, selector: &str) -> String {
        let found =
            self.post("/element", json!({"using": "css selector", "value": selector})).await;
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    /// Presses the key that goes to the next control.
    pub(crate) async fn tab(&self) {
        for kind in ["keyDown", "keyUp"] {
            let key =
                json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
            self.command("Input.dispatchKeyEvent", key).await;
        }
    }

    /// Shows pages as on a screen of this size, and in this scheme of colours.
    pub(crate) async fn look(&self, width: u32, height: u32, scheme: &str) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.command("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", scheme).await;
    }

    /// The page as it is now, also where no script may run.
    pub(crate) async fn html(&self) -> String {
        let ask = |name: &str, params: Value| {
            let body = json!({"cmd": name, "params": params});
            self.send(Method::POST, "/goog/cdp/execute", body)
        };
        loop {
            // At any moment another page may take the place of this one.
            let Ok(document) = ask("DOM.getDocument", json!({})).await else { continue };
            let node = json!({"nodeId": document["root"]["nodeId"]});
            if let Ok(html) = ask("DOM.getOuterHTML", node).await {
                return html["outerHTML"].as_str().unwrap().to_owned();
            }
        }
    }

    /// Rules of accessibility that the page breaks, each with its elements.
    pub(crate) async fn barriers(&self) -> Vec<String> {
        self.run(&format!("{};return null", self.axe)).await;
        let script = "const done = arguments[arguments.length - 1];\
                      axe.run({resultTypes: ['violations']}).then((found) => done(\
                      found.violations.map((it) => it.id + ': ' + it.help + ' ' \
                      + it.nodes.map((node) => node.html + ' ' + node.failureSummary).join(' | '))))";
        let found = self.post("/execute/async", json!({"script": script, "args": []})).await;
        found.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
    }

    /// Writes what is seen into a file.
    pub(crate) async fn picture(&self, file: &Path) {
        let shot = self.command("Page.captureScreenshot", json!({"format": "png"})).await;
        let picture = STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        fs::write(file, picture).unwrap();
    }

    /// Reads the browser's logs, which it hands out once.
    async fn read_logs(&mut self) {
        let log = self.post("/se/log", json!({"type": "browser"})).await;
        let text = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        self.complaints.extend(log.as_array().unwrap().iter().map(text));
        let log = self.post("/se/log", json!({"type": "performance"})).await;
        for entry in log.as_array().unwrap() {
            let message: Value = serde_json::from_str(&text(entry)).unwrap();
            if message["message"]["method"] == "Network.requestWillBeSent" {
                let url = message["message"]["params"]["request"]["url"].as_str().unwrap();
                self.asked.push(url.to_owned());
            }
        }
    }

    /// Everything that pages have asked for so far.
    pub(crate) async fn asked(&mut self) -> Vec<String> {
        self.read_logs().await;
        self.asked.clone()
    }

    /// Everything that pages have complained about since this was asked last.
    pub(crate) async fn complaints(&mut self) -> Vec<String> {
        self.read_logs().await;
        std::mem::take(&mut self.complaints)
    }

    /// Ends the browser as a person does.
    pub(crate) async fn close(self) {
        self.send(Method::DELETE, "", json!({})).await.unwrap();
    }
}
