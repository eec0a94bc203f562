"""POSIX sh run on a host by the probe. Each prints tab-separated records; none changes anything.

Values are arguments ($1, …), never part of a script. Bounded: every tool that may hang has a time limit.
"""

# v NAME VALUE…: one record; a value's own tabs and line ends become blanks
_RECORD = r"""
v() {
  kv_first=1
  for kv_word in "$@"; do
    [ $kv_first = 1 ] || printf '\t'
    kv_first=0
    printf '%s' "$kv_word" | tr '\t\n\r' '   '
  done
  printf '\n'
}
limit() { kv_s=$1; shift; if command -v timeout >/dev/null 2>&1; then timeout "$kv_s" "$@"; else "$@"; fi; }
expand() {
  case $1 in "~") printf %s "$HOME";; "~/"*) printf '%s/%s' "$HOME" "${1#"~/"}";; *) printf %s "$1";; esac
}
"""

CONNECT = (
    _RECORD
    + r"""
v boot_id "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
v user "$(id -un 2>/dev/null)" "$(id -u)"
v home "$HOME"
"""
)

# $1 the work folder, then the model folders
SYSTEM = (
    CONNECT
    + r"""
(
  NAME=; VERSION_ID=; VERSION=; PRETTY_NAME=
  [ -r /etc/os-release ] && . /etc/os-release
  v os "${NAME:-$(uname -s)}" "${VERSION_ID:-$VERSION}" "$PRETTY_NAME"
)
v kernel "$(uname -r)" "$(uname -m)"
v glibc "$(getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 | head -n 1)"
v cpu "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1)"
v cpu_lscpu "$(limit 5 lscpu 2>/dev/null | sed -n 's/^Model name: *//p' | head -n 1)"
v cores "$(getconf _NPROCESSORS_ONLN 2>/dev/null || grep -c '^processor' /proc/cpuinfo)"
v memory "$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo)" \
  "$(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo)"
for given in "$@" "$HOME"; do
  path=$(expand "$given")
  there=$path
  while [ ! -e "$there" ] && [ "$there" != / ] && [ "$there" != . ]; do there=$(dirname -- "$there"); done
  v disk "$path" "$(limit 10 df -Pk -- "$there" 2>/dev/null | tail -n 1 | awk '{print $2 " " $4}')"
done
systemd_user=no; limit 5 systemctl --user show-environment >/dev/null 2>&1 && systemd_user=yes
v systemd_user $systemd_user
linger=no; [ -e "/var/lib/systemd/linger/$(id -un)" ] && linger=yes
v linger $linger
"""
)

_SMI = r"""
smi=
for path in "$(command -v nvidia-smi 2>/dev/null)" /usr/bin/nvidia-smi /usr/local/bin/nvidia-smi \
  /usr/lib/wsl/lib/nvidia-smi /usr/local/nvidia/bin/nvidia-smi /opt/bin/nvidia-smi \
  /run/nvidia/driver/usr/bin/nvidia-smi
do
  if [ -n "$path" ] && [ -x "$path" ]; then smi=$path; break; fi
done
section() { printf '== %s\n' "$1"; }
fields=index,uuid,name,memory.total,memory.used,memory.free,utilization.gpu,temperature.gpu,power.draw,driver_version
query() {
  section query
  limit 20 "$smi" --query-gpu=$fields,mig.mode.current --format=csv,noheader,nounits 2>&1
  status=$?
  if [ $status -ne 0 ] && [ $status -ne 124 ]; then
    section query
    limit 20 "$smi" --query-gpu=$fields --format=csv,noheader,nounits 2>&1
    status=$?
  fi
  printf '\n== status %s\n' "$status"
}
"""

# the processes' owners and, where /proc lets us read it, the mark of an engine's start
_PROCESSES = r"""
processes() {
  section processes
  apps=$(limit 20 "$smi" --query-compute-apps=gpu_uuid,pid,process_name,used_memory \
    --format=csv,noheader,nounits 2>/dev/null)
  printf '%s\n' "$apps"
  section owners
  for pid in $(printf '%s\n' "$apps" | awk -F', *' '$2 ~ /^[0-9]+$/ {print $2}' | sort -u); do
    v "$pid" "$(ps -o user:64= -p "$pid" 2>/dev/null || stat -c %U "/proc/$pid" 2>/dev/null)" \
      "$({ tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^KVADMIN_START=//p' | head -n 1; } 2>/dev/null)" \
      "$({ tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c 1-300; } 2>/dev/null)"
  done
}
"""

GPUS = (
    _RECORD
    + _SMI
    + _PROCESSES
    + r"""
section pci
for device in /sys/bus/pci/devices/*; do
  case $(cat "$device/class" 2>/dev/null) in
    0x03*|0x12*) v "$(cat "$device/vendor")" "$(cat "$device/class")";;
  esac
done
section smi
printf '%s\n' "$smi"
if [ -n "$smi" ]; then
  query
  if [ "$status" -eq 0 ]; then
    section header
    limit 20 "$smi" 2>&1 | head -n 12
    section list
    limit 20 "$smi" -L 2>/dev/null
    processes
  fi
fi
section end
"""
)

#: the light reading of every minute: is the host there, and how full are its GPUs
SAMPLE = (
    CONNECT
    + _SMI
    + r"""
section smi
printf '%s\n' "$smi"
[ -z "$smi" ] || query
section end
"""
)

PYTHONS = (
    _RECORD
    + r"""
seen=' '
look() {
  [ -x "$1" ] || return 0
  case $1 in */shims/*) return 0;; esac
  real=$(readlink -f -- "$1" 2>/dev/null || printf %s "$1")
  case $seen in *" $real "*) return 0;; esac
  seen="$seen$real "
  found=$(limit 10 "$1" -I -c 'import sys
print("%d.%d.%d" % sys.version_info[:3])
if sys.version_info >= (3, 9):
    import venv, ensurepip
    print("yes")' 2>/dev/null)
  version=$(printf '%s\n' "$found" | sed -n 1p)
  [ -n "$version" ] || return 0
  venv=$(printf '%s\n' "$found" | sed -n 2p)
  v python "$1" "$version" "${venv:-no}"
}
for minor in 14 13 12 11 10 9; do
  for path in "$(command -v python3.$minor 2>/dev/null)" /usr/bin/python3.$minor \
    /usr/local/bin/python3.$minor
  do
    [ -z "$path" ] || look "$path"
  done
done
for path in "$(command -v python3 2>/dev/null)" /usr/bin/python3 \
  "$HOME"/.pyenv/versions/*/bin/python3 "$HOME"/.local/share/uv/python/*/bin/python3 \
  "$HOME"/miniconda3/bin/python3 "$HOME"/anaconda3/bin/python3 "$HOME"/miniforge3/bin/python3 \
  "$HOME"/mambaforge/bin/python3 /opt/conda/bin/python3 /opt/miniconda3/bin/python3 \
  /opt/anaconda3/bin/python3 /opt/miniforge3/bin/python3 /opt/python/*/bin/python3
do
  [ -z "$path" ] || look "$path"
done
"""
)

# $1 the work folder. An environment is a prefix with vllm-*.dist-info in it; nothing is imported.
ENVIRONMENTS = (
    _RECORD
    + r"""
work=$(expand "$1")
seen=' '
look() {
  [ -d "$1" ] || return 0
  real=$(readlink -f -- "$1" 2>/dev/null || printf %s "$1")
  case $seen in *" $real "*) return 0;; esac
  seen="$seen$real "
  for info in "$1"/lib/python3*/site-packages/vllm-*.dist-info \
    "$1"/lib64/python3*/site-packages/vllm-*.dist-info "$1"/lib/python3*/dist-packages/vllm-*.dist-info
  do
    [ -r "$info/METADATA" ] || continue
    version=$(sed -n 's/^Version: *//p; /^$/q' "$info/METADATA" | head -n 1)
    python=$(sed -n 's/^version\(_info\)\{0,1\} *= *//p' "$1/pyvenv.cfg" 2>/dev/null | head -n 1)
    [ -n "$python" ] || python=$(printf '%s' "$info" | sed -n 's|.*/python\(3\.[0-9]*\)/.*|\1|p')
    executable=
    [ -x "$1/bin/vllm" ] && executable=$1/bin/vllm
    complete=yes
    [ -d "${info%/*}/vllm" ] || ls "${info%/*}"/__editable__*vllm* >/dev/null 2>&1 || complete=no
    v environment "$1" "$version" "$python" "$executable" "$complete"
    return 0
  done
}
onpath() {
  command -v "$1" >/dev/null 2>&1 || return 0
  found=$(readlink -f -- "$(command -v "$1")" 2>/dev/null) || return 0
  found=$(dirname -- "$found")
  look "$(dirname -- "$found")"
}
v work "$work"
for path in "$work"/envs/* "$HOME"/.venv "$HOME"/venv* "$HOME"/vllm* "$HOME"/env* "$HOME"/envs/* \
  "$HOME"/venvs/* "$HOME"/.virtualenvs/* "$HOME"/*/.venv "$HOME"/*/venv "$HOME"/.local \
  /opt/* /opt/*/* /srv/*/venv /srv/*/.venv \
  "$HOME"/miniconda3/envs/* "$HOME"/anaconda3/envs/* "$HOME"/miniforge3/envs/* "$HOME"/mambaforge/envs/* \
  "$HOME"/.conda/envs/* /opt/conda /opt/conda/envs/* /opt/miniconda3/envs/* /opt/anaconda3/envs/* \
  "$HOME"/miniconda3 "$HOME"/anaconda3 "$HOME"/miniforge3 "$HOME"/.pyenv/versions/* \
  "$HOME"/.local/share/uv/tools/* /usr/local /usr
do
  look "$path"
done
onpath vllm
"""
)

# $@ the model folders. A model is a folder with config.json; sizes are of what lies on disk.
MODELS = (
    _RECORD
    + r"""
seen=' '
count=0
cache() {
  for folder in "$1"/models--*; do
    [ -d "$folder/snapshots" ] || continue
    case $seen in *" $folder "*) continue;; esac
    seen="$seen$folder "
    snapshot=
    for one in "$folder"/snapshots/*/; do [ -e "$one/config.json" ] && snapshot=${one%/}; done
    [ -n "$snapshot" ] || continue
    ref=$(cat "$folder/refs/main" 2>/dev/null)
    [ -n "$ref" ] && [ -e "$folder/snapshots/$ref/config.json" ] && snapshot=$folder/snapshots/$ref
    partial=no
    ls "$folder"/blobs/*.incomplete >/dev/null 2>&1 && partial=yes
    count=$((count + 1)); [ $count -le 500 ] || return 0
    size=$(limit 60 du -sk -- "$folder" 2>/dev/null | cut -f 1)
    v hf-cache "$snapshot" "${folder##*/models--}" "$size" "$partial"
  done
}
for root in "$HF_HUB_CACHE" "${HF_HOME:+$HF_HOME/hub}" "$HOME/.cache/huggingface/hub"; do
  [ -z "$root" ] || cache "$root"
done
for given in "$@"; do
  root=$(expand "$given")
  if [ ! -d "$root" ]; then v missing "$root"; continue; fi
  cache "$root"; cache "$root/hub"
  inside=
  limit 60 find -L "$root" -maxdepth 4 -name 'models--*' -prune -o -name config.json -type f -print \
    2>/dev/null | sed 's|/config\.json$||' | sort | head -n 500 | while IFS= read -r folder
    do
      case $folder/ in "${inside:-//}"/*) continue;; esac
      inside=$folder
      v folder "$folder" "${folder##*/}" "$(limit 60 du -skL -- "$folder" 2>/dev/null | cut -f 1)" no
    done
done
"""
)

# $@ folders of models: for each a record with the sum of its weight files and its config.json in base64
CONFIGS = (
    _RECORD
    + r"""
for folder in "$@"; do
  [ -r "$folder/config.json" ] || continue
  size=$(limit 20 find -L "$folder" -maxdepth 1 -type f \
    \( -name '*.safetensors' -o -name '*.bin' -o -name '*.pt' -o -name '*.gguf' \) \
    -exec wc -c {} + 2>/dev/null \
    | awk '$2 != "total" { sum += $1 } END { print sum + 0 }')
  v config "$folder" "$size" "$(head -c 1000000 "$folder/config.json" | base64 | tr -d '\n')"
done
"""
)
