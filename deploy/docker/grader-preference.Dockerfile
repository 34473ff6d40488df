# The preference grader: a worker with torch, for the CPU, and no model: one is mounted. Runs no answer, so it has no sandbox.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-venv ca-certificates \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/gradus/venv
ENV PATH=/opt/gradus/venv/bin:$PATH
# pip's settings may come from the machine that builds: --build-arg PIP_CONFIG_FILE=... with a volume
ARG PIP_CONFIG_FILE
# PyPI's torch brings CUDA, several gigabytes of it; PyTorch's own index has the build for the CPU
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG PIP_NO_CACHE_DIR=1
WORKDIR /src
# the dependencies are their own layer: a change of our code does not install them again
COPY deploy/docker/locks/preference.lock deploy/docker/locks/torch.lock ./
RUN pip install --require-hashes --no-deps -r preference.lock -r torch.lock && pip check
COPY . .
# a checkout, because a wheel has the SDK alone; compiled here, because the image's user cannot write there
RUN pip install --no-deps --prefix /opt/own -e . && python -m compileall -q .

FROM ${BASE_IMAGE}
ARG VERSION=dev
LABEL org.opencontainers.image.title="gradus-grader-preference" \
      org.opencontainers.image.description="Gradus: a worker that scores completions with a reward model" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin gradus
COPY --from=build /opt/gradus /opt/gradus
# on top, so that a change of it leaves the gigabytes below where they are
COPY --from=build /opt/own /opt/gradus/venv
COPY --from=build /src /src
ENV PATH=/opt/gradus/venv/bin:$PATH HF_HOME=/tmp/huggingface HF_HUB_OFFLINE=1 \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /tmp
ENV GRADUS_PREFERENCE_MODEL=/model \
    GRADUS_REQUIRE_HARDENING=user,capabilities,privileges,seccomp,root,tmp,memory
EXPOSE 9100
# a large model takes minutes to load and to hash
HEALTHCHECK --interval=30s --timeout=5s --start-period=600s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9100/readyz', timeout=3)"]
CMD ["gradus", "worker", "preference", "--redis", "redis://redis:6379/0", "--metrics-host", "0.0.0.0", "--metrics-port", "9100"]
