# shellcheck shell=bash disable=SC2034,SC2154 # a part of `measure`
version=$(locked durare)
store=$DATA/durare.db
harness=("$BIN/bench-durare" "$store")
durability="SQLite with synchronous=NORMAL: no step is on disk until a checkpoint; a power cut loses the last ones, a killed process none"
