#!/bin/sh
# Install what the named parts need and this machine lacks: debian.sh PART...   (parts: python grader rust queue test ocaml5)
# Asks apt for nothing that is there already, so a second run is quick and needs no rights.
set -eu

grader="ocaml-nox ocaml-findlib ocaml-compiler-libs gcc libc6-dev bubblewrap util-linux"
queue="redis-server"
python="python3-venv"
test="libbase-ocaml-dev libreact-ocaml-dev libcalendar-ocaml-dev libppx-sexp-conv-ocaml-dev libppx-deriving-ocaml-dev \
chromium chromium-driver procps prometheus librust-serde-dev librust-serde-derive-dev librust-serde-json-dev librust-itertools-dev \
redis-sentinel librust-regex-dev librust-rand-dev librust-aho-corasick-dev librust-memchr-dev"

# Rust is not installed from here: Debian's is too old, and rustup belongs to the user. All else works without it.
look_for_rust() {
  if ! sysroot=$(rustc --print sysroot 2>/dev/null); then
    lacks="rustc" does="rustup toolchain install 1.95 --profile minimal --component clippy && rustup default 1.95"
  elif [ ! -x "$sysroot/bin/clippy-driver" ]; then
    lacks="clippy-driver" does="rustup component add clippy"
  else
    return 0
  fi
  cat >&2 <<TEXT
The Rust grader will not start: there is no working $lacks. To have it, install rustup (https://rustup.rs), then run
  $does
Everything else works without; tests of the Rust grader are skipped.
TEXT
}

# Without namespaces no grader of code starts, which is better known before everything is installed.
look_for_namespaces() {
  user="--user"
  [ "$(id -u)" -ne 0 ] || user=""
  ! command -v unshare >/dev/null || unshare $user --mount true 2>/dev/null || cat >&2 <<TEXT
The graders of code will not start: namespaces are forbidden here. In a container be a user other than root, and start it with
  --security-opt seccomp=deploy/docker/seccomp-grader.json --security-opt apparmor=unconfined
On Ubuntu 24.04: sysctl kernel.apparmor_restrict_unprivileged_userns=0
TEXT
}

wanted=""
for part in "$@"; do
  case "$part" in
    python) wanted="$wanted $python" ;;
    grader) wanted="$wanted $grader"; look_for_namespaces ;;
    rust) look_for_rust ;;
    queue) wanted="$wanted $queue" ;;
    test) wanted="$wanted $test" ;;
    # npm of another origin than Debian's comes with its node
    ocaml5) wanted="$wanted make"; command -v npm >/dev/null || wanted="$wanted npm" ;;
    *) echo "debian.sh: no part '$part'; there are: python grader rust queue test ocaml5" >&2; exit 2 ;;
  esac
done

if [ "$(uname -s)" = Darwin ]; then
  echo "On a Mac the trainer runs natively, and the graders, which need Linux, in containers: docker compose up." >&2
  exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  cat >&2 <<TEXT
This is not Debian or Ubuntu, so nothing can be installed for you. Please install yourself:
  OCaml 4.13 with ocamlfind and compiler-libs, bubblewrap, util-linux (prlimit, setpriv), a C compiler, redis-server
(opam: opam install ocamlfind). The graders need Linux; elsewhere run them in containers: docker compose up.
Then set GRADUS_SKIP_SYSTEM=1 and run make again.
TEXT
  [ "${GRADUS_SKIP_SYSTEM:-}" = 1 ] && exit 0 || exit 1
fi

missing=""
for package in $wanted; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "Missing packages:$missing. Become root and run: apt-get install$missing" >&2; exit 1; }
  sudo="sudo"
fi
echo "installing:$missing"
# Services of Debian packages must not start by themselves: Gradus starts its own Redis, on a port of its own.
$sudo apt-get update -q >/dev/null || true
$sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -q --no-install-recommends $missing >/dev/null
