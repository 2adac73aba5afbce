use proptest::prelude::*;

use super::LogText;

fn taken(pieces: &[&[u8]]) -> LogText {
    let mut log = LogText::default();
    for piece in pieces {
        log.take(piece);
    }
    log
}

/// Spec: TFC30
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

#[test]
fn structured_lines_are_told_by_their_message() {
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
