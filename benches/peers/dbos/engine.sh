# shellcheck shell=bash disable=SC2034,SC2154 # a part of `measure`
version=$(locked dbos)
harness=("$BIN/bench-dbos" "$PG/bench_dbos")
durability="a transaction of PostgreSQL for each step, on disk before the next"
install() { cargo_install --locked && pg_up; }
fresh() { pg_fresh bench_dbos && warm_up; }
syncs() { pg_syncs "$@"; }
