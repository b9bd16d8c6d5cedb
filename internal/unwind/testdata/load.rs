use std::collections::HashMap;

#[inline(never)]
fn walk(depth: u32, n: u64) -> Result<usize, String> {
    if depth > 0 {
        return walk(depth - 1, n + 1).map(|v| v + 1);
    }
    let mut words: HashMap<String, u64> = HashMap::new();
    for i in 0..100 {
        *words.entry(format!("{:x}", (i * n) % 37)).or_default() += i;
    }
    let mut keys: Vec<_> = words.keys().cloned().collect();
    keys.sort_by(|a, b| b.cmp(a));
    keys.join(",").parse::<u64>().map(|v| v as usize).map_err(|e| e.to_string())
}

fn main() {
    let mut sum = 0;
    for n in 0u64.. {
        sum += match std::panic::catch_unwind(|| walk((n % 20) as u32, n)) {
            Ok(Ok(v)) => v,
            Ok(Err(e)) => e.len(),
            Err(_) => 0,
        };
    }
    println!("{sum}");
}
