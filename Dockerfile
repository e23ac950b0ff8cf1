# The image of every part of the service: the first node with the coordinator, the nodes that join
# it, and the one-off verbs (`docker run --rm schedfuzz:local findings`).
#
# A machine with GPUs uses the same image. The driver comes from the container runtime, and the CUDA
# libraries come with the vllm wheels into the target environments, which stand in the volume.
FROM debian:bookworm-20260824-slim

# ca-certificates: the target environments are downloaded when they are first needed.
# gcc and python3-dev: Triton builds its launchers with them on a GPU.
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates gcc libc6-dev python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/schedfuzz

# The package after its dependencies: a change of the code does not install those again.
COPY dev pyproject.toml requirements.lock README.md LICENSE ./
RUN mkdir schedfuzz \
    && printf '__version__ = "0"\n' > schedfuzz/__init__.py \
    && UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1 PIP_NO_CACHE_DIR=1 ./dev setup
COPY schedfuzz schedfuzz
# Bytecode now: at run time nothing here can be written. Modes, because a clone made under a strict
# umask would come with its own.
RUN chmod -R a+rX schedfuzz && .venv/bin/python -m compileall -q schedfuzz

# The number is fixed because files with secrets have to belong to it.
RUN groupadd --gid 10001 schedfuzz \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/schedfuzz --no-create-home \
        --shell /usr/sbin/nologin schedfuzz \
    && install -d -o 10001 -g 10001 -m 0750 /var/lib/schedfuzz

# HOME: what compiles kernels keeps them below it, and the volume is where there is room.
ENV PATH=/opt/schedfuzz/.venv/bin:$PATH \
    HOME=/var/lib/schedfuzz \
    SCHEDFUZZ_HOME=/var/lib/schedfuzz

VOLUME /var/lib/schedfuzz
USER 10001:10001
WORKDIR /var/lib/schedfuzz

# No HEALTHCHECK: what is healthy depends on the part, so docker-compose.yml says it for each.
ENTRYPOINT ["schedfuzz"]
CMD ["--help"]
