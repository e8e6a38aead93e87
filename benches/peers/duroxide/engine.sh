# shellcheck shell=bash disable=SC2034,SC2154 # a part of `measure`
variant=${variant:-default}
version=$(locked duroxide)
store=$DATA/duroxide.db
harness=(env RUST_LOG=off "$BIN/bench-duroxide" "$store" "$variant")
durability="SQLite with synchronous=WAL, which SQLite reads as NORMAL: no step is on disk until a checkpoint"
# A chain of n steps takes n * n: the whole history is read for every step.
w1_steps=500 w2_steps=50 w3_steps=1000 w4_runs=100
