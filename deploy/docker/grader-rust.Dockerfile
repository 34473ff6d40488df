# The Rust grader: a worker, rustc, clippy-driver, its linker and its standard library, bubblewrap. No cargo, no C compiler.
ARG BASE_IMAGE=debian:bookworm-slim
# Any image with rustc and cargo in PATH; README.md beside this file tells how to make one of a toolchain that is at hand.
ARG TOOLCHAIN_IMAGE=rust:1.95-slim-bookworm

FROM ${TOOLCHAIN_IMAGE} AS toolchain
# Docker's own image has rustup's minimal profile, which is without clippy
RUN test -x "$(rustc --print sysroot)/bin/clippy-driver" || rustup component add clippy
# What grading needs: no documentation, no rustfmt, no tools for other formats and other targets, no sanitizers.
RUN cd "$(rustc --print sysroot)" && mkdir -p /opt/rust && tar -c \
      --exclude=gcc-ld --exclude=wasm-component-ld --exclude=rust-objcopy --exclude='librustc-*_rt.*.a' \
      bin/rustc bin/clippy-driver lib/*.so* lib/rustlib/"$(rustc -vV | sed -n 's/^host: //p')" \
    | tar -x -C /opt/rust \
 && mkdir /opt/cargo && cp "$(rustc --print sysroot)/bin/cargo" /opt/cargo

FROM ${BASE_IMAGE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-venv libc6-dev gcc bubblewrap ca-certificates \
 && rm -rf /var/lib/apt/lists/*
# What programs are linked with, and the program that knows where it is: gcc's driver, which compiles nothing by itself.
RUN mkdir -p /link/usr/bin && cp "$(readlink -f /usr/bin/cc)" /link/usr/bin/cc \
 && for file in Scrt1.o crti.o crtn.o crtbeginS.o crtendS.o libc.so libc_nonshared.a libgcc.a libgcc_s.so \
      liblto_plugin.so libm.so libdl.a libpthread.a librt.a libutil.a; do \
      cp --parents "$(readlink -f "$(cc -print-file-name=$file)")" /link; \
    done

RUN python3 -m venv /opt/gradus/venv
ENV PATH=/opt/gradus/venv/bin:/opt/rust/bin:$PATH GRADUS_CACHE_DIR=/opt/gradus/cache
# pip's settings may come from the machine that builds: --build-arg PIP_CONFIG_FILE=... with a volume
ARG PIP_CONFIG_FILE
ARG PIP_NO_CACHE_DIR=1
WORKDIR /src
# the dependencies are their own layer: a change of our code does not install them again
COPY deploy/docker/locks/worker.lock ./
RUN pip install --require-hashes -r worker.lock
COPY --from=toolchain /opt/rust /opt/rust
COPY --from=toolchain /opt/cargo /opt/cargo
COPY . .
# a checkout, because a wheel has the SDK alone; compiled here, because the image's user cannot write there
RUN pip install --no-deps -e . && python -m compileall -q .
# the harness, and crates if configs/graders/rust.yaml lists any: built here, where cargo is
RUN PATH=/opt/cargo:$PATH python -c "from services.graders.rust.grader import RustGrader; RustGrader()"

FROM ${BASE_IMAGE}
ARG VERSION=dev
LABEL org.opencontainers.image.title="gradus-grader-rust" \
      org.opencontainers.image.description="Gradus: a worker that checks, lints and tests Rust answers in sandboxes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 bubblewrap util-linux mount \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin gradus
COPY --from=build /link /
COPY --from=toolchain /opt/rust /opt/rust
COPY --from=build /opt/gradus /opt/gradus
COPY --from=build /src /src
ENV PATH=/opt/gradus/venv/bin:/opt/rust/bin:$PATH GRADUS_CACHE_DIR=/opt/gradus/cache \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /tmp
# auto: where this builder cannot make boxes it is said, and left to the worker's own start; required: no such image
ARG SELF_TEST=auto
RUN --mount=type=bind,from=build,source=/src/deploy/docker/self_test.sh,target=/run/self_test.sh sh /run/self_test.sh rust "$SELF_TEST"
# what a worker must find around itself before it serves; compose asks for more
ENV GRADUS_REQUIRE_HARDENING=user,capabilities,privileges,seccomp,root,tmp,memory
EXPOSE 9100
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9100/readyz', timeout=3)"]
CMD ["gradus", "worker", "rust", "--redis", "redis://redis:6379/0", "--slots", "2", \
     "--metrics-host", "0.0.0.0", "--metrics-port", "9100"]
