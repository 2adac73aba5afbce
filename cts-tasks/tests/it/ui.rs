//! The status page as a browser gets it: who sees it, who may press its buttons, and what is in
//! it. In a real browser it is tried by the tests of the program `consul-terraform-sync`.

use std::{sync::Arc, time::Duration};

use cts_tasks::{ApiServer, Cluster, Single, status_page};
use reqwest::{Client, Method, RequestBuilder, Response, redirect::Policy};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::{
    api::{Api, FollowerOf},
    scene::{Scene, on},
};

const TOKEN: &str = "the token of the API";
const PAGES: [&str; 5] = ["/ui/", "/ui/tasks/front", "/ui/cluster", "/ui/watches", "/ui/systems"];

async fn serve(scene: &Scene, cluster: Arc<dyn Cluster>) -> Api {
    Api::start(Api::bind(scene, cluster).await.with_pages(status_page()))
}

/// A served API, and a client that follows no redirect.
struct Site {
    api: Api,
    http: Client,
    scene: Scene,
    folder: TempDir,
}

impl Site {
    async fn with(protected: bool, change: impl FnOnce(ApiServer) -> ApiServer) -> Self {
        let scene = Scene::new();
        scene.put("web", 1);
        let mut task = on("front", &["web"]);
        "<script>alert(1)</script> & \"more\"".clone_into(&mut task.description);
        drop(scene.start(vec![task]).await);
        let folder = tempfile::tempdir().unwrap();
        let mut server =
            change(Api::bind(&scene, Arc::new(Single)).await.with_pages(status_page()));
        if protected {
            let file = folder.path().join("token");
            std::fs::write(&file, TOKEN).unwrap();
            server = server.with_token_file(file).await.unwrap();
        }
        let http = Client::builder().redirect(Policy::none()).build().unwrap();
        Self { api: Api::start(server), http, scene, folder }
    }

    async fn protected() -> Self {
        Self::with(true, |server| server).await
    }

    async fn open() -> Self {
        Self::with(false, |server| server).await
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.api.url))
    }

    fn post(&self, path: &str, form: &[(&str, &str)]) -> RequestBuilder {
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(form);
        let request = self.http.request(Method::POST, format!("{}{path}", self.api.url));
        request.header("content-type", "application/x-www-form-urlencoded").body(body.finish())
    }

    /// Logs in, and returns the cookie as it is sent back.
    async fn log_in(&self) -> String {
        let answer = self.post("/ui/login", &[("token", TOKEN)]).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), header(&answer, "location")), (303, "/ui/"));
        let cookie = header(&answer, "set-cookie");
        assert!(!cookie.contains(TOKEN), "{cookie}");
        for part in ["HttpOnly", "SameSite=Strict", "Path=/ui", "Max-Age="] {
            assert!(cookie.contains(part), "{cookie}");
        }
        cookie.split(';').next().unwrap().to_owned()
    }

    /// The token of the forms that this viewer gets.
    async fn form(&self, cookie: &str) -> String {
        let page = self.get("/ui/tasks/front").header("cookie", cookie).send().await.unwrap();
        let page = page.text().await.unwrap();
        let (_, rest) = page.split_once("name=\"form\" value=\"").expect("there are forms");
        rest.split('"').next().unwrap().to_owned()
    }

    /// Nothing has run since the start.
    fn nothing_ran(&self) {
        assert_eq!(self.scene.driver.applies("front").len(), 1);
    }
}

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// The status, and `true` if something of the tasks is shown.
async fn shows(request: RequestBuilder) -> (u16, bool) {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (status, text.contains("alert") || text.contains("web-1") || text.contains("health.service"))
}

#[tokio::test]
async fn without_a_token_or_with_a_wrong_one_nothing_is_shown_and_nothing_runs() {
    let site = Site::protected().await;
    let form = site.form(&site.log_in().await).await;
    for cookie in ["", "cts_session=1", "cts_session_0=; cts_session", &"x".repeat(5_000)] {
        for page in PAGES {
            let (status, shown) = shows(site.get(page).header("cookie", cookie)).await;
            assert_eq!((status, shown), (303, false), "{page} with {cookie}");
            let bearing = site.get(page).header("cookie", cookie).bearer_auth("wrong");
            assert_eq!(shows(bearing).await, (303, false), "{page}");
        }
        for path in ["/ui/events", "/ui/no-such-page?x"] {
            let request = site.get(path).header("accept", "text/event-stream");
            assert_eq!(shows(request.header("cookie", cookie)).await, (401, false), "{path}");
        }
        for action in ["run", "disable", "approve", "discard"] {
            // Not even with the token of a form of somebody else's.
            let path = format!("/ui/tasks/front/{action}");
            let request = site.post(&path, &[("form", &form), ("plan", "1")]);
            assert_eq!(shows(request.header("cookie", cookie)).await, (401, false));
        }
    }
    for wrong in ["", "wrong", "the token of the AP", "the token of the API2"] {
        let answer = site.post("/ui/login", &[("token", wrong)]).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), header(&answer, "set-cookie")), (401, ""), "{wrong}");
    }
    site.nothing_ran();
}

#[tokio::test]
async fn with_a_session_pages_are_shown_and_forms_of_it_run_tasks() {
    let site = Site::protected().await;
    let cookie = site.log_in().await;
    for page in PAGES {
        let answer = site.get(page).header("cookie", &cookie).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{page}");
        assert_eq!(header(&answer, "content-type"), "text/html; charset=utf-8");
    }
    let form = site.form(&cookie).await;
    let other = site.form(&site.log_in().await).await;
    assert_ne!(form, other, "each session has its own");
    for wrong in ["", "wrong", &other, form.get(1..).unwrap()] {
        let request = site.post("/ui/tasks/front/run", &[("form", wrong)]);
        assert_eq!(shows(request.header("cookie", &cookie)).await.0, 403, "{wrong}");
    }
    let json = site.http.post(format!("{}/ui/tasks/front/run", site.api.url)).body("{}");
    assert_eq!(shows(json.header("cookie", &cookie)).await.0, 400);
    site.nothing_ran();

    let run = site.post("/ui/tasks/front/run", &[("form", &form)]).header("cookie", &cookie);
    let answer = run.send().await.unwrap();
    assert_eq!((answer.status().as_u16(), header(&answer, "location")), (303, "/ui/tasks/front"));
    site.scene.driver.wait_for_applies("front", 2).await;
    let unknown = site.post("/ui/tasks/other/run", &[("form", &form)]).header("cookie", &cookie);
    assert_eq!(shows(unknown).await.0, 404);

    // The API takes no cookie, and the session ends with the logout.
    let api = site.get("/v1/tasks").header("cookie", &cookie).send().await.unwrap();
    assert_eq!(api.status(), 401);
    let out = site.post("/ui/logout", &[("form", &form)]).header("cookie", &cookie);
    assert_eq!(out.send().await.unwrap().status(), 303);
    assert_eq!(shows(site.get("/ui/").header("cookie", &cookie)).await, (303, false));
}

#[tokio::test]
async fn a_new_token_ends_the_sessions_of_the_old_one() {
    let site = Site::protected().await;
    let cookie = site.log_in().await;
    std::fs::write(site.folder.path().join("token"), "another").unwrap();
    assert_eq!(shows(site.get("/ui/").header("cookie", &cookie)).await, (303, false));
    std::fs::remove_file(site.folder.path().join("token")).unwrap();
    assert_eq!(shows(site.get("/ui/").header("cookie", &cookie)).await, (503, false));
}

#[tokio::test]
async fn from_another_origin_nothing_is_shown_and_nothing_runs() {
    // Whom the API lets in from elsewhere, the page does not.
    let evil = "https://evil.example.com";
    for site in [
        Site::protected().await,
        Site::open().await,
        Site::with(false, |server| server.with_cors_origins(["*".to_owned()])).await,
    ] {
        let is_protected = site.folder.path().join("token").exists();
        let cookie = if is_protected { site.log_in().await } else { String::new() };
        let form = site.form(&cookie).await;
        for headers in [
            &[("origin", evil)][..],
            &[("origin", "null")],
            &[("origin", evil), ("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors")],
            &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors")],
            &[
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "iframe"),
            ],
        ] {
            let with = |request: RequestBuilder| {
                let request = request.header("cookie", &cookie);
                headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
            };
            for page in PAGES.iter().chain(&["/ui/events", "/ui/login"]) {
                let answer = with(site.get(page)).send().await.unwrap();
                assert!(!answer.headers().contains_key("access-control-allow-origin"));
                assert_eq!(shows(with(site.get(page))).await, (403, false), "{page} {headers:?}");
            }
            let run = with(site.post("/ui/tasks/front/run", &[("form", &form)]));
            assert_eq!(shows(run).await.0, 403, "{headers:?}");
            let login = with(site.post("/ui/login", &[("token", TOKEN)]));
            assert_eq!(shows(login).await.0, 403, "{headers:?}");
        }
        site.nothing_ran();
        // A link on another page leads here, as a bookmark does.
        let link = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        let request = site.get("/ui/tasks/front").header("cookie", &cookie);
        let request = link.iter().fold(request, |it, (name, value)| it.header(*name, *value));
        assert_eq!(shows(request).await, (200, true));
        let own = site.post("/ui/tasks/front/run", &[("form", &form)]).header("cookie", &cookie);
        let own = own.header("origin", &site.api.url).header("sec-fetch-site", "same-origin");
        assert_eq!(shows(own).await.0, 303);
    }
}

/// A page whose own name was made to resolve to this server.
#[tokio::test]
async fn by_another_name_nothing_is_shown_and_nothing_runs() {
    for site in [Site::protected().await, Site::open().await] {
        let is_protected = site.folder.path().join("token").exists();
        let cookie = if is_protected { site.log_in().await } else { String::new() };
        let form = site.form(&cookie).await;
        for name in ["evil.example.com", "evil.example.com:8558", "127.0.0.1.evil.example.com", "?"]
        {
            let origin = format!("http://{name}");
            let with = |request: RequestBuilder| {
                let request = request.header("cookie", &cookie).header("host", name);
                request.header("origin", &origin).header("sec-fetch-site", "same-origin")
            };
            for page in PAGES.iter().chain(&["/ui/events", "/ui/login", "/ui/assets/live.js"]) {
                assert_eq!(shows(with(site.get(page))).await, (403, false), "{page} as {name}");
            }
            let run = with(site.post("/ui/tasks/front/run", &[("form", &form)]));
            assert_eq!(shows(run).await.0, 403, "{name}");
            let login = with(site.post("/ui/login", &[("token", TOKEN)]));
            assert_eq!(shows(login).await.0, 403, "{name}");
        }
        site.nothing_ran();
        let known = site.get("/ui/tasks/front").header("cookie", &cookie);
        assert_eq!(shows(known.header("host", "localhost:8558")).await, (200, true));
    }
    let named = Site::with(false, |server| server.with_hosts(["cts.example.com".to_owned()])).await;
    let page = named.get("/ui/tasks/front").header("host", "cts.example.com");
    assert_eq!(shows(page).await, (200, true));
}

/// Without a token everyone who reaches the port may see the page, as the API; its buttons need
/// its own forms all the same.
#[tokio::test]
async fn without_a_token_configured_the_page_needs_no_login_and_its_buttons_a_form() {
    let site = Site::open().await;
    assert_eq!(shows(site.get("/ui/tasks/front")).await, (200, true));
    let to_tasks = site.get("/ui/login").send().await.unwrap();
    assert_eq!((to_tasks.status().as_u16(), header(&to_tasks, "location")), (303, "/ui/"));
    for wrong in ["", "wrong"] {
        let request = site.post("/ui/tasks/front/run", &[("form", wrong)]);
        assert_eq!(shows(request).await.0, 403);
    }
    site.nothing_ran();
    let form = site.form("").await;
    let disable = site.post("/ui/tasks/front/disable", &[("form", &form)]);
    assert_eq!(shows(disable).await.0, 303);
    let text = site.get("/ui/").send().await.unwrap().text().await.unwrap();
    assert!(text.contains("Disabled") && text.contains("being enabled"), "{text}");
}

#[tokio::test]
async fn texts_are_escaped_and_every_answer_has_its_policy() {
    let site = Site::open().await;
    for path in ["/ui/tasks/front", "/ui/tasks/%3Cscript%3E", "/ui/nothing", "/ui/assets/nothing"] {
        let answer = site.get(path).send().await.unwrap();
        let policy = header(&answer, "content-security-policy").to_owned();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"));
        assert_eq!(header(&answer, "x-content-type-options"), "nosniff");
        assert_eq!(header(&answer, "referrer-policy"), "same-origin");
        assert_eq!(header(&answer, "cache-control"), "no-store");
        let text = answer.text().await.unwrap();
        assert!(!text.contains("<script>") && !text.contains(" style="), "{text}");
    }
    let asset = site.get("/ui/assets/style.css").send().await.unwrap();
    let tag = header(&asset, "etag").to_owned();
    assert_eq!(header(&asset, "content-type"), "text/css; charset=utf-8");
    let again = site.get("/ui/assets/style.css").header("if-none-match", &tag);
    assert_eq!(again.send().await.unwrap().status(), 304);
}

#[tokio::test]
async fn a_thousand_tasks_are_shown_a_hundred_at_a_time() {
    let scene = Scene::new();
    let tasks = (0..250).map(|number| on(&format!("task-{number:04}"), &["web"]));
    scene.engine.load(tasks.collect(), &scene.stop).await.unwrap();
    let api = serve(&scene, Arc::new(Single)).await;
    for (query, rows, place) in [
        ("", 100, "Page 1 of 3"),
        ("?page=3", 50, "Page 3 of 3"),
        ("?page=99", 50, "Page 3 of 3"),
        ("?q=TASK-000", 10, "10 of 250"),
        ("?status=errored", 0, "No task fits"),
        ("?q=%3Cb%3E&page=x", 0, "&#60;b&#62;"),
    ] {
        let answer = api.http.get(format!("{}/ui/{query}", api.url)).send().await.unwrap();
        let text = answer.text().await.unwrap();
        assert_eq!(text.matches("<th scope=\"row\">").count(), rows, "{query}");
        assert!(text.contains(place), "{query}: {text}");
    }
}

#[tokio::test]
async fn a_followers_page_names_the_leader_and_has_no_buttons() {
    let site = Site::open().await;
    let api = serve(&site.scene, Arc::new(FollowerOf(Some("cts-01")))).await;
    let text = |path: &str| {
        let request = api.http.get(format!("{}{path}", api.url));
        async move { request.send().await.unwrap().text().await.unwrap() }
    };
    let page = text("/ui/").await;
    assert!(page.contains("<strong>cts-01</strong>"), "{page}");
    assert!(page.contains("href=\"http://cts-01.example.com:8558/ui/\""), "{page}");
    let task = text("/ui/tasks/front").await;
    assert!(!task.contains("Run now"), "{task}");
}

#[tokio::test]
async fn the_stream_tells_a_session_what_happens() {
    let site = Site::protected().await;
    let cookie = site.log_in().await;
    let mut stream = site.get("/ui/events").header("cookie", &cookie).send().await.unwrap();
    assert_eq!(header(&stream, "content-type"), "text/event-stream");
    site.scene.put("web", 2);
    let told = timeout(Duration::from_mins(1), async {
        let mut text = String::new();
        while !text.contains("\"type\":\"run\"") {
            text += &String::from_utf8_lossy(&stream.chunk().await.unwrap().unwrap());
        }
    });
    told.await.expect("the run is told");
}
