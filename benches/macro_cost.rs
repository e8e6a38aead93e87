//! What the attributes cost the user's build: `cargo check` of a workflow of n steps, against the same code as plain async
//! functions, in one run on one machine.
//!
//! `cargo bench --bench macro_cost` prints a table and writes `target/macro_cost.json`, in the form of `benches/steps`. Each time is
//! the best of several: noise only ever adds.

#![expect(clippy::expect_used, reason = "a benchmark that cannot write its packages ends")]

#[path = "measure/table.rs"]
#[allow(dead_code, reason = "each benchmark takes what it needs")]
mod table;

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use table::Row;

/// Steps of the workflow, and effects that it calls: the cost of the one, and of the other.
const CASES: [(usize, usize); 4] = [(10, 1), (100, 1), (1_000, 1), (100, 10)];
const ROUNDS: usize = 7;
/// No more rounds are begun after this: rustc takes more than in proportion to the awaits of a function, with and without attributes.
const ENOUGH: Duration = Duration::from_secs(30);

fn main() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let dir = root.join("target/macro-cost");
    let mut rows = Vec::new();
    for (steps, effects) in CASES {
        let plain = package(&dir, &root, &format!("plain_{steps}_{effects}"), &source(steps, effects, false));
        let durable_package =
            package(&dir, &root, &format!("durable_{steps}_{effects}"), &source(steps, effects, true));
        let mut best = [Duration::MAX; 2];
        // The first time what both depend on is built.
        for package in [&plain, &durable_package] {
            check(package, &dir, 0);
        }
        let (mut rounds, mut spent) = (0, Duration::ZERO);
        while rounds < ROUNDS && spent < ENOUGH {
            rounds += 1;
            for (best, package) in best.iter_mut().zip([&plain, &durable_package]) {
                let took = check(package, &dir, rounds);
                *best = took.min(*best);
                spent += took;
            }
        }
        let [plain, durable] = best.map(|best| best.as_secs_f64() * 1e3);
        let lines = expanded_lines(&durable_package, &dir);
        let name = format!("W7 {steps} steps, {effects} effects");
        eprintln!("{name}: {durable:.0} ms");
        // Here the raw figure is that of the same code without attributes.
        let row = Row::new(name, durable, "ms of check").raw(plain, durable / plain);
        rows.push(row.note(format!("{lines} lines expanded; raw: as plain async functions; best of {rounds}")));
    }
    table::print(&rows);
    table::write(&rows, &root.join("target/macro_cost.json")).expect("the target directory can be written");
}

/// Lines of the package with all macros expanded.
fn expanded_lines(package: &Path, dir: &Path) -> usize {
    let out = Command::new(env!("CARGO"))
        .args(["rustc", "--quiet", "--offline", "--lib", "--profile", "check", "--", "-Zunpretty=expanded"])
        .current_dir(package)
        .env("CARGO_TARGET_DIR", dir.join("target-expanded"))
        // The option is for toolchains under development only, and nothing else of them is used.
        .env("RUSTC_BOOTSTRAP", "1")
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).lines().count()
}

/// A workflow of `steps` steps over a few effects, or the same with the attributes left out.
fn source(steps: usize, effects: usize, durable: bool) -> String {
    let mut source = String::from("#![allow(dead_code)]\n");
    for effect in 0..effects {
        if durable {
            source.push_str("#[durable::effect(read_only)]\n");
        }
        let _ = writeln!(
            source,
            "async fn effect_{effect}(text: &str, n: u64) -> durable::Result<String> {{ Ok(format!(\"{{text}} {{n}}\")) }}"
        );
    }
    if durable {
        source.push_str("#[durable::workflow]\n");
    }
    source.push_str("pub async fn agent(topic: String) -> durable::Result<String> {\n    let mut notes = topic;\n");
    for step in 0..steps {
        let _ = writeln!(source, "    notes = effect_{}(&notes, {step}).await?;", step % effects);
    }
    source.push_str("    Ok(notes)\n}\n");
    if !durable {
        // As a workflow's, so that the future's type is checked in both.
        source.push_str("pub fn start(topic: String) -> std::pin::Pin<Box<dyn Future<Output = durable::Result<String>> + Send>> { Box::pin(agent(topic)) }\n");
    }
    source
}

fn package(dir: &Path, root: &Path, name: &str, source: &str) -> PathBuf {
    let package = dir.join(name);
    fs::create_dir_all(package.join("src")).expect("the target directory can be written");
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[dependencies]\ndurable = {{ path = {:?}, default-features = false }}\n[workspace]\n",
        root.display().to_string()
    );
    fs::write(package.join("Cargo.toml"), manifest).expect("the package can be written");
    fs::write(package.join("src/lib.rs"), source).expect("the package can be written");
    fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).expect("the lock file can be copied");
    package
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn check(package: &Path, dir: &Path, round: usize) -> Duration {
    let lib = package.join("src/lib.rs");
    let mut source = fs::read_to_string(&lib).expect("it was written above");
    let _ = writeln!(source, "// {round}");
    fs::write(&lib, source).expect("it was written above");
    let start = Instant::now();
    let status = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "--offline"])
        .current_dir(package)
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .env("CARGO_INCREMENTAL", "0")
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the generated package does not check");
    start.elapsed()
}
