# A vLLM server that takes the weights of each training step, on a CPU: for demonstrations and tests, with models that fit.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/gradus/venv
ENV PATH=/opt/gradus/venv/bin:$PATH
# pip's settings may come from the machine that builds: --build-arg PIP_CONFIG_FILE=... with a volume
ARG PIP_CONFIG_FILE
# PyPI's torch brings CUDA, several gigabytes of it. For the CPU build pass PyTorch's own index here.
ARG PIP_EXTRA_INDEX_URL
ARG PIP_NO_CACHE_DIR=1
WORKDIR /src
# as `make vllm` does it: torch by itself, the rest without what vLLM asks for and text models do without
COPY requirements-vllm.lock ./
RUN pip install -c requirements-vllm.lock torch==2.13.0 \
 && pip install --no-deps -r requirements-vllm.lock
COPY . .
# a checkout, because a wheel has the SDK alone; compiled here, because the image's user cannot write there
RUN pip install --no-deps --prefix /opt/own -e . && python -m compileall -q .

FROM ${BASE_IMAGE}
ARG VERSION=dev
LABEL org.opencontainers.image.title="gradus-generation-cpu" \
      org.opencontainers.image.description="Gradus: vLLM that takes the weights of each training step, on a CPU" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# vLLM reads how many cores there are from lscpu, which is in util-linux; libgomp is torch's
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 util-linux libgomp1 libnuma1 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin gradus \
 && install -d -o 1000 -g 1000 /runs /models
COPY --from=build /opt/gradus /opt/gradus
# on top, so that a change of it leaves the gigabytes below where they are
COPY --from=build /opt/own /opt/gradus/venv
COPY --from=build /src /src
# without Dynamo: it would compile what is sampled with, and there is no compiler here
ENV PATH=/opt/gradus/venv/bin:$PATH HF_HOME=/models HOME=/tmp TORCHDYNAMO_DISABLE=1 \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /tmp
VOLUME /runs
VOLUME /models
EXPOSE 8001
HEALTHCHECK --interval=15s --timeout=5s --start-period=15m --retries=4 \
  CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8001/health', timeout=4)"]
CMD ["gradus", "vllm", "/runs/demo_ocaml_vllm/warm_start", "--host", "0.0.0.0", "--port", "8001", "--trust-network", "--device", "cpu"]
