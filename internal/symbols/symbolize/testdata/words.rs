//! Counts words: a program of Rust for the comparison of symbolizers.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

fn main() {
    let mut counts = HashMap::new();
    for argument in std::env::args() {
        for word in argument.split_whitespace().map(str::to_lowercase) {
            *counts.entry(word).or_insert(0u64) += 1;
        }
    }
    let sorted: BTreeMap<_, _> = counts.into_iter().collect();
    let mut lines: Vec<String> = sorted
        .iter()
        .filter(|(word, _)| !word.is_empty())
        .map(|(word, count)| format!("{count:8} {word}"))
        .collect();
    lines.sort_by(|a, b| b.cmp(a));
    let mut out = String::new();
    for line in &lines {
        writeln!(out, "{line}").expect("strings take all");
    }
    print!("{out}");
}
