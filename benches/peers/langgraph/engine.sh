# shellcheck shell=bash disable=SC2034,SC2154 # a part of `measure`
variant=${variant:-async}
version=$(in_requirements langgraph)
store=$DATA/langgraph.db
harness=(env PYTHONPATH="$here" LANGSMITH_TRACING=false DURABILITY="$variant" "$PEERS/venv/$name/bin/python" "$dir/bench.py" "$store")
case $variant in
async) durability="its default: a checkpoint is written while the next step runs; SQLite with synchronous=FULL" ;;
sync) durability="a checkpoint is on disk before the next step; SQLite with synchronous=FULL" ;;
esac
# A run that waits is several transactions, and SQLite has one writer.
w5_runs=1000
install() { pip_install; }
