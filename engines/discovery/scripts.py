"""Scripts that look for vLLM servers on a host. POSIX sh; they change nothing there."""

from __future__ import annotations

# Prints "key value" lines: of the host, then a block from each "process" line on. In "argv" the
# arguments are separated by the control character US (037), a line break in one is RS (036).
SCAN = r"""
export LC_ALL=C
echo "boot $(cat /proc/sys/kernel/random/boot_id)"
echo "uptime $(cut -d' ' -f1 /proc/uptime)"
echo "hertz $(getconf CLK_TCK 2>/dev/null || echo 100)"
echo "uid $(id -u)"
[ -d /proc/1 ] || echo "hidden yes"
for table in /proc/net/tcp /proc/net/tcp6; do
  [ -r "$table" ] && awk '$4 == "0A" {print "socket", $2, $8, $10}' "$table"
done
cat /proc/[0-9]*/stat 2>/dev/null | sed 's/^/stat /'
own=$(readlink /proc/self/ns/net 2>/dev/null)
grep -laE 'vllm|VLLM::' /proc/[0-9]*/cmdline 2>/dev/null | while IFS= read -r path; do
  dir=${path%/cmdline}; pid=${dir#/proc/}
  argv=$(tr '\000\n' '\037\036' <"$path" 2>/dev/null)
  [ -n "$argv" ] || continue
  echo "process $pid"
  echo "argv $argv"
  uid=$(awk '/^Uid:/ {print $2}' "$dir/status" 2>/dev/null)
  echo "owner $uid $(getent passwd "$uid" 2>/dev/null | cut -d: -f1)"
  if link=$(readlink "$dir/exe" 2>/dev/null); then echo "exe $link"; else echo "unreadable yes"; fi
  net=$(readlink "$dir/ns/net" 2>/dev/null)
  [ -n "$net" ] && [ "$net" != "$own" ] && echo "container yes"
  ls -l "$dir/fd" 2>/dev/null | sed -n 's/.*socket:\[\([0-9]*\)\].*/inode \1/p'
  if out=$(readlink "$dir/fd/1" 2>/dev/null); then
    [ -f "$out" ] && { echo "log $out"; [ -r "$out" ] && echo "log_readable yes"; }
  fi
  if [ -r "$dir/environ" ]; then
    tr '\000' '\n' <"$dir/environ" 2>/dev/null | sed -n 's/^KVADMIN_START=/marker /p' | head -n1
  fi
done
exit 0
"""

# $1 base URL on the host; standard input: an API key or an empty line. Prints, for each path asked,
# "answer PATH STATUS BODY" on one line; "nohttp" when the host has neither curl nor Python.
ASK = r"""
export LC_ALL=C
base=$1
IFS= read -r key
ask() {
  if command -v curl >/dev/null 2>&1; then
    said=$(printf 'header = "Authorization: Bearer %s"\n' "$(printf %s "$key" | sed 's/[\\"]/\\&/g')" |
      curl -sS -m 5 --noproxy '*' -K - -w '\n%{http_code}' "$base$1" 2>/dev/null)
  elif command -v python3 >/dev/null 2>&1; then
    said=$(printf '%s\n' "$key" | python3 -c 'import sys, urllib.error, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
request = urllib.request.Request(sys.argv[1])
request.add_header("Authorization", "Bearer " + sys.stdin.readline().strip())
try:
    with opener.open(request, timeout=5) as answer:
        print(answer.read(65536).decode(errors="replace")); print(answer.status)
except urllib.error.HTTPError as error:
    print(); print(error.code)
except OSError:
    print(); print("000")' "$base$1")
  else
    echo nohttp
    return
  fi
  status=$(printf '%s\n' "$said" | tail -n1)
  body=$(printf '%s\n' "$said" | sed '$d' | tr -d '\n' | cut -c1-65536)
  echo "answer $1 $status $body"
}
ask /health
ask /version
ask /v1/models
"""

# $1 pid, $2 its start ticks, $3 the boot id. Prints "gone", or "same" and then, where it can be read,
# "key VALUE": the API key that the server was started with (VLLM_API_KEY, or --api-key).
IDENTIFY = r"""
[ "$3" = "$(cat /proc/sys/kernel/random/boot_id)" ] || { echo gone; exit 0; }
[ -r "/proc/$1/stat" ] || { echo gone; exit 0; }
[ "$2" = "$(sed 's/^.*) //' "/proc/$1/stat" | cut -d' ' -f20)" ] || { echo gone; exit 0; }
echo same
tr '\000' '\n' <"/proc/$1/cmdline" 2>/dev/null |
  awk 'next_is_key {print "key", $0; exit} $0 == "--api-key" {next_is_key = 1}
       index($0, "--api-key=") == 1 {print "key", substr($0, 11); exit}'
[ -r "/proc/$1/environ" ] && tr '\000' '\n' <"/proc/$1/environ" 2>/dev/null | sed -n 's/^VLLM_API_KEY=/key /p'
exit 0
"""
