//! Cases of reading logs: marks, pieces, failures between them, and what a person gets to see.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use proptest::prelude::*;
use tokio::time::Instant;

use super::{LONGEST_LINE, LogLines, LogText, read};
use crate::{Client, ClientOptions, ExchangeError, Platform};

fn taken(pieces: &[&[u8]]) -> LogText {
    let mut log = LogText::default();
    for piece in pieces {
        log.take(piece);
    }
    log
}

/// Case TFC30: a log is read once and whole, whatever its marks, pieces and failures in between.
#[test]
fn marks_are_removed_wherever_the_pieces_end() {
    let whole = taken(&[b"\x02one\ntwo\n\x03"]);
    assert!(whole.is_complete());
    assert_eq!((whole.readable().as_str(), whole.offset()), ("one\ntwo", 10));

    let split = taken(&[b"\x02", b"one\nt", b"wo\n", b"\x03", b"after the end"]);
    assert!(split.is_complete());
    assert_eq!(split.readable(), "one\ntwo");

    let unmarked = taken(&[b"one\n", b"two\n"]);
    assert!(!unmarked.is_complete());
    assert_eq!((unmarked.readable().as_str(), unmarked.offset()), ("one\ntwo", 8));
    assert!(!unmarked.is_framed() && taken(&[b"\x02one"]).is_framed());
}

/// Platform that gives a log out piece by piece, and fails where a case asks for it.
#[derive(Debug, Default)]
struct Archive {
    log: Vec<u8>,
    /// Largest number of bytes that is given out at once.
    piece: usize,
    /// Offsets at which the next request is answered with 502.
    failures: Mutex<Vec<usize>>,
    /// Offsets at which there is nothing yet when first asked.
    slow: Mutex<Vec<usize>>,
    /// Offsets that were asked for, with the status of the answer.
    asked: Mutex<Vec<(usize, u16)>>,
}

#[async_trait]
impl Platform for Archive {
    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ExchangeError> {
        assert!(!request.headers().contains_key("authorization"));
        let query = request.uri().query().unwrap();
        let number = |name: &str| -> usize {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).unwrap().1.parse().unwrap()
        };
        let (offset, limit) = (number("offset"), number("limit"));
        assert_eq!(limit, 65536);
        let once = |offsets: &Mutex<Vec<usize>>| {
            let mut offsets = offsets.lock().unwrap();
            let found = offsets.iter().position(|one| *one == offset);
            found.map(|found| offsets.remove(found)).is_some()
        };
        let mut answer = Response::new(Bytes::new());
        if once(&self.failures) {
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
        } else if !once(&self.slow) {
            let most = limit.min(self.piece);
            let piece = self.log.iter().skip(offset).take(most).copied().collect::<Vec<_>>();
            *answer.body_mut() = piece.into();
        }
        self.asked.lock().unwrap().push((offset, answer.status().as_u16()));
        Ok(answer)
    }
}

/// Reads a whole log; returns it, the requests, and the time that they took.
async fn read_from(archive: Archive) -> (LogText, Vec<(usize, u16)>, Duration) {
    let archive = Arc::new(archive);
    let platform = Arc::clone(&archive) as Arc<dyn Platform>;
    let client = Client::with_platform(platform, ClientOptions::default(), "t".into());
    let started = Instant::now();
    let log = read(&client, &"https://archivist/object/x".into()).await.unwrap();
    let asked = archive.asked.lock().unwrap().clone();
    (log, asked, started.elapsed())
}

/// Platform that refuses everything, and repeats the address that it was asked for.
#[derive(Debug)]
struct Gone;

#[async_trait]
impl Platform for Gone {
    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ExchangeError> {
        let mut answer = Response::new(Bytes::from(format!("no object at {}", request.uri())));
        *answer.status_mut() = StatusCode::GONE;
        Ok(answer)
    }
}

#[tokio::test]
async fn the_address_of_a_log_is_in_no_error_though_the_host_repeats_it() {
    let client = Client::with_platform(Arc::new(Gone), ClientOptions::default(), "t".into());
    let error = read(&client, &"https://archivist/object/5ecret".into()).await.unwrap_err();
    let reported = format!("{error} {error:?}");
    assert!(reported.contains("410") && !reported.contains("5ecret"), "{reported}");
}

fn long_text() -> String {
    let lines: Vec<String> = (0..20_000).map(|line| format!("line {line}\n")).collect();
    lines.concat()
}

/// Case TFC30: a log is read once and whole, whatever its marks, pieces and failures in between.
#[tokio::test(start_paused = true)]
async fn a_log_is_read_on_from_where_a_failure_interrupted_it() {
    let mut text = long_text();
    // So that two pieces are full and only the end mark is left for the third.
    text.truncate(2 * 65536 - 1);
    let log = [b"\x02", text.as_bytes(), b"\x03"].concat();
    let failures = Mutex::new(vec![65536, 65536, 2 * 65536]);
    let archive = Archive { log, piece: usize::MAX, failures, ..Archive::default() };
    let (read, asked, _) = read_from(archive).await;
    assert!(read.is_complete());
    assert_eq!(read.readable(), text.trim_end(), "the full text, once");
    let expected =
        [(0, 200), (65536, 502), (65536, 502), (65536, 200), (131_072, 502), (131_072, 200)];
    assert_eq!(asked, expected);
}

/// Case TFC30: a log is read once and whole, whatever its marks, pieces and failures in between.
#[tokio::test(start_paused = true)]
async fn an_end_mark_that_comes_alone_and_late_is_waited_for() {
    let log = b"\x02one\ntwo\n\x03".to_vec();
    let end = log.len() - 1;
    let slow = Mutex::new(vec![0, end, end, end, end]);
    let archive = Archive { log, piece: end, slow, ..Archive::default() };
    let (read, asked, took) = read_from(archive).await;
    assert_eq!((read.is_complete(), read.readable().as_str()), (true, "one\ntwo"));
    assert_eq!(asked.len(), 2 + 5);
    // 0.5 s, and then 0.5, 1, 2 and 2 s, each up to a fifth longer.
    let took = took.as_secs_f64();
    assert!((6.0..=6.0 * 1.2 + 0.1).contains(&took), "{took}");
}

/// Case TFC30: a log is read once and whole, whatever its marks, pieces and failures in between.
#[tokio::test(start_paused = true)]
async fn a_log_without_marks_ends_where_nothing_follows() {
    let text = long_text();
    let (log, piece) = (text.clone().into_bytes(), 100_000);
    let (read, asked, took) = read_from(Archive { log, piece, ..Archive::default() }).await;
    assert_eq!(read.readable(), text.trim_end());
    assert_eq!(asked.len(), text.len().div_ceil(65536) + 1);
    assert!(took < Duration::from_secs(1), "{took:?}");
    // One that began with its mark and never ends is given up.
    let log = b"\x02one\n".to_vec();
    let (read, asked, took) = read_from(Archive { log, piece, ..Archive::default() }).await;
    assert_eq!((read.is_complete(), read.readable().as_str()), (false, "one"));
    assert_eq!(asked.len(), 1 + 10);
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn structured_lines_are_shown_by_their_message() {
    let log = taken(&[
        b"{\"@level\":\"info\",\"@message\":\"\\u001b[1mPlan: 1 to add\\u001b[0m\",\"type\":\"change_summary\"}\n",
        b"{not json}\nplain\x1b[31m red\x1b[0m\x07\n",
    ]);
    assert_eq!(log.readable(), "Plan: 1 to add\n{not json}\nplain red");
}

#[test]
fn errors_are_found_in_either_form() {
    let human = taken(&[
        "\u{2}Preparing\n╷\n│ Error: Invalid value\n│ \n│   on main.tf line 3:\n│ No.\n╵\n\u{3}"
            .as_bytes(),
    ]);
    assert_eq!(human.errors(), "Error: Invalid value\non main.tf line 3:\nNo.");
    let structured =
        taken(&[br#"{"@message":"Warning: w","diagnostic":{"severity":"warning","summary":"w"}}
{"@message":"Error: s","diagnostic":{"severity":"error","summary":"s","detail":"d"}}"#]);
    assert_eq!(structured.errors(), "s: d");
    assert_eq!(taken(&[b"nothing\nto see"]).errors(), "nothing\nto see");
    assert_eq!(taken(&[]).errors(), "");
}

#[test]
fn lines_are_whole_however_the_log_is_cut() {
    let log = "\u{2}one\n\n{\"@message\":\"zwölf\"}\nlast\u{3}after".as_bytes();
    for at in 0..log.len() {
        let (left, right) = log.split_at(at);
        let mut lines = LogLines::default();
        let reported: Vec<String> =
            [left, right].into_iter().flat_map(|piece| lines.take(piece)).collect();
        assert_eq!(reported, ["one", "zwölf", "last"], "cut at {at}");
        assert!(lines.is_complete() && lines.is_framed());
        assert_eq!(lines.offset(), u64::try_from(log.len() - "after".len()).unwrap());
    }
    let mut open = LogLines::default();
    assert_eq!(open.take(b"one\ntw"), ["one"]);
    assert_eq!((open.is_framed(), open.rest().as_deref()), (false, Some("tw")));
    assert_eq!(open.rest(), None);
}

#[test]
fn a_line_that_is_too_long_is_left_out() {
    let mut lines = LogLines::default();
    let long = "x".repeat(LONGEST_LINE + 1);
    let reported = lines.take(format!("{long}\nnext\n").as_bytes());
    assert_eq!(reported, ["(a line of more than 65536 bytes is left out)", "next"]);
    let longest = "x".repeat(LONGEST_LINE);
    assert_eq!(lines.take(format!("{longest}\n").as_bytes()), [longest]);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_pieces_do_not_matter(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        at in 0usize..400,
    ) {
        let at = at.min(bytes.len());
        let (left, right) = bytes.split_at(at);
        let (whole, split) = (taken(&[&bytes]), taken(&[left, right]));
        prop_assert_eq!(whole.readable(), split.readable());
        prop_assert_eq!(whole.errors(), split.errors());
        let escaped = whole.readable().contains('\u{1b}');
        prop_assert!(!escaped);
    }
}
