# The program grader: a worker, the toolchains that are named below, bubblewrap.
ARG BASE_IMAGE=debian:bookworm-slim
# Any image with rustc in PATH, as for grader-rust: Debian's rustc does not start in boxes, which have no /proc
ARG TOOLCHAIN_IMAGE=rust:1.95-slim-bookworm

FROM ${TOOLCHAIN_IMAGE} AS toolchain
RUN cd "$(rustc --print sysroot)" && mkdir -p /opt/rust && tar -c \
      --exclude=gcc-ld --exclude=wasm-component-ld --exclude=rust-objcopy --exclude='librustc-*_rt.*.a' \
      bin/rustc lib/*.so* lib/rustlib/"$(rustc -vV | sed -n 's/^host: //p')" \
    | tar -x -C /opt/rust

FROM ${BASE_IMAGE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-venv bubblewrap npm \
 && rm -rf /var/lib/apt/lists/*
# the compiler of TypeScript, which node runs; npm's settings may come from the machine that builds, as pip's below
ARG NPM_CONFIG_USERCONFIG
RUN npm install --global --prefix /opt/typescript typescript@5.9.3 @types/node@20.19.0
RUN python3 -m venv /opt/gradus/venv
ENV PATH=/opt/gradus/venv/bin:$PATH GRADUS_CACHE_DIR=/opt/gradus/cache
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

FROM ${BASE_IMAGE}
ARG VERSION=dev
LABEL org.opencontainers.image.title="gradus-grader-program" \
      org.opencontainers.image.description="Gradus: a worker that compiles and runs programs in sandboxes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# languages: a toolchain that is left out here is a language that the worker does not announce
ARG TOOLCHAINS="python3-numpy gcc g++ libc6-dev ocaml-nox ocaml-findlib golang-go nodejs default-jdk-headless \
mono-mcs mono-runtime libmono-system-core4.0-cil libmono-system-numerics4.0-cil kotlin scala ghc ruby perl lua5.4"
# Java's packages fail to be set up where there is no folder for manuals, as in slim images
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends python3 bubblewrap util-linux mount ${TOOLCHAINS} \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin gradus
COPY --from=build /opt/typescript /usr/local
COPY --from=toolchain /opt/rust /opt/rust
COPY --from=build /opt/gradus /opt/gradus
COPY --from=build /src /src
ENV PATH=/opt/gradus/venv/bin:/opt/rust/bin:$PATH GRADUS_CACHE_DIR=/opt/gradus/cache \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /tmp
# auto: where this builder cannot make boxes it is said, and left to the worker's own start; required: no such image
ARG SELF_TEST=auto
RUN --mount=type=bind,from=build,source=/src/deploy/docker/self_test.sh,target=/run/self_test.sh sh /run/self_test.sh program "$SELF_TEST"
# what a worker must find around itself before it serves; compose asks for more
ENV GRADUS_REQUIRE_HARDENING=user,capabilities,privileges,seccomp,root,tmp,memory
EXPOSE 9100
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9100/readyz', timeout=3)"]
CMD ["gradus", "worker", "program", "--redis", "redis://redis:6379/0", "--slots", "2", \
     "--metrics-host", "0.0.0.0", "--metrics-port", "9100"]
