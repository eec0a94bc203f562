# The wrapper of one engine: starts vLLM with its own log, waits for it, writes its exit status.
# $1 folder of the start. Beside it: "argv" (set -- 'executable' 'argument' ...) and "env" (NAME='value').
dir=$1
umask 077
cd "$dir" || exit 125
exec </dev/null >>"$dir/log" 2>&1

ticks_of() {
  line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  rest=${line##*) }
  set -- $rest
  echo "${20}"
}

unset LC_ALL LANGUAGE
LANG=${LANG:-C.UTF-8}
export LANG
ulimit -n "$(ulimit -Hn)" 2>/dev/null
. "$dir/argv"
case $1 in /*) PATH=${1%/*}:${PATH:-/usr/local/bin:/usr/bin:/bin} ;; esac
export PATH
set -a
. "$dir/env"
set +a

# trapped, not ignored: an ignored signal would stay ignored in vLLM
hit=0
trap 'hit=1' HUP INT TERM
"$@" &
child=$!
{
  echo "boot=$(cat /proc/sys/kernel/random/boot_id)"
  echo "wrapper=$$"
  echo "wrapper_ticks=$(ticks_of $$)"
  echo "pid=$child"
  echo "ticks=$(ticks_of "$child")"
  echo "at=$(date +%s)"
} >pid.new
mv pid.new pid
status=''
while :; do
  hit=0
  wait "$child"
  now=$?
  if [ "$now" -ne 127 ] || [ -z "$status" ]; then status=$now; fi
  [ "$hit" = 1 ] || break
done
echo "$status" >exit.new
mv exit.new exit
exit "$status"
