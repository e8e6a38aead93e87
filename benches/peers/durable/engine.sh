# shellcheck shell=bash disable=SC2034,SC2154 # a part of `measure`
version=$(sed -n '/workspace.package/,/^$/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")
store=$DATA/durable
harness=("$BIN/bench-durable" "$store" "$variant")
w1_steps=10000
case $variant in
read_only)
  suffix=r
  durability="on disk before anybody sees a result, not before the next step"
  ;;
keyed)
  suffix=k
  durability="a step's intent is on disk before its body begins, its result before the next body or before anybody sees it"
  ;;
esac
# Its lock file follows what the library itself depends on.
install() { cargo_install; }
# sled's files have the inode flag SYNC: each write to them is a sync, and the sync_file_range after it has nothing left to do.
count_syncs() { grep -cE '^[0-9]+ +((fsync|fdatasync)\(|p?write(64|v)?\([0-9]+<[^>]*/sled/)' "$1" || true; }
