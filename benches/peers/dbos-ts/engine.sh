# shellcheck shell=bash disable=SC2034,SC2154 # a part of `measure`
version=$(in_package_json @dbos-inc/dbos-sdk)
harness=(env PACKAGES="$PEERS/npm/$name" node "$dir/bench.mjs" "$PG/bench_dbos_ts")
durability="a transaction of PostgreSQL for each step, on disk before the next"
install() { npm_install && pg_up; }
fresh() { pg_fresh bench_dbos_ts && warm_up; }
syncs() { pg_syncs "$@"; }
