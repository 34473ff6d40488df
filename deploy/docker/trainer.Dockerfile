# The trainer, for a demonstration on the CPU: it reaches the graders only through the API.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-venv \
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
COPY deploy/docker/locks/trainer.lock deploy/docker/locks/torch.lock ./
RUN pip install --require-hashes --no-deps -r trainer.lock -r torch.lock && pip check
COPY . .
# a checkout, because a wheel has the SDK alone; compiled here, because the image's user cannot write there
RUN pip install --no-deps --prefix /opt/own -e . && python -m compileall -q .

FROM ${BASE_IMAGE}
ARG VERSION=dev
LABEL org.opencontainers.image.title="gradus-trainer" \
      org.opencontainers.image.description="Gradus: trains a language model on the graders' rewards with GRPO" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin gradus \
 && install -d -o 1000 -g 1000 /runs
COPY --from=build /opt/gradus /opt/gradus
# on top, so that a change of it leaves the gigabytes below where they are
COPY --from=build /opt/own /opt/gradus/venv
COPY --from=build /src /src
COPY configs /opt/gradus/configs
ENV PATH=/opt/gradus/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    HF_HOME=/tmp/huggingface HF_HUB_OFFLINE=1
USER 1000:1000
WORKDIR /runs
VOLUME /runs
CMD ["gradus", "train", "/opt/gradus/configs/train/demo_ocaml.yaml", "--dry-run"]
