# The OCaml grader: a worker, the bytecode half of the OCaml toolchain, bubblewrap. No C compiler, no linker.
ARG BASE_IMAGE=debian:bookworm-slim

# OCaml 5.3, the first with the fix of ocaml/ocaml#7241, which Debian 12 does not have: from its sources
FROM ${BASE_IMAGE} AS compiler
RUN apt-get update \
 && apt-get install -y --no-install-recommends ocaml-findlib libc6-dev gcc make npm \
 && rm -rf /var/lib/apt/lists/*
# npm's settings may come from the machine that builds, as pip's below
ARG NPM_CONFIG_USERCONFIG
COPY deploy/setup/ocaml5.sh /
RUN sh /ocaml5.sh /opt/ocaml
# What grading needs: type checking, bytecode, running it. The rest is native code, typed trees and the compiler's own
# libraries, which only our helper is built with: an answer has no use for them.
RUN cd / && tar -c --exclude=compiler-libs \
      --exclude='*.cmx' --exclude='*.cmxa' --exclude='*.cmxs' --exclude='*.a' --exclude='*.o' \
      --exclude='*.cmt' --exclude='*.cmti' --exclude='*.ml' --exclude='*.mli' \
      opt/ocaml/lib opt/ocaml/bin/ocamlc.opt opt/ocaml/bin/ocamlc opt/ocaml/bin/ocamlrun opt/ocaml/bin/ocamlfind \
      usr/bin/ocamlfind \
    | tar -x -C "$(mkdir -p /toolchain && echo /toolchain)"

FROM ${BASE_IMAGE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-venv ocaml-findlib libc6-dev gcc bubblewrap \
 && rm -rf /var/lib/apt/lists/*
COPY --from=compiler /opt/ocaml /opt/ocaml
RUN python3 -m venv /opt/gradus/venv
ENV PATH=/opt/gradus/venv/bin:/opt/ocaml/bin:$PATH GRADUS_CACHE_DIR=/opt/gradus/cache
# pip's settings may come from the machine that builds: --build-arg PIP_CONFIG_FILE=... with a volume
ARG PIP_CONFIG_FILE
ARG PIP_NO_CACHE_DIR=1
WORKDIR /src
# the dependencies are their own layer: a change of our code does not install them again
COPY deploy/docker/locks/worker.lock ./
RUN pip install --require-hashes -r worker.lock
COPY . .
# a checkout, because a wheel has the SDK alone; compiled here, because the image's user cannot write there
RUN pip install --no-deps -e . && python -m compileall -q .
# the helper is native code: built here, where the C compiler is, and only run there
RUN python -c "from services.graders.ocaml.toolchain import OcamlToolchain; OcamlToolchain()"

FROM ${BASE_IMAGE}
ARG VERSION=dev
LABEL org.opencontainers.image.title="gradus-grader-ocaml" \
      org.opencontainers.image.description="Gradus: a worker that compiles and tests OCaml answers in sandboxes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 bubblewrap util-linux mount \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin gradus
COPY --from=compiler /toolchain /
COPY --from=build /opt/gradus /opt/gradus
COPY --from=build /src /src
ENV PATH=/opt/gradus/venv/bin:/opt/ocaml/bin:$PATH GRADUS_CACHE_DIR=/opt/gradus/cache PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /tmp
# auto: where this builder cannot make boxes it is said, and left to the worker's own start; required: no such image
ARG SELF_TEST=auto
RUN --mount=type=bind,from=build,source=/src/deploy/docker/self_test.sh,target=/run/self_test.sh sh /run/self_test.sh ocaml "$SELF_TEST"
# what a worker must find around itself before it serves; compose asks for more
ENV GRADUS_REQUIRE_HARDENING=user,capabilities,privileges,seccomp,root,tmp,memory
EXPOSE 9100
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9100/readyz', timeout=3)"]
CMD ["gradus", "worker", "ocaml", "--redis", "redis://redis:6379/0", "--slots", "2", \
     "--metrics-host", "0.0.0.0", "--metrics-port", "9100"]
