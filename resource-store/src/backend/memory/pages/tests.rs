use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use proptest::prelude::*;

use super::*;

fn key(text: &str) -> Key {
    text.as_bytes().into()
}

fn put(pages: &Pages<u64>, text: &str, value: u64) -> Option<u64> {
    pages.change(text.as_bytes(), |_| (Step::Put(value), ())).1
}

fn remove(pages: &Pages<u64>, text: &str) -> Option<u64> {
    pages.change(text.as_bytes(), |_| (Step::Remove, ())).1
}

fn listed(pages: &Pages<u64>, prefix: &str) -> Vec<u64> {
    let (runs, ()) = pages.moment(prefix.as_bytes(), || ());
    runs.iter().flat_map(|run| run.values().copied()).collect()
}

proptest! {
    /// Whatever is put and removed, the map is as an ordered map without pages, and a list
    /// that was taken stays as it was.
    #[test]
    fn pages_are_an_ordered_map(
        before in prop::collection::btree_set("[abc]{0,5}", 0..300),
        steps in prop::collection::vec((any::<bool>(), "[abc]{0,5}"), 0..600),
        prefix in "[abc]{0,2}",
    ) {
        let of = |(text, value): (&String, u64)| (key(text), value);
        let pages = Pages::from_sorted(before.iter().zip(0..).map(of));
        let mut model: BTreeMap<String, u64> = before.into_iter().zip(0..).collect();
        let within = |model: &BTreeMap<String, u64>| -> Vec<u64> {
            model.iter().filter(|(text, _)| text.starts_with(&prefix)).map(|(_, v)| *v).collect()
        };
        for ((puts, text), value) in steps.into_iter().zip(1000..) {
            let (earlier, ()) = pages.moment(prefix.as_bytes(), || ());
            let expected = within(&model);
            if puts {
                prop_assert_eq!(put(&pages, &text, value), model.insert(text.clone(), value));
            } else {
                prop_assert_eq!(remove(&pages, &text), model.remove(&text));
            }
            prop_assert_eq!(pages.get(text.as_bytes()), model.get(&text).copied());
            prop_assert_eq!(listed(&pages, &prefix), within(&model));
            let earlier: Vec<u64> = earlier.iter().flat_map(|run| run.values().copied()).collect();
            prop_assert_eq!(earlier, expected);
        }
        for text in model.keys() {
            remove(&pages, text);
        }
        prop_assert_eq!(pages.pages(), 1, "empty pages are taken out");
    }
}

/// While threads put and remove keys and count what is there, as part of each change, every
/// list shows as many entries as the counter says.
#[test]
fn a_list_shows_one_moment() {
    const KEYS: u64 = 2_000;
    const STEPS: u64 = 20_000;
    let pages = &Pages::<u64>::new();
    let count = &AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..2_u64 {
            scope.spawn(move || {
                for step in 0..STEPS {
                    let text = format!("{:05}", (writer + step * 7_919) % KEYS);
                    pages.change(text.as_bytes(), |known| {
                        if known.is_some() {
                            (Step::Remove, count.fetch_sub(1, Ordering::Relaxed))
                        } else {
                            (Step::Put(step), count.fetch_add(1, Ordering::Relaxed))
                        }
                    });
                }
            });
        }
        for _ in 0..200 {
            let (runs, count) = pages.moment(b"", || count.load(Ordering::Relaxed));
            let found: usize = runs.iter().map(Run::len).sum();
            assert_eq!(found as u64, count);
        }
    });
}

/// Everything is replaced in one step: who lists meanwhile sees all of the old or all of the
/// new, and a change that comes meanwhile is not kept beside the new.
#[test]
fn everything_is_replaced_at_once() {
    const KEYS: usize = 500;
    let pages = &Pages::<u64>::new();
    let all = |value: u64| (0..KEYS).map(move |i| (key(&format!("{i:05}")), value));
    pages.replace(all(0), || {});
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for i in 0..20_000 {
                let text = format!("{:05}", i * 31 % KEYS);
                // As much as is there: the entries of one moment are of one round.
                pages.change(text.as_bytes(), |known| {
                    (known.map_or(Step::Keep, |value| Step::Put(*value)), ())
                });
            }
        });
        let mut round = 0;
        while !writer.is_finished() {
            round += 1;
            pages.replace(all(round), || {});
            assert_eq!(listed(pages, ""), vec![round; KEYS]);
        }
    });
}
